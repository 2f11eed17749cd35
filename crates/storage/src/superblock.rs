//! The superblock: who this node is and which journal generation is live.
//!
//! Four copies, each in its own sector. A write goes to two of them, a sync, the other two, a sync;
//! a read takes the highest sequence that at least two intact copies carry.
//!
//! Crash argument: while the first two are being written the other two hold the old content; while
//! those are being written the first two are durable copies of the new. After a write that came to
//! half only two copies hold the newest content, and perhaps not the last two: so the copies that
//! do *not* hold it are written first. What a reader finds may rest on copies that were never
//! synced, so [`rewrite`] makes it durable before anything is done because of it.

use crate::disk::{Disk, DiskError, DiskRequest, FileName, execute};
use crate::journal::layout::Reader;
use borzoi_types::checksum::xxh3_128;
use borzoi_types::limits::{DISK_ALIGNMENT, LANES_MAX, SHARDS_MAX};
use borzoi_types::{ClusterId, LogId, ReplicaId};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Format of the superblock.
pub const SUPERBLOCK_VERSION: u32 = 1;

/// Copies in the file.
pub const SUPERBLOCK_COPIES: usize = 4;

/// Copies that must agree.
pub const SUPERBLOCK_QUORUM: usize = 2;

/// Features of the data directory that this build knows; none yet.
pub const FEATURES_KNOWN: u64 = 0;

const MAGIC: [u8; 8] = *b"BORZOISB";
const CHECKSUM_AT: usize = 112;
const BITMAP_AT: usize = 128;
const BITMAP_BYTES: usize = (LANES_MAX as usize + 1).div_ceil(64) * 8;
const OLDEST_FILES_AT: usize = BITMAP_AT + BITMAP_BYTES;
const CONTENT_BYTES: usize = OLDEST_FILES_AT + 8 * SHARDS_MAX as usize;
const FLAG_BOOT_ID: u8 = 1;
const FLAG_WRITE_FAILED: u8 = 2;

const _: () = assert!(CONTENT_BYTES <= DISK_ALIGNMENT, "one copy is one block");
const _: () = assert!(SUPERBLOCK_QUORUM * 2 == SUPERBLOCK_COPIES);

/// Content of the superblock; one copy is this, zero-filled to 4096 bytes.
///
/// ```text
///   0 magic "BORZOISB"      8 version u32          12 zero u32
///  16 cluster u128         32 sequence u64         40 generation u64
///  48 nonce u64            56 device u64           64 inode u64
///  72 boot id, 16 bytes    88 flags u8 (1 boot id present, 2 write failed)
///  89 replica u8           90 replica count u8     91 zero u8
///  92 persisted lanes u16  94 replicated lanes u16 96 shards u16   98 epoch u32, 102 zeros
/// 104 features u64
/// 112 checksum u128 of bytes 0..112 and 128..2312
/// 128 must-learn: one bit per log, log n is bit n % 8 of byte 128 + n / 8; up to byte 264
/// 264 oldest file u64 of each of 256 shards; up to byte 2312
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Rises with every write.
    pub sequence: u64,
    /// Which cluster incarnation this node belongs to.
    pub cluster: ClusterId,
    /// Which node of the roster this is.
    pub replica: ReplicaId,
    /// Size of the roster; 1 for a solo node.
    pub replica_count: u8,
    /// Lanes 1..=P have level `persisted`.
    pub lanes_persisted: u16,
    /// The following R lanes have level `replicated`.
    pub lanes_replicated: u16,
    /// The live journal generation; 0 before the first start.
    pub generation: u64,
    /// Which attempt to begin that generation held; its journal files carry it.
    pub nonce: u64,
    /// How often this node of the roster has joined its cluster with an empty directory: its
    /// generations begin again then, and peers tell the lives apart by this.
    pub epoch: u32,
    /// Shards that wrote the live generation; 0 before the first start.
    pub shards: u16,
    /// Boot in which the live generation began.
    pub boot_id: Option<[u8; 16]>,
    /// Device of the data directory when the live generation began.
    pub device: u64,
    /// Inode of the data directory when the live generation began.
    pub inode: u64,
    /// Whether a write or flush failed in the live generation: its unsynced tail is not trusted.
    pub write_failed: bool,
    /// Properties of the data directory that a build must know to open it.
    pub features: u64,
    /// Logs that must learn from a peer before they may vote with what they hold.
    pub must_learn: BTreeSet<LogId>,
    /// Per shard of the live generation: files of its journal before this one are not needed.
    /// Trailers say so too; this is what an interrupted start had read, made durable before it
    /// overwrote such files.
    pub oldest_files: Vec<u64>,
}

