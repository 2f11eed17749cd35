//! Layout of answers in profile A (wire protocol, sections 3.8 to 3.10 and 9), and how a client
//! reads them.

use crate::body::PollPrefix;
use crate::codec::{Wire, write_list, write_list32};
use crate::error_code::ErrorCode;
use crate::frame::{
    EvictionHeader, EvictionReason, EvictionView, FrameCommand, HEADER_BYTES, RESULT_SUCCESS,
    ReplyHeader, ReplyTo, ReplyView, ResultFault, split_result, write_rejection,
};
use crate::operation::Operation;
use crate::profile::Profile;
use crate::reply::{Answer, Reply, ReplyPosition};
use crate::version::VersionWindow;
use borzoi_types::ClientId;
use thiserror::Error;

/// Encodes an answer as a frame.
#[must_use]
pub fn encode_answer(to: &ReplyTo, position: ReplyPosition, answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Done(reply) => encode_done(to, position, reply),
        Answer::Denied(code) => encode_denied(to, position, *code),
        Answer::Rejected(code) => encode_rejected(to, position, *code),
        Answer::Evicted(reason) => encode_eviction(to.client, *reason),
    }
}

/// The header of a reply: echoes `to`, carries `position`.
fn header(to: &ReplyTo, position: ReplyPosition) -> ReplyHeader {
    let mut header = ReplyHeader::answering(to);
    header.op = position.op;
    header.commit = position.commit;
    if let Some(timestamp) = position.timestamp {
        header.timestamp = timestamp;
    }
    // Profile A knows neither the marker nor the incarnation: its clients leave them zero.
    header.partition_incarnation = 0;
    header
}

fn encode_done(to: &ReplyTo, position: ReplyPosition, reply: &Reply) -> Vec<u8> {
    let mut header = header(to, position);
    let operation = Operation::from_byte(to.operation).map(Operation::committed);
    if let Some(operation) = operation {
        header.operation = operation as u8;
    }
    let mut frame = vec![0; HEADER_BYTES];
    if operation.is_some_and(Operation::has_result_section) {
        frame.extend_from_slice(&RESULT_SUCCESS);
    }
    write_payload(reply, &mut frame);
    finish(&header, frame)
}

fn encode_denied(to: &ReplyTo, position: ReplyPosition, code: ErrorCode) -> Vec<u8> {
    let mut header = header(to, ReplyPosition { op: borzoi_types::Op::ZERO, ..position });
    header.status = code.number();
    finish(&header, vec![0; HEADER_BYTES])
}

fn encode_rejected(to: &ReplyTo, position: ReplyPosition, code: ErrorCode) -> Vec<u8> {
    let operation = Operation::from_byte(to.operation);
    // The operation of the reply decides whether the client looks for a section.
    let Some(operation) = operation.filter(|operation| operation.committed().has_result_section())
    else {
        return encode_denied(to, position, code);
    };
    let mut header = header(to, position);
    if !code.is_transient() || operation == Operation::DeleteSegments {
        header.operation = operation.committed() as u8;
    }
    let mut frame = vec![0; HEADER_BYTES];
    write_rejection(code, &mut frame);
    finish(&header, frame)
}

/// Encodes an eviction. `client` is that of the request, or the number of the connection; a zero
/// becomes all ones, because clients take an eviction of nobody for damaged.
#[must_use]
pub fn encode_eviction(client: ClientId, reason: EvictionReason) -> Vec<u8> {
    let client = if client == ClientId::ZERO { ClientId::MAX } else { client };
    let mut header = EvictionHeader::new(client, reason);
    if reason == EvictionReason::IncompatibleProtocol {
        header.window = Some(Profile::WINDOW);
    }
    header.encode().to_vec()
}

/// Encodes header and prefix of a poll reply whose batches, `records_bytes` bytes of them, are
/// sent behind it without being copied.
#[must_use]
pub fn encode_poll_head(
    to: &ReplyTo,
    position: ReplyPosition,
    prefix: PollPrefix,
    records_bytes: usize,
) -> Vec<u8> {
    let header = header(to, position).encode(PollPrefix::BYTES + records_bytes);
    let mut frame = Vec::with_capacity(HEADER_BYTES + PollPrefix::BYTES);
    frame.extend_from_slice(&header);
    prefix.write(&mut frame);
    frame
}

fn finish(header: &ReplyHeader, mut frame: Vec<u8>) -> Vec<u8> {
    let bytes = header.encode(frame.len() - HEADER_BYTES);
    frame[..HEADER_BYTES].copy_from_slice(&bytes);
    frame
}

