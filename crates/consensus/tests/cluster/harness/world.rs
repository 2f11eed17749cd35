//! The simulated world: time, links, disks, processes.

use super::checks::Checks;
use super::disk::{Body as RecordBody, CLUSTER, Disk, LOG};
use super::random::Random;
use borzoi_consensus::{
    Anchor, Effect, Event, Message, Options, Prepare, PrepareKind, Replica, Role, SettleError,
    Settled, Timeouts,
};
use borzoi_types::{Body, Micros, Mono, Op, ReplicaId, View};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const MS: u64 = 1_000_000;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Config {
    pub n: u8,
    pub delay_us: (u64, u64),
    pub loss_percent: u64,
    pub duplicate_percent: u64,
    pub flush_us: (u64, u64),
    /// Level `replicated`: held when written.
    pub written_counts: bool,
    pub checkpoint_every: u64,
    pub timeouts: Timeouts,
    pub accept_loss: bool,
}

impl Config {
    pub fn calm(n: u8) -> Self {
        Self {
            n,
            delay_us: (100, 400),
            loss_percent: 0,
            duplicate_percent: 0,
            flush_us: (200, 3_000),
            written_counts: false,
            checkpoint_every: 50,
            timeouts: Timeouts::standard(),
            accept_loss: false,
        }
    }
}

#[derive(Debug)]
pub(super) enum Happening {
    Deliver { to: usize, from: usize, message: Option<Message> },
    Heartbeat { node: usize, life: u64 },
    Tick { node: usize, life: u64 },
    Written { node: usize, life: u64, upto: usize },
    Flushed { node: usize, life: u64 },
    Fetched { node: usize, life: u64, anchor: Anchor },
    Transfer { node: usize, life: u64, from: usize, at_least: Op, forced: bool },
    Checkpointed { node: usize, life: u64, op: Op },
}

pub struct Node {
    pub replica: Option<Replica>,
    pub disk: Disk,
    pub life: u64,
    pub paused_until: u64,
    pub applied: BTreeMap<Op, u128>,
    pub applied_to: Op,
    tick_at: Option<u64>,
    backlog: Vec<Happening>,
    seen_view: View,
}

pub struct World {
    pub config: Config,
    pub now: u64,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub checks: Checks,
    pub blocked: Vec<Vec<bool>>,
    pub refused: Vec<SettleError>,
    pub step_downs: u64,
    pub safe_stops: u64,
    pub damage_injected: bool,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    next_id: u64,
    pub trace: bool,
}

impl World {
    pub fn new(seed: u64, config: Config) -> Self {
        let n = usize::from(config.n);
        let node = |_| Node {
            replica: None,
            disk: Disk::new(),
            life: 0,
            paused_until: 0,
            applied: BTreeMap::new(),
            applied_to: Op::ZERO,
            tick_at: None,
            backlog: Vec::new(),
            seen_view: View::ZERO,
        };
        let mut world = Self {
            now: 0,
            random: Random::new(seed),
            nodes: (0..n).map(node).collect(),
            checks: Checks::default(),
            blocked: vec![vec![false; n]; n],
            refused: Vec::new(),
            step_downs: 0,
            safe_stops: 0,
            damage_injected: false,
            queue: BTreeMap::new(),
            sequence: 0,
            next_id: 1,
            trace: std::env::var("BORZOI_TRACE").is_ok(),
            config,
        };
        for index in 0..n {
            world.start(index);
        }
        world
    }

