//! The shard journal: one append-only stream of records per shard, shared by all its logs.
//!
//! Records travel in *flush groups*; one write and at most one flush serve everything that was
//! appended while the previous flush was in flight. See `docs/internals/data-files.md` for the
//! layout and `docs/internals/recovery.md` for what a start makes of it.
//!
//! Invariants:
//! - A record counts as written when its group and every group before it have been written, and
//!   as synced when a flush that started after those writes has completed.
//! - Bytes once written are never written again in the same life of a file.
//! - A file is flushed before the first group of the next one is written.
//! - A file is reused only after a durable trailer has said that it is not needed.
//! - After a failed write or flush nothing advances and nothing is emitted any more.
//!
//! Crash argument: a group is one write of sectors nobody wrote before, so a crash can only lose
//! or tear what no flush has covered; everything acknowledged at `persisted` is covered. The last
//! flush before a rest is followed by an empty group whose trailer says so, hence a sector that is
//! later found bad below that mark was damaged, not torn.

mod carry;
mod drive;
mod files;
pub(crate) mod group;
pub mod layout;
mod record;
#[cfg(test)]
mod tests;

pub use record::{JournalRecord, RecordClass, RecordKind, RecordLocation, RecordSeq, Retention};

use crate::disk::{DiskError, DiskTicket, FileName, aligned};
use borzoi_types::checksum::{xxh3_64_seeded, xxh3_128_seeded};
use borzoi_types::limits::{DISK_ALIGNMENT, JOURNAL_FILE_BYTES, JOURNAL_FILES_MAX};
use borzoi_types::{Body, ClusterId, Durability, LogId, Op, ShardId};
use bytes::Bytes;
use carry::Carry;
use drive::{Flush, Group, Pending};
use files::{Files, bytes_of};
use group::Forming;
use layout::{FILE_HEADER_BYTES, FileHeader, NextFile, RECORD_HEADER_BYTES, RecordHeader};
use std::collections::{BTreeMap, VecDeque};

const BLOCK: u64 = DISK_ALIGNMENT as u64;

/// Room that no record may take: for the mark after the last one, and for the empty group that
/// says which files are not needed any more when that has become the only way on.
const MARKS_BYTES: u64 = 2 * BLOCK;

/// Sizes of one shard's journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Length of each file; a multiple of the disk alignment. The largest record must fit.
    pub file_bytes: u64,
    /// Files that may hold live records at once; at least 2. Together with spares there are at most
    /// twice as many, and two.
    pub files_max: u32,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { file_bytes: JOURNAL_FILE_BYTES, files_max: JOURNAL_FILES_MAX }
    }
}

impl JournalOptions {
    /// Bytes of one file that groups may take: all but the header and the closing trailer.
    pub(crate) fn usable_bytes(&self) -> u64 {
        assert!(self.file_bytes.is_multiple_of(BLOCK), "files are whole blocks");
        assert!(self.file_bytes >= FILE_HEADER_BYTES + 8 * BLOCK, "a file holds a few groups");
        self.file_bytes - FILE_HEADER_BYTES - BLOCK
    }

    /// Largest encoded record.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.usable_bytes() - layout::trailer_bytes(1)
    }

    /// What only records of the reserved class may use.
    fn reserved_bytes(&self) -> u64 {
        self.file_bytes / 2
    }

    /// What may be carried forward out of one file: it must fit the reserved share twice.
    fn carry_bytes_max(&self) -> u64 {
        self.file_bytes / 4
    }
}

/// How far the journal has come, in record sequence numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalProgress {
    /// Every record up to this one has been handed to the kernel: level `replicated` holds.
    pub written_through: RecordSeq,
    /// Every record up to this one is durable: level `persisted` holds.
    pub synced_through: RecordSeq,
    /// A write or flush failed. Nothing advances any more; the process must stop.
    pub failed: Option<DiskError>,
}

