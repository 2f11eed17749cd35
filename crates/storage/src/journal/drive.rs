//! Group commit: when a group is written, when a flush is made, what their completion means.
//!
//! The rule, in words: a group is formed when no flush that covers records is in flight, so that
//! everything appended meanwhile shares the next one; or when a record of level `replicated`
//! waits, which needs a write but no flush; or when so much has gathered that the device should
//! not idle. At most one flush that covers records is in flight.

use super::files::Entry;
use super::group::GroupWriter;
use super::layout::{FILE_HEADER_BYTES, FileHeader, NextFile, Trailer, trailer_bytes};
use super::record::RecordSeq;
use super::{BLOCK, Journal, JournalProgress};
use crate::disk::{
    DiskOutcome, DiskQueue, DiskRequest, DiskResult, DiskSubmissions, DiskTicket, FileName, aligned,
};
use borzoi_types::Durability;
use borzoi_types::limits::{
    JOURNAL_FLUSH_BYTES_MAX, JOURNAL_GATHER_BYTES_MAX, JOURNAL_GROUP_BYTES_MAX,
    JOURNAL_GROUP_RECORDS_MAX, JOURNAL_WRITES_IN_FLIGHT_MAX,
};
use bytes::Bytes;
use core::ops::Range;

/// A group that has been formed and is not yet durable.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    number: u64,
    last_record: RecordSeq,
    bytes: u64,
    file: u64,
    /// Its records among the file's entries.
    entries: Range<usize>,
    oldest_live: u64,
    /// Something waits for its flush.
    flush_wanted: bool,
    closes_file: bool,
    written: bool,
}

/// A flush in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    through: u64,
    covers_records: bool,
}

/// What a ticket stands for.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    Write(u64),
    Flush(u64),
    CreateSpare(u32),
    CarryRead(Entry, u64),
}

impl Journal {
    /// Emits what should be written and flushed now. Call it once per batch of events, after the
    /// appends and the completions.
    pub fn drive(&mut self, out: &mut DiskSubmissions) {
        while self.progress.failed.is_none() {
            let carried = self.drive_carry(out);
            let formed = self.form(out);
            let flushed = self.flush(out);
            if !carried && !formed && !flushed {
                break;
            }
        }
        if self.progress.failed.is_none()
            && let Some(slot) = self.files.create_spare(self.booting)
        {
            let file = FileName::Journal(slot);
            let request = DiskRequest::CreateZeroed { file, bytes: self.options.file_bytes };
            let ticket = out.submit(DiskQueue::Pool, request);
            self.tickets.insert(ticket, Pending::CreateSpare(slot));
        }
        self.assert_invariants();
    }

    /// What holds between any two calls.
    pub(super) fn assert_invariants(&self) {
        // Groups: synced, then written, then formed, without gaps.
        assert!(self.synced_group <= self.written_group, "what is synced is written");
        assert!(self.synced_group <= self.flushed_group, "and flushed");
        assert!(self.written_group <= self.last_group, "what is written was formed");
        assert!(self.flushed_group <= self.last_group, "and what is flushed");
        assert_eq!(self.groups.len() as u64, self.last_group - self.synced_group);
        assert!(self.groups.front().is_none_or(|group| group.number == self.synced_group + 1));
        assert!(self.groups.back().is_none_or(|group| group.number == self.last_group));
        assert!(self.record_group <= self.last_group, "records are in groups");
        assert!(self.marked_group <= self.synced_group, "a trailer claims only what is synced");
        // Records follow their groups.
        assert!(self.progress.synced_through <= self.progress.written_through);
        assert!(self.progress.written_through <= self.last_formed());
        assert!(self.forming_replicated <= self.forming.len());
        assert_eq!(self.forming.is_empty(), self.forming_bytes == 0);
        assert!(self.planned.is_none() || !self.forming.is_empty(), "a plan is for records");
        // Queues are bounded.
        assert!(self.flushes.len() <= 2, "one flush with records, one with none before it");
        assert!(self.flushes.iter().filter(|flush| flush.covers_records).count() <= 1);
        assert!(self.writes_in_flight() <= JOURNAL_WRITES_IN_FLIGHT_MAX);
        // Files.
        assert!(self.position <= self.options.file_bytes, "groups stay inside the file");
        assert!(self.announced <= self.files.oldest_live(), "no needed file is given away");
        assert!(self.closing.is_none() || !self.groups.is_empty(), "an end waits for its flush");
        self.files.assert_invariants();
    }

