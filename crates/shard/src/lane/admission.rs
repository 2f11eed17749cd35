//! What happens to a request when it reaches its lane: answered, parked, refused or queued.
//!
//! Everything that could make an operation fail is checked here or when it is prepared, against the
//! state that the log will have then; apply does not fail.

use super::Lane;
use super::api::{
    ConsumerKey, LaneReply, LaneRequest, LaneRequestKind, Origin, Refusal, SendIdentity,
};
use super::forming::{Queued, QueuedKind};
use super::reads::Poll;
use super::window::SendClass;
use crate::back::shared::Shared;
use crate::partition::Partition;
use borzoi_types::limits::{LANE_QUEUE_BYTES_MAX, LANE_QUEUE_REQUESTS_MAX};
use borzoi_types::{Now, Offset, Op, PartitionKey};
use bytes::BytesMut;

impl Lane {
    /// Takes a request that names this lane. It is answered exactly once, now or later.
    pub fn submit(&mut self, now: Now, request: LaneRequest, shared: &mut Shared) {
        let solo = shared.options.replica_count == 1;
        if solo || !self.serving || !self.needs_proof(&request) {
            return self.submit_confirmed(now, request, shared);
        }
        // Answered from what this node has committed: only while it still leads.
        if let Err(request) = self.rounds.wait(request) {
            self.counters.refused_busy += 1;
            return shared.reply(request.origin, LaneReply::Refused(Refusal::Busy));
        }
        shared.work.insert(self.log);
    }

    /// Whether the answer would be drawn from the state of this replica alone.
    fn needs_proof(&self, request: &LaneRequest) -> bool {
        match &request.kind {
            LaneRequestKind::Poll { .. } | LaneRequestKind::GetOffset { .. } => true,
            // Behind the polls that came before it: they count as under way.
            LaneRequestKind::AwaitDrained { .. } => true,
            // Only the negative answer.
            LaneRequestKind::StoreOffset { offset, .. } => {
                let partition = self.state.partition(request.key);
                partition.is_some_and(|p| p.current_offset().is_none_or(|last| *offset > last))
            }
            LaneRequestKind::Send { .. }
            | LaneRequestKind::DeleteOffset { .. }
            | LaneRequestKind::AwaitDeleted
            | LaneRequestKind::AwaitConfirmed { .. }
            | LaneRequestKind::AwaitCreated => false,
        }
    }

