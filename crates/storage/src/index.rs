//! The sparse index of one segment: one entry per chunk.
//!
//! An index is derived: everything in it stands in the chunk headers too. It may cover only the
//! beginning of a segment and is extended by hopping over chunk headers. When a segment is closed
//! and its index is complete, it is also written to a file beside the segment; that file is a
//! shortcut, rebuilt when absent or wrong, and never believed against the log: whoever uses an
//! entry verifies the chunk it points to. It is therefore never synced.
//!
//! ```text
//! 0       8         12     16    24     32             40     44     48         64
//! ┌───────┬─────────┬──────┬─────┬──────┬──────────────┬──────┬──────┬──────────┬─────────┬─────┐
//! │ magic │ version │ 0    │ key │ base │ segment bytes│ count│ 0    │ checksum │ entries │ pad │
//! └───────┴─────────┴──────┴─────┴──────┴──────────────┴──────┴──────┴──────────┴─────────┴─────┘
//! entry   0      8           16         24      28         32
//!         ┌──────┬───────────┬──────────┬───────┬──────────┐
//!         │ base │ max. time │ position │length │ messages │
//!         └──────┴───────────┴──────────┴───────┴──────────┘
//! ```
//!
//! The checksum is XXH3-128 over the first 48 bytes and the entries; `length` is the bytes of the
//! chunk's batches, `position` where its header starts in the segment file.

use crate::segment::chunk::{ChunkHeader, chunk_file_bytes};
use crate::segment::{SEGMENT_HEADER_BYTES, align_up, u32_at, u64_at};
use borzoi_types::checksum::xxh3_128;
use borzoi_types::limits::DISK_ALIGNMENT;
use borzoi_types::{Micros, Offset, PartitionKey};
use bytes::Bytes;

/// First eight bytes of an index file.
pub const INDEX_MAGIC: [u8; 8] = *b"BRZINDEX";

/// Version of the index format written by this build.
pub const INDEX_VERSION: u32 = 1;

const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 48;
const ENTRY_BYTES: usize = 32;
const _: () = assert!(CHECKSUM_AT + 16 == HEADER_BYTES);

/// Where one chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Offset of its first message.
    pub base: Offset,
    /// Largest server time of its batches.
    pub timestamp_max: Micros,
    /// Where its header starts in the segment file, in bytes.
    pub position: u64,
    /// Bytes of its batches.
    pub length: u32,
    /// Number of its messages, at least 1.
    pub messages: u32,
}

impl IndexEntry {
    /// The entry of the chunk with this header at `position`.
    #[must_use]
    pub fn new(header: &ChunkHeader, position: u64) -> Self {
        let entry = Self {
            base: header.base,
            timestamp_max: header.timestamp_max,
            position,
            length: header.length,
            messages: header.messages,
        };
        entry.assert_valid();
        entry
    }

    /// What holds for the entry of any chunk.
    fn assert_valid(&self) {
        assert!(self.messages > 0 && self.length > 0, "no chunk is empty");
        assert!(self.position >= SEGMENT_HEADER_BYTES, "chunks follow the header");
        assert!(self.position.is_multiple_of(DISK_ALIGNMENT as u64), "chunks are padded");
    }

    /// Offset after its last message.
    #[must_use]
    pub fn end(&self) -> Offset {
        assert!(self.messages > 0, "no chunk is empty");
        Offset(self.base.0 + u64::from(self.messages))
    }

    /// Position after its padding.
    #[must_use]
    pub fn position_end(&self) -> u64 {
        let end = self.position + chunk_file_bytes(self.length);
        assert!(end - self.position > u64::from(self.length), "a header comes with the batches");
        assert!(end.is_multiple_of(DISK_ALIGNMENT as u64), "chunks are padded");
        end
    }
}

/// The chunks of a segment from its start up to some position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentIndex {
    base: Offset,
    end: Offset,
    covered_bytes: u64,
    entries: Vec<IndexEntry>,
}

