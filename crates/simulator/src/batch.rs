//! Many seeds: what they covered together, how fast they ran, and whether that is enough.

use crate::checkers::{OTHERS, client};
use crate::coverage::Coverage;
use crate::faults::{FaultKind, Profile};
use crate::run::{Outcome, run, run_and_explain};
use crate::trace::Keep;
use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Seeds of a batch from which on everything declared must have occurred.
pub const COMPLETE_FROM: u64 = 300;

/// Seeds of each batch that are run a second time to compare the traces.
const TWICE: u64 = 3;

/// Faults that strike frames and starts rather than at moments.
const FAULTS_ON_THE_WAY: &[(&str, usize)] = &[
    ("crash inside the start", 1),
    ("frame lost", 3),
    ("frame duplicated", 3),
    ("frame corrupted", 3),
    ("frame may be overtaken", 3),
    ("old frame replayed", 3),
    ("frame of an impostor", 3),
];

/// Rare branches that a batch must reach, and from how many nodes on they can be reached.
const BRANCHES: &[(&str, usize)] = &[
    ("start with an untrusted tail", 1),
    ("node stops because its disk fails", 1),
    ("clean stop completed", 1),
    ("checkpoint", 1),
    ("offset jump", 1),
    ("disk trouble survived", 1),
    ("journal record carried forward", 1),
    ("send answered from the window", 1),
    ("reservation", 1),
    ("segment roll", 1),
    ("view change", 3),
    ("prepare repaired", 3),
    ("prepare out of order", 3),
];

/// Which seeds to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first seed.
    pub first: u64,
    /// How many seeds in a row; the batch ends earlier when the time is up.
    pub seeds: u64,
    /// Seeds that are run before.
    pub before: Vec<u64>,
    /// Nodes of every run, if not drawn.
    pub nodes: Option<usize>,
    /// Threads, each with seeds of its own.
    pub threads: usize,
}

/// Everything a batch found.
#[derive(Debug, Default)]
pub struct Batch {
    /// Runs that ended.
    pub runs: u64,
    /// Of them, runs in which something was injected.
    pub faulty: u64,
    /// Runs by number of nodes.
    pub sizes: BTreeMap<usize, u64>,
    /// Events handled.
    pub events: u64,
    /// Simulated seconds.
    pub simulated_secs: f64,
    /// Sends confirmed.
    pub confirmed_sends: u64,
    /// The fewest sends of one run.
    pub confirmed_least: Option<u64>,
    /// What happened.
    pub coverage: Coverage,
    /// How often each checker looked.
    pub looked: BTreeMap<u8, u64>,
    /// Runs that failed.
    pub failed: Vec<Outcome>,
}

impl Batch {
    fn add(&mut self, outcome: Outcome) {
        self.runs += 1;
        self.faulty += u64::from(!outcome.coverage.faults.is_empty());
        *self.sizes.entry(outcome.profile.nodes).or_default() += 1;
        self.events += outcome.events;
        self.simulated_secs += outcome.simulated.0 as f64 / 1e9;
        self.confirmed_sends += outcome.confirmed_sends;
        let sends = outcome.confirmed_sends;
        self.confirmed_least = Some(self.confirmed_least.map_or(sends, |least| least.min(sends)));
        self.coverage.add(&outcome.coverage);
        for (number, times) in &outcome.looked {
            *self.looked.entry(*number).or_default() += times;
        }
        if outcome.failure.is_some() {
            self.failed.push(outcome);
        }
    }

