//! The shard journal: one append-only record stream per shard, shared by all its logs.
//!
//! See `docs/internals/data-files.md` for the layout.

mod record;

pub use record::{JournalRecord, RecordClass, RecordKind, RecordLocation, RecordSeq, Retention};

use crate::disk::{DiskError, DiskResult, DiskSubmissions, DiskTicket};
use borzoi_types::{Durability, LogId, Op};
use bytes::Bytes;

/// Sizes of one shard's journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// Length of each file; a multiple of the disk alignment. The largest record must fit.
    pub file_bytes: u64,
    /// Files that may hold live records at once. As many and one more are kept as spares.
    pub files_max: u32,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { file_bytes: borzoi_types::limits::JOURNAL_FILE_BYTES, files_max: 6 }
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
    /// Flushes completed.
    pub flushes: u64,
    /// Records appended.
    pub records: u64,
    /// Bytes written, padding and trailers included.
    pub bytes_written: u64,
    /// Records carried forward out of files that were to be reused.
    pub records_carried: u64,
}

/// The journal of one shard in one generation. Made by
/// [`begin_generation`](crate::generation::begin_generation).
#[derive(Debug)]
pub struct Journal {
    progress: JournalProgress,
}

impl Journal {
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
        let _ = (record, level, class);
        Err(AppendError::Full { bytes_used: 0, bytes_capacity: 0 })
    }

    /// Whether a record of `header_bytes` and `body_bytes` would be taken now.
    #[must_use]
    pub fn has_room(&self, header_bytes: usize, body_bytes: usize, class: RecordClass) -> bool {
        let _ = (header_bytes, body_bytes, class);
        false
    }

    /// Emits what should be written and flushed now. Call it once per batch of events, after the
    /// appends, and after every [`Journal::complete`].
    pub fn drive(&mut self, out: &mut DiskSubmissions) {
        assert!(out.is_empty() || self.progress.failed.is_none());
    }

    /// Whether `ticket` belongs to a request of this journal, and its result to
    /// [`Journal::complete`].
    #[must_use]
    pub fn owns(&self, ticket: DiskTicket) -> bool {
        let _ = ticket;
        false
    }

    /// Takes the result of one of this journal's requests; tells how far everything has come.
    pub fn complete(&mut self, ticket: DiskTicket, result: DiskResult) -> JournalProgress {
        let _ = (ticket, result);
        self.progress.clone()
    }

    /// How far everything has come.
    #[must_use]
    pub fn progress(&self) -> &JournalProgress {
        &self.progress
    }

    /// The records of `log` with operations up to `through` are not needed any more: they are
    /// contained in durable checkpoints. Never goes back.
    pub fn release(&mut self, log: LogId, through: Op) {
        let _ = (log, through);
    }

    /// Where the newest written prepare of `log` with this `op` lies, if the journal holds one.
    #[must_use]
    pub fn locate(&self, log: LogId, op: Op) -> Option<RecordLocation> {
        let _ = (log, op);
        None
    }

    /// Verifies the `bytes` read from `location`. `None` if they are damaged or if the file has
    /// been reused since.
    #[must_use]
    pub fn decode_located(
        &self,
        location: &RecordLocation,
        bytes: &Bytes,
    ) -> Option<JournalRecord> {
        let _ = (location, bytes);
        None
    }

    /// How urgently checkpoints are wanted.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        Pressure::Normal
    }

    /// Counters.
    #[must_use]
    pub fn usage(&self) -> JournalUsage {
        JournalUsage::default()
    }

    /// Largest header and body, together, of one record.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        0
    }
}
