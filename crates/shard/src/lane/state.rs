//! The replicated state of one lane: every partition assigned to it, and the exactly-once windows.
//!
//! [`LaneState::apply`] is a function of the state and the log alone: no clock, no metadata, no
//! local disk. Replicas that have applied the same operations hold the same state.
//!
//! Invariants:
//! - An entry that names a key the lane does not have changes nothing and says so: the primary
//!   validates before it prepares, and apply stays total.
//! - Keys are created in rising order; `highest_created` never falls; a create at or below it is a
//!   no-op, so a key that was deleted can never come back.

use crate::lane::api::ConsumerKey;
use crate::lane::operation::Entry;
use crate::lane::window::SendWindows;
use crate::partition::Partition;
use borzoi_storage::cache::SegmentCache;
use borzoi_storage::partition::{Appended, PartitionLog};
use borzoi_types::limits::BODY_BY_REFERENCE_BYTES_MIN;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Micros, Offset, Op, PartitionKey};
use borzoi_wire::batch::BatchHeader;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What became of one entry of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Applied.
    Done,
    /// Applied, and something is kept of a consumer that nothing was kept of.
    NewConsumer,
    /// A batch was appended.
    Sent {
        /// Offset of its first message.
        base_offset: Offset,
        /// It closed a chunk: there is something to write to its segment.
        chunk_closed: bool,
        /// It closed a segment: retention may have something to remove.
        segment_closed: bool,
    },
    /// The partition is gone; nothing changed.
    KeyDeleted,
    /// There was no offset to delete.
    OffsetNotFound,
    /// The group has given the partition to another member meanwhile; nothing changed.
    Fenced,
}

/// See the module.
#[derive(Debug, Default)]
pub struct LaneState {
    partitions: BTreeMap<PartitionKey, Partition>,
    windows: SendWindows,
    highest_created: PartitionKey,
    deleted_by: Op,
    applied: Op,
}

/// A lane's state as its checkpoint holds it.
#[derive(Debug)]
pub struct RestoredLane {
    /// The partitions.
    pub partitions: BTreeMap<PartitionKey, Partition>,
    /// The exactly-once windows.
    pub windows: SendWindows,
    /// The highest key ever created.
    pub highest_created: PartitionKey,
    /// The highest metadata operation that deleted a key.
    pub deleted_by: Op,
    /// The last operation applied.
    pub applied: Op,
}

impl LaneState {
    /// The state that a checkpoint holds.
    #[must_use]
    pub fn restored(restored: RestoredLane) -> Self {
        let highest = restored.partitions.last_key_value().map_or(PartitionKey::ZERO, |(k, _)| *k);
        assert!(highest <= restored.highest_created, "checked by the decoder");
        Self {
            partitions: restored.partitions,
            windows: restored.windows,
            highest_created: restored.highest_created,
            deleted_by: restored.deleted_by,
            applied: restored.applied,
        }
    }

    /// The last operation applied.
    #[must_use]
    pub const fn applied(&self) -> Op {
        self.applied
    }

    /// The highest key ever created here.
    #[must_use]
    pub const fn highest_created(&self) -> PartitionKey {
        self.highest_created
    }

    /// A metadata operation at or after every one that deleted a key of this lane.
    #[must_use]
    pub const fn deleted_by(&self) -> Op {
        self.deleted_by
    }

    /// The exactly-once windows.
    #[must_use]
    pub const fn windows(&self) -> &SendWindows {
        &self.windows
    }

    /// A partition.
    #[must_use]
    pub fn partition(&self, key: PartitionKey) -> Option<&Partition> {
        self.partitions.get(&key)
    }

    /// A partition, for the primary's own marks, flushing and checkpoints.
    pub fn partition_mut(&mut self, key: PartitionKey) -> Option<&mut Partition> {
        self.partitions.get_mut(&key)
    }