/// One copy, read back.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Copy {
    Intact(Box<Superblock>),
    Version(u32),
    Damaged,
    Foreign,
}

/// What the four copies say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockRead {
    /// What at least two intact copies say.
    pub superblock: Superblock,
    /// Highest sequence of any intact copy: the next write must be above it.
    pub sequence_max: u64,
    /// Copies that are not intact, 0-based. An interrupted write leaves some as well.
    pub damaged: Vec<usize>,
}

/// Why no superblock could be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// There is no such file.
    Absent,
    /// No copy has Borzoi's mark.
    Foreign,
    /// Another format version.
    Version(u32),
    /// Features this build does not know.
    Features(u64),
    /// Too few intact copies agree.
    Damaged {
        /// Copies that are intact.
        intact: usize,
    },
    /// The disk failed.
    Disk(DiskError),
}

impl Superblock {
    /// Whether this node is alone: nobody can repair what its disk loses.
    #[must_use]
    pub const fn is_solo(&self) -> bool {
        self.replica_count == 1
    }

    /// One copy, a whole block.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.replica.get() < self.replica_count, "the replica is one of the roster");
        assert!(self.shards <= SHARDS_MAX, "shards are bounded");
        let mut block = vec![0u8; DISK_ALIGNMENT];
        let mut put = |at: usize, field: &[u8]| block[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &SUPERBLOCK_VERSION.to_le_bytes());
        put(16, &self.cluster.get().to_le_bytes());
        put(32, &self.sequence.to_le_bytes());
        put(40, &self.generation.to_le_bytes());
        put(48, &self.nonce.to_le_bytes());
        put(56, &self.device.to_le_bytes());
        put(64, &self.inode.to_le_bytes());
        put(72, &self.boot_id.unwrap_or_default());
        let boot = if self.boot_id.is_some() { FLAG_BOOT_ID } else { 0 };
        let failed = if self.write_failed { FLAG_WRITE_FAILED } else { 0 };
        put(88, &[boot | failed, self.replica.get(), self.replica_count, 0]);
        put(92, &self.lanes_persisted.to_le_bytes());
        put(94, &self.lanes_replicated.to_le_bytes());
        put(96, &self.shards.to_le_bytes());
        put(98, &self.epoch.to_le_bytes());
        put(104, &self.features.to_le_bytes());
        for log in &self.must_learn {
            assert!(log.get() <= LANES_MAX, "there are no more logs than this");
            block[BITMAP_AT + log.get() as usize / 8] |= 1 << (log.get() % 8);
        }
        assert_eq!(self.oldest_files.len(), usize::from(self.shards), "one number per shard");
        for (shard, oldest) in self.oldest_files.iter().enumerate() {
            let at = OLDEST_FILES_AT + 8 * shard;
            block[at..at + 8].copy_from_slice(&oldest.to_le_bytes());
        }
        let checksum = checksum(&block);
        block[CHECKSUM_AT..BITMAP_AT].copy_from_slice(&checksum.to_le_bytes());
        Bytes::from(block)
    }

    fn decode(block: &[u8]) -> Copy {
        if block.len() < CONTENT_BYTES {
            return Copy::Damaged;
        }
        if block[..8] != MAGIC {
            return Copy::Foreign;
        }
        let read = Reader(block);
        if read.u32(8) != SUPERBLOCK_VERSION {
            return Copy::Version(read.u32(8));
        }
        if read.u128(CHECKSUM_AT) != checksum(block) {
            return Copy::Damaged;
        }
        let shards = read.u16(96);
        if shards > SHARDS_MAX {
            return Copy::Damaged;
        }
        let oldest = |shard: u16| read.u64(OLDEST_FILES_AT + 8 * usize::from(shard));
        let bit = |log: u32| block[BITMAP_AT + log as usize / 8] >> (log % 8) & 1 == 1;
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&block[72..88]);
        Copy::Intact(Box::new(Self {
            sequence: read.u64(32),
            cluster: ClusterId(read.u128(16)),
            replica: ReplicaId(block[89]),
            replica_count: block[90],
            lanes_persisted: read.u16(92),
            lanes_replicated: read.u16(94),
            generation: read.u64(40),
            nonce: read.u64(48),
            epoch: read.u32(98),
            shards,
            boot_id: (block[88] & FLAG_BOOT_ID != 0).then_some(boot_id),
            device: read.u64(56),
            inode: read.u64(64),
            write_failed: block[88] & FLAG_WRITE_FAILED != 0,
            features: read.u64(104),
            must_learn: (0..=LANES_MAX).filter(|log| bit(*log)).map(LogId).collect(),
            oldest_files: (0..shards).map(oldest).collect(),
        }))
    }

    /// The requests that replace the superblock by this one, to be executed in this order, each
    /// after the one before has succeeded: `order` names the copies as they are written. Its
    /// sequence must be above the one on disk.
    #[must_use]
    pub fn requests(&self, order: [usize; SUPERBLOCK_COPIES]) -> Vec<DiskRequest> {
        let copy = self.encode();
        assert_eq!(copy.len(), DISK_ALIGNMENT, "a copy is one block");
        let mut requests = Vec::with_capacity(SUPERBLOCK_COPIES + 2);
        for group in order.chunks(SUPERBLOCK_QUORUM) {
            for at in group {
                let offset = (at * DISK_ALIGNMENT) as u64;
                let (file, parts) = (FileName::Superblock, vec![copy.clone()]);
                requests.push(DiskRequest::Write { file, offset, parts });
            }
            requests.push(DiskRequest::Sync { file: FileName::Superblock });
        }
        requests
    }
}

