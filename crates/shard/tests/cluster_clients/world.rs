//! A cluster of three nodes in one thread, as its clients see it: frames in, frames out.
//!
//! Nodes with their shards and simulated disks, links that deliver at once and in order while they
//! are up. Nothing is random: what happens is what the test does. A client that waits for an answer
//! lets time pass until it comes.

use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{BootOptions, BootSeams, Formed, RootUser, boot};
use borzoi_shard::event::{CloseReason, PasswordJob, PasswordOutcome};
use borzoi_shard::front::{AdvertisedNode, FrontOptions};
use borzoi_shard::{ConnectionId, Effect, Event, Lanes, Random, SeededRandom, Shard, Transport};
use borzoi_storage::disk::{DiskIdentity, execute};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{ClusterId, Duration, LogId, Micros, Mono, Now, ReplicaId, ShardId};
use borzoi_wire::Name;
use borzoi_wire::frame::{FrameCommand, ReplyView};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Wall clock at the start of every world.
pub const START: Micros = Micros(1_790_000_000_000_000);
/// Nodes of every world.
pub const NODES: u8 = 3;
/// How long a client waits for an answer before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(10);

struct Seams {
    node: u8,
    generation: u64,
}

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        RootUser { name: Name::new("iggy").unwrap(), password: stored("iggy") }
    }
    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        let seed = 1_000 * u64::from(self.node) + 10 * self.generation + u64::from(shard.0);
        Box::new(SeededRandom::new(77 + seed))
    }
}

/// The stored form of a password in this world.
pub fn stored(password: &str) -> PasswordHash {
    PasswordHash(format!("stored:{password}"))
}

/// One shard of one node.
type Place = (u8, ShardId);

/// What one connection has seen.
#[derive(Default)]
pub struct Seen {
    pub node: u8,
    pub shard: ShardId,
    pub frames: VecDeque<Vec<u8>>,
    /// Requests without an answer.
    pub owed: usize,
    pub closed: Option<CloseReason>,
}

#[derive(Default)]
struct Node {
    shards: Vec<Shard>,
    disk: Option<SimDisk>,
    generation: u64,
}

pub struct World {
    nodes: Vec<Node>,
    shards: u16,
    pub now: Now,
    pub seen: BTreeMap<ConnectionId, Seen>,
    inbox: VecDeque<(Place, Event)>,
    disk_queue: VecDeque<(Place, Effect)>,
    /// Links that are down, smaller node first.
    cut: BTreeSet<(u8, u8)>,
    /// Ways on which frames are lost without anybody noticing.
    pub silent: BTreeSet<(u8, u8)>,
    next_connection: u64,
}

fn pair(a: u8, b: u8) -> (u8, u8) {
    (a.min(b), a.max(b))
}

pub fn advertised(node: u8) -> AdvertisedNode {
    AdvertisedNode {
        name: format!("node-{node}"),
        address: format!("10.0.0.{node}"),
        tcp: 8090 + u16::from(node),
        quic: 0,
        http: 0,
        websocket: 0,
    }
}

fn options(node: u8, shards: u16) -> BootOptions {
    BootOptions {
        replica: ReplicaId(node),
        replica_count: NODES,
        lanes: Lanes { persisted: 3, replicated: 1 },
        journal: JournalOptions { file_bytes: 1024 * 1024, files_max: 8 },
        front: FrontOptions {
            cluster_name: "three".to_owned(),
            node: advertised(node),
            roster: (0..NODES).map(advertised).collect(),
            ..FrontOptions::default()
        },
        ..BootOptions::solo(shards)
    }
}

impl World {
    /// A formed cluster whose logs all have a primary.
    pub fn new(shards: u16) -> Self {
        let mut world = Self {
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            shards,
            now: Now { mono: Mono(1_000), wall: START },
            seen: BTreeMap::new(),
            inbox: VecDeque::new(),
            disk_queue: VecDeque::new(),
            cut: BTreeSet::new(),
            silent: BTreeSet::new(),
            next_connection: 0,
        };
        for node in 0..NODES {
            let boot_id = Some([node + 1; 16]);
            let inode = 9 + u64::from(node);
            let disk = SimDisk::new(DiskIdentity { boot_id, device: 7, inode });
            world.nodes[usize::from(node)].disk = Some(disk);
            world.start(node);
        }
        world.settle();
        world
    }