    /// Whether `ticket` belongs to a request of this journal, and its result to
    /// [`Journal::complete`].
    #[must_use]
    pub fn owns(&self, ticket: DiskTicket) -> bool {
        self.tickets.contains_key(&ticket)
    }

    /// Takes the result of one of this journal's requests; tells how far everything has come.
    pub fn complete(&mut self, ticket: DiskTicket, result: DiskResult) -> JournalProgress {
        let pending = self.tickets.remove(&ticket).expect("the caller asked whether it is ours");
        match (pending, result) {
            (Pending::CreateSpare(slot), result) => {
                self.usage.spares_refused += u64::from(result.is_err());
                self.files.created(slot, result.is_ok());
            }
            (Pending::CarryRead(entry, salt), result) => {
                self.carry_read(&entry, salt, result);
            }
            (Pending::Write(_) | Pending::Flush(_), Err(error)) => {
                self.progress.failed.get_or_insert(error);
            }
            (Pending::Write(number), Ok(outcome)) => {
                assert_eq!(outcome, DiskOutcome::Done, "a write returns no data");
                let at = self.groups.iter().position(|group| group.number == number);
                let at = at.expect("a group is kept until it is synced, hence written");
                self.groups[at].written = true;
            }
            (Pending::Flush(through), Ok(outcome)) => {
                assert_eq!(outcome, DiskOutcome::Done, "a flush returns no data");
                let flush = self.flushes.pop_front().expect("its ticket was pending");
                assert_eq!(flush.through, through, "flushes complete in order");
                self.usage.flushes += 1;
                self.usage.flushes_with_records += u64::from(flush.covers_records);
                self.flushed_group = self.flushed_group.max(through);
            }
        }
        if self.progress.failed.is_none() {
            self.advance();
        }
        self.assert_invariants();
        self.progress.clone()
    }

    /// Draws the conclusions of completed writes and flushes.
    fn advance(&mut self) {
        for group in &self.groups {
            if group.number == self.written_group + 1 && group.written {
                self.written_group = group.number;
                self.progress.written_through = group.last_record;
                self.files.index(group.file, group.entries.clone());
            }
        }
        let synced = self.flushed_group.min(self.written_group);
        if synced == self.synced_group {
            return;
        }
        assert!(synced > self.synced_group, "the synced mark never goes back");
        self.synced_group = synced;
        while self.groups.front().is_some_and(|group| group.number <= synced) {
            let group = self.groups.pop_front().expect("it was there a line above");
            self.progress.synced_through = group.last_record;
            self.files.announced(group.oldest_live);
            if group.closes_file {
                self.open_next();
            }
        }
        self.files.forget_superseded(self.progress.synced_through);
        self.finish_carry();
        self.files.free_unneeded();
    }

    /// Forms one group if the policy allows. Returns whether it did.
    fn form(&mut self, out: &mut DiskSubmissions) -> bool {
        if self.closing.is_some() || self.writes_in_flight() >= JOURNAL_WRITES_IN_FLIGHT_MAX {
            return false;
        }
        let due = if self.forming.is_empty() { self.is_mark_due() } else { self.may_form() };
        if !due || (self.files.current_mut().is_none() && !self.open_first()) {
            return false;
        }
        let first_bytes = self.forming.front().map_or(0, |forming| forming.bytes);
        if aligned(first_bytes) + trailer_bytes(1) > self.file_left() {
            return self.close_file(out);
        }
        let count = self.count_for_group();
        self.write_group(count, None, out);
        true
    }

    /// Whether waiting records may become a group now.
    fn may_form(&self) -> bool {
        assert!(!self.forming.is_empty());
        self.booting
            || self.forming_replicated > 0
            || self.forming_bytes >= JOURNAL_GATHER_BYTES_MAX
            || !self.flushes.iter().any(|flush| flush.covers_records)
    }

    /// Whether an empty group is due: everything is durable, but the journal does not say so yet.
    fn is_mark_due(&self) -> bool {
        assert!(self.forming.is_empty(), "records bring their own trailer");
        let at_rest = self.groups.is_empty() && self.flushes.is_empty();
        self.resting && at_rest && self.is_unmarked()
    }

