//! A whole node in one thread, as its clients see it: frames in, frames out.
//!
//! Shards, their messages, a simulated disk whose requests are executed at once, a password thread
//! that takes its time until it is asked. Every frame that a connection gets is kept until the test
//! takes it.

use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{BootOptions, BootSeams, RootUser, boot};
use borzoi_shard::event::{
    ArchiveJob, ArchiveTicket, ClientTrouble, CloseReason, LogEntry, PasswordJob, PasswordOutcome,
    PasswordTicket,
};
use borzoi_shard::{ConnectionId, Effect, Event, Lanes, Random, SeededRandom, Shard, Transport};
use borzoi_storage::disk::{DiskIdentity, execute};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Duration, Micros, Mono, Now, ShardId};
use borzoi_wire::Name;
use bytes::BytesMut;
use std::collections::{BTreeMap, VecDeque};

/// Wall clock at the start of every world.
pub const START: Micros = Micros(1_790_000_000_000_000);

struct Seams;

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        RootUser { name: Name::new("iggy").unwrap(), password: stored("iggy") }
    }
    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        Box::new(SeededRandom::new(77 + u64::from(shard.0)))
    }
}

/// The stored form of a password in this world.
pub fn stored(password: &str) -> PasswordHash {
    PasswordHash(format!("stored:{password}"))
}

/// What one connection has seen.
#[derive(Default)]
pub struct Seen {
    pub shard: ShardId,
    pub frames: VecDeque<Vec<u8>>,
    pub limit: usize,
    pub closed: Option<CloseReason>,
}

pub struct World {
    pub shards: Vec<Shard>,
    pub disk: SimDisk,
    pub now: Now,
    pub seen: BTreeMap<ConnectionId, Seen>,
    /// Password jobs asked for so far.
    pub password_jobs: usize,
    /// While set, password jobs are kept.
    pub hold_passwords: bool,
    /// While set, disk requests are kept.
    pub hold_disk: bool,
    pub stopped: usize,
    pub logged: Vec<ClientTrouble>,
    /// Diagnostic archives asked for and not made.
    pub archives: Vec<(ShardId, ArchiveTicket, ArchiveJob)>,
    /// Every effect since the start, when a test wants them.
    pub trace: Option<String>,
    passwords: VecDeque<(ShardId, PasswordTicket, PasswordJob)>,
    inbox: VecDeque<(ShardId, Event)>,
    disk_queue: VecDeque<(ShardId, Effect)>,
    next_connection: u64,
}

pub fn options(shards: u16) -> BootOptions {
    BootOptions {
        lanes: Lanes { persisted: 3, replicated: 1 },
        journal: JournalOptions { file_bytes: 1024 * 1024, files_max: 8 },
        ..BootOptions::solo(shards)
    }
}

impl World {
    /// A formatted node.
    pub fn new(shards: u16) -> Self {
        let disk = SimDisk::new(DiskIdentity { boot_id: Some([1; 16]), device: 7, inode: 9 });
        Self::boot(disk, &options(shards), Now { mono: Mono(1_000), wall: START })
    }

    pub fn boot(mut disk: SimDisk, options: &BootOptions, now: Now) -> Self {
        let booted = boot(&mut disk, options, now, &mut Seams).expect("the node starts");
        let mut world = Self {
            shards: booted.shards,
            disk,
            now,
            seen: BTreeMap::new(),
            password_jobs: 0,
            hold_passwords: false,
            hold_disk: false,
            stopped: 0,
            logged: Vec::new(),
            archives: Vec::new(),
            trace: None,
            passwords: VecDeque::new(),
            inbox: VecDeque::new(),
            disk_queue: VecDeque::new(),
            next_connection: now.mono.0,
        };
        for shard in 0..options.shards {
            world.inbox.push_back((ShardId(shard), Event::Tick));
        }
        world.run();
        world
    }

    /// `kill -9` and a new start on the same machine.
    pub fn restart(self, shards: u16) -> Self {
        let now = self.later(Duration::from_secs(1));
        Self::boot(self.disk.kill(), &options(shards), now)
    }

    fn later(&self, span: Duration) -> Now {
        let wall = Micros(self.now.wall.0 + span.as_micros());
        Now { mono: self.now.mono.plus(span), wall }
    }

