//! A disk in memory that knows which sectors were synced: for crash tests and the simulator.
//!
//! Every mutating method is a sequence of numbered *steps* (one write, one sync of data, one sync
//! of a directory, one rename ...). [`SimDisk::crash_before`] stops the world in front of a step;
//! from then on everything fails with [`DiskErrorKind::Crashed`]. What a restarted machine finds
//! is made by [`SimDisk::kill`] (the process died, the machine lives: everything written is there
//! and what was unsynced still is) or by [`SimDisk::power_cut`] (each unsynced item is kept, lost
//! or torn, as the caller decides; what is found is durable).
//!
//! Granularity: blocks of 4096 bytes, torn in pieces of 512. Names: creations, renames and
//! unlinks of one directory reach the disk in order, so a crash keeps a prefix of them.
//!
//! Deterministic: no clock, no randomness, ordered maps only. Blocks are shared between clones, so
//! cloning a disk costs a pointer per block.

mod block;
mod image;
#[cfg(test)]
mod tests;

pub use block::BLOCK_BYTES;
pub use image::{Fate, Unsynced, UnsyncedWhat};

use crate::disk::{
    AsideName, Directory, Disk, DiskError, DiskErrorKind, DiskIdentity, DiskOperation, FileName,
    Listing,
};
use block::SimFile;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// Number of a file, whatever its name is at the moment.
type Node = u64;

/// A change of a name that no directory sync has made durable yet.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NameChange {
    file: FileName,
    /// `None`: the name is gone.
    now: Option<Node>,
}

/// An error to be injected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// On which operation.
    pub operation: DiskOperation,
    /// On which file; `None` for any.
    pub file: Option<FileName>,
    /// How many such operations succeed before it.
    pub after: u64,
    /// What happens. Once, unless `lasting`.
    pub kind: DiskErrorKind,
    /// Whether it happens on every such operation from then on.
    pub lasting: bool,
}

/// The disk. `Clone` copies it with everything that is pending.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    files: BTreeMap<Node, SimFile>,
    names: BTreeMap<FileName, Node>,
    durable_names: BTreeMap<FileName, Node>,
    pending_names: BTreeMap<Directory, Vec<NameChange>>,
    strays: BTreeMap<Directory, Vec<String>>,
    next_node: Node,
    identity: DiskIdentity,
    capacity: Option<u64>,
    faults: Vec<Fault>,
    steps: u64,
    crash_before: Option<u64>,
    crashed: bool,
    /// Counters of what was injected and done.
    pub counters: SimCounters,
}

/// What happened on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounters {
    /// Writes.
    pub writes: u64,
    /// Syncs of file data.
    pub syncs: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Errors returned because a [`Fault`] said so, or for want of space.
    pub errors: u64,
    /// Bits, blocks and files damaged on purpose.
    pub damages: u64,
}

/// A sync that has started and not finished: covers what had been written when it started.
#[derive(Clone, Debug)]
pub struct SyncInFlight {
    file: FileName,
    node: Node,
    versions: BTreeMap<u64, usize>,
    bytes: u64,
}

impl SimDisk {
    /// An empty disk at `identity`.
    #[must_use]
    pub fn new(identity: DiskIdentity) -> Self {
        Self { identity, ..Self::default() }
    }

    /// Mutating steps taken so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Stops the world in front of step number `step`, counted from 0 over the disk's life.
    pub fn crash_before(&mut self, step: u64) {
        assert!(step >= self.steps, "the past cannot crash");
        self.crash_before = Some(step);
    }

    /// Whether the world has stopped.
    #[must_use]
    pub const fn is_crashed(&self) -> bool {
        self.crashed
    }

    /// Replaces the identity, as a reboot or a move of the directory does.
    pub fn set_identity(&mut self, identity: DiskIdentity) {
        self.identity = identity;
    }

    /// Bounds the sum of all file lengths; `None` for no bound.
    pub fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    /// Injects an error.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Removes all errors that are still to come.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// Adds a file that Borzoi did not write.
    pub fn add_stray(&mut self, directory: Directory, name: &str) {
        let strays = self.strays.entry(directory).or_default();
        strays.push(name.to_owned());
        strays.sort();
    }

