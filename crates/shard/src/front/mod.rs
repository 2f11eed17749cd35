//! Connections, sessions, decoding, authorisation, replies; the metadata state machine.
//!
//! The front owns everything between a client's frame and the log that decides it:
//!
//! ```text
//! frame ─ connections ─ request ─┬─ login, session ───┐
//!                                ├─ reads, counters   ├─ command ── feed ── metadata log (shard 0)
//!                                ├─ changes ──────────┘
//!                                └─ send, poll, offsets ── lanes (any shard)
//! ```
//!
//! Reading order: `connections`, `request`, `login`, `dispatch`, then the groups of operations;
//! `feed` for how committed metadata reaches every shard.
//!
//! Invariants:
//! - every frame gets exactly one answer, in order, or its connection is closed with a reason;
//! - what is answered "no" was asked of the metadata primary first: a copy may say yes, only the
//!   log may say no;
//! - a request never sees less metadata than its session was told of before;
//! - everything that waits has a ticket in one table, and leaves it exactly once.

mod admission;
mod archive;
mod changes;
mod clients;
mod command;
mod connection;
mod connections;
mod counters;
mod dispatch;
mod failed_logins;
mod feed;
mod figures;
mod groups;
mod lane_changes;
mod lanes;
mod login;
mod message;
mod messages;
mod offsets;
mod options;
mod peers;
mod reads;
mod records;
mod relay;
mod remembered;
mod replies;
mod request;
mod revoked;
mod routing;
mod session;
mod system;
mod tally;
mod timers;
mod tokens;
mod users;

#[cfg(test)]
mod tests;

pub use admission::AdmissionLimits;
pub use figures::FrontCounters;
pub use message::{ClientSummary, FrontMessage};
pub use options::{AdvertisedNode, FrontOptions};
pub use tally::{COMMANDS, CommandIndex, RequestClass, RequestResult, RequestTally};

use crate::back::{Back, MetadataCommit};
use crate::event::{
    ArchiveTicket, ConnectionId, Effect, HostStats, PasswordOutcome, PasswordTicket, Transport,
};
use crate::lane::api::{CountersReply, CountersRequest, LaneReply, LaneRequest, Refusal, Ticket};
use crate::metadata_host::MetadataHost;
use crate::peer::Forwarded;
use crate::random::Random;
use admission::Admission;
use borzoi_metadata::{ClosedConnection, Metadata};
use borzoi_types::{
    Body, ClientId, LogId, Mono, Now, Op, ReplicaId, SessionId, ShardId, StreamId, TopicId,
};
use bytes::{Bytes, BytesMut};
use command::Waiting;
use connection::{Connection, Place};
use counters::Gather;
use failed_logins::FailedLogins;
use feed::{CommitQuestion, MetadataWaiters};
use login::PasswordWait;
use relay::Relay;
use remembered::RememberedPasswords;
use request::Caller;
use std::collections::{BTreeMap, BTreeSet};
use timers::{Timer, Timers};

/// What the front is told: the client side of [`crate::Event`] and what the back produced.
#[derive(Debug)]
pub enum FrontEvent {
    /// See [`crate::Event::ConnectionOpened`].
    ConnectionOpened {
        /// Its number.
        connection: ConnectionId,
        /// Remote address.
        peer: String,
        /// How it connected.
        transport: Transport,
    },
    /// See [`crate::Event::Frame`].
    Frame {
        /// From where.
        connection: ConnectionId,
        /// The whole frame.
        frame: BytesMut,
    },
    /// See [`crate::Event::ConnectionClosed`].
    ConnectionClosed {
        /// Which one.
        connection: ConnectionId,
    },
    /// See [`crate::Event::OutputTaken`].
    OutputTaken {
        /// Which one.
        connection: ConnectionId,
    },
    /// See [`crate::Event::Password`].
    Password {
        /// Which job.
        ticket: PasswordTicket,
        /// What it found.
        outcome: PasswordOutcome,
    },
    /// See [`crate::Event::Archive`].
    Archive {
        /// Which one.
        ticket: ArchiveTicket,
        /// Its bytes; none when it could not be made.
        archive: Option<Bytes>,
    },
    /// See [`crate::Event::Host`].
    Host(Box<HostStats>),
    /// See [`crate::Event::Tick`].
    Tick,
    /// See [`crate::Event::Stop`]: refuse what arrives from now on.
    Stop,
    /// Another shard's front sent something.
    Message {
        /// Who.
        from: ShardId,
        /// What.
        message: FrontMessage,
    },
    /// A lane answered.
    LaneReply {
        /// Which request.
        ticket: Ticket,
        /// The answer.
        reply: LaneReply,
    },
    /// Counters arrived.
    Counters(CountersReply),
    /// Shard 0: a metadata operation has committed, in op order, each once.
    MetadataCommitted(MetadataCommit),
    /// Shard 0: whether metadata operations may be proposed here.
    MetadataServing(bool),
    /// Shard 0: the whole metadata state was copied from a peer.
    MetadataInstalled {
        /// The last operation it contains.
        op: Op,
        /// As in a checkpoint.
        state: Body,
    },
    /// Shard 0: the answer to [`Back::read_metadata`].
    MetadataRead {
        /// As asked.
        token: u64,
        /// How far metadata is committed and applied; none when this node does not lead it.
        op: Option<Op>,
    },
    /// Another node's front says something.
    Forwarded {
        /// Which node.
        from: ReplicaId,
        /// What it says.
        message: Forwarded,
    },
    /// This shard's link with another node came up or went down.
    PeerLink {
        /// Which node.
        peer: ReplicaId,
        /// Whether it is up now.
        up: bool,
    },
    /// Somebody else leads a log. A hint.
    Leader {
        /// Which log.
        log: LogId,
        /// Who leads it; none while nobody is known to.
        leader: Option<ReplicaId>,
    },
    /// Lanes led here have committed what metadata wanted of them up to an operation.
    LanesConfirmed(Vec<(LogId, Op)>),
}

