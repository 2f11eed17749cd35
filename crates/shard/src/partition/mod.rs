//! One partition of a lane: its committed batches, its consumers' offsets, and what the lane's
//! primary has handed out beyond them.
//!
//! Invariants:
//! - `log`, `options` and what [`PartitionState`] holds are replicated state: changed by apply
//!   only, equal on every replica at the same operation.
//! - The generation of a group never falls: what its former owners ask for is refused.
//! - `minted >= log.next_offset()`: the primary never hands out an offset below one that exists.
//! - The overlay of a consumer is never below what its poll delivered, and is not answered by
//!   `get offset`, which tells committed values only.

use crate::lane::api::{ConsumerKey, PartitionCounters};
use crate::lane::operation::{PartitionOptions, Retention};
use borzoi_metadata::EXPIRY_NEVER;
use borzoi_storage::cache::SegmentCache;
use borzoi_storage::partition::PartitionLog;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{GroupId, Micros, Offset, Op, PartitionKey};
use std::collections::{BTreeMap, BTreeSet};

/// What automatic commits of one consumer have reached before the log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlay {
    /// Last delivered offset: `next` continues after it.
    pub offset: Offset,
    /// What an operation in flight will store, if one is.
    pub in_flight: Option<Offset>,
    /// Highest generation of the group that polls were admitted under; 0 for a plain consumer.
    pub generation: u64,
}

/// What is kept of a partition beside its batches and options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionState {
    /// Committed offsets.
    pub offsets: BTreeMap<ConsumerKey, Offset>,
    /// Highest generation seen of each consumer group.
    pub generations: BTreeMap<GroupId, u64>,
    /// The newest message; none if there never was one.
    pub last: Option<Offset>,
    /// Closed segments that end here or below are to go when all consumers have passed them.
    pub delete_through: Offset,
    /// The metadata operation of the last such wish.
    pub wish_op: Op,
}

/// One partition.
#[derive(Debug)]
pub struct Partition {
    /// Committed batches.
    pub log: PartitionLog,
    /// What it was created with.
    pub options: PartitionOptions,
    state: PartitionState,
    minted: Offset,
    overlays: BTreeMap<ConsumerKey, Overlay>,
}

impl Partition {
    /// An empty partition.
    #[must_use]
    pub fn new(key: PartitionKey, options: PartitionOptions) -> Self {
        let log = PartitionLog::new(key, options.segment_bytes);
        Self::restored(log, options, PartitionState::default())
    }

    /// A partition as a checkpoint holds it.
    #[must_use]
    pub fn restored(log: PartitionLog, options: PartitionOptions, state: PartitionState) -> Self {
        let minted = log.next_offset();
        assert!(state.last.is_none_or(|last| last < minted), "it was appended");
        Self { log, options, state, minted, overlays: BTreeMap::new() }
    }

    /// What is kept beside batches and options.
    #[must_use]
    pub const fn state(&self) -> &PartitionState {
        &self.state
    }

    /// Offset of the last committed message, also when it has been removed meanwhile; none if
    /// there never was one. Offsets that were skipped are nobody's.
    #[must_use]
    pub const fn current_offset(&self) -> Option<Offset> {
        self.state.last
    }

    /// Applies an append: everything in the log now exists.
    pub fn appended(&mut self) {
        self.state.last = self.log.next_offset().0.checked_sub(1).map(Offset);
        assert!(self.state.last.is_some(), "a batch holds a message");
    }

    /// Figures for clients.
    #[must_use]
    pub fn counters(&self) -> PartitionCounters {
        let counters = self.log.counters();
        PartitionCounters {
            messages: counters.messages,
            bytes: counters.bytes,
            segments: counters.segments,
            current_offset: self.current_offset(),
        }
    }

    /// Committed offset of a consumer.
    #[must_use]
    pub fn offset(&self, consumer: ConsumerKey) -> Option<Offset> {
        self.state.offsets.get(&consumer).copied()
    }

