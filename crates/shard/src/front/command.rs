//! Requests that wait for a log: their tickets, and the way of a command to the metadata log.
//!
//! Invariants: a ticket is in the table from the moment its request leaves until its answer comes
//! or its time is up, and is taken out exactly once; a command that is refused was not and will
//! not be executed, one whose fate is unknown is answered 57.

use super::changes::LANES_PATIENCE;
use super::connection::Place;
use super::feed::Applied;
use super::request::{Caller, Running, Step};
use super::timers::Timer;
use super::{Cx, Front, FrontMessage, replies};
use crate::lane::api::{LaneReply, LaneRequest, LaneRequestKind, Origin, Ticket};
use crate::metadata_host::Asker;
use borzoi_metadata::{
    ClosedConnection, Command, CompletedHandover, Outcome, PartitionPlace, Resolved,
};
use borzoi_types::{LogId, Mono, Op, PartitionKey, ShardId};
use borzoi_wire::frame::ReplyTo;
use borzoi_wire::{ErrorCode, Secret};
use bytes::Bytes;

/// What waits for an answer under a ticket.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A login waits for its registration.
    Register(super::login::Registration),
    /// A logout waits for its command.
    Logout {
        /// The request.
        place: Place,
        /// What its answer echoes.
        to: ReplyTo,
    },
    /// A change waits for its command.
    Change(Change),
    /// A change is committed and waits for the lanes that have to delete partitions.
    Lanes(LanesWait),
    /// One such partition; the ticket is that of the change.
    Deletion(Ticket),
    /// A hand-over waits for its old owner to have committed what it was given.
    Draining(CompletedHandover),
    /// Nobody waits: the server told the log that connections were lost.
    Lost(Vec<ClosedConnection>),
    /// Nobody waits: the server keeps house, and does so again later if this is refused.
    Housekeeping,
    /// A request waits for the lane of its partition.
    Lane(Box<LaneWait>),
    /// A question about connections waits for the other shards.
    Clients(super::clients::ClientsWait),
    /// Counters of one shard are on their way.
    Counters,
}

/// A change of metadata on its way.
#[derive(Debug)]
pub(crate) struct Change {
    /// The request.
    pub(crate) place: Place,
    /// What its answer echoes.
    pub(crate) to: ReplyTo,
    /// Whether the answer waits for the lanes.
    pub(crate) waits_for_lanes: bool,
    /// Whether it makes the caller a member of a group.
    pub(crate) joins: bool,
    /// The clear token of a token creation, known only here.
    pub(crate) token: Option<Secret>,
}

/// What a lane is asked for a client.
#[derive(Debug)]
pub(crate) struct LaneCall {
    /// Who asks.
    pub(crate) caller: Caller,
    /// The partition.
    pub(crate) partition: Resolved,
    /// What for.
    pub(crate) kind: LaneRequestKind,
}

/// A request that waits for a lane.
#[derive(Debug)]
pub(crate) struct LaneWait {
    /// Who asks.
    pub(crate) caller: Caller,
    /// The partition, as clients see it.
    pub(crate) target: PartitionPlace,
    /// The request, to be run again if its partition turns out to be deleted.
    pub(crate) running: Running,
}

/// A committed change that waits for lanes to delete partitions.
#[derive(Debug)]
pub(crate) struct LanesWait {
    pub(crate) change: Change,
    /// How it will be answered.
    pub(crate) applied: Applied,
    /// Partitions whose deletion no lane has confirmed yet.
    pub(crate) outstanding: usize,
    /// When the client is told to ask again.
    pub(crate) due: Mono,
}

impl Front {
    /// Sends `command` to the metadata log; `waiting` is told what becomes of it.
    pub(super) fn submit(&mut self, command: &Command, waiting: Waiting, cx: &mut Cx<'_>) {
        let ticket = self.next_ticket();
        self.waiting.insert(ticket, waiting);
        let body = Bytes::from(command.encode());
        if self.host.is_some() {
            let asker = Asker { shard: self.options.shard, ticket };
            self.propose(asker, body, cx);
        } else {
            let message = FrontMessage::Command { ticket, body };
            cx.send_to(ShardId(0), message);
        }
    }

    /// Submits the command of a client's change.
    pub(super) fn submit_change(
        &mut self,
        command: &Command,
        change: Change,
        cx: &mut Cx<'_>,
    ) -> Step {
        self.submit(command, Waiting::Change(change), cx);
        Step::Pending
    }

    /// A command asked for here was applied.
    pub(super) fn command_applied(&mut self, ticket: Ticket, applied: Applied, cx: &mut Cx<'_>) {
        match self.waiting.remove(&ticket) {
            Some(Waiting::Register(registration)) => self.registered(registration, applied, cx),
            Some(Waiting::Logout { place, to }) => self.logged_out(place, &to, &applied, cx),
            Some(Waiting::Change(change)) => self.change_applied(change, applied, cx),
            Some(Waiting::Lost(_) | Waiting::Housekeeping) | None => {}
            Some(other) => panic!("ticket {ticket:?} of a command belongs to {other:?}"),
        }
    }

