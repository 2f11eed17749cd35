//! Segments: the committed batches of one partition, in files that are only ever appended to.
//!
//! A segment file is a 4 KiB header sector followed by chunks (see [`chunk`]), each padded to the
//! disk's alignment. Invariants:
//!
//! - Only committed batches are in a segment, each exactly as it travels on the wire, so a poll is
//!   served from it without decoding or copying.
//! - Where a chunk and a segment end follows from the log's content alone: the partition's batches
//!   and its `segment_size`. Replicas therefore hold identical files.
//! - No sector is written twice in one life of the process; after a restart the bytes past what
//!   the checkpoint names are written again, with the same content, because they follow from the
//!   same log.
//! - Offsets are dense inside one segment: a jump starts a new one.
//!
//! ```text
//! file      0        4096
//!           ┌────────┬──────────────┬──────────────┬───
//!           │ header │ chunk, pad   │ chunk, pad   │ ...      every chunk starts at k * 4096
//!           └────────┴──────────────┴──────────────┴───
//! header    0      8      12     16      24      32          40
//!           ┌──────┬──────┬──────┬───────┬───────┬───────────┬───────────────┐
//!           │magic │vers. │ 0    │ key   │ base  │ checksum  │ zero to 4096  │
//!           └──────┴──────┴──────┴───────┴───────┴───────────┴───────────────┘
//! ```
//!
//! All integers are little-endian; the checksum is XXH3-64 of the bytes before it.

pub mod batch;
pub mod chunk;

use borzoi_types::checksum::xxh3_64;
use borzoi_types::limits::DISK_ALIGNMENT;
use borzoi_types::{Micros, Offset, PartitionKey};
use bytes::Bytes;

/// Length of the header sector of a segment file, in bytes.
pub const SEGMENT_HEADER_BYTES: u64 = DISK_ALIGNMENT as u64;

/// First eight bytes of a segment file.
pub const SEGMENT_MAGIC: [u8; 8] = *b"BRZSEGMT";

/// Version of the segment format written by this build.
pub const SEGMENT_VERSION: u32 = 1;

const CHECKSUM_AT: usize = 32;
const HEADER_USED: usize = 40;
const _: () = assert!(HEADER_USED <= SEGMENT_HEADER_BYTES as usize);

/// One segment as its partition knows it: what the log's content says, whether or not every byte
/// has reached the file yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Offset of the first message; names the file.
    pub base: Offset,
    /// Offset after the last message; equal to `base` when there is none.
    pub end: Offset,
    /// Bytes of the batches, headers included (behaviour specification, section 8).
    pub bytes: u64,
    /// Length of the file once every closed chunk is in it; 0 while no chunk has been closed.
    pub file_bytes: u64,
    /// Largest server time of any batch.
    pub timestamp_max: Micros,
}

impl Segment {
    /// A segment without messages whose first one will be `base`.
    #[must_use]
    pub const fn empty_at(base: Offset) -> Self {
        Self { base, end: base, bytes: 0, file_bytes: 0, timestamp_max: Micros(0) }
    }

    /// Number of messages; offsets are dense within a segment.
    #[must_use]
    pub fn messages(&self) -> u64 {
        assert!(self.end >= self.base, "a segment never ends before it starts");
        self.end.0 - self.base.0
    }

    /// Whether it holds no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == self.base
    }

    /// Whether `offset` is one of its messages.
    #[must_use]
    pub fn contains(&self, offset: Offset) -> bool {
        self.base <= offset && offset < self.end
    }

    /// Checks what must hold between the fields at all times.
    pub fn assert_valid(&self) {
        assert!(self.base <= self.end, "segment {} ends at {}", self.base, self.end);
        assert!(self.is_empty() == (self.bytes == 0), "messages and bytes come together");
        assert!(
            self.file_bytes == 0 || self.file_bytes > SEGMENT_HEADER_BYTES,
            "a segment file exists from its first chunk on"
        );
        assert!(self.file_bytes.is_multiple_of(DISK_ALIGNMENT as u64), "chunks are padded");
    }
}

/// Why bytes are not a segment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentHeaderError {
    /// Fewer bytes than a header.
    #[error("the file is shorter than a segment header")]
    Short,
    /// Another kind of file.
    #[error("not a segment file")]
    Magic,
    /// The header's checksum does not match.
    #[error("the segment header's checksum does not match")]
    Checksum,
    /// Written by a build with another format.
    #[error("segment format version {found} is not supported (this build knows {SEGMENT_VERSION})")]
    Version {
        /// The version in the file.
        found: u32,
    },
}

/// The header sector of the segment of `key` that starts at `base`.
#[must_use]
pub fn encode_header(key: PartitionKey, base: Offset) -> Bytes {
    let mut sector = vec![0u8; DISK_ALIGNMENT];
    sector[0..8].copy_from_slice(&SEGMENT_MAGIC);
    sector[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    sector[16..24].copy_from_slice(&key.0.to_le_bytes());
    sector[24..32].copy_from_slice(&base.0.to_le_bytes());
    let checksum = xxh3_64(&sector[..CHECKSUM_AT]);
    sector[CHECKSUM_AT..HEADER_USED].copy_from_slice(&checksum.to_le_bytes());
    assert!(decode_header(&sector) == Ok((key, base)), "what is written can be read back");
    assert!(sector.len() as u64 == SEGMENT_HEADER_BYTES);
    Bytes::from(sector)
}

/// Reads a header sector: whose segment it is and where it starts.
///
/// # Errors
/// See [`SegmentHeaderError`].
pub fn decode_header(sector: &[u8]) -> Result<(PartitionKey, Offset), SegmentHeaderError> {
    if sector.len() < HEADER_USED {
        return Err(SegmentHeaderError::Short);
    }
    if sector[0..8] != SEGMENT_MAGIC {
        return Err(SegmentHeaderError::Magic);
    }
    if u64_at(sector, CHECKSUM_AT) != xxh3_64(&sector[..CHECKSUM_AT]) {
        return Err(SegmentHeaderError::Checksum);
    }
    let version = u32_at(sector, 8);
    if version != SEGMENT_VERSION {
        return Err(SegmentHeaderError::Version { found: version });
    }
    let (key, base) = (PartitionKey(u64_at(sector, 16)), Offset(u64_at(sector, 24)));
    assert!(version == SEGMENT_VERSION && sector.len() >= HEADER_USED, "checked above");
    Ok((key, base))
}

/// `bytes` rounded up to the disk's alignment.
#[must_use]
pub fn align_up(bytes: u64) -> u64 {
    let aligned = bytes.next_multiple_of(DISK_ALIGNMENT as u64);
    assert!(aligned >= bytes);
    aligned
}

/// Little-endian u64 at `at`; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0u8; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

/// Little-endian u32 at `at`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0u8; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips_and_every_flipped_bit_is_noticed() {
        let sector = encode_header(PartitionKey(7), Offset(1_000));
        assert_eq!(decode_header(&sector), Ok((PartitionKey(7), Offset(1_000))));
        for bit in 0..HEADER_USED * 8 {
            let mut flipped = sector.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_header_of_another_version_is_refused_by_number() {
        let mut sector = encode_header(PartitionKey(7), Offset(1)).to_vec();
        sector[8..12].copy_from_slice(&9u32.to_le_bytes());
        let checksum = xxh3_64(&sector[..CHECKSUM_AT]);
        sector[CHECKSUM_AT..HEADER_USED].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decode_header(&sector), Err(SegmentHeaderError::Version { found: 9 }));
        assert_eq!(decode_header(&sector[..10]), Err(SegmentHeaderError::Short));
    }
}