fn checksum(block: &[u8]) -> u128 {
    assert!(block.len() >= CONTENT_BYTES, "checked by the callers");
    let mut content = [0u8; CHECKSUM_AT + CONTENT_BYTES - BITMAP_AT];
    content[..CHECKSUM_AT].copy_from_slice(&block[..CHECKSUM_AT]);
    content[CHECKSUM_AT..].copy_from_slice(&block[BITMAP_AT..CONTENT_BYTES]);
    xxh3_128(&content)
}

/// Reads the superblock.
///
/// # Errors
/// [`SuperblockError`].
pub fn read(disk: &mut dyn Disk) -> Result<SuperblockRead, SuperblockError> {
    choose(&copies(disk)?)
}

/// What each copy turns out to be.
fn copies(disk: &mut dyn Disk) -> Result<Vec<Copy>, SuperblockError> {
    let file = FileName::Superblock;
    if disk.len(&file).map_err(SuperblockError::Disk)?.is_none() {
        return Err(SuperblockError::Absent);
    }
    let bytes = (SUPERBLOCK_COPIES * DISK_ALIGNMENT) as u64;
    let data = disk.read(&file, 0, bytes).map_err(SuperblockError::Disk)?;
    let block = |copy: usize| {
        let start = (copy * DISK_ALIGNMENT).min(data.len());
        &data[start..(start + DISK_ALIGNMENT).min(data.len())]
    };
    Ok((0..SUPERBLOCK_COPIES).map(|copy| Superblock::decode(block(copy))).collect())
}

/// The copies in the order in which a rewrite takes them: those that do not hold what is read now,
/// then those that do.
fn order_of(copies: &[Copy]) -> [usize; SUPERBLOCK_COPIES] {
    let best = choose(copies).ok().map(|read| read.superblock);
    let holds = |at: usize| match &copies[at] {
        Copy::Intact(superblock) => best.as_ref().is_some_and(|best| **superblock == *best),
        _ => false,
    };
    let mut order = [0, 1, 2, 3];
    order.sort_by_key(|at| holds(*at));
    order
}

