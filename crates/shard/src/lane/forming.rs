//! From admitted requests to prepares: gathering, minting, stamping, proposing.
//!
//! At the end of an event batch the lane gathers what was admitted into as few operations as the
//! limits allow: what the lane itself plans first, then requests in the order they came, then
//! automatic commits. Offsets and the time of appending are minted here, in log order, and written
//! into the batch while its buffer has no other owner.

use super::Lane;
use super::admission::send_key;
use super::api::{ConsumerKey, LaneReply, Origin, Refusal, SendIdentity};
use super::loss::Floors;
use super::operation::{Entry, OperationBuilder};
use super::reads::Poll;
use super::reservation::{self, Reservation, ReservationMode, Reservations};
use super::state::LaneState;
use crate::back::shared::Shared;
use crate::log_host::{Before, BeforeAppend, is_for_user};
use borzoi_consensus::{HEADER_BYTES, Prepare, PrepareKind};
use borzoi_storage::journal::{
    AppendError, Journal, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use borzoi_storage::sealing::Keyring;
use borzoi_types::limits::PREPARE_GATHER_BYTES_MAX;
use borzoi_types::{Durability, GroupId, Micros, Now, Offset, Op, PartitionKey};
use borzoi_wire::batch::stamp;
use bytes::{Bytes, BytesMut};

/// Journal bytes that an entry may cost beside its own: a reservation and its record.
const RESERVATION_BYTES_PER_ENTRY: usize = 32;

/// A request that was admitted and waits to be prepared.
#[derive(Debug)]
pub struct Queued {
    /// Its partition.
    pub key: PartitionKey,
    /// Who waits.
    pub origin: Origin,
    /// Whether the answer waits for the commit.
    pub waits: bool,
    /// What is wanted.
    pub kind: QueuedKind,
}

/// What a queued request wants.
#[derive(Debug)]
pub enum QueuedKind {
    /// Append a batch.
    Send {
        /// The wire batch, not stamped.
        batch: BytesMut,
        /// Messages in it.
        count: u32,
        /// For exactly-once.
        identity: Option<SendIdentity>,
    },
    /// Store an offset.
    StoreOffset {
        /// Whose.
        consumer: ConsumerKey,
        /// The offset.
        offset: Offset,
        /// Generation it was admitted under.
        generation: u64,
        /// Whether it is flushed before it counts as held.
        persisted: bool,
    },
    /// Delete an offset.
    DeleteOffset {
        /// Whose.
        consumer: ConsumerKey,
        /// Generation it was admitted under.
        generation: u64,
    },
    /// Refuse what former owners of the partition still ask for, then poll.
    Generation {
        /// Of which group.
        group: GroupId,
        /// The poll, with the generation.
        poll: Poll,
    },
}

impl Queued {
    /// Bytes it will add to an operation, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.kind {
            QueuedKind::Send { batch, .. } => OperationBuilder::BATCH_OVERHEAD_BYTES + batch.len(),
            QueuedKind::StoreOffset { .. }
            | QueuedKind::DeleteOffset { .. }
            | QueuedKind::Generation { .. } => OperationBuilder::OFFSET_ENTRY_BYTES,
        }
    }
}

/// An operation that was prepared and not committed, and who waits for it.
#[derive(Debug)]
pub struct InFlight {
    /// Its position.
    pub op: Op,
    /// Who waits for which of its entries, in entry order.
    pub waiters: Vec<Waiter>,
}

/// Someone who waits for an entry of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Index of the entry.
    pub entry: usize,
    /// Who.
    pub origin: Origin,
    /// What it goes on with when the entry has been applied, instead of being answered.
    pub poll: Option<Poll>,
}

/// What the next operation will hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plan {
    planned: usize,
    queued: usize,
    auto_commits: usize,
    bytes: usize,
    class: RecordClass,
}

impl Plan {
    const fn entries(&self) -> usize {
        self.planned + self.queued + self.auto_commits
    }
}

