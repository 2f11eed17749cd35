//! Frames: a 256-byte header, then the body (wire protocol, section 3).
//!
//! ```text
//! common prefix of every header
//!   0  checksum u128        not used by this protocol, zero
//!  16  checksum_body u128   not used, zero
//!  32  cluster u128         zero from clients
//!  48  size u32             header and body
//!  52  view u32             ignored
//!  56  release u32          zero
//!  60  command u8           5 request, 8 reply, 13 eviction
//!  61  replica u8           ignored
//!  62  reserved, zero, to 128; then the part of the command, see each view
//! ```
//!
//! Views borrow the 256 bytes and read fields in place; builders write them. The fields that only
//! profile B fills have their place here already and are zero in profile A.

mod eviction;
mod reply;
mod request;
mod result_section;

pub use eviction::{EvictionHeader, EvictionReason, EvictionView};
pub use reply::{ReplyHeader, ReplyView};
pub use request::{Reaction, ReplyTo, RequestFault, RequestHeader, RequestView, request_checksum};
pub use result_section::{RESULT_SUCCESS, ResultFault, split_result, write_rejection};

use crate::codec::wire_enum;
use thiserror::Error;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = borzoi_types::limits::CLIENT_HEADER_BYTES;

/// A frame header.
pub type HeaderBytes = [u8; HEADER_BYTES];

pub(crate) const AT_CLUSTER: usize = 32;
pub(crate) const AT_SIZE: usize = 48;
pub(crate) const AT_VIEW: usize = 52;
pub(crate) const AT_RELEASE: usize = 56;
pub(crate) const AT_COMMAND: usize = 60;
pub(crate) const AT_REPLICA: usize = 61;

const _: () = assert!(HEADER_BYTES == 256);

wire_enum! {
    /// The command byte of frames on client connections.
    pub enum FrameCommand("command byte") {
        /// From a client: a request.
        Request = 5,
        /// From a server: the answer to a request.
        Reply = 8,
        /// From a server: the request, login or session is refused.
        Eviction = 13,
    }
}

/// A size field that no frame can have. The connection must be closed: where the next frame
/// starts is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameSizeFault {
    /// Smaller than a header.
    #[error("frame size {size} is below the {HEADER_BYTES} bytes of a header")]
    BelowHeader {
        /// The size field.
        size: u32,
    },
    /// Above what the receiver takes at this point.
    #[error("frame size {size} is above the limit of {limit} bytes")]
    AboveLimit {
        /// The size field.
        size: u32,
        /// The limit in force, header included.
        limit: usize,
    },
}

/// The size of a frame whose header has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameSize(u32);

impl FrameSize {
    /// Reads the size from a header and checks it against `limit` (bytes, header included).
    ///
    /// # Errors
    /// When the size is below that of a header or above the limit.
    pub fn peek(header: &HeaderBytes, limit: usize) -> Result<Self, FrameSizeFault> {
        let size = u32::from_le_bytes(get(header, AT_SIZE));
        let total = crate::codec::usize_from(size);
        if total < HEADER_BYTES {
            return Err(FrameSizeFault::BelowHeader { size });
        }
        if total > limit {
            return Err(FrameSizeFault::AboveLimit { size, limit });
        }
        Ok(Self(size))
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub const fn frame_bytes(self) -> usize {
        crate::codec::usize_from(self.0)
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn body_bytes(self) -> usize {
        self.frame_bytes() - HEADER_BYTES
    }
}

/// Reads the field of `N` bytes at `at`.
pub(crate) fn get<const N: usize>(header: &HeaderBytes, at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&header[at..at + N]);
    field
}

/// Writes the field of `N` bytes at `at`.
pub(crate) fn put<const N: usize>(header: &mut HeaderBytes, at: usize, field: [u8; N]) {
    header[at..at + N].copy_from_slice(&field);
}

/// The size field of a frame with this many body bytes. Panics above 4 GiB, far beyond any limit.
pub(crate) fn size_field(body_bytes: usize) -> u32 {
    let total = body_bytes.checked_add(HEADER_BYTES);
    total.and_then(|t| u32::try_from(t).ok()).expect("frames are capped far below 4 GiB")
}

/// A new header with size and command filled in.
pub(crate) fn blank(command: FrameCommand, size: u32) -> HeaderBytes {
    let mut header = [0; HEADER_BYTES];
    put(&mut header, AT_SIZE, size.to_le_bytes());
    header[AT_COMMAND] = command as u8;
    header
}

/// Getters that read little-endian fields of a header in place.
macro_rules! header_fields {
    ($( $(#[$meta:meta])* $name:ident: $type:ident @ $at:expr; )+) => {$(
        $(#[$meta])*
        #[must_use]
        pub fn $name(self) -> $type {
            $type::from_le_bytes($crate::frame::get(self.0, $at))
        }
    )+};
}
pub(crate) use header_fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_accepted_from_the_header_up_to_the_limit() {
        let limit = 4_096;
        let peek = |size: u32| FrameSize::peek(&blank(FrameCommand::Request, size), limit);
        assert_eq!(peek(255), Err(FrameSizeFault::BelowHeader { size: 255 }));
        assert_eq!(peek(0), Err(FrameSizeFault::BelowHeader { size: 0 }));
        assert_eq!(peek(256).map(FrameSize::body_bytes), Ok(0));
        assert_eq!(peek(4_096).map(FrameSize::frame_bytes), Ok(4_096));
        assert_eq!(peek(4_097), Err(FrameSizeFault::AboveLimit { size: 4_097, limit }));
        assert!(peek(u32::MAX).is_err());
    }
}
