//! [`FileDisk`]: the seam `storage::disk::Disk` over a real directory.
//!
//! Journal files and segments are opened for direct I/O where the file system allows it, all
//! others are buffered. Clones share one handle cache and may be used by several threads at once;
//! ordering between requests is the business of `threads::disk`.
//!
//! Crash argument: a name is durable once `sync` of its file has returned, because the first sync
//! through a handle also syncs the directory; directories are synced into their parents when they
//! are created. `durable_replace` and `create_zeroed` write beside, sync, rename, sync the
//! directory, so a reader sees the old file or the new one, whole.

mod aligned;
mod handles;
mod lock;

pub use lock::DirectoryError;

use borzoi_storage::disk::{
    AsideName, Directory, Disk, DiskError, DiskErrorKind, DiskIdentity, DiskOperation, FileName,
    Listing,
};
use borzoi_types::limits::{DISK_ALIGNMENT, DISK_RESERVE_BYTES};
use bytes::Bytes;
use handles::{Handle, Handles, create_directories, sync_directory};
use lock::DirectoryLock;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names at the top of a data directory that are used, but not through this seam.
const OTHER_NAMES: [&str; 3] = ["runtime", "logs", "encryption"];
/// File that exists only while the probe for direct I/O runs.
const PROBE_NAME: &str = "probe.new";

struct Shared {
    root: PathBuf,
    direct: bool,
    reserve_bytes: u64,
    handles: Handles,
    _lock: DirectoryLock,
}

/// A locked data directory. Unlocked when the last clone is gone.
#[derive(Clone)]
pub struct FileDisk {
    shared: Arc<Shared>,
}

/// How to open a data directory.
#[derive(Clone, Debug)]
pub struct FileDiskOptions {
    /// Whether to use direct I/O where the file system allows it.
    pub direct: bool,
    /// Free bytes that segments and new journal files leave for checkpoints.
    pub reserve_bytes: u64,
}

impl Default for FileDiskOptions {
    fn default() -> Self {
        Self { direct: true, reserve_bytes: DISK_RESERVE_BYTES }
    }
}

impl FileDisk {
    /// Creates the directory if needed, checks that it is ours and locks it. Returns the disk and
    /// the names found in it that Borzoi does not know, which are left alone.
    ///
    /// # Errors
    /// Each way in which the directory is unusable, see [`DirectoryError`].
    pub fn open(
        root: &Path,
        options: &FileDiskOptions,
    ) -> Result<(Self, Vec<String>), DirectoryError> {
        let mut lock = lock::lock(root, Path::new(&FileName::Lock.path()), is_known)?;
        let strays = std::mem::take(&mut lock.strays);
        let direct = options.direct && probe_direct(root);
        let shared = Shared {
            root: root.to_owned(),
            direct,
            reserve_bytes: options.reserve_bytes,
            handles: Handles::default(),
            _lock: lock,
        };
        Ok((Self { shared: Arc::new(shared) }, strays))
    }

