//! Reading a data directory back: what is there, what is damaged, what may be trusted.
//!
//! Reading changes nothing: whatever a start decides is written by
//! [`begin_generation`](crate::generation::begin_generation), so a crash during recovery is no
//! case of its own. The decisions about single records are the lettered table in [`table`].
//!
//! Invariants:
//! - Every journal of the live generation is read, whatever shard wrote it and however many
//!   shards there are now.
//! - What was durable is never cut: it is returned, named as faulty, or a solo node refuses.
//! - The identity of the disk can only lower trust, never raise it.

mod assemble;
mod scan;
pub mod table;
#[cfg(test)]
mod tests;

use crate::disk::{Directory, Disk, DiskError, DiskIdentity, FileName};
use crate::journal::layout::{FILE_HEADER_BYTES, FileHeader, HeaderRead, JOURNAL_VERSION};
use crate::journal::{JournalRecord, RecordKind};
use crate::superblock::{self, SUPERBLOCK_COPIES, SUPERBLOCK_VERSION, Superblock, SuperblockError};
use assemble::{Assembly, Head, Node};
use borzoi_types::limits::DISK_ALIGNMENT;
use borzoi_types::{LogId, Op, ShardId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

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
    /// A damaged record that nobody needs: a checkpoint contains its operation.
    Covered {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
        /// The log.
        log: LogId,
        /// The operation.
        op: Op,
    },
    /// A record (of a replicated log) that a trailer above the synced mark names and that is not
    /// readable, to be repaired.
    Unknown {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
        /// The log.
        log: LogId,
        /// The operation.
        op: Op,
    },
    /// Damage of which nobody can say what it was: every log must learn from its peers.
    DamagedNameless {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
        /// In words.
        what: String,
    },
    /// A copy of the superblock, a journal header or a trailer was bad; something else served.
    Repairable {
        /// File.
        file: FileName,
        /// Position.
        offset: u64,
    },
    /// A checkpoint is damaged; an older one serves. Its file is set aside.
    CheckpointDamaged {
        /// The file.
        file: FileName,
        /// In words.
        what: String,
    },
    /// Files Borzoi did not name, left alone.
    Strays(Vec<String>),
}

impl core::fmt::Display for Finding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Torn { file, offset } => {
                write!(f, "{file} ends at byte {offset}; what follows was never confirmed")
            }
            Self::SetAside { file, offset, log, op, aside } => write!(
                f,
                "{file} was cut at byte {offset}, at operation {op} of log {log}, which may have \
                 been confirmed at level replicated; the bytes are kept in {aside}"
            ),
            Self::Damaged { file, offset, log, op } => write!(
                f,
                "{file} is damaged at byte {offset}: operation {op} of log {log} is fetched from a \
                 peer"
            ),
            Self::Covered { file, offset, log, op } => write!(
                f,
                "{file} is damaged at byte {offset}: operation {op} of log {log}, which a \
                 checkpoint contains; nothing is lost, look after the disk"
            ),
            Self::Unknown { file, offset, log, op } => write!(
                f,
                "{file} is not readable at byte {offset}: operation {op} of log {log} is asked for \
                 at all peers"
            ),
            Self::DamagedNameless { file, offset, what } => write!(
                f,
                "{file} is damaged at byte {offset}: {what}; every log learns from its peers"
            ),
            Self::Repairable { file, offset } => write!(
                f,
                "{file} is damaged at byte {offset}, where a copy or its context served; nothing \
                 is lost, look after the disk"
            ),
            Self::CheckpointDamaged { file, what } => write!(
                f,
                "{file} is damaged ({what}); an older one served, nothing is lost; the file is \
                 kept in set-aside, look after the disk"
            ),
            Self::Strays(names) => {
                write!(f, "files that are not Borzoi's, left alone: {}", names.join(", "))
            }
        }
    }
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
    /// Whether something durable is damaged that nobody can name: no log of this node may nack
    /// or vote with what it holds before it has learned.
    pub damaged_nameless: bool,
    /// Per log what was found.
    pub logs: BTreeMap<LogId, RecoveredLog>,
    /// What to tell the operator.
    pub findings: Vec<Finding>,
    /// Highest sequence of any copy of the superblock.
    pub(crate) sequence_max: u64,
    /// All journal files with their lengths.
    pub(crate) slots: BTreeMap<u32, u64>,
    /// Those that the live generation needs.
    pub(crate) live: BTreeSet<u32>,
    /// Per shard of the live generation, the oldest file that is needed.
    pub(crate) oldest_files: Vec<u64>,
    /// Bytes a solo node cut off, to be kept.
    pub(crate) aside: Vec<(FileName, Bytes)>,
    /// Replacements that a crash interrupted.
    pub(crate) unfinished: Vec<FileName>,
}

