//! Nodes, their shards, a simulated disk each that answers at once, and links that take a
//! millisecond.
//!
//! Requests are submitted as if from another shard of the node (`OUTSIDE`); answers are collected
//! here with the node that gave them.

use crate::support::OUTSIDE;
use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{
    Beginning, BootOptions, BootSeams, Formation, FormationEvent, Formed, RootUser, begin, boot,
};
use borzoi_shard::event::LogEntry;
use borzoi_shard::lane::api::{LaneReply, Ticket};
use borzoi_shard::{Effect, Event, Lanes, Random, SeededRandom, Shard, ShardMessage};
use borzoi_storage::disk::{DiskIdentity, DiskRequest, DiskTicket, execute};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{ClusterId, Duration, LogId, Micros, Mono, Now, ReplicaId, ShardId};
use borzoi_wire::Name;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CLUSTER: ClusterId = ClusterId(0xb0_f2_01);
const LATENCY: Duration = Duration::from_millis(1);

pub struct Seams(pub u64);

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        let name = Name::new("iggy").unwrap();
        RootUser { name, password: PasswordHash("$argon2id$test".to_owned()) }
    }
    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        Box::new(SeededRandom::new(self.0 ^ u64::from(shard.0)))
    }
}

pub struct Node {
    pub shards: Vec<Shard>,
    pub disk: SimDisk,
    /// It runs shards.
    pub running: bool,
    /// It asks the others how to begin.
    pub forming: Option<Box<Formation>>,
    /// Kill it in front of this many further disk steps of its forming.
    steps_left: Option<u64>,
    pub options: BootOptions,
    pub stopped: usize,
    lives: u64,
}

/// See [`World::work_counted`].
#[derive(Clone, Copy, Default)]
pub struct Work {
    pub ticked: u64,
    pub heartbeat_logs: u64,
    pub frames: u64,
}

/// A frame on its way.
#[derive(Clone)]
struct Flight {
    from: ReplicaId,
    to: ReplicaId,
    /// Of the sender.
    shard: ShardId,
    frame: Bytes,
}

pub struct World {
    pub now: Now,
    pub nodes: Vec<Node>,
    /// Links that carry nothing, by direction.
    pub cut: BTreeSet<(ReplicaId, ReplicaId)>,
    pub replies: BTreeMap<Ticket, LaneReply>,
    pub texts: Vec<String>,
    pub frames: u64,
    /// A node that cannot go on is killed, not a failure of the test.
    pub expect_fatal: bool,
    /// With faults of links and slow disks, drawn from here.
    pub chaos: Option<SeededRandom>,
    pub inbox: VecDeque<(ReplicaId, ShardId, Event)>,
    wire: BTreeMap<(Mono, u64), Flight>,
    /// Requests on slow disks; those of one shard are executed in order.
    disks: BTreeMap<(Mono, u64), (ReplicaId, ShardId, DiskTicket, DiskRequest)>,
    disk_busy: BTreeMap<(ReplicaId, ShardId), Mono>,
    numbers: u64,
    pub tickets: u64,
    pub ids: u128,
}

pub fn options(replica: u8, count: u8, shards: u16) -> BootOptions {
    BootOptions {
        replica: ReplicaId(replica),
        replica_count: count,
        formed: Some(Formed::founded(CLUSTER)),
        lanes: Lanes { persisted: 3, replicated: 2 },
        journal: JournalOptions { file_bytes: 256 * 1024, files_max: 4 },
        offset_reservation_lease: 16,
        ..BootOptions::solo(shards)
    }
}

impl World {
    /// Nodes with these numbers of shards, all started.
    pub fn new(shards: &[u16]) -> Self {
        Self::with(shards, |_| ())
    }

    /// As [`Self::new`], with other options.
    pub fn with(shards: &[u16], change: impl Fn(&mut BootOptions)) -> Self {
        let mut world = Self::unstarted(shards);
        for node in &mut world.nodes {
            change(&mut node.options);
        }
        for replica in world.replicas() {
            world.start(replica);
        }
        world
    }

    /// Nodes with empty disks that have agreed on nothing; none is started.
    pub fn empty(shards: &[u16]) -> Self {
        let mut world = Self::unstarted(shards);
        for node in &mut world.nodes {
            node.options.formed = None;
        }
        world
    }

