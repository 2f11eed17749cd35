//! Chunks: runs of whole batches, the unit in which a segment is written, verified and indexed.
//!
//! ```text
//! 0       8      16      24           32          40       44        48        56       64
//! ┌───────┬──────┬───────┬────────────┬───────────┬────────┬─────────┬─────────┬────────┐
//! │ magic │ key  │ base  │ first time │ max. time │messages│ length  │ content │ header │
//! ├───────┴─┬────┴┬──────┴────────────┴───────────┴────────┴─────────┴─────────┴────────┘
//! │ batches │ pad │
//! └─────────┴─────┘
//! ```
//!
//! `content` is XXH3-64 over the batches, `header` XXH3-64 over the 56 bytes before it, `length`
//! the bytes of the batches. The padding is zero up to the next multiple of 4096 and is covered by
//! nothing: it is never read. A header can be verified alone, so an index is rebuilt by hopping
//! from header to header.

use super::batch::{self, BatchError};
use super::{align_up, u32_at, u64_at};
use borzoi_types::checksum::{xxh3_64, xxh3_64_body};
use borzoi_types::limits::{DISK_ALIGNMENT, SEGMENT_CHUNK_BYTES_MIN, SEGMENT_CHUNK_BYTES_SPREAD};
use borzoi_types::{Body, Micros, Offset, PartitionKey};
use borzoi_wire::batch::BATCH_HEADER_BYTES;
use bytes::Bytes;

/// Length of a chunk's header in bytes.
pub const CHUNK_HEADER_BYTES: usize = 64;

/// First eight bytes of a chunk.
pub const CHUNK_MAGIC: [u8; 8] = *b"BRZCHUNK";

const HEADER_CHECKSUM_AT: usize = 56;
const _: () = assert!(HEADER_CHECKSUM_AT + 8 == CHUNK_HEADER_BYTES);

/// Bytes of batches at which a chunk of `key` closes: the same on every replica, different from
/// partition to partition ([`SEGMENT_CHUNK_BYTES_SPREAD`]).
#[must_use]
pub fn chunk_bytes(key: PartitionKey) -> usize {
    let spread = xxh3_64(&key.0.to_le_bytes()) % SEGMENT_CHUNK_BYTES_SPREAD as u64;
    let bytes = SEGMENT_CHUNK_BYTES_MIN + usize::try_from(spread).expect("below the spread");
    assert!(bytes < SEGMENT_CHUNK_BYTES_MIN + SEGMENT_CHUNK_BYTES_SPREAD);
    bytes
}

/// Bytes that a chunk with `length` bytes of batches takes in its file, header and padding
/// included.
#[must_use]
pub fn chunk_file_bytes(length: u32) -> u64 {
    let bytes = align_up(CHUNK_HEADER_BYTES as u64 + u64::from(length));
    assert!(bytes > u64::from(length), "a header comes with the batches");
    assert!(
        bytes - u64::from(length) < 2 * DISK_ALIGNMENT as u64,
        "and less than a sector of padding"
    );
    bytes
}

/// The fields of a chunk's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// Whose batches these are.
    pub key: PartitionKey,
    /// Offset of the first message.
    pub base: Offset,
    /// Server time of the first batch.
    pub timestamp_first: Micros,
    /// Largest server time of any batch.
    pub timestamp_max: Micros,
    /// Number of messages, at least 1.
    pub messages: u32,
    /// Bytes of the batches.
    pub length: u32,
    /// XXH3-64 of the batches.
    pub content_checksum: u64,
}