    /// Takes a request for which this node is known to lead, as far as that matters.
    pub(super) fn submit_confirmed(&mut self, now: Now, request: LaneRequest, shared: &mut Shared) {
        assert_eq!(request.lane, self.log, "routed by the lane recorded with the key");
        if let Some(refusal) = self.refusal_now(&request, shared) {
            return shared.reply(request.origin, LaneReply::Refused(refusal));
        }
        if let LaneRequestKind::AwaitConfirmed { through } = request.kind {
            return self.await_confirmed(through, request.origin, shared);
        }
        if let Some(by) = self.closing.get(&request.key).copied()
            && !matches!(request.kind, LaneRequestKind::AwaitDeleted)
        {
            return self.answer_deleted(request.origin, by, shared);
        }
        if self.state.partition(request.key).is_none() {
            return self.submit_absent(now, request, shared);
        }
        shared.work.insert(self.log);
        let (key, origin) = (request.key, request.origin);
        match request.kind {
            LaneRequestKind::Send { batch, count, identity } => {
                self.submit_send(key, origin, batch, count, identity, shared);
            }
            LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted } => {
                let kind = QueuedKind::StoreOffset { consumer, offset, generation, persisted };
                self.submit_offset(Queued { key, origin, waits: wait, kind }, shared);
            }
            LaneRequestKind::DeleteOffset { consumer, generation } => {
                let kind = QueuedKind::DeleteOffset { consumer, generation };
                self.submit_offset(Queued { key, origin, waits: true, kind }, shared);
            }
            LaneRequestKind::GetOffset { consumer } => {
                let partition = self.state.partition(key).expect("looked up above");
                let current_offset = partition.current_offset().unwrap_or(Offset::ZERO);
                let stored_offset = partition.offset(consumer);
                shared.reply(origin, LaneReply::Offset { current_offset, stored_offset });
            }
            LaneRequestKind::Poll { start, count, consumer, auto_commit, generation } => {
                let poll = Poll { start, count, consumer, auto_commit, generation };
                self.submit_poll(key, origin, poll, shared);
            }
            LaneRequestKind::AwaitDrained { group } => {
                let committed = self.committed_of(key, group);
                let drained = self.draining.wait(key, group, origin, committed);
                self.answer_drained(&drained, shared);
            }
            LaneRequestKind::AwaitCreated => shared.reply(origin, LaneReply::Created),
            LaneRequestKind::AwaitDeleted => self.await_deleted(key, origin, shared),
            LaneRequestKind::AwaitConfirmed { .. } => unreachable!("answered above"),
        }
    }

    /// Offset operations: what is wrong already is refused now, the rest when it is applied.
    fn submit_offset(&mut self, queued: Queued, shared: &mut Shared) {
        let (consumer, generation, offset) = match queued.kind {
            QueuedKind::StoreOffset { consumer, offset, generation, .. } => {
                (consumer, generation, Some(offset))
            }
            QueuedKind::DeleteOffset { consumer, generation } => (consumer, generation, None),
            ref other => unreachable!("not about a stored offset: {other:?}"),
        };
        let partition = self.state.partition_mut(queued.key).expect("looked up by the caller");
        let refusal = if is_fenced(partition, consumer, generation) {
            self.counters.fenced += 1;
            Some(Refusal::NotOwner)
        } else if offset.is_some_and(|it| partition.current_offset().is_none_or(|last| it > last)) {
            Some(Refusal::InvalidOffset)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return shared.reply(queued.origin, LaneReply::Refused(refusal));
        }
        partition.drop_overlay(consumer);
        let (origin, waits) = (queued.origin, queued.waits);
        if self.enqueue(queued, shared) && !waits {
            shared.reply(origin, LaneReply::Stored);
        }
    }

    /// A poll of a consumer group is admitted under a generation. The first one of a new owner is
    /// answered when the log refuses what the former owner still asks for.
    fn submit_poll(&mut self, key: PartitionKey, origin: Origin, poll: Poll, shared: &mut Shared) {
        let ConsumerKey::Group(group) = poll.consumer else {
            return self.poll(key, origin, poll, shared);
        };
        let partition = self.state.partition(key).expect("looked up by the caller");
        if is_fenced(partition, poll.consumer, poll.generation) {
            self.counters.fenced += 1;
            return shared.reply(origin, LaneReply::Refused(Refusal::NotOwner));
        }
        let raises = poll.generation > partition.generation(group);
        self.draining.read_started(key, group);
        // Reads go on while writes are refused, and so are those of the former owner.
        if !raises || shared.no_space.is_some() {
            return self.poll(key, origin, poll, shared);
        }
        let kind = QueuedKind::Generation { group, poll };
        if !self.enqueue(Queued { key, origin, waits: true, kind }, shared) {
            self.poll_ended(key, &poll, shared);
        }
    }

    /// Answers a request whose partition is gone for ever.
    pub(super) fn answer_deleted(&mut self, origin: Origin, by: Op, shared: &mut Shared) {
        self.counters.stale += 1;
        shared.reply(origin, LaneReply::KeyDeleted { by });
    }

    /// Whether a key of this lane can never exist here again.
    #[must_use]
    pub fn is_past(&self, key: PartitionKey) -> bool {
        key <= self.state.highest_created() && self.state.partition(key).is_none()
    }

    fn refusal_now(&self, request: &LaneRequest, shared: &Shared) -> Option<Refusal> {
        if shared.stopping || shared.fatal {
            return Some(Refusal::Stopping);
        }
        if !self.serving {
            return Some(Refusal::NotServing);
        }
        let writes = matches!(
            request.kind,
            LaneRequestKind::Send { .. }
                | LaneRequestKind::StoreOffset { .. }
                | LaneRequestKind::DeleteOffset { .. }
        );
        (writes && shared.no_space.is_some()).then_some(Refusal::NoSpace)
    }

    /// The partition is not there: never again, or not yet.
    fn submit_absent(&mut self, now: Now, request: LaneRequest, shared: &mut Shared) {
        if self.is_past(request.key) {
            return self.answer_deleted(request.origin, self.state.deleted_by(), shared);
        }
        // The reconciler looks at what is parked: the key may be about to be created, or already
        // gone from metadata before this lane ever had it.
        self.reconciled = None;
        shared.work.insert(self.log);
        if let Err(request) = shared.parking.park(now.mono, request) {
            shared.reply(request.origin, LaneReply::Refused(Refusal::NotMaterialised));
        }
    }

    fn submit_send(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        batch: BytesMut,
        count: u32,
        identity: Option<SendIdentity>,
        shared: &mut Shared,
    ) {
        if count == 0 || batch.is_empty() {
            return shared.reply(origin, LaneReply::Refused(Refusal::InvalidBatch));
        }
        if let Some(identity) = &identity {
            match self.state.windows().classify(identity, key) {
                SendClass::New => {}
                SendClass::Duplicate { base_offset, op } => {
                    self.counters.duplicates += 1;
                    return shared.reply(origin, LaneReply::Sent { base_offset, op });
                }
                SendClass::TooOld => {
                    return shared.reply(origin, LaneReply::Refused(Refusal::RequestTooOld));
                }
            }
            if let Some(waiters) = self.sends.get_mut(&send_key(identity, key)) {
                // The first one is on its way: its answer is this one's too.
                self.counters.duplicates += 1;
                waiters.push(origin);
                return;
            }
        }
        let kind = QueuedKind::Send { batch, count, identity };
        if self.enqueue(Queued { key, origin, waits: true, kind }, shared)
            && let Some(identity) = &identity
        {
            self.sends.insert(send_key(identity, key), Vec::new());
        }
    }

    /// Queues a request for the next operation, or refuses it; whether it was queued.
    fn enqueue(&mut self, queued: Queued, shared: &mut Shared) -> bool {
        let bytes = queued.bytes();
        let full = self.queue.len() >= LANE_QUEUE_REQUESTS_MAX
            || (!self.queue.is_empty() && self.queue_bytes + bytes > LANE_QUEUE_BYTES_MAX);
        if full {
            self.counters.refused_busy += 1;
            shared.reply(queued.origin, LaneReply::Refused(Refusal::Busy));
            return false;
        }
        self.queue_bytes += bytes;
        self.queue.push_back(queued);
        true
    }

    fn await_deleted(&mut self, key: PartitionKey, origin: Origin, shared: &mut Shared) {
        let waiting: usize = self.deleted_waiters.values().map(Vec::len).sum();
        if waiting >= LANE_QUEUE_REQUESTS_MAX {
            return shared.reply(origin, LaneReply::Refused(Refusal::Busy));
        }
        let waiters = self.deleted_waiters.entry(key).or_default();
        // A node whose question may have been lost asks again under the same number.
        if !waiters.contains(&origin) {
            waiters.push(origin);
        }
    }
}

/// Whether a later owner of the partition has been seen.
fn is_fenced(partition: &Partition, consumer: ConsumerKey, generation: u64) -> bool {
    let ConsumerKey::Group(group) = consumer else { return false };
    generation < partition.generation(group)
}

/// The key of a send in flight.
pub(super) fn send_key(identity: &SendIdentity, key: PartitionKey) -> super::SendKey {
    (identity.session, identity.request, identity.hash, key)
}
