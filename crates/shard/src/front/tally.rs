//! Requests by command and result, and how long they took. Counts only; nothing is decided here,
//! and counting allocates nothing.

use borzoi_types::{Duration, Histogram};
use borzoi_wire::frame::RequestView;
use borzoi_wire::{CommandCode, Operation};

/// Commands counted apart: those of the protocol, and one for whatever is none of them.
pub const COMMANDS: usize = CommandCode::ALL.len() + 1;

const UNKNOWN: u8 = CommandCode::ALL.len() as u8;
const _: () = assert!(COMMANDS < u8::MAX as usize);

/// What an answer said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestResult {
    /// Done.
    Success = 0,
    /// "Not now": 57 or 58.
    Transient = 1,
    /// Another error.
    Refused = 2,
    /// The session was ended instead.
    Evicted = 3,
}

impl RequestResult {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::Success, Self::Transient, Self::Refused, Self::Evicted];
}

/// Kinds of requests whose times are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestClass {
    /// Logins and logouts.
    Session = 0,
    /// Sends.
    Send = 1,
    /// Polls.
    Poll = 2,
    /// Stored offsets: read, written, deleted.
    Offset = 3,
    /// Changes of metadata.
    Change = 4,
    /// Every other read.
    Read = 5,
}

impl RequestClass {
    /// All of them, by number.
    pub const ALL: [Self; 6] =
        [Self::Session, Self::Send, Self::Poll, Self::Offset, Self::Change, Self::Read];

    /// The class of a command; of none, that of reads.
    #[must_use]
    pub fn of(command: Option<CommandCode>) -> Self {
        let Some(command) = command else { return Self::Read };
        match (command, command.operation()) {
            (CommandCode::PollMessages | CommandCode::PollOnPrimary, _) => Self::Poll,
            (CommandCode::GetConsumerOffset, _) => Self::Offset,
            (_, None | Some(Operation::Register | Operation::Logout)) => Self::Session,
            (_, Some(Operation::SendMessages)) => Self::Send,
            (_, Some(Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset)) => {
                Self::Offset
            }
            (_, Some(Operation::NonReplicated)) => Self::Read,
            _ => Self::Change,
        }
    }
}

/// A command as an index into the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandIndex(u8);

impl CommandIndex {
    /// The command of a frame, by its header alone.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Self {
        let Some((view, _)) = RequestView::split(frame) else { return Self(UNKNOWN) };
        let command = match Operation::from_byte(view.operation_byte()) {
            Some(Operation::NonReplicated) => CommandCode::from_code(view.code()),
            Some(operation) => CommandCode::for_operation(operation),
            None => None,
        };
        let place = command.and_then(|command| CommandCode::ALL.binary_search(&command).ok());
        Self(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(UNKNOWN))
    }

    /// The command; none for whatever is no command.
    #[must_use]
    pub fn command(self) -> Option<CommandCode> {
        CommandCode::ALL.get(usize::from(self.0)).copied()
    }
}

/// Counters of one shard since its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTally {
    results: [[u64; RequestResult::ALL.len()]; COMMANDS],
    times: [Histogram; RequestClass::ALL.len()],
}

impl Default for RequestTally {
    fn default() -> Self {
        Self {
            results: [[0; RequestResult::ALL.len()]; COMMANDS],
            times: [Histogram::default(); RequestClass::ALL.len()],
        }
    }
}

impl RequestTally {
    /// Counts an answer that leaves.
    pub(crate) fn count(&mut self, command: CommandIndex, result: RequestResult, took: Duration) {
        self.results[usize::from(command.0)][result as usize] += 1;
        self.times[RequestClass::of(command.command()) as usize].record(took);
    }

    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.results.iter_mut().zip(&other.results) {
            for (mine, other) in mine.iter_mut().zip(others) {
                *mine += other;
            }
        }
        for (mine, other) in self.times.iter_mut().zip(&other.times) {
            mine.add(other);
        }
    }

    /// Counts per command and result; no command stands for whatever is none.
    pub fn results(&self) -> impl Iterator<Item = (Option<CommandCode>, RequestResult, u64)> + '_ {
        self.results.iter().enumerate().flat_map(|(index, counts)| {
            let command = CommandCode::ALL.get(index).copied();
            RequestResult::ALL.into_iter().zip(*counts).map(move |(r, n)| (command, r, n))
        })
    }

    /// Times per class.
    pub fn times(&self) -> impl Iterator<Item = (RequestClass, &Histogram)> {
        RequestClass::ALL.into_iter().zip(&self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use borzoi_wire::frame::RequestHeader;

    fn index(operation: Operation, code: u32) -> CommandIndex {
        let header = RequestHeader { operation: operation as u8, code, ..RequestHeader::default() };
        CommandIndex::of_frame(&header.encode(0))
    }

    #[test]
    fn every_command_has_a_place_of_its_own() {
        for &command in CommandCode::ALL {
            let Some(operation) = command.operation() else { continue };
            let expected = CommandCode::for_operation(operation).unwrap_or(command);
            assert_eq!(index(operation, command.code()).command(), Some(expected));
        }
        assert_eq!(index(Operation::NonReplicated, 9_999).command(), None);
        assert_eq!(CommandIndex::of_frame(&[0; 10]).command(), None);
    }

    #[test]
    fn answers_are_counted_by_command_result_and_time() {
        let mut tally = RequestTally::default();
        let send = index(Operation::SendMessages, 0);
        tally.count(send, RequestResult::Success, Duration::from_millis(3));
        tally.count(send, RequestResult::Transient, Duration::from_millis(3));
        tally.count(index(Operation::NonReplicated, 100), RequestResult::Success, Duration(0));
        let mut both = tally.clone();
        both.add(&tally);
        let counted: Vec<_> = both.results().filter(|(_, _, count)| *count > 0).collect();
        assert_eq!(
            counted,
            [
                (Some(CommandCode::PollMessages), RequestResult::Success, 2),
                (Some(CommandCode::SendMessages), RequestResult::Success, 2),
                (Some(CommandCode::SendMessages), RequestResult::Transient, 2),
            ]
        );
        let times: Vec<u64> = both.times().map(|(_, times)| times.count()).collect();
        assert_eq!(times, [0, 4, 2, 0, 0, 0]);
    }
}
