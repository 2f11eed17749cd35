//! The seam to the disk: names of files, requests, results, and the trait that executes them.
//!
//! Purpose: storage decides *what* is written *when*; this module is the vocabulary in which it
//! says so. Steady state emits [`DiskRequest`]s into [`DiskSubmissions`] and gets a
//! [`DiskResult`] back per [`DiskTicket`]; boot calls the [`Disk`] trait directly. Both ends meet
//! in [`execute`], so the simulator and the real disk run the same code path.
//!
//! Invariants:
//! - Offsets of writes and their lengths are multiples of [`DISK_ALIGNMENT`].
//! - A name that was created is durable only after `sync` of that file, or `sync_names` of its
//!   directory; `create_zeroed`, `durable_replace`, `remove` and `set_aside` are durable when they
//!   return.
//! - After a failed `sync` the state of what was not synced before is unknown: it is never
//!   retried (architecture, section 6.2).

mod error;
mod name;

pub use error::{DiskError, DiskErrorKind, DiskOperation};
pub use name::{AsideName, Directory, FileName};

use borzoi_types::limits::DISK_ALIGNMENT;
use bytes::Bytes;

/// Identifies one submitted request; unique within one [`DiskSubmissions`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskTicket(pub u64);

/// Which worker executes a request, and hence what it is ordered against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DiskQueue {
    /// Writes of the shard's journal: one at a time, in order of submission.
    JournalWrite,
    /// Flushes of the shard's journal: one at a time, in order. A flush starts only when every
    /// `JournalWrite` request submitted before it has completed, and may run beside later ones.
    JournalFlush,
    /// Everything else: requests that name the same file run in order of submission, others in
    /// any order and at the same time.
    Pool,
}

/// One operation on one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskRequest {
    /// Creates `file` (replacing one of that name), `bytes` long and filled with written zeros,
    /// data and name durable at completion.
    CreateZeroed {
        /// The file.
        file: FileName,
        /// Its length; a multiple of [`DISK_ALIGNMENT`].
        bytes: u64,
    },
    /// Writes `parts` one after the other at `offset`, creating file and directories if absent.
    Write {
        /// The file.
        file: FileName,
        /// A multiple of [`DISK_ALIGNMENT`].
        offset: u64,
        /// Together a multiple of [`DISK_ALIGNMENT`] long, and not empty.
        parts: Vec<Bytes>,
    },
    /// Makes everything written to `file` before, its length and its name durable.
    Sync {
        /// The file.
        file: FileName,
    },
    /// Reads up to `bytes` at `offset`; shorter only at the end of the file.
    Read {
        /// The file.
        file: FileName,
        /// Any position.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Replaces the content of `file` at once: written beside, synced, renamed, directory synced.
    /// After a crash either the old or the new content is there, whole.
    DurableReplace {
        /// The file.
        file: FileName,
        /// The new content; any length.
        parts: Vec<Bytes>,
    },
    /// Unlinks `file`; durable at completion. A file that does not exist is not an error.
    Remove {
        /// The file.
        file: FileName,
    },
    /// Moves `file` to the set-aside directory; durable at completion.
    SetAside {
        /// The file.
        file: FileName,
    },
}

impl DiskRequest {
    /// The file the request is about.
    #[must_use]
    pub fn file(&self) -> &FileName {
        match self {
            Self::CreateZeroed { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Read { file, .. }
            | Self::DurableReplace { file, .. }
            | Self::Remove { file }
            | Self::SetAside { file } => file,
        }
    }
}

/// What a request that succeeded gives back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskOutcome {
    /// Nothing but success.
    Done,
    /// The bytes of a [`DiskRequest::Read`].
    Data(Bytes),
}

/// Result of one request.
pub type DiskResult = Result<DiskOutcome, DiskError>;

/// A request on its way to its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submission {
    /// Who executes it.
    pub queue: DiskQueue,
    /// Under which number its result comes back.
    pub ticket: DiskTicket,
    /// What to do.
    pub request: DiskRequest,
}

/// Where the state machines of one shard leave their requests; hands out the tickets.
#[derive(Debug, Default)]
pub struct DiskSubmissions {
    next_ticket: u64,
    waiting: Vec<Submission>,
}

impl DiskSubmissions {
    /// No requests yet; tickets count from zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { next_ticket: 0, waiting: Vec::new() }
    }

    /// Queues `request` and returns the ticket its result will carry.
    pub fn submit(&mut self, queue: DiskQueue, request: DiskRequest) -> DiskTicket {
        if let DiskRequest::Write { offset, parts, .. } = &request {
            assert_aligned_write(*offset, parts);
        }
        let ticket = DiskTicket(self.next_ticket);
        self.next_ticket = self.next_ticket.checked_add(1).expect("2^64 requests take centuries");
        let journal = matches!(request.file(), FileName::Journal(_));
        assert!(journal || queue == DiskQueue::Pool, "the journal's queues are the journal's");
        self.waiting.push(Submission { queue, ticket, request });
        ticket
    }

    /// Takes everything queued, in order of submission.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Submission> {
        self.waiting.drain(..)
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Where the data directory lives, as far as the system tells. Recovery compares it with what the
/// superblock recorded; a difference can only lower trust.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskIdentity {
    /// Identity of the running kernel boot; absent where the system has none.
    pub boot_id: Option<[u8; 16]>,
    /// Device number of the data directory.
    pub device: u64,
    /// Inode number of the data directory.
    pub inode: u64,
}

/// Content of one directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Files whose names Borzoi gave, in rising order.
    pub files: Vec<FileName>,
    /// Everything else in that directory, as paths relative to the data directory, in rising
    /// order. Never touched, only reported.
    pub strays: Vec<String>,
}