/// Why a record was not taken. Nothing changed; the record can be offered again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The journal has no room for this class of records until something is released.
    #[error("the journal is full ({bytes_used} of {bytes_capacity} bytes)")]
    Full {
        /// Bytes of live files.
        bytes_used: u64,
        /// Bytes that the journal may use.
        bytes_capacity: u64,
    },
    /// The record does not fit into one file; it never will.
    #[error("a record of {bytes} bytes exceeds the largest of {bytes_max}")]
    TooLarge {
        /// Encoded size of the record.
        bytes: u64,
        /// Largest encoded size.
        bytes_max: u64,
    },
    /// A write or flush has failed; the process must stop.
    #[error("the journal has failed: {0}")]
    Failed(DiskError),
}

/// How urgently the journal wants its logs to checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Enough room.
    Normal,
    /// These logs keep the oldest file alive: checkpoint and release them.
    CheckpointWanted(Vec<LogId>),
    /// As above, and records of the normal class are refused until something is released.
    Full(Vec<LogId>),
}

/// Counters of one journal, since this process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalUsage {
    /// Bytes in live files that are taken.
    pub bytes_used: u64,
    /// Bytes the journal may use before everything is refused.
    pub bytes_capacity: u64,
    /// Files with live records.
    pub files_live: u32,
    /// Zero-filled or released files at hand.
    pub files_spare: u32,
    /// Groups written, empty ones included.
    pub groups: u64,
    /// Groups without records: synced marks and ends of files.
    pub groups_empty: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Flushes completed that covered at least one record.
    pub flushes_with_records: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written, padding and trailers included.
    pub bytes_written: u64,
    /// Records carried forward out of files that were to be reused.
    pub records_carried: u64,
    /// Files that could not be carried forward because a record could not be read back.
    pub carries_failed: u64,
    /// Spare files that the disk refused to make.
    pub spares_refused: u64,
}

/// Which journal this is; stands in the header of each of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalIdentity {
    pub cluster: ClusterId,
    pub generation: u64,
    pub nonce: u64,
    pub shard: ShardId,
    pub salt_seed: u64,
}

/// What the records that wait will take, at most: files to open, and room left in the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Planned {
    files: u64,
    left: u64,
}

/// The journal of one shard in one generation. Made by
/// [`begin_generation`](crate::generation::begin_generation).
#[derive(Debug)]
pub struct Journal {
    identity: JournalIdentity,
    options: JournalOptions,
    files: Files,
    /// Appended, not yet in a group.
    forming: VecDeque<Forming>,
    forming_bytes: u64,
    forming_replicated: usize,
    /// Present while `forming` is not empty.
    planned: Option<Planned>,
    last_record: RecordSeq,
    /// Checksum of the last record in a group.
    previous: u128,
    /// Where the next group goes in the current file.
    position: u64,
    header_due: Option<FileHeader>,
    /// Formed, not yet synced.
    groups: VecDeque<Group>,
    last_group: u64,
    written_group: u64,
    flushed_group: u64,
    synced_group: u64,
    /// Highest group with records.
    record_group: u64,
    /// Highest synced mark that has been put in a trailer.
    marked_group: u64,
    /// Oldest live file as the newest trailer names it.
    announced: u64,
    flushes: VecDeque<Flush>,
    /// The current file has ended; this one follows when the end is durable.
    closing: Option<NextFile>,
    carry: Option<Carry>,
    carry_due: bool,
    tickets: BTreeMap<DiskTicket, Pending>,
    booting: bool,
    /// Nothing has been appended for a while: flushes that nobody waits for, and groups that only
    /// move the synced mark, are made now. Under load they would stand in the way of records.
    resting: bool,
    progress: JournalProgress,
    usage: JournalUsage,
}

impl Journal {
    /// An empty journal in `booting` mode, with `spares` to write to and new slots minted from
    /// `slot_next` in steps of `slot_stride`.
    pub(crate) fn start(
        identity: JournalIdentity,
        options: JournalOptions,
        spares: Vec<u32>,
        slot_next: u32,
        slot_stride: u32,
    ) -> Self {
        assert!(options.usable_bytes() > 0, "checks the options");
        assert!(identity.generation > 0, "generation 0 has no journal");
        Self {
            identity,
            options,
            files: Files::new(options, spares, slot_next, slot_stride),
            forming: VecDeque::new(),
            forming_bytes: 0,
            forming_replicated: 0,
            planned: None,
            last_record: RecordSeq::ZERO,
            previous: 0,
            position: 0,
            header_due: None,
            groups: VecDeque::new(),
            last_group: 0,
            written_group: 0,
            flushed_group: 0,
            synced_group: 0,
            record_group: 0,
            marked_group: 0,
            announced: 0,
            flushes: VecDeque::new(),
            closing: None,
            carry: None,
            carry_due: false,
            tickets: BTreeMap::new(),
            booting: true,
            resting: true,
            progress: JournalProgress::default(),
            usage: JournalUsage::default(),
        }
    }

