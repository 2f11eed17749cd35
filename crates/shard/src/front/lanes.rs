//! Requests of partitions: to their lanes and back.
//!
//! Invariant: every request that left comes back once; one that was refused was not executed, one
//! whose partition was deleted meanwhile is resolved again once, against metadata that includes
//! the deletion.

use super::command::{LaneCall, LaneWait, Waiting};
use super::replies::{self, CommittedAt};
use super::request::Running;
use super::{Cx, Front};
use crate::lane::api::{LaneReply, LaneRequest, LaneRequestKind, Origin, Refusal, Ticket};
use borzoi_types::Op;
use borzoi_wire::body::{ConsumerOffset, PollPrefix, SendConfirmation};
use borzoi_wire::{ErrorCode, Operation, Reply};
use bytes::Bytes;

impl Front {
    /// Sends a request to the lane of its partition.
    pub(super) fn call_lane(&mut self, call: LaneCall, running: Running, cx: &mut Cx<'_>) {
        let LaneCall { caller, partition, kind } = call;
        if matches!(kind, LaneRequestKind::Send { .. })
            && let Some(state) = self.connections.get_mut(&caller.place.connection)
        {
            state.sent(caller.place.slot);
        }
        let ticket = self.next_ticket();
        let wait = LaneWait { caller, target: partition.place, running };
        self.waiting.insert(ticket, Waiting::Lane(Box::new(wait)));
        let origin = Origin::here(self.options.shard, ticket);
        let request = LaneRequest { origin, key: partition.key, lane: partition.lane, kind };
        cx.behind.submit(cx.now, request, cx.effects);
    }

    pub(super) fn lane_replied(&mut self, ticket: Ticket, reply: LaneReply, cx: &mut Cx<'_>) {
        let wait = match self.waiting.remove(&ticket) {
            Some(Waiting::Lane(wait)) => wait,
            Some(Waiting::LanePart(change)) => return self.lane_part_done(change, &reply, cx),
            Some(Waiting::Draining(handover)) => return self.drained(handover, &reply, cx),
            other => panic!("a lane answered {ticket:?}, which is {other:?}"),
        };
        let LaneWait { caller, target, running } = *wait;
        let (to, commit) = (&caller.to, self.metadata.applied());
        let read = |reply| replies::read(to, caller.binding.session, commit, reply);
        let parts = match reply {
            LaneReply::Sent { base_offset, op } => {
                let (stream, topic, partition) = (target.stream, target.topic, target.partition);
                let sent = SendConfirmation { stream, topic, partition, base_offset };
                let at = CommittedAt { op, timestamp: cx.now.wall };
                replies::committed(to, at, Reply::Sent(vec![sent]))
            }
            LaneReply::Polled { current_offset, count, batches } => {
                let partition = target.partition;
                let prefix = PollPrefix { partition, current_offset, messages_count: count };
                replies::polled(to, caller.binding.session, commit, prefix, batches)
            }
            LaneReply::Stored => {
                let at = CommittedAt { op: commit, timestamp: cx.now.wall };
                replies::committed(to, at, Reply::Empty)
            }
            LaneReply::Offset { current_offset, stored_offset } => {
                let partition = target.partition;
                read(stored_offset.map_or(Reply::NotFound, |stored_offset| {
                    let offset = ConsumerOffset { partition, current_offset, stored_offset };
                    Reply::ConsumerOffset(offset)
                }))
            }
            LaneReply::Created | LaneReply::Drained | LaneReply::Confirmed => {
                panic!("no client asked for {reply:?}")
            }
            // The owner that the lane has seen is not known here yet: the client asks again.
            LaneReply::Refused(Refusal::NotOwner) if is_poll(to) => {
                let prefix = PollPrefix::resync();
                replies::polled(to, caller.binding.session, commit, prefix, Vec::new())
            }
            LaneReply::Refused(refusal) => refused(to, commit, &refusal),
            LaneReply::KeyDeleted { by } => {
                self.tell(caller.place, by);
                if to.operation == Operation::SendMessages as u8 || running.rerouted {
                    // The batch has left; the client has it and sends it again.
                    replies::transient(to, commit, ErrorCode::TransientNotAccepted)
                } else {
                    return self.resume(Running { rerouted: true, ..running }, cx);
                }
            }
        };
        self.complete(caller.place, parts, cx);
    }
}

/// Offsets are written by operations of their own; a read that a lane refuses an owner is a poll.
const fn is_poll(to: &borzoi_wire::frame::ReplyTo) -> bool {
    to.operation == Operation::NonReplicated as u8
}

fn refused(to: &borzoi_wire::frame::ReplyTo, commit: Op, refusal: &Refusal) -> Vec<Bytes> {
    let code = match refusal {
        Refusal::Busy | Refusal::NotMaterialised | Refusal::NotServing | Refusal::Stopping => {
            ErrorCode::TransientNotAccepted
        }
        // Space does not return within a client's time-out: the application must know.
        Refusal::NoSpace if to.operation == Operation::SendMessages as u8 => {
            ErrorCode::CannotAppendMessage
        }
        Refusal::NoSpace => ErrorCode::CannotWriteToFile,
        Refusal::InvalidOffset => ErrorCode::InvalidOffset,
        Refusal::Unknown => ErrorCode::TransientNotCommitted,
        Refusal::OffsetNotFound => ErrorCode::ConsumerOffsetNotFound,
        Refusal::NotOwner => ErrorCode::ConsumerGroupPartitionNotOwned,
        Refusal::RequestTooOld => ErrorCode::RequestAlreadyApplied,
        Refusal::Damaged { .. } => ErrorCode::InvalidBatchChecksum,
        Refusal::ReadFailed => ErrorCode::CannotReadFile,
        Refusal::Sealed(_) => ErrorCode::CannotDecryptData,
        Refusal::InvalidBatch => ErrorCode::InvalidCommand,
    };
    if code.is_transient() {
        replies::transient(to, commit, code)
    } else {
        replies::deny(to, commit, code)
    }
}