    /// All partitions in key order.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = (PartitionKey, &Partition)> {
        self.partitions.iter().map(|(key, partition)| (*key, partition))
    }

    /// All partitions in key order, for flushing and checkpoints.
    pub fn partitions_mut(&mut self) -> impl Iterator<Item = (PartitionKey, &mut Partition)> {
        self.partitions.iter_mut().map(|(key, partition)| (*key, partition))
    }

    /// Counts an operation that changes nothing here (consensus's own).
    pub fn apply_nothing(&mut self, op: Op) {
        assert_eq!(op, self.applied.next(), "every operation once, in order");
        self.applied = op;
    }

    /// Applies one operation. The outcomes stand in the order of `entries`. Logs of partitions that
    /// went away are moved to `removed`, to be kept until their files are gone.
    pub fn apply(
        &mut self,
        op: Op,
        entries: &[Entry],
        cache: &mut SegmentCache,
        removed: &mut Vec<PartitionLog>,
    ) -> Vec<Outcome> {
        assert_eq!(op, self.applied.next(), "every operation once, in order");
        self.applied = op;
        entries.iter().map(|entry| self.apply_entry(op, entry, cache, removed)).collect()
    }

    fn apply_entry(
        &mut self,
        op: Op,
        entry: &Entry,
        cache: &mut SegmentCache,
        removed: &mut Vec<PartitionLog>,
    ) -> Outcome {
        if let Entry::Create { key, options, .. } = entry {
            if *key > self.highest_created {
                self.highest_created = *key;
                let before = self.partitions.insert(*key, Partition::new(*key, *options));
                assert!(before.is_none(), "keys are never reused");
            }
            return Outcome::Done;
        }
        if let Entry::SessionExpired { session } = entry {
            self.windows.expire(*session);
            return Outcome::Done;
        }
        let key = entry.key();
        let Some(partition) = self.partitions.get_mut(&key) else {
            return Outcome::KeyDeleted;
        };
        match entry {
            Entry::Create { .. } | Entry::SessionExpired { .. } => Outcome::Done,
            Entry::Batch { base_offset, count, identity, batch, .. } => {
                let timestamp = time_of(batch);
                let appended = partition.log.append(owned(batch), *base_offset, *count, timestamp);
                partition.appended();
                if let Some(identity) = identity {
                    self.windows.record(identity, key, *base_offset, op);
                }
                let Appended { chunk_closed, segment_closed } = appended;
                Outcome::Sent { base_offset: *base_offset, chunk_closed, segment_closed }
            }
            Entry::Truncate { .. } | Entry::Options { .. } | Entry::DeleteSegments { .. } => {
                apply_retention(partition, entry, cache);
                Outcome::Done
            }
            Entry::StoreOffset { .. }
            | Entry::DeleteOffset { .. }
            | Entry::Generation { .. }
            | Entry::GroupDeleted { .. } => apply_consumer(partition, entry),
            Entry::OffsetJump { to, .. } => {
                if *to > partition.log.next_offset() {
                    partition.log.jump_to(*to);
                }
                Outcome::Done
            }
            Entry::Delete { by, .. } => {
                self.remove(key, *by, cache, removed);
                Outcome::Done
            }
            Entry::Purge { .. } if planted::is(Bug::KeepPurged) => Outcome::Done,
            Entry::Purge { new_key, by, .. } => {
                let options = partition.options;
                self.remove(key, *by, cache, removed);
                if !planted::is(Bug::PurgeForgetsSends) {
                    self.windows.purged(key, *new_key);
                }
                if *new_key > self.highest_created {
                    self.highest_created = *new_key;
                    self.partitions.insert(*new_key, Partition::new(*new_key, options));
                }
                Outcome::Done
            }
        }
    }

    fn remove(
        &mut self,
        key: PartitionKey,
        by: Op,
        cache: &mut SegmentCache,
        removed: &mut Vec<PartitionLog>,
    ) {
        let mut partition = self.partitions.remove(&key).expect("the caller has found it");
        self.deleted_by = self.deleted_by.max(by);
        partition.log.retire_all(cache);
        removed.push(partition.log);
    }
}

/// Entries about which segments stay.
fn apply_retention(partition: &mut Partition, entry: &Entry, cache: &mut SegmentCache) {
    match entry {
        Entry::Truncate { first, .. } => partition.truncate(cache, *first),
        Entry::Options { retention, by, .. } => partition.set_options(*retention, *by),
        Entry::DeleteSegments { count, by, .. } => partition.delete_segments(cache, *count, *by),
        other => unreachable!("not about segments: {other:?}"),
    }
}

/// Entries about a consumer of a partition.
fn apply_consumer(partition: &mut Partition, entry: &Entry) -> Outcome {
    match entry {
        Entry::StoreOffset { consumer, offset, auto_commit, generation, .. } => {
            let known = partition.knows(*consumer);
            if !partition.admit(*consumer, *generation) {
                return Outcome::Fenced;
            }
            partition.store_offset(*consumer, *offset, *auto_commit);
            if known { Outcome::Done } else { Outcome::NewConsumer }
        }
        Entry::DeleteOffset { consumer, generation, .. } => {
            if !partition.admit(*consumer, *generation) {
                Outcome::Fenced
            } else if planted::is(Bug::KeepOffset) || partition.delete_offset(*consumer) {
                Outcome::Done
            } else {
                Outcome::OffsetNotFound
            }
        }
        Entry::Generation { group, generation, .. } => {
            let consumer = ConsumerKey::Group(*group);
            let known = partition.knows(consumer);
            if !partition.admit(consumer, *generation) {
                Outcome::Fenced
            } else if known {
                Outcome::Done
            } else {
                Outcome::NewConsumer
            }
        }
        Entry::GroupDeleted { group, .. } => {
            partition.forget_group(*group);
            Outcome::Done
        }
        other => unreachable!("not about a consumer: {other:?}"),
    }
}

/// The time of appending that was stamped on a batch; its frames may be encrypted.
fn time_of(batch: &[u8]) -> Micros {
    let stored = BatchHeader::decode_stored(batch);
    stored.expect("stamped when it was prepared").0.base_timestamp
}

/// A small batch is copied out of the operation it was packed into, so that one slow partition does
/// not keep the bytes of its neighbours in memory; a large one is its own buffer.
fn owned(batch: &Bytes) -> Bytes {
    if batch.len() < BODY_BY_REFERENCE_BYTES_MIN {
        Bytes::copy_from_slice(batch)
    } else {
        batch.clone()
    }
}
