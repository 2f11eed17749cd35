//! The frames of a batch, and the batches of a poll reply, one after the other.

use super::header::{BatchHeader, BatchView};
use super::{BatchFault, FRAME_HEADER_BYTES, MessageId, field};
use crate::codec::usize_from;
use borzoi_types::{Micros, Offset, checksum::xxh3_64};

const AT_ID: usize = 8;
const AT_OFFSET_DELTA: usize = 24;
const AT_TIMESTAMP_DELTA: usize = 28;
const AT_USER_HEADERS_LENGTH: usize = 32;
const AT_PAYLOAD_LENGTH: usize = 36;
const AT_RESERVED: usize = 40;

/// One message as it travels: 48 bytes, then payload and user headers. Its lengths were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageFrame<'a> {
    bytes: &'a [u8],
}

impl<'a> MessageFrame<'a> {
    /// Takes the frame at the start of `bytes`; `frame` is its place in the batch, for the fault.
    #[inline]
    pub(super) fn take(bytes: &'a [u8], frame: u32) -> Result<(Self, &'a [u8]), BatchFault> {
        let Some(head) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
            let needed = FRAME_HEADER_BYTES as u64;
            return Err(BatchFault::FrameLength { frame, needed, left: bytes.len() });
        };
        let headers = u32::from_le_bytes(field(head, AT_USER_HEADERS_LENGTH));
        let payload = u32::from_le_bytes(field(head, AT_PAYLOAD_LENGTH));
        let needed = FRAME_HEADER_BYTES as u64 + u64::from(headers) + u64::from(payload);
        let fault = BatchFault::FrameLength { frame, needed, left: bytes.len() };
        let needed = usize::try_from(needed).map_err(|_| fault)?;
        let (bytes, rest) = bytes.split_at_checked(needed).ok_or(fault)?;
        Ok((Self { bytes }, rest))
    }

    /// The whole frame.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The checksum field.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        u64::from_le_bytes(field(self.bytes, 0))
    }

    /// The checksum that the frame should have.
    #[must_use]
    pub fn computed_checksum(&self) -> u64 {
        xxh3_64(&self.bytes[AT_ID..])
    }

    /// Identity that the producer gave the message.
    #[must_use]
    pub fn id(&self) -> MessageId {
        MessageId(u128::from_le_bytes(field(self.bytes, AT_ID)))
    }

    /// Place of the message in the batch as it was stored.
    #[must_use]
    pub fn offset_delta(&self) -> u32 {
        u32::from_le_bytes(field(self.bytes, AT_OFFSET_DELTA))
    }

    /// Microseconds from the origin timestamp of the batch to the producer's time.
    #[must_use]
    pub fn timestamp_delta(&self) -> u32 {
        u32::from_le_bytes(field(self.bytes, AT_TIMESTAMP_DELTA))
    }

    /// The reserved field, to be zero.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        u64::from_le_bytes(field(self.bytes, AT_RESERVED))
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub fn payload_length(&self) -> u32 {
        u32::from_le_bytes(field(self.bytes, AT_PAYLOAD_LENGTH))
    }

    /// Length of the user headers in bytes.
    #[must_use]
    pub fn user_headers_length(&self) -> u32 {
        u32::from_le_bytes(field(self.bytes, AT_USER_HEADERS_LENGTH))
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let end = FRAME_HEADER_BYTES + usize_from(self.payload_length());
        &self.bytes[FRAME_HEADER_BYTES..end]
    }

    /// The user headers, encoded; see [`crate::Entries`].
    #[must_use]
    pub fn user_headers(&self) -> &'a [u8] {
        &self.bytes[FRAME_HEADER_BYTES + usize_from(self.payload_length())..]
    }

    /// Offset of the message in a batch with this header. Saturates: a batch from elsewhere may
    /// lie.
    #[must_use]
    pub fn offset(&self, header: &BatchHeader) -> Offset {
        Offset(header.base_offset.0.saturating_add(u64::from(self.offset_delta())))
    }

    /// The producer's time of the message in a batch with this header.
    #[must_use]
    pub fn origin_timestamp(&self, header: &BatchHeader) -> Micros {
        Micros(header.origin_timestamp.0.saturating_add(u64::from(self.timestamp_delta())))
    }
}

/// Iterator over the frames of a batch. Ends after the first fault.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    left: &'a [u8],
    next: u32,
}

impl<'a> Frames<'a> {
    /// Iterates over bytes that hold frames and nothing else.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, next: 0 }
    }

    /// Bytes not iterated over yet.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<MessageFrame<'a>, BatchFault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let taken = MessageFrame::take(self.left, self.next);
        self.next = self.next.saturating_add(1);
        match taken {
            Ok((frame, rest)) => {
                self.left = rest;
                Some(Ok(frame))
            }
            Err(fault) => {
                self.left = &[];
                Some(Err(fault))
            }
        }
    }
}

/// Iterator over batches that follow each other, as in a poll reply. Ends after the first fault.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    left: &'a [u8],
}

impl<'a> Batches<'a> {
    /// Iterates over bytes that hold batches and nothing else.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        match BatchView::take(self.left) {
            Ok((batch, rest)) => {
                self.left = rest;
                Some(Ok(batch))
            }
            Err(fault) => {
                self.left = &[];
                Some(Err(fault))
            }
        }
    }
}