    /// Opens a connection from `peer` to `shard`.
    pub fn open(&mut self, shard: u16, peer: &str) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        let shard = ShardId(shard % u16::try_from(self.shards.len()).unwrap());
        self.seen.insert(connection, Seen { shard, ..Seen::default() });
        let (peer, transport) = (peer.to_owned(), Transport::Tcp);
        self.inbox.push_back((shard, Event::ConnectionOpened { connection, peer, transport }));
        self.run();
        connection
    }

    /// Something about a connection happens.
    pub fn tell(&mut self, connection: ConnectionId, event: Event) {
        self.inbox.push_back((self.seen[&connection].shard, event));
    }

    /// The client closes its connection.
    pub fn hang_up(&mut self, connection: ConnectionId) {
        let shard = self.seen[&connection].shard;
        if self.seen[&connection].closed.is_none() {
            self.inbox.push_back((shard, Event::ConnectionClosed { connection }));
        }
        self.run();
    }

    /// A connection is lost; noticed with the next run.
    pub fn lose(&mut self, connection: ConnectionId) {
        let shard = self.seen[&connection].shard;
        self.inbox.push_back((shard, Event::ConnectionClosed { connection }));
    }

    /// A frame arrives, like all others before it in one batch if `run` is not called between.
    pub fn deliver(&mut self, connection: ConnectionId, frame: &[u8]) {
        let shard = self.seen[&connection].shard;
        let frame = BytesMut::from(frame);
        self.inbox.push_back((shard, Event::Frame { connection, frame }));
    }

    pub fn stop(&mut self) {
        for shard in 0..self.shards.len() {
            self.inbox.push_back((ShardId(u16::try_from(shard).unwrap()), Event::Stop));
        }
        self.run();
    }

    /// Time passes, in steps small enough for every timer.
    pub fn advance(&mut self, span: Duration) {
        let end = self.later(span);
        while self.now.mono < end.mono {
            let left = Duration(end.mono.0 - self.now.mono.0);
            let step = Duration(left.0.min(Duration::from_millis(50).0));
            self.now = self.later(step);
            for (index, shard) in self.shards.iter().enumerate() {
                if shard.deadline().is_some_and(|deadline| deadline <= self.now.mono) {
                    self.inbox.push_back((ShardId(u16::try_from(index).unwrap()), Event::Tick));
                }
            }
            self.run();
        }
    }

    /// Everything that can happen without time passing happens.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// One thing happens: a batch of events, a request of the disk or a password job. False when
    /// nothing can without time passing.
    pub fn step(&mut self) -> bool {
        if !self.inbox.is_empty() {
            self.run_batch();
        } else if !self.hold_disk && !self.disk_queue.is_empty() {
            self.run_disk();
        } else if !self.hold_passwords && !self.passwords.is_empty() {
            self.run_password();
        } else {
            return self.tick_if_due();
        }
        true
    }

    fn tick_if_due(&mut self) -> bool {
        let mut due = false;
        for index in 0..self.shards.len() {
            if self.shards[index].deadline().is_some_and(|at| at <= self.now.mono) {
                self.inbox.push_back((ShardId(u16::try_from(index).unwrap()), Event::Tick));
                due = true;
            }
        }
        due
    }

    fn run_batch(&mut self) {
        let batch = core::mem::take(&mut self.inbox);
        let mut effects: BTreeMap<ShardId, Vec<Effect>> = BTreeMap::new();
        for (to, event) in batch {
            let out = effects.entry(to).or_default();
            self.shards[usize::from(to.0)].handle(self.now, event, out);
        }
        for (from, mut out) in effects {
            self.shards[usize::from(from.0)].end_of_batch(self.now, &mut out);
            for effect in out {
                self.route(from, effect);
            }
        }
    }

    fn route(&mut self, from: ShardId, effect: Effect) {
        if let Some(trace) = &mut self.trace {
            trace.push_str(&format!("{} {from:?} {effect:?}\n", self.now.mono.0));
        }
        match effect {
            Effect::Reply { connection, parts } => {
                let frame: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                let seen = self.seen.get_mut(&connection).expect("replies go to connections");
                assert!(seen.closed.is_none(), "a reply after the close");
                seen.frames.push_back(frame);
            }
            Effect::SetFrameLimit { connection, bytes } => {
                self.seen.get_mut(&connection).unwrap().limit = bytes;
            }
            Effect::Close { connection, reason } => {
                let seen = self.seen.get_mut(&connection).unwrap();
                assert!(seen.closed.is_none(), "closed twice");
                seen.closed = Some(reason);
                self.inbox.push_back((from, Event::ConnectionClosed { connection }));
            }
            disk @ Effect::Disk { .. } => self.disk_queue.push_back((from, disk)),
            Effect::ToShard { to, message } => {
                self.inbox.push_back((to, Event::FromShard { from, message }));
            }
            Effect::Password { ticket, address: _, job } => {
                self.password_jobs += 1;
                self.passwords.push_back((from, ticket, job));
            }
            Effect::Archive { ticket, job } => self.archives.push((from, ticket, job)),
            Effect::Log(record) => {
                if let LogEntry::Client { trouble, .. } = record.entry {
                    self.logged.push(trouble);
                }
            }
            Effect::ToPeer { to, .. } => panic!("a solo node has no peer {to}"),
            Effect::Fatal(error) => panic!("the node cannot go on: {error}"),
            Effect::Stopped => self.stopped += 1,
        }
    }

    fn run_disk(&mut self) {
        let Some((shard, Effect::Disk { ticket, request, .. })) = self.disk_queue.pop_front()
        else {
            return;
        };
        let result = execute(&mut self.disk, &request);
        self.inbox.push_back((shard, Event::Disk { ticket, result }));
    }

    fn run_password(&mut self) {
        let Some((shard, ticket, job)) = self.passwords.pop_front() else { return };
        let outcome = match job {
            PasswordJob::Verify { password, phc } => {
                PasswordOutcome::Verified(stored(&password.0).0 == phc)
            }
            PasswordJob::Hash { password, salt: _ } => {
                PasswordOutcome::Hashed(stored(&password.0).0)
            }
        };
        self.inbox.push_back((shard, Event::Password { ticket, outcome }));
    }

    /// The oldest archive that was asked for is made, or cannot be.
    pub fn make_archive(&mut self, archive: Option<&[u8]>) -> ArchiveJob {
        let (shard, ticket, job) = self.archives.remove(0);
        let archive = archive.map(bytes::Bytes::copy_from_slice);
        self.inbox.push_back((shard, Event::Archive { ticket, archive }));
        self.run();
        job
    }

    /// Nothing waits anywhere.
    pub fn assert_at_rest(&self) {
        self.assert_at_rest_but(0);
    }

    /// Nothing waits anywhere but this many things.
    pub fn assert_at_rest_but(&self, waiting: usize) {
        let all: usize = self.shards.iter().map(|shard| shard.front().waiting()).sum();
        assert_eq!(all, waiting, "waits at rest");
        for (connection, seen) in &self.seen {
            assert!(seen.frames.is_empty(), "{connection:?} has frames nobody took");
        }
    }
}
