//! The simulated world: nodes, disks, clocks, sockets, and one queue of what will happen.
//!
//! Everything that happens passes [`World::run_until`]; nothing happens outside simulated time.
//! The order of two things at one moment is the order in which they were scheduled, so a seed
//! decides a run completely.

pub mod clock;
pub mod disk;
pub mod network;
pub mod node;
mod process;
pub mod queue;
mod sockets;
mod starting;
mod strike;
mod watched_disk;

use crate::checkers::Checks;
use crate::clients::{Client, ClientInput, Phase, SocketId};
use crate::coverage::Coverage;
use crate::facts::Facts;
use crate::faults::{Nemesis, Profile};
use crate::history::History;
use crate::random::Dice;
use crate::trace::{Keep, Trace};
use borzoi_shard::event::{PasswordJob, PasswordOutcome, PasswordTicket};
use borzoi_shard::{Effect, Event};
use borzoi_types::{Duration, Mono};
use clock::Clock;
use core::fmt::Write as _;
use network::Network;
use node::Node;
pub use process::{End, ROOT};
use queue::{Happening, Place, Queue, Slot};
use sockets::Socket;
use std::collections::BTreeMap;

/// Events that shards may handle within one simulated millisecond: far above what clients cause.
const EVENTS_PER_MILLISECOND_MAX: u64 = 100_000;

/// See the module.
pub struct World {
    /// True time.
    pub now: Mono,
    /// What was decided before the run.
    pub profile: Profile,
    /// The machines.
    pub nodes: Vec<Node>,
    /// The clients.
    pub clients: Vec<Box<dyn Client>>,
    /// What clients saw.
    pub history: History,
    /// What happened at least once.
    pub coverage: Coverage,
    /// What was injected, as far as checkers must know.
    pub facts: Facts,
    /// What happened.
    pub trace: Trace,
    /// The checkers that watch the run.
    pub checks: Checks,
    /// Decides when faults strike.
    pub nemesis: Nemesis,
    /// Faults may strike.
    pub faults_on: bool,
    /// A refusal to start may be the right answer, because something was damaged on purpose.
    pub refusals_allowed: bool,
    /// Nodes that are down start again on their own.
    pub revives: bool,
    /// What happens to a node whose disk reaches the step before which it was told to crash.
    pub crash_end: Option<End>,
    /// A step before which a disk is to crash outlives a start.
    pub keeps_crash_step: bool,
    /// Nodes whose unsynced writes were lost and that have not learned them again.
    pub(crate) power_lost: Vec<bool>,
    /// Shards of the next starts; drawn when absent.
    pub shards_wanted: Option<u16>,
    /// Links between nodes.
    pub network: Network,
    pub(crate) queue: Queue,
    pub(crate) sockets: BTreeMap<SocketId, Socket>,
    pub(crate) client_ticks: Vec<Option<Mono>>,
    pub(crate) next_socket: u64,
    pub(crate) dice: Dice,
    busy: (u64, u64),
}

impl World {
    /// A world at time zero, nothing running yet.
    #[must_use]
    pub fn new(profile: Profile, clients: Vec<Box<dyn Client>>, keep: Keep) -> Self {
        let mut dice = Dice::fork(profile.seed, "world");
        let nodes = (0..profile.nodes)
            .map(|index| {
                let offset = i64::try_from(dice.below(200_000)).expect("small") - 100_000;
                Node::new(index, Clock::new(Mono(0), Mono(0), 1_000_000, offset))
            })
            .collect();
        let profile_nodes = profile.nodes;
        let client_ticks = vec![None; clients.len()];
        let facts = Facts { faulty: profile.is_faulty(), ..Facts::default() };
        Self {
            now: Mono(0),
            nemesis: Nemesis::new(&profile),
            checks: Checks::new(profile.nodes, profile.lanes),
            profile,
            nodes,
            clients,
            history: History::default(),
            coverage: Coverage::default(),
            facts,
            trace: Trace::new(keep),
            faults_on: false,
            refusals_allowed: false,
            revives: true,
            crash_end: None,
            keeps_crash_step: false,
            power_lost: vec![false; profile_nodes],
            shards_wanted: None,
            network: Network::new(profile_nodes),
            queue: Queue::default(),
            sockets: BTreeMap::new(),
            client_ticks,
            next_socket: 0,
            dice,
            busy: (0, 0),
        }
    }