/// Why bytes are not the chunk that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkError {
    /// Fewer bytes than the header or its length field asks for.
    #[error("the chunk is cut short")]
    Short,
    /// No chunk starts here.
    #[error("no chunk header at this position")]
    Magic,
    /// The header's checksum does not match.
    #[error("the chunk header's checksum does not match")]
    HeaderChecksum,
    /// The batches' checksum does not match.
    #[error("the checksum of the chunk's batches does not match")]
    ContentChecksum,
    /// An intact chunk of another partition or another place.
    #[error("the chunk belongs to partition key {key} at offset {base}")]
    Misplaced {
        /// The key it carries.
        key: PartitionKey,
        /// The offset it starts at.
        base: Offset,
    },
    /// The chunk is intact but its batches do not tile it.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl ChunkHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        assert!(self.messages > 0 && self.length > 0, "no chunk is empty");
        assert!(self.timestamp_first <= self.timestamp_max);
        let mut bytes = [0u8; CHUNK_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&CHUNK_MAGIC);
        bytes[8..16].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.timestamp_first.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.timestamp_max.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.messages.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.length.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.content_checksum.to_le_bytes());
        let checksum = xxh3_64(&bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        assert!(Self::decode(&bytes) == Ok(*self), "what is written can be read back");
        bytes
    }

    /// Reads and verifies a header (not its batches).
    ///
    /// # Errors
    /// [`ChunkError::Short`], [`ChunkError::Magic`] or [`ChunkError::HeaderChecksum`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ChunkError> {
        if bytes.len() < CHUNK_HEADER_BYTES {
            return Err(ChunkError::Short);
        }
        if bytes[0..8] != CHUNK_MAGIC {
            return Err(ChunkError::Magic);
        }
        if u64_at(bytes, HEADER_CHECKSUM_AT) != xxh3_64(&bytes[..HEADER_CHECKSUM_AT]) {
            return Err(ChunkError::HeaderChecksum);
        }
        let header = Self {
            key: PartitionKey(u64_at(bytes, 8)),
            base: Offset(u64_at(bytes, 16)),
            timestamp_first: Micros(u64_at(bytes, 24)),
            timestamp_max: Micros(u64_at(bytes, 32)),
            messages: u32_at(bytes, 40),
            length: u32_at(bytes, 44),
            content_checksum: u64_at(bytes, 48),
        };
        // A header that was sealed with an impossible value is as bad as a flipped bit.
        let possible = header.messages > 0
            && header.length as usize >= BATCH_HEADER_BYTES
            && header.timestamp_first <= header.timestamp_max
            && header.base.0.checked_add(u64::from(header.messages)).is_some();
        if !possible {
            return Err(ChunkError::HeaderChecksum);
        }
        assert!(header.messages > 0 && header.length > 0, "no chunk is empty");
        assert!(header.timestamp_first <= header.timestamp_max);
        Ok(header)
    }

    /// The same, and it must be the chunk of `key` that starts at `base`.
    ///
    /// # Errors
    /// As [`Self::decode`], and [`ChunkError::Misplaced`].
    pub fn decode_expected(
        bytes: &[u8],
        key: PartitionKey,
        base: Offset,
    ) -> Result<Self, ChunkError> {
        let header = Self::decode(bytes)?;
        if header.key != key || header.base != base {
            return Err(ChunkError::Misplaced { key: header.key, base: header.base });
        }
        assert!(header.messages > 0 && header.length > 0, "no chunk is empty");
        Ok(header)
    }
}

/// A piece of a chunk in memory: whole batches, back to back.
#[derive(Clone, Debug)]
pub struct Part {
    /// Offset of the first message of the first batch.
    pub base: Offset,
    /// The batches.
    pub bytes: Bytes,
}

/// The batches of one chunk in memory.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Offset of the first message.
    pub base: Offset,
    /// Offset after the last message.
    pub end: Offset,
    /// Server time of the first batch.
    pub timestamp_first: Micros,
    /// Largest server time of any batch.
    pub timestamp_max: Micros,
    /// Bytes of all batches.
    pub length: u32,
    /// The batches in order; no part is empty.
    pub parts: Vec<Part>,
}

impl Chunk {
    /// What holds for every chunk.
    pub fn assert_valid(&self) {
        assert!(self.base < self.end && self.length > 0, "no chunk is empty");
        assert!(self.timestamp_first <= self.timestamp_max);
        let first = self.parts.first().expect("no chunk is empty");
        let last = self.parts.last().expect("no chunk is empty");
        assert!(first.base == self.base && last.base < self.end, "the parts are the chunk");
        assert!(!first.bytes.is_empty() && !last.bytes.is_empty());
    }

    /// Number of messages.
    #[must_use]
    pub fn messages(&self) -> u32 {
        assert!(self.end > self.base, "no chunk is empty");
        u32::try_from(self.end.0 - self.base.0).expect("a chunk is bounded by its bytes")
    }

    /// The sealed header of this chunk, checksums computed.
    #[must_use]
    pub fn seal(&self, key: PartitionKey) -> ChunkHeader {
        self.assert_valid();
        let mut body = Body::empty();
        for part in &self.parts {
            assert!(!part.bytes.is_empty());
            body.push(part.bytes.clone());
        }
        assert!(body.len() == self.length as usize, "the parts are the chunk");
        ChunkHeader {
            key,
            base: self.base,
            timestamp_first: self.timestamp_first,
            timestamp_max: self.timestamp_max,
            messages: self.messages(),
            length: self.length,
            content_checksum: xxh3_64_body(&body),
        }
    }

    /// Takes a chunk out of bytes read from a file, which start at its header: everything is
    /// verified, nothing is copied.
    ///
    /// # Errors
    /// See [`ChunkError`].
    pub fn from_file(bytes: &Bytes, key: PartitionKey, base: Offset) -> Result<Self, ChunkError> {
        let header = ChunkHeader::decode_expected(bytes, key, base)?;
        let end = CHUNK_HEADER_BYTES + header.length as usize;
        if bytes.len() < end {
            return Err(ChunkError::Short);
        }
        let content = bytes.slice(CHUNK_HEADER_BYTES..end);
        if xxh3_64(&content) != header.content_checksum {
            return Err(ChunkError::ContentChecksum);
        }
        let end = Offset(base.0 + u64::from(header.messages));
        batch::verify_tiling(&content, base, end)?;
        let chunk = Self {
            base,
            end,
            timestamp_first: header.timestamp_first,
            timestamp_max: header.timestamp_max,
            length: header.length,
            parts: vec![Part { base, bytes: content }],
        };
        chunk.assert_valid();
        assert!(chunk.messages() == header.messages);
        Ok(chunk)
    }
}
