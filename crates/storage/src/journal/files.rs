//! Which files a journal lives in, what is still needed of each, and which can be reused.
//!
//! Files are freed strictly oldest first. A freed file becomes a spare only when a durable trailer
//! says that it is not needed any more: otherwise recovery, finding it overwritten in part, would
//! take it for a damaged part of the journal.
//!
//! Spares serve two purposes: the journal grows into them, and a restart rewrites the live
//! records into them, even on a full disk. So once the disk refuses new ones there are always as
//! many as there are files with something needed in them.

use super::JournalOptions;
use super::layout::record_bytes;
use super::record::{JournalRecord, RecordKind, RecordSeq, Retention};
use borzoi_types::{LogId, Op};
use std::collections::{BTreeMap, VecDeque};

/// A record in a live file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub op: Op,
    pub sequence: RecordSeq,
    pub order: RecordSeq,
    pub offset: u64,
    pub log: LogId,
    pub eighths: u32,
    pub kind: RecordKind,
}

/// A file with records that may be needed.
#[derive(Clone, Debug)]
pub(crate) struct LiveFile {
    pub sequence: u64,
    pub slot: u32,
    pub salt: u64,
    /// Bytes taken.
    pub used: u64,
    /// No more groups follow, and the last one is durable.
    pub sealed: bool,
    /// Everything needed has been carried forward, durably.
    pub carried: bool,
    pub entries: Vec<Entry>,
    needs: BTreeMap<LogId, Op>,
}

/// The newest state record of one log and kind, kept in memory so that it can be carried forward.
#[derive(Clone, Debug)]
pub(crate) struct NewestRecord {
    pub record: JournalRecord,
    pub sequence: RecordSeq,
    pub order: RecordSeq,
    pub file: u64,
}

#[derive(Clone, Copy, Debug)]
struct Indexed {
    file: u64,
    entry: usize,
    order: RecordSeq,
}

/// All files of one journal.
#[derive(Debug)]
pub(crate) struct Files {
    options: JournalOptions,
    live: VecDeque<LiveFile>,
    /// Freed, but no durable trailer says so yet: (file sequence, slot).
    freed: VecDeque<(u64, u32)>,
    spares: VecDeque<u32>,
    released: BTreeMap<LogId, Op>,
    newest: BTreeMap<(LogId, RecordKind), Vec<NewestRecord>>,
    index: BTreeMap<LogId, BTreeMap<Op, Indexed>>,
    next_sequence: u64,
    slot_next: u32,
    slot_stride: u32,
    /// Slot that is being filled with zeros.
    creating: Option<u32>,
    /// A spare was wanted and none was there.
    starved: bool,
    /// The disk refused a new file; none is asked for until something changes.
    pub blocked: bool,
    /// Live files that there may be. None while a start carries over whatever there is; above the
    /// option only after a start that merged the journals of several shards, and then it comes
    /// down with the files that are freed.
    live_max: Option<usize>,
}

impl Files {
    pub(crate) fn new(
        options: JournalOptions,
        spares: Vec<u32>,
        slot_next: u32,
        slot_stride: u32,
    ) -> Self {
        assert!(slot_stride > 0, "shards mint slots without meeting");
        assert!(options.files_max >= 2, "one file is written while another is released");
        Self {
            options,
            live: VecDeque::new(),
            freed: VecDeque::new(),
            spares: spares.into(),
            released: BTreeMap::new(),
            newest: BTreeMap::new(),
            index: BTreeMap::new(),
            next_sequence: 0,
            slot_next,
            slot_stride,
            creating: None,
            starved: false,
            blocked: false,
            live_max: None,
        }
    }

    /// A start has carried over what there was: from here on growth is bounded.
    pub(crate) fn finish_boot(&mut self) {
        assert!(self.live_max.is_none(), "a journal starts once");
        self.live_max = Some(self.live_max_from(usize::MAX));
    }

    /// The bound for live files, given the one before: the option, or two more than are live. With
    /// two more a journal that is beyond the option can still take what frees it.
    fn live_max_from(&self, before: usize) -> usize {
        let option = self.options.files_max as usize;
        let bound = option.max(before.min(self.live.len() + 2));
        assert!(bound >= option && bound <= before.max(option), "the bound comes down only");
        bound
    }