    fn unstarted(shards: &[u16]) -> Self {
        let count = u8::try_from(shards.len()).unwrap();
        let node = |(replica, shards): (u8, &u16)| Node {
            shards: Vec::new(),
            disk: SimDisk::new(DiskIdentity {
                boot_id: Some([replica + 1; 16]),
                device: 7,
                inode: u64::from(replica),
            }),
            running: false,
            forming: None,
            steps_left: None,
            options: options(replica, count, *shards),
            stopped: 0,
            lives: 0,
        };
        Self {
            now: Now { mono: Mono(1_000_000_000), wall: Micros(1_790_000_000_000_000) },
            nodes: (0..count).zip(shards).map(node).collect(),
            cut: BTreeSet::new(),
            replies: BTreeMap::new(),
            texts: Vec::new(),
            frames: 0,
            expect_fatal: false,
            chaos: None,
            inbox: VecDeque::new(),
            wire: BTreeMap::new(),
            disks: BTreeMap::new(),
            disk_busy: BTreeMap::new(),
            numbers: 0,
            tickets: 0,
            ids: 0,
        }
    }

    /// The view of every log on every running node.
    pub fn views(&self) -> Vec<(LogId, u32)> {
        let shards = self.running().flat_map(|node| &node.shards);
        let lanes = shards.flat_map(|shard| shard.back().lanes());
        lanes.map(|lane| (lane.log(), lane.host().replica().view().0)).collect()
    }

    /// What all shards have done for logs at rest, among other things.
    pub fn work_counted(&self) -> Work {
        let mut work = Work::default();
        for shared in self.running().flat_map(|n| &n.shards).map(|s| s.back().shared()) {
            work.ticked += shared.timers.ticked();
            work.heartbeat_logs += shared.links.counters().heartbeat_logs;
            work.frames += shared.links.counters().sent;
        }
        work
    }

    /// The incarnations that the nodes carry.
    pub fn clusters(&self) -> BTreeSet<ClusterId> {
        let shards = self.running().flat_map(|node| &node.shards);
        shards.map(|shard| shard.back().options().cluster).collect()
    }

    /// An empty disk in the place of a node's.
    pub fn fresh_disk(&self, replica: ReplicaId) -> SimDisk {
        SimDisk::new(DiskIdentity {
            boot_id: Some([replica.0 + 1; 16]),
            device: 7,
            inode: 100 + u64::from(replica.0),
        })
    }

    /// While it forms, the node's process dies in front of a step of its disk.
    pub fn kill_after_disk_steps(&mut self, replica: ReplicaId, steps: u64) {
        let node = self.node_mut(replica);
        let step = node.disk.steps() + steps;
        node.disk.crash_before(step);
        node.steps_left = Some(steps);
    }

    /// Starts a node that died while it formed, if it did.
    pub fn revive(&mut self, replica: ReplicaId) {
        let node = self.node_mut(replica);
        node.steps_left = None;
        if node.running || node.forming.is_some() {
            node.disk = node.disk.kill();
            return;
        }
        self.kill(replica);
        self.start(replica);
    }

    pub fn replicas(&self) -> Vec<ReplicaId> {
        (0..u8::try_from(self.nodes.len()).unwrap()).map(ReplicaId).collect()
    }

    pub fn node(&self, replica: ReplicaId) -> &Node {
        &self.nodes[usize::from(replica.0)]
    }

    pub fn node_mut(&mut self, replica: ReplicaId) -> &mut Node {
        &mut self.nodes[usize::from(replica.0)]
    }

    /// Starts a node from its disk.
    pub fn start(&mut self, replica: ReplicaId) {
        let now = self.now;
        let node = self.node_mut(replica);
        assert!(!node.running, "it runs already");
        node.lives += 1;
        let mut seams = Seams(u64::from(replica.0) * 1_000 + node.lives);
        node.forming = None;
        match begin(&mut node.disk, &node.options, &mut seams) {
            Ok(Beginning::Ready) => self.boot(replica, now),
            Ok(Beginning::Forming(formation)) => node.forming = Some(formation),
            Err(error) => assert!(node.steps_left.is_some(), "it begins: {error}"),
        }
    }

    fn boot(&mut self, replica: ReplicaId, now: Now) {
        let node = self.node_mut(replica);
        let mut seams = Seams(u64::from(replica.0) * 1_000 + node.lives);
        let booted = match boot(&mut node.disk, &node.options, now, &mut seams) {
            Ok(booted) => booted,
            Err(error) => {
                assert!(node.steps_left.is_some(), "it starts: {error}");
                return;
            }
        };
        node.shards = booted.shards;
        node.running = true;
        node.stopped = 0;
        for shard in 0..node.options.shards {
            self.inbox.push_back((replica, ShardId(shard), Event::Tick));
        }
    }