/// Why the bytes of an index file are not used. All of them lead to a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexError {
    /// Fewer bytes than the header or its count asks for.
    #[error("the index file is cut short")]
    Short,
    /// Another kind of file or another version.
    #[error("not an index file of a known version")]
    Format,
    /// The checksum does not match.
    #[error("the index file's checksum does not match")]
    Checksum,
    /// It describes another segment, or another length of this one.
    #[error("the index file describes another segment")]
    Misplaced,
    /// The entries do not follow one another.
    #[error("the entries of the index do not follow one another")]
    Order,
}

impl SegmentIndex {
    /// The index of a segment of which nothing is known yet.
    #[must_use]
    pub const fn empty_at(base: Offset) -> Self {
        Self { base, end: base, covered_bytes: SEGMENT_HEADER_BYTES, entries: Vec::new() }
    }

    /// Position up to which every chunk is known.
    #[must_use]
    pub const fn covered_bytes(&self) -> u64 {
        self.covered_bytes
    }

    /// Offset after the last known message.
    #[must_use]
    pub const fn end(&self) -> Offset {
        self.end
    }

    /// The entries in order.
    #[must_use]
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Adds the chunk that follows the last known one. Returns false, changing nothing, if `entry`
    /// is not that chunk.
    pub fn push(&mut self, entry: IndexEntry) -> bool {
        if entry.position != self.covered_bytes || entry.base != self.end {
            return false;
        }
        self.covered_bytes = entry.position_end();
        self.end = entry.end();
        self.entries.push(entry);
        self.assert_valid();
        true
    }

    /// What holds between any two calls, as far as it can be seen from the ends.
    fn assert_valid(&self) {
        assert!(self.entries.is_empty() == (self.base == self.end), "messages lie in chunks");
        assert!(self.covered_bytes >= SEGMENT_HEADER_BYTES);
        if let (Some(first), Some(last)) = (self.entries.first(), self.entries.last()) {
            first.assert_valid();
            last.assert_valid();
            assert!(first.base == self.base && first.position == SEGMENT_HEADER_BYTES);
            assert!(last.end() == self.end && last.position_end() == self.covered_bytes);
        }
    }

    /// Which entry holds `offset`, if it is covered.
    #[must_use]
    pub fn find_offset(&self, offset: Offset) -> Option<usize> {
        if offset < self.base || offset >= self.end {
            return None;
        }
        let after = self.entries.partition_point(|entry| entry.base <= offset);
        assert!(after > 0, "the first entry starts at the segment's base");
        let entry = &self.entries[after - 1];
        assert!(entry.base <= offset && offset < entry.end(), "entries have no gap");
        Some(after - 1)
    }

    /// Which covered entry is the first to hold a batch at or after `time`. Times need not rise
    /// with offsets: wall clocks step back.
    #[must_use]
    pub fn find_time(&self, time: Micros) -> Option<usize> {
        let found = self.entries.iter().position(|entry| entry.timestamp_max >= time);
        if let Some(index) = found {
            assert!(self.entries[index].timestamp_max >= time, "it may hold such a batch");
            assert!(index == 0 || self.entries[index - 1].timestamp_max < time, "the first one");
        }
        found
    }