/// Why a node cannot start from this directory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The directory is empty: format it first.
    #[error("the data directory is not formatted")]
    NotFormatted,
    /// The directory has no superblock but holds something else.
    #[error(
        "the data directory holds files of another program, for example {example:?}; nothing was \
         changed: give an empty directory, or one that Borzoi has formatted"
    )]
    Foreign {
        /// One of the names found.
        example: String,
    },
    /// The directory holds data of Borzoi and no superblock.
    #[error(
        "superblock is missing, and the data directory holds data, for example {example}; nothing \
         was changed: put the file `superblock` back from a backup of this directory, or move \
         the directory away to start empty"
    )]
    SuperblockMissing {
        /// One of the files found.
        example: FileName,
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
    /// Written with features that this build does not know.
    #[error("the data directory uses features {unknown:#x}, which this build does not know")]
    Features {
        /// The unknown feature bits.
        unknown: u64,
    },
    /// Too few copies of the superblock agree.
    #[error(
        "superblock is damaged: of its {copies} copies {intact} are intact, and no two of them \
         agree; nothing was changed: put the file `superblock` back from a backup of this \
         directory, or move the directory away to start empty"
    )]
    SuperblockDamaged {
        /// Copies that are intact.
        intact: usize,
        /// Copies that were written.
        copies: usize,
    },
    /// A record of a solo node that was durable is damaged.
    #[error(
        "{file} is damaged at byte {offset}: {what}; nothing was changed: restore the data \
         directory from a backup, or move it away to start empty"
    )]
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
/// Changes nothing on disk.
///
/// # Errors
/// [`RecoveryError`]: the node must not start.
pub fn recover(disk: &mut dyn Disk) -> Result<Recovered, RecoveryError> {
    let read = match superblock::read(disk) {
        Ok(read) => read,
        Err(error) => return Err(superblock_error(disk, error)),
    };
    let superblock = read.superblock;
    let identity = disk.identity();
    let mut found = Assembly::default();
    for copy in read.damaged {
        let offset = (copy * DISK_ALIGNMENT) as u64;
        found.findings.push(Finding::Repairable { file: FileName::Superblock, offset });
    }
    let unfinished = list_root(disk, &mut found)?;
    let slots = read_slots(disk, &superblock)?;
    let trusted = superblock.boot_id.is_some()
        && superblock.boot_id == identity.boot_id
        && (superblock.device, superblock.inode) == (identity.device, identity.inode)
        && !superblock.write_failed;
    let node = Node { solo: superblock.is_solo(), trusted, generation: superblock.generation };
    let mut oldest_files = Vec::new();
    for shard in (0..superblock.shards).map(ShardId) {
        let heads: BTreeMap<u64, Head> = slots
            .heads
            .iter()
            .filter(|head| head.header.shard == shard)
            .map(|head| (head.header.file_sequence, *head))
            .collect();
        let known = superblock.oldest_files[usize::from(shard.get())];
        let oldest = found.add_shard(disk, shard, &heads, known, node)?;
        oldest_files.push(oldest);
    }
    assert!(superblock.shards > 0 || superblock.generation == 0);
    assert_eq!(oldest_files.len(), usize::from(superblock.shards), "one per shard");
    assert!(found.live.iter().all(|slot| slots.bytes.contains_key(slot)), "live files exist");
    assert!(superblock.is_solo() || found.aside.is_empty(), "only a solo node cuts what is named");
    Ok(Recovered {
        trusted: trusted && !found.distrust && !found.nameless,
        damaged_nameless: found.nameless,
        logs: found.logs,
        findings: found.findings,
        sequence_max: read.sequence_max,
        slots: slots.bytes,
        live: found.live.into_iter().collect(),
        aside: found.aside,
        oldest_files,
        unfinished,
        superblock,
        identity,
    })
}

