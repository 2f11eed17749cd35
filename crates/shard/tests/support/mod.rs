//! A whole node in one thread over a simulated disk: shards, their messages, their disk queues.
//!
//! Requests are submitted as if from another shard of the node (`OUTSIDE`), answers are collected
//! here. Disk requests wait in their queues until the test executes them one by one, in an order
//! drawn from a seed but within the rules of the queues (two journal writes may overlap), so that a
//! test can stop the world between any two of them.

#![allow(dead_code, clippy::unwrap_used, reason = "test support; each test file uses its part")]

pub mod model;

use borzoi_metadata::{
    Change, Command, CreateTopic, PasswordHash, TopicDefaults, TopicName, TopicOptions,
};
use borzoi_shard::boot::{BootError, BootOptions, BootSeams, NodeBoot, RootUser, boot};
use borzoi_shard::front::FrontMessage;
use borzoi_shard::lane::api::{
    ConsumerKey, LaneReply, LaneRequest, LaneRequestKind, Origin, PollStart, Ticket,
};
use borzoi_shard::{Effect, Event, Lanes, Random, SeededRandom, Shard, ShardMessage};
use borzoi_storage::disk::{
    Disk, DiskError, DiskIdentity, DiskOutcome, DiskQueue, DiskRequest, DiskResult, DiskTicket,
    execute,
};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::{SimDisk, SyncInFlight};
use borzoi_types::{
    Durability, Duration, LogId, Micros, Mono, Now, Offset, PartitionId, PartitionKey, ShardId,
};
use borzoi_wire::{Identifier, Name};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// The shard that the test speaks for.
pub const OUTSIDE: ShardId = ShardId(900);

/// Boot identity of the first life.
pub const BOOT_ID: [u8; 16] = [1; 16];

/// An empty disk.
pub fn new_disk() -> SimDisk {
    SimDisk::new(DiskIdentity { boot_id: Some(BOOT_ID), device: 7, inode: 9 })
}

/// A node with few lanes and a small journal.
pub fn options(shards: u16) -> BootOptions {
    BootOptions {
        lanes: Lanes { persisted: 2, replicated: 1 },
        journal: JournalOptions { file_bytes: 256 * 1024, files_max: 4 },
        offset_reservation_lease: 16,
        checkpoint_interval: Duration::from_secs(60),
        park_age_max: Duration::from_secs(2),
        ..BootOptions::solo(shards)
    }
}

struct Seams {
    seed: u64,
}

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        let name = Name::new("iggy").expect("a valid name");
        RootUser { name, password: PasswordHash("$argon2id$test".to_owned()) }
    }

    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        Box::new(SeededRandom::new(self.seed ^ u64::from(shard.0)))
    }
}

/// Boots from `disk`.
pub fn boot_disk(
    disk: &mut SimDisk,
    options: &BootOptions,
    now: Now,
) -> Result<NodeBoot, BootError> {
    let mut seams = Seams { seed: now.mono.0 ^ 0x5eed };
    boot(disk, options, now, &mut seams)
}

/// One thing the disk can do next.
#[derive(Clone, Debug)]
pub enum Action {
    /// Execute a request whole.
    Execute(DiskRequest),
    /// Finish a sync that began before later writes.
    FinishSync(SyncInFlight),
}

impl Action {
    /// Does it.
    pub fn apply(&self, disk: &mut SimDisk) -> DiskResult {
        match self {
            Self::Execute(request) => execute(disk, request),
            Self::FinishSync(sync) => disk.finish_sync(sync).map(|()| DiskOutcome::Done),
        }
    }
}

#[derive(Debug)]
struct Flush {
    ticket: DiskTicket,
    request: DiskRequest,
    /// Journal writes that must have completed first.
    after_writes: u64,
    started: Option<SyncInFlight>,
}

#[derive(Debug, Default)]
struct Queues {
    writes: VecDeque<(DiskTicket, DiskRequest)>,
    writes_submitted: u64,
    writes_done: u64,
    /// A write that ends before the one in front of it, and is reported after it.
    overtaking: Option<DiskTicket>,
    overtaken: Option<(DiskTicket, DiskResult)>,
    /// The one that was in front.
    late: Option<DiskTicket>,
    flushes: VecDeque<Flush>,
    pool: VecDeque<(DiskTicket, DiskRequest)>,
}

/// Where the next action comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Write(usize),
    Flush(usize),
    Pool(usize),
}

/// A running node.
pub struct Node {
    pub shards: Vec<Shard>,
    pub disk: SimDisk,
    pub now: Now,
    pub replies: BTreeMap<Ticket, LaneReply>,
    pub fatal: Vec<String>,
    pub stopped: BTreeSet<ShardId>,
    pub refused_commands: u64,
    inbox: VecDeque<(ShardId, Event)>,
    queues: Vec<Queues>,
    random: SeededRandom,
}

