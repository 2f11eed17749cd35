//! What can go wrong with a request.

use borzoi_wire::batch::{BatchBuildError, BatchFault};
use borzoi_wire::frame::EvictionReason;
use borzoi_wire::name::NameLengthError;
use borzoi_wire::{DecodeError, ErrorCode};
use std::io;
use thiserror::Error;

/// Why a request failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The connection cannot be made or broke.
    #[error("connection to {address}: {source}")]
    Connection {
        /// The server's address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// No answer within the request time-out.
    #[error("no answer from {address} within {seconds} s{}", last_words(.last))]
    TimedOut {
        /// The server's address.
        address: String,
        /// The time-out.
        seconds: u64,
        /// Why the last attempt within that time failed; none if there was no answer at all.
        last: Option<Box<Self>>,
    },
    /// The server refused the request.
    #[error("refused: {} (error {})", .0.message(), .0.number())]
    Refused(ErrorCode),
    /// The server ended the session.
    #[error("the server ended the session: {}", match .0 {
        Some(reason) => reason.error().message(),
        None => "for a reason this client does not know",
    })]
    Evicted(Option<EvictionReason>),
    /// The server answered something that is not an answer to the request.
    #[error("the answer does not follow the protocol: {0}")]
    Protocol(&'static str),
    /// The body of an answer does not decode.
    #[error("the answer does not decode: {0}")]
    Decode(#[from] DecodeError),
    /// A batch that was read does not hold together.
    #[error("a batch that was read is damaged: {0}")]
    Batch(#[from] BatchFault),
    /// The messages do not make a batch.
    #[error(transparent)]
    Build(#[from] BatchBuildError),
    /// A name is empty or too long.
    #[error(transparent)]
    Name(#[from] NameLengthError),
}

fn last_words(last: &Option<Box<Error>>) -> String {
    last.as_ref().map(|error| format!("; the last attempt failed: {error}")).unwrap_or_default()
}

impl Error {
    /// The error number that the server gave, if it gave one. After a time-out that of the last
    /// attempt.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(code) => Some(*code),
            Self::Evicted(reason) => reason.map(EvictionReason::error),
            Self::TimedOut { last, .. } => last.as_ref().and_then(|last| last.code()),
            _ => None,
        }
    }

    /// Whether a new connection may help.
    #[must_use]
    pub const fn is_connection(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }
}