    /// Committed offsets of all consumers, in key order.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = (ConsumerKey, Offset)> + '_ {
        self.state.offsets.iter().map(|(consumer, offset)| (*consumer, *offset))
    }

    /// Lowest committed offset of any consumer: what retention must leave alone.
    #[must_use]
    pub fn barrier(&self) -> Option<Offset> {
        self.state.offsets.values().min().copied()
    }

    /// Consumer groups that something is kept of.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<GroupId> {
        let stored = self.state.offsets.keys().filter_map(|consumer| match consumer {
            ConsumerKey::Group(group) => Some(*group),
            ConsumerKey::Consumer(_) => None,
        });
        stored.chain(self.state.generations.keys().copied()).collect()
    }

    /// Whether anything is kept of a consumer.
    #[must_use]
    pub fn knows(&self, consumer: ConsumerKey) -> bool {
        let ConsumerKey::Group(group) = consumer else {
            return self.state.offsets.contains_key(&consumer);
        };
        self.state.generations.contains_key(&group) || self.state.offsets.contains_key(&consumer)
    }

    /// Highest generation of a group that was seen here; 0 when none was.
    #[must_use]
    pub fn generation(&self, group: GroupId) -> u64 {
        self.state.generations.get(&group).copied().unwrap_or(0)
    }

    /// Applies the generation that an operation of a consumer was admitted under. False, and the
    /// operation is refused, when a later owner has been seen.
    pub fn admit(&mut self, consumer: ConsumerKey, generation: u64) -> bool {
        let ConsumerKey::Group(group) = consumer else { return true };
        let highest = self.generation(group);
        if generation < highest {
            return false;
        }
        if generation > highest {
            self.state.generations.insert(group, generation);
        }
        assert!(self.generation(group) == generation);
        true
    }

    /// Applies the end of a group.
    pub fn forget_group(&mut self, group: GroupId) {
        self.state.offsets.remove(&ConsumerKey::Group(group));
        self.state.generations.remove(&group);
        self.overlays.remove(&ConsumerKey::Group(group));
    }

    /// Applies changed options, unless newer ones have been applied.
    pub fn set_options(&mut self, retention: Retention, by: Op) {
        if by > self.options.options_op {
            self.options.retention = retention;
            self.options.options_op = by;
        }
    }

    /// Applies a wish to have the `count` oldest closed segments away, once. Those that consumers
    /// still need stay until they have passed them.
    pub fn delete_segments(&mut self, cache: &mut SegmentCache, count: u32, by: Op) {
        if by <= self.state.wish_op {
            return;
        }
        self.state.wish_op = by;
        let closed = self.log.closed_segments();
        let count = closed.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        if let Some(newest) = count.checked_sub(1).and_then(|index| closed.get(index)) {
            self.state.delete_through = self.state.delete_through.max(newest.end);
            self.truncate(cache, self.state.delete_through);
        }
    }

    /// Applies a truncation: closed segments below `first` go, as far as all consumers have passed
    /// them. A consumer may have gone back since the truncation was prepared.
    pub fn truncate(&mut self, cache: &mut SegmentCache, first: Offset) {
        let passed =
            self.barrier().map_or(Offset::MAX, |offset| Offset(offset.0.saturating_add(1)));
        let before = self.log.next_offset();
        self.log.truncate_before(cache, first.min(passed));
        assert!(self.log.next_offset() == before, "offsets never renumber");
    }

    /// Where retention should cut at `now`: by wish, and if `by_options` by age and size. At most
    /// `segments_max` segments go by age and size at once.
    #[must_use]
    pub fn retention_cut(
        &self,
        now: Micros,
        by_options: bool,
        segments_max: u32,
    ) -> Option<Offset> {
        let barrier = self.barrier();
        let wish = self.wish_cut(barrier);
        if !by_options {
            return wish;
        }
        let Retention { message_expiry, bytes_max } = self.options.retention;
        // Before the first moment at which anything could have expired nothing has.
        let expired_before = (message_expiry != EXPIRY_NEVER)
            .then(|| now.0.checked_sub(message_expiry.0).map(Micros))
            .flatten();
        let bytes_max = (bytes_max != u64::MAX).then_some(bytes_max);
        wish.max(self.log.retention_cut(barrier, expired_before, bytes_max, segments_max))
    }

    fn wish_cut(&self, barrier: Option<Offset>) -> Option<Offset> {
        let passed = barrier.map_or(Offset::MAX, |offset| Offset(offset.0.saturating_add(1)));
        let through = self.state.delete_through.min(passed);
        let closed = self.log.closed_segments();
        let count = closed.partition_point(|segment| segment.end <= through);
        count.checked_sub(1).and_then(|index| closed.get(index)).map(|segment| segment.end)
    }

    /// When the oldest closed segment is older than its topic allows; none when it never is.
    #[must_use]
    pub fn expires(&self) -> Option<Micros> {
        let oldest = self.log.closed_segments().first()?;
        // Expired is what is older than the expiry, so one microsecond later.
        let age = self.options.retention.message_expiry.0.checked_add(1)?;
        oldest.timestamp_max.0.checked_add(age).map(Micros)
    }

    /// Whether closed segments take more room than they may.
    #[must_use]
    pub fn has_excess(&self) -> bool {
        let closed = self.log.closed_segments();
        closed.iter().map(|segment| segment.bytes).sum::<u64>() > self.options.retention.bytes_max
    }

    /// Whether the oldest closed segment was wished away.
    #[must_use]
    pub fn has_wish(&self) -> bool {
        let oldest = self.log.closed_segments().first();
        oldest.is_some_and(|oldest| oldest.end <= self.state.delete_through)
    }

    /// Whether the oldest closed segment would go at `now` if no consumer needed it.
    #[must_use]
    pub fn is_overdue(&self, now: Micros, by_options: bool) -> bool {
        let expired = || self.expires().is_some_and(|expires| expires <= now);
        self.has_wish() || by_options && (expired() || self.has_excess())
    }

    /// Where `next` continues for a consumer: after its overlay, else after its committed offset,
    /// else at the beginning.
    #[must_use]
    pub fn next_for(&self, consumer: ConsumerKey) -> Offset {
        let reached = self.overlays.get(&consumer).map(|overlay| overlay.offset);
        match reached.or_else(|| self.offset(consumer)) {
            Some(offset) if planted::is(Bug::SkipMessage) => Offset(offset.0.saturating_add(2)),
            Some(offset) => Offset(offset.0.saturating_add(1)),
            None => Offset::ZERO,
        }
    }

    /// Applies an offset store. An automatic one only moves forward.
    pub fn store_offset(&mut self, consumer: ConsumerKey, offset: Offset, auto_commit: bool) {
        let stored = self.state.offsets.entry(consumer).or_insert(offset);
        *stored = if auto_commit { (*stored).max(offset) } else { offset };
        assert!(!auto_commit || *stored >= offset);
    }

    /// Applies an offset deletion; whether there was one.
    pub fn delete_offset(&mut self, consumer: ConsumerKey) -> bool {
        self.state.offsets.remove(&consumer).is_some()
    }

    /// Next offset that the primary will hand out.
    #[must_use]
    pub const fn minted(&self) -> Offset {
        self.minted
    }

    /// Primary: hands out `count` offsets; the first of them.
    pub fn mint(&mut self, count: u32) -> Offset {
        assert!(self.minted >= self.log.next_offset(), "never below what exists");
        assert!(count > 0, "a batch holds a message");
        let base = self.minted;
        self.minted = Offset(base.0.checked_add(u64::from(count)).expect("offsets do not wrap"));
        base
    }

    /// Primary: nothing below `to` will be handed out any more.
    pub fn mint_from(&mut self, to: Offset) {
        assert!(to >= self.minted, "offsets never go back");
        self.minted = to;
    }

    /// Forgets what another primary (or this one in an earlier view) meant to do.
    pub fn reset_primary_state(&mut self) {
        self.minted = self.log.next_offset();
        self.overlays.clear();
    }

    /// Primary: a poll with automatic commit, admitted under `generation`, delivered messages up
    /// to `offset`. Whether an operation should be prepared for it (none is in flight).
    pub fn delivered(&mut self, consumer: ConsumerKey, offset: Offset, generation: u64) -> bool {
        let committed = self.offset(consumer);
        if committed.is_some_and(|committed| committed >= offset)
            && !self.overlays.contains_key(&consumer)
        {
            return false;
        }
        let fresh = Overlay { offset, in_flight: None, generation };
        let overlay = self.overlays.entry(consumer).or_insert(fresh);
        overlay.offset = overlay.offset.max(offset);
        overlay.generation = overlay.generation.max(generation);
        overlay.in_flight.is_none()
    }

    /// Primary: takes the value that the next automatic store of `consumer` should carry, and the
    /// generation.
    pub fn begin_auto_commit(&mut self, consumer: ConsumerKey) -> Option<(Offset, u64)> {
        let overlay = self.overlays.get_mut(&consumer)?;
        if overlay.in_flight.is_some() {
            return None;
        }
        overlay.in_flight = Some(overlay.offset);
        Some((overlay.offset, overlay.generation))
    }

    /// Primary: an automatic store of `consumer` has been applied. Whether another is wanted,
    /// because polls have gone on meanwhile.
    pub fn auto_committed(&mut self, consumer: ConsumerKey, offset: Offset) -> bool {
        let Some(overlay) = self.overlays.get_mut(&consumer) else {
            return false;
        };
        if overlay.in_flight != Some(offset) {
            return false;
        }
        overlay.in_flight = None;
        if overlay.offset > offset {
            return true;
        }
        self.overlays.remove(&consumer);
        false
    }

    /// Primary: a consumer has said itself where it stands (or deleted that): what polls reached
    /// before is void.
    pub fn drop_overlay(&mut self, consumer: ConsumerKey) {
        self.overlays.remove(&consumer);
    }
}