impl Node {
    /// Boots a node from `disk`; panics if it does not start.
    pub fn start(disk: SimDisk, options: &BootOptions, now: Now, seed: u64) -> Self {
        match Self::try_start(disk, options, now, seed) {
            Ok(node) => node,
            Err(error) => panic!("the node does not start: {error}"),
        }
    }

    /// Boots a node from `disk`.
    pub fn try_start(
        mut disk: SimDisk,
        options: &BootOptions,
        now: Now,
        seed: u64,
    ) -> Result<Self, BootError> {
        let booted = boot_disk(&mut disk, options, now)?;
        let queues = booted.shards.iter().map(|_| Queues::default()).collect();
        let mut node = Self {
            shards: booted.shards,
            disk,
            now,
            replies: BTreeMap::new(),
            fatal: Vec::new(),
            stopped: BTreeSet::new(),
            refused_commands: 0,
            inbox: VecDeque::new(),
            queues,
            random: SeededRandom::new(seed),
        };
        for shard in 0..node.shards.len() {
            let shard = ShardId(u16::try_from(shard).unwrap());
            node.inbox.push_back((shard, Event::Tick));
        }
        Ok(node)
    }

    /// Delivers every event that waits, each as a batch of its own.
    pub fn run_events(&mut self) {
        while let Some((to, event)) = self.inbox.pop_front() {
            let mut effects = Vec::new();
            let shard = &mut self.shards[usize::from(to.0)];
            shard.handle(self.now, event, &mut effects);
            shard.end_of_batch(self.now, &mut effects);
            self.route(to, effects);
        }
    }

    /// Delivers every event that waits as one batch per shard.
    pub fn run_events_batched(&mut self) {
        while !self.inbox.is_empty() {
            let batch = core::mem::take(&mut self.inbox);
            let mut effects: BTreeMap<ShardId, Vec<Effect>> = BTreeMap::new();
            for (to, event) in batch {
                let out = effects.entry(to).or_default();
                self.shards[usize::from(to.0)].handle(self.now, event, out);
            }
            for (to, mut out) in effects {
                self.shards[usize::from(to.0)].end_of_batch(self.now, &mut out);
                self.route(to, out);
            }
        }
    }

