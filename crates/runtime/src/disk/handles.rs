//! Open file handles, cached under a limit, and the positioned I/O on one of them.
//!
//! Invariants: a file keeps one I/O mode, direct or buffered, for as long as it lives, decided by
//! its kind and by what the file system allows; at most [`FILE_HANDLES_MAX`] handles are cached;
//! a handle that is in use stays open when the cache forgets it.

use super::aligned::AlignedBuffer;
use borzoi_types::limits::{DISK_ALIGNMENT, FILE_HANDLES_MAX, IO_SCRATCH_BYTES_MAX};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Permissions of a new file: the owner alone; the files hold messages and password hashes.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Slices that one `pwritev` takes (the kernel's `IOV_MAX`).
const SLICES_PER_WRITE_MAX: usize = 1_024;

thread_local! {
    static SCRATCH: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::default());
}

/// One open file.
pub struct Handle {
    file: File,
    direct: bool,
    /// Whether the entry in its directory is known to be durable.
    name_synced: AtomicBool,
}

impl Handle {
    /// Opens `path` for reading and writing.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(path: &Path, create: bool, direct: bool) -> io::Result<Self> {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        if create {
            flags |= OFlags::CREATE;
        }
        if direct {
            flags |= OFlags::DIRECT;
        }
        let file = File::from(rustix::fs::open(path, flags, FILE_MODE)?);
        Ok(Self { file, direct, name_synced: AtomicBool::new(false) })
    }

    /// Writes `parts` one after the other from `offset` on.
    ///
    /// # Errors
    /// Those of `pwrite(2)`; some of the bytes may have been written then.
    pub fn write(&self, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let len: usize = parts.iter().map(Bytes::len).sum();
        if self.direct {
            let aligned =
                offset.is_multiple_of(DISK_ALIGNMENT as u64) && len.is_multiple_of(DISK_ALIGNMENT);
            assert!(aligned, "direct writes are aligned and padded by the core");
            self.write_direct(offset, parts)
        } else {
            self.write_buffered(offset, parts)
        }
    }

    fn write_direct(&self, mut offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let mut left: usize = parts.iter().map(Bytes::len).sum();
        SCRATCH.with_borrow_mut(|scratch| {
            let piece_bytes_max = IO_SCRATCH_BYTES_MAX / 2;
            scratch.clear_for(left.min(piece_bytes_max));
            for part in parts {
                let mut rest = part.as_ref();
                while !rest.is_empty() {
                    let room = piece_bytes_max - scratch.filled().len();
                    let (now, later) = rest.split_at(rest.len().min(room));
                    scratch.push(now);
                    rest = later;
                    if scratch.filled().len() == piece_bytes_max {
                        self.file.write_all_at(scratch.filled(), offset)?;
                        offset += piece_bytes_max as u64;
                        left -= piece_bytes_max;
                        scratch.clear_for(left.min(piece_bytes_max));
                    }
                }
            }
            self.file.write_all_at(scratch.filled(), offset)?;
            scratch.shrink_to(IO_SCRATCH_BYTES_MAX);
            Ok(())
        })
    }

    fn write_buffered(&self, mut offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let mut parts: Vec<&[u8]> =
            parts.iter().map(Bytes::as_ref).filter(|part| !part.is_empty()).collect();
        while !parts.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                parts.iter().take(SLICES_PER_WRITE_MAX).map(|part| IoSlice::new(part)).collect();
            let mut written = match rustix::io::pwritev(&self.file, &slices, offset) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                other => other?,
            };
            offset += written as u64;
            let whole = parts
                .iter()
                .take_while(|part| {
                    let covered = part.len() <= written;
                    written -= if covered { part.len() } else { 0 };
                    covered
                })
                .count();
            parts.drain(..whole);
            if let Some(first) = parts.first_mut() {
                *first = &first[written..];
            }
        }
        Ok(())
    }

    /// Reads `len` bytes at `offset`; fewer if the file ends before.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let alignment = if self.direct { DISK_ALIGNMENT } else { 1 };
        let lead = usize::try_from(offset % alignment as u64).expect("below the alignment");
        let span = (lead + len).next_multiple_of(alignment);
        let mut bytes = vec![0; span + alignment];
        let address = bytes.as_ptr() as usize;
        let start = address.next_multiple_of(alignment) - address;
        let space = &mut bytes[start..start + span];
        let from = offset - lead as u64;
        let mut filled = 0;
        while filled < span {
            match self.file.read_at(&mut space[filled..], from + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !filled.is_multiple_of(alignment) {
                // A direct read ends within a sector only at the end of the file.
                break;
            }
        }
        let end = filled.min(lead + len).max(lead);
        Ok(Bytes::from(bytes).slice(start + lead..start + end))
    }

    /// Makes content and attributes durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`.
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Makes content and, the first time, the directory entry durable.
    ///
    /// # Errors
    /// Those of `fdatasync(2)` and `fsync(2)`.
    pub fn sync(&self, path: &Path) -> io::Result<()> {
        rustix::fs::fdatasync(&self.file)?;
        if !self.name_synced.load(Ordering::Acquire) {
            if let Some(parent) = path.parent() {
                sync_directory(parent)?;
            }
            self.name_synced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Sets the length and fills everything with zeros that are really written, so that later
    /// writes change no metadata of the file system.
    ///
    /// # Errors
    /// Those of `ftruncate(2)` and `pwrite(2)`.
    pub fn fill_with_zeros(&self, len: u64) -> io::Result<()> {
        const PIECE: usize = 1024 * 1024;
        self.file.set_len(0)?;
        SCRATCH.with_borrow_mut(|scratch| {
            // One aligned piece, written again and again: nothing is copied.
            scratch.clear_for(PIECE);
            scratch.push(&vec![0; PIECE]);
            let zeros = scratch.filled();
            let mut offset = 0;
            while offset < len {
                let left = usize::try_from(len - offset).unwrap_or(PIECE);
                let now = left.min(PIECE);
                self.file.write_all_at(&zeros[..now], offset)?;
                offset += now as u64;
            }
            Ok(())
        })
    }
}

/// Makes the entries of `directory` durable.
///
/// # Errors
/// Those of `open(2)` and `fsync(2)`.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates `directory` and what is missing above it, each durably entered in its parent.
///
/// # Errors
/// Those of `mkdir(2)` and `fsync(2)`.
pub fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().ok_or(io::ErrorKind::NotFound)?;
    if !parent.as_os_str().is_empty() {
        create_directories(parent)?;
    }
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if parent.as_os_str().is_empty() { Ok(()) } else { sync_directory(parent) }
}

