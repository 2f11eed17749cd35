//! What the front counts, for metrics. Counts only; nothing is decided by them.

use super::tally::RequestResult;
use borzoi_wire::frame::{FrameCommand, ReplyView};
use borzoi_wire::{ErrorCode, Operation};
use bytes::Bytes;

/// Counters since the start of one shard's front.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontCounters {
    /// Answers handed to connections.
    pub replies: u64,
    /// Of these: "not now", 57 or 58 (required behaviour B13).
    pub denied_transient: u64,
    /// Of these: other errors, in the status field or in the result section.
    pub refused: u64,
    /// Evictions handed to connections.
    pub evictions: u64,
    /// Connections turned away by a cap.
    pub connections_refused: u64,
    /// Connections closed because they reached a limit.
    pub closed_by_limit: u64,
    /// Logins refused for their credentials.
    pub logins_failed: u64,
    /// Logins whose password was recognised without the password thread.
    pub logins_remembered: u64,
    /// Commands sent to another node that leads metadata.
    pub commands_forwarded: u64,
    /// Questions for the commit point of the metadata primary.
    pub commit_questions: u64,
    /// Rounds of gathering counters.
    pub counter_rounds: u64,
}

impl FrontCounters {
    /// Counts an answer that is handed to its connection.
    pub(super) fn count_answer(&mut self, parts: &[Bytes]) -> RequestResult {
        self.replies += 1;
        match error_of(parts) {
            Answered::Evicted => {
                self.evictions += 1;
                RequestResult::Evicted
            }
            Answered::Error(code) => {
                let transient = ErrorCode::from_number(code).is_some_and(ErrorCode::is_transient);
                if transient {
                    self.denied_transient += 1;
                    RequestResult::Transient
                } else {
                    self.refused += 1;
                    RequestResult::Refused
                }
            }
            Answered::Success => RequestResult::Success,
        }
    }
}

enum Answered {
    Success,
    Error(u32),
    Evicted,
}

/// The error of an answer, from its status or its result section.
fn error_of(parts: &[Bytes]) -> Answered {
    let Some((view, body)) = parts.first().and_then(|first| ReplyView::split(first)) else {
        return Answered::Success;
    };
    if view.command() == FrameCommand::Eviction as u8 {
        return Answered::Evicted;
    }
    if view.status() != 0 {
        return Answered::Error(view.status());
    }
    let framed = view.operation().is_some_and(Operation::has_result_section);
    match body.first_chunk::<RESULT_BYTES>() {
        Some([1, 0, 0, 0, _, _, _, _, result @ ..]) if framed => {
            Answered::Error(u32::from_le_bytes(*result))
        }
        _ => Answered::Success,
    }
}

/// A result section with one entry.
const RESULT_BYTES: usize = 12;
