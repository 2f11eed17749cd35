//! What a shard remembers of segments so that readers need not go to the disk: recent chunks and
//! indexes, each under a budget in bytes.
//!
//! A chunk enters when its write has completed (tailing consumers read what was just flushed) or
//! when it was read in and verified; one of the two is evicted first that was used longest ago.
//! The order of eviction follows from the order of the calls alone, so a simulated run repeats.
//! Nothing in the cache is needed for correctness: it may be emptied at any moment.

use crate::index::{IndexEntry, SegmentIndex};
use crate::segment::chunk::Chunk;
use borzoi_types::{Offset, PartitionKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that an entry of either map costs beside its content.
const ENTRY_OVERHEAD_BYTES: usize = 192;

/// Budgets of one shard's [`SegmentCache`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheOptions {
    /// Bytes of batches to keep.
    pub chunk_bytes_max: usize,
    /// Bytes of indexes to keep.
    pub index_bytes_max: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            chunk_bytes_max: borzoi_types::limits::SEGMENT_CACHE_BYTES_DEFAULT,
            index_bytes_max: borzoi_types::limits::SEGMENT_INDEX_CACHE_BYTES_DEFAULT,
        }
    }
}

/// Figures of a cache since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Reads that found their chunk.
    pub chunk_hits: u64,
    /// Reads that did not.
    pub chunk_misses: u64,
    /// Chunks and indexes thrown out to make room.
    pub evictions: u64,
}

/// One shard's memory of segments, shared by all its partitions.
#[derive(Debug)]
pub struct SegmentCache {
    chunks: Recent<Arc<Chunk>>,
    indexes: Recent<SegmentIndex>,
    counters: CacheCounters,
}

impl SegmentCache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: CacheOptions) -> Self {
        Self {
            chunks: Recent::new(options.chunk_bytes_max),
            indexes: Recent::new(options.index_bytes_max),
            counters: CacheCounters::default(),
        }
    }

    /// Figures since the start.
    #[must_use]
    pub const fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Bytes of chunks and of indexes held now, overhead included.
    #[must_use]
    pub const fn bytes(&self) -> (usize, usize) {
        (self.chunks.bytes, self.indexes.bytes)
    }

    /// The chunk of `key` that holds `offset`.
    pub(crate) fn chunk(&mut self, key: PartitionKey, offset: Offset) -> Option<Arc<Chunk>> {
        let found = self.chunks.floor(key, offset).filter(|chunk| offset < chunk.end);
        match &found {
            Some(chunk) => {
                assert!(chunk.base <= offset);
                self.counters.chunk_hits += 1;
            }
            None => self.counters.chunk_misses += 1,
        }
        found
    }

    /// Remembers a chunk whose bytes are in its file.
    pub(crate) fn insert_chunk(&mut self, key: PartitionKey, chunk: Arc<Chunk>) {
        chunk.assert_valid();
        let cost = chunk.length as usize + ENTRY_OVERHEAD_BYTES;
        self.counters.evictions += self.chunks.insert(key, chunk.base, chunk, cost);
        assert!(!self.chunks.entries.is_empty(), "the newest entry stays");
    }

    /// The index of the segment of `key` at `base`, as far as it is known.
    pub(crate) fn index(&mut self, key: PartitionKey, base: Offset) -> Option<&SegmentIndex> {
        let index = self.indexes.exact(key, base);
        assert!(index.is_none_or(|index| index.end() >= base), "of this segment");
        index
    }

    /// Takes the index of a segment out, to be extended and put back.
    pub(crate) fn take_index(&mut self, key: PartitionKey, base: Offset) -> Option<SegmentIndex> {
        let index = self.indexes.remove(key, base);
        assert!(self.indexes.exact(key, base).is_none());
        index
    }

    /// Remembers an index.
    pub(crate) fn insert_index(&mut self, key: PartitionKey, base: Offset, index: SegmentIndex) {
        assert!(index.entries().first().is_none_or(|entry| entry.base == base));
        let cost = index.memory_bytes() + ENTRY_OVERHEAD_BYTES;
        self.counters.evictions += self.indexes.insert(key, base, index, cost);
        assert!(!self.indexes.entries.is_empty(), "the newest entry stays");
    }

    /// Notes a chunk that was just written; it extends the index if that reaches exactly so far.
    pub(crate) fn note_written(&mut self, key: PartitionKey, segment: Offset, entry: IndexEntry) {
        let mut index = match self.indexes.remove(key, segment) {
            Some(index) => index,
            None => SegmentIndex::empty_at(segment),
        };
        assert!(segment <= entry.base, "a chunk lies in its segment");
        let known = index.end();
        assert!(known >= segment, "an index begins with its segment");
        let extended = index.push(entry);
        assert!(!extended || index.end() > known);
        assert!(extended || index.end() == known, "what does not fit changes nothing");
        if !index.entries().is_empty() {
            self.insert_index(key, segment, index);
        }
    }

    /// Forgets the index of one segment.
    pub(crate) fn remove_index(&mut self, key: PartitionKey, segment: Offset) {
        self.indexes.remove(key, segment);
        assert!(self.indexes.exact(key, segment).is_none());
    }

    /// Forgets everything of `key` below `end`.
    pub(crate) fn remove_below(&mut self, key: PartitionKey, end: Offset) {
        self.chunks.remove_below(key, end);
        self.indexes.remove_below(key, end);
        assert!(self.chunks.is_empty_below(key, end) && self.indexes.is_empty_below(key, end));
    }
}

