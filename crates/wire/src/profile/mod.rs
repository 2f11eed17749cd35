//! The codec of a connection, chosen at login by the version that the client announces (wire
//! protocol, section 1.3).
//!
//! Only profile A exists. Another one is added as a variant here with a module beside
//! [`profile_a`]; requests and replies stay the same types, so nothing behind the codec changes.

pub mod profile_a;

use crate::frame::{ReplyTo, RequestView};
use crate::operation::Operation;
use crate::reply::{Answer, ReplyPosition};
use crate::request::{Request, RequestError};
use crate::version::{ProtocolVersion, VersionWindow};

/// A generation of the protocol, as a connection speaks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Protocol 0.11: 256-byte headers, one request at a time. Frames before login have the same
    /// layout in all profiles with headers, so this also serves connections that have not
    /// signed in.
    #[default]
    A,
}

impl Profile {
    /// The versions that a refused client is told (eviction reason 14).
    pub const WINDOW: VersionWindow =
        VersionWindow { min: ProtocolVersion::V0_11_0, max: ProtocolVersion::V0_11_0 };

    /// The profile of clients that announce `version`; `None` when it is not served. Patch
    /// versions of 0.11 do not differ in layout.
    #[must_use]
    pub const fn for_version(version: ProtocolVersion) -> Option<Self> {
        match version.components() {
            (0, 11, _) => Some(Self::A),
            _ => None,
        }
    }

    /// Decodes the body of a request whose header was checked ([`RequestView::check`]).
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn decode_request<'a>(
        self,
        header: RequestView<'_>,
        operation: Operation,
        body: &'a [u8],
    ) -> Result<Request<'a>, RequestError> {
        match self {
            Self::A => Request::decode(operation, header.code(), body),
        }
    }

    /// Encodes an answer as a frame.
    #[must_use]
    pub fn encode_answer(self, to: &ReplyTo, position: ReplyPosition, answer: &Answer) -> Vec<u8> {
        match self {
            Self::A => profile_a::encode_answer(to, position, answer),
        }
    }
}
