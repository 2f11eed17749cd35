//! Committed metadata: from the log on shard 0 to every shard's copy, in commit order.
//!
//! Shard 0 applies each committed operation, then passes it on with the ticket of whoever on the
//! receiving shard asked for it. Every shard applies the same operations in the same order, so the
//! outcome is computed where it is needed and never travels.
//!
//! Messages between two shards keep their order, therefore an answer of shard 0 ("committed up to
//! here") arrives behind everything it speaks of.
//!
//! Invariants: a copy's position only rises, by one; questions for the commit point are asked one
//! at a time, and answer all who asked before it left.

use super::command::Waiting;
use super::relay::Questioner;
use super::replies::CommittedAt;
use super::request::Running;
use super::timers::Timer;
use super::{Cx, Front, FrontMessage};
use crate::back::MetadataCommit;
use crate::event::{Effect, ShardMessage};
use crate::lane::api::Ticket;
use crate::metadata_host::{Asker, MetadataHost};
use crate::peer::{Forwarded, Waiter};
use borzoi_metadata::{Admission, Change, Command, Issuer, Metadata, Notice, Outcome};
use borzoi_types::{Body, Duration, Micros, Mono, Op, ReplicaId, ShardId};
use borzoi_wire::ErrorCode;
use borzoi_wire::frame::RequestView;
use bytes::Bytes;
use std::collections::BTreeMap;

/// How long a request waits for metadata that its session has seen elsewhere: longer than a change
/// of the metadata primary takes.
const METADATA_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Applied {
    /// Its outcome; for a repeated request that of the first time.
    pub(crate) outcome: Outcome,
    /// Where it stands; for a repeated request where it was executed.
    pub(crate) at: CommittedAt,
}

/// Requests that ask the metadata primary how far it has committed.
#[derive(Debug, Default)]
pub(crate) struct CommitQuestion {
    /// Asked, the answer is on its way.
    asked: Option<Vec<Running>>,
    /// To be asked with the next question.
    next: Vec<Running>,
}

/// Requests that wait until metadata is applied up to an operation.
#[derive(Debug, Default)]
pub(crate) struct MetadataWaiters {
    by_op: BTreeMap<Op, Vec<(Mono, Running)>>,
}

impl Cx<'_> {
    pub(super) fn send_to(&mut self, to: ShardId, message: FrontMessage) {
        self.effects.push(Effect::ToShard { to, message: ShardMessage::Front(message) });
    }
}

/// Proposing, on shard 0.
impl Front {
    /// Whether commands may be proposed here.
    pub(super) fn serves_metadata(&self) -> bool {
        self.host.as_ref().is_some_and(MetadataHost::is_serving)
    }

    /// Takes a command of any shard of this node.
    pub(super) fn propose(&mut self, asker: Asker, body: Bytes, cx: &mut Cx<'_>) {
        if self.options.replica_count > 1 && !self.serves_metadata() {
            return self.relay(asker, body, None, cx);
        }
        self.propose_here(asker, body, cx);
    }

    /// Takes a command of any shard of any node, to be proposed here or not at all.
    pub(super) fn propose_here(&mut self, asker: Asker, body: Bytes, cx: &mut Cx<'_>) {
        let accepted = self.host.as_mut().is_some_and(|host| host.queue(asker, body));
        if accepted {
            self.propose_queued(cx);
        } else {
            self.proposal_ended(asker, true, cx);
        }
    }

    /// Proposes what waits, as far as the pipeline has room.
    fn propose_queued(&mut self, cx: &mut Cx<'_>) {
        loop {
            let Some(host) = self.host.as_mut() else { return };
            let Some(body) = host.next().cloned() else { return };
            match cx.behind.propose_metadata(cx.now, body.into(), cx.effects) {
                Ok(op) => host.accepted(op),
                Err(crate::lane::api::Refusal::Busy) => return,
                Err(_) => {
                    if let Some(asker) = host.refused() {
                        self.proposal_ended(asker, true, cx);
                    }
                }
            }
        }
    }