impl Lane {
    /// Prepares what waits, as far as the pipeline and the journal have room.
    pub fn form(&mut self, now: Now, shared: &mut Shared) {
        // No operation may be longer than a journal file has room for.
        let record_max = usize::try_from(shared.journal.record_bytes_max()).unwrap_or(usize::MAX);
        let gather_max = PREPARE_GATHER_BYTES_MAX.min(record_max / 4);
        while self.serving && !shared.fatal {
            let Some(mut plan) = self.plan(gather_max) else { break };
            if !Self::has_room(&plan, shared) && plan.entries() > 1 {
                // Little room: one request may still fit where many do not.
                plan = self.plan(0).expect("something waits");
            }
            if self.host.can_propose(plan.bytes).is_err() {
                break;
            }
            if !Self::has_room(&plan, shared) {
                // A checkpoint will make room, or a full disk will refuse the queue.
                shared.no_room.insert(self.log);
                break;
            }
            self.prepare(now, plan, shared);
        }
    }

    fn has_room(plan: &Plan, shared: &Shared) -> bool {
        let body = plan.bytes + plan.entries() * RESERVATION_BYTES_PER_ENTRY + HEADER_BYTES;
        // What makes room goes through; the rest waits for segments that lag behind.
        let held_back = plan.class == RecordClass::Normal && shared.is_backed_up();
        !held_back && shared.journal.has_room(HEADER_BYTES, body, plan.class)
    }

    /// What the next operation holds: as many entries as fit into `gather_max` bytes, at least one;
    /// none when nothing waits.
    fn plan(&self, gather_max: usize) -> Option<Plan> {
        let mut plan = Plan {
            planned: 0,
            queued: 0,
            auto_commits: 0,
            bytes: OperationBuilder::HEADER_BYTES,
            class: RecordClass::Normal,
        };
        let fits = |plan: &Plan, bytes: usize| {
            plan.bytes == OperationBuilder::HEADER_BYTES || plan.bytes + bytes <= gather_max
        };
        if let Some(first) = self.planned.front() {
            plan.class = class_of(first);
            for entry in self.planned.iter().take_while(|entry| class_of(entry) == plan.class) {
                let bytes = OperationBuilder::entry_bytes(entry);
                if !fits(&plan, bytes) {
                    break;
                }
                plan.planned += 1;
                plan.bytes += bytes;
            }
            return Some(plan);
        }
        for queued in &self.queue {
            if !fits(&plan, queued.bytes()) {
                return Some(plan);
            }
            plan.queued += 1;
            plan.bytes += queued.bytes();
        }
        for _ in &self.auto_commits {
            if !fits(&plan, OperationBuilder::OFFSET_ENTRY_BYTES) {
                return Some(plan);
            }
            plan.auto_commits += 1;
            plan.bytes += OperationBuilder::OFFSET_ENTRY_BYTES;
        }
        (plan.queued + plan.auto_commits > 0).then_some(plan)
    }

    fn prepare(&mut self, now: Now, plan: Plan, shared: &mut Shared) {
        let timestamp = self.host.mint_timestamp(now);
        let mut builder = OperationBuilder::default();
        let mut waiters = Vec::with_capacity(plan.queued);
        for _ in 0..plan.planned {
            let entry = self.planned.pop_front().expect("counted by the plan");
            if let Entry::OffsetJump { key, to } = &entry
                && let Some(partition) = self.state.partition_mut(*key)
            {
                partition.mint_from(*to);
            }
            builder.push(&entry);
        }
        for _ in 0..plan.queued {
            let queued = self.queue.pop_front().expect("counted by the plan");
            self.queue_bytes -= queued.bytes();
            self.push_queued(queued, timestamp, &mut builder, &mut waiters, shared);
        }
        for _ in 0..plan.auto_commits {
            let (key, consumer) = self.auto_commits.pop_first().expect("counted by the plan");
            let partition = self.state.partition_mut(key);
            let begun = partition.and_then(|partition| partition.begin_auto_commit(consumer));
            if let Some((offset, generation)) = begun {
                let (auto_commit, persisted) = (true, false);
                builder.push(&Entry::StoreOffset {
                    key,
                    consumer,
                    offset,
                    auto_commit,
                    generation,
                    persisted,
                });
            }
        }
        if builder.is_empty() {
            assert!(waiters.is_empty(), "who waits, waits for an entry");
            return;
        }
        assert!(builder.len() <= plan.bytes, "the plan was an upper bound");
        let op = self.host.propose(now, timestamp, builder.finish()).expect("asked before");
        self.counters.prepared += 1;
        self.in_flight.push_back(InFlight { op, waiters });
        self.run(now, shared);
    }