    /// Whether a trailer has something to say that none has said yet.
    pub(super) fn is_unmarked(&self) -> bool {
        let unmarked = self.record_group > self.marked_group || self.last_group == 0;
        unmarked || self.files.oldest_live() > self.announced
    }

    /// How many waiting records the next group takes.
    fn count_for_group(&self) -> usize {
        let left = self.file_left();
        let mut bytes = 0;
        let mut count = 0;
        for forming in self.forming.iter().take(JOURNAL_GROUP_RECORDS_MAX) {
            let with = bytes + forming.bytes;
            let fits = aligned(with) + trailer_bytes(count + 1) <= left;
            if !fits || (count > 0 && with > JOURNAL_GROUP_BYTES_MAX) {
                break;
            }
            bytes = with;
            count += 1;
        }
        assert!(count > 0 || self.forming.is_empty(), "the first record was seen to fit");
        count
    }

    /// Writes a group of the first `count` waiting records, which ends the file if `next` is set.
    fn write_group(&mut self, count: usize, next: Option<NextFile>, out: &mut DiskSubmissions) {
        let header = self.header_due.take();
        let offset = self.position;
        let current = self.files.current_mut().expect("opened by the caller");
        let (slot, salt, file) = (current.slot, current.salt, current.sequence);
        let first_entry = current.entries.len();
        let mut writer = GroupWriter::new(salt, self.previous);
        let first_record = self.last_formed().next();
        let mut last_record = self.last_formed();
        let mut flush_wanted = count == 0;
        let mut place = offset;
        for forming in self.forming.drain(..count) {
            assert_eq!(forming.sequence, last_record.next(), "records are written in sequence");
            writer.push(&forming);
            let eighths = u32::try_from(forming.bytes / 8).expect("shorter than a file");
            let entry = Entry {
                op: forming.record.op,
                sequence: forming.sequence,
                order: forming.order,
                offset: place,
                log: forming.record.log,
                eighths,
                kind: forming.record.kind,
            };
            self.files.note(file, entry, &forming.record);
            place += forming.bytes;
            last_record = forming.sequence;
            flush_wanted |= forming.level == Durability::Persisted;
            self.forming_bytes -= forming.bytes;
            self.forming_replicated -= usize::from(forming.level == Durability::Replicated);
        }
        if self.forming.is_empty() {
            self.planned = None;
        }
        let number = self.last_group + 1;
        let trailer = Trailer {
            group: number,
            synced_through: self.synced_group,
            group_offset: offset,
            first_record,
            oldest_live_file: self.files.oldest_live(),
            next,
            previous: self.previous,
            entries: Vec::new(),
        };
        let group = Group {
            number,
            last_record,
            bytes: 0,
            file,
            entries: first_entry..first_entry + count,
            oldest_live: trailer.oldest_live_file,
            flush_wanted,
            closes_file: next.is_some(),
            written: false,
        };
        self.marked_group = trailer.synced_through;
        self.announced = trailer.oldest_live_file;
        let (parts, bytes, previous) = writer.finish(trailer);
        self.previous = previous;
        if count > 0 {
            self.record_group = number;
        }
        self.submit_group(Group { bytes, ..group }, slot, header, parts, out);
        self.usage.records += count as u64;
        self.usage.groups_empty += u64::from(count == 0);
    }

    fn submit_group(
        &mut self,
        group: Group,
        slot: u32,
        header: Option<FileHeader>,
        group_parts: Vec<Bytes>,
        out: &mut DiskSubmissions,
    ) {
        assert_eq!(group.number, self.last_group + 1, "groups are numbered without gaps");
        let (mut offset, mut parts) = (self.position, group_parts);
        self.position += group.bytes;
        if let Some(header) = header {
            assert_eq!(offset, FILE_HEADER_BYTES, "the header goes with the first group");
            let block = Bytes::from(header.encode());
            parts.splice(..0, [block.clone(), block]);
            offset = 0;
        }
        let current = self.files.current_mut().expect("the group was formed for it");
        current.used = self.position;
        assert!(self.position <= self.options.file_bytes, "groups stay inside the file");
        let request = DiskRequest::Write { file: FileName::Journal(slot), offset, parts };
        let ticket = out.submit(DiskQueue::JournalWrite, request);
        self.tickets.insert(ticket, Pending::Write(group.number));
        self.last_group = group.number;
        self.usage.groups += 1;
        self.usage.bytes_written += self.position - offset;
        self.groups.push_back(group);
    }