    /// Hands back the spares that booting did not use.
    pub(crate) fn take_spares(&mut self) -> Vec<u32> {
        assert!(self.booting && self.is_idle(), "spares are shared only while booting");
        self.files.take_spares()
    }

    /// Spares that this journal keeps at most: as many as it makes while it runs, so that a start
    /// neither unlinks files that are filled with zeros again later, nor has fewer than carrying
    /// everything over once more takes.
    pub(crate) fn spares_max(&self) -> usize {
        assert!(self.booting && self.is_idle(), "what is carried is what is needed");
        let (live, files_max) = (self.files.live().len(), self.options.files_max as usize);
        (2 * files_max + 2).saturating_sub(live).max(live + 2)
    }

    /// Ends `booting` mode: the superblock names this generation now.
    pub(crate) fn finish_boot(&mut self, spares: impl IntoIterator<Item = u32>) {
        assert!(self.is_idle() && self.last_group > 0, "everything carried is durable");
        assert_eq!(self.progress.written_through, self.progress.synced_through);
        assert!(self.progress.failed.is_none(), "a start that failed begins nothing");
        self.files.add_spares(spares);
        self.files.finish_boot();
        self.booting = false;
    }

    /// Takes `record` into the forming group; nothing is written before [`Journal::drive`].
    ///
    /// # Errors
    /// [`AppendError`]; the record was not taken.
    pub fn append(
        &mut self,
        record: JournalRecord,
        level: Durability,
        class: RecordClass,
    ) -> Result<RecordSeq, AppendError> {
        if let Some(error) = &self.progress.failed {
            return Err(AppendError::Failed(error.clone()));
        }
        let bytes = bytes_of(&record);
        let bytes_max = self.options.record_bytes_max();
        if bytes > bytes_max || u32::try_from(record.header.len()).is_err() {
            return Err(AppendError::TooLarge { bytes, bytes_max });
        }
        let Some(planned) = self.plan(bytes, class) else {
            let usage = self.usage();
            let (bytes_used, bytes_capacity) = (usage.bytes_used, usage.bytes_capacity);
            return Err(AppendError::Full { bytes_used, bytes_capacity });
        };
        Ok(self.enqueue(record, level, None, planned))
    }

    /// Appends a record of the previous generation, or a copy with its old `order`, without
    /// regard to shares: at boot the spares are what there is.
    pub(crate) fn append_carried(
        &mut self,
        record: JournalRecord,
    ) -> Result<RecordSeq, AppendError> {
        assert!(self.booting, "only a start carries a generation over");
        let (bytes, bytes_max) = (bytes_of(&record), self.options.record_bytes_max());
        if bytes > bytes_max {
            return Err(AppendError::TooLarge { bytes, bytes_max });
        }
        let planned = self.planned_now();
        Ok(self.enqueue(record, Durability::Persisted, None, planned))
    }

    fn enqueue(
        &mut self,
        record: JournalRecord,
        level: Durability,
        order: Option<RecordSeq>,
        planned: Planned,
    ) -> RecordSeq {
        let sequence = self.last_record.next();
        let order = order.unwrap_or(sequence);
        assert!(order <= sequence, "a copy is younger than its original");
        self.last_record = sequence;
        let bytes = bytes_of(&record);
        self.forming_bytes += bytes;
        self.forming_replicated += usize::from(level == Durability::Replicated);
        self.forming.push_back(Forming { record, level, sequence, order, bytes });
        self.planned = Some(planned);
        assert!(bytes > 0 && bytes <= self.options.record_bytes_max(), "checked before");
        assert!(self.progress.failed.is_none(), "nothing is taken after a failure");
        assert!(self.forming_replicated <= self.forming.len());
        sequence
    }