/// Appends the payload of a success, without result section.
pub fn write_payload(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Empty | Reply::NotFound => {}
        Reply::Identity(identity) => identity.write(out),
        Reply::Stats(stats) => stats.write(out),
        Reply::Archive(archive) => archive.write(out),
        Reply::ClusterMetadata(cluster) => cluster.write(out),
        Reply::OptionDescriptions(list) => write_list32(list, out),
        Reply::Client(client) => client.write(out),
        Reply::Clients(list) => write_list(list, out),
        Reply::User(user) => user.write(out),
        Reply::Users(list) => write_list(list, out),
        Reply::Tokens(list) => write_list(list, out),
        Reply::Token(token) => token.write(out),
        Reply::Stream(stream) => stream.write(out),
        Reply::Streams(list) => write_list(list, out),
        Reply::Topic(topic) => topic.write(out),
        Reply::Topics(list) => write_list32(list, out),
        Reply::Group(group) => group.write(out),
        Reply::GroupCreated(group) => group.write(out),
        Reply::Groups(list) => write_list(list, out),
        Reply::Assignment(assignment) => assignment.write(out),
        Reply::Sent(confirmations) => write_list32(confirmations, out),
        Reply::Polled(prefix) => prefix.write(out),
        Reply::ConsumerOffset(offset) => offset.write(out),
        Reply::Routing(routing) => routing.write(out),
    }
}

/// A frame that a client received, judged in the order of section 3.10.
#[derive(Clone, Copy, Debug)]
pub enum ReplyOutcome<'a> {
    /// A success: header, and payload without result section.
    Success(ReplyView<'a>, &'a [u8]),
    /// A refusal: header and error number.
    Refused(ReplyView<'a>, u32),
    /// An eviction: the error it stands for, and the versions served if those are the reason.
    Evicted(ErrorCode, Option<VersionWindow>),
}

/// A frame from a server that is none: the connection cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReplyFault {
    /// Shorter than a header, or not as long as its header says.
    #[error("the reply has {actual} bytes, its header says {size}")]
    Size {
        /// The size field, 0 when there is no header.
        size: u32,
        /// Bytes of the frame.
        actual: usize,
    },
    /// The command byte is neither that of a reply nor that of an eviction.
    #[error("command byte {0} does not come from a server")]
    Command(u8),
    /// The operation byte is not one of the profile.
    #[error("operation {0} is not known")]
    Operation(u8),
    /// The result section does not decode.
    #[error("the result section of the reply is malformed")]
    ResultSection,
}

/// Reads a frame from a server.
///
/// # Errors
/// When it is neither a reply nor an eviction of this profile.
pub fn read_reply(frame: &[u8]) -> Result<ReplyOutcome<'_>, ReplyFault> {
    let actual = frame.len();
    let Some(header) = frame.first_chunk::<HEADER_BYTES>() else {
        return Err(ReplyFault::Size { size: 0, actual });
    };
    let body = &frame[HEADER_BYTES..];
    let view = ReplyView::new(header);
    if crate::codec::usize_from(view.size()) != actual {
        return Err(ReplyFault::Size { size: view.size(), actual });
    }
    match FrameCommand::from_byte(view.command()) {
        Some(FrameCommand::Reply) => read_reply_body(view, body),
        Some(FrameCommand::Eviction) => {
            let eviction = EvictionView::new(header);
            let reason = eviction.reason();
            let error = match (reason, eviction.window()) {
                (None, _) => ErrorCode::InvalidCommand,
                (Some(EvictionReason::IncompatibleProtocol), None) => ErrorCode::Unauthenticated,
                (Some(reason), _) => reason.error(),
            };
            Ok(ReplyOutcome::Evicted(error, eviction.window()))
        }
        _ => Err(ReplyFault::Command(view.command())),
    }
}

fn read_reply_body<'a>(
    view: ReplyView<'a>,
    body: &'a [u8],
) -> Result<ReplyOutcome<'a>, ReplyFault> {
    if view.status() != 0 {
        return Ok(ReplyOutcome::Refused(view, view.status()));
    }
    let operation = view.operation().ok_or(ReplyFault::Operation(view.operation_byte()))?;
    if !operation.has_result_section() || (operation == Operation::Register && body.is_empty()) {
        return Ok(ReplyOutcome::Success(view, body));
    }
    match split_result(body) {
        Ok(payload) => Ok(ReplyOutcome::Success(view, payload)),
        Err(ResultFault::Rejected(number)) => Ok(ReplyOutcome::Refused(view, number)),
        Err(ResultFault::Malformed) => Err(ReplyFault::ResultSection),
    }
}
