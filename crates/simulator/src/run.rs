//! One seed from beginning to end.
//!
//! *Safety*: clients work, faults strike. *Liveness*: everything heals; the cluster must come to
//! serve within a bound, clients finish what is under way, write once more and read everything
//! from every node. *Rest*: nothing may wait anywhere. Then the histories are checked.

use crate::checkers::{HistoryChecker, client};
use crate::clients::Phase;
use crate::coverage::Coverage;
use crate::faults::Profile;
use crate::random::Dice;
use crate::trace::Keep;
use crate::workload::{self, Setting};
use crate::world::World;
use borzoi_types::{Duration, Mono};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// How long everything that is left may take once all faults are over.
const CONVERGE_WITHIN: Duration = Duration::from_secs(120);

/// How long nothing happens before the end: longer than any hand-over of a partition may take.
const REST: Duration = Duration::from_secs(45);

/// Lines of a trace around a failure.
const LINES_AROUND: usize = 120;

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The broken promise.
    pub message: String,
    /// The end of the trace.
    pub trace: Vec<String>,
    /// Every node and client.
    pub state: String,
}

/// What a run was.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Its profile.
    pub profile: Profile,
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// Hash of the whole trace.
    pub hash: u64,
    /// Events that shards handled.
    pub events: u64,
    /// Simulated time.
    pub simulated: Mono,
    /// Sends confirmed.
    pub confirmed_sends: u64,
    /// What happened.
    pub coverage: Coverage,
    /// How often each checker looked, by number.
    pub looked: BTreeMap<u8, u64>,
    /// The whole trace, when it was asked for.
    pub trace: Vec<String>,
}

/// Runs the seed of a profile.
#[must_use]
pub fn run(profile: &Profile, keep: Keep) -> Outcome {
    let setting = Setting {
        nodes: profile.nodes,
        lanes_persisted: profile.lanes.persisted,
        lanes_replicated: profile.lanes.replicated,
        faulty: profile.is_faulty(),
        sends_wanted: profile.sends_wanted,
        root: crate::world::ROOT,
    };
    let clients = workload::clients(&setting, &mut Dice::fork(profile.seed, "workload"));
    let mut world = World::new(profile.clone(), clients, keep);
    let mut history_checkers = client::all();
    let result = guarded(|| {
        live(&mut world);
        check_history(&world, &mut history_checkers);
    });
    finish(world, &history_checkers, result)
}

/// Runs a seed, and if it fails once more with a trace: the seed decides everything, so the second
/// run fails in the same way, or something is not decided by the seed, which is a failure too.
#[must_use]
pub fn run_and_explain(profile: &Profile) -> Outcome {
    let first = run(profile, Keep::Nothing);
    let Some(failure) = &first.failure else { return first };
    let mut second = run(profile, Keep::Last(LINES_AROUND));
    let same = second.failure.as_ref().is_some_and(|again| again.message == failure.message);
    if !same || second.hash != first.hash {
        let message = format!("checker 34: not decided by the seed; first: {}", failure.message);
        let empty = Failure { message: String::new(), trace: Vec::new(), state: String::new() };
        let again = second.failure.unwrap_or(empty);
        let message = format!("{message}; then: {}", again.message);
        second.failure = Some(Failure { message, ..again });
    }
    second
}

fn live(world: &mut World) {
    world.begin();
    let until = world.profile.faults_until;
    let faulty = world.profile.is_faulty();
    world.run_while_not(Duration::from_millis(until), |world| {
        world.clients_done() && (!faulty || !world.coverage.faults.is_empty())
    });
    world.heal();
    converge(world, "the clients' work");
    world.enter(&Phase::Finish);
    converge(world, "what was under way");
    world.enter(&Phase::Final { nodes: (0..world.nodes.len()).collect() });
    converge(world, "the final write and reads");
    *world.checks.run.entry(30).or_default() += 1;
    world.run_for(REST);
    world.checks.at_rest(&mut world.nodes);
    let wanted = world.profile.sends_wanted;
    let confirmed = world.history.confirmed_sends;
    assert!(
        world.clients.is_empty() || confirmed >= wanted,
        "only {confirmed} sends were confirmed"
    );
}

fn converge(world: &mut World, what: &str) {
    let done = world.run_while_not(CONVERGE_WITHIN, |world| {
        world.clients_done() && world.nodes.iter().all(|node| node.is_up())
    });
    *world.checks.run.entry(29).or_default() += 1;
    assert!(
        done,
        "checkers 29 and 30: {what} did not end in {} s",
        CONVERGE_WITHIN.0 / 1_000_000_000
    );
}

fn check_history(world: &World, checkers: &mut [Box<dyn HistoryChecker>]) {
    for checker in checkers {
        if let Err(broken) = checker.check(&world.history, &world.facts) {
            panic!("checker {} ({}): {broken}", checker.number(), checker.name());
        }
    }
}

fn finish(
    mut world: World,
    checkers: &[Box<dyn HistoryChecker>],
    result: Result<(), String>,
) -> Outcome {
    let state = guarded_text(&world);
    for index in 0..world.nodes.len() {
        if let Some(process) = world.nodes[index].process.take() {
            world.checks.ending(world.now, index, &process, &mut world.coverage);
        }
    }
    let mut looked = world.checks.looked();
    looked.insert(31, world.trace.events());
    for checker in checkers {
        looked.insert(checker.number(), checker.looked());
    }
    let trace = world.trace.take_lines();
    let failure = result.err().map(|message| Failure { message, trace: trace.clone(), state });
    Outcome {
        seed: world.profile.seed,
        failure,
        hash: world.trace.hash(),
        events: world.trace.events(),
        simulated: world.now,
        confirmed_sends: world.history.confirmed_sends,
        coverage: world.coverage,
        looked,
        trace,
        profile: world.profile,
    }
}

fn guarded_text(world: &World) -> String {
    let mut text = String::new();
    let described = guarded(|| text = world.describe());
    described.err().unwrap_or(text)
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `action`; a panic becomes its message and place, and nothing is printed.
///
/// # Errors
/// What the panic said.
pub fn guarded(action: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(
            move |info| {
                if GUARDED.get() { remember(info) } else { before(info) }
            },
        ));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(action));
    GUARDED.set(outer);
    result.map_err(|_| PANIC.take())
}

fn remember(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let payload = info.payload();
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words");
    PANIC.set(format!("{message} [{place}]"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message_and_place() {
        let result = guarded(|| panic!("on purpose"));
        let message = result.expect_err("it panicked");
        assert!(message.starts_with("on purpose ["), "{message}");
        assert!(message.contains("run.rs"), "{message}");
        assert_eq!(guarded(|| ()), Ok(()));
    }
}