    /// Flips one bit of `file`, on disk and in what reads return. Returns whether it is there.
    pub fn flip_bit(&mut self, file: &FileName, offset: u64, bit: u8) -> bool {
        assert!(bit < 8);
        self.damage(file, offset, |byte| byte ^ (1 << bit))
    }

    /// Overwrites the block of `file` around `offset` with `byte`.
    pub fn fill_block(&mut self, file: &FileName, offset: u64, byte: u8) -> bool {
        let start = offset - offset % BLOCK_BYTES as u64;
        let mut any = false;
        for at in start..start + BLOCK_BYTES as u64 {
            any |= self.damage(file, at, |_| byte);
        }
        any
    }

    fn damage(&mut self, file: &FileName, offset: u64, change: impl Fn(u8) -> u8) -> bool {
        let Some(node) = self.names.get(file) else { return false };
        let file = self.files.get_mut(node).expect("names point at files");
        if offset >= file.bytes() {
            return false;
        }
        file.damage(offset, &change);
        self.counters.damages += 1;
        true
    }

    /// Starts a sync; other operations may run before [`Self::finish_sync`], and are not covered.
    ///
    /// # Errors
    /// As [`Disk::sync`].
    pub fn start_sync(&mut self, file: &FileName) -> Result<SyncInFlight, DiskError> {
        if self.crashed {
            return Err(self.crash_error(DiskOperation::Sync, file));
        }
        let node = self.node(DiskOperation::Sync, file)?;
        let content = &self.files[&node];
        let (versions, bytes) = (content.newest_versions(), content.bytes());
        Ok(SyncInFlight { file: file.clone(), node, versions, bytes })
    }

    /// Finishes a sync: what was written before it started is durable, the file's name as well.
    ///
    /// # Errors
    /// As [`Disk::sync`].
    pub fn finish_sync(&mut self, sync: &SyncInFlight) -> Result<(), DiskError> {
        self.step(DiskOperation::Sync)?;
        if let Err(error) = self.fault(DiskOperation::Sync, &sync.file) {
            if let Some(file) = self.files.get_mut(&sync.node) {
                // The kernel drops the pages' dirty mark: a later sync will not write them.
                file.poison(&sync.versions);
            }
            return Err(error);
        }
        if let Some(file) = self.files.get_mut(&sync.node) {
            file.sync(&sync.versions, sync.bytes);
        }
        self.counters.syncs += 1;
        if self.is_name_pending(&sync.file) {
            self.sync_directory(sync.file.directory())?;
        }
        Ok(())
    }

    fn is_name_pending(&self, file: &FileName) -> bool {
        self.pending_names
            .get(&file.directory())
            .is_some_and(|changes| changes.iter().any(|change| change.file == *file))
    }

    fn sync_directory(&mut self, directory: Directory) -> Result<(), DiskError> {
        self.step(DiskOperation::Sync)?;
        let mut displaced = Vec::new();
        for change in self.pending_names.remove(&directory).unwrap_or_default() {
            displaced.extend(match change.now {
                Some(node) => self.durable_names.insert(change.file, node),
                None => self.durable_names.remove(&change.file),
            });
        }
        for node in displaced {
            self.forget_if_unnamed(node);
        }
        Ok(())
    }

    /// Forgets a file that no name leads to any more, now or after a crash.
    fn forget_if_unnamed(&mut self, node: Node) {
        let pending = self.pending_names.values().flatten().filter_map(|change| change.now);
        let mut used =
            pending.chain(self.names.values().chain(self.durable_names.values()).copied());
        if !used.any(|used| used == node) {
            self.files.remove(&node);
        }
    }

    fn step(&mut self, operation: DiskOperation) -> Result<(), DiskError> {
        if !self.crashed && self.crash_before == Some(self.steps) {
            self.crashed = true;
        }
        if self.crashed {
            let kind = DiskErrorKind::Crashed;
            return Err(DiskError { operation, file: None, kind, detail: String::new() });
        }
        self.steps += 1;
        assert!(self.crash_before.is_none_or(|step| step >= self.steps), "a crash is not missed");
        Ok(())
    }