/// What the front needs of the part behind it. [`Back`] is the one that serves; tests put a
/// scripted one in its place.
pub(crate) trait Behind {
    /// See [`Back::submit`].
    fn submit(&mut self, now: Now, request: LaneRequest, effects: &mut Vec<Effect>);
    /// See [`Back::counters`].
    fn counters(
        &mut self,
        now: Now,
        from: ShardId,
        request: &CountersRequest,
        effects: &mut Vec<Effect>,
    );
    /// See [`Back::forward`].
    fn forward(&mut self, to: ReplicaId, message: Forwarded, effects: &mut Vec<Effect>);
    /// See [`Back::read_metadata`].
    fn read_metadata(&mut self, token: u64, effects: &mut Vec<Effect>);
    /// See [`Back::propose_metadata`].
    fn propose_metadata(
        &mut self,
        now: Now,
        body: Body,
        effects: &mut Vec<Effect>,
    ) -> Result<Op, Refusal>;
    /// See [`Back::shard_of`].
    fn shard_of(&self, log: LogId) -> ShardId;
    /// See [`Back::metadata_changed`].
    fn metadata_changed(&mut self);
    /// See [`Back::session_ended`].
    fn session_ended(&mut self, first: SessionId);
}

impl Behind for Back {
    fn submit(&mut self, now: Now, request: LaneRequest, effects: &mut Vec<Effect>) {
        Back::submit(self, now, request, effects);
    }
    fn counters(
        &mut self,
        now: Now,
        from: ShardId,
        request: &CountersRequest,
        effects: &mut Vec<Effect>,
    ) {
        Back::counters(self, now, from, request, effects);
    }
    fn forward(&mut self, to: ReplicaId, message: Forwarded, effects: &mut Vec<Effect>) {
        Back::forward(self, to, message, effects);
    }
    fn read_metadata(&mut self, token: u64, effects: &mut Vec<Effect>) {
        Back::read_metadata(self, token, effects);
    }
    fn propose_metadata(
        &mut self,
        now: Now,
        body: Body,
        effects: &mut Vec<Effect>,
    ) -> Result<Op, Refusal> {
        Back::propose_metadata(self, now, body, effects)
    }
    fn shard_of(&self, log: LogId) -> ShardId {
        Back::shard_of(self, log)
    }
    fn metadata_changed(&mut self) {
        Back::metadata_changed(self);
    }
    fn session_ended(&mut self, first: SessionId) {
        Back::session_ended(self, first);
    }
}

