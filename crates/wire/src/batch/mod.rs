//! Batches: how messages travel and rest (wire protocol, section 6).
//!
//! ```text
//! batch header, 256 bytes
//!   0 partition_id u64     | 8 base_offset u64     | 16 base_timestamp u64
//!  24 origin_timestamp u64 | 32 batch_length u64   | 40 batch_checksum u64
//!  48 message_count u32    | 52 zero (profile A; at rest it may be sealed)
//! frame, 48 bytes and data
//!   0 checksum u64         | 8 id u128            | 24 offset_delta u32   | 28 timestamp_delta u32
//!  32 user_headers_length u32 | 36 payload_length u32 | 40 zero u64
//!  48 payload, then user headers
//! ```
//!
//! A frame is never changed after its producer made it: it is sent, logged, stored and served
//! byte for byte. Only the header is written again, when offsets are assigned ([`stamp`]) and when
//! a poll wants a part of a batch ([`slice_batch`]).
//!
//! Nothing here allocates per message, and nothing at all on the server's side.

mod build;
mod checksum;
mod frames;
mod header;
mod seal;
mod slice;
mod verify;

pub use build::{BatchBuildError, MessageId, NewMessage, encode_batch, encoded_batch_bytes};
pub use frames::{Batches, Frames, MessageFrame};
pub use header::{BatchHeader, BatchView, stamp};
pub use seal::{SEALED_HEADER_BYTES, Seal, TAG_BYTES};
pub use slice::{BatchSlice, SliceLimits, slice_batch};
pub use verify::{verify_send, verify_stored};

use crate::error_code::ErrorCode;
use borzoi_types::limits::{PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX};
use thiserror::Error;

/// Bytes of a batch header.
pub const BATCH_HEADER_BYTES: usize = 256;

/// Bytes of a frame without its data.
pub const FRAME_HEADER_BYTES: usize = 48;

/// What is wrong with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BatchFault {
    /// Shorter than a batch header.
    #[error("{len} bytes are too few for a batch header")]
    TooShort {
        /// Bytes there are.
        len: usize,
    },
    /// The length field differs from the bytes there are.
    #[error("the batch announces {announced} bytes, {actual} are there")]
    Length {
        /// The length field.
        announced: u64,
        /// Bytes there are.
        actual: usize,
    },
    /// A reserved byte of the batch header is set.
    #[error("reserved bytes of the batch header are not zero")]
    Reserved,
    /// A batch of no messages.
    #[error("the batch has no messages")]
    Empty,
    /// The count of the batch header differs from the one announced beside it.
    #[error("the batch has {count} messages, {announced} were announced")]
    AnnouncedCount {
        /// The count of the batch header.
        count: u32,
        /// The count of the request.
        announced: u32,
    },
    /// Number of frames and count of the batch header differ.
    #[error("the batch header counts {count} messages, there are {frames} frames")]
    FrameCount {
        /// The count of the batch header.
        count: u32,
        /// Frames there are; at least this many.
        frames: u32,
    },
    /// A frame reaches beyond the end of the batch.
    #[error("frame {frame} needs {needed} bytes, {left} are left")]
    FrameLength {
        /// Which frame, from 0.
        frame: u32,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// The reserved field of a frame is set.
    #[error("the reserved field of frame {frame} is not zero")]
    FrameReserved {
        /// Which frame, from 0.
        frame: u32,
    },
    /// Offsets of the frames are not 0, 1, 2 and so on.
    #[error("frame {frame} has offset delta {delta}")]
    OffsetDelta {
        /// Which frame, from 0.
        frame: u32,
        /// Its offset delta.
        delta: u32,
    },
    /// A payload above the limit.
    #[error("the payload of frame {frame} has {len} bytes, {PAYLOAD_BYTES_MAX} are allowed")]
    Payload {
        /// Which frame, from 0.
        frame: u32,
        /// Length of its payload.
        len: u32,
    },
    /// User headers above the limit.
    #[error("the headers of frame {frame} have {len} bytes, {USER_HEADERS_BYTES_MAX} are allowed")]
    UserHeaders {
        /// Which frame, from 0.
        frame: u32,
        /// Length of its user headers.
        len: u32,
    },
    /// A frame does not match its checksum.
    #[error("frame {frame} does not match its checksum")]
    FrameChecksum {
        /// Which frame, from 0.
        frame: u32,
    },
    /// The batch does not match its checksum.
    #[error("the batch does not match its checksum")]
    BatchChecksum,
}

impl BatchFault {
    /// The status to deny a send with (section 6.4).
    #[must_use]
    pub const fn deny(self) -> ErrorCode {
        match self {
            Self::TooShort { .. }
            | Self::Length { .. }
            | Self::Reserved
            | Self::FrameLength { .. }
            | Self::FrameReserved { .. }
            | Self::OffsetDelta { .. }
            | Self::AnnouncedCount { .. }
            | Self::FrameCount { .. } => ErrorCode::InvalidCommand,
            Self::Empty => ErrorCode::InvalidMessagesCount,
            Self::Payload { .. } => ErrorCode::TooBigMessagePayload,
            Self::UserHeaders { .. } => ErrorCode::TooBigUserHeaders,
            Self::FrameChecksum { .. } => ErrorCode::InvalidMessageChecksum,
            Self::BatchChecksum => ErrorCode::InvalidBatchChecksum,
        }
    }
}

/// Reads the field of `N` bytes at `at`. The caller has checked that it is there.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}