    /// Adds a request to the operation being built; or answers it, if its partition went away while
    /// it waited.
    fn push_queued(
        &mut self,
        queued: Queued,
        timestamp: Micros,
        builder: &mut OperationBuilder,
        waiters: &mut Vec<Waiter>,
        shared: &mut Shared,
    ) {
        let Queued { key, origin, waits, kind } = queued;
        let closing = self.closing.get(&key).copied();
        if closing.is_some() || self.state.partition(key).is_none() {
            let by = closing.unwrap_or(self.state.deleted_by());
            return self.answer_gone(key, origin, waits, &kind, by, shared);
        }
        let mut polls = None;
        let entry = match kind {
            QueuedKind::Send { batch, count, identity } => {
                match self.stamp_send(key, batch, count, timestamp, &shared.options.keys) {
                    Some((base_offset, batch)) => {
                        Entry::Batch { key, base_offset, count, identity, batch }
                    }
                    None => {
                        let refused = LaneReply::Refused(Refusal::InvalidBatch);
                        return self.answer_send(key, origin, identity.as_ref(), &refused, shared);
                    }
                }
            }
            QueuedKind::StoreOffset { consumer, offset, generation, persisted } => {
                let auto_commit = false;
                Entry::StoreOffset { key, consumer, offset, auto_commit, generation, persisted }
            }
            QueuedKind::DeleteOffset { consumer, generation } => {
                Entry::DeleteOffset { key, consumer, generation }
            }
            QueuedKind::Generation { group, poll } => {
                polls = Some(poll);
                Entry::Generation { key, group, generation: poll.generation }
            }
        };
        if waits {
            waiters.push(Waiter { entry: builder.entries(), origin, poll: polls });
        }
        builder.push(&entry);
    }

    /// Mints offsets for a batch, stamps it in place and encrypts it if a key is active. None if it
    /// is not a batch, which the front has excluded.
    fn stamp_send(
        &mut self,
        key: PartitionKey,
        mut batch: BytesMut,
        count: u32,
        timestamp: Micros,
        keys: &Keyring,
    ) -> Option<(Offset, Bytes)> {
        let partition = self.state.partition_mut(key).expect("the caller has looked");
        let base_offset = partition.minted();
        let header = stamp(&mut batch, partition.options.partition, base_offset, timestamp).ok()?;
        if header.message_count != count {
            return None;
        }
        let minted = partition.mint(count);
        assert_eq!(minted, base_offset);
        keys.seal(key, &mut batch);
        Some((base_offset, batch.freeze()))
    }

    fn answer_gone(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        waits: bool,
        kind: &QueuedKind,
        by: Op,
        shared: &mut Shared,
    ) {
        match kind {
            QueuedKind::Send { identity, .. } => {
                let reply = LaneReply::KeyDeleted { by };
                self.answer_send(key, origin, identity.as_ref(), &reply, shared);
            }
            _ if waits => self.answer_deleted(origin, by, shared),
            _ => {}
        }
    }

    /// Answers a send that was not prepared, and every resend that waits with it.
    fn answer_send(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        identity: Option<&SendIdentity>,
        reply: &LaneReply,
        shared: &mut Shared,
    ) {
        let resends = identity.and_then(|identity| self.sends.remove(&send_key(identity, key)));
        for origin in core::iter::once(origin).chain(resends.unwrap_or_default()) {
            let reply = match reply {
                LaneReply::KeyDeleted { by } => LaneReply::KeyDeleted { by: *by },
                LaneReply::Refused(refusal) => LaneReply::Refused(refusal.clone()),
                _ => unreachable!("a send that was not prepared is refused or stale"),
            };
            shared.reply(origin, reply);
        }
    }

    /// Refuses everything that waits to be prepared: the disk is full.
    pub fn refuse_queue(&mut self, refusal: &Refusal, shared: &mut Shared) {
        for queued in core::mem::take(&mut self.queue) {
            let Queued { key, origin, waits, kind } = queued;
            let reply = LaneReply::Refused(refusal.clone());
            match kind {
                QueuedKind::Send { identity, .. } => {
                    self.answer_send(key, origin, identity.as_ref(), &reply, shared);
                }
                QueuedKind::Generation { poll, .. } => self.poll(key, origin, poll, shared),
                _ if waits => shared.reply(origin, reply),
                _ => {}
            }
        }
        self.queue_bytes = 0;
    }
}

