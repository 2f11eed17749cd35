//! Eviction frames: a request, login or session is refused (section 3.7). Header only.
//!
//! ```text
//! 128 client u128, not zero | 144 newest accepted version u32 | 148 oldest accepted version u32
//! 152 reserved, zero | 255 reason u8
//! ```

use super::{AT_COMMAND, AT_SIZE, FrameCommand, HeaderBytes, blank, get, header_fields, put};
use crate::codec::wire_enum;
use crate::error_code::ErrorCode;
use crate::version::{ProtocolVersion, VersionWindow};
use borzoi_types::ClientId;

const AT_CLIENT: usize = 128;
const AT_VERSION_MAX: usize = 144;
const AT_VERSION_MIN: usize = 148;
const AT_REASON: usize = 255;

wire_enum! {
    /// Why a client is evicted.
    pub enum EvictionReason("eviction reason") {
        /// A replicated request on a connection without a session.
        NoSession = 1,
        /// The client is too old. Not sent.
        ClientReleaseTooLow = 2,
        /// The client is too new. Not sent.
        ClientReleaseTooHigh = 3,
        /// An operation that only the server may write.
        InvalidRequestOperation = 4,
        /// A body that is not valid. Not sent.
        InvalidRequestBody = 5,
        /// A body of a size that is not valid. Not sent.
        InvalidRequestBodySize = 6,
        /// The client has signed in anew elsewhere.
        SessionTooLow = 7,
        /// The session is of another release. Not sent.
        SessionReleaseMismatch = 8,
        /// Wrong user or password, or a disabled user with a password.
        InvalidCredentials = 9,
        /// Unknown or expired access token.
        InvalidToken = 10,
        /// Access token of a disabled user.
        UserInactive = 11,
        /// The registration is refused, or the identity is another user's.
        SessionError = 12,
        /// No heartbeat from a member of a consumer group.
        StaleClient = 13,
        /// The protocol version is outside of the accepted window.
        IncompatibleProtocol = 14,
        /// A login without a readable version.
        MalformedLogin = 15,
    }
}

impl EvictionReason {
    /// The error a client shows for this reason.
    #[must_use]
    pub const fn error(self) -> ErrorCode {
        match self {
            Self::NoSession
            | Self::SessionTooLow
            | Self::SessionReleaseMismatch
            | Self::UserInactive
            | Self::SessionError => ErrorCode::Unauthenticated,
            Self::ClientReleaseTooLow
            | Self::ClientReleaseTooHigh
            | Self::InvalidRequestOperation
            | Self::InvalidRequestBody
            | Self::InvalidRequestBodySize => ErrorCode::InvalidCommand,
            Self::InvalidCredentials => ErrorCode::InvalidCredentials,
            Self::InvalidToken => ErrorCode::InvalidPersonalAccessToken,
            Self::StaleClient => ErrorCode::StaleClient,
            Self::IncompatibleProtocol => ErrorCode::IncompatibleProtocolVersion,
            Self::MalformedLogin => ErrorCode::InvalidFormat,
        }
    }
}

/// An eviction, read in place.
#[derive(Clone, Copy, Debug)]
pub struct EvictionView<'a>(&'a HeaderBytes);

impl<'a> EvictionView<'a> {
    /// Looks at a header.
    #[must_use]
    pub const fn new(header: &'a HeaderBytes) -> Self {
        Self(header)
    }

    header_fields! {
        /// Size of the frame, always 256.
        size: u32 @ AT_SIZE;
        /// Command byte, 13.
        command: u8 @ AT_COMMAND;
        /// Reason byte.
        reason_byte: u8 @ AT_REASON;
    }

    /// The client that is meant.
    #[must_use]
    pub fn client(self) -> ClientId {
        ClientId(u128::from_le_bytes(get(self.0, AT_CLIENT)))
    }

    /// The reason; `None` when this crate does not know it.
    #[must_use]
    pub fn reason(self) -> Option<EvictionReason> {
        EvictionReason::from_byte(self.reason_byte())
    }

    /// The versions that the server accepts; `None` without reason 14 or when they are not a
    /// window.
    #[must_use]
    pub fn window(self) -> Option<VersionWindow> {
        let min = ProtocolVersion(u32::from_le_bytes(get(self.0, AT_VERSION_MIN)));
        let max = ProtocolVersion(u32::from_le_bytes(get(self.0, AT_VERSION_MAX)));
        let is_window = min.0 >= 1 && min <= max;
        (self.reason() == Some(EvictionReason::IncompatibleProtocol) && is_window)
            .then_some(VersionWindow { min, max })
    }
}

/// An eviction, to be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionHeader {
    /// Identity of the client, or the connection's number when there is none; not zero.
    pub client: ClientId,
    /// Why.
    pub reason: EvictionReason,
    /// The accepted versions, with [`EvictionReason::IncompatibleProtocol`] only.
    pub window: Option<VersionWindow>,
}

impl EvictionHeader {
    /// An eviction for any reason but the version.
    #[must_use]
    pub const fn new(client: ClientId, reason: EvictionReason) -> Self {
        Self { client, reason, window: None }
    }

    /// The frame. Panics when `client` is zero: clients take such a frame for damaged.
    #[must_use]
    pub fn encode(&self) -> HeaderBytes {
        assert!(self.client != ClientId::ZERO, "an eviction names a client or a connection");
        let mut header = blank(FrameCommand::Eviction, super::size_field(0));
        put(&mut header, AT_CLIENT, self.client.0.to_le_bytes());
        if let Some(window) = self.window {
            put(&mut header, AT_VERSION_MAX, window.max.0.to_le_bytes());
            put(&mut header, AT_VERSION_MIN, window.min.0.to_le_bytes());
        }
        header[AT_REASON] = self.reason as u8;
        header
    }
}