    pub(super) fn schedule(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    pub(super) fn log(&self, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.3} {}", self.now as f64 / MS as f64, text());
        }
    }

    /// Starts a node from its disk. Returns false when it refuses to start.
    pub fn start(&mut self, index: usize) -> bool {
        assert!(self.nodes[index].replica.is_none(), "it is down");
        let n = self.config.n;
        let settled = match self.nodes[index].disk.recover(n, &mut self.random) {
            Ok(settled) => settled,
            Err(error) => {
                self.refused.push(error);
                return false;
            }
        };
        for prepare in settled.carried().prepares {
            self.checks.held(index, prepare.header.anchor());
        }
        let seen = self.nodes[index].seen_view;
        assert!(settled.view_state.view >= seen, "views never go back over restarts");
        let options = Options {
            cluster: CLUSTER,
            log: LOG,
            replica: ReplicaId(index as u8),
            replica_count: n,
            preferred_primary: ReplicaId(0),
            timeouts: self.config.timeouts,
            accept_loss: self.config.accept_loss,
        };
        let seed = self.random.next();
        let node = &mut self.nodes[index];
        node.life += 1;
        node.applied_to = settled.base.op;
        node.tick_at = None;
        node.backlog.clear();
        let life = node.life;
        let mut effects = Vec::new();
        let replica = Replica::start(options, settled, Mono(self.now), seed, &mut effects);
        self.nodes[index].replica = Some(replica);
        self.log(|| format!("{index} starts, life {life}"));
        let jitter = self.random.below(self.config.timeouts.heartbeat.0);
        self.schedule(self.now + jitter, Happening::Heartbeat { node: index, life });
        self.execute(index, effects);
        true
    }

    /// Ends a node's process: a kill, or a power cut.
    pub fn crash(&mut self, index: usize, power: bool) {
        self.log(|| format!("{index} crashes, power {power}"));
        let written_counts = self.config.written_counts;
        let node = &mut self.nodes[index];
        if let Some(replica) = node.replica.take() {
            self.step_downs += replica.counters().step_downs;
        }
        node.life += 1;
        node.disk.crash(power, written_counts, &mut self.random);
    }

    /// Nodes that may have lost acknowledged records and have not learned them again.
    pub fn untrusted(&self) -> usize {
        let untrusted = |node: &&Node| match &node.replica {
            Some(replica) => replica.must_learn(),
            None => !node.disk.trusted,
        };
        self.nodes.iter().filter(untrusted).count()
    }

    /// The node's disk is replaced by an empty one; the node joins again as architecture section 5
    /// says, untrusted and with the highest view that the others report. What it sent in its
    /// former life is gone with its links.
    pub fn replace_disk(&mut self, index: usize) {
        assert!(!self.is_up(index), "its process has ended");
        self.log(|| format!("{index} gets an empty disk"));
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != index);
        let view = others.filter_map(|(_, node)| Some(node.replica.as_ref()?.view())).max();
        let settled = Settled::joining(CLUSTER, LOG, view.unwrap_or_default(), true);
        let node = &mut self.nodes[index];
        node.disk = Disk::new();
        node.disk.push(RecordBody::View(settled.view_state));
        node.disk.flushed = 1;
        node.disk.written = 1;
        node.seen_view = View::ZERO;
        self.queue.retain(
            |_, happening| !matches!(happening, Happening::Deliver { from, .. } if *from == index),
        );
    }

    pub fn is_up(&self, index: usize) -> bool {
        self.nodes[index].replica.is_some()
    }

    pub fn replica(&self, index: usize) -> &Replica {
        self.nodes[index].replica.as_ref().expect("the node is up")
    }

    pub fn block_both(&mut self, a: usize, b: usize) {
        self.blocked[a][b] = true;
        self.blocked[b][a] = true;
    }

    pub fn isolate(&mut self, index: usize) {
        for other in 0..self.nodes.len() {
            if other != index {
                self.block_both(index, other);
            }
        }
    }

    pub fn heal(&mut self) {
        for row in &mut self.blocked {
            row.fill(false);
        }
    }

    /// The node that serves, if exactly the cluster's newest view has one.
    pub fn serving(&self) -> Option<usize> {
        let up = self.nodes.iter().enumerate();
        let serving = up.filter_map(|(index, node)| {
            let replica = node.replica.as_ref()?;
            replica.is_serving_primary().then_some((replica.view(), index))
        });
        serving.max().map(|(_, index)| index)
    }

    /// Proposes one request at every node that says it serves. Returns how many accepted.
    pub fn propose(&mut self) -> usize {
        let mut accepted = 0;
        for index in 0..self.nodes.len() {
            let serves = |replica: &Replica| replica.can_propose(64).is_ok();
            if self.nodes[index].paused_until > self.now {
                continue;
            }
            if !self.nodes[index].replica.as_ref().is_some_and(serves) {
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            let mut bytes = id.to_le_bytes().to_vec();
            bytes.resize(8 + self.random.below(56) as usize, 0xab);
            self.checks.proposed(id);
            let mut effects = Vec::new();
            let now = Mono(self.now);
            let replica = self.nodes[index].replica.as_mut().expect("checked above");
            let body = Body::from(bytes);
            replica.propose(now, Micros(self.now / 1_000), body, &mut effects).expect("checked");
            self.execute(index, effects);
            accepted += 1;
        }
        accepted
    }

    pub fn run_until(&mut self, until: u64) {
        while let Some((&(at, _), _)) = self.queue.first_key_value() {
            if at > until {
                break;
            }
            let ((at, _), happening) = self.queue.pop_first().expect("just seen");
            self.now = at;
            self.happen(happening);
        }
        self.now = until;
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.run_until(self.now + ms * MS);
    }

    /// Runs, proposing now and then, until `done` or `ms` have passed; says whether `done`.
    pub fn run_ms_until(&mut self, ms: u64, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + ms * MS;
        while self.now < until {
            if done(self) {
                return true;
            }
            self.run_ms(1);
        }
        done(self)
    }

    fn node_of(happening: &Happening) -> (usize, Option<u64>) {
        match happening {
            Happening::Deliver { to, .. } => (*to, None),
            Happening::Heartbeat { node, life }
            | Happening::Tick { node, life }
            | Happening::Written { node, life, .. }
            | Happening::Flushed { node, life }
            | Happening::Fetched { node, life, .. }
            | Happening::Checkpointed { node, life, .. }
            | Happening::Transfer { node, life, .. } => (*node, Some(*life)),
        }
    }

    fn happen(&mut self, happening: Happening) {
        let (index, life) = Self::node_of(&happening);
        let node = &mut self.nodes[index];
        if node.replica.is_none() || life.is_some_and(|life| life != node.life) {
            return;
        }
        if node.paused_until > self.now {
            let resume = node.paused_until;
            self.schedule(resume, happening);
            return;
        }
        match happening {
            Happening::Deliver { to, from, message } => self.deliver(to, from, message),
            Happening::Heartbeat { node, life } => self.heartbeat(node, life),
            Happening::Tick { node, .. } => {
                self.nodes[node].tick_at = None;
                self.handle(node, Event::Tick);
            }
            Happening::Written { node, upto, .. } => self.written(node, upto),
            Happening::Flushed { node, .. } => self.flushed(node),
            Happening::Fetched { node, anchor, .. } => {
                let prepare = self.nodes[node].disk.find(anchor);
                let Anchor { op, checksum } = anchor;
                self.handle(node, Event::Fetched { op, checksum, prepare });
            }
            Happening::Checkpointed { node, op, .. } => {
                self.handle(node, Event::Checkpointed { op });
            }
            Happening::Transfer { node, from, at_least, forced, .. } => {
                self.transfer(node, from, at_least, forced);
            }
        }
    }

    fn deliver(&mut self, to: usize, from: usize, message: Option<Message>) {
        let peer = ReplicaId(from as u8);
        if let Some(message) = message {
            self.log(|| format!("{from} -> {to} {}", brief(&message)));
            let bytes = message.encode().to_bytes();
            let decoded = Message::decode(&bytes).expect("what was encoded decodes");
            assert_eq!(decoded, message, "codecs round trip");
            self.handle(to, Event::Message { from: peer, message: decoded });
        }
        if self.nodes[to].replica.is_some() {
            self.handle(to, Event::PeerHeard { peer, at: Mono(self.now) });
        }
    }

    fn heartbeat(&mut self, index: usize, life: u64) {
        let interval = self.config.timeouts.heartbeat.0;
        self.schedule(self.now + interval, Happening::Heartbeat { node: index, life });
        for to in 0..self.nodes.len() {
            if to != index {
                let message = self.replica(index).heartbeat_for(ReplicaId(to as u8));
                if let Some(message) = &message {
                    let disk = &self.nodes[index].disk;
                    self.checks.sent(message, disk, self.config.written_counts);
                }
                self.transmit(index, to, message);
            }
        }
    }

    fn transmit(&mut self, from: usize, to: usize, message: Option<Message>) {
        if self.blocked[from][to] || self.random.chance(self.config.loss_percent) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.config.duplicate_percent));
        for _ in 0..copies {
            let (low, high) = self.config.delay_us;
            let delay = self.random.between(low, high) * 1_000;
            let message = message.clone();
            self.schedule(self.now + delay, Happening::Deliver { to, from, message });
        }
    }

    pub fn handle(&mut self, index: usize, event: Event) {
        if let Event::Held { op, checksum } = event {
            self.checks.held(index, Anchor { op, checksum });
        }
        let mut effects = Vec::new();
        let now = Mono(self.now);
        let replica = self.nodes[index].replica.as_mut().expect("events are for the living");
        replica.handle(now, event, &mut effects);
        self.execute(index, effects);
    }

    fn execute(&mut self, index: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append(prepare) => {
                    self.nodes[index].disk.push(RecordBody::Prepare(prepare));
                }
                Effect::PersistViewState(state) => {
                    self.log(|| format!("{index} persists {:?}/{:?}", state.view, state.log_view));
                    self.nodes[index].disk.push(RecordBody::View(state));
                }
                Effect::Send { to, message } => self.sent(index, usize::from(to.get()), message),
                Effect::Commit(prepare) => self.committed(index, &prepare),
                Effect::Fetch { op, checksum } => {
                    let life = self.nodes[index].life;
                    let at = self.now + self.random.between(100, 2_000) * 1_000;
                    let anchor = Anchor { op, checksum };
                    self.schedule(at, Happening::Fetched { node: index, life, anchor });
                }
                Effect::RoleChanged(role) => self.role_changed(index, role),
                Effect::StateTransfer { from, at_least, diverged } => {
                    let life = self.nodes[index].life;
                    let at = self.now + self.random.between(5, 100) * MS;
                    let from = usize::from(from.get());
                    let forced = diverged;
                    let transfer =
                        Happening::Transfer { node: index, life, from, at_least, forced };
                    self.schedule(at, transfer);
                }
            }
        }
        self.drive_disk(index);
        self.arm(index);
    }

    fn arm(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let Some(deadline) = node.replica.as_ref().and_then(Replica::deadline) else { return };
        let at = deadline.0.max(now + 1);
        if node.tick_at.is_none_or(|tick| tick > at) {
            node.tick_at = Some(at);
            let life = node.life;
            self.schedule(at, Happening::Tick { node: index, life });
        }
    }

    fn sent(&mut self, from: usize, to: usize, message: Message) {
        let node = &mut self.nodes[from];
        self.checks.sent(&message, &node.disk, self.config.written_counts);
        node.seen_view = node.seen_view.max(message.view().unwrap_or_default());
        self.transmit(from, to, Some(message));
    }

    fn committed(&mut self, index: usize, prepare: &Arc<Prepare>) {
        let disks: Vec<&Disk> = self.nodes.iter().map(|node| &node.disk).collect();
        self.checks.commit(prepare, &disks);
        let header = prepare.header;
        let node = &mut self.nodes[index];
        assert_eq!(header.op, node.applied_to.next(), "commits come in order, each once");
        node.applied_to = header.op;
        node.applied.insert(header.op, header.checksum);
        // Only the primary that prepared it in its own view answers the client.
        let replica = self.nodes[index].replica.as_ref();
        let answers = replica.is_none_or(|replica| {
            replica.view() == header.view && replica.primary() == Some(ReplicaId(index as u8))
        });
        if header.kind == PrepareKind::Normal {
            let bytes = prepare.body.to_bytes();
            let id = u64::from_le_bytes(bytes[..8].try_into().expect("ids are eight bytes"));
            if answers {
                self.checks.confirm(id, header.op);
            }
        }
        if header.op.get().is_multiple_of(self.config.checkpoint_every) {
            self.take_checkpoint(index, header.anchor());
        }
    }

    fn take_checkpoint(&mut self, index: usize, anchor: Anchor) {
        let node = &mut self.nodes[index];
        node.disk.checkpoints.push(anchor);
        if node.disk.checkpoints.len() > 2 {
            node.disk.checkpoints.remove(0);
        }
        if let [older, _] = node.disk.checkpoints[..] {
            node.disk.release(older.op);
            let life = node.life;
            let op = older.op;
            self.schedule(self.now, Happening::Checkpointed { node: index, life, op });
        }
    }

    fn transfer(&mut self, index: usize, from: usize, at_least: Op, forced: bool) {
        let source = self.nodes[from].disk.checkpoint();
        let usable = source.filter(|anchor| anchor.op >= at_least || forced);
        let reachable = self.is_up(from) && !self.blocked[from][index];
        match usable.filter(|_| reachable) {
            Some(checkpoint) if forced || checkpoint.op > self.replica(index).commit() => {
                self.log(|| format!("{index} installs {checkpoint:?} of {from}"));
                let copied: BTreeMap<Op, u128> = self.nodes[from]
                    .applied
                    .range(..=checkpoint.op)
                    .map(|(op, sum)| (*op, *sum))
                    .collect();
                let node = &mut self.nodes[index];
                node.disk.checkpoints = vec![checkpoint];
                node.applied_to = checkpoint.op;
                node.applied.extend(copied);
                self.handle(index, Event::TransferComplete { checkpoint });
            }
            _ => self.handle(index, Event::TransferFailed),
        }
    }

    fn role_changed(&mut self, index: usize, role: Role) {
        self.log(|| format!("{index} becomes {role:?}"));
        if let Role::Primary { view, may_serve } = role {
            self.checks.primary(view, index);
            let newest = self.nodes.iter().all(|node| node.seen_view <= view);
            if may_serve && newest && !self.checks.losses_allowed {
                let applied = self.nodes[index].applied_to;
                assert!(applied >= self.checks.committed_max(), "a primary serves from a hole");
            }
        }
    }
}

fn brief(message: &Message) -> String {
    match message {
        Message::Prepare { view, commit, prepare, .. } => {
            format!("Prepare v{view} commit {commit} op {}", prepare.header.op)
        }
        Message::Headers { headers } => format!("Headers {}", headers.len()),
        Message::RepairPrepare { prepare } => format!("RepairPrepare {}", prepare.header.op),
        Message::DoViewChange(d) => format!(
            "DoViewChange v{} log_view {} commit {} head {} learn {}",
            d.view, d.log_view, d.commit, d.suffix.head.op, d.must_learn
        ),
        Message::StartView(s) => {
            format!("StartView v{} commit {} head {}", s.view, s.commit, s.suffix.head.op)
        }
        Message::PrepareOk { view, held, commit, .. } => {
            format!("PrepareOk v{view} held {} commit {commit}", held.op)
        }
        other => format!("{other:?}"),
    }
}