    /// The last record that is in a group.
    fn last_formed(&self) -> RecordSeq {
        let waiting = self.forming.len() as u64;
        assert!(self.last_record.0 >= waiting);
        RecordSeq(self.last_record.0 - waiting)
    }

    /// Submits a flush if something needs one. Returns whether it did.
    fn flush(&mut self, out: &mut DiskSubmissions) -> bool {
        assert!(self.flushed_group <= self.last_group);
        let in_flight = self.flushes.back().map_or(self.flushed_group, |flush| flush.through);
        let busy = self.flushes.len() > 1 || self.flushes.iter().any(|flush| flush.covers_records);
        if busy || in_flight == self.last_group {
            return false;
        }
        // Nobody waits for parts of what a start carries over: one flush at the end of each file.
        if self.booting && !self.forming.is_empty() && self.closing.is_none() {
            return false;
        }
        let open = || self.groups.iter().filter(|group| group.number > in_flight);
        let wanted = open().any(|group| group.flush_wanted)
            || open().map(|group| group.bytes).sum::<u64>() >= JOURNAL_FLUSH_BYTES_MAX
            || (self.resting && self.forming.is_empty() && self.writes_in_flight() == 0);
        if !wanted {
            return false;
        }
        let covers_records = open().any(|group| !group.entries.is_empty());
        let slot = self.files.current_mut().expect("its groups are not synced yet").slot;
        let request = DiskRequest::Sync { file: FileName::Journal(slot) };
        let ticket = out.submit(DiskQueue::JournalFlush, request);
        self.tickets.insert(ticket, Pending::Flush(self.last_group));
        self.flushes.push_back(Flush { through: self.last_group, covers_records });
        true
    }

    pub(super) fn writes_in_flight(&self) -> usize {
        self.groups.iter().filter(|group| !group.written).count()
    }

    /// Ends the current file with a trailer that names the next one.
    fn close_file(&mut self, out: &mut DiskSubmissions) -> bool {
        // A mark alone does not justify a file beyond the limits; admitted records do.
        if self.forming.is_empty() && self.files.openable(false) == 0 {
            return false;
        }
        let Some(slot) = self.files.take_spare() else { return false };
        let next = NextFile { slot, salt: self.salt(slot, self.files.next_sequence()) };
        self.write_group(0, Some(next), out);
        assert!(self.closing.is_none(), "a file ends once");
        self.closing = Some(next);
        if let Some(planned) = &mut self.planned {
            // The first of the files that were planned to be opened has its slot now.
            planned.files = planned.files.saturating_sub(1);
        }
        true
    }

    /// The end of the current file is durable: the next one begins.
    fn open_next(&mut self) {
        let next = self.closing.take().expect("a closing group was synced");
        assert!(self.groups.is_empty(), "nothing follows a closing group");
        self.files.current_mut().expect("it was being written").sealed = true;
        self.carry_due = true;
        self.open(next);
    }

    fn open_first(&mut self) -> bool {
        assert_eq!(self.last_group, 0, "later files are opened by closing groups");
        assert!(self.files.live().is_empty(), "it is the first");
        let Some(slot) = self.files.take_spare() else { return false };
        self.open(NextFile { slot, salt: self.salt(slot, 0) });
        true
    }

    fn open(&mut self, next: NextFile) {
        assert!(self.header_due.is_none(), "the header of the file before has been written");
        let file_sequence = self.files.open(next.slot, next.salt);
        assert_eq!(next.salt, self.salt(next.slot, file_sequence), "drawn when it was announced");
        self.position = FILE_HEADER_BYTES;
        self.header_due = Some(FileHeader {
            cluster: self.identity.cluster,
            generation: self.identity.generation,
            nonce: self.identity.nonce,
            file_sequence,
            shard: self.identity.shard,
            slot: next.slot,
            file_bytes: self.options.file_bytes,
            salt: next.salt,
            first_group: self.last_group + 1,
            first_record: self.last_formed().next(),
            previous: self.previous,
        });
        assert!(self.file_left() + BLOCK + FILE_HEADER_BYTES == self.options.file_bytes);
    }
}
