//! Partitions by key, in constant time.
//!
//! Keys rise and are never reused, so a key is a place in a row of pages; pages without a live
//! partition are given back. Only the row itself (8 bytes per 64 keys) remains between the oldest
//! and the newest live key.

use crate::codec::codec_struct;
use crate::identity::PartitionPlace;
use borzoi_types::{LogId, Micros, Op, PartitionKey};
use std::collections::VecDeque;

const PAGE_KEYS: u64 = 64;

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

#[derive(Clone, Debug)]
struct Page {
    slots: [Option<PartitionRecord>; PAGE_KEYS as usize],
    live: u32,
}

/// All live partitions by key.
#[derive(Clone, Debug, Default)]
pub struct PartitionTable {
    /// Page number of the first page in the row.
    first: u64,
    pages: VecDeque<Option<Box<Page>>>,
    len: usize,
}

impl PartitionTable {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The partition with this key.
    pub fn get(&self, key: PartitionKey) -> Option<&PartitionRecord> {
        let (page, slot) = self.position(key)?;
        self.pages.get(page)?.as_ref()?.slots.get(slot)?.as_ref()
    }

    /// Adds a partition. Its key is new and not below the first live one, as keys rise.
    pub fn insert(&mut self, record: PartitionRecord) {
        if self.pages.is_empty() {
            self.first = record.key.0 / PAGE_KEYS;
        }
        let (page, slot) = self.position(record.key).expect("keys rise");
        while self.pages.len() <= page {
            self.pages.push_back(None);
        }
        let place = self.pages.get_mut(page).expect("pushed above");
        let page = place
            .get_or_insert_with(|| Box::new(Page { slots: [None; PAGE_KEYS as usize], live: 0 }));
        let slot = page.slots.get_mut(slot).expect("below PAGE_KEYS by the modulo");
        assert!(slot.is_none(), "a partition key is minted once");
        *slot = Some(record);
        page.live += 1;
        self.len += 1;
    }

    /// Removes a partition.
    pub fn remove(&mut self, key: PartitionKey) -> Option<PartitionRecord> {
        let (page, slot) = self.position(key)?;
        let place = self.pages.get_mut(page)?;
        let removed = {
            let page = place.as_mut()?;
            let removed = page.slots.get_mut(slot)?.take()?;
            page.live -= 1;
            removed
        };
        if place.as_ref().is_some_and(|page| page.live == 0) {
            *place = None;
        }
        self.len -= 1;
        while matches!(self.pages.front(), Some(None)) {
            self.pages.pop_front();
            self.first += 1;
        }
        assert!(self.len > 0 || self.pages.is_empty(), "an empty table holds no page");
        Some(removed)
    }

    /// All partitions in key order.
    pub fn iter(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.pages.iter().flatten().flat_map(|page| page.slots.iter().flatten())
    }

    fn position(&self, key: PartitionKey) -> Option<(usize, usize)> {
        let page = (key.0 / PAGE_KEYS).checked_sub(self.first)?;
        let slot = usize::try_from(key.0 % PAGE_KEYS).ok()?;
        Some((usize::try_from(page).ok()?, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use borzoi_types::{PartitionId, StreamId, TopicId};

    fn record(key: u64) -> PartitionRecord {
        PartitionRecord {
            key: PartitionKey(key),
            place: PartitionPlace {
                stream: StreamId(0),
                topic: TopicId(0),
                partition: PartitionId(0),
            },
            lane: LogId(1),
            created: Micros(0),
            created_by: Op(1),
            replaces: None,
        }
    }

    #[test]
    fn pages_without_live_partitions_are_given_back() {
        let mut table = PartitionTable::default();
        for key in 1..=1_000 {
            table.insert(record(key));
        }
        for key in 1..=990 {
            assert!(table.remove(PartitionKey(key)).is_some());
            assert!(table.remove(PartitionKey(key)).is_none());
        }
        assert_eq!((table.len(), table.pages.len()), (10, 1));
        assert!(table.get(PartitionKey(5)).is_none());
        assert_eq!(table.get(PartitionKey(991)).map(|r| r.key.0), Some(991));
        assert!(table.get(PartitionKey(u64::MAX)).is_none());
        let keys: Vec<u64> = table.iter().map(|r| r.key.0).collect();
        assert_eq!(keys, (991..=1_000).collect::<Vec<_>>());
        for key in 991..=1_000 {
            table.remove(PartitionKey(key));
        }
        table.insert(record(5_000));
        assert_eq!((table.len(), table.pages.len()), (1, 1));
    }
}
