//! The disk that a start sees: the node's own, with every write of a journal noted.

use borzoi_storage::disk::{
    Directory, Disk, DiskError, DiskIdentity, DiskRequest, FileName, Listing,
};
use borzoi_storage::sim_disk::SimDisk;
use bytes::Bytes;

/// See the module.
pub(super) struct WatchedDisk<'a> {
    pub disk: &'a mut SimDisk,
    /// Writes to journal files that succeeded, in order.
    pub writes: Vec<DiskRequest>,
}

impl Disk for WatchedDisk<'_> {
    fn read(&mut self, file: &FileName, offset: u64, bytes: u64) -> Result<Bytes, DiskError> {
        self.disk.read(file, offset, bytes)
    }

    fn write(&mut self, file: &FileName, offset: u64, parts: &[Bytes]) -> Result<(), DiskError> {
        self.disk.write(file, offset, parts)?;
        if matches!(file, FileName::Journal(_)) {
            let (file, parts) = (file.clone(), parts.to_vec());
            self.writes.push(DiskRequest::Write { file, offset, parts });
        }
        Ok(())
    }

    fn sync(&mut self, file: &FileName) -> Result<(), DiskError> {
        self.disk.sync(file)
    }

    fn sync_names(&mut self, directory: Directory) -> Result<(), DiskError> {
        self.disk.sync_names(directory)
    }

    fn create_zeroed(&mut self, file: &FileName, bytes: u64) -> Result<(), DiskError> {
        self.disk.create_zeroed(file, bytes)
    }

    fn durable_replace(&mut self, file: &FileName, parts: &[Bytes]) -> Result<(), DiskError> {
        self.disk.durable_replace(file, parts)
    }

    fn remove(&mut self, file: &FileName) -> Result<(), DiskError> {
        self.disk.remove(file)
    }

    fn set_aside(&mut self, file: &FileName) -> Result<FileName, DiskError> {
        self.disk.set_aside(file)
    }

    fn list(&mut self, directory: Directory) -> Result<Listing, DiskError> {
        self.disk.list(directory)
    }

    fn len(&mut self, file: &FileName) -> Result<Option<u64>, DiskError> {
        self.disk.len(file)
    }

    fn identity(&mut self) -> DiskIdentity {
        self.disk.identity()
    }

    fn free_bytes(&mut self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }
}
