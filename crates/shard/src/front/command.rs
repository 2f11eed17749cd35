//! Requests that wait for a log: their tickets, and the way of a command to the metadata log.
//!
//! Invariants: a ticket is in the table from the moment its request leaves until its answer comes
//! or its time is up, and is taken out exactly once; a command that is refused was not and will
//! not be executed, one whose fate is unknown is answered 57.

use super::connection::Place;
use super::feed::Applied;
use super::request::{Caller, Running, Step};
use super::{Cx, Front, FrontMessage, replies};
use crate::lane::api::{LaneRequestKind, Ticket};
use crate::metadata_host::Asker;
use borzoi_metadata::{
    ClosedConnection, Command, CompletedHandover, Outcome, PartitionPlace, Resolved,
};
use borzoi_types::{Mono, Op, ShardId};
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
    /// A change is committed and waits for the lanes that have to do their part.
    Lanes(LanesWait),
    /// One such part; the ticket is that of the change.
    LanePart(Ticket),
    /// A hand-over waits for its old owner to have committed what it was given.
    Draining(CompletedHandover),
    /// Nobody waits: the server told the log that connections were lost.
    Lost(Vec<ClosedConnection>),
    /// Nobody waits: the server keeps house, and does so again later if this is refused.
    Housekeeping,
    /// Nobody waits: the node tells the log that it has started.
    Started,
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

/// A committed change that waits for lanes to do their part.
#[derive(Debug)]
pub(crate) struct LanesWait {
    pub(crate) change: Change,
    /// How it will be answered.
    pub(crate) applied: Applied,
    /// Parts that no lane has confirmed yet.
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
            let asker = Asker { peer: None, shard: self.options.shard, ticket };
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
            Some(Waiting::Lost(_) | Waiting::Housekeeping | Waiting::Started) | None => {}
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
            Some(Waiting::Started) => {
                self.announce_again();
                return self.report_again(cx);
            }
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
            let parts = self.parts_of(applied.at.op);
            if !parts.is_empty() {
                return self.await_lanes(change, applied, parts, cx);
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
}
