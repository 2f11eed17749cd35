//! The batch header: read in place, decoded, written, stamped.

use super::checksum::{BatchChecksum, HEADER_PART_BYTES};
use super::frames::Frames;
use super::{BATCH_HEADER_BYTES, BatchFault, field};
use borzoi_types::{Micros, Offset, PartitionId};

const AT_PARTITION: usize = 0;
const AT_BASE_OFFSET: usize = 8;
const AT_BASE_TIMESTAMP: usize = 16;
const AT_ORIGIN_TIMESTAMP: usize = 24;
const AT_LENGTH: usize = 32;
const AT_CHECKSUM: usize = 40;
const AT_COUNT: usize = 48;
const AT_RESERVED: usize = 52;

/// The fields of a batch header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchHeader {
    /// Partition, 64 bits wide on the wire; 0 from a client.
    pub partition: u64,
    /// Offset of the first message of the batch as it was stored; 0 from a client.
    pub base_offset: Offset,
    /// Time of appending; 0 from a client.
    pub base_timestamp: Micros,
    /// Smallest producer time in the batch.
    pub origin_timestamp: Micros,
    /// Bytes of header and frames.
    pub batch_length: u64,
    /// Checksum over the fields before and the checksums of the frames.
    pub batch_checksum: u64,
    /// Number of frames.
    pub message_count: u32,
}

impl BatchHeader {
    /// Reads a header without judging it, apart from its reserved bytes.
    ///
    /// # Errors
    /// [`BatchFault::TooShort`], or [`BatchFault::Reserved`] when reserved bytes are set.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchFault> {
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchFault::TooShort { len: bytes.len() });
        };
        if header[AT_RESERVED..] != [0; BATCH_HEADER_BYTES - AT_RESERVED] {
            return Err(BatchFault::Reserved);
        }
        Ok(Self {
            partition: u64::from_le_bytes(field(header, AT_PARTITION)),
            base_offset: Offset(u64::from_le_bytes(field(header, AT_BASE_OFFSET))),
            base_timestamp: Micros(u64::from_le_bytes(field(header, AT_BASE_TIMESTAMP))),
            origin_timestamp: Micros(u64::from_le_bytes(field(header, AT_ORIGIN_TIMESTAMP))),
            batch_length: u64::from_le_bytes(field(header, AT_LENGTH)),
            batch_checksum: u64::from_le_bytes(field(header, AT_CHECKSUM)),
            message_count: u32::from_le_bytes(field(header, AT_COUNT)),
        })
    }

    /// The 256 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut header = [0; BATCH_HEADER_BYTES];
        let part = self.checksum_part();
        header[..AT_CHECKSUM].copy_from_slice(&part[..AT_CHECKSUM]);
        header[AT_CHECKSUM..AT_COUNT].copy_from_slice(&self.batch_checksum.to_le_bytes());
        header[AT_COUNT..AT_RESERVED].copy_from_slice(&self.message_count.to_le_bytes());
        header
    }

    /// What the batch checksum covers of the header.
    pub(super) fn checksum_part(&self) -> [u8; HEADER_PART_BYTES] {
        let mut part = [0; HEADER_PART_BYTES];
        part[AT_PARTITION..8].copy_from_slice(&self.partition.to_le_bytes());
        part[AT_BASE_OFFSET..16].copy_from_slice(&self.base_offset.0.to_le_bytes());
        part[AT_BASE_TIMESTAMP..24].copy_from_slice(&self.base_timestamp.0.to_le_bytes());
        part[AT_ORIGIN_TIMESTAMP..32].copy_from_slice(&self.origin_timestamp.0.to_le_bytes());
        part[AT_LENGTH..40].copy_from_slice(&self.batch_length.to_le_bytes());
        part[40..].copy_from_slice(&self.message_count.to_le_bytes());
        part
    }

    /// The checksum that belongs to this header in front of `frames`.
    ///
    /// # Errors
    /// When the frames do not tile their bytes.
    pub(super) fn checksum_over(&self, frames: &[u8]) -> Result<u64, BatchFault> {
        let mut checksum = BatchChecksum::new(&self.checksum_part());
        for frame in Frames::new(frames) {
            checksum.add(frame?.checksum().to_le_bytes());
        }
        Ok(checksum.finish())
    }
}

/// A whole batch, borrowed: its header decoded, its frames as bytes.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Takes the batch at the start of `bytes` and gives what follows it. Looks at the header
    /// only.
    ///
    /// # Errors
    /// When the header does not decode or announces more bytes than there are.
    pub fn take(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BatchFault> {
        Self::split(BatchHeader::decode(bytes)?, bytes)
    }

    fn split(header: BatchHeader, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BatchFault> {
        let wrong = BatchFault::Length { announced: header.batch_length, actual: bytes.len() };
        let length = usize::try_from(header.batch_length).map_err(|_| wrong)?;
        if length < BATCH_HEADER_BYTES {
            return Err(wrong);
        }
        let (batch, rest) = bytes.split_at_checked(length).ok_or(wrong)?;
        Ok((Self { header, bytes: batch }, rest))
    }

    /// The same for a batch at rest, whose frames may be encrypted; whether they are.
    ///
    /// # Errors
    /// As [`BatchView::take`].
    pub fn take_stored(bytes: &'a [u8]) -> Result<(Self, bool, &'a [u8]), BatchFault> {
        let (header, seal) = BatchHeader::decode_stored(bytes)?;
        let (batch, rest) = Self::split(header, bytes)?;
        Ok((batch, seal.is_some(), rest))
    }

    /// Takes `bytes` as one batch that fills them. Looks at the header only.
    ///
    /// # Errors
    /// When the header does not decode or announces another number of bytes.
    pub fn whole(bytes: &'a [u8]) -> Result<Self, BatchFault> {
        let (batch, rest) = Self::take(bytes)?;
        if rest.is_empty() {
            return Ok(batch);
        }
        Err(BatchFault::Length { announced: batch.header.batch_length, actual: bytes.len() })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Header and frames.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of the frames.
    #[must_use]
    pub fn frame_bytes(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }

    /// The frames in order.
    #[must_use]
    pub fn frames(&self) -> Frames<'a> {
        Frames::new(self.frame_bytes())
    }
}

/// Writes partition, base offset and time of appending into a batch, and its checksum anew. The
/// frames are read, not written.
///
/// # Errors
/// When `batch` is not one batch: header too short, wrong length, frames that do not tile it. Then
/// nothing has been written.
pub fn stamp(
    batch: &mut [u8],
    partition: PartitionId,
    base_offset: Offset,
    base_timestamp: Micros,
) -> Result<BatchHeader, BatchFault> {
    let view = BatchView::whole(batch)?;
    let mut header = *view.header();
    header.partition = u64::from(partition.0);
    header.base_offset = base_offset;
    header.base_timestamp = base_timestamp;
    header.batch_checksum = header.checksum_over(view.frame_bytes())?;
    let encoded = header.encode();
    batch[..AT_COUNT].copy_from_slice(&encoded[..AT_COUNT]);
    Ok(header)
}