/// What every step of the front is handed.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) behind: &'a mut dyn Behind,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// The client side of one shard.
pub struct Front {
    options: FrontOptions,
    random: Box<dyn Random>,
    metadata: Metadata,
    /// Whether the metadata may be served: on shard 0 once its log serves, elsewhere once shard 0
    /// has said so behind the feed; in a cluster once shard 0 has caught up with the primary.
    ready: bool,
    /// Not ready for so long that requests are refused instead of kept.
    impatient: bool,
    stopping: bool,
    /// Shard 0 only.
    host: Option<MetadataHost>,
    /// What shard 0 asks of other nodes.
    relay: Relay,
    /// Who leads which log, as far as known.
    leaders: BTreeMap<LogId, ReplicaId>,
    /// Nodes whose link with this shard is up.
    peers_up: BTreeSet<ReplicaId>,
    /// Since when the others are out of reach.
    away_since: BTreeMap<ReplicaId, Mono>,
    admission: Admission,
    failed_logins: FailedLogins,
    remembered: RememberedPasswords,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The newest connection of each identity that is signed in here.
    bound: BTreeMap<ClientId, ConnectionId>,
    waiting: BTreeMap<Ticket, Waiting>,
    passwords: BTreeMap<PasswordTicket, PasswordWait>,
    /// Diagnostic archives that are being made, and for whom.
    archives: BTreeMap<ArchiveTicket, Caller>,
    ticket: u64,
    /// Refusals of logins that wait for their time.
    delayed: BTreeMap<Place, Vec<Bytes>>,
    timers: Timers,
    question: CommitQuestion,
    behind_metadata: MetadataWaiters,
    gather: Gather,
    /// Sessions whose connection is gone, for the next command that says so.
    lost: Vec<ClosedConnection>,
    /// Whether the last such command was refused a moment ago.
    lost_paused: bool,
    /// Where the next balanced send of a topic goes.
    balance: BTreeMap<(StreamId, TopicId), u32>,
    host_stats: HostStats,
    counters: FrontCounters,
    tally: RequestTally,
}

impl Front {
    /// A front with nobody connected. `metadata` is the recovered state on shard 0 and the
    /// formatted one elsewhere, where the feed of shard 0 replaces it.
    #[must_use]
    ///
    /// # Panics
    /// When the server's version text is not 1 to 255 bytes long.
    pub fn new(options: FrontOptions, metadata: Metadata, mut random: Box<dyn Random>) -> Self {
        assert!((1..=255).contains(&options.server_version.len()), "clients read it as a name");
        let mut key = [0; 32];
        random.fill(&mut key);
        let is_host = options.shard == ShardId(0);
        Self {
            admission: Admission::new(options.admission),
            host: is_host.then(|| MetadataHost::new(options.shards)),
            // Answers to an earlier life of this node find nobody.
            ticket: crate::back::first_ticket(options.generation),
            options,
            random,
            metadata,
            ready: false,
            impatient: false,
            relay: Relay::default(),
            leaders: BTreeMap::new(),
            peers_up: BTreeSet::new(),
            away_since: BTreeMap::new(),
            stopping: false,
            failed_logins: FailedLogins::default(),
            remembered: RememberedPasswords::new(key),
            connections: BTreeMap::new(),
            bound: BTreeMap::new(),
            waiting: BTreeMap::new(),
            passwords: BTreeMap::new(),
            archives: BTreeMap::new(),
            delayed: BTreeMap::new(),
            timers: Timers::default(),
            question: CommitQuestion::default(),
            behind_metadata: MetadataWaiters::default(),
            gather: Gather::default(),
            lost: Vec::new(),
            lost_paused: false,
            balance: BTreeMap::new(),
            host_stats: HostStats::default(),
            counters: FrontCounters::default(),
            tally: RequestTally::default(),
        }
    }

    /// Takes one event.
    pub fn handle(
        &mut self,
        now: Now,
        event: FrontEvent,
        back: &mut Back,
        effects: &mut Vec<Effect>,
    ) {
        self.handle_event(event, &mut Cx { now, behind: back, effects });
    }

