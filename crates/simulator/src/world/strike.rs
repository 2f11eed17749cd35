//! Faults strike.

use crate::faults::FaultKind;
use crate::world::World;
use crate::world::process::End;
use crate::world::queue::Happening;
use borzoi_storage::disk::{Disk as _, DiskErrorKind, DiskOperation};
use borzoi_storage::sim_disk::Fault;
use borzoi_types::Duration;

/// More than any simulated disk holds.
const LARGE_DISK: u64 = 1 << 50;

impl World {
    /// A fault of a kind strikes, and the next of its kind is scheduled.
    pub(crate) fn fault(&mut self, kind: FaultKind) {
        if !self.faults_on {
            return;
        }
        let again = self.nemesis.next_in(kind);
        self.queue.after(self.now, again, Happening::Fault(kind));
        let node = self.nemesis.dice().index(self.nodes.len());
        if self.strike(kind, node) {
            self.coverage.fault(kind.name());
            self.note(node, kind.name());
        }
    }

    /// Lets a fault strike a node. Returns whether there was anything to strike.
    pub fn strike(&mut self, kind: FaultKind, node: usize) -> bool {
        let up = self.nodes[node].is_up();
        match kind {
            FaultKind::Kill | FaultKind::PowerCut => {
                let end = if kind == FaultKind::Kill { End::Kill } else { End::PowerCut };
                self.end(node, end);
                self.revive(node);
            }
            FaultKind::PowerCutAll => {
                for node in 0..self.nodes.len() {
                    self.end(node, End::PowerCut);
                    self.revive(node);
                }
                self.facts.unsynced_lost.push(self.now);
            }
            FaultKind::Restart => self.stop(node),
            FaultKind::Pause => {
                let millis = self.nemesis.dice().between(1, 3_000);
                self.nodes[node].paused_until = self.now.plus(Duration::from_millis(millis));
            }
            FaultKind::JournalWriteError => self.disk_error(node, DiskOperation::Write),
            FaultKind::JournalSyncError => self.disk_error(node, DiskOperation::Sync),
            FaultKind::DiskError => {
                let operations = [
                    DiskOperation::Read,
                    DiskOperation::Create,
                    DiskOperation::Replace,
                    DiskOperation::Remove,
                ];
                let operation = *self.nemesis.dice().pick(&operations);
                self.disk_error(node, operation);
            }
            FaultKind::DiskFull => self.fill_disk(node),
            FaultKind::DiskSlow | FaultKind::DiskStuck => {
                let millis = self.nemesis.dice().between(1, 3_000);
                let until = self.now.plus(Duration::from_millis(millis));
                let node = &mut self.nodes[node];
                if kind == FaultKind::DiskSlow {
                    node.slow_until = until;
                } else {
                    node.stuck_until = until;
                }
            }
            FaultKind::ClockStep => {
                let step = self.clock_step();
                self.nodes[node].clock.step(step);
            }
            FaultKind::ClockStrobe => {
                let until = self.now.plus(Duration::from_millis(200));
                self.nodes[node].strobe_until = until;
                self.queue.after(self.now, 1, Happening::Recover(node));
            }
            FaultKind::ClientsCut => {
                if self.clients.is_empty() {
                    return false;
                }
                let client = self.nemesis.dice().index(self.clients.len());
                self.cut_client(client);
            }
            FaultKind::LinkCut
            | FaultKind::Partition
            | FaultKind::SwizzleClog
            | FaultKind::LinkClog => self.strike_links(kind, node),
        }
        let needs_process = matches!(kind, FaultKind::Kill | FaultKind::Restart | FaultKind::Pause);
        up || !needs_process
    }

    /// Cuts or clogs links for a while; all open together when it is over.
    fn strike_links(&mut self, kind: FaultKind, node: usize) {
        let nodes = self.nodes.len();
        let dice = self.nemesis.dice();
        let until = self.now.plus(Duration::from_millis(dice.between(10, 5_000)));
        let peer = (node + 1 + dice.index(nodes - 1)) % nodes;
        match kind {
            FaultKind::LinkCut => self.network.cut(node, peer, true),
            FaultKind::Partition => {
                let inside = 1 + dice.index(nodes - 1);
                for a in 0..inside {
                    for b in inside..nodes {
                        self.network.cut_both((node + a) % nodes, (node + b) % nodes, true);
                    }
                }
            }
            FaultKind::LinkClog => self.network.clog(node, peer, until),
            _ => {
                for from in 0..nodes {
                    for to in (0..nodes).filter(|to| *to != from) {
                        let millis = self.nemesis.dice().below(2_000);
                        let until = self.now.plus(Duration::from_millis(millis));
                        self.network.clog(from, to, until);
                    }
                }
            }
        }
        self.queue.at(until, Happening::LinksHeal);
    }

    fn disk_error(&mut self, node: usize, operation: DiskOperation) {
        let after = self.nemesis.dice().below(4);
        let kind = DiskErrorKind::Io;
        let fault = Fault { operation, file: None, after, kind, lasting: false };
        self.nodes[node].disk.inject(fault);
    }

    fn fill_disk(&mut self, index: usize) {
        let room = self.nemesis.dice().below(400_000);
        let millis = self.nemesis.dice().between(100, 5_000);
        let node = &mut self.nodes[index];
        node.disk.set_capacity(Some(LARGE_DISK));
        let used = LARGE_DISK - node.disk.free_bytes().unwrap_or(LARGE_DISK);
        node.disk.set_capacity(Some(used + room));
        node.full_until = self.now.plus(Duration::from_millis(millis));
        self.queue.at(node.full_until, Happening::Recover(index));
    }

    /// Plus or minus 100 ms to an hour, in microseconds.
    fn clock_step(&mut self) -> i64 {
        let dice = self.nemesis.dice();
        let most = *dice.pick(&[100_000_u64, 1_000_000, 60_000_000, 3_600_000_000]);
        let step = i64::try_from(dice.between(1, most)).expect("an hour at most");
        if dice.chance(50) { step } else { -step }
    }

    /// Ends a condition whose time is over, and keeps a strobing clock strobing.
    pub(crate) fn recover(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.full_until <= self.now {
            node.disk.set_capacity(None);
        }
        if node.strobe_until > self.now {
            let step = if (self.now.0 / 5_000_000).is_multiple_of(2) { 150_000 } else { -150_000 };
            node.clock.step(step);
            self.queue.after(self.now, 5_000, Happening::Recover(index));
        }
    }

    /// Faults stop; everything that is broken is repaired; nodes that are down start.
    pub fn heal(&mut self) {
        self.faults_on = false;
        self.network.heal();
        for index in 0..self.nodes.len() {
            self.nodes[index].heal();
            if !self.nodes[index].is_up() {
                self.schedule_boot(index, 10_000);
            }
        }
        self.trace.note(self.now, |out| out.push_str("everything heals"));
    }
}