    fn route(&mut self, from: ShardId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Disk { queue, ticket, request } => {
                    let queues = &mut self.queues[usize::from(from.0)];
                    match queue {
                        DiskQueue::JournalWrite => {
                            queues.writes_submitted += 1;
                            queues.writes.push_back((ticket, request));
                        }
                        DiskQueue::JournalFlush => {
                            let after_writes = queues.writes_submitted;
                            let flush = Flush { ticket, request, after_writes, started: None };
                            queues.flushes.push_back(flush);
                        }
                        DiskQueue::Pool => queues.pool.push_back((ticket, request)),
                    }
                }
                Effect::ToShard { to, message } if to == OUTSIDE => self.answered(message),
                Effect::ToShard { to, message } => {
                    self.inbox.push_back((to, Event::FromShard { from, message }));
                }
                Effect::Fatal(error) => self.fatal.push(error.to_string()),
                Effect::ToPeer { to, .. } => panic!("a solo node has no peer {to}"),
                Effect::Stopped => {
                    self.stopped.insert(from);
                }
                Effect::Reply { .. }
                | Effect::SetFrameLimit { .. }
                | Effect::Close { .. }
                | Effect::Password { .. }
                | Effect::Archive { .. }
                | Effect::Log(_) => {}
            }
        }
    }

    fn answered(&mut self, message: ShardMessage) {
        match message {
            ShardMessage::LaneReply { ticket, reply } => {
                let before = self.replies.insert(ticket, reply);
                assert!(before.is_none(), "{ticket:?} was answered twice");
            }
            ShardMessage::Front(FrontMessage::CommandRefused { .. }) => self.refused_commands += 1,
            ShardMessage::Front(_) => {}
            other => panic!("unexpected message {other:?}"),
        }
    }

    /// What the disk does next, if anything waits. [`Self::finish`] must follow.
    pub fn next_action(&mut self) -> Option<(ShardId, DiskTicket, Action)> {
        let mut sources = Vec::new();
        for (index, queues) in self.queues.iter().enumerate() {
            if !queues.writes.is_empty() {
                sources.push(Source::Write(index));
            }
            let ready = |flush: &Flush| queues.writes_done >= flush.after_writes;
            if queues.flushes.front().is_some_and(ready) {
                sources.push(Source::Flush(index));
            }
            if !queues.pool.is_empty() {
                sources.push(Source::Pool(index));
            }
        }
        if sources.is_empty() {
            return None;
        }
        let pick = self.random.next_u64() % sources.len() as u64;
        let source = sources[usize::try_from(pick).unwrap()];
        let shard = |index: usize| ShardId(u16::try_from(index).unwrap());
        match source {
            Source::Write(index) => {
                let may_overtake = self.random.next_u64().is_multiple_of(4);
                let queues = &mut self.queues[index];
                if may_overtake && queues.overtaking.is_none() && queues.writes.len() > 1 {
                    let (ticket, request) = queues.writes.remove(1).unwrap();
                    queues.overtaking = Some(ticket);
                    return Some((shard(index), ticket, Action::Execute(request)));
                }
                let (ticket, request) = queues.writes.pop_front().unwrap();
                queues.writes_done += 1;
                if queues.overtaking.is_some() {
                    queues.writes_done += 1;
                    queues.late = Some(ticket);
                }
                Some((shard(index), ticket, Action::Execute(request)))
            }
            Source::Pool(index) => {
                let (ticket, request) = self.take_from_pool(index);
                Some((shard(index), ticket, Action::Execute(request)))
            }
            Source::Flush(index) => {
                let flush = self.queues[index].flushes.front_mut().unwrap();
                if let DiskRequest::Sync { file } = &flush.request
                    && flush.started.is_none()
                    && let Ok(sync) = self.disk.start_sync(file)
                {
                    // It has started; something else may run before it ends.
                    flush.started = Some(sync);
                    return self.next_action();
                }
                let flush = self.queues[index].flushes.pop_front().unwrap();
                let action = match flush.started {
                    Some(sync) => Action::FinishSync(sync),
                    None => Action::Execute(flush.request),
                };
                Some((shard(index), flush.ticket, action))
            }
        }
    }

    /// Any request of the pool that no earlier one about the same file holds back.
    fn take_from_pool(&mut self, index: usize) -> (DiskTicket, DiskRequest) {
        let pool = &mut self.queues[index].pool;
        let free: Vec<usize> = (0..pool.len())
            .filter(|at| pool.iter().take(*at).all(|(_, r)| r.file() != pool[*at].1.file()))
            .collect();
        let pick = self.random.next_u64() % free.len() as u64;
        pool.remove(free[usize::try_from(pick).unwrap()]).unwrap()
    }

    /// Executes an action and queues its result.
    pub fn finish(&mut self, shard: ShardId, ticket: DiskTicket, action: &Action) {
        let result = action.apply(&mut self.disk);
        let queues = &mut self.queues[usize::from(shard.0)];
        if queues.overtaking == Some(ticket) {
            queues.overtaken = Some((ticket, result));
            return;
        }
        self.inbox.push_back((shard, Event::Disk { ticket, result }));
        if queues.late.take_if(|late| *late == ticket).is_some() {
            queues.overtaking = None;
            let (ticket, result) = queues.overtaken.take().unwrap();
            self.inbox.push_back((shard, Event::Disk { ticket, result }));
        }
    }

    /// Runs until nothing waits, neither events nor disk requests.
    pub fn settle(&mut self) {
        loop {
            self.run_events();
            let Some((shard, ticket, action)) = self.next_action() else { return };
            self.finish(shard, ticket, &action);
        }
    }

    /// Lets time pass and every deadline that is due be noticed.
    pub fn pass(&mut self, span: Duration) {
        self.now.mono = self.now.mono.plus(span);
        self.now.wall = Micros(self.now.wall.0 + span.as_micros());
        self.tick();
    }

    /// Ticks the shards whose deadline has come.
    pub fn tick(&mut self) {
        for index in 0..self.shards.len() {
            if self.shards[index].deadline().is_some_and(|deadline| deadline <= self.now.mono) {
                let shard = ShardId(u16::try_from(index).unwrap());
                self.inbox.push_back((shard, Event::Tick));
            }
        }
    }

    /// Stops every shard cleanly and runs until they say so.
    pub fn stop(&mut self) {
        for index in 0..self.shards.len() {
            let shard = ShardId(u16::try_from(index).unwrap());
            self.inbox.push_back((shard, Event::Stop));
        }
        self.settle();
        assert_eq!(self.stopped.len(), self.shards.len(), "every shard has stopped");
    }

    /// Queues an event for a shard.
    pub fn push(&mut self, to: ShardId, event: Event) {
        self.inbox.push_back((to, event));
    }

    /// Submits a request to the lane of a partition.
    pub fn request(&mut self, place: Place, kind: LaneRequestKind) -> Ticket {
        let ticket = self.ticket();
        let origin = Origin::here(OUTSIDE, ticket);
        let request = LaneRequest { origin, key: place.key, lane: place.lane, kind };
        let to = place.lane.shard(u16::try_from(self.shards.len()).unwrap());
        let message = ShardMessage::Lane(Box::new(request));
        self.inbox.push_back((to, Event::FromShard { from: OUTSIDE, message }));
        ticket
    }

    /// Proposes a metadata command.
    pub fn command(&mut self, change: Change) -> Ticket {
        let ticket = self.ticket();
        let body = Command::system(change).encode().into();
        let message = ShardMessage::Front(FrontMessage::Command { ticket, body });
        self.inbox.push_back((ShardId(0), Event::FromShard { from: OUTSIDE, message }));
        ticket
    }

    /// Takes the answer to a request; panics if there is none.
    pub fn answer(&mut self, ticket: Ticket) -> LaneReply {
        self.replies.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} was not answered"))
    }

    /// A ticket that no life of any node has used.
    fn ticket(&mut self) -> Ticket {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ticket(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Where a partition of a topic lives, if metadata has it.
    pub fn place(&self, topic: &str, partition: u32) -> Option<Place> {
        let metadata = self.shards[0].front().metadata();
        let stream = Identifier::Name(Name::new(STREAM).unwrap());
        let topic = Identifier::Name(Name::new(topic).unwrap());
        let found = metadata.resolve(&stream, &topic, PartitionId(partition)).ok()?;
        Some(Place { key: found.key, lane: found.lane })
    }
}

/// A partition and its lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub key: PartitionKey,
    pub lane: LogId,
}