    /// Tells an asker that its command will not be executed, or that nobody knows.
    pub(super) fn proposal_ended(&mut self, asker: Asker, certain: bool, cx: &mut Cx<'_>) {
        if let Some(peer) = asker.peer {
            let waiter = Waiter { shard: asker.shard, ticket: asker.ticket };
            let refused = Forwarded::CommandRefused { waiter, certain };
            cx.behind.forward(peer, refused, cx.effects);
        } else if asker.shard == self.options.shard {
            self.command_refused(asker.ticket, certain, cx);
        } else {
            let message = FrontMessage::CommandRefused { ticket: asker.ticket, certain };
            cx.send_to(asker.shard, message);
        }
    }

    pub(super) fn metadata_serving(&mut self, serving: bool, cx: &mut Cx<'_>) {
        self.feed_from_here(cx);
        let Some(host) = self.host.as_mut() else { return };
        let (unknown, refused) = host.serve(serving);
        // Another node may lead already: it commits what this one has prepared, or is asked anew.
        for (asker, body) in unknown {
            self.displaced(asker, body, Some(self.options.replica), cx);
        }
        for (asker, body) in refused {
            self.displaced(asker, body, None, cx);
        }
        if serving {
            self.propose_relayed(cx);
            self.ask_here(cx);
            self.serve_clients(cx);
            let next = cx.now.mono.plus(super::session::HOUSEKEEPING_EVERY);
            self.timers.set(next, Timer::Housekeeping);
        }
    }

    /// A command that was taken here, when this node no longer leads.
    fn displaced(&mut self, asker: Asker, body: Bytes, sent: Option<ReplicaId>, cx: &mut Cx<'_>) {
        if asker.peer.is_some() || self.options.replica_count == 1 {
            return self.proposal_ended(asker, sent.is_none(), cx);
        }
        self.relay(asker, body, sent, cx);
    }

    /// Tells the log that connections of earlier lives of this node are gone.
    pub(super) fn node_started(&mut self, cx: &mut Cx<'_>) {
        let (replica, generation) = (self.options.replica, self.options.generation);
        let command = Command::system(Change::NodeStarted { replica, generation });
        self.submit(&command, Waiting::Started, cx);
    }

    pub(super) fn metadata_committed(&mut self, commit: MetadataCommit, cx: &mut Cx<'_>) {
        self.feed_from_here(cx);
        let body = commit.body.to_bytes();
        let Some(host) = self.host.as_mut() else {
            panic!("the metadata log is on shard 0, this is {}", self.options.shard);
        };
        let (proposed, replaced) = host.committed(commit.op);
        let asker = match proposed {
            Some(asker) => Some(asker).filter(|asker| asker.peer.is_none()),
            None => self.relay.take_committed(&body),
        };
        let followers: Vec<ShardId> = host.followers().collect();
        for follower in followers {
            let ticket = asker.filter(|asker| asker.shard == follower).map(|asker| asker.ticket);
            let (op, timestamp, body) = (commit.op, commit.timestamp, body.clone());
            cx.send_to(follower, FrontMessage::Committed { op, timestamp, body, ticket });
        }
        for asker in replaced {
            self.proposal_ended(asker, false, cx);
        }
        let own = asker.filter(|asker| asker.shard == self.options.shard);
        self.apply_committed(commit.op, commit.timestamp, &body, own.map(|it| it.ticket), cx);
        self.propose_queued(cx);
    }

    /// A peer's whole state replaces this node's: the feed begins again with it.
    pub(super) fn metadata_installed(&mut self, op: Op, state: &Body, cx: &mut Cx<'_>) {
        let state = state.to_bytes();
        self.metadata = Metadata::decode_snapshot(&state).expect("a peer's intact checkpoint");
        assert_eq!(self.metadata.applied(), op, "the state stands where its checkpoint says");
        let Some(host) = self.host.as_mut() else { return };
        host.restart_feed();
        self.feed_from_here(cx);
        cx.behind.metadata_changed();
        self.wake_metadata_waiters(cx);
        self.answer_applied_questions(cx);
    }

