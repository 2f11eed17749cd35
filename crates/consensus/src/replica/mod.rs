//! The replica: state, dispatch, and what every event ends with.
//!
//! Every event first changes state in its own handler and then runs [`Replica::advance`], which is
//! level triggered: it looks at the state and does whatever has become possible (start a view,
//! commit, acknowledge, repair). So no handler has to know what its change makes possible, and a
//! lost or repeated event delays work but never loses it.
//!
//! Invariants: [`Replica::check`], run after every event; [`crate::log`] for the log.
//!
//! Durable before sent: `view` and `log_view` change in memory first; every message that carries a
//! view passes [`Replica::send`], which is mute until the record with exactly these two is durable.
//! What was not sent is made up by the announcement that follows durability, and by timers.

mod asked;
mod election;
mod normal;
mod repair;
mod timers;
mod view_change;

use crate::event::{Effect, Event, Refusal, Role};
use crate::header::Anchor;
use crate::log::Log;
use crate::message::{ATTACHMENT_BYTES_MAX, DoViewChange, Message};
use crate::options::Options;
use crate::quorum::Quorums;
use crate::random::Random;
use crate::settle::Settled;
use crate::suffix::SUFFIX_OPS_MAX;
use crate::view_state::ViewState;
use borzoi_types::{Body, Micros, Mono, Op, ReplicaId, View};
use bytes::Bytes;
use normal::{Acknowledged, Pending};
use repair::Repair;
use timers::Timers;

/// Views above this are refused from peers, so that no message can exhaust the numbers.
const VIEW_MAX: View = View(u32::MAX / 2);

/// What a replica counts, for metrics and tests. Only ever rises.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Views entered.
    pub view_changes: u64,
    /// Views this replica has started as primary.
    pub views_started: u64,
    /// Of those, views begun with a loss epoch.
    pub loss_epochs: u64,
    /// Times this replica gave up the lead.
    pub step_downs: u64,
    /// Messages dropped because they contradict what is known or belong to another log.
    pub rejected: u64,
    /// Messages of an older view, answered with a hint.
    pub stale: u64,
    /// Prepares that arrived ahead of a gap and were buffered.
    pub buffered: u64,
    /// Prepares that arrived ahead of a gap and did not fit the buffer; repair fetches them.
    pub buffer_overflows: u64,
    /// Prepares asked of peers.
    pub prepares_requested: u64,
    /// Prepares that arrived by repair and were used.
    pub prepares_repaired: u64,
    /// Headers that arrived by repair and were used.
    pub headers_repaired: u64,
    /// Prepares given to peers that asked.
    pub prepares_served: u64,
    /// State transfers asked for.
    pub state_transfers: u64,
    /// Operations that a view change discarded on a nack quorum, as seen by its primary.
    pub discarded: u64,
    /// Journal reads that failed.
    pub fetches_failed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Normal,
    ViewChange,
}

/// What is known of one member of the group.
#[derive(Clone, Debug)]
struct Peer {
    heard: Mono,
    /// Highest view seen in its messages.
    view_seen: Option<View>,
    /// The view it last asked for, and when.
    support: Option<(View, Mono)>,
    dvc: Option<Box<DoViewChange>>,
    /// In this view, as primary.
    acked: Op,
    commit_echoed: Op,
    round_echoed: u64,
    /// When it was last told of the current view.
    hinted: Option<Mono>,
}

/// One replica of one log.
#[derive(Debug)]
pub struct Replica {
    options: Options,
    quorums: Quorums,
    random: Random,
    status: Status,
    view: View,
    log_view: View,
    durable_view: View,
    durable_log_view: View,
    log: Log,
    /// Committed in this log as far as known; may lie above the head of a replica that is behind.
    commit_max: Op,
    /// The highest op the primary is known to have prepared in this view.
    known_head: Op,
    must_learn: bool,
    learn_goal: Option<Op>,
    boot_view: View,
    nonce: u64,
    /// As primary: the operation of its own view, once prepared.
    own_op: Option<Op>,
    /// As primary of a view begun with declared loss: the body of its loss epoch.
    loss_body: Option<Body>,
    peers: Vec<Peer>,
    pending: Pending,
    repair: Repair,
    timers: Timers,
    acknowledged: Acknowledged,
    suspecting: bool,
    primary_gone: bool,
    entered_at: Mono,
    attempts: u32,
    round: u64,
    inflight_bytes: usize,
    timestamp: Micros,
    announce_due: bool,
    merge_due: bool,
    diverged: bool,
    role: Role,
    attachment: Bytes,
    counters: Counters,
}