    /// What holds between any two calls.
    pub(crate) fn assert_invariants(&self) {
        let mut place = self.oldest_live();
        for file in &self.live {
            assert_eq!(file.sequence, place, "live files follow each other");
            assert!(file.sealed || file.sequence + 1 == self.next_sequence, "one is open");
            assert!(!self.spares.contains(&file.slot), "a live file is not a spare");
            assert!(self.freed.iter().all(|(_, slot)| *slot != file.slot), "nor freed");
            place += 1;
        }
        assert_eq!(place, self.next_sequence, "up to the newest");
        let oldest = self.oldest_live();
        assert!(self.freed.iter().all(|(sequence, _)| *sequence < oldest), "oldest first");
        assert!(self.creating.is_none_or(|slot| !self.spares.contains(&slot)));
        assert!(self.newest.values().all(|records| !records.is_empty()));
    }

    pub(crate) fn live(&self) -> &VecDeque<LiveFile> {
        &self.live
    }

    pub(crate) fn spares(&self) -> usize {
        self.spares.len()
    }

    pub(crate) fn add_spares(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.spares.extend(slots);
        let live = |slot: &u32| self.live.iter().any(|file| file.slot == *slot);
        assert!(!self.spares.iter().any(live), "a live file is not a spare");
    }

    pub(crate) fn take_spares(&mut self) -> Vec<u32> {
        assert!(self.freed.is_empty(), "nothing is released while booting");
        assert!(self.live_max.is_none() && self.creating.is_none(), "nor is anything on its way");
        std::mem::take(&mut self.spares).into()
    }

    /// Sequence of the oldest file that is needed, or of the next one if there is none.
    pub(crate) fn oldest_live(&self) -> u64 {
        self.live.front().map_or(self.next_sequence, |file| file.sequence)
    }