    /// Sends the other shards the state that the feed starts from, once.
    fn feed_from_here(&mut self, cx: &mut Cx<'_>) {
        let Some(host) = self.host.as_mut() else { return };
        if !host.start_feed() {
            return;
        }
        let followers: Vec<ShardId> = host.followers().collect();
        if followers.is_empty() {
            return;
        }
        let state = Bytes::from(self.metadata.encode_snapshot());
        for follower in followers {
            cx.send_to(follower, FrontMessage::Snapshot { state: state.clone() });
        }
    }
}

/// Applying, on every shard.
impl Front {
    pub(super) fn message(&mut self, from: ShardId, message: FrontMessage, cx: &mut Cx<'_>) {
        match message {
            FrontMessage::Snapshot { state } => {
                self.metadata =
                    Metadata::decode_snapshot(&state).expect("shard 0 encoded it just now");
                cx.behind.metadata_changed();
                self.wake_metadata_waiters(cx);
                self.wake_metadata_waiters(cx);
            }
            FrontMessage::Committed { op, timestamp, body, ticket } => {
                self.apply_committed(op, timestamp, &body, ticket, cx);
            }
            FrontMessage::Serving(serving) => {
                if serving {
                    self.become_ready(cx);
                }
            }
            FrontMessage::Command { ticket, body } => {
                self.propose(Asker { peer: None, shard: from, ticket }, body, cx);
            }
            FrontMessage::CommandRefused { ticket, certain } => {
                self.command_refused(ticket, certain, cx);
            }
            FrontMessage::AskCommit => self.question(Questioner::Shard(from), cx),
            FrontMessage::CommitIs { op } => self.commit_is(op, cx),
            FrontMessage::AskClients { ticket } => {
                let clients = self.client_summaries();
                cx.send_to(from, FrontMessage::Clients { ticket, clients });
            }
            FrontMessage::Clients { ticket, clients } => {
                self.clients_arrived(from, ticket, clients, cx);
            }
        }
    }

    pub(super) fn become_ready(&mut self, cx: &mut Cx<'_>) {
        if self.ready {
            return;
        }
        self.ready = true;
        self.impatient = false;
        let waiting: Vec<_> = self.connections.keys().copied().collect();
        for connection in waiting {
            self.pump(connection, cx);
        }
    }

    fn apply_committed(
        &mut self,
        op: Op,
        timestamp: Micros,
        body: &[u8],
        ticket: Option<Ticket>,
        cx: &mut Cx<'_>,
    ) {
        if body.is_empty() {
            self.metadata.advance(op);
            assert!(ticket.is_none(), "nobody proposes an empty operation");
        } else {
            // Only this crate encodes commands, and a log holds what was encoded.
            let command = Command::decode(body).expect("an operation in the log decodes");
            let mut at = CommittedAt { op, timestamp };
            if ticket.is_some() {
                at = self.executed_at(&command).unwrap_or(at);
            }
            let outcome = self.metadata.apply(op, timestamp, &command);
            let notices = self.metadata.notices().to_vec();
            if let Some(ticket) = ticket {
                self.command_applied(ticket, Applied { outcome, at }, cx);
            }
            self.act_on(&notices, cx);
            if let Change::ConnectionsClosed(closed) = &command.change {
                self.close_written_off(closed, cx);
            }
        }
        cx.behind.metadata_changed();
        self.wake_metadata_waiters(cx);
        self.answer_applied_questions(cx);
    }

    /// Where a repeated request was executed before.
    fn executed_at(&self, command: &Command) -> Option<CommittedAt> {
        let Issuer::Client(request) = &command.issuer else { return None };
        let (client, session) = (request.client, request.session);
        let sessions = self.metadata.sessions();
        match sessions.admit(client, session, request.request, request.checksum) {
            Admission::Stored(stored) => {
                Some(CommittedAt { op: stored.op, timestamp: stored.timestamp })
            }
            _ => None,
        }
    }

