//! Ends of processes: crash, clean stop, giving up, and what the disk holds after each.

use crate::random::Dice;
use crate::world::World;
use crate::world::disk::is_injected;
use crate::world::node::Process;
use crate::world::queue::Place;
use borzoi_shard::event::{LogEntry, LogRecord};
use borzoi_shard::{Event, FatalError};
use borzoi_storage::sim_disk::{Fate, Unsynced};
use borzoi_types::Mono;
use core::fmt::Write as _;

/// Name and password of the root user of every simulated cluster.
pub const ROOT: (&str, &str) = ("iggy", "iggy");

/// The stored form of a password in a simulated cluster.
#[must_use]
pub(crate) fn stored(password: &str) -> String {
    format!("stored:{password}")
}

/// How a process ends other than by its own will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process is gone, the machine lives.
    Kill,
    /// The machine lost power; it comes up with another boot identity.
    PowerCut,
}

impl World {
    /// Ends the process of a node, if it runs, and leaves on its disk what such an end leaves.
    pub fn end(&mut self, index: usize, end: End) {
        self.note(index, &format!("{end:?}"));
        let now = self.now;
        if end == End::PowerCut {
            self.checks.unsynced_lost(index);
        }
        let node = &mut self.nodes[index];
        node.forming = None;
        if let Some(process) = node.process.take() {
            self.checks.ending(now, index, &process, &mut self.coverage);
            for core in process.cores {
                core.disk.abandon(&mut node.disk, &mut self.dice);
            }
        }
        node.life += 1;
        node.paused_until = Mono(0);
        match end {
            End::Kill => node.disk = node.disk.kill(),
            End::PowerCut => {
                node.boot_ids += 1;
                let lost = self.profile.lost_percent;
                let dice = &mut self.dice;
                let boot_id = u128::from(node.boot_ids).to_le_bytes();
                node.disk = node.disk.power_cut_and_boot(boot_id, |item| fate(item, lost, dice));
            }
        }
        if self.nodes.len() == 1 {
            self.facts.unclean_ends.push(self.now);
        }
        if end == End::PowerCut {
            self.unsynced_lost(index);
        }
        self.cut_sockets(index, end == End::PowerCut);
        self.links_down(index, end == End::PowerCut);
    }

    /// Unsynced writes of a node are gone. If at the same time so many nodes miss some that they
    /// may have been all who had them, level `replicated` has lost what it may lose.
    fn unsynced_lost(&mut self, index: usize) {
        for (node, lost) in self.nodes.iter().zip(&mut self.power_lost) {
            let learned = |process: &Process| {
                process.cores.iter().all(|core| !crate::checkers::must_learn(&core.shard))
            };
            *lost &= !node.process.as_ref().is_some_and(learned);
        }
        self.power_lost[index] = true;
        let lost = self.power_lost.iter().filter(|lost| **lost).count();
        if lost >= self.checks.quorum() {
            self.facts.unsynced_lost.push(self.now);
            self.checks.loosen();
        }
    }

    /// A node that is down starts again soon.
    pub(crate) fn revive(&mut self, index: usize) {
        if self.revives {
            let delay = self.dice.between(1_000, 1_500_000);
            self.schedule_boot(index, delay);
        }
    }

    /// The process says that it cannot go on.
    pub(crate) fn fatal(&mut self, place: Place, error: &FatalError) {
        let injected = match error {
            FatalError::Journal(cause) | FatalError::Disk(cause) => is_injected(cause),
            FatalError::Outdated { .. } => self.refusals_allowed,
        };
        assert!(injected, "a node gives up for no injected reason: {error}");
        if matches!(error, FatalError::Outdated { .. }) {
            self.nodes[place.node].refusal = Some(error.to_string());
        }
        self.coverage.branch("node stops because its disk fails");
        self.note(place.node, &format!("gives up: {error}"));
        self.end(place.node, End::Kill);
        self.revive(place.node);
    }

    /// Tells a process to stop cleanly.
    pub fn stop(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let life = node.life;
        let Some(process) = &mut node.process else { return };
        if process.stopping {
            return;
        }
        process.stopping = true;
        let shards = process.cores.len();
        self.note(index, "is told to stop");
        for shard in 0..shards {
            self.push(Place { node: index, life, shard }, Event::Stop);
        }
    }

    /// A process all of whose shards have stopped is over; it starts again soon.
    pub(crate) fn end_if_stopped(&mut self, place: Place) {
        let node = &self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        let Some(process) = &node.process else { return };
        if process.stopping && process.stopped.len() == process.cores.len() {
            self.coverage.branch("clean stop completed");
            self.end(place.node, End::Kill);
            self.revive(place.node);
        }
    }

    pub(crate) fn logged(&mut self, record: &LogRecord) {
        match &record.entry {
            LogEntry::Checkpoint { .. } => self.coverage.branch("checkpoint"),
            LogEntry::OffsetJump { .. } => self.coverage.branch("offset jump"),
            LogEntry::DiskTrouble { .. } => self.coverage.branch("disk trouble survived"),
            LogEntry::Damage { .. } => self.coverage.branch("damage noticed by a read"),
            _ => {}
        }
    }

    pub(crate) fn note(&mut self, index: usize, text: &str) {
        self.trace.note(self.now, |out| {
            let _ = write!(out, "node {index} {text}");
        });
    }
}

fn fate(_item: &Unsynced, lost_percent: u64, dice: &mut Dice) -> Fate {
    if dice.chance(15) {
        Fate::Torn(u8::try_from(dice.below(256)).expect("a byte"))
    } else if dice.chance(lost_percent) {
        Fate::Lost
    } else {
        Fate::Kept
    }
}
