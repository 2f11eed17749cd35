//! Changes that are answered when the lanes concerned have committed their part: deletes, purges,
//! segment deletions, the end of a consumer group (architecture, section 8).
//!
//! Invariants: a change is answered once, as executed when all parts are confirmed, else with 57
//! when the time is up; the repeated request then finds the stored reply and waits again.

use super::changes::LANES_PATIENCE;
use super::command::{Change, LanesWait, Waiting};
use super::feed::Applied;
use super::timers::Timer;
use super::{Cx, Front, replies};
use crate::lane::api::{LaneReply, LaneRequest, LaneRequestKind, Origin, Ticket};
use borzoi_types::{LogId, Op, PartitionKey};
use borzoi_wire::ErrorCode;

/// What one lane has to commit for a change.
pub(super) struct Part {
    lane: LogId,
    key: PartitionKey,
    kind: LaneRequestKind,
}

impl Front {
    /// What lanes have to commit for an operation, as far back as metadata remembers: the deletion
    /// of keys that are gone, and once per lane whatever else it does about those that live.
    pub(super) fn parts_of(&self, op: Op) -> Vec<Part> {
        let Some(before) = op.0.checked_sub(1).map(Op) else { return Vec::new() };
        let mut parts = Vec::new();
        for lane in (1..=self.metadata.layout().lanes()).map(LogId) {
            let Some(changes) = self.metadata.lane_changes(lane, before) else { continue };
            let mut lives = false;
            for (_, key) in changes.take_while(|(at, _)| *at == op) {
                if self.metadata.partition(key).is_none() {
                    parts.push(Part { lane, key, kind: LaneRequestKind::AwaitDeleted });
                } else if !core::mem::replace(&mut lives, true) {
                    let kind = LaneRequestKind::AwaitConfirmed { through: op };
                    parts.push(Part { lane, key, kind });
                }
            }
        }
        parts
    }

    /// The change is answered when the lanes have committed their parts.
    pub(super) fn await_lanes(
        &mut self,
        change: Change,
        applied: Applied,
        parts: Vec<Part>,
        cx: &mut Cx<'_>,
    ) {
        assert!(!parts.is_empty(), "a change without parts is answered at once");
        let ticket = self.next_ticket();
        let due = cx.now.mono.plus(LANES_PATIENCE);
        self.timers.set(due, Timer::Lanes(ticket));
        let wait = LanesWait { change, applied, outstanding: parts.len(), due };
        self.waiting.insert(ticket, Waiting::Lanes(wait));
        for Part { lane, key, kind } in parts {
            let part = self.next_ticket();
            self.waiting.insert(part, Waiting::LanePart(ticket));
            let origin = Origin::here(self.options.shard, part);
            cx.behind.submit(cx.now, LaneRequest { origin, key, lane, kind }, cx.effects);
        }
    }

    /// A lane has answered for its part.
    pub(super) fn lane_part_done(&mut self, ticket: Ticket, reply: &LaneReply, cx: &mut Cx<'_>) {
        let Some(Waiting::Lanes(wait)) = self.waiting.get_mut(&ticket) else { return };
        if !matches!(reply, LaneReply::KeyDeleted { .. } | LaneReply::Confirmed) {
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
