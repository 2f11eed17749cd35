//! Building a batch from messages, for clients.

use super::checksum::BatchChecksum;
use super::header::BatchHeader;
use super::{BATCH_HEADER_BYTES, FRAME_HEADER_BYTES};
use crate::error_code::ErrorCode;
use borzoi_types::limits::{PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX};
use borzoi_types::{Micros, checksum::xxh3_64};
use thiserror::Error;

/// Identity of a message, chosen by its producer. Not zero in a batch that is sent: this crate
/// draws no random numbers, so the caller fills it in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MessageId(pub u128);

/// A message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewMessage<'a> {
    /// Identity, not zero.
    pub id: MessageId,
    /// The producer's time.
    pub origin_timestamp: Micros,
    /// The payload, up to 64,000,000 bytes.
    pub payload: &'a [u8],
    /// Encoded user headers, up to 100,000 bytes; see [`crate::write_entry`].
    pub user_headers: &'a [u8],
}

/// Why messages do not make a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BatchBuildError {
    /// No messages.
    #[error("a batch has at least one message")]
    Empty,
    /// More messages than a batch can count.
    #[error("{count} messages are too many for one batch")]
    TooMany {
        /// Messages there are.
        count: usize,
    },
    /// A payload above the limit.
    #[error("the payload of message {message} has {len} bytes, {PAYLOAD_BYTES_MAX} are allowed")]
    Payload {
        /// Which message, from 0.
        message: usize,
        /// Length of its payload.
        len: usize,
    },
    /// User headers above the limit.
    #[error("message {message} has {len} bytes of headers, {USER_HEADERS_BYTES_MAX} are allowed")]
    UserHeaders {
        /// Which message, from 0.
        message: usize,
        /// Length of its user headers.
        len: usize,
    },
    /// The producer times of the messages are too far apart.
    #[error("message {message} is more than 71 minutes younger than the oldest of the batch")]
    TimeSpan {
        /// Which message, from 0.
        message: usize,
    },
}

impl BatchBuildError {
    /// The error number that clients show for this.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Empty => ErrorCode::InvalidMessagesCount,
            Self::TooMany { .. } => ErrorCode::TooManyMessages,
            Self::Payload { .. } => ErrorCode::TooBigMessagePayload,
            Self::UserHeaders { .. } => ErrorCode::TooBigUserHeaders,
            Self::TimeSpan { .. } => ErrorCode::InvalidMessageTimestampDelta,
        }
    }
}

/// Bytes of the batch that [`encode_batch`] makes of these messages.
#[must_use]
pub fn encoded_batch_bytes(messages: &[NewMessage<'_>]) -> usize {
    let frame = |m: &NewMessage<'_>| FRAME_HEADER_BYTES + m.payload.len() + m.user_headers.len();
    BATCH_HEADER_BYTES + messages.iter().map(frame).sum::<usize>()
}

/// Appends a batch of these messages to `out`, checksums included, as a client sends it: partition,
/// base offset and time of appending are left to the server.
///
/// # Errors
/// When the messages break a limit. Then `out` is as it was.
pub fn encode_batch(
    messages: &[NewMessage<'_>],
    out: &mut Vec<u8>,
) -> Result<BatchHeader, BatchBuildError> {
    let origin = check(messages)?;
    let length = encoded_batch_bytes(messages);
    let too_many = BatchBuildError::TooMany { count: messages.len() };
    let mut header = BatchHeader {
        origin_timestamp: origin,
        batch_length: length as u64,
        message_count: u32::try_from(messages.len()).map_err(|_| too_many)?,
        ..BatchHeader::default()
    };
    out.reserve(length);
    let start = out.len();
    out.extend_from_slice(&[0; BATCH_HEADER_BYTES]);
    let mut checksum = BatchChecksum::new(&header.checksum_part());
    for (place, message) in (0u32..).zip(messages) {
        let span = message.origin_timestamp.0 - origin.0;
        let delta = u32::try_from(span).expect("the span was checked with the limits");
        checksum.add(write_frame(message, place, delta, out));
    }
    header.batch_checksum = checksum.finish();
    out[start..start + BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
    debug_assert_eq!(out.len() - start, length);
    Ok(header)
}

/// Checks the limits and gives the time of the oldest message.
fn check(messages: &[NewMessage<'_>]) -> Result<Micros, BatchBuildError> {
    let oldest = messages.iter().map(|m| m.origin_timestamp).min();
    let origin = oldest.ok_or(BatchBuildError::Empty)?;
    for (message, new) in messages.iter().enumerate() {
        let (payload, headers) = (new.payload.len(), new.user_headers.len());
        if payload > PAYLOAD_BYTES_MAX {
            return Err(BatchBuildError::Payload { message, len: payload });
        }
        if headers > USER_HEADERS_BYTES_MAX {
            return Err(BatchBuildError::UserHeaders { message, len: headers });
        }
        if new.origin_timestamp.0 - origin.0 > u64::from(u32::MAX) {
            return Err(BatchBuildError::TimeSpan { message });
        }
    }
    Ok(origin)
}

/// Appends one frame and gives its checksum.
fn write_frame(message: &NewMessage<'_>, place: u32, delta: u32, out: &mut Vec<u8>) -> [u8; 8] {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("limits are far below 4 GiB");
    let mut head = [0; FRAME_HEADER_BYTES];
    head[8..24].copy_from_slice(&message.id.0.to_le_bytes());
    head[24..28].copy_from_slice(&place.to_le_bytes());
    head[28..32].copy_from_slice(&delta.to_le_bytes());
    head[32..36].copy_from_slice(&length(message.user_headers).to_le_bytes());
    head[36..40].copy_from_slice(&length(message.payload).to_le_bytes());
    let start = out.len();
    out.extend_from_slice(&head);
    out.extend_from_slice(message.payload);
    out.extend_from_slice(message.user_headers);
    let checksum = xxh3_64(&out[start + 8..]).to_le_bytes();
    out[start..start + 8].copy_from_slice(&checksum);
    checksum
}