    /// Starts a node that is not running.
    pub fn start(&mut self, node: u8) {
        assert!(!self.runs(node), "it runs already");
        let place = &mut self.nodes[usize::from(node)];
        let disk = place.disk.as_mut().expect("a node has a disk");
        let mut seams = Seams { node, generation: place.generation };
        let first = place.generation == 0;
        let formed = first.then(|| Formed::founded(ClusterId(0xb0_2201)));
        let options = BootOptions { formed, ..options(node, self.shards) };
        let booted = boot(disk, &options, self.now, &mut seams);
        let booted = booted.expect("the node starts");
        place.shards = booted.shards;
        place.generation = booted.generation;
        for shard in 0..self.shards {
            self.inbox.push_back(((node, ShardId(shard)), Event::Tick));
        }
        for other in (0..NODES).filter(|other| *other != node) {
            if self.runs(other) && !self.cut.contains(&pair(node, other)) {
                self.link_event(node, other, true);
            }
        }
        self.run_now();
    }

    /// `kill -9`: the others find their links broken, clients their connections.
    pub fn kill(&mut self, node: u8) {
        assert!(self.runs(node), "it runs");
        for other in (0..NODES).filter(|other| *other != node) {
            if self.runs(other) && !self.cut.contains(&pair(node, other)) {
                self.link_event(node, other, false);
            }
        }
        self.forget(node);
    }

    /// The node is gone without a sign: its machine has lost power, its links hang.
    pub fn vanish(&mut self, node: u8) {
        for other in (0..NODES).filter(|other| *other != node) {
            self.silent.insert((other, node));
        }
        self.forget(node);
    }

    fn forget(&mut self, node: u8) {
        let place = &mut self.nodes[usize::from(node)];
        place.shards.clear();
        place.disk = place.disk.as_ref().map(SimDisk::kill);
        self.inbox.retain(|((at, _), _)| *at != node);
        self.disk_queue.retain(|((at, _), _)| *at != node);
        for seen in self.seen.values_mut().filter(|seen| seen.node == node) {
            seen.closed.get_or_insert(CloseReason::Stopping);
            seen.owed = 0;
        }
    }

    pub fn runs(&self, node: u8) -> bool {
        !self.nodes[usize::from(node)].shards.is_empty()
    }

    /// The link between two nodes breaks, and both notice.
    pub fn cut(&mut self, a: u8, b: u8) {
        if self.cut.insert(pair(a, b)) {
            self.link_event(a, b, false);
        }
        self.run_now();
    }

    /// Cuts all links of a node.
    pub fn isolate(&mut self, node: u8) {
        for other in (0..NODES).filter(|other| *other != node) {
            self.cut(node, other);
        }
    }

    /// All links work again.
    pub fn heal(&mut self) {
        self.silent.clear();
        for (a, b) in core::mem::take(&mut self.cut) {
            if self.runs(a) && self.runs(b) {
                self.link_event(a, b, true);
            }
        }
        self.run_now();
    }

    fn link_event(&mut self, a: u8, b: u8, up: bool) {
        for shard in (0..self.shards).map(ShardId) {
            for (here, there) in [(a, b), (b, a)] {
                let peer = ReplicaId(there);
                let event = if up { Event::PeerUp { peer } } else { Event::PeerDown { peer } };
                self.inbox.push_back(((here, shard), event));
            }
        }
    }

    /// Lets time pass until every log has a primary that serves.
    pub fn settle(&mut self) {
        let end = self.now.mono.plus(PATIENCE);
        while self.logs().any(|log| self.leader(log).is_none()) {
            assert!(self.now.mono < end, "no primary for {:?}", self.leaderless());
            self.advance(STEP);
        }
        self.advance(Duration::from_millis(300));
    }

    fn leaderless(&self) -> Vec<LogId> {
        self.logs().filter(|log| self.leader(*log).is_none()).collect()
    }

    fn logs(&self) -> impl Iterator<Item = LogId> + use<> {
        (0..=4).map(LogId)
    }

    /// The node that leads a log and serves it: of several that think so the one that can reach a
    /// majority.
    pub fn leader(&self, log: LogId) -> Option<u8> {
        (0..NODES).find(|node| self.serves(*node, log) && self.reaches_majority(*node))
    }

