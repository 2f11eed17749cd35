//! One partition of a lane: its committed batches, its consumers' offsets, and what the lane's
//! primary has handed out beyond them.
//!
//! Invariants:
//! - `log`, `offsets` and `options` are replicated state: changed by apply only, equal on every
//!   replica at the same operation.
//! - `minted >= log.next_offset()`: the primary never hands out an offset below one that exists.
//! - The overlay of a consumer is never below what its poll delivered, and is not answered by
//!   `get offset`, which tells committed values only.

use crate::lane::api::{ConsumerKey, PartitionCounters};
use crate::lane::operation::PartitionOptions;
use borzoi_storage::partition::PartitionLog;
use borzoi_types::{Offset, PartitionKey};
use std::collections::BTreeMap;

/// What automatic commits of one consumer have reached before the log has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlay {
    /// Last delivered offset: `next` continues after it.
    pub offset: Offset,
    /// What an operation in flight will store, if one is.
    pub in_flight: Option<Offset>,
}

/// One partition.
#[derive(Debug)]
pub struct Partition {
    /// Committed batches.
    pub log: PartitionLog,
    /// What it was created with.
    pub options: PartitionOptions,
    offsets: BTreeMap<ConsumerKey, Offset>,
    minted: Offset,
    overlays: BTreeMap<ConsumerKey, Overlay>,
}

impl Partition {
    /// An empty partition.
    #[must_use]
    pub fn new(key: PartitionKey, options: PartitionOptions) -> Self {
        let log = PartitionLog::new(key, options.segment_bytes);
        Self::restored(log, options, BTreeMap::new())
    }

    /// A partition as a checkpoint holds it.
    #[must_use]
    pub fn restored(
        log: PartitionLog,
        options: PartitionOptions,
        offsets: BTreeMap<ConsumerKey, Offset>,
    ) -> Self {
        let minted = log.next_offset();
        Self { log, options, offsets, minted, overlays: BTreeMap::new() }
    }

    /// Offset of the last committed message; none if there never was one.
    #[must_use]
    pub fn current_offset(&self) -> Option<Offset> {
        self.log.next_offset().0.checked_sub(1).map(Offset)
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
        self.offsets.get(&consumer).copied()
    }

    /// Committed offsets of all consumers, in key order.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = (ConsumerKey, Offset)> + '_ {
        self.offsets.iter().map(|(consumer, offset)| (*consumer, *offset))
    }

    /// Lowest committed offset of any consumer: what retention must leave alone.
    #[must_use]
    pub fn barrier(&self) -> Option<Offset> {
        self.offsets.values().min().copied()
    }

    /// Where `next` continues for a consumer: after its overlay, else after its committed offset,
    /// else at the beginning.
    #[must_use]
    pub fn next_for(&self, consumer: ConsumerKey) -> Offset {
        let reached = self.overlays.get(&consumer).map(|overlay| overlay.offset);
        match reached.or_else(|| self.offset(consumer)) {
            Some(offset) => Offset(offset.0.saturating_add(1)),
            None => Offset::ZERO,
        }
    }

    /// Applies an offset store. An automatic one only moves forward.
    pub fn store_offset(&mut self, consumer: ConsumerKey, offset: Offset, auto_commit: bool) {
        let stored = self.offsets.entry(consumer).or_insert(offset);
        *stored = if auto_commit { (*stored).max(offset) } else { offset };
        assert!(!auto_commit || *stored >= offset);
    }

    /// Applies an offset deletion; whether there was one.
    pub fn delete_offset(&mut self, consumer: ConsumerKey) -> bool {
        self.offsets.remove(&consumer).is_some()
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

    /// Primary: a poll with automatic commit delivered messages up to `offset`. Whether an
    /// operation should be prepared for it (none is in flight).
    pub fn delivered(&mut self, consumer: ConsumerKey, offset: Offset) -> bool {
        let committed = self.offset(consumer);
        if committed.is_some_and(|committed| committed >= offset)
            && !self.overlays.contains_key(&consumer)
        {
            return false;
        }
        let overlay = self.overlays.entry(consumer).or_insert(Overlay { offset, in_flight: None });
        overlay.offset = overlay.offset.max(offset);
        overlay.in_flight.is_none()
    }

    /// Primary: takes the value that the next automatic store of `consumer` should carry.
    pub fn begin_auto_commit(&mut self, consumer: ConsumerKey) -> Option<Offset> {
        let overlay = self.overlays.get_mut(&consumer)?;
        if overlay.in_flight.is_some() {
            return None;
        }
        overlay.in_flight = Some(overlay.offset);
        overlay.in_flight
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
