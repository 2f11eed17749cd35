//! Processes: start, crash, clean stop, and what the disk holds after each.

use crate::faults::Profile;
use crate::random::Dice;
use crate::world::World;
use crate::world::clock::Clock;
use crate::world::disk::is_injected;
use crate::world::node::{Core, Process};
use crate::world::queue::{Happening, Place};
use crate::world::watched_disk::WatchedDisk;
use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{BootError, BootOptions, BootSeams, NodeBoot, RootUser, boot};
use borzoi_shard::event::{HostStats, LogEntry, LogRecord};
use borzoi_shard::{Event, FatalError, Random, SeededRandom};
use borzoi_storage::cache::CacheOptions;
use borzoi_storage::sim_disk::{Fate, Unsynced};
use borzoi_types::{Mono, ReplicaId, ShardId};
use borzoi_wire::Name;
use core::fmt::Write as _;
use std::collections::BTreeSet;

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

struct Seams {
    seed: u64,
}

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        let name = Name::new(ROOT.0).expect("a valid name");
        RootUser { name, password: PasswordHash(stored(ROOT.1)) }
    }

    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        Box::new(SeededRandom::new(self.seed ^ (u64::from(shard.0) << 32)))
    }
}

fn boot_options(profile: &Profile, node: usize, shards: u16) -> BootOptions {
    let mut options = BootOptions::solo(shards);
    options.replica = ReplicaId(u8::try_from(node).expect("clusters are small"));
    options.replica_count = u8::try_from(profile.nodes).expect("clusters are small");
    options.lanes = profile.lanes;
    options.journal = profile.journal;
    options.cache =
        CacheOptions { chunk_bytes_max: profile.cache_bytes, index_bytes_max: 1024 * 1024 };
    options.offset_reservation_lease = profile.lease;
    options.checkpoint_interval = profile.checkpoint_interval;
    options.park_age_max = profile.park_age_max;
    options
}

impl World {
    /// A start of `node` follows, `micros` from now, unless one is already to come.
    pub fn schedule_boot(&mut self, node: usize, micros: u64) {
        if !self.nodes[node].boot_pending {
            self.nodes[node].boot_pending = true;
            self.queue.after(self.now, micros, Happening::Boot(node));
        }
    }

    /// A node that is down tries to start.
    pub(crate) fn boot(&mut self, index: usize) {
        self.nodes[index].boot_pending = false;
        if self.nodes[index].is_up() {
            return;
        }
        let drawn = self.dice.between(1, u64::from(self.profile.shards_max));
        let drawn = u16::try_from(drawn).expect("few shards");
        let shards = self.shards_wanted.unwrap_or(drawn);
        let doomed = self.faults_on && self.dice.chance(8);
        if doomed {
            let disk = &mut self.nodes[index].disk;
            disk.crash_before(disk.steps() + self.dice.below(120));
        }
        let drift = self.profile.drift_ppm;
        let rate = 1_000_000 - drift + self.dice.below(2 * drift + 1);
        let node = &mut self.nodes[index];
        let base = Mono(1_000_000 + self.dice.below(1 << 40));
        node.clock = Clock::new(self.now, base, rate, node.clock.offset());
        node.life += 1;
        node.shards = shards;
        let options = boot_options(&self.profile, index, shards);
        let mut seams = Seams { seed: self.dice.bits() };
        let now = node.clock.now(self.now);
        let mut watched = WatchedDisk { disk: &mut node.disk, writes: Vec::new() };
        let booted = boot(&mut watched, &options, now, &mut seams);
        for write in watched.writes {
            self.checks.boot_wrote(index, &write);
        }
        let crashed = node.disk.is_crashed();
        if doomed && !crashed {
            node.disk = node.disk.kill();
        }
        match booted {
            Ok(booted) => self.booted(index, booted),
            Err(error) if crashed => {
                self.coverage.fault("crash inside the start");
                self.note(index, &format!("crashed in its start: {error}"));
                let drawn = if self.dice.chance(50) { End::Kill } else { End::PowerCut };
                self.end(index, self.crash_end.unwrap_or(drawn));
                self.revive(index);
            }
            Err(error) => self.refused(index, &error),
        }
    }

    fn booted(&mut self, index: usize, booted: NodeBoot) {
        let shards = booted.shards.len();
        self.note(
            index,
            &format!(
                "starts: {shards} shards, generation {}, trusted {}, {} findings",
                booted.generation,
                booted.trusted,
                booted.findings.len()
            ),
        );
        if !booted.trusted && !booted.formatted {
            self.coverage.branch("start with an untrusted tail");
        }
        let node = &mut self.nodes[index];
        node.starts += 1;
        node.refusal = None;
        let cores = booted.shards.into_iter().map(Core::new).collect();
        node.process = Some(Process { cores, stopped: BTreeSet::new(), stopping: false });
        let life = node.life;
        for shard in 0..shards {
            let place = Place { node: index, life, shard };
            self.push(place, Event::Host(Box::new(host_stats())));
            self.push(place, Event::Tick);
        }
        self.checks.started(index, &self.nodes);
        self.links_up(index);
    }

    /// A start that was refused must have a reason that was injected.
    fn refused(&mut self, index: usize, error: &BootError) {
        self.note(index, &format!("refuses to start: {error}"));
        self.nodes[index].refusal = Some(error.to_string());
        let injected = match error {
            BootError::Disk(error) => is_injected(error),
            other => other.to_string().contains("injected") || other.to_string().contains("space"),
        };
        if injected && self.faults_on {
            self.coverage.branch("start refused by a failing disk");
            self.schedule_boot(index, 500_000);
            return;
        }
        self.coverage.branch("start refused because of damage");
        assert!(self.refusals_allowed, "node {index} refuses to start: {error}");
    }

    /// Ends the process of a node, if it runs, and leaves on its disk what such an end leaves.
    pub fn end(&mut self, index: usize, end: End) {
        self.note(index, &format!("{end:?}"));
        let now = self.now;
        let node = &mut self.nodes[index];
        if let Some(process) = node.process.take() {
            self.checks.ending(now, index, &process, &mut self.coverage);
            self.checks.lost[index] |= end == End::PowerCut;
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
                node.disk = node
                    .disk
                    .power_cut_and_boot([node.boot_ids; 16], |item| fate(item, lost, dice));
            }
        }
        if self.nodes.len() == 1 {
            self.facts.unclean_ends.push(self.now);
            if end == End::PowerCut {
                self.facts.unsynced_lost.push(self.now);
            }
        }
        self.cut_sockets(index, end == End::PowerCut);
        self.links_down(index, end == End::PowerCut);
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
            FatalError::Outdated { .. } => false, // No directory is replaced by an older copy yet.
        };
        assert!(injected, "a node gives up for no injected reason: {error}");
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

/// The figures of every simulated machine: always the same.
fn host_stats() -> HostStats {
    HostStats {
        process_id: 1,
        total_memory: 1 << 34,
        available_memory: 1 << 33,
        hostname: "simulated".to_owned(),
        os_name: "simulated".to_owned(),
        os_version: "1".to_owned(),
        kernel_version: "1".to_owned(),
        threads_count: 8,
        free_disk_space: 1 << 40,
        total_disk_space: 1 << 41,
        ..HostStats::default()
    }
}