    /// What must have occurred in a batch of this many seeds and has not, as sentences.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        if self.runs < COMPLETE_FROM {
            return Vec::new();
        }
        let largest = self.sizes.keys().copied().max().unwrap_or(0);
        let mut missing = Vec::new();
        let struck = FaultKind::ALL.iter().filter(|kind| kind.is_possible(largest));
        let faults = struck.map(|kind| kind.name()).chain(named(FAULTS_ON_THE_WAY, largest));
        for name in faults.filter(|name| !self.coverage.faults.contains_key(name)) {
            missing.push(format!("no seed saw the fault: {name}"));
        }
        for name in named(BRANCHES, largest) {
            if !self.coverage.branches.contains_key(name) {
                missing.push(format!("no seed reached: {name}"));
            }
        }
        if self.faulty * 10 < self.runs * 9 {
            missing.push(format!("only {} of {} seeds carried faults", self.faulty, self.runs));
        }
        for name in ["checkpoint", "segment roll"] {
            let times = self.coverage.branches.get(name).copied().unwrap_or(0);
            if times * 2 < self.runs {
                missing.push(format!("{name}: {times} times in {} seeds", self.runs));
            }
        }
        missing
    }

    /// The report of a batch that took `secs` of real time.
    #[must_use]
    pub fn report(&self, secs: f64) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} seeds, {} with faults, {:?} by nodes",
            self.runs, self.faulty, self.sizes
        );
        let _ = writeln!(
            out,
            "{secs:.1} s: {:.2} seeds, {:.0} events and {:.1} simulated seconds per second",
            self.runs as f64 / secs,
            self.events as f64 / secs,
            self.simulated_secs / secs,
        );
        let least = self.confirmed_least.unwrap_or(0);
        let _ = writeln!(out, "{} sends confirmed, at least {least} a seed", self.confirmed_sends);
        let kinds = [
            ("faults", &self.coverage.faults),
            ("branches", &self.coverage.branches),
            ("operations", &self.coverage.operations),
        ];
        for (title, counts) in kinds {
            let _ = writeln!(out, "{title}:");
            for (name, times) in counts {
                let _ = writeln!(out, "  {times:>10}  {name}");
            }
        }
        let _ = writeln!(out, "checkers looked:");
        for (number, name) in checker_names() {
            let times = self.looked.get(&number).copied().unwrap_or(0);
            let _ = writeln!(out, "  {times:>10}  {number:>2} {name}");
        }
        out
    }
}

fn named(list: &[(&'static str, usize)], largest: usize) -> impl Iterator<Item = &'static str> {
    list.iter().filter(move |(_, from)| *from <= largest).map(|(name, _)| *name)
}

/// Number and name of every checker, in order.
#[must_use]
pub fn checker_names() -> BTreeMap<u8, String> {
    let mut names: BTreeMap<u8, String> =
        OTHERS.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
    for checker in client::all() {
        names.insert(checker.number(), checker.name().to_owned());
    }
    names
}

/// The seeds that once failed.
#[must_use]
pub fn failed_before() -> Vec<u64> {
    include_str!("../seeds/failed.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// Runs a batch; `over` says when the time is up, `failed` is told of each failure at once.
#[must_use]
pub fn run_batch(
    plan: &Plan,
    over: &(impl Fn() -> bool + Sync),
    failed: &(impl Fn(&Outcome) + Sync),
) -> Batch {
    let batch = Mutex::new(Batch::default());
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = plan.before.len() as u64 + plan.seeds;
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= total || over() {
                stop.store(true, Ordering::Relaxed);
                return;
            }
            let before = usize::try_from(at).ok().and_then(|at| plan.before.get(at));
            let fresh = at.saturating_sub(plan.before.len() as u64);
            let seed = before.copied().unwrap_or(plan.first.wrapping_add(fresh));
            let profile = Profile::draw(seed, plan.nodes);
            let mut outcome = run_and_explain(&profile);
            if before.is_none() && fresh < TWICE && outcome.failure.is_none() {
                outcome = twice(outcome);
            }
            if outcome.failure.is_some() {
                failed(&outcome);
            }
            batch.lock().expect("no thread panics while it counts").add(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.threads {
            scope.spawn(work);
        }
        work();
    });
    let mut batch = batch.into_inner().expect("no thread panics while it counts");
    batch.looked.insert(35, u64::from(batch.runs >= COMPLETE_FROM));
    batch
}

/// Runs a seed again; another trace is a failure.
fn twice(mut first: Outcome) -> Outcome {
    let second = run(&first.profile, Keep::Nothing);
    if first.hash == second.hash {
        *first.looked.entry(34).or_default() += 1;
        return first;
    }
    let message = "checker 34: the same seed gave another trace".to_owned();
    let (trace, state) = (Vec::new(), String::new());
    first.failure = Some(crate::run::Failure { message, trace, state });
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_batch_of_many_seeds_is_invalid() {
        let batch = Batch { runs: COMPLETE_FROM, ..Batch::default() };
        assert!(
            batch.missing().iter().any(|line| line.contains("kill -9") || line.contains("0 of"))
        );
        let short = Batch { runs: COMPLETE_FROM - 1, ..Batch::default() };
        assert_eq!(short.missing(), Vec::<String>::new());
    }
}