impl Replica {
    /// Starts from what was recovered. Effects wanted at once are appended to `effects`.
    ///
    /// The records of `recovered` are durable. A solo replica enters the next view at once; a
    /// backup of a group resumes as such; the primary of the recovered view abandons it, because
    /// it may have sent prepares that its own journal never completed. On a node that has never run
    /// there is no such doubt: it leads its first view.
    pub fn start(
        options: Options,
        recovered: Settled,
        now: Mono,
        random_seed: u64,
        effects: &mut Vec<Effect>,
    ) -> Self {
        options.check();
        let state = &recovered.view_state;
        assert_eq!((state.cluster, state.log), (options.cluster, options.log), "own log");
        assert!(state.log_view <= state.view, "a log is adopted in a view that was entered");
        let mut replica = Self::new(options, &recovered, now, random_seed);
        if replica.is_solo() {
            let next = replica.view.next();
            replica.enter_view(now, next, effects);
        } else if replica.log_view < replica.view {
            replica.resume_view_change(now);
        } else if replica.is_primary_of_view() && !recovered.first_life {
            replica.abandon_view(now, effects);
        } else {
            replica.status = Status::Normal;
        }
        assert!(replica.durable_view <= replica.view, "what was recovered is durable");
        replica.advance(now, effects);
        replica
    }