    pub fn serves(&self, node: u8, log: LogId) -> bool {
        let shard = usize::from(log.shard(self.shards).0);
        let Some(shard) = self.nodes[usize::from(node)].shards.get(shard) else { return false };
        if log.is_metadata() {
            return shard.back().serves_metadata();
        }
        shard.back().lanes().any(|lane| lane.log() == log && lane.is_serving())
    }

    fn reaches_majority(&self, node: u8) -> bool {
        let others = (0..NODES).filter(|other| *other != node);
        let reached = others.filter(|other| {
            let silent = self.silent.contains(&(node, *other));
            self.runs(*other) && !silent && !self.cut.contains(&pair(node, *other))
        });
        reached.count() >= 1
    }

    /// The leader of a log; fails if there is none.
    pub fn led_by(&self, log: u32) -> u8 {
        self.leader(LogId(log)).expect("somebody leads")
    }

    /// A node that does not lead a log.
    pub fn not_led_by(&self, log: u32) -> u8 {
        let leader = self.led_by(log);
        (0..NODES).find(|node| *node != leader && self.runs(*node)).expect("somebody else runs")
    }

    pub fn shard(&self, node: u8, shard: u16) -> &Shard {
        &self.nodes[usize::from(node)].shards[usize::from(shard)]
    }

    fn later(&self, span: Duration) -> Now {
        let wall = Micros(self.now.wall.0 + span.as_micros());
        Now { mono: self.now.mono.plus(span), wall }
    }