    /// Takes a spare for the next file.
    pub(crate) fn take_spare(&mut self) -> Option<u32> {
        assert!(self.live_max.is_none_or(|max| self.live.len() <= max + 2), "growth is bounded");
        let spare = self.spares.pop_front();
        self.starved = spare.is_none();
        assert!(spare.is_none_or(|slot| self.creating != Some(slot)), "a spare is whole");
        spare
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Opens the file in `slot` as the newest live one.
    pub(crate) fn open(&mut self, slot: u32, salt: u64) -> u64 {
        assert!(self.live.back().is_none_or(|file| file.sealed), "one file is written at a time");
        assert!(!self.spares.contains(&slot), "a live file is not a spare");
        assert!(self.live.iter().all(|file| file.slot != slot), "and live once");
        assert!(self.creating != Some(slot), "and whole");
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.live.push_back(LiveFile {
            sequence,
            slot,
            salt,
            used: 0,
            sealed: false,
            carried: false,
            entries: Vec::new(),
            needs: BTreeMap::new(),
        });
        sequence
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut LiveFile> {
        self.live.back_mut().filter(|file| !file.sealed)
    }

    pub(crate) fn file(&self, sequence: u64) -> Option<&LiveFile> {
        let first = self.live.front()?.sequence;
        assert!(first < self.next_sequence);
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        self.live.get(index).filter(|file| file.sequence == sequence)
    }

    /// Notes that a record of the file `sequence` is being written.
    pub(crate) fn note(&mut self, sequence: u64, entry: Entry, record: &JournalRecord) {
        assert_eq!(record.op, entry.op, "the entry is the record's");
        let file = self.live.back_mut().expect("a group belongs to an open file");
        assert_eq!(file.sequence, sequence, "groups are formed for the newest file");
        assert_eq!(entry.bytes(), bytes_of(record), "and of its size");
        assert_eq!((entry.log, entry.kind), (record.log, record.kind), "and of its log");
        let after = file.entries.last().is_none_or(|last| {
            last.sequence < entry.sequence && last.offset + last.bytes() <= entry.offset
        });
        assert!(after && !file.sealed, "records follow each other in an open file");
        match entry.kind.retention() {
            Retention::UntilReleased => {
                let need = file.needs.entry(entry.log).or_insert(entry.op);
                *need = (*need).max(entry.op);
            }
            Retention::Newest => {
                self.newest.entry((entry.log, entry.kind)).or_default().push(NewestRecord {
                    record: record.clone(),
                    sequence: entry.sequence,
                    order: entry.order,
                    file: sequence,
                });
            }
        }
        file.entries.push(entry);
    }

    /// Makes the entries of `range` in file `sequence` findable: they have been written.
    pub(crate) fn index(&mut self, sequence: u64, range: core::ops::Range<usize>) {
        let Some(first) = self.live.front().map(|file| file.sequence) else { return };
        let Some(at) = sequence.checked_sub(first) else { return };
        let Some(file) = self.live.get(usize::try_from(at).expect("few files")) else { return };
        assert!(range.end <= file.entries.len(), "the entries were noted when the group formed");
        for at in range {
            let entry = file.entries[at];
            if entry.kind != RecordKind::Prepare {
                continue;
            }
            assert!(entry.order <= entry.sequence, "a copy is younger than its original");
            let log = self.index.entry(entry.log).or_default();
            let indexed = Indexed { file: sequence, entry: at, order: entry.order };
            let place = log.entry(entry.op).or_insert(indexed);
            if place.order <= entry.order {
                *place = indexed;
            }
        }
    }

    /// The newest written prepare of `log` at `op`.
    pub(crate) fn locate(&self, log: LogId, op: Op) -> Option<(&LiveFile, Entry)> {
        let indexed = self.index.get(&log)?.get(&op)?;
        let file = self.file(indexed.file)?;
        let entry = file.entries[indexed.entry];
        assert!(entry.log == log && entry.op == op, "the index points at what it says");
        assert!(entry.offset + entry.bytes() <= file.used, "where something has been written");
        Some((file, entry))
    }

    /// Raises how far `log` is released.
    pub(crate) fn release(&mut self, log: LogId, through: Op) {
        let released = self.released.entry(log).or_insert(through);
        *released = (*released).max(through);
        assert!(self.released_through(log) >= through, "a release never goes back");
    }

    /// Forgets state records that a durable newer one replaces.
    pub(crate) fn forget_superseded(&mut self, synced: RecordSeq) {
        for records in self.newest.values_mut() {
            if records.len() < 2 {
                continue;
            }
            let durable = |record: &&NewestRecord| record.sequence <= synced;
            let best = records.iter().filter(durable).map(|r| (r.order, r.sequence)).max();
            if let Some(best) = best {
                assert!(best.1 <= synced, "only what is durable replaces anything");
                records.retain(|r| (r.order, r.sequence) >= best || r.sequence > synced);
            }
            assert!(!records.is_empty(), "the newest one stays");
        }
    }

    /// Frees files from the oldest on, as far as nothing of them is needed.
    pub(crate) fn free_unneeded(&mut self) -> bool {
        let mut any = false;
        while let Some(file) = self.live.front() {
            if !file.sealed || self.is_file_needed(file) {
                break;
            }
            let file = self.live.pop_front().expect("it was there a line above");
            assert!(file.sealed && file.sequence < self.next_sequence, "never the open file");
            for entry in &file.entries {
                if let Some(log) = self.index.get_mut(&entry.log)
                    && log.get(&entry.op).is_some_and(|place| place.file == file.sequence)
                {
                    log.remove(&entry.op);
                }
            }
            self.freed.push_back((file.sequence, file.slot));
            any = true;
        }
        self.live_max = self.live_max.map(|before| self.live_max_from(before));
        any
    }

    /// A trailer saying that files before `oldest_live` are not needed has become durable.
    pub(crate) fn announced(&mut self, oldest_live: u64) {
        while let Some(&(sequence, slot)) = self.freed.front() {
            if sequence >= oldest_live {
                break;
            }
            self.freed.pop_front();
            assert!(oldest_live <= self.oldest_live(), "no needed file is given away");
            assert!(!self.spares.contains(&slot), "a file is freed once");
            self.spares.push_back(slot);
        }
    }

    fn is_file_needed(&self, file: &LiveFile) -> bool {
        let held = self.blockers(file).next().is_some();
        !file.carried && (held || self.newest_in(file.sequence).next().is_some())
    }

    /// Logs that still need prepares or reservations of `file`, with the op they need.
    pub(crate) fn blockers<'a>(&'a self, file: &'a LiveFile) -> impl Iterator<Item = LogId> + 'a {
        file.needs
            .iter()
            .filter(|&(&log, &op)| op > self.released_through(log))
            .map(|(&log, _)| log)
    }

    /// State records whose newest durable version lies in the file `sequence`.
    pub(crate) fn newest_in(&self, sequence: u64) -> impl Iterator<Item = &NewestRecord> {
        self.newest.values().flatten().filter(move |record| record.file == sequence)
    }

    /// Whether `entry` is needed until a release.
    pub(crate) fn is_needed(&self, entry: &Entry) -> bool {
        entry.kind.retention() == Retention::UntilReleased
            && entry.op > self.released_through(entry.log)
    }

    pub(crate) fn mark_carried(&mut self, sequence: u64) {
        let file = self.live.front_mut().expect("a file is carried while it is live");
        assert_eq!(file.sequence, sequence, "only the oldest file is carried");
        assert!(file.sealed && !file.carried, "whole, and once");
        file.carried = true;
        // Its own state records have durable copies in newer files now.
        for records in self.newest.values_mut() {
            records.retain(|record| record.file != sequence);
        }
        self.newest.retain(|_, records| !records.is_empty());
        assert!(self.newest_in(sequence).next().is_none(), "nothing of it is needed");
    }

    fn released_through(&self, log: LogId) -> Op {
        self.released.get(&log).copied().unwrap_or(Op::ZERO)
    }

    /// Files that could be opened now, beyond the live ones and one that is about to be.
    pub(crate) fn openable(&self, opening: bool) -> u64 {
        let live = self.live.len() + usize::from(opening);
        let allowed = self.live_max.map_or(usize::MAX, |max| max.saturating_sub(live));
        let spares = self.spares.len();
        let by_spares = if self.blocked {
            // A restart must find room for what is needed: opening n files leaves `spares - n`
            // for `needed + n`.
            let needed = self.live.iter().filter(|file| self.is_file_needed(file)).count();
            spares.saturating_sub(needed) / 2
        } else {
            spares
        };
        allowed.min(by_spares) as u64
    }

    /// A slot to fill with zeros now, if spares are wanted and none is being made. A start makes
    /// only what it cannot do without.
    pub(crate) fn create_spare(&mut self, at_boot: bool) -> Option<u32> {
        // A node that writes little is content with few; one that fills its file gets more ahead.
        let filling = self.live.back().is_some_and(|file| file.used > self.options.file_bytes / 4);
        let ahead = if filling { 3 } else { 1 };
        let target = if at_boot { usize::from(self.starved) } else { self.live.len() + ahead };
        let total_max = self.live_max.map_or(usize::MAX, |max| 2 * max + 2);
        let have = self.spares.len() + self.freed.len();
        let total = have + self.live.len();
        if self.creating.is_some() || self.blocked || have >= target || total >= total_max {
            return None;
        }
        let slot = self.slot_next;
        self.slot_next = slot.checked_add(self.slot_stride).expect("2^32 files were never made");
        assert!(self.slot_next > slot && !self.spares.contains(&slot), "a slot is new");
        self.creating = Some(slot);
        Some(slot)
    }

    /// The slot asked for by [`Self::create_spare`] is ready, or was refused.
    pub(crate) fn created(&mut self, slot: u32, ok: bool) {
        assert_eq!(self.creating, Some(slot), "one file is made at a time");
        self.creating = None;
        assert!(!self.spares.contains(&slot), "it is new");
        if ok {
            self.spares.push_back(slot);
        } else {
            // Nothing has used the slot: it is the next one to try again.
            self.slot_next = slot;
            self.blocked = true;
        }
    }
}

impl Entry {
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.eighths) * 8
    }
}

/// Length of `record` in a group.
pub(crate) fn bytes_of(record: &JournalRecord) -> u64 {
    record_bytes(record.header.len() as u64, record.body.len() as u64)
}
