//! What clients do: drawn per seed, over every operation that the server accepts.
//!
//! | module | what it holds |
//! |---|---|
//! | [`entries`] | the exhaustive match from command to whoever issues it |
//! | `producing`, `consuming`, `grouping`, `resources`, `people`, `system` | one request of each |
//! | [`malformed`] | frames that break a rule |
//! | [`replies`] | the exhaustive match from command to the type of its answer |
//! | [`worker`] | a client that does one job |
//! | [`auditor`] | the client that reads everything at the end |

pub mod auditor;
mod consuming;
mod cx;
pub mod draft;
pub mod entries;
mod grouping;
pub mod malformed;
mod people;
pub mod producing;
pub mod replies;
mod resources;
mod system;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::clients::Client;
use crate::clients::habits::Habits;
use crate::clients::machine::Machine;
use crate::random::Dice;
use auditor::Auditor;
use borzoi_types::Duration;
use cx::Memory;
use entries::Job;
use std::collections::BTreeMap;
use worker::{Plan, Worker};

/// The world that a workload is made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Lanes of level `persisted`, at least one.
    pub lanes_persisted: u32,
    /// Lanes of level `replicated`, perhaps none.
    pub lanes_replicated: u32,
    /// Whether faults will be injected.
    pub faulty: bool,
    /// Sends that the run must confirm at least.
    pub sends_wanted: u64,
    /// Name and password of the root user.
    pub root: (&'static str, &'static str),
}

/// The clients of a run.
#[must_use]
pub fn clients(setting: &Setting, dice: &mut Dice) -> Vec<Box<dyn Client>> {
    let jobs = [
        (Job::Admin, dice.between(1, 2)),
        (Job::Producer, dice.between(1, 5)),
        (Job::Consumer, dice.between(1, 4)),
        (Job::Member, dice.between(0, 4)),
        (Job::Visitor, dice.between(1, 2)),
    ];
    let sizes = Sizes::draw(dice);
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    for (job, count) in jobs {
        for _ in 0..count {
            let index = clients.len();
            clients.push(Box::new(worker(index, job, &sizes, setting, dice)));
        }
    }
    let index = clients.len();
    let mut habits = Habits::draw(dice).patient().one_at_a_time();
    habits.tokens = 0;
    let machine = Machine::new(index, habits, setting.root, Dice::new(dice.bits()));
    let memory = sizes.memory(index, Job::Library);
    let auditor = Auditor::new(machine, Dice::new(dice.bits()), setting.clone(), memory);
    clients.push(Box::new(auditor));
    clients
}

/// Sizes that a whole run shares.
struct Sizes {
    small_percent: u64,
    payload_bytes_max: u64,
    batch_max: u64,
    topics_wanted: usize,
    partitions_max: u64,
}

impl Sizes {
    fn draw(dice: &mut Dice) -> Self {
        Self {
            small_percent: *dice.pick(&[80, 80, 10]),
            // Large ones fill segments, so that they roll.
            // A batch of them fits the smallest journal several times.
            payload_bytes_max: *dice.pick(&[300, 2_000, 4_000]),
            batch_max: *dice.pick(&[1, 4, 8]),
            topics_wanted: dice.index(4) + 1,
            partitions_max: dice.between(1, 4),
        }
    }

    fn memory(&self, client: usize, job: Job) -> Memory {
        Memory {
            client,
            job,
            sequence: 0,
            topic: None,
            current: BTreeMap::new(),
            positions: BTreeMap::new(),
            bindings: 0,
            member: None,
            small_percent: self.small_percent,
            payload_bytes_max: self.payload_bytes_max,
            batch_max: self.batch_max,
            topics_wanted: self.topics_wanted,
            partitions_max: self.partitions_max,
        }
    }
}

fn worker(index: usize, job: Job, sizes: &Sizes, setting: &Setting, dice: &mut Dice) -> Worker {
    let mut habits = Habits::draw(dice);
    let slow = Duration::from_millis(dice.between(20, 300));
    match job {
        // Outcomes of changes must become known, else nothing can be said of what they touch.
        Job::Admin => {
            habits = habits.patient().one_at_a_time();
            (habits.tokens, habits.think) = (0, Duration(slow.0 * 3));
        }
        Job::Producer => {}
        Job::Consumer | Job::Member | Job::Library => {
            (habits, habits.think) = (habits.clone().one_at_a_time(), slow);
        }
        Job::Visitor => {
            (habits, habits.think) = (habits.clone().one_at_a_time(), Duration(slow.0 * 2));
            habits.tokens = 0;
        }
    }
    let weights = entries::commands(job)
        .into_iter()
        .map(|command| {
            let swarm = *dice.pick(&[0, 1, 1, 1, 2, 4]);
            // What a job needs to get anywhere is never switched off.
            let least = u64::from(entries::is_essential(command));
            (command, (entries::usual_weight(command) * swarm).max(least))
        })
        .collect();
    let requests = match job {
        Job::Producer => setting.sends_wanted * 10,
        Job::Admin => setting.sends_wanted / 3,
        _ => setting.sends_wanted,
    };
    let malformed = match job {
        Job::Visitor => *dice.pick(&[0, 20, 50]),
        _ => 0,
    };
    let disguises = match job {
        Job::Producer | Job::Consumer => *dice.pick(&[0, 0, 30]),
        _ => 0,
    };
    let machine = Machine::new(index, habits, setting.root, Dice::new(dice.bits()));
    let memory = sizes.memory(index, job);
    let plan = Plan { memory, weights, requests, malformed, disguises };
    Worker::new(machine, Dice::new(dice.bits()), setting.clone(), plan)
}