    /// Whether a record of `header_bytes` and `body_bytes` would be taken now.
    #[must_use]
    pub fn has_room(&self, header_bytes: usize, body_bytes: usize, class: RecordClass) -> bool {
        let bytes = layout::record_bytes(header_bytes as u64, body_bytes as u64);
        self.progress.failed.is_none()
            && bytes <= self.options.record_bytes_max()
            && self.plan(bytes, class).is_some()
    }

    /// What is planned once a record of `bytes` is taken, if `class` admits it. Every record is
    /// charged as if it were a group of its own, which is the most it can take.
    fn plan(&self, bytes: u64, class: RecordClass) -> Option<Planned> {
        let charge = aligned(bytes) + BLOCK;
        let usable = self.options.usable_bytes();
        assert!(charge <= usable, "checked against the largest record");
        let mut planned = self.planned_now();
        if charge <= planned.left {
            planned.left -= charge;
        } else {
            planned = Planned { files: planned.files + 1, left: usable - charge };
        }
        let more = self.files.openable(self.closing.is_some()).checked_sub(planned.files)?;
        let left = planned.left + more * usable;
        assert!(planned.left <= usable, "no more than a file");
        let enough = match class {
            RecordClass::Normal => left >= self.options.reserved_bytes(),
            RecordClass::Reserved => left >= MARKS_BYTES,
        };
        enough.then_some(planned)
    }

    fn planned_now(&self) -> Planned {
        if let Some(planned) = self.planned {
            assert!(!self.forming.is_empty(), "a plan is for records that wait");
            return planned;
        }
        let usable = self.options.usable_bytes();
        let left = match (self.closing, self.position) {
            // The slot of the next file has been taken already.
            (Some(_), _) => usable,
            (None, 0) => 0,
            (None, _) => self.file_left(),
        };
        assert!(left <= usable);
        Planned { files: 0, left }
    }

    /// Bytes that groups may still take in the current file.
    fn file_left(&self) -> u64 {
        assert!(self.position >= FILE_HEADER_BYTES, "a file is open");
        let end = self.options.file_bytes - BLOCK;
        assert!(self.position <= end, "room for the closing trailer is always kept");
        end - self.position
    }

    /// How far everything has come.
    #[must_use]
    pub fn progress(&self) -> &JournalProgress {
        &self.progress
    }

    /// Says whether the journal's shard has been without appends for a while.
    pub const fn set_resting(&mut self, resting: bool) {
        self.resting = resting;
    }

    /// Whether something is left to do as soon as the journal rests: a flush that nobody waits for,
    /// or a group that moves the synced mark.
    #[must_use]
    pub fn wants_rest(&self) -> bool {
        assert!(self.flushed_group <= self.last_group);
        !self.resting
            && self.progress.failed.is_none()
            && (self.flushed_group < self.last_group || self.is_unmarked())
    }

    /// Sequence of the last record appended.
    #[must_use]
    pub fn last_record(&self) -> RecordSeq {
        self.last_record
    }

