//! Which partitions have segments that may go, on the lane's primary (behaviour, section 16).
//!
//! Deciding is the primary's: from committed state it plans a truncation, which is logged and
//! applied like everything else. Nobody looks at partitions that have nothing to remove: a closed
//! segment puts its partition into an order by the time at which it expires, and what takes too
//! much room or is wished away stands in a set of its own. What only waits for a consumer is looked
//! at again when an offset moves.
//!
//! Invariants: volatile, rebuilt when a replica begins to lead; a partition that is looked at is
//! either planned for, held by a consumer, or has nothing to remove; at most one truncation of a
//! partition is under way.

use super::Lane;
use super::operation::Entry;
use crate::back::shared::Shared;
use crate::partition::Partition;
use borzoi_types::limits::RETENTION_SEGMENTS_PER_PASS_MAX;
use borzoi_types::{Micros, Now, PartitionKey};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct RetentionIndex {
    /// When the oldest closed segment of a partition expires.
    due: BTreeSet<(Micros, PartitionKey)>,
    due_of: BTreeMap<PartitionKey, Micros>,
    /// Takes too much room.
    excess: BTreeSet<PartitionKey>,
    /// Has something to remove that a consumer has not passed.
    held: BTreeSet<PartitionKey>,
    /// An offset of one that was held has moved, or segments were wished away.
    soon: BTreeSet<PartitionKey>,
    /// A truncation is planned or in flight.
    planned: BTreeSet<PartitionKey>,
}

impl RetentionIndex {
    /// The closed segments or the options of a partition have changed.
    pub fn note(&mut self, key: PartitionKey, partition: &Partition) {
        self.planned.remove(&key);
        self.set_due(key, partition.expires());
        if partition.has_excess() {
            self.excess.insert(key);
        } else {
            self.excess.remove(&key);
        }
        if partition.has_wish() {
            self.soon.insert(key);
        }
    }

    fn set_due(&mut self, key: PartitionKey, due: Option<Micros>) {
        let before = match due {
            Some(due) => self.due_of.insert(key, due),
            None => self.due_of.remove(&key),
        };
        if let Some(before) = before {
            self.due.remove(&(before, key));
        }
        if let Some(due) = due {
            self.due.insert((due, key));
        }
        assert_eq!(self.due.len(), self.due_of.len(), "one time per partition");
    }

    /// An offset of a partition has moved or is gone.
    pub fn offset_moved(&mut self, key: PartitionKey) {
        if self.held.remove(&key) {
            self.soon.insert(key);
        }
    }

    /// A partition is gone.
    pub fn forget(&mut self, key: PartitionKey) {
        self.set_due(key, None);
        for set in [&mut self.excess, &mut self.held, &mut self.soon, &mut self.planned] {
            set.remove(&key);
        }
    }

    /// Whether a consumer has passed, or may have, what was held for it.
    #[must_use]
    pub fn waits_little(&self) -> bool {
        !self.soon.is_empty()
    }

    /// Whether anything may have to be removed at `now` or later.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.due.is_empty() || !self.excess.is_empty()
    }

    /// The partitions to look at now, in key order.
    fn take(&mut self, now: Micros) -> BTreeSet<PartitionKey> {
        let mut taken = core::mem::take(&mut self.soon);
        taken.append(&mut self.excess);
        while let Some((due, key)) = self.due.first().copied()
            && due <= now
        {
            self.set_due(key, None);
            taken.insert(key);
        }
        taken
    }
}

impl Lane {
    /// What of this lane may have segments to remove.
    #[must_use]
    pub const fn retention(&self) -> &RetentionIndex {
        &self.retention
    }

    /// Looks at every partition once: this replica begins to lead.
    pub(super) fn rebuild_retention(&mut self) {
        self.retention = RetentionIndex::default();
        for (key, partition) in self.state.partitions() {
            self.retention.note(key, partition);
        }
    }

    /// The closed segments or the options of a partition have changed.
    pub(super) fn note_retention(&mut self, key: PartitionKey) {
        if let Some(partition) = self.state.partition(key) {
            self.retention.note(key, partition);
        }
    }

    /// Plans what is to be removed now: by wish, and if `by_options` by age and size.
    pub fn retain(&mut self, now: Now, by_options: bool, shared: &mut Shared) {
        if !self.serving {
            return;
        }
        let mut removed = 0u64;
        for key in self.retention.take(now.wall) {
            let closing = self.closing.contains_key(&key);
            let Some(partition) = self.state.partition(key).filter(|_| !closing) else { continue };
            if self.retention.planned.contains(&key) {
                // Looked at again when it has been applied.
                continue;
            }
            let segments = RETENTION_SEGMENTS_PER_PASS_MAX;
            if let Some(first) = partition.retention_cut(now.wall, by_options, segments) {
                self.retention.planned.insert(key);
                self.planned.push_back(Entry::Truncate { key, first });
                removed += 1;
            } else if partition.is_overdue(now.wall, by_options) {
                self.retention.held.insert(key);
            }
        }
        if removed > 0 {
            self.counters.truncations += removed;
            shared.work.insert(self.log);
        }
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