    /// Gives a node that forms an event, and starts it when it is formed.
    fn form(&mut self, replica: ReplicaId, event: FormationEvent<'_>) {
        let now = self.now;
        let node = self.node_mut(replica);
        let Some(mut formation) = node.forming.take() else { return };
        let mut seams = Seams(u64::from(replica.0) * 1_000 + node.lives);
        let mut effects = Vec::new();
        let done = formation.handle(now, event, &mut node.disk, &mut seams, &mut effects);
        if done.is_err() {
            assert!(node.steps_left.is_some(), "{done:?}");
            return;
        }
        let formed = formation.formed().cloned();
        match formed {
            None => node.forming = Some(formation),
            Some(formed) => {
                node.options.formed = Some(formed);
                self.boot(replica, now);
                self.node_mut(replica).options.formed = None;
            }
        }
        for effect in effects {
            self.route(replica, ShardId(0), effect);
        }
    }

    /// `kill -9`: what was written is there.
    pub fn kill(&mut self, replica: ReplicaId) {
        let node = self.node_mut(replica);
        node.shards.clear();
        node.running = false;
        node.forming = None;
        node.disk = node.disk.kill();
        self.inbox.retain(|(to, ..)| *to != replica);
        self.wire.retain(|_, flight| flight.to != replica);
        self.disks.retain(|_, (node, ..)| *node != replica);
    }

    /// Asks a node to stop cleanly and waits until it has.
    pub fn stop(&mut self, replica: ReplicaId) {
        let shards = self.node(replica).options.shards;
        for shard in 0..shards {
            self.inbox.push_back((replica, ShardId(shard), Event::Stop));
        }
        let stopped = |world: &Self| world.node(replica).stopped == usize::from(shards);
        assert!(self.until(Duration::from_secs(2), stopped), "it stops");
        // What it has said last still leaves.
        self.pass(LATENCY);
        self.kill(replica);
    }

