//! Polls: planned against committed state, answered from memory or step by step from disk.
//!
//! A poll sees what was committed when it was planned or later, never less. A failure is an answer
//! of its own, never an empty result. Automatic commits move the overlay of the consumer before the
//! answer leaves; one operation per consumer and partition makes it durable.

use super::Lane;
use super::api::{ConsumerKey, LaneReply, Origin, PollStart, Refusal};
use crate::back::shared::{Shared, TicketOwner};
use crate::event::{LogEntry, LogLevel};
use borzoi_storage::disk::{DiskQueue, DiskResult};
use borzoi_storage::partition::{
    ReadCursor, ReadError, ReadErrorKind, ReadOutcome, ReadPlan, ReadStart,
};
use borzoi_types::limits::POLL_REPLY_BYTES_MAX;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{LogId, Offset, PartitionKey};

/// A poll that waits for the disk.
#[derive(Debug)]
pub struct WaitingRead {
    /// Its lane.
    pub log: LogId,
    key: PartitionKey,
    origin: Origin,
    reader: Reader,
    cursor: Box<ReadCursor>,
}

/// Who reads, and what follows from it.
#[derive(Clone, Copy, Debug)]
struct Reader {
    consumer: ConsumerKey,
    auto_commit: bool,
    generation: u64,
}

/// A poll as it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// Where to start.
    pub start: PollStart,
    /// How many messages at most.
    pub count: u32,
    /// Who reads.
    pub consumer: ConsumerKey,
    /// Whether the last delivered offset becomes the stored one.
    pub auto_commit: bool,
    /// Generation of the group when it was admitted; 0 for a plain consumer.
    pub generation: u64,
}

impl Lane {
    /// Plans a poll and answers it, now or when the disk has answered. One of a group counts as
    /// started already.
    pub(super) fn poll(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        poll: Poll,
        shared: &mut Shared,
    ) {
        let Poll { start, count, consumer, auto_commit, generation } = poll;
        let partition = self.state.partition_mut(key).expect("the caller has looked");
        let start = match start {
            PollStart::Offset(offset) => ReadStart::Offset(offset),
            PollStart::Timestamp(time) => ReadStart::Timestamp(time),
            PollStart::First => ReadStart::First,
            PollStart::Last => ReadStart::Last(count),
            PollStart::Next => ReadStart::Offset(partition.next_for(consumer)),
        };
        let reader = Reader { consumer, auto_commit, generation };
        let max = (count, POLL_REPLY_BYTES_MAX);
        let keys = &shared.options.keys;
        let plan = partition.log.plan_read_with(&mut shared.cache, keys, start, max);
        self.continue_read(key, origin, reader, plan, shared);
    }

    /// Goes on with a poll whose disk request has ended.
    pub fn resume_read(&mut self, read: WaitingRead, result: DiskResult, shared: &mut Shared) {
        let WaitingRead { key, origin, reader, cursor, .. } = read;
        let Some(partition) = self.state.partition_mut(key) else {
            return self.answer_deleted(origin, self.state.deleted_by(), shared);
        };
        let plan = partition.log.resume(&mut shared.cache, cursor, result);
        self.continue_read(key, origin, reader, plan, shared);
    }

    fn continue_read(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        reader: Reader,
        plan: Result<ReadPlan, ReadError>,
        shared: &mut Shared,
    ) {
        match plan {
            Ok(ReadPlan::Ready(outcome)) => {
                self.answer_poll(key, origin, reader, outcome, shared);
            }
            Ok(ReadPlan::Disk { request, cursor }) => {
                let ticket = shared.disk.submit(DiskQueue::Pool, request);
                let read = WaitingRead { log: self.log, key, origin, reader, cursor };
                shared.tickets.insert(ticket, TicketOwner::Read(Box::new(read)));
            }
            Err(error) => {
                let refusal = refusal_for(key, &error, shared);
                shared.reply(origin, LaneReply::Refused(refusal));
                self.read_ended(key, reader, None, shared);
            }
        }
    }

    fn answer_poll(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        reader: Reader,
        outcome: ReadOutcome,
        shared: &mut Shared,
    ) {
        let partition = self.state.partition_mut(key).expect("the caller has looked");
        let current_offset = partition.current_offset().unwrap_or(Offset::ZERO);
        let beyond = u64::from(planted::is(Bug::CommitBeyondDelivered));
        if let Some(last) = outcome.last.map(|last| Offset(last.0 + beyond))
            && reader.auto_commit
            && self.serving
            && partition.delivered(reader.consumer, last, reader.generation)
        {
            self.auto_commits.insert((key, reader.consumer));
            shared.work.insert(self.log);
        }
        self.read_ended(key, reader, outcome.last, shared);
        let reply =
            LaneReply::Polled { current_offset, count: outcome.messages, batches: outcome.batches };
        shared.reply(origin, reply);
    }

    /// A poll that was started is answered without having read anything.
    pub(super) fn poll_ended(&mut self, key: PartitionKey, poll: &Poll, shared: &mut Shared) {
        let Poll { consumer, auto_commit, generation, .. } = *poll;
        self.read_ended(key, Reader { consumer, auto_commit, generation }, None, shared);
    }

    /// A poll is answered: a group may have been waiting for that before it hands over.
    fn read_ended(
        &mut self,
        key: PartitionKey,
        reader: Reader,
        last: Option<Offset>,
        shared: &mut Shared,
    ) {
        if let ConsumerKey::Group(group) = reader.consumer {
            let committed = self.committed_of(key, group);
            let drained = self.draining.read_ended(key, group, last, committed);
            self.answer_drained(&drained, shared);
        }
    }
}

fn refusal_for(key: PartitionKey, error: &ReadError, shared: &mut Shared) -> Refusal {
    if let ReadErrorKind::Sealed(sealed) = &error.kind {
        let text = format!("partition {key}: {} at {}: {sealed}", error.file, error.position);
        shared.log(LogLevel::Error, LogEntry::Text(text));
        return Refusal::Sealed(*sealed);
    }
    if !error.kind.is_damage() {
        return Refusal::ReadFailed;
    }
    let file = error.file.path();
    let position = error.position;
    shared.log(LogLevel::Error, LogEntry::Damage { key, file: file.clone(), position });
    Refusal::Damaged { file, position }
}