    /// What an applied operation means for connections of this shard.
    fn act_on(&mut self, notices: &[Notice], cx: &mut Cx<'_>) {
        for notice in notices {
            match notice {
                Notice::SessionEnded { session, first } => {
                    cx.behind.session_ended(*first);
                    self.session_ended(*session, cx);
                }
                Notice::UserDeleted(user) => self.user_deleted(*user, cx),
                Notice::UserChanged(user) => self.user_changed(*user, cx),
                Notice::TokenDeleted { hash, .. } => self.token_deleted(*hash, cx),
                Notice::LaneChanged(_)
                | Notice::SessionStarted(_)
                | Notice::GroupChanged(_)
                | Notice::GroupDeleted(_) => {}
                Notice::HandoverStarted { group, partition } => {
                    self.handover_started(*group, *partition, cx);
                }
            }
        }
    }
}

/// Waiting for metadata.
impl Front {
    /// `running` is run again when the primary's commit point is applied here.
    pub(super) fn ask_commit(&mut self, running: Running, cx: &mut Cx<'_>) {
        assert!(!running.certain, "a request asks once");
        if self.host.is_some() && self.options.replica_count == 1 {
            let certain = Running { certain: true, ..running };
            return self.start(certain, cx);
        }
        self.question.next.push(running);
    }

    /// Sends the question that was not sent yet, unless one is on its way.
    pub(super) fn send_question(&mut self, cx: &mut Cx<'_>) {
        if self.question.asked.is_none() && !self.question.next.is_empty() {
            self.counters.commit_questions += 1;
            self.question.asked = Some(core::mem::take(&mut self.question.next));
            if self.host.is_some() {
                return self.question(Questioner::Shard(self.options.shard), cx);
            }
            cx.send_to(ShardId(0), FrontMessage::AskCommit);
        }
    }

    pub(super) fn commit_is(&mut self, op: Option<Op>, cx: &mut Cx<'_>) {
        let asked = self.question.asked.take().unwrap_or_default();
        for mut running in asked {
            match op {
                // The feed came on the same way, so this is applied already.
                Some(op) => {
                    assert!(op <= self.metadata.applied(), "the feed was overtaken");
                    running.certain = true;
                    self.resume(running, cx);
                }
                None => self.not_serving(&running, cx),
            }
        }
        self.send_question(cx);
    }

    /// The primary could not be asked: the request may be sent again.
    fn not_serving(&mut self, running: &Running, cx: &mut Cx<'_>) {
        if let Some((view, _)) = RequestView::split(&running.frame) {
            let step = self.transient(&view.reply_to(), ErrorCode::TransientNotAccepted);
            self.finish_step(running.place, step, cx);
        }
    }

    /// `running` is run again when metadata is applied up to `op`.
    pub(super) fn await_metadata(&mut self, op: Op, running: Running, cx: &Cx<'_>) {
        assert!(op > self.metadata.applied(), "there is nothing to wait for");
        let due = cx.now.mono.plus(METADATA_PATIENCE);
        self.timers.set(due, Timer::Metadata(op));
        self.behind_metadata.by_op.entry(op).or_default().push((due, running));
    }

    /// Metadata up to `op` has not come in time for those who have waited longest.
    pub(super) fn metadata_overdue(&mut self, op: Op, cx: &mut Cx<'_>) {
        let Some(waiting) = self.behind_metadata.by_op.remove(&op) else { return };
        let (late, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(due, _)| *due <= cx.now.mono);
        if !rest.is_empty() {
            self.behind_metadata.by_op.insert(op, rest);
        }
        for (_, running) in late {
            self.not_serving(&running, cx);
        }
    }

    fn wake_metadata_waiters(&mut self, cx: &mut Cx<'_>) {
        while let Some(entry) = self.behind_metadata.by_op.first_entry() {
            let op = *entry.key();
            if op > self.metadata.applied() {
                return;
            }
            for (due, running) in entry.remove() {
                self.timers.cancel(due, Timer::Metadata(op));
                self.resume(running, cx);
            }
        }
    }
}