    /// Time passes.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.mono.plus(span);
        self.until(span, |_| false);
        assert_eq!(self.now.mono, end);
    }

    /// Time passes until `done`, at most `span`; whether it is done.
    pub fn until(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now.mono.plus(span);
        loop {
            self.run_events();
            if done(self) {
                return true;
            }
            if self.now.mono >= end {
                return false;
            }
            let next = self.next_time().unwrap_or(end).max(self.now.mono).min(end);
            self.now.wall = Micros(self.now.wall.0 + next.since(self.now.mono).as_micros());
            self.now.mono = next;
            self.arrive();
            self.tick();
        }
    }

    fn next_time(&self) -> Option<Mono> {
        let running = self.nodes.iter().filter(|node| node.running);
        let deadlines = running.flat_map(|node| node.shards.iter().filter_map(Shard::deadline));
        let forming = self.nodes.iter().filter_map(|node| node.forming.as_ref());
        let deadlines = deadlines.chain(forming.map(|formation| formation.deadline()));
        // Deadlines come a little late, as they do in life; nothing may depend on them.
        let deadlines = deadlines.map(|at| at.max(self.now.mono.plus(Duration(50_000))));
        let arrivals = self.wire.first_key_value().map(|((at, _), _)| *at);
        let disks = self.disks.first_key_value().map(|((at, _), _)| *at);
        deadlines.chain(arrivals).chain(disks).min()
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.disks.first_entry()
            && entry.key().0 <= self.now.mono
        {
            let (node, shard, ticket, request) = entry.remove();
            let result = execute(&mut self.node_mut(node).disk, &request);
            self.inbox.push_back((node, shard, Event::Disk { ticket, result }));
        }
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now.mono
        {
            let Flight { from, to, shard, frame } = entry.remove();
            if self.cut.contains(&(from, to)) {
                continue;
            }
            if self.node(to).forming.is_some() {
                self.form(to, FormationEvent::Peer { from, frame: &frame });
            } else if self.node(to).running {
                self.frames += 1;
                let linked = ShardId(shard.0 % self.node(to).options.shards);
                self.inbox.push_back((to, linked, Event::Peer { from, frame }));
            }
        }
    }

    fn tick(&mut self) {
        for replica in self.replicas() {
            let forming = self.node(replica).forming.as_ref();
            if forming.is_some_and(|formation| formation.deadline() <= self.now.mono) {
                self.form(replica, FormationEvent::Tick);
                continue;
            }
            let node = &self.nodes[usize::from(replica.0)];
            for (shard, core) in (0..).map(ShardId).zip(&node.shards) {
                if core.deadline().is_some_and(|at| at <= self.now.mono) {
                    self.inbox.push_back((replica, shard, Event::Tick));
                }
            }
        }
    }

    fn run_events(&mut self) {
        while !self.inbox.is_empty() {
            let mut batches: BTreeMap<(ReplicaId, ShardId), Vec<Event>> = BTreeMap::new();
            for (replica, shard, event) in core::mem::take(&mut self.inbox) {
                batches.entry((replica, shard)).or_default().push(event);
            }
            for ((replica, shard), events) in batches {
                if !self.node(replica).running {
                    continue;
                }
                let now = self.now;
                let core = &mut self.node_mut(replica).shards[usize::from(shard.0)];
                let mut effects = Vec::new();
                for event in events {
                    core.handle(now, event, &mut effects);
                }
                core.end_of_batch(now, &mut effects);
                for effect in effects {
                    self.route(replica, shard, effect);
                }
            }
        }
    }

    fn route(&mut self, node: ReplicaId, shard: ShardId, effect: Effect) {
        match effect {
            Effect::Disk { ticket, request, .. } => self.disk(node, shard, ticket, request),
            Effect::ToShard { to, message } if to == OUTSIDE => self.answered(message),
            Effect::ToShard { to, message } => {
                self.inbox.push_back((node, to, Event::FromShard { from: shard, message }));
            }
            Effect::ToPeer { to, parts } => {
                self.fly(Flight { from: node, to, shard, frame: Bytes::from(parts.concat()) });
            }
            Effect::Log(record) => {
                if let LogEntry::Text(text) = record.entry {
                    self.texts.push(format!("node {node} shard {shard}: {text}"));
                }
            }
            Effect::Fatal(error) => {
                assert!(self.expect_fatal, "node {node} cannot go on: {error}");
                self.texts.push(format!("node {node}: {error}"));
                self.node_mut(node).running = false;
            }
            Effect::Stopped => self.node_mut(node).stopped += 1,
            Effect::Reply { .. }
            | Effect::SetFrameLimit { .. }
            | Effect::Close { .. }
            | Effect::Password { .. }
            | Effect::Archive { .. } => {}
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn disk(&mut self, node: ReplicaId, shard: ShardId, ticket: DiskTicket, request: DiskRequest) {
        let Some(chaos) = &mut self.chaos else {
            let result = execute(&mut self.node_mut(node).disk, &request);
            return self.inbox.push_back((node, shard, Event::Disk { ticket, result }));
        };
        let slow = if chaos.next_u64() % 50 == 0 { 20_000_000 } else { 1_500_000 };
        let takes = Duration(chaos.next_u64() % slow);
        let busy = self.disk_busy.entry((node, shard)).or_insert(self.now.mono);
        *busy = (*busy).max(self.now.mono).plus(takes);
        let at = *busy;
        let number = self.number();
        self.disks.insert((at, number), (node, shard, ticket, request));
    }

    /// A frame leaves: with faults it may be lost, repeated, late, and so overtaken.
    fn fly(&mut self, flight: Flight) {
        let mut at = self.now.mono.plus(LATENCY);
        let mut copies = 1;
        if let Some(chaos) = &mut self.chaos {
            copies = match chaos.next_u64() % 40 {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            at = at.plus(Duration(chaos.next_u64() % 4_000_000));
        }
        for copy in 0..copies {
            let number = self.number();
            self.wire.insert((at.plus(Duration(copy * 9_000_000)), number), flight.clone());
        }
    }

    fn answered(&mut self, message: ShardMessage) {
        if let ShardMessage::LaneReply { ticket, reply } = message {
            let before = self.replies.insert(ticket, reply);
            assert!(before.is_none(), "{ticket:?} was answered twice");
        }
    }

    /// A new ticket.
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// The node that leads a log and admits, if any does.
    pub fn leader(&self, log: LogId) -> Option<ReplicaId> {
        let mut leaders = self.replicas().into_iter().filter(|replica| {
            let node = self.node(*replica);
            node.shards.iter().any(|shard| {
                let lanes = shard.back().lanes();
                let lane = lanes.into_iter().any(|lane| lane.log() == log && lane.is_serving());
                lane || (log.is_metadata() && shard.back().serves_metadata())
            })
        });
        leaders.next()
    }

    /// Waits until every log has a leader that admits.
    pub fn settle(&mut self) {
        let logs: Vec<LogId> = self.nodes[0].options.lanes.logs().collect();
        let all = |world: &Self| logs.iter().all(|log| world.leader(*log).is_some());
        if !self.until(Duration::from_secs(10), all) {
            let without = logs.iter().filter(|log| self.leader(**log).is_none());
            panic!("logs without a leader: {:?}; {:#?}", without.collect::<Vec<_>>(), self.texts);
        }
    }

    pub fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.running)
    }
}
