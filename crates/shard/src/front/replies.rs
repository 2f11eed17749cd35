//! How answers are put together: which positions each kind carries (wire protocol, section 3.8).
//!
//! An answer is a gather list: the first part holds the header and everything small, message
//! batches follow as the slices they rest in.

use borzoi_types::{ClientId, Micros, Op, SessionId};
use borzoi_wire::body::PollPrefix;
use borzoi_wire::frame::{EvictionReason, ReplyTo};
use borzoi_wire::profile::profile_a::{encode_eviction, encode_poll_head};
use borzoi_wire::reply::{Answer, ReplyPosition};
use borzoi_wire::{ErrorCode, Profile, Reply};
use bytes::Bytes;

/// Where and when a command was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommittedAt {
    /// Position in its log.
    pub(crate) op: Op,
    /// Commit time.
    pub(crate) timestamp: Micros,
}

impl CommittedAt {
    fn position(self) -> ReplyPosition {
        ReplyPosition { op: self.op, commit: self.op, timestamp: Some(self.timestamp) }
    }
}

fn encode(to: &ReplyTo, position: ReplyPosition, answer: &Answer) -> Vec<Bytes> {
    vec![Bytes::from(Profile::A.encode_answer(to, position, answer))]
}

/// Refused before execution: the error in the status field, an empty body.
pub(crate) fn deny(to: &ReplyTo, commit: Op, code: ErrorCode) -> Vec<Bytes> {
    let position = ReplyPosition { op: Op::ZERO, commit, timestamp: None };
    encode(to, position, &Answer::Denied(code))
}

/// A command that was not taken in (58) or whose outcome is not known yet (57): in the result
/// section where the operation has one, else in the status field.
pub(crate) fn transient(to: &ReplyTo, commit: Op, code: ErrorCode) -> Vec<Bytes> {
    let position = ReplyPosition { op: commit, commit, timestamp: None };
    encode(to, position, &Answer::Rejected(code))
}

/// The answer to a read.
pub(crate) fn read(to: &ReplyTo, session: SessionId, commit: Op, reply: Reply) -> Vec<Bytes> {
    let position = ReplyPosition { op: Op(session.0), commit, timestamp: None };
    encode(to, position, &Answer::Done(reply))
}

/// The answer to a poll: a small head and the batches behind it.
pub(crate) fn polled(
    to: &ReplyTo,
    session: SessionId,
    commit: Op,
    prefix: PollPrefix,
    batches: Vec<Bytes>,
) -> Vec<Bytes> {
    let position = ReplyPosition { op: Op(session.0), commit, timestamp: None };
    let records_bytes = batches.iter().map(Bytes::len).sum();
    let mut parts = Vec::with_capacity(1 + batches.len());
    parts.push(Bytes::from(encode_poll_head(to, position, prefix, records_bytes)));
    parts.extend(batches);
    parts
}

/// The answer to a committed command, of metadata or of a partition.
pub(crate) fn committed(to: &ReplyTo, at: CommittedAt, reply: Reply) -> Vec<Bytes> {
    encode(to, at.position(), &Answer::Done(reply))
}

/// The answer to a login: `op` is the session, whatever operation repeated it.
pub(crate) fn registered(
    to: &ReplyTo,
    session: SessionId,
    at: CommittedAt,
    reply: Reply,
) -> Vec<Bytes> {
    let position = ReplyPosition { op: Op(session.0), ..at.position() };
    encode(to, position, &Answer::Done(reply))
}

/// The answer to a command that the log refused: the error in the result section.
pub(crate) fn rejected(to: &ReplyTo, at: CommittedAt, code: ErrorCode) -> Vec<Bytes> {
    encode(to, at.position(), &Answer::Rejected(code))
}

/// An eviction. `client` is the identity of the request, or the number of the connection.
pub(crate) fn evict(client: ClientId, reason: EvictionReason) -> Vec<Bytes> {
    vec![Bytes::from(encode_eviction(client, reason))]
}
