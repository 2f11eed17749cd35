//! Formatting a data directory, and the switch to a new journal generation at every start.
//!
//! Crash argument, step by step:
//! 1. The superblock that recovery read is written again, all copies, together with which journal
//!    files recovery found to be needed, and the live journal files are synced: what recovery read
//!    may never have been synced, and step 3 overwrites files that would be needed again if a power
//!    loss took it back. (A sync alone is not enough: one that failed before the restart leaves
//!    pages that look clean and are on no disk.)
//! 2. What a solo node cut off is kept aside.
//! 3. The carried records are written into files the live generation does not need, and flushed,
//!    and a mark behind them. A crash up to here leaves generation g live and whole; the nonce in
//!    the headers keeps files of this attempt from being taken for those of the next one.
//! 4. One superblock write switches to g + 1.
//! 5. Only now the files of generation g become spares and leftovers are removed.

use crate::disk::{Disk, DiskError, DiskErrorKind, DiskSubmissions, FileName, execute};
use crate::journal::{AppendError, Journal, JournalIdentity, JournalOptions, JournalRecord};
use crate::recovery::{Occupied, Recovered, occupied};
use crate::superblock::{self, FEATURES_KNOWN, Superblock};
use borzoi_types::checksum::xxh3_64_seeded;
use borzoi_types::limits::{LANES_MAX, REPLICAS_MAX, SHARDS_MAX};
use borzoi_types::{ClusterId, LogId, ReplicaId, ShardId};
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
    /// It holds files already.
    #[error("the data directory is not empty: it holds {example:?}")]
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
    format_as(disk, options, 0)
}