/// A map that throws out what was used longest ago when it grows past its budget; the newest entry
/// always stays.
#[derive(Debug)]
struct Recent<V> {
    bytes_max: usize,
    bytes: usize,
    uses: u64,
    entries: BTreeMap<(PartitionKey, Offset), Slot<V>>,
    by_use: BTreeMap<u64, (PartitionKey, Offset)>,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    cost: usize,
    used: u64,
}

impl<V> Recent<V> {
    const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    fn next_use(&mut self) -> u64 {
        assert!(self.uses < u64::MAX, "2^64 reads take centuries");
        self.uses += 1;
        assert!(self.by_use.last_key_value().is_none_or(|(last, _)| *last < self.uses));
        self.uses
    }

    /// Inserts or replaces; returns how many others were thrown out.
    fn insert(&mut self, key: PartitionKey, base: Offset, value: V, cost: usize) -> u64 {
        self.remove(key, base);
        assert!(cost > 0, "everything costs something");
        let used = self.next_use();
        self.entries.insert((key, base), Slot { value, cost, used });
        self.by_use.insert(used, (key, base));
        self.bytes += cost;
        let mut evicted = 0;
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            let (_, (key, base)) = self.by_use.pop_first().expect("one per entry");
            let slot = self.entries.remove(&(key, base)).expect("both maps name the same");
            assert!(slot.used < used, "the newest one stays");
            self.bytes -= slot.cost;
            evicted += 1;
        }
        assert!(
            self.by_use.last_key_value().is_some_and(|(last, _)| *last == used),
            "it is newest"
        );
        self.assert_valid();
        evicted
    }

    fn touch(&mut self, at: (PartitionKey, Offset)) {
        let used = self.next_use();
        let slot = self.entries.get_mut(&at).expect("the caller found it");
        let removed = self.by_use.remove(&slot.used);
        assert!(removed == Some(at), "both maps name the same");
        assert!(slot.used < used, "uses are counted up");
        slot.used = used;
        let before = self.by_use.insert(used, at);
        assert!(before.is_none(), "uses are counted up");
    }

    fn exact(&mut self, key: PartitionKey, base: Offset) -> Option<&V> {
        if !self.entries.contains_key(&(key, base)) {
            return None;
        }
        self.touch((key, base));
        self.entries.get(&(key, base)).map(|slot| &slot.value)
    }

    fn remove(&mut self, key: PartitionKey, base: Offset) -> Option<V> {
        let slot = self.entries.remove(&(key, base))?;
        let named = self.by_use.remove(&slot.used);
        assert!(named == Some((key, base)), "both maps name the same");
        assert!(self.bytes >= slot.cost, "the sum of the costs");
        self.bytes -= slot.cost;
        assert!(!self.entries.contains_key(&(key, base)), "it is gone");
        Some(slot.value)
    }

    fn remove_below(&mut self, key: PartitionKey, end: Offset) {
        while let Some(base) =
            self.entries.range((key, Offset::ZERO)..(key, end)).next().map(|(at, _)| at.1)
        {
            self.remove(key, base);
        }
        self.assert_valid();
    }

    fn is_empty_below(&self, key: PartitionKey, end: Offset) -> bool {
        self.entries.range((key, Offset::ZERO)..(key, end)).next().is_none()
    }

    fn assert_valid(&self) {
        assert!(self.entries.len() == self.by_use.len(), "one use per entry");
        assert!(self.bytes <= self.bytes_max || self.entries.len() <= 1, "within the budget");
        assert!(self.entries.is_empty() == (self.bytes == 0), "the sum of the costs");
    }
}

impl<V: Clone> Recent<V> {
    /// The entry of `key` with the largest base at or below `offset`.
    fn floor(&mut self, key: PartitionKey, offset: Offset) -> Option<V> {
        let at = *self.entries.range((key, Offset::ZERO)..=(key, offset)).next_back()?.0;
        assert!(at.0 == key && at.1 <= offset);
        self.touch(at);
        self.entries.get(&at).map(|slot| slot.value.clone())
    }
}