    /// Opens a connection to place number `index`: all shards of node 0, then those of node 1.
    pub fn open(&mut self, index: u16, peer: &str) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        let node = u8::try_from(index / self.shards).unwrap();
        let shard = ShardId(index % self.shards);
        assert!(self.runs(node), "nobody listens on node {node}");
        self.seen.insert(connection, Seen { node, shard, ..Seen::default() });
        let (peer, transport) = (peer.to_owned(), Transport::Tcp);
        let event = Event::ConnectionOpened { connection, peer, transport };
        self.inbox.push_back(((node, shard), event));
        self.run_now();
        connection
    }

    /// The client closes its connection.
    pub fn hang_up(&mut self, connection: ConnectionId) {
        let seen = &self.seen[&connection];
        if seen.closed.is_none() {
            let place = (seen.node, seen.shard);
            self.inbox.push_back((place, Event::ConnectionClosed { connection }));
        }
        self.run_now();
    }

    /// A frame arrives.
    pub fn deliver(&mut self, connection: ConnectionId, frame: &[u8]) {
        let seen = self.seen.get_mut(&connection).unwrap();
        assert!(seen.closed.is_none(), "the connection is closed: {:?}", seen.closed);
        seen.owed += 1;
        let frame = BytesMut::from(frame);
        self.inbox.push_back(((seen.node, seen.shard), Event::Frame { connection, frame }));
    }

    /// Everything happens that can happen without time passing, then time passes until every
    /// request has its answer.
    pub fn run(&mut self) {
        self.run_now();
        let end = self.now.mono.plus(PATIENCE);
        while self.seen.values().any(|seen| seen.owed > 0 && seen.closed.is_none()) {
            assert!(self.now.mono < end, "a request was not answered");
            self.advance(STEP);
        }
    }

    /// Time passes, in steps small enough for every timer.
    pub fn advance(&mut self, span: Duration) {
        let end = self.later(span);
        while self.now.mono < end.mono {
            let left = Duration(end.mono.0 - self.now.mono.0);
            self.now = self.later(Duration(left.0.min(STEP.0)));
            self.tick_if_due();
            self.run_now();
        }
    }

    /// Everything that can happen without time passing happens.
    pub fn run_now(&mut self) {
        for _ in 0..100_000 {
            if !self.inbox.is_empty() {
                self.run_batch();
            } else if !self.disk_queue.is_empty() {
                self.run_disk();
            } else if !self.tick_if_due() {
                return;
            }
        }
        panic!("something never comes to rest");
    }

    /// So many batches or disk requests happen, and no more.
    pub fn run_steps(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.inbox.is_empty() {
                self.run_batch();
            } else if !self.disk_queue.is_empty() {
                self.run_disk();
            } else {
                return;
            }
        }
    }

    fn tick_if_due(&mut self) -> bool {
        let mut due = false;
        for (node, place) in (0..NODES).zip(&self.nodes) {
            for (shard, state) in (0..self.shards).map(ShardId).zip(&place.shards) {
                if state.deadline().is_some_and(|at| at <= self.now.mono) {
                    self.inbox.push_back(((node, shard), Event::Tick));
                    due = true;
                }
            }
        }
        due
    }

    fn run_batch(&mut self) {
        let batch = core::mem::take(&mut self.inbox);
        let mut effects: BTreeMap<Place, Vec<Effect>> = BTreeMap::new();
        for ((node, shard), event) in batch {
            let shards = &mut self.nodes[usize::from(node)].shards;
            if let Some(state) = shards.get_mut(usize::from(shard.0)) {
                state.handle(self.now, event, effects.entry((node, shard)).or_default());
            }
        }
        for ((node, shard), mut out) in effects {
            let state = &mut self.nodes[usize::from(node)].shards[usize::from(shard.0)];
            state.end_of_batch(self.now, &mut out);
            for effect in out {
                self.route((node, shard), effect);
            }
        }
    }

    fn route(&mut self, from: Place, effect: Effect) {
        match effect {
            Effect::Reply { connection, parts } => {
                let frame: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                let seen = self.seen.get_mut(&connection).expect("replies go to connections");
                assert!(seen.closed.is_none(), "a reply after the close");
                let (view, _) = ReplyView::split(&frame).expect("a whole frame");
                if view.command() == FrameCommand::Eviction as u8 {
                    // An eviction may come unasked.
                    seen.owed = seen.owed.saturating_sub(1);
                } else {
                    assert!(seen.owed > 0, "an answer to no request");
                    seen.owed -= 1;
                }
                seen.frames.push_back(frame);
            }
            Effect::SetFrameLimit { .. } | Effect::Stopped => {}
            Effect::Close { connection, reason } => {
                let seen = self.seen.get_mut(&connection).unwrap();
                assert!(seen.closed.is_none(), "closed twice");
                seen.closed = Some(reason);
                self.inbox.push_back((from, Event::ConnectionClosed { connection }));
            }
            disk @ Effect::Disk { .. } => self.disk_queue.push_back((from, disk)),
            Effect::ToShard { to, message } => {
                let event = Event::FromShard { from: from.1, message };
                self.inbox.push_back(((from.0, to), event));
            }
            Effect::ToPeer { to, parts } => {
                let frame = Bytes::from(parts.concat());
                let lost = self.silent.contains(&(from.0, to.get()))
                    || self.cut.contains(&pair(from.0, to.get()));
                if self.runs(to.get()) && !lost {
                    let event = Event::Peer { from: ReplicaId(from.0), frame };
                    self.inbox.push_back(((to.get(), from.1), event));
                }
            }
            Effect::Archive { .. } => panic!("no test here asks for an archive"),
            Effect::Password { ticket, address: _, job } => {
                let outcome = match job {
                    PasswordJob::Verify { password, phc } => {
                        PasswordOutcome::Verified(stored(&password.0).0 == phc)
                    }
                    PasswordJob::Hash { password, salt: _ } => {
                        PasswordOutcome::Hashed(stored(&password.0).0)
                    }
                };
                self.inbox.push_back((from, Event::Password { ticket, outcome }));
            }
            Effect::Log(_) => {}
            Effect::Fatal(error) => panic!("node {} cannot go on: {error}", from.0),
        }
    }

    fn run_disk(&mut self) {
        let Some((place, Effect::Disk { ticket, request, .. })) = self.disk_queue.pop_front()
        else {
            return;
        };
        let disk = self.nodes[usize::from(place.0)].disk.as_mut().expect("it runs");
        let result = execute(disk, &request);
        self.inbox.push_back((place, Event::Disk { ticket, result }));
    }

    /// Nothing waits on any node, and every frame of an open connection was taken.
    pub fn assert_at_rest(&self) {
        for (node, place) in self.nodes.iter().enumerate() {
            for shard in &place.shards {
                assert_eq!(shard.front().waiting(), 0, "node {node} waits for something");
                assert_eq!(shard.back().forwarding().len(), 0, "node {node} waits for others");
            }
        }
        // A connection that was ended may have been told so.
        for (connection, seen) in self.seen.iter().filter(|(_, seen)| seen.closed.is_none()) {
            assert!(seen.frames.is_empty(), "{connection:?} has frames nobody took");
        }
    }
}