/// The stream that tests use.
pub const STREAM: &str = "stream";

/// The command that creates [`STREAM`].
pub fn create_stream() -> Change {
    Change::CreateStream { name: Name::new(STREAM).unwrap() }
}

/// The command that creates a topic.
pub fn create_topic(name: &str, partitions: u32, durability: Durability) -> Change {
    let defaults = TopicDefaults { durability };
    let mut options = TopicOptions::defaults(&defaults);
    options.segment_size = 1024 * 1024;
    Change::CreateTopic(CreateTopic {
        stream: Identifier::Name(Name::new(STREAM).unwrap()),
        name: Name::new(name).unwrap(),
        partitions,
        options,
    })
}

/// The command that creates a topic with changed options. Segments may be smaller than clients may
/// ask for.
pub fn create_topic_with(
    name: &str,
    partitions: u32,
    durability: Durability,
    change: impl FnOnce(&mut TopicOptions),
) -> Change {
    let mut options = TopicOptions::defaults(&TopicDefaults { durability });
    change(&mut options);
    let (stream, name) = (Identifier::Name(Name::new(STREAM).unwrap()), Name::new(name).unwrap());
    Change::CreateTopic(CreateTopic { stream, name, partitions, options })
}

/// The command that deletes the oldest closed segments of a partition.
pub fn delete_segments(name: &str, partition: u32, count: u32) -> Change {
    let (topic, partition) = (topic_name(name), PartitionId(partition));
    Change::DeleteSegments { topic, partition, count }
}

/// A poll of a plain consumer.
pub fn poll_request(
    start: PollStart,
    count: u32,
    consumer: ConsumerKey,
    auto_commit: bool,
) -> LaneRequestKind {
    LaneRequestKind::Poll { start, count, consumer, auto_commit, generation: 0 }
}

/// A plain consumer's offset, to be stored and waited for.
pub fn store_request(consumer: ConsumerKey, offset: Offset) -> LaneRequestKind {
    let (wait, generation, persisted) = (true, 0, false);
    LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted }
}

/// The command that deletes a topic.
pub fn delete_topic(name: &str) -> Change {
    Change::DeleteTopic(topic_name(name))
}

/// A topic of [`STREAM`].
pub fn topic_name(name: &str) -> TopicName {
    TopicName {
        stream: Identifier::Name(Name::new(STREAM).unwrap()),
        topic: Identifier::Name(Name::new(name).unwrap()),
    }
}

/// The time at which tests begin.
pub fn start_time() -> Now {
    Now { mono: Mono(1_000_000_000), wall: Micros(1_700_000_000_000_000) }
}

/// For errors that a test injects.
pub fn is_crash(error: &DiskError) -> bool {
    error.kind == borzoi_storage::disk::DiskErrorKind::Crashed
}

/// Silences the unused import of the trait in files that only boot.
pub fn disk_len(disk: &mut SimDisk, file: &borzoi_storage::disk::FileName) -> Option<u64> {
    disk.len(file).ok().flatten()
}