    /// A command asked for here will not be executed (58), or nobody knows (57).
    pub(super) fn command_refused(&mut self, ticket: Ticket, certain: bool, cx: &mut Cx<'_>) {
        let code = if certain {
            ErrorCode::TransientNotAccepted
        } else {
            ErrorCode::TransientNotCommitted
        };
        let (place, to) = match self.waiting.remove(&ticket) {
            Some(Waiting::Register(registration)) => (registration.place, registration.to),
            Some(Waiting::Logout { place, to }) => (place, to),
            Some(Waiting::Change(change)) => (change.place, change.to),
            Some(Waiting::Lost(sessions)) => return self.lost_again(sessions, cx),
            Some(Waiting::Housekeeping) | None => return,
            Some(other) => panic!("ticket {ticket:?} of a command belongs to {other:?}"),
        };
        let parts = replies::transient(&to, self.metadata.applied(), code);
        self.complete(place, parts, cx);
    }

    fn change_applied(&mut self, change: Change, applied: Applied, cx: &mut Cx<'_>) {
        self.tell(change.place, applied.at.op);
        let executed = matches!(applied.outcome, Outcome::Applied(_));
        if change.joins && executed {
            self.watch_member(change.place.connection, cx);
        }
        if change.waits_for_lanes && executed {
            let deleted = self.deleted_by(applied.at.op);
            if !deleted.is_empty() {
                return self.await_deletions(change, applied, &deleted, cx);
            }
        }
        let parts = self.change_reply(&change, &applied);
        self.complete(change.place, parts, cx);
    }

    /// The session's later requests see at least `op`.
    pub(super) fn tell(&mut self, place: Place, op: Op) {
        if let Some(state) = self.connections.get_mut(&place.connection) {
            state.told = state.told.max(op);
        }
    }

    /// Partitions that an operation deleted, as far back as metadata remembers.
    fn deleted_by(&self, op: Op) -> Vec<(LogId, PartitionKey)> {
        let Some(before) = op.0.checked_sub(1).map(Op) else { return Vec::new() };
        let lanes = (1..=self.metadata.layout().lanes()).map(LogId);
        let changes =
            lanes.filter_map(|lane| Some((lane, self.metadata.lane_changes(lane, before)?)));
        let keys = changes.flat_map(|(lane, changes)| {
            let of_op = changes.take_while(move |(at, _)| *at == op);
            of_op.map(move |(_, key)| (lane, key))
        });
        keys.filter(|(_, key)| self.metadata.partition(*key).is_none()).collect()
    }

    /// A delete or purge is answered when the lanes have committed their part.
    fn await_deletions(
        &mut self,
        change: Change,
        applied: Applied,
        deleted: &[(LogId, PartitionKey)],
        cx: &mut Cx<'_>,
    ) {
        let ticket = self.next_ticket();
        let due = cx.now.mono.plus(LANES_PATIENCE);
        self.timers.set(due, Timer::Lanes(ticket));
        let wait = LanesWait { change, applied, outstanding: deleted.len(), due };
        self.waiting.insert(ticket, Waiting::Lanes(wait));
        for (lane, key) in deleted {
            let part = self.next_ticket();
            self.waiting.insert(part, Waiting::Deletion(ticket));
            let origin = Origin { shard: self.options.shard, ticket: part };
            let kind = LaneRequestKind::AwaitDeleted;
            let request = LaneRequest { origin, key: *key, lane: *lane, kind };
            cx.behind.submit(cx.now, request, cx.effects);
        }
    }

    /// A lane has answered for one partition of a delete or purge.
    pub(super) fn deletion_answered(&mut self, ticket: Ticket, reply: &LaneReply, cx: &mut Cx<'_>) {
        let Some(Waiting::Lanes(wait)) = self.waiting.get_mut(&ticket) else { return };
        if !matches!(reply, LaneReply::KeyDeleted { .. }) {
            return self.lanes_overdue(ticket, cx);
        }
        wait.outstanding -= 1;
        if wait.outstanding == 0
            && let Some(Waiting::Lanes(wait)) = self.waiting.remove(&ticket)
        {
            self.timers.cancel(wait.due, Timer::Lanes(ticket));
            let parts = self.change_reply(&wait.change, &wait.applied);
            self.complete(wait.change.place, parts, cx);
        }
    }

    /// A lane took too long or cannot say: the change is committed, and answered when the client
    /// asks for it again.
    pub(super) fn lanes_overdue(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let Some(Waiting::Lanes(wait)) = self.waiting.remove(&ticket) else { return };
        self.timers.cancel(wait.due, Timer::Lanes(ticket));
        let (to, commit) = (&wait.change.to, self.metadata.applied());
        let parts = replies::transient(to, commit, ErrorCode::TransientNotCommitted);
        self.complete(wait.change.place, parts, cx);
    }
}