    fn crash_error(&self, operation: DiskOperation, file: &FileName) -> DiskError {
        assert!(self.crashed);
        DiskError::new(operation, file, DiskErrorKind::Crashed, "")
    }

    fn fault(&mut self, operation: DiskOperation, file: &FileName) -> Result<(), DiskError> {
        let concerns = |fault: &Fault| {
            fault.operation == operation && fault.file.as_ref().is_none_or(|name| name == file)
        };
        let Some(at) = self.faults.iter().position(concerns) else { return Ok(()) };
        let fault = &mut self.faults[at];
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        let kind = fault.kind;
        if !fault.lasting {
            self.faults.remove(at);
        }
        self.counters.errors += 1;
        Err(DiskError::new(operation, file, kind, "injected"))
    }

    fn node(&self, operation: DiskOperation, file: &FileName) -> Result<Node, DiskError> {
        let node = self.names.get(file).copied();
        node.ok_or_else(|| DiskError::new(operation, file, DiskErrorKind::NotFound, ""))
    }

    fn set_name(&mut self, file: &FileName, now: Option<Node>) {
        match now {
            Some(node) => self.names.insert(file.clone(), node),
            None => self.names.remove(file),
        };
        assert!(now.is_none_or(|node| self.files.contains_key(&node)), "names lead to files");
        let change = NameChange { file: file.clone(), now };
        self.pending_names.entry(file.directory()).or_default().push(change);
    }

    fn create(&mut self, file: &FileName) -> Node {
        let node = self.next_node;
        self.next_node += 1;
        assert!(!self.files.contains_key(&node), "numbers are never reused");
        self.files.insert(node, SimFile::default());
        self.set_name(file, Some(node));
        node
    }

    fn reserve(
        &mut self,
        operation: DiskOperation,
        file: &FileName,
        more: u64,
    ) -> Result<(), DiskError> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let used: u64 = self.files.values().map(SimFile::bytes).sum();
        if more > 0 && used + more > capacity {
            self.counters.errors += 1;
            return Err(DiskError::new(operation, file, DiskErrorKind::NoSpace, "simulated"));
        }
        Ok(())
    }

    fn put(
        &mut self,
        operation: DiskOperation,
        file: &FileName,
        node: Node,
        offset: u64,
        parts: &[Bytes],
    ) -> Result<(), DiskError> {
        self.step(operation)?;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let more = (offset + bytes).saturating_sub(self.files[&node].bytes());
        self.reserve(operation, file, more)?;
        let content = self.files.get_mut(&node).expect("the caller found it");
        content.write(offset, parts);
        assert!(content.bytes() >= offset + bytes, "the file contains what was written");
        self.counters.writes += 1;
        self.counters.bytes_written += bytes;
        Ok(())
    }

    fn sync_all(&mut self, node: Node) -> Result<(), DiskError> {
        self.step(DiskOperation::Sync)?;
        let file = self.files.get_mut(&node).expect("the caller found it");
        let (versions, bytes) = (file.newest_versions(), file.bytes());
        file.sync(&versions, bytes);
        self.counters.syncs += 1;
        Ok(())
    }
}

impl Disk for SimDisk {
    fn read(&mut self, file: &FileName, offset: u64, bytes: u64) -> Result<Bytes, DiskError> {
        if self.crashed {
            return Err(self.crash_error(DiskOperation::Read, file));
        }
        self.fault(DiskOperation::Read, file)?;
        let node = self.node(DiskOperation::Read, file)?;
        self.counters.reads += 1;
        Ok(self.files[&node].read(offset, bytes))
    }

    fn write(&mut self, file: &FileName, offset: u64, parts: &[Bytes]) -> Result<(), DiskError> {
        self.fault(DiskOperation::Write, file)?;
        let node = match self.names.get(file) {
            Some(node) => *node,
            None => {
                self.step(DiskOperation::Create)?;
                self.create(file)
            }
        };
        self.put(DiskOperation::Write, file, node, offset, parts)
    }

    fn sync(&mut self, file: &FileName) -> Result<(), DiskError> {
        let sync = self.start_sync(file)?;
        self.finish_sync(&sync)
    }