fn superblock_error(disk: &mut dyn Disk, error: SuperblockError) -> RecoveryError {
    let file = FileName::Superblock;
    match error {
        SuperblockError::Absent => match occupied(disk) {
            Ok(None) => RecoveryError::NotFormatted,
            Ok(Some(Occupied::Stray(example))) => RecoveryError::Foreign { example },
            Ok(Some(Occupied::Own(example))) => RecoveryError::SuperblockMissing { example },
            Err(error) => RecoveryError::Disk(error),
        },
        SuperblockError::Foreign => RecoveryError::Foreign { example: file.path() },
        SuperblockError::Version(found) => {
            RecoveryError::Version { file, found, supported: SUPERBLOCK_VERSION }
        }
        SuperblockError::Features(unknown) => RecoveryError::Features { unknown },
        SuperblockError::Damaged { intact } => {
            RecoveryError::SuperblockDamaged { intact, copies: SUPERBLOCK_COPIES }
        }
        SuperblockError::Disk(error) => RecoveryError::Disk(error),
    }
}

/// What keeps a directory without superblock from being taken for a new one.
pub(crate) enum Occupied {
    /// Something that Borzoi did not name.
    Stray(String),
    /// Borzoi's own files: data that somebody may still want.
    Own(FileName),
}

/// Something in a directory without superblock that keeps it from being taken for a new one.
pub(crate) fn occupied(disk: &mut dyn Disk) -> Result<Option<Occupied>, DiskError> {
    let mut stray = disk.list(Directory::Root)?.strays.into_iter().next();
    for directory in [Directory::Journal, Directory::Checkpoints, Directory::Segments] {
        let listing = disk.list(directory)?;
        let own = listing.files.into_iter().find(|file| !matches!(file, FileName::Unfinished(_)));
        if let Some(example) = own {
            return Ok(Some(Occupied::Own(example)));
        }
        stray = stray.or_else(|| listing.strays.into_iter().next());
    }
    Ok(stray.map(Occupied::Stray))
}

fn list_root(disk: &mut dyn Disk, found: &mut Assembly) -> Result<Vec<FileName>, DiskError> {
    let mut strays = Vec::new();
    let mut unfinished = Vec::new();
    for directory in [Directory::Root, Directory::Journal, Directory::Checkpoints] {
        let listing = disk.list(directory)?;
        strays.extend(listing.strays);
        unfinished
            .extend(listing.files.into_iter().filter(|f| matches!(f, FileName::Unfinished(_))));
    }
    assert!(unfinished.iter().all(|file| *file != FileName::Superblock));
    if !strays.is_empty() {
        found.findings.push(Finding::Strays(strays));
    }
    Ok(unfinished)
}

struct Slots {
    /// Length of every journal file.
    bytes: BTreeMap<u32, u64>,
    /// Headers of those that belong to the live generation.
    heads: Vec<Head>,
}

fn read_slots(disk: &mut dyn Disk, superblock: &Superblock) -> Result<Slots, RecoveryError> {
    let mut slots = Slots { bytes: BTreeMap::new(), heads: Vec::new() };
    for file in disk.list(Directory::Journal)?.files {
        let FileName::Journal(slot) = file else { continue };
        let bytes = disk.len(&file)?.unwrap_or(0);
        slots.bytes.insert(slot, bytes);
        if superblock.generation == 0 || bytes < FILE_HEADER_BYTES {
            continue;
        }
        let data = disk.read(&file, 0, FILE_HEADER_BYTES)?;
        let mut ours = None;
        let mut intact = 0;
        for block in data.chunks(DISK_ALIGNMENT) {
            match FileHeader::decode(block) {
                HeaderRead::Header(header) => {
                    let same = header.cluster == superblock.cluster
                        && header.generation == superblock.generation
                        && header.nonce == superblock.nonce
                        && header.slot == slot;
                    intact += usize::from(same);
                    ours = ours.or(same.then_some(header));
                }
                HeaderRead::Version(found) => {
                    return Err(RecoveryError::Version { file, found, supported: JOURNAL_VERSION });
                }
                HeaderRead::None => {}
            }
        }
        slots.heads.extend(ours.map(|header| Head { header, whole: intact == 2 }));
    }
    assert!(slots.heads.len() <= slots.bytes.len());
    let known = |head: &Head| slots.bytes.contains_key(&head.header.slot);
    assert!(slots.heads.iter().all(known), "a header lies in a file");
    Ok(slots)
}