#[derive(Default)]
struct Cached {
    by_path: BTreeMap<PathBuf, (u64, Arc<Handle>)>,
    by_use: BTreeMap<u64, PathBuf>,
    uses: u64,
}

/// The cache, shared by the I/O threads.
#[derive(Default)]
pub struct Handles {
    cached: Mutex<Cached>,
}

impl Handles {
    /// The handle of `path`, opened if needed, with its directories created when `create`.
    ///
    /// # Errors
    /// Those of `open(2)` and `mkdir(2)`.
    pub fn get(&self, path: &Path, create: bool, direct: bool) -> io::Result<Arc<Handle>> {
        if let Some(handle) = self.lock().touch(path) {
            return Ok(handle);
        }
        // Not under the lock: a journal write must not wait for the directory of a segment.
        let handle = match Handle::open(path, create, direct) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
                create_directories(path.parent().ok_or(io::ErrorKind::NotFound)?)?;
                Handle::open(path, create, direct)?
            }
            other => other?,
        };
        let mut cached = self.lock();
        if let Some(other) = cached.touch(path) {
            // Another thread was faster; both handles are of one file.
            return Ok(other);
        }
        let handle = Arc::new(handle);
        cached.insert(path, handle.clone());
        Ok(handle)
    }

    /// Forgets the handle of `path`, because the name now means another file or none.
    pub fn forget(&self, path: &Path) {
        let mut cached = self.lock();
        if let Some((at, _)) = cached.by_path.remove(path) {
            cached.by_use.remove(&at);
        }
    }

    /// Handles held open by the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_path.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cached {
    fn touch(&mut self, path: &Path) -> Option<Arc<Handle>> {
        let (at, handle) = self.by_path.get_mut(path)?;
        self.uses += 1;
        let name = self.by_use.remove(at).expect("both maps hold the same handles");
        *at = self.uses;
        self.by_use.insert(self.uses, name);
        Some(handle.clone())
    }

    fn insert(&mut self, path: &Path, handle: Arc<Handle>) {
        self.uses += 1;
        self.by_path.insert(path.to_owned(), (self.uses, handle));
        self.by_use.insert(self.uses, path.to_owned());
        while self.by_path.len() > FILE_HANDLES_MAX {
            let (_, oldest) = self.by_use.pop_first().expect("as many uses as handles");
            self.by_path.remove(&oldest);
        }
        debug_assert_eq!(self.by_path.len(), self.by_use.len());
    }
}
