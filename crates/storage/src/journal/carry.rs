//! Carrying forward: what a stuck or idle log still needs of the oldest file is appended again, so
//! that the file can be reused and one log never stops its neighbours.
//!
//! A copy keeps the `order` of its original, so recovery puts it back in its old place. The file
//! counts as unneeded only when every copy is durable: until then the originals are still there.
//!
//! State records (newest per log and kind) are small and carried from memory as soon as nothing
//! else holds the file. Prepares are read back, only when files run short and only up to a bound.

use super::files::Entry;
use super::record::{JournalRecord, RecordClass, RecordSeq};
use super::{Journal, Pending, decode_record};
use crate::disk::{DiskOutcome, DiskQueue, DiskRequest, DiskResult, DiskSubmissions, FileName};
use borzoi_types::Durability;
use borzoi_types::limits::JOURNAL_CARRY_READS_MAX;
use std::collections::VecDeque;

/// The oldest file while its needed records are being appended again.
#[derive(Debug)]
pub(crate) struct Carry {
    file: u64,
    slot: u32,
    salt: u64,
    to_read: VecDeque<Entry>,
    reading: usize,
    /// The last copy.
    last: RecordSeq,
    /// Something could not be read or has no room: the file stays as it is.
    abandoned: bool,
}

impl Journal {
    /// Starts or continues carrying. Returns whether anything was appended.
    pub(super) fn drive_carry(&mut self, out: &mut DiskSubmissions) -> bool {
        assert!(self.progress.failed.is_none(), "nothing is emitted after a failure");
        let started = self.start_carry();
        let Some(carry) = &mut self.carry else { return started };
        while carry.reading < JOURNAL_CARRY_READS_MAX && !carry.abandoned {
            let Some(entry) = carry.to_read.pop_front() else { break };
            let file = FileName::Journal(carry.slot);
            let request = DiskRequest::Read { file, offset: entry.offset, bytes: entry.bytes() };
            let ticket = out.submit(DiskQueue::Pool, request);
            self.tickets.insert(ticket, Pending::CarryRead(entry, carry.salt));
            carry.reading += 1;
        }
        started
    }

    fn start_carry(&mut self) -> bool {
        if !self.carry_due || self.carry.is_some() || self.booting {
            return false;
        }
        self.carry_due = false;
        assert!(self.progress.failed.is_none(), "nothing is copied after a failure");
        let live = self.files.live();
        let Some(oldest) = live.front().filter(|file| file.sealed && !file.carried) else {
            return false;
        };
        let held = self.files.blockers(oldest).next().is_some();
        let short_of_files = live.len() + 1 >= self.options.files_max as usize;
        if live.len() < 2 || (held && !short_of_files) {
            return false;
        }
        let needed = oldest.entries.iter().filter(|entry| self.files.is_needed(entry));
        let to_read: VecDeque<Entry> = needed.copied().collect();
        let state: Vec<(JournalRecord, RecordSeq)> = self
            .files
            .newest_in(oldest.sequence)
            .map(|newest| (newest.record.clone(), newest.order))
            .collect();
        let bytes: u64 = to_read.iter().map(Entry::bytes).sum();
        if bytes > self.options.carry_bytes_max() || (to_read.is_empty() && state.is_empty()) {
            return false;
        }
        assert!(to_read.iter().all(|entry| entry.offset + entry.bytes() <= oldest.used));
        self.carry = Some(Carry {
            file: oldest.sequence,
            slot: oldest.slot,
            salt: oldest.salt,
            to_read,
            reading: 0,
            last: RecordSeq::ZERO,
            abandoned: false,
        });
        for (record, order) in state {
            self.append_copy(record, order);
        }
        true
    }

    /// One needed record has been read back.
    pub(super) fn carry_read(&mut self, entry: &Entry, salt: u64, result: DiskResult) {
        if self.progress.failed.is_some() {
            // A write failed while this was being read: nothing is appended any more.
            return;
        }
        let carry = self.carry.as_mut().expect("reads are pending only while a file is carried");
        assert!(carry.reading > 0, "one read returned");
        carry.reading -= 1;
        let record = match &result {
            Ok(DiskOutcome::Data(bytes)) => decode_record(bytes, salt)
                .filter(|decoded| decoded.header.sequence == entry.sequence)
                .map(|decoded| decoded.record),
            Ok(DiskOutcome::Done) | Err(_) => None,
        };
        match record {
            Some(record) => self.append_copy(record, entry.order),
            None => {
                carry.abandoned = true;
                self.usage.carries_failed += 1;
            }
        }
        self.finish_carry();
    }

    fn append_copy(&mut self, record: JournalRecord, order: RecordSeq) {
        let bytes = super::bytes_of(&record);
        assert!(order > RecordSeq::ZERO && bytes <= self.options.record_bytes_max());
        let planned = self.plan(bytes, RecordClass::Reserved);
        let carry = self.carry.as_mut().expect("copies are made while a file is carried");
        let Some(planned) = planned.filter(|_| !carry.abandoned) else {
            carry.abandoned = true;
            return;
        };
        let sequence = self.enqueue(record, Durability::Persisted, Some(order), planned);
        self.usage.records_carried += 1;
        let carry = self.carry.as_mut().expect("it was there a line above");
        assert!(sequence > carry.last, "copies are appended one after the other");
        carry.last = sequence;
    }

    /// Ends the carrying if it is complete or cannot be completed.
    pub(super) fn finish_carry(&mut self) {
        let Some(carry) = &self.carry else { return };
        if carry.reading > 0 || (!carry.abandoned && !carry.to_read.is_empty()) {
            return;
        }
        if carry.abandoned {
            self.carry = None;
        } else if carry.last <= self.progress.synced_through {
            let file = carry.file;
            assert!(carry.to_read.is_empty() && carry.reading == 0, "everything has a copy");
            assert!(self.files.oldest_live() >= file, "the oldest one was carried");
            self.carry = None;
            // A release may have freed the file in the meantime.
            if self.files.oldest_live() == file {
                self.files.mark_carried(file);
            }
            self.files.free_unneeded();
            self.carry_due = true;
        }
        assert!(self.progress.synced_through <= self.last_record);
    }
}