    /// Whether journal files and segments bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.shared.direct
    }

    /// The data directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Handles open now.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.shared.handles.len()
    }

    /// Deletes everything Borzoi has written here, durably; the lock stays.
    ///
    /// # Errors
    /// Those of the file system; part of it may be gone then.
    pub fn wipe(&self) -> io::Result<()> {
        let root = &self.shared.root;
        // The superblock first: a directory without one is an empty node, whatever else is there.
        remove_if_there(&self.path(&FileName::Superblock))?;
        sync_directory(root)?;
        for directory in Directory::ALL.into_iter().filter(|one| *one != Directory::Root) {
            let path = root.join(directory.path());
            if path.exists() {
                std::fs::remove_dir_all(path)?;
            }
        }
        sync_directory(root)
    }

    fn path(&self, file: &FileName) -> PathBuf {
        self.shared.root.join(file.path())
    }

    fn is_file_direct(&self, file: &FileName) -> bool {
        self.shared.direct && matches!(file, FileName::Journal(_) | FileName::Segment { .. })
    }

    fn handle(&self, path: &Path, file: &FileName, create: bool) -> io::Result<Arc<Handle>> {
        self.shared.handles.get(path, create, self.is_file_direct(file))
    }

    /// Refuses what would grow by `bytes` into the space kept for checkpoints.
    fn leave_reserve(&self, bytes: u64) -> io::Result<()> {
        let stat = rustix::fs::statvfs(&self.shared.root)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free >= bytes.saturating_add(self.shared.reserve_bytes) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{free} bytes are free, {} of them reserved", self.shared.reserve_bytes),
        ))
    }

    /// Fills `file` through `fill` under another name and puts it in place durably.
    fn replace(
        &self,
        file: &FileName,
        direct: bool,
        fill: impl FnOnce(&Handle) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(file);
        let beside = self.path(&FileName::Unfinished(Box::new(file.clone())));
        let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
        create_directories(parent)?;
        remove_if_there(&beside)?;
        let written = Handle::open(&beside, true, direct).and_then(|handle| {
            fill(&handle)?;
            handle.sync_all()
        });
        if let Err(error) = written {
            // Space taken by an attempt that failed is given back; the next attempt starts over.
            let _ = std::fs::remove_file(&beside);
            return Err(error);
        }
        std::fs::rename(&beside, &path)?;
        self.shared.handles.forget(&path);
        sync_directory(parent)
    }

    fn move_aside(&self, file: &FileName) -> io::Result<FileName> {
        let from = self.path(file);
        let flat = file.path().replace('/', "-");
        let directory = self.shared.root.join(Directory::SetAside.path());
        create_directories(&directory)?;
        for attempt in 0_u32.. {
            let text = if attempt == 0 { flat.clone() } else { format!("{flat}.{attempt}") };
            let name = FileName::SetAside(AsideName::new(&text));
            let to = self.path(&name);
            if to.try_exists()? {
                continue;
            }
            std::fs::rename(&from, &to)?;
            self.shared.handles.forget(&from);
            sync_directory(&directory)?;
            sync_directory(from.parent().ok_or(io::ErrorKind::NotFound)?)?;
            return Ok(name);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn list_into(&self, below: &str, depth: u32, listing: &mut Listing) -> io::Result<()> {
        let entries = match std::fs::read_dir(self.shared.root.join(below)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            let is_directory = entry.file_type()?.is_dir();
            if is_directory && depth > 0 {
                self.list_into(&path, depth - 1, listing)?;
            } else if is_directory && below.is_empty() && is_known(&name) {
                // Another directory of ours: listed under its own name.
            } else if let (false, Some(file)) = (is_directory, FileName::parse(&path)) {
                listing.files.push(file);
            } else if !(below.is_empty() && is_known(&name)) {
                listing.strays.push(path);
            }
        }
        Ok(())
    }
}

impl Disk for FileDisk {
    fn read(&mut self, file: &FileName, offset: u64, bytes: u64) -> Result<Bytes, DiskError> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.handle(&self.path(file), file, false)
            .and_then(|handle| handle.read(offset, len))
            .map_err(|error| failed(DiskOperation::Read, Some(file), &error))
    }

    fn write(&mut self, file: &FileName, offset: u64, parts: &[Bytes]) -> Result<(), DiskError> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        let room = match file {
            FileName::Segment { .. } | FileName::SegmentIndex { .. } => {
                self.leave_reserve(bytes as u64)
            }
            _ => Ok(()),
        };
        room.and_then(|()| self.handle(&self.path(file), file, true))
            .and_then(|handle| handle.write(offset, parts))
            .map_err(|error| failed(DiskOperation::Write, Some(file), &error))
    }

    fn sync(&mut self, file: &FileName) -> Result<(), DiskError> {
        let path = self.path(file);
        self.handle(&path, file, false)
            .and_then(|handle| handle.sync(&path))
            .map_err(|error| failed(DiskOperation::Sync, Some(file), &error))
    }

    fn sync_names(&mut self, directory: Directory) -> Result<(), DiskError> {
        assert_ne!(directory, Directory::Segments, "they have directories of their own");
        let path = self.shared.root.join(directory.path());
        let synced = match sync_directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        synced.map_err(|error| failed(DiskOperation::Sync, None, &error))
    }

    fn create_zeroed(&mut self, file: &FileName, bytes: u64) -> Result<(), DiskError> {
        assert!(bytes.is_multiple_of(DISK_ALIGNMENT as u64), "zeroed files are whole blocks");
        self.leave_reserve(bytes)
            .and_then(|()| {
                let direct = self.is_file_direct(file);
                self.replace(file, direct, |handle| handle.fill_with_zeros(bytes))
            })
            .map_err(|error| failed(DiskOperation::Create, Some(file), &error))
    }

    fn durable_replace(&mut self, file: &FileName, parts: &[Bytes]) -> Result<(), DiskError> {
        self.replace(file, false, |handle| handle.write(0, parts))
            .map_err(|error| failed(DiskOperation::Replace, Some(file), &error))
    }

    fn remove(&mut self, file: &FileName) -> Result<(), DiskError> {
        let path = self.path(file);
        self.shared.handles.forget(&path);
        let removed = remove_if_there(&path).and_then(|was_there| match path.parent() {
            Some(parent) if was_there => sync_directory(parent),
            _ => Ok(()),
        });
        removed.map_err(|error| failed(DiskOperation::Remove, Some(file), &error))
    }

    fn set_aside(&mut self, file: &FileName) -> Result<FileName, DiskError> {
        self.move_aside(file).map_err(|error| failed(DiskOperation::SetAside, Some(file), &error))
    }

    fn list(&mut self, directory: Directory) -> Result<Listing, DiskError> {
        let mut listing = Listing::default();
        let depth = u32::from(directory == Directory::Segments);
        self.list_into(directory.path(), depth, &mut listing)
            .map_err(|error| failed(DiskOperation::List, None, &error))?;
        listing.files.sort();
        listing.strays.sort();
        Ok(listing)
    }

    fn len(&mut self, file: &FileName) -> Result<Option<u64>, DiskError> {
        match std::fs::metadata(self.path(file)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(DiskOperation::Inspect, Some(file), &error)),
        }
    }

    fn identity(&mut self) -> DiskIdentity {
        let metadata = std::fs::metadata(&self.shared.root);
        let (device, inode) = metadata.map_or((0, 0), |found| (found.dev(), found.ino()));
        DiskIdentity { boot_id: boot_id(), device, inode }
    }

    fn free_bytes(&mut self) -> Result<u64, DiskError> {
        let stat = rustix::fs::statvfs(&self.shared.root)
            .map_err(|error| failed(DiskOperation::Inspect, None, &error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Whether Borzoi uses `name` at the top of a data directory.
fn is_known(name: &str) -> bool {
    let ours = Directory::ALL.iter().any(|directory| directory.path() == name);
    !name.is_empty()
        && (ours
            || OTHER_NAMES.contains(&name)
            || name == PROBE_NAME
            || FileName::parse(name).is_some())
}

/// Whether the file system under `root` takes aligned direct writes.
fn probe_direct(root: &Path) -> bool {
    let path = root.join(PROBE_NAME);
    let works = Handle::open(&path, true, true).and_then(|handle| {
        handle.write(0, &[Bytes::from(vec![0; DISK_ALIGNMENT])])?;
        handle.read(0, DISK_ALIGNMENT)
    });
    let _ = std::fs::remove_file(&path);
    works.is_ok_and(|read| read.len() == DISK_ALIGNMENT)
}

/// Identity of the kernel's boot; none where the system has no such file.
fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| id.to_be_bytes())
}

/// Whether there was something to remove.
fn remove_if_there(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn failed(operation: DiskOperation, file: Option<&FileName>, error: &io::Error) -> DiskError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => DiskErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => DiskErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem => DiskErrorKind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
        _ if is_out_of_descriptors(error) => DiskErrorKind::TooManyOpen,
        _ => DiskErrorKind::Io,
    };
    DiskError { operation, file: file.cloned(), kind, detail: error.to_string() }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(number, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

#[cfg(test)]
mod tests;