    /// Memory that this index takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<IndexEntry>();
        assert!(entries >= size_of_val(self.entries.as_slice()));
        size_of::<Self>() + entries
    }

    /// The index file's content, padded to whole sectors.
    #[must_use]
    pub fn encode(&self, key: PartitionKey) -> Bytes {
        assert!(!self.entries.is_empty(), "a segment without chunks has no index file");
        self.assert_valid();
        let count = u32::try_from(self.entries.len()).expect("bounded by the segment's size");
        let used = HEADER_BYTES + self.entries.len() * ENTRY_BYTES;
        let padded = usize::try_from(align_up(used as u64)).expect("a few megabytes at most");
        let mut bytes = vec![0u8; padded];
        bytes[0..8].copy_from_slice(&INDEX_MAGIC);
        bytes[8..12].copy_from_slice(&INDEX_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&key.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.covered_bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&count.to_le_bytes());
        for (slot, entry) in
            bytes[HEADER_BYTES..used].chunks_exact_mut(ENTRY_BYTES).zip(&self.entries)
        {
            slot[0..8].copy_from_slice(&entry.base.0.to_le_bytes());
            slot[8..16].copy_from_slice(&entry.timestamp_max.0.to_le_bytes());
            slot[16..24].copy_from_slice(&entry.position.to_le_bytes());
            slot[24..28].copy_from_slice(&entry.length.to_le_bytes());
            slot[28..32].copy_from_slice(&entry.messages.to_le_bytes());
        }
        let checksum = file_checksum(&bytes[..used]);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        assert!(bytes.len().is_multiple_of(DISK_ALIGNMENT), "files are written in whole sectors");
        assert!(bytes.len() - used < DISK_ALIGNMENT);
        Bytes::from(bytes)
    }

    /// Reads the index file of the segment of `key` at `base` whose file is `segment_bytes` long.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn decode(
        bytes: &[u8],
        key: PartitionKey,
        base: Offset,
        segment_bytes: u64,
    ) -> Result<Self, IndexError> {
        if bytes.len() < HEADER_BYTES {
            return Err(IndexError::Short);
        }
        if bytes[0..8] != INDEX_MAGIC || u32_at(bytes, 8) != INDEX_VERSION {
            return Err(IndexError::Format);
        }
        let used = (u32_at(bytes, 40) as usize)
            .checked_mul(ENTRY_BYTES)
            .and_then(|entries| entries.checked_add(HEADER_BYTES))
            .filter(|used| *used <= bytes.len())
            .ok_or(IndexError::Short)?;
        if bytes[CHECKSUM_AT..HEADER_BYTES] != file_checksum(&bytes[..used]).to_le_bytes() {
            return Err(IndexError::Checksum);
        }
        let same = u64_at(bytes, 16) == key.0
            && u64_at(bytes, 24) == base.0
            && u64_at(bytes, 32) == segment_bytes;
        if !same {
            return Err(IndexError::Misplaced);
        }
        let mut index = Self::empty_at(base);
        index.entries.reserve_exact((used - HEADER_BYTES) / ENTRY_BYTES);
        for slot in bytes[HEADER_BYTES..used].chunks_exact(ENTRY_BYTES) {
            let entry = decode_entry(slot).ok_or(IndexError::Order)?;
            if !index.push(entry) {
                return Err(IndexError::Order);
            }
        }
        if index.covered_bytes != segment_bytes {
            return Err(IndexError::Order);
        }
        index.assert_valid();
        assert!(index.base == base && !index.entries.is_empty());
        Ok(index)
    }
}

fn decode_entry(slot: &[u8]) -> Option<IndexEntry> {
    assert!(slot.len() == ENTRY_BYTES);
    let entry = IndexEntry {
        base: Offset(u64_at(slot, 0)),
        timestamp_max: Micros(u64_at(slot, 8)),
        position: u64_at(slot, 16),
        length: u32_at(slot, 24),
        messages: u32_at(slot, 28),
    };
    let possible = entry.messages > 0
        && entry.length > 0
        && entry.base.0.checked_add(u64::from(entry.messages)).is_some()
        && entry.position >= SEGMENT_HEADER_BYTES
        && entry.position <= u64::MAX / 2
        && entry.position.is_multiple_of(DISK_ALIGNMENT as u64);
    possible.then_some(entry)
}

fn file_checksum(used: &[u8]) -> u128 {
    assert!(used.len() >= HEADER_BYTES);
    let mut covered = Vec::with_capacity(used.len() - 16);
    covered.extend_from_slice(&used[..CHECKSUM_AT]);
    covered.extend_from_slice(&used[HEADER_BYTES..]);
    assert!(covered.len() == used.len() - 16, "everything but the checksum");
    xxh3_128(&covered)
}