    /// Switches every machine on, lets every client begin, and lets faults strike.
    pub fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.schedule_boot(node, 1);
        }
        self.enter(&Phase::Work);
        self.faults_on = true;
        for kind in self.nemesis.kinds() {
            let delay = self.nemesis.next_in(kind);
            self.queue.after(self.now, delay, Happening::Fault(kind));
        }
    }

    /// Tells every client that the run enters another phase.
    pub fn enter(&mut self, phase: &Phase) {
        self.trace.note(self.now, |out| {
            let _ = write!(out, "phase {phase:?}");
        });
        for client in 0..self.clients.len() {
            self.client_input(client, ClientInput::Phase(phase.clone()));
        }
    }

    /// Adds a client in the middle of a run; it is told the phase by its maker.
    pub fn add_client(&mut self, client: Box<dyn Client>) -> usize {
        self.clients.push(client);
        self.client_ticks.push(None);
        self.clients.len() - 1
    }

    /// Whether every client has done its share of the phase.
    #[must_use]
    pub fn clients_done(&self) -> bool {
        self.clients.iter().all(|client| client.is_done())
    }

    /// Lets everything happen up to `until`.
    pub fn run_until(&mut self, until: Mono) {
        while let Some((at, happening)) = self.queue.pop(until) {
            assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.happen(happening);
        }
        self.now = until;
    }

    /// Lets so much simulated time pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now.plus(span));
    }

    /// Runs until `done`, looking every millisecond, for `limit` at most. Returns whether it is.
    pub fn run_while_not(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let until = self.now.plus(limit);
        while self.now < until {
            if done(self) {
                return true;
            }
            self.run_for(Duration::from_millis(1));
        }
        done(self)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake(place) => self.wake(place),
            Happening::Tick(place, at) => self.tick(place, at),
            Happening::Disk(place, slot) => self.disk_done(place, slot),
            Happening::Password(place, ticket, outcome) => {
                self.push(place, Event::Password { ticket, outcome });
            }
            Happening::Boot(node) => self.boot(node),
            Happening::Form { node, life } => self.form_tick(node, life),
            Happening::Connect(socket) => self.connect_arrives(socket),
            Happening::ToServer(socket, bytes) => self.bytes_arrive(socket, &bytes),
            Happening::CloseServer(socket) => self.close_arrives(socket),
            Happening::Connected(socket)
            | Happening::ToClient(socket, _)
            | Happening::CloseClient(socket) => self.deliver_to_client(socket, happening),
            Happening::ClientTick(client, at) => self.client_tick(client, at),
            Happening::Peer { from, shard, to, frame } => self.peer_frame(from, shard, to, frame),
            Happening::LinkUp { node, peer, life } => self.link_up(node, peer, life),
            Happening::LinkDown { node, peer, life } => self.link_down(node, peer, life),
            Happening::LinksHeal => self.network.heal(),
            Happening::Fault(kind) => self.fault(kind),
            Happening::Recover(node) => self.recover(node),
        }
    }

    /// Queues an event for a shard, unless its process is gone.
    pub(crate) fn push(&mut self, place: Place, event: Event) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        let Some(process) = &mut node.process else { return };
        let core = &mut process.cores[place.shard];
        core.inbox.push_back(event);
        if !core.wake {
            core.wake = true;
            let delay = self.profile.wake.draw(&mut self.dice);
            self.queue.after(self.now, delay, Happening::Wake(place));
        }
    }

    fn tick(&mut self, place: Place, at: Mono) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        let Some(process) = &mut node.process else { return };
        let core = &mut process.cores[place.shard];
        if core.tick == Some(at) {
            core.tick = None;
            self.push(place, Event::Tick);
        }
    }

    /// A shard takes a batch.
    fn wake(&mut self, place: Place) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        if node.paused_until > self.now {
            self.queue.at(node.paused_until, Happening::Wake(place));
            return;
        }
        let now = node.clock.now(self.now);
        let Some(process) = &mut node.process else { return };
        let core = &mut process.cores[place.shard];
        let most = 1 + self.dice.index(self.profile.batch_max);
        let take = core.inbox.len().min(most);
        let mut effects = Vec::new();
        for event in core.inbox.drain(..take) {
            self.trace.event(self.now, place.node, place.shard, &event);
            core.shard.handle(now, event, &mut effects);
        }
        core.shard.end_of_batch(now, &mut effects);
        core.wake = !core.inbox.is_empty();
        if core.wake {
            let delay = self.profile.wake.draw(&mut self.dice);
            self.queue.after(self.now, delay, Happening::Wake(place));
        }
        self.watch_for_loops(take);
        for effect in effects {
            self.trace.effect(self.now, place.node, place.shard, &effect);
            if self.nodes[place.node].life != place.life {
                return;
            }
            self.execute(place, effect);
        }
        self.start_disk(place);
        self.schedule_tick(place);
        if self.nodes[place.node].life == place.life {
            self.checks.after_batch(self.now, place, &self.nodes);
        }
        self.end_if_stopped(place);
    }

    /// A shard that keeps itself busy without time passing would never let the run end.
    fn watch_for_loops(&mut self, events: usize) {
        let millisecond = self.now.0 / 1_000_000;
        if self.busy.0 != millisecond {
            self.busy = (millisecond, 0);
        }
        self.busy.1 += 1 + events as u64;
        assert!(self.busy.1 < EVENTS_PER_MILLISECOND_MAX, "shards go round in circles");
    }

    fn schedule_tick(&mut self, place: Place) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        let clock = node.clock;
        let Some(process) = &mut node.process else { return };
        let core = &mut process.cores[place.shard];
        let wanted = core.shard.deadline().map(|at| clock.when(at).max(self.now.plus(Duration(1))));
        if wanted != core.tick {
            core.tick = wanted;
            if let Some(at) = wanted {
                self.queue.at(at, Happening::Tick(place, at));
            }
        }
    }

    fn execute(&mut self, place: Place, effect: Effect) {
        match effect {
            Effect::Reply { connection, parts } => self.reply(connection, &parts),
            Effect::SetFrameLimit { .. } => {}
            Effect::Close { connection, reason } => self.server_closes(connection, reason),
            Effect::Disk { queue, ticket, request } => {
                self.checks.submitted(place, queue, &request);
                if let Some(core) = self.core(place) {
                    core.disk.submit(queue, ticket, request);
                }
            }
            Effect::ToShard { to, message } => {
                let from = u16::try_from(place.shard).expect("shards are few");
                let from = borzoi_types::ShardId(from);
                let to = Place { shard: usize::from(to.0), ..place };
                self.push(to, Event::FromShard { from, message });
            }
            Effect::ToPeer { to, parts } => self.send_to_peer(place, to, &parts),
            Effect::Password { ticket, address: _, job } => self.password(place, ticket, job),
            Effect::Archive { ticket, job: _ } => {
                // Made from files of the machine, of which there are none here.
                self.push(place, Event::Archive { ticket, archive: None });
            }
            Effect::Log(record) => self.logged(&record),
            Effect::Fatal(error) => self.fatal(place, &error),
            Effect::Stopped => {
                if let Some(process) = &mut self.nodes[place.node].process {
                    process.stopped.insert(place.shard);
                }
            }
        }
    }

    fn core(&mut self, place: Place) -> Option<&mut node::Core> {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return None;
        }
        node.process.as_mut().map(|process| &mut process.cores[place.shard])
    }

    fn password(&mut self, place: Place, ticket: PasswordTicket, job: PasswordJob) {
        let outcome = match job {
            PasswordJob::Verify { password, phc } => {
                PasswordOutcome::Verified(process::stored(&password.0) == phc)
            }
            PasswordJob::Hash { password, salt: _ } => {
                PasswordOutcome::Hashed(process::stored(&password.0))
            }
        };
        let delay = self.profile.password.draw(&mut self.dice);
        self.queue.after(self.now, delay, Happening::Password(place, ticket, outcome));
    }

    /// Starts what the disk queues of a shard may start.
    fn start_disk(&mut self, place: Place) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        let Some(process) = &mut node.process else { return };
        for slot in process.cores[place.shard].disk.start(&mut node.disk) {
            let profile = self.profile.disk;
            let mut micros = match slot {
                Slot::Write(_) => profile.write.draw(&mut self.dice),
                Slot::Flush => profile.flush.draw(&mut self.dice),
                Slot::Pool(_) => profile.pool.draw(&mut self.dice),
            };
            if node.slow_until > self.now {
                micros += self.dice.below(2_000_000);
            }
            let at = self.now.plus(Duration::from_micros(micros)).max(node.stuck_until);
            self.queue.at(at, Happening::Disk(place, slot));
        }
    }

    fn disk_done(&mut self, place: Place, slot: Slot) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life {
            return;
        }
        if node.stuck_until > self.now {
            self.queue.at(node.stuck_until, Happening::Disk(place, slot));
            return;
        }
        let Some(process) = &mut node.process else { return };
        let core = &mut process.cores[place.shard];
        let ended = core.disk.finish(slot, &mut node.disk);
        if node.disk.is_crashed() {
            let end = self.crash_end.unwrap_or(End::Kill);
            self.end(place.node, end);
            self.revive(place.node);
            return;
        }
        self.checks.disk_ended(place.node, node);
        for (ticket, result) in ended {
            self.push(place, Event::Disk { ticket, result });
        }
        self.start_disk(place);
    }

    /// A node's disk was replaced by another: checkers forget what the node had shown.
    pub fn forget_what_was_known(&mut self, node: usize) {
        self.checks.forget(node);
    }

    /// The state of each node and client, for the report of a failure.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(out, "node {index}: life {}, {} starts", node.life, node.starts);
            if let Some(refusal) = &node.refusal {
                let _ = writeln!(out, "  refused to start: {refusal}");
            }
            if let Some(forming) = &node.forming {
                let _ = writeln!(out, "  {}", forming.formation.describe());
            }
            let Some(process) = &node.process else {
                let _ = writeln!(out, "  down");
                continue;
            };
            for (shard, core) in process.cores.iter().enumerate() {
                let front = core.shard.front();
                let _ = writeln!(
                    out,
                    "  shard {shard}: inbox {} disk {} waiting {} connections {}",
                    core.inbox.len(),
                    core.disk.len(),
                    front.waiting(),
                    front.connections(),
                );
                crate::checkers::describe_logs(&core.shard, &mut out);
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            let done = if client.is_done() { "done" } else { "busy" };
            let _ = writeln!(out, "client {index} ({done}): {}", client.describe());
        }
        out
    }
}