/// Deletes, truncations and jumps go through when the journal is full: they make room, or nothing
/// goes on without them.
const fn class_of(entry: &Entry) -> RecordClass {
    match entry {
        Entry::Create { .. }
        | Entry::Batch { .. }
        | Entry::StoreOffset { .. }
        | Entry::DeleteOffset { .. }
        | Entry::Options { .. }
        | Entry::Generation { .. }
        | Entry::GroupDeleted { .. } => RecordClass::Normal,
        Entry::Truncate { .. }
        | Entry::Purge { .. }
        | Entry::Delete { .. }
        | Entry::OffsetJump { .. }
        | Entry::DeleteSegments { .. }
        | Entry::SessionExpired { .. } => RecordClass::Reserved,
    }
}

/// Claims the offsets of a prepare before it enters the journal (required behaviour A2).
pub struct ClaimOffsets<'a> {
    /// Level of the lane: only `replicated` ones claim.
    pub level: Durability,
    /// Offsets claimed on top.
    pub lease: u64,
    /// What is claimed already.
    pub reservations: &'a mut Reservations,
    /// For the frontiers.
    pub state: &'a LaneState,
    /// Counts records written.
    pub written: &'a mut u64,
}

impl ClaimOffsets<'_> {
    /// What a loss epoch will do to the partitions that exist now.
    fn jumps_of(&self, body: &borzoi_types::Body) -> Vec<Entry> {
        let floors = Floors::read(body);
        let partitions = self.state.partitions();
        let above = partitions.filter(|(key, p)| floors.of(*key) > p.log.next_offset());
        above.map(|(key, _)| Entry::OffsetJump { key, to: floors.of(key) }).collect()
    }
}

impl BeforeAppend for ClaimOffsets<'_> {
    fn before_append(
        &mut self,
        prepare: &Prepare,
        journal: &mut Journal,
    ) -> Result<Before, AppendError> {
        if self.level == Durability::Persisted || prepare.header.kind == PrepareKind::ViewStart {
            return Ok(Before { durable_first: RecordSeq::ZERO, level: self.level });
        }
        let entries = if is_for_user(prepare) {
            super::operation::decode(&prepare.body).expect("built by this lane")
        } else {
            self.jumps_of(&prepare.body)
        };
        let mut claims: Vec<(PartitionKey, Reservation)> = Vec::new();
        let mut before: Vec<(PartitionKey, Reservation)> = Vec::new();
        let mut level = self.level;
        for entry in &entries {
            let (key, next) = match entry {
                Entry::Batch { key, base_offset, count, .. } => {
                    (*key, Offset(base_offset.0 + u64::from(*count)))
                }
                Entry::OffsetJump { key, to } => (*key, *to),
                Entry::StoreOffset { persisted: true, .. } => {
                    level = Durability::Persisted;
                    continue;
                }
                _ => continue,
            };
            let frontier = self
                .state
                .partition(key)
                .map_or(Offset::ZERO, |partition| partition.log.next_offset());
            let standing = self.reservations.get(key);
            if let Some(claim) = self.reservations.claim(key, frontier, next, self.lease) {
                claims.push((key, claim));
                before.push((key, standing));
            }
        }
        if !claims.is_empty() {
            let (header, body) = reservation::encode(ReservationMode::Advance, &claims);
            let record = JournalRecord {
                kind: RecordKind::Reservation,
                log: prepare.header.log,
                op: prepare.header.op,
                header,
                body,
            };
            match journal.append(record, Durability::Persisted, RecordClass::Reserved) {
                Ok(sequence) => {
                    self.reservations.note_written(sequence);
                    *self.written += 1;
                }
                Err(error) => {
                    // What is not on its way to the disk is not claimed: asked again, it must be
                    // claimed again.
                    before.reverse();
                    self.reservations.merge(ReservationMode::Install, &before);
                    return Err(error);
                }
            }
        }
        Ok(Before { durable_first: self.reservations.written(), level })
    }
}