    fn handle_event(&mut self, event: FrontEvent, cx: &mut Cx<'_>) {
        match event {
            FrontEvent::ConnectionOpened { connection, peer, transport } => {
                self.connection_opened(connection, &peer, transport, cx);
            }
            FrontEvent::Frame { connection, frame } => self.frame_arrived(connection, frame, cx),
            FrontEvent::ConnectionClosed { connection } => self.connection_closed(connection),
            FrontEvent::OutputTaken { connection } => self.output_taken(connection, cx),
            FrontEvent::Password { ticket, outcome } => self.password_done(ticket, outcome, cx),
            FrontEvent::Archive { ticket, archive } => self.archive_done(ticket, archive, cx),
            FrontEvent::Host(stats) => self.host_stats = *stats,
            FrontEvent::Tick => self.tick(cx),
            FrontEvent::Stop => self.stop(cx),
            FrontEvent::Message { from, message } => self.message(from, message, cx),
            FrontEvent::LaneReply { ticket, reply } => self.lane_replied(ticket, reply, cx),
            FrontEvent::Counters(reply) => self.counters_arrived(reply, cx),
            FrontEvent::MetadataCommitted(commit) => self.metadata_committed(commit, cx),
            FrontEvent::MetadataServing(serving) => self.metadata_serving(serving, cx),
            FrontEvent::MetadataInstalled { op, state } => self.metadata_installed(op, &state, cx),
            FrontEvent::MetadataRead { token, op } => {
                self.metadata_read(Ticket(token), op, cx);
            }
            FrontEvent::Forwarded { from, message } => self.forwarded(from, message, cx),
            FrontEvent::PeerLink { peer, up } => self.peer_link(peer, up, cx),
            FrontEvent::Leader { log, leader } => self.leader_is(log, leader, cx),
            FrontEvent::LanesConfirmed(lanes) => self.lanes_confirmed(lanes, cx),
        }
    }

    /// Ends a batch of events: what several of them wanted leaves as one.
    pub fn end_of_batch(&mut self, now: Now, back: &mut Back, effects: &mut Vec<Effect>) {
        self.finish_batch(&mut Cx { now, behind: back, effects });
    }

    fn finish_batch(&mut self, cx: &mut Cx<'_>) {
        self.report_lost_sessions(cx);
        self.send_question(cx);
        self.start_gathering(cx);
    }

    /// When a tick is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// This shard's committed metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Shard 0: the whole metadata state for a checkpoint, and the operation it stands at: the
    /// last one received as [`FrontEvent::MetadataCommitted`].
    #[must_use]
    pub fn metadata_checkpoint(&self) -> (Op, Body) {
        (self.metadata.applied(), Body::from(self.metadata.encode_snapshot()))
    }

    /// Whether requests are started: metadata is there and its log has served.
    const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Requests that wait for something, for tests and metrics.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let off_the_loop = self.passwords.len() + self.archives.len();
        self.waiting.len() + off_the_loop + self.delayed.len() + self.relay.len()
    }

    /// As [`Self::waiting`], without hand-overs that have run out of time: those wait, for nobody,
    /// until their group commits.
    #[must_use]
    pub fn waiting_but_handovers(&self) -> usize {
        let handover = |waiting: &&Waiting| matches!(waiting, Waiting::Draining(_));
        self.waiting() - self.waiting.values().filter(handover).count()
    }

    /// What requests wait for, in words, for tests.
    #[must_use]
    pub fn describe_waiting(&self) -> String {
        let passwords = self.passwords.len();
        let (delayed, archives) = (self.delayed.len(), self.archives.len());
        format!("{:?}, {passwords} passwords, {delayed} delayed, {archives} archives", self.waiting)
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counters(&self) -> &FrontCounters {
        &self.counters
    }

    /// Requests by command and result, and their times.
    #[must_use]
    pub const fn tally(&self) -> &RequestTally {
        &self.tally
    }

    /// Whether requests are started, for the question whether the node is ready.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.ready && !self.stopping
    }

    /// Identities that are signed in on a connection of this shard.
    #[must_use]
    pub fn sessions_bound(&self) -> usize {
        self.bound.len()
    }

    /// The newest figures of the machine.
    #[must_use]
    pub const fn host_stats(&self) -> &HostStats {
        &self.host_stats
    }

    /// Open connections, for tests and metrics.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.admission.total()
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket += 1;
        Ticket(self.ticket)
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        while let Some(timer) = self.timers.pop(cx.now.mono) {
            match timer {
                Timer::LoginDeadline(connection) => self.login_deadline_passed(connection, cx),
                Timer::FailedLogin(place) => self.failed_login_due(place, cx),
                Timer::Heartbeat(connection) => self.heartbeat_due(connection, cx),
                Timer::TokenExpiry(connection) => self.token_expiry_due(connection, cx),
                Timer::Lanes(ticket) => self.lanes_overdue(ticket, cx),
                Timer::Housekeeping => self.housekeeping(cx),
                Timer::Retry => self.retry_lost(cx),
                Timer::Relayed(ticket) => self.relayed_due(ticket, cx),
                Timer::Question(ticket) => self.question_due(ticket, cx),
                Timer::Clients(ticket) => self.clients_due(ticket, cx),
                Timer::Metadata(op) => self.metadata_overdue(op, cx),
                Timer::Unready => self.unready_for_long(cx),
            }
        }
    }
}