    /// Whether nothing waits and nothing is in flight that an acknowledgement could wait for:
    /// everything appended is durable and below the synced mark.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.forming.is_empty() && self.groups.is_empty() && self.flushes.is_empty()
    }

    /// The records of `log` with operations up to `through` are not needed any more: they are
    /// contained in durable checkpoints. Never goes back.
    pub fn release(&mut self, log: LogId, through: Op) {
        assert!(!self.booting, "a start releases nothing");
        self.files.release(log, through);
        if self.files.free_unneeded() {
            // What was checkpointed may have freed space elsewhere, too.
            self.files.blocked = false;
        }
        self.carry_due = true;
    }

    /// Tries again to make spare files after the disk refused one. Call it now and then.
    pub fn retry_spares(&mut self) {
        self.files.blocked = false;
    }

    /// Where the newest written prepare of `log` with this `op` lies, if the journal holds one.
    #[must_use]
    pub fn locate(&self, log: LogId, op: Op) -> Option<RecordLocation> {
        let (file, entry) = self.files.locate(log, op)?;
        assert!(entry.offset >= FILE_HEADER_BYTES && entry.offset < self.options.file_bytes);
        assert!(entry.offset + entry.bytes() <= self.options.file_bytes, "whole inside its file");
        Some(RecordLocation {
            file: FileName::Journal(file.slot),
            offset: entry.offset,
            bytes: entry.bytes(),
            sequence: entry.sequence,
            salt: file.salt,
        })
    }

    /// Verifies the `bytes` read from `location`. `None` if they are damaged or if the file has
    /// been reused since.
    #[must_use]
    pub fn decode_located(
        &self,
        location: &RecordLocation,
        bytes: &Bytes,
    ) -> Option<JournalRecord> {
        let decoded = decode_record(bytes, location.salt)?;
        (decoded.header.sequence == location.sequence).then_some(decoded.record)
    }

    /// How urgently checkpoints are wanted.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let live = self.files.live();
        let Some(oldest) = live.front() else { return Pressure::Normal };
        let logs = || self.files.blockers(oldest).collect();
        let some = (self.options.record_bytes_max() / 16).min(1024 * 1024);
        if self.plan(some, RecordClass::Normal).is_none() {
            return Pressure::Full(logs());
        }
        if live.len() >= 2.max(self.options.files_max as usize / 2) {
            return Pressure::CheckpointWanted(logs());
        }
        Pressure::Normal
    }

    /// Counters.
    #[must_use]
    pub fn usage(&self) -> JournalUsage {
        let live = self.files.live();
        let small = |n: usize| u32::try_from(n).expect("files are few");
        assert!(self.usage.groups >= self.usage.groups_empty, "empty groups are groups");
        assert!(self.usage.flushes >= self.usage.flushes_with_records, "and flushes flushes");
        JournalUsage {
            bytes_used: live.iter().map(|file| file.used).sum(),
            bytes_capacity: u64::from(self.options.files_max) * self.options.file_bytes,
            files_live: small(live.len()),
            files_spare: small(self.files.spares()),
            ..self.usage
        }
    }

    /// Largest header and body, together, of one record.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.options.record_bytes_max() - RECORD_HEADER_BYTES as u64
    }

    /// The salt of the file with this place in the journal: random because its seed is.
    fn salt(&self, slot: u32, file_sequence: u64) -> u64 {
        let mut place = [0u8; 32];
        place[..8].copy_from_slice(&self.identity.generation.to_le_bytes());
        place[8..16].copy_from_slice(&file_sequence.to_le_bytes());
        place[16..20].copy_from_slice(&slot.to_le_bytes());
        place[20..22].copy_from_slice(&self.identity.shard.get().to_le_bytes());
        place[24..].copy_from_slice(&self.identity.nonce.to_le_bytes());
        xxh3_64_seeded(self.identity.salt_seed, &place)
    }
}

/// A record that was read back.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub header: RecordHeader,
    /// Checksum of the header, which names the record.
    pub checksum: u128,
    pub record: JournalRecord,
}

/// A record out of bytes that start with its header, verified whole. Its parts share `bytes`.
pub(crate) fn decode_record(bytes: &Bytes, salt: u64) -> Option<Decoded> {
    let (header, checksum) = RecordHeader::decode(bytes, salt)?;
    let header_end = RECORD_HEADER_BYTES.checked_add(header.header_bytes as usize)?;
    let end = header_end.checked_add(usize::try_from(header.body_bytes).ok()?)?;
    if end > bytes.len() {
        return None;
    }
    if xxh3_128_seeded(salt, &bytes[RECORD_HEADER_BYTES..end]) != header.content {
        return None;
    }
    let record = JournalRecord {
        kind: header.kind,
        log: header.log,
        op: header.op,
        header: bytes.slice(RECORD_HEADER_BYTES..header_end),
        body: Body::from(bytes.slice(header_end..end)),
    };
    assert_eq!(bytes_of(&record), header.record_bytes(), "one formula on both sides");
    assert!(end <= bytes.len() && header_end <= end, "inside what was read");
    Some(Decoded { header, checksum, record })
}