/// As [`format`], for a node that joins its cluster for the `epoch`th time with an empty directory.
///
/// # Errors
/// As [`format`].
pub fn format_as(
    disk: &mut dyn Disk,
    options: &FormatOptions,
    epoch: u32,
) -> Result<(), FormatError> {
    let lanes = u32::from(options.lanes_persisted) + u32::from(options.lanes_replicated);
    assert!(lanes <= LANES_MAX, "the configuration bounds the lanes");
    assert!(usize::from(options.replica_count) <= REPLICAS_MAX, "and the roster");
    assert!(options.replica.get() < options.replica_count, "of which this node is one");
    if disk.len(&FileName::Superblock)?.is_some() {
        return Err(FormatError::AlreadyFormatted);
    }
    match occupied(disk)? {
        None => {}
        Some(Occupied::Stray(example)) => return Err(FormatError::Foreign { example }),
        Some(Occupied::Own(file)) => return Err(FormatError::Foreign { example: file.path() }),
    }
    let superblock = Superblock {
        sequence: 1,
        cluster: options.cluster,
        replica: options.replica,
        replica_count: options.replica_count,
        lanes_persisted: options.lanes_persisted,
        lanes_replicated: options.lanes_replicated,
        generation: 0,
        nonce: 0,
        epoch,
        shards: 0,
        boot_id: None,
        device: 0,
        inode: 0,
        write_failed: false,
        features: FEATURES_KNOWN,
        must_learn: options.must_learn.clone(),
        oldest_files: Vec::new(),
    };
    superblock::create(disk, &superblock)?;
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
    /// The disk failed; with `NoSpace`: there are fewer spare files than this start needs, and no
    /// room for more.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A generation that has begun.
#[derive(Debug)]
pub struct Begun {
    /// One journal per shard.
    pub journals: Vec<Journal>,
    /// The superblock as it is on disk now.
    pub superblock: Superblock,
    /// Bytes a solo node cut off that could not be kept because the disk is full.
    pub aside_lost: Vec<FileName>,
}

/// Begins the next generation: writes `carried[shard]` (in this order, every record that is not
/// contained in a checkpoint) into fresh files, flushes, switches the superblock, and only then
/// turns the files of the old generation into spares.
///
/// # Errors
/// [`GenerationError`]; before the switch nothing of the old generation has been touched.
pub fn begin_generation(
    disk: &mut dyn Disk,
    recovered: &Recovered,
    options: &GenerationOptions,
    carried: Vec<Vec<JournalRecord>>,
) -> Result<Begun, GenerationError> {
    assert!(options.shards > 0 && options.shards <= SHARDS_MAX, "the configuration bounds shards");
    assert_eq!(carried.len(), usize::from(options.shards), "one list of records per shard");
    let oldest_files = recovered.oldest_files.clone();
    let found = Superblock { oldest_files, ..recovered.superblock.clone() };
    let settled = superblock::rewrite(disk, &found, recovered.sequence_max)?;
    for slot in &recovered.live {
        disk.sync(&FileName::Journal(*slot))?;
    }
    let aside_lost = keep_aside(disk, recovered)?;

    assert!(settled.sequence > recovered.sequence_max, "newer than anything on the disk");
    let generation = settled.generation + 1;
    let nonce = xxh3_64_seeded(options.salt_seed, &generation.to_le_bytes());
    let mut slots = Slots::new(disk, recovered, options)?;
    let mut journals = Vec::with_capacity(carried.len());
    for (index, records) in carried.into_iter().enumerate() {
        let shard = ShardId(u16::try_from(index).expect("shards are bounded"));
        let identity = JournalIdentity {
            cluster: settled.cluster,
            generation,
            nonce,
            shard,
            salt_seed: options.salt_seed,
        };
        let spares = std::mem::take(&mut slots.free);
        let (next, stride) = (slots.next + u32::from(shard.get()), u32::from(options.shards));
        let mut journal = Journal::start(identity, options.journal, spares, next, stride);
        write_carried(disk, &mut journal, records, options.journal.file_bytes)?;
        slots.free = journal.take_spares();
        journals.push(journal);
    }

    let mut next = settled.clone();
    next.generation = generation;
    next.nonce = nonce;
    next.shards = options.shards;
    next.oldest_files = vec![0; usize::from(options.shards)];
    next.boot_id = recovered.identity.boot_id;
    next.device = recovered.identity.device;
    next.inode = recovered.identity.inode;
    next.write_failed = false;
    next.must_learn = options.must_learn.clone();
    assert!(journals.iter().all(Journal::is_idle), "everything carried is durable");
    let superblock = superblock::rewrite(disk, &next, settled.sequence)?;
    assert_eq!(superblock.generation, recovered.superblock.generation + 1);

    slots.deal(disk, recovered, options, &mut journals)?;
    Ok(Begun { journals, superblock, aside_lost })
}

/// Writes what a cut took from a solo node beside the data. A full disk does not stop a start.
fn keep_aside(disk: &mut dyn Disk, recovered: &Recovered) -> Result<Vec<FileName>, DiskError> {
    let mut lost = Vec::new();
    for (file, bytes) in &recovered.aside {
        assert!(!bytes.is_empty(), "a cut takes something");
        match disk.durable_replace(file, std::slice::from_ref(bytes)) {
            Ok(()) => {}
            Err(error) if error.kind == DiskErrorKind::NoSpace => lost.push(file.clone()),
            Err(error) => return Err(error),
        }
    }
    assert!(lost.len() <= recovered.aside.len());
    Ok(lost)
}

/// Appends `records`, and drives the journal until everything is durable and marked so.
fn write_carried(
    disk: &mut dyn Disk,
    journal: &mut Journal,
    records: Vec<JournalRecord>,
    file_bytes: u64,
) -> Result<(), GenerationError> {
    let count = records.len() as u64;
    assert!(journal.is_idle() && journal.last_record().0 == 0, "nothing was written before");
    for record in records {
        if let Err(error) = journal.append_carried(record) {
            match error {
                AppendError::TooLarge { bytes, .. } => {
                    return Err(GenerationError::RecordTooLarge { bytes, file_bytes });
                }
                AppendError::Failed(error) => return Err(error.into()),
                AppendError::Full { .. } => unreachable!("a start knows no shares"),
            }
        }
    }
    run_to_rest(disk, journal)?;
    assert_eq!(journal.progress().synced_through.0, count, "every record is durable");
    Ok(())
}

/// Executes what the journal wants until it wants nothing.
fn run_to_rest(disk: &mut dyn Disk, journal: &mut Journal) -> Result<(), DiskError> {
    let mut out = DiskSubmissions::new();
    loop {
        journal.drive(&mut out);
        if out.is_empty() {
            assert!(journal.is_idle(), "with a spare at hand a journal can always go on");
            return Ok(());
        }
        let submissions: Vec<_> = out.drain().collect();
        for submission in submissions {
            let result = execute(disk, &submission.request);
            // A start cannot go on without what it asked for, spare files included.
            if let Err(error) = &result {
                return Err(error.clone());
            }
            journal.complete(submission.ticket, result);
        }
    }
}

/// The journal files of the directory while a generation begins.
struct Slots {
    /// May be written now: not needed by the live generation, and of the right length.
    free: Vec<u32>,
    /// First slot that no file has.
    next: u32,
}

impl Slots {
    fn new(
        disk: &mut dyn Disk,
        recovered: &Recovered,
        options: &GenerationOptions,
    ) -> Result<Self, DiskError> {
        let mut free = Vec::new();
        for (&slot, &bytes) in &recovered.slots {
            if recovered.live.contains(&slot) {
                continue;
            }
            if bytes == options.journal.file_bytes {
                free.push(slot);
            } else {
                // Left half made by a crash, or of another size: not needed, and in the way.
                disk.remove(&FileName::Journal(slot))?;
            }
        }
        let next = recovered.slots.keys().next_back().map_or(0, |slot| slot + 1);
        assert!(free.iter().all(|slot| *slot < next));
        Ok(Self { free, next })
    }

    /// After the switch: the old generation's files become spares of the new journals, as many as
    /// each may have; others and interrupted replacements are removed.
    fn deal(
        mut self,
        disk: &mut dyn Disk,
        recovered: &Recovered,
        options: &GenerationOptions,
        journals: &mut [Journal],
    ) -> Result<(), DiskError> {
        let live = |slot: &u32| recovered.live.contains(slot);
        assert!(!self.free.iter().any(live), "what was live has not been touched");
        for slot in &recovered.live {
            if recovered.slots[slot] == options.journal.file_bytes {
                self.free.push(*slot);
            } else {
                disk.remove(&FileName::Journal(*slot))?;
            }
        }
        for file in &recovered.unfinished {
            disk.remove(file)?;
        }
        let mut dealt = vec![Vec::new(); journals.len()];
        let spares_max: Vec<usize> = journals.iter().map(|j| j.spares_max()).collect();
        for (index, slot) in self.free.into_iter().enumerate() {
            let index = index % journals.len();
            let spares: &mut Vec<u32> = &mut dealt[index];
            if spares.len() < spares_max[index] {
                spares.push(slot);
            } else {
                disk.remove(&FileName::Journal(slot))?;
            }
        }
        for ((journal, spares), max) in journals.iter_mut().zip(dealt).zip(spares_max) {
            assert!(spares.len() <= max);
            journal.finish_boot(spares);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
