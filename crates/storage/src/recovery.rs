//! Reading a data directory back: what is there, what is damaged, what may be trusted.

use crate::disk::{Disk, DiskError, DiskIdentity, FileName};
use crate::journal::{JournalRecord, RecordKind};
use crate::superblock::Superblock;
use borzoi_types::{LogId, Op};
use std::collections::BTreeMap;

/// A record that was found intact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredRecord {
    /// Its content.
    pub record: JournalRecord,
    /// Whether it lies at or below the synced mark S, that is: is proved to have been durable.
    pub below_mark: bool,
}

/// A record that was there and cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostRecord {
    /// What it was, as its group's trailer tells.
    pub kind: RecordKind,
    /// Its operation.
    pub op: Op,
    /// File in which it lies.
    pub file: FileName,
    /// Position in the file.
    pub offset: u64,
}

/// Everything the live generation holds of one log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveredLog {
    /// Intact records in the order in which they were first appended.
    pub records: Vec<RecoveredRecord>,
    /// Damaged at or below S: certainly once durable. Repaired from peers, never a nack.
    pub faulty: Vec<LostRecord>,
    /// Named by a trailer above S but not readable: repaired, never a nack, discarded only when
    /// every replica has answered and none holds it.
    pub unknown: Vec<LostRecord>,
}

/// Something a human should know about this start; never a reason to stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The journal was cut here: what follows was never durable.
    Torn {
        /// File that was cut.
        file: FileName,
        /// Position of the cut.
        offset: u64,
    },
    /// A solo node cut here although a trailer names the record; its bytes were set aside.
    SetAside {
        /// File that was cut.
        file: FileName,
        /// Position of the cut.
        offset: u64,
        /// The log of the first record that was cut.
        log: LogId,
        /// Its operation.
        op: Op,
        /// Where the bytes are kept.
        aside: FileName,
    },
    /// A damaged record (of a replicated log), to be repaired.
    Damaged {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
        /// The log.
        log: LogId,
        /// The operation.
        op: Op,
    },
    /// A copy of the superblock or a journal header was damaged; another one served.
    Repairable {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
    },
    /// Files Borzoi did not name, left alone.
    Strays(Vec<String>),
}

/// A data directory read back.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The superblock of the live generation.
    pub superblock: Superblock,
    /// Where the directory lies now.
    pub identity: DiskIdentity,
    /// Whether the tail above the synced mark can be relied upon to be complete (architecture,
    /// section 6.3). Per log it is lowered further by the superblock's must-learn flags.
    pub trusted: bool,
    /// Per log what was found.
    pub logs: BTreeMap<LogId, RecoveredLog>,
    /// What to tell the operator.
    pub findings: Vec<Finding>,
}

/// Why a node cannot start from this directory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The directory is empty: format it first.
    #[error("the data directory is not formatted")]
    NotFormatted,
    /// The directory has no superblock but holds something else.
    #[error("the data directory holds files of another program, for example {example:?}")]
    Foreign {
        /// One of the names found.
        example: String,
    },
    /// Written by a version of Borzoi that this one does not know.
    #[error("{file} has format version {found}; this build reads {supported}")]
    Version {
        /// The file.
        file: FileName,
        /// Its version.
        found: u32,
        /// The version this build reads.
        supported: u32,
    },
    /// Too few copies of the superblock agree.
    #[error("the superblock is damaged: {intact} of {copies} copies are intact and agree")]
    SuperblockDamaged {
        /// Copies that are intact.
        intact: usize,
        /// Copies that were written.
        copies: usize,
    },
    /// A record of a solo node that was durable is damaged.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        file: FileName,
        /// Position of the damage.
        offset: u64,
        /// The log and operation, if a trailer names them.
        named: Option<(LogId, Op)>,
        /// In words.
        what: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads the superblock and every journal of the live generation, whatever shard wrote it.
/// Changes nothing on disk except that it may add files to the set-aside directory.
///
/// # Errors
/// [`RecoveryError`]: the node must not start, and nothing has been changed.
pub fn recover(disk: &mut dyn Disk) -> Result<Recovered, RecoveryError> {
    let _ = disk.len(&FileName::Superblock)?;
    Err(RecoveryError::NotFormatted)
}