/// Executes file operations at once. Implemented by `runtime` for a real directory and by
/// `sim_disk` for tests and the simulator. Every method may fail with any [`DiskErrorKind`].
pub trait Disk {
    /// Up to `bytes` bytes at `offset`; shorter only at the end of the file.
    /// [`DiskErrorKind::NotFound`] if there is no such file.
    fn read(&mut self, file: &FileName, offset: u64, bytes: u64) -> Result<Bytes, DiskError>;

    /// See [`DiskRequest::Write`].
    fn write(&mut self, file: &FileName, offset: u64, parts: &[Bytes]) -> Result<(), DiskError>;

    /// See [`DiskRequest::Sync`].
    fn sync(&mut self, file: &FileName) -> Result<(), DiskError>;

    /// Makes the names in `directory` durable as they are now, whoever gave them: a process that
    /// was killed between a rename and the sync of its directory left a name that a power loss can
    /// take back. Not for segments, which have directories of their own.
    fn sync_names(&mut self, directory: Directory) -> Result<(), DiskError>;

    /// See [`DiskRequest::CreateZeroed`].
    fn create_zeroed(&mut self, file: &FileName, bytes: u64) -> Result<(), DiskError>;

    /// See [`DiskRequest::DurableReplace`].
    fn durable_replace(&mut self, file: &FileName, parts: &[Bytes]) -> Result<(), DiskError>;

    /// See [`DiskRequest::Remove`].
    fn remove(&mut self, file: &FileName) -> Result<(), DiskError>;

    /// Moves `file` to the set-aside directory under a name not in use there, which is returned.
    fn set_aside(&mut self, file: &FileName) -> Result<FileName, DiskError>;

    /// The files of one directory; an absent directory is an empty one.
    fn list(&mut self, directory: Directory) -> Result<Listing, DiskError>;

    /// Length in bytes, or `None` if there is no such file.
    fn len(&mut self, file: &FileName) -> Result<Option<u64>, DiskError>;

    /// Where this data directory lives.
    fn identity(&mut self) -> DiskIdentity;

    /// Bytes that can still be written, as the file system tells.
    fn free_bytes(&mut self) -> Result<u64, DiskError>;
}

/// Executes one request on `disk`.
///
/// # Errors
/// Whatever the operation on the disk failed with.
pub fn execute(disk: &mut dyn Disk, request: &DiskRequest) -> DiskResult {
    match request {
        DiskRequest::CreateZeroed { file, bytes } => {
            assert_eq!(*bytes % DISK_ALIGNMENT as u64, 0, "zeroed files are whole blocks");
            assert!(*bytes > 0, "an empty file is no use");
            disk.create_zeroed(file, *bytes)?;
        }
        DiskRequest::Write { file, offset, parts } => {
            assert_aligned_write(*offset, parts);
            disk.write(file, *offset, parts)?;
        }
        DiskRequest::Sync { file } => disk.sync(file)?,
        DiskRequest::Read { file, offset, bytes } => {
            let data = disk.read(file, *offset, *bytes)?;
            assert!(data.len() as u64 <= *bytes, "a read returns at most what was asked for");
            return Ok(DiskOutcome::Data(data));
        }
        DiskRequest::DurableReplace { file, parts } => disk.durable_replace(file, parts)?,
        DiskRequest::Remove { file } => disk.remove(file)?,
        DiskRequest::SetAside { file } => {
            let aside = disk.set_aside(file)?;
            assert_eq!(aside.directory(), Directory::SetAside, "moved to where it belongs");
        }
    }
    Ok(DiskOutcome::Done)
}

fn assert_aligned_write(offset: u64, parts: &[Bytes]) {
    let bytes: usize = parts.iter().map(Bytes::len).sum();
    assert_eq!(offset % DISK_ALIGNMENT as u64, 0, "writes start at a block");
    assert_eq!(bytes % DISK_ALIGNMENT, 0, "writes are whole blocks");
    assert!(bytes > 0, "an empty write has no meaning");
}

/// `bytes` rounded up to whole blocks of [`DISK_ALIGNMENT`].
#[must_use]
pub const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(DISK_ALIGNMENT as u64) * DISK_ALIGNMENT as u64
}

/// Zeros that fill `bytes` up to a whole block: shorter than one block, possibly empty. Shares
/// one static block.
#[must_use]
pub fn padding(bytes: u64) -> Bytes {
    static ZEROS: [u8; DISK_ALIGNMENT] = [0; DISK_ALIGNMENT];
    let missing = aligned(bytes) - bytes;
    assert!(missing < DISK_ALIGNMENT as u64, "less than one block is missing");
    let missing = usize::try_from(missing).expect("less than one block");
    Bytes::from_static(&ZEROS[..missing])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_completes_a_block_and_nothing_more() {
        for bytes in [0, 1, 4_095, 4_096, 4_097, 8_192] {
            let padded = bytes + padding(bytes).len() as u64;
            assert_eq!(padded, aligned(bytes));
            assert_eq!(padded % DISK_ALIGNMENT as u64, 0);
        }
    }

    #[test]
    fn tickets_are_unique_and_submissions_keep_their_order() {
        let mut out = DiskSubmissions::new();
        let file = FileName::Superblock;
        let first = out.submit(DiskQueue::Pool, DiskRequest::Sync { file });
        let journal = DiskRequest::Sync { file: FileName::Journal(1) };
        let second = out.submit(DiskQueue::JournalFlush, journal);
        assert!(first < second);
        let drained: Vec<DiskTicket> = out.drain().map(|s| s.ticket).collect();
        assert_eq!(drained, [first, second]);
        assert!(out.is_empty());
    }
}
