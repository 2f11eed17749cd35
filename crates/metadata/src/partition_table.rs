//! Partitions by key, in constant time whatever keys are in use (required behaviour B11).
//!
//! An open-addressing table, because the maps of the standard library are either logarithmic or
//! ordered by chance. Its layout follows from the history of the keys alone; nothing iterates over
//! it except in key order. Memory follows the number of live partitions, not the highest key.

use crate::codec::codec_struct;
use crate::identity::PartitionPlace;
use borzoi_types::{LogId, Micros, Op, PartitionKey};

/// Slots of a table that holds anything; a power of two.
const SLOTS_MIN: usize = 16;

/// One live partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    /// Its never-reused identity.
    pub key: PartitionKey,
    /// Where clients see it.
    pub place: PartitionPlace,
    /// The lane it was assigned to when its topic gained it; kept by a purge.
    pub lane: LogId,
    /// When the partition was created; kept by a purge.
    pub created: Micros,
    /// The operation that minted this key.
    pub created_by: Op,
    /// The key that this one replaced, when it comes from a purge.
    pub replaces: Option<PartitionKey>,
}

codec_struct!(PartitionRecord { key, place, lane, created, created_by, replaces });

/// All live partitions by key.
///
/// Invariants: at most half of the slots are taken; between the slot that a key hashes to and the
/// slot it is in, no slot is free.
#[derive(Clone, Debug, Default)]
pub struct PartitionTable {
    slots: Vec<Option<PartitionRecord>>,
    len: usize,
}

impl PartitionTable {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The partition with this key.
    pub fn get(&self, key: PartitionKey) -> Option<&PartitionRecord> {
        self.slots.get(self.find(key)?)?.as_ref()
    }

    /// Adds a partition under a new key.
    pub fn insert(&mut self, record: PartitionRecord) {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let mut slot = self.home(record.key);
        while let Some(taken) = self.slots.get(slot).expect("slots wrap at the end") {
            assert_ne!(taken.key, record.key, "a partition key is minted once");
            slot = self.after(slot);
        }
        *self.slots.get_mut(slot).expect("found above") = Some(record);
        self.len += 1;
    }

    /// Removes a partition.
    pub fn remove(&mut self, key: PartitionKey) -> Option<PartitionRecord> {
        let mut free = self.find(key)?;
        let removed = self.slots.get_mut(free)?.take()?;
        self.len -= 1;
        // Close the gap: move up whoever would not be found across it.
        let mut slot = self.after(free);
        while let Some(record) = self.slots.get(slot).copied().flatten() {
            let home = self.home(record.key);
            if self.distance(home, slot) >= self.distance(free, slot) {
                self.slots.swap(free, slot);
                free = slot;
            }
            slot = self.after(slot);
        }
        assert_eq!(removed.key, key, "what was found is what was asked for");
        Some(removed)
    }

    /// All partitions in key order.
    pub fn sorted(&self) -> Vec<&PartitionRecord> {
        let mut all: Vec<&PartitionRecord> = self.slots.iter().flatten().collect();
        all.sort_unstable_by_key(|record| record.key);
        assert_eq!(all.len(), self.len, "every partition is in one slot");
        all
    }

    /// The slot that holds `key`.
    fn find(&self, key: PartitionKey) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut slot = self.home(key);
        while let Some(record) = self.slots.get(slot)? {
            if record.key == key {
                return Some(slot);
            }
            slot = self.after(slot);
        }
        None
    }

    /// The slot where a key is looked for first: the top bits of a multiplicative hash.
    fn home(&self, key: PartitionKey) -> usize {
        let bits = self.slots.len().trailing_zeros();
        let hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(hash >> (u64::BITS - bits)).expect("below the number of slots")
    }

    const fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Steps from one slot forward to another.
    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        assert!(slots.is_power_of_two(), "slots wrap by masking");
        let old = core::mem::replace(&mut self.slots, vec![None; slots]);
        self.len = 0;
        for record in old.into_iter().flatten() {
            self.insert(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use borzoi_types::{PartitionId, StreamId, TopicId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(key: u64) -> PartitionRecord {
        let (stream, topic, partition) = (StreamId(0), TopicId(0), PartitionId(0));
        PartitionRecord {
            key: PartitionKey(key),
            place: PartitionPlace { stream, topic, partition },
            lane: LogId(1),
            created: Micros(0),
            created_by: Op(1),
            replaces: None,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_an_ordered_map(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u32..4), 0..400),
        ) {
            let mut table = PartitionTable::default();
            let mut model = BTreeMap::new();
            for (add, low, shift) in steps {
                // Keys near and far apart, so that they collide.
                let key = low << (shift * 16);
                if add && !model.contains_key(&key) {
                    table.insert(record(key));
                    model.insert(key, ());
                } else {
                    let removed = table.remove(PartitionKey(key)).is_some();
                    prop_assert_eq!(removed, model.remove(&key).is_some());
                }
                prop_assert_eq!(table.len(), model.len());
                for probe in 0..60u64 {
                    let found = table.get(PartitionKey(probe)).is_some();
                    prop_assert_eq!(found, model.contains_key(&probe));
                }
                let keys: Vec<u64> = table.sorted().iter().map(|record| record.key.0).collect();
                prop_assert_eq!(keys, model.keys().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn memory_follows_the_live_partitions_not_the_highest_key() {
        let mut table = PartitionTable::default();
        table.insert(record(1));
        for key in 1..=100_000u64 {
            table.insert(record(key << 40));
            table.remove(PartitionKey(key << 40));
        }
        assert_eq!((table.len(), table.slots.len()), (1, SLOTS_MIN));
        assert!(table.get(PartitionKey(1)).is_some());
        assert!(table.get(PartitionKey(u64::MAX)).is_none());
    }
}