    fn sync_names(&mut self, directory: Directory) -> Result<(), DiskError> {
        assert_ne!(directory, Directory::Segments, "they have directories of their own");
        self.sync_directory(directory)
    }

    fn create_zeroed(&mut self, file: &FileName, bytes: u64) -> Result<(), DiskError> {
        self.fault(DiskOperation::Create, file)?;
        self.reserve(DiskOperation::Create, file, bytes)?;
        self.step(DiskOperation::Create)?;
        let node = self.create(file);
        self.step(DiskOperation::Write)?;
        self.files.get_mut(&node).expect("just made").grow(bytes);
        self.sync_all(node)?;
        self.sync_directory(file.directory())
    }

    fn durable_replace(&mut self, file: &FileName, parts: &[Bytes]) -> Result<(), DiskError> {
        self.fault(DiskOperation::Replace, file)?;
        let beside = FileName::Unfinished(Box::new(file.clone()));
        self.step(DiskOperation::Create)?;
        let node = self.create(&beside);
        if let Err(error) = self.put(DiskOperation::Replace, file, node, 0, parts) {
            if error.kind == DiskErrorKind::NoSpace {
                self.set_name(&beside, None);
            }
            return Err(error);
        }
        self.sync_all(node)?;
        self.step(DiskOperation::Replace)?;
        // A rename is one change of the directory: it is there whole or not at all.
        self.set_name(&beside, None);
        self.set_name(file, Some(node));
        let changes = self.pending_names.get_mut(&file.directory()).expect("just changed");
        let len = changes.len();
        changes.swap(len - 1, len - 2);
        self.sync_directory(file.directory())
    }

    fn remove(&mut self, file: &FileName) -> Result<(), DiskError> {
        self.fault(DiskOperation::Remove, file)?;
        self.step(DiskOperation::Remove)?;
        if self.names.contains_key(file) {
            self.set_name(file, None);
        }
        self.sync_directory(file.directory())
    }

    fn set_aside(&mut self, file: &FileName) -> Result<FileName, DiskError> {
        self.fault(DiskOperation::SetAside, file)?;
        self.step(DiskOperation::SetAside)?;
        let node = self.node(DiskOperation::SetAside, file)?;
        let stem = file.path();
        let mut number = 0;
        let aside = loop {
            let name = FileName::SetAside(AsideName::new(&format!("{stem}.{number}")));
            if !self.names.contains_key(&name) {
                break name;
            }
            number += 1;
        };
        self.set_name(&aside, Some(node));
        self.sync_directory(Directory::SetAside)?;
        self.set_name(file, None);
        self.sync_directory(file.directory())?;
        Ok(aside)
    }

    fn list(&mut self, directory: Directory) -> Result<Listing, DiskError> {
        if self.crashed {
            return Err(self.crash_error(DiskOperation::List, &FileName::Superblock));
        }
        let files = self.names.keys().filter(|name| name.directory() == directory).cloned();
        let mut listing = Listing { files: files.collect(), strays: Vec::new() };
        listing.files.sort();
        let strays = self.strays.get(&directory).into_iter().flatten();
        let path = directory.path();
        let inside = |name: &String| format!("{path}/{name}");
        let path_of = |name| if path.is_empty() { String::clone(name) } else { inside(name) };
        listing.strays = strays.map(path_of).collect();
        Ok(listing)
    }

    fn len(&mut self, file: &FileName) -> Result<Option<u64>, DiskError> {
        if self.crashed {
            return Err(self.crash_error(DiskOperation::Inspect, file));
        }
        Ok(self.names.get(file).map(|node| self.files[node].bytes()))
    }

    fn identity(&mut self) -> DiskIdentity {
        self.identity
    }

    fn free_bytes(&mut self) -> Result<u64, DiskError> {
        let used: u64 = self.files.values().map(SimFile::bytes).sum();
        Ok(self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used)))
    }
}

/// The content of `parts` as one block-wise reader sees it.
fn gather(parts: &[Bytes]) -> Bytes {
    if let [one] = parts {
        return one.clone();
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        all.extend_from_slice(part);
    }
    all.freeze()
}