/// The decision of [`read`], over what each copy turned out to be.
fn choose(copies: &[Copy]) -> Result<SuperblockRead, SuperblockError> {
    assert_eq!(copies.len(), SUPERBLOCK_COPIES);
    if copies.iter().all(|copy| *copy == Copy::Foreign) {
        return Err(SuperblockError::Foreign);
    }
    let agree = |copy: &Copy| copies.iter().filter(|other| *other == copy).count();
    assert!(copies.iter().all(|copy| agree(copy) >= 1), "a copy agrees with itself");
    let best = copies
        .iter()
        .filter_map(|copy| match copy {
            Copy::Intact(superblock) if agree(copy) >= SUPERBLOCK_QUORUM => Some(superblock),
            _ => None,
        })
        .max_by_key(|superblock| superblock.sequence);
    let Some(best) = best else {
        for copy in copies {
            if let Copy::Version(version) = copy
                && agree(copy) >= SUPERBLOCK_QUORUM
            {
                return Err(SuperblockError::Version(*version));
            }
        }
        let intact = copies.iter().filter(|copy| matches!(copy, Copy::Intact(_))).count();
        return Err(SuperblockError::Damaged { intact });
    };
    if best.features & !FEATURES_KNOWN != 0 {
        return Err(SuperblockError::Features(best.features & !FEATURES_KNOWN));
    }
    let intact = |copy: &Copy| matches!(copy, Copy::Intact(_));
    let damaged: Vec<usize> =
        (0..SUPERBLOCK_COPIES).filter(|copy| !intact(&copies[*copy])).collect();
    let sequences = copies.iter().filter_map(|copy| match copy {
        Copy::Intact(superblock) => Some(superblock.sequence),
        _ => None,
    });
    let sequence_max = sequences.max().expect("the best one is among them");
    assert!(sequence_max >= best.sequence);
    assert!(damaged.len() <= SUPERBLOCK_COPIES - SUPERBLOCK_QUORUM, "two are intact and agree");
    Ok(SuperblockRead { superblock: (**best).clone(), sequence_max, damaged })
}

/// Writes `superblock` under the sequence after `above`; durable when it returns. Returns what
/// was written.
///
/// # Errors
/// The disk's; the old content or the new one will be read then.
pub fn rewrite(
    disk: &mut dyn Disk,
    superblock: &Superblock,
    above: u64,
) -> Result<Superblock, DiskError> {
    assert!(superblock.sequence <= above, "no copy on disk is newer than what was read");
    let mut next = superblock.clone();
    next.sequence = above.checked_add(1).expect("2^64 writes take centuries");
    let order = match copies(disk) {
        Ok(copies) => order_of(&copies),
        Err(SuperblockError::Disk(error)) => return Err(error),
        Err(_) => [0, 1, 2, 3],
    };
    for request in next.requests(order) {
        execute(disk, &request)?;
    }
    assert!(next.sequence > superblock.sequence, "so does every write");
    Ok(next)
}

/// Notes durably that a write or flush of a journal has failed in the live generation, so that the
/// next start does not trust its tail: pages of a failed flush may be gone although the machine
/// has not stopped. Called by whoever ends the process, as the last thing it does to the disk.
///
/// # Errors
/// [`SuperblockError`]; nothing more can be done about it then.
pub fn mark_write_failed(disk: &mut dyn Disk) -> Result<(), SuperblockError> {
    let found = read(disk)?;
    if found.superblock.write_failed {
        return Ok(());
    }
    let marked = Superblock { write_failed: true, ..found.superblock };
    let written = rewrite(disk, &marked, found.sequence_max).map_err(SuperblockError::Disk)?;
    assert!(written.write_failed && written.sequence > found.sequence_max);
    assert_eq!((written.generation, written.nonce), (marked.generation, marked.nonce));
    Ok(())
}

/// Writes the very first superblock: all four copies at once, or none.
///
/// # Errors
/// The disk's; there is no superblock then.
pub fn create(disk: &mut dyn Disk, superblock: &Superblock) -> Result<(), DiskError> {
    assert_eq!(superblock.generation, 0, "a new directory has no journal");
    assert_eq!(superblock.shards, 0, "nor anyone who wrote one");
    let copy = superblock.encode();
    disk.durable_replace(&FileName::Superblock, &vec![copy; SUPERBLOCK_COPIES])
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
