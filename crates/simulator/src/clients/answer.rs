//! What a frame from the server means to the client that waits for it.

use crate::history::{History, Intent, OpRef, Outcome, Seen, Value};
use crate::workload::replies;
use borzoi_wire::batch::{Batches, verify_stored};
use borzoi_wire::body::{Identity, PARTITION_RESYNC, PollReply, SendConfirmation};
use borzoi_wire::frame::{EvictionReason, EvictionView};
use borzoi_wire::profile::profile_a::{ReplyOutcome, read_reply};
use borzoi_wire::{CommandCode, DecodeError, ErrorCode, Wire};

/// What a frame from the server means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The operation has ended.
    Ended(Outcome),
    /// A login succeeded with this session.
    SignedIn(u64),
    /// To be asked again. `sure` says that this attempt was certainly not taken.
    Again {
        /// Whether this attempt was certainly not taken.
        sure: bool,
    },
    /// The session or the login is refused.
    Evicted(EvictionReason),
}

/// Reads the answer to an operation.
///
/// # Errors
/// What is wrong with the frame, as a sentence.
pub fn read(history: &History, op: OpRef, frame: &[u8]) -> Result<Answer, String> {
    let intent = &history.op(op).intent;
    let outcome = read_reply(frame).map_err(|fault| format!("{fault}"))?;
    let wrong = |error: DecodeError| format!("the answer does not decode: {error}");
    Ok(match outcome {
        ReplyOutcome::Success(_, payload) => match intent {
            Intent::Login => {
                let identity = Identity::decode_exact(payload).map_err(wrong)?;
                if identity.session.0 == 0 {
                    return Err("a login without a session".to_owned());
                }
                Answer::SignedIn(identity.session.0)
            }
            _ => Answer::Ended(Outcome::Done(value(history, intent, payload)?)),
        },
        ReplyOutcome::Refused(_, number) => {
            let code = ErrorCode::from_number(number)
                .ok_or_else(|| format!("error number {number} is not known"))?;
            match code {
                ErrorCode::TransientNotAccepted => Answer::Again { sure: true },
                ErrorCode::TransientNotCommitted => Answer::Again { sure: false },
                code => Answer::Ended(Outcome::Refused(code)),
            }
        }
        ReplyOutcome::Evicted(..) => {
            let header = frame.first_chunk().ok_or("a frame shorter than its header")?;
            let reason = EvictionView::new(header).reason();
            Answer::Evicted(reason.ok_or("an eviction without a reason")?)
        }
    })
}

fn value(history: &History, intent: &Intent, payload: &[u8]) -> Result<Value, String> {
    match intent {
        Intent::Send { .. } => sent(payload),
        Intent::Poll { .. } => polled(history, payload),
        intent => {
            let wrong = |error: DecodeError| format!("the answer does not decode: {error}");
            replies::read(command(intent), payload).map_err(wrong)
        }
    }
}

fn sent(payload: &[u8]) -> Result<Value, String> {
    let list = Vec::<SendConfirmation>::decode_exact(payload).map_err(|error| error.to_string())?;
    let [only] = list[..] else { return Err(format!("{} confirmations of one send", list.len())) };
    Ok(Value::Sent { partition: only.partition.0, base: only.base_offset.0 })
}

fn polled(history: &History, payload: &[u8]) -> Result<Value, String> {
    let reply = PollReply::decode_exact(payload).map_err(|error| error.to_string())?;
    if reply.prefix.partition == PARTITION_RESYNC {
        return Ok(Value::Resync);
    }
    let mut messages: Vec<(u64, Seen)> = Vec::new();
    for batch in Batches::new(reply.records) {
        let batch = batch.map_err(|fault| format!("a batch in a poll: {fault}"))?;
        verify_stored(batch.bytes()).map_err(|fault| format!("a batch in a poll: {fault}"))?;
        for frame in batch.frames() {
            let frame = frame.map_err(|fault| format!("a message in a poll: {fault}"))?;
            messages.push((frame.offset(batch.header()).0, history.recognise(&frame)));
        }
    }
    if messages.len() != usize::try_from(reply.prefix.messages_count).unwrap_or(usize::MAX) {
        let announced = reply.prefix.messages_count;
        return Err(format!("{} messages, {announced} were announced", messages.len()));
    }
    let (partition, current) = (reply.prefix.partition.0, reply.prefix.current_offset.0);
    Ok(Value::Polled { partition, current, messages })
}

/// The command that an operation travels as. Polls and sends have answers of their own.
#[must_use]
pub const fn command(intent: &Intent) -> CommandCode {
    match intent {
        Intent::Send { .. } => CommandCode::SendMessages,
        Intent::Poll { .. } => CommandCode::PollMessages,
        Intent::StoreOffset { .. } => CommandCode::StoreConsumerOffset,
        Intent::GetOffset { .. } => CommandCode::GetConsumerOffset,
        Intent::DeleteOffset { .. } => CommandCode::DeleteConsumerOffset,
        Intent::CreateStream(_) => CommandCode::CreateStream,
        Intent::DeleteStream(_) => CommandCode::DeleteStream,
        Intent::PurgeStream(_) => CommandCode::PurgeStream,
        Intent::UpdateStream(_) => CommandCode::UpdateStream,
        Intent::CreateTopic(_) => CommandCode::CreateTopic,
        Intent::DeleteTopic(_) => CommandCode::DeleteTopic,
        Intent::PurgeTopic(_) => CommandCode::PurgeTopic,
        Intent::UpdateTopic(_) => CommandCode::UpdateTopic,
        Intent::CreatePartitions(..) => CommandCode::CreatePartitions,
        Intent::DeletePartitions(..) => CommandCode::DeletePartitions,
        Intent::DeleteSegments(..) => CommandCode::DeleteSegments,
        Intent::CreateGroup(_) => CommandCode::CreateConsumerGroup,
        Intent::DeleteGroup(_) => CommandCode::DeleteConsumerGroup,
        Intent::JoinGroup(_) => CommandCode::JoinConsumerGroup,
        Intent::LeaveGroup(_) => CommandCode::LeaveConsumerGroup,
        Intent::SyncGroup(_) => CommandCode::SyncConsumerGroup,
        Intent::CreateUser(_) => CommandCode::CreateUser,
        Intent::DeleteUser(_) => CommandCode::DeleteUser,
        Intent::ChangePassword(..) => CommandCode::ChangePassword,
        Intent::CreateToken(_) => CommandCode::CreatePersonalAccessToken,
        Intent::DeleteToken(_) => CommandCode::DeletePersonalAccessToken,
        Intent::Login => CommandCode::Login,
        Intent::Other(command) => *command,
        Intent::Malformed(_) => CommandCode::Ping,
    }
}