    fn new(options: Options, recovered: &Settled, now: Mono, random_seed: u64) -> Self {
        let state = &recovered.view_state;
        let quorums = Quorums::of(options.replica_count);
        let mut random = Random::new(random_seed);
        let peer = Peer {
            heard: now,
            view_seen: None,
            support: None,
            dvc: None,
            acked: Op::ZERO,
            commit_echoed: Op::ZERO,
            round_echoed: 0,
            hinted: None,
        };
        let peers = vec![peer; usize::from(options.replica_count)];
        let headers = recovered.slots.iter().filter_map(|slot| slot.header);
        let timestamp = headers.map(|header| header.timestamp).max().unwrap_or_default();
        Self {
            quorums,
            nonce: random.next() | 1,
            repair: Repair::new(options.replica, options.replica_count),
            timers: Timers::default(),
            random,
            status: Status::ViewChange,
            view: state.view,
            log_view: state.log_view,
            durable_view: state.view,
            durable_log_view: state.log_view,
            log: Log::from_settled(recovered),
            commit_max: state.commit.max(recovered.base.op),
            known_head: Op::ZERO,
            must_learn: state.must_learn,
            learn_goal: None,
            boot_view: state.view,
            own_op: None,
            loss_body: None,
            peers,
            pending: Pending::default(),
            acknowledged: Acknowledged::default(),
            suspecting: false,
            primary_gone: false,
            entered_at: now,
            attempts: 0,
            round: 0,
            inflight_bytes: 0,
            timestamp,
            announce_due: false,
            merge_due: false,
            diverged: false,
            role: Role::ViewChange { view: state.view },
            attachment: Bytes::new(),
            counters: Counters::default(),
            options,
        }
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Mono, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Message { from, message } => self.on_message(now, from, message, effects),
            Event::Held { op, checksum } => {
                self.timers.stuck = None;
                self.merge_due = true;
                self.log.hold(Anchor { op, checksum });
            }
            Event::ViewStateDurable { view, log_view } => self.on_durable(view, log_view),
            Event::Fetched { op, checksum, prepare } => {
                self.on_fetched(Anchor { op, checksum }, prepare, effects);
            }
            Event::PeerHeard { peer, at } => self.on_peer_heard(peer, at.min(now)),
            Event::Checkpointed { op } => self.log.release(op.min(self.log.applied())),
            Event::TransferComplete { checkpoint } => self.on_transferred(checkpoint, effects),
            Event::TransferFailed => self.on_transfer_failed(now),
            Event::Tick => self.on_tick(now, effects),
            Event::StepDown => {
                if self.is_primary() && !self.is_solo() {
                    self.abandon_view(now, effects);
                }
            }
        }
        self.advance(now, effects);
    }

    fn on_message(
        &mut self,
        now: Mono,
        from: ReplicaId,
        message: Message,
        effects: &mut Vec<Effect>,
    ) {
        if from.get() >= self.options.replica_count || from == self.options.replica {
            self.counters.rejected += 1;
            return;
        }
        assert!(!self.is_solo(), "a solo replica has no peers");
        self.peer_mut(from).heard = now;
        if self.diverged {
            return;
        }
        if let Some(view) = message.view() {
            if view > VIEW_MAX {
                self.counters.rejected += 1;
                return;
            }
            let first = self.peer(from).view_seen.is_none_or(|seen| seen < view);
            if first {
                self.peer_mut(from).view_seen = Some(view);
            }
            if view < self.view {
                self.counters.stale += 1;
                self.hint(now, from, effects);
                return;
            }
            if view > self.view && !matches!(message, Message::StartView(_)) {
                self.enter_view(now, view, effects);
            } else if first && view == self.view {
                self.echo_view(from, &message, effects);
            }
        }
        self.dispatch(now, from, message, effects);
    }

    fn dispatch(
        &mut self,
        now: Mono,
        from: ReplicaId,
        message: Message,
        effects: &mut Vec<Effect>,
    ) {
        match message {
            Message::Prepare { commit, round, prepare, .. } => {
                self.on_prepare(from, commit, round, prepare, effects);
            }
            Message::PrepareOk { held, commit, round, .. } => {
                self.on_prepare_ok(from, held, commit, round);
            }
            Message::Commit { commit, head, round, .. } => {
                self.on_commit(from, commit, head, round);
            }
            Message::StartViewChange { target, .. } => {
                self.on_start_view_change(now, from, target, effects);
            }
            Message::DoViewChange(dvc) => self.on_do_view_change(now, from, dvc, effects),
            Message::StartView(start) => self.on_start_view(now, from, &start, effects),
            Message::RequestStartView { nonce, .. } => {
                self.on_request_start_view(from, nonce, effects);
            }
            Message::RequestHeaders { top, low } => {
                self.on_request_headers(from, top, low, effects);
            }
            Message::Headers { headers } => self.on_headers(from, &headers, effects),
            Message::RequestPrepares { wanted } => {
                self.on_request_prepares(from, &wanted, effects);
            }
            Message::RepairPrepare { prepare } => self.on_repair_prepare(&prepare, effects),
            Message::Released { through } => self.on_released(from, through, effects),
        }
    }

    /// Does whatever the state allows. Idempotent.
    fn advance(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !self.diverged {
            self.try_start_view(now, effects);
            self.append_own_op(effects);
            self.announce(now, effects);
            self.count_acknowledgements();
            self.apply(effects);
            self.finish_learning(effects);
            self.acknowledge(effects);
            self.drive_repair(now, effects);
        }
        self.report_role(effects);
        self.rearm(now);
        self.check();
    }

    fn on_durable(&mut self, view: View, log_view: View) {
        assert!(view <= self.view && log_view <= self.log_view, "records are written before");
        assert!(view >= self.durable_view, "the durable view never goes back");
        assert!(log_view >= self.durable_log_view, "the durable log_view never goes back");
        let was = self.is_durable();
        assert!(log_view <= view, "a log is adopted in a view that was entered");
        self.durable_view = view;
        self.durable_log_view = log_view;
        self.announce_due |= !was && self.is_durable();
    }

    fn is_durable(&self) -> bool {
        self.durable_view == self.view && self.durable_log_view == self.log_view
    }

    fn persist(&self, effects: &mut Vec<Effect>) {
        let suffix = self.log.suffix(self.commit_max, true);
        assert!(suffix.is_chained(), "the record carries a whole suffix");
        assert!(suffix.below().op <= self.commit_max, "down to what is committed");
        assert!(self.log_view <= self.view, "a log is adopted in a view that was entered");
        effects.push(Effect::PersistViewState(ViewState {
            cluster: self.options.cluster,
            log: self.options.log,
            view: self.view,
            log_view: self.log_view,
            commit: self.commit_max,
            suffix,
            must_learn: self.must_learn,
        }));
    }

    /// Sends, unless the message carries a view and the view is not durable yet.
    fn send(&self, to: ReplicaId, message: Message, effects: &mut Vec<Effect>) {
        assert_ne!(to, self.options.replica, "nobody writes to themselves");
        if message.view().is_some() {
            if !self.is_durable() {
                return;
            }
            assert_eq!(message.view(), Some(self.view), "one speaks for one's own view");
        }
        effects.push(Effect::Send { to, message });
    }

    fn broadcast(&self, message: &Message, effects: &mut Vec<Effect>) {
        for peer in self.others() {
            self.send(peer, message.clone(), effects);
        }
    }

    fn others(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let own = self.options.replica;
        (0..self.options.replica_count).map(ReplicaId).filter(move |replica| *replica != own)
    }

    fn peer(&self, replica: ReplicaId) -> &Peer {
        &self.peers[usize::from(replica.get())]
    }

    fn peer_mut(&mut self, replica: ReplicaId) -> &mut Peer {
        &mut self.peers[usize::from(replica.get())]
    }

    const fn is_solo(&self) -> bool {
        self.options.replica_count == 1
    }

    fn view_primary(&self) -> ReplicaId {
        self.options.primary_of(self.view)
    }

    fn is_primary_of_view(&self) -> bool {
        self.view_primary() == self.options.replica
    }

    fn is_primary(&self) -> bool {
        self.status == Status::Normal && self.is_primary_of_view()
    }

    fn is_backup(&self) -> bool {
        self.status == Status::Normal && !self.is_primary_of_view()
    }

    fn report_role(&mut self, effects: &mut Vec<Effect>) {
        let view = self.view;
        assert!(self.own_op.is_none() || self.is_primary(), "only a primary has its operation");
        let role = if self.is_primary() && self.is_durable() {
            let may_serve = self.own_op.is_some_and(|op| op <= self.log.applied());
            Role::Primary { view, may_serve }
        } else if self.is_backup() {
            Role::Backup { view, primary: self.view_primary() }
        } else {
            Role::ViewChange { view }
        };
        if role != self.role {
            self.role = role;
            effects.push(Effect::RoleChanged(role));
        }
    }

    /// The invariants of a replica at rest between events.
    fn check(&self) {
        if self.diverged {
            return; // Its log is to be replaced by a state transfer.
        }
        assert!(self.log_view <= self.view, "a log is adopted in a view that was entered");
        assert!(self.durable_view <= self.view, "what is durable was decided before");
        assert!(self.durable_log_view <= self.log_view, "what is durable was decided before");
        if self.status == Status::Normal {
            assert_eq!(self.log_view, self.view, "normal means: in the log of this view");
        }
        assert!(self.log.applied() <= self.commit_max, "committed, then applied");
        assert!(self.log.base().op <= self.commit_max, "what is released is committed");
        assert!(self.known_head == Op::ZERO || !self.is_solo(), "nobody tells a solo replica");
        let uncommitted = self.log.head_op().get().saturating_sub(self.commit_max.get());
        assert!(uncommitted <= SUFFIX_OPS_MAX as u64, "the uncommitted suffix is bounded");
        assert!(self.log.chained_from() <= self.commit_max.next(), "gaps lie below the commit");
        if let Some(own) = self.own_op {
            assert!(self.is_primary() && own <= self.log.head_op(), "a primary's own operation");
        }
        assert!(self.role != Role::ViewChange { view: self.view } || !self.is_backup());
        self.check_peers();
        self.check_learning();
        self.log.check();
    }

    fn check_peers(&self) {
        assert_eq!(self.peers.len(), usize::from(self.options.replica_count), "one per member");
        let own = self.peer(self.options.replica);
        assert!(own.dvc.is_none() && own.support.is_none(), "one is not one's own peer");
        for peer in self.others().map(|peer| self.peer(peer)) {
            assert!(peer.view_seen.is_none_or(|view| view <= VIEW_MAX), "views are bounded");
            if let Some(dvc) = &peer.dvc {
                assert_eq!(dvc.view, self.view, "ballots are for this view");
            }
            if self.is_primary() {
                assert!(peer.acked <= self.log.head_op(), "nobody holds what was not prepared");
                assert!(peer.commit_echoed <= self.commit_max, "nobody echoes the future");
            }
        }
    }

    fn check_learning(&self) {
        assert!(self.learn_goal.is_none() || self.must_learn, "only the untrusted learn");
        assert!(self.boot_view <= self.view, "views rise");
        assert!(self.loss_body.is_none() || self.is_primary(), "a primary declares a loss");
        assert!(!self.suspecting || !self.is_primary(), "a primary does not suspect itself");
        assert!(!self.primary_gone || !self.is_primary(), "nor miss itself");
        assert!(self.pending.is_empty() || !self.is_primary(), "a primary buffers nothing");
        assert_ne!(self.nonce, 0, "0 is nobody's question");
        if self.is_serving_primary() {
            assert!(self.own_op.is_some_and(|op| op <= self.log.applied()), "in force");
            assert!(self.is_durable(), "and on disk");
        }
    }

    /// Opaque bytes for this replica's next do-view-change, at most 64 KiB; a loss epoch's body
    /// collects them.
    pub fn set_attachment(&mut self, attachment: Bytes) {
        assert!(attachment.len() <= ATTACHMENT_BYTES_MAX, "attachments are bounded");
        self.attachment = attachment;
        self.merge_due = true;
    }

    /// Why a proposal would be refused for the part this replica plays.
    fn role_refusal(&self) -> Option<Refusal> {
        match self.role {
            Role::Primary { may_serve: true, .. } => None,
            Role::Primary { .. } => Some(Refusal::NotServing),
            Role::Backup { primary, .. } => Some(Refusal::NotPrimary { primary: Some(primary) }),
            Role::ViewChange { .. } => Some(Refusal::NotPrimary { primary: None }),
        }
    }
}
