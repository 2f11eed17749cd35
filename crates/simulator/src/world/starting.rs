//! Starts of processes: a directory that can be started, one that has to ask the other nodes first,
//! one that refuses.

use crate::faults::Profile;
use crate::world::World;
use crate::world::clock::Clock;
use crate::world::disk::is_injected;
use crate::world::node::{Core, Forming, Process};
use crate::world::process::{End, ROOT, stored};
use crate::world::queue::{Happening, Place};
use crate::world::watched_disk::WatchedDisk;
use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{
    Beginning, BootError, BootOptions, BootSeams, FormationEvent, NodeBoot, RootUser, begin, boot,
};
use borzoi_shard::event::HostStats;
use borzoi_shard::{Effect, Event, Random, SeededRandom};
use borzoi_storage::cache::CacheOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Duration, Mono, ReplicaId, ShardId};
use borzoi_wire::Name;
use std::collections::BTreeSet;

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
        if self.nodes[index].is_alive() {
            return;
        }
        let drawn = self.dice.between(1, u64::from(self.profile.shards_max));
        let drawn = u16::try_from(drawn).expect("few shards");
        let shards = self.shards_wanted.unwrap_or(drawn);
        if self.faults_on && self.dice.chance(8) {
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
        let seed = self.dice.bits();
        match begin(&mut node.disk, &options, &mut Seams { seed }) {
            Ok(Beginning::Ready) => self.boot_ready(index, &options, seed),
            Ok(Beginning::Forming(formation)) => {
                node.forming = Some(Forming { formation, options, seed });
                self.note(index, "asks the others how to begin");
                self.links_up(index);
                self.schedule_form(index);
            }
            Err(error) => self.failed(index, &error),
        }
    }

    /// Starts a node whose directory is ready.
    fn boot_ready(&mut self, index: usize, options: &BootOptions, seed: u64) {
        let node = &mut self.nodes[index];
        let now = node.clock.now(self.now);
        let mut watched = WatchedDisk { disk: &mut node.disk, writes: Vec::new() };
        let booted = boot(&mut watched, options, now, &mut Seams { seed });
        for write in watched.writes {
            self.checks.boot_wrote(index, &write);
        }
        match booted {
            Ok(booted) => self.booted(index, booted),
            Err(error) => self.failed(index, &error),
        }
    }

    /// A start has come to an end before its time.
    fn failed(&mut self, index: usize, error: &BootError) {
        if !self.nodes[index].disk.is_crashed() {
            return self.refused(index, error);
        }
        self.coverage.fault("crash inside the start");
        self.note(index, &format!("crashed in its start: {error}"));
        let drawn = if self.dice.chance(50) { End::Kill } else { End::PowerCut };
        self.end(index, self.crash_end.unwrap_or(drawn));
        self.revive(index);
    }

    fn schedule_form(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Some(forming) = &node.forming else { return };
        let at = node.clock.when(forming.formation.deadline());
        let at = at.max(self.now.plus(Duration::from_micros(1)));
        self.queue.at(at, Happening::Form { node: index, life: node.life });
    }

    /// A node that asks the others has a deadline.
    pub(crate) fn form_tick(&mut self, index: usize, life: u64) {
        if self.nodes[index].life == life {
            self.form(index, FormationEvent::Tick);
            self.schedule_form(index);
        }
    }

    /// Something happens to a node that asks the others how to begin.
    pub(crate) fn form(&mut self, index: usize, event: FormationEvent<'_>) {
        let node = &mut self.nodes[index];
        let Some(mut forming) = node.forming.take() else { return };
        let life = node.life;
        let mut seams = Seams { seed: forming.seed };
        let mut effects = Vec::new();
        let now = node.clock.now(self.now);
        let done = forming.formation.handle(now, event, &mut node.disk, &mut seams, &mut effects);
        let place = Place { node: index, life, shard: 0 };
        for effect in effects {
            self.trace.effect(self.now, index, 0, &effect);
            if let Effect::ToPeer { to, parts } = effect {
                self.send_to_peer(place, to, &parts);
            }
        }
        if let Err(error) = done {
            return self.failed(index, &error);
        }
        match forming.formation.formed().cloned() {
            None => self.nodes[index].forming = Some(forming),
            Some(formed) => {
                self.coverage.branch("cluster founded or joined");
                self.note(index, "has what it needs to begin");
                forming.options.formed = Some(formed);
                self.boot_ready(index, &forming.options, forming.seed);
            }
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
        if !self.keeps_crash_step {
            node.disk = node.disk.kill();
        }
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

    /// A start that was refused must have a reason that was injected. A node of a cluster whose
    /// files were damaged gets an empty disk and joins anew, as its operator would have it.
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
        if self.nodes[index].damaged {
            self.coverage.branch("damaged node begins anew");
            self.empty_disk(index);
            self.schedule_boot(index, 500_000);
            return;
        }
        assert!(self.refusals_allowed, "node {index} refuses to start: {error}");
    }

    /// The disk of a node that is down is replaced by an empty one.
    pub fn empty_disk(&mut self, index: usize) {
        assert!(!self.nodes[index].is_alive(), "node {index} is down meanwhile");
        let node = &mut self.nodes[index];
        let identity = borzoi_storage::disk::Disk::identity(&mut node.disk);
        let inode = identity.inode + 1_000;
        node.disk = SimDisk::new(borzoi_storage::disk::DiskIdentity { inode, ..identity });
        node.damaged = false;
        self.forget_what_was_known(index);
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
