//! Formatting a data directory, and the switch to a new journal generation at every start.

use crate::disk::{Disk, DiskError};
use crate::journal::{Journal, JournalOptions, JournalRecord};
use crate::recovery::Recovered;
use borzoi_types::{ClusterId, LogId, ReplicaId};
use std::collections::BTreeSet;

/// What is fixed when a directory is formatted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// The cluster incarnation.
    pub cluster: ClusterId,
    /// Which node of the roster.
    pub replica: ReplicaId,
    /// Size of the roster.
    pub replica_count: u8,
    /// Lanes of level `persisted`.
    pub lanes_persisted: u16,
    /// Lanes of level `replicated`.
    pub lanes_replicated: u16,
    /// Logs that start with the must-learn flag (a node that joins a formatted cluster).
    pub must_learn: BTreeSet<LogId>,
}

/// Why a directory was not formatted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// It already has a superblock.
    #[error("the data directory is already formatted")]
    AlreadyFormatted,
    /// It holds files that Borzoi did not write.
    #[error("the data directory holds files of another program, for example {example:?}")]
    Foreign {
        /// One of the names found.
        example: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Writes the superblock of a new node with generation 0 and no journal, durably.
///
/// # Errors
/// [`FormatError`]; a crash inside leaves a directory that can be formatted again.
pub fn format(disk: &mut dyn Disk, options: &FormatOptions) -> Result<(), FormatError> {
    let _ = (disk, options);
    Ok(())
}

/// What the new generation shall look like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GenerationOptions {
    /// Shards of this start.
    pub shards: u16,
    /// Sizes of each shard's journal.
    pub journal: JournalOptions,
    /// Logs that must learn from a peer; replaces the set in the superblock.
    pub must_learn: BTreeSet<LogId>,
    /// True randomness, new at every start: the salts of the journal files derive from it.
    pub salt_seed: u64,
}

/// Why a generation could not begin. The directory is as it was: the next start begins over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenerationError {
    /// A carried record does not fit a journal file of this size.
    #[error("a record of {bytes} bytes does not fit a journal file of {file_bytes} bytes")]
    RecordTooLarge {
        /// Encoded size of the record.
        bytes: u64,
        /// Length of a journal file.
        file_bytes: u64,
    },
    /// The disk failed; with `NoSpace`: more shards than there are spare files.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Begins the next generation: writes `carried[shard]` (in this order, every record that is not
/// contained in a checkpoint) into fresh files, flushes, switches the superblock, and only then
/// turns the files of the old generation into spares. Returns one journal per shard.
///
/// # Errors
/// [`GenerationError`]; before the switch nothing of the old generation has been touched.
pub fn begin_generation(
    disk: &mut dyn Disk,
    recovered: &Recovered,
    options: &GenerationOptions,
    carried: Vec<Vec<JournalRecord>>,
) -> Result<Vec<Journal>, GenerationError> {
    let _ = (disk, recovered, options, carried);
    Ok(Vec::new())
}
