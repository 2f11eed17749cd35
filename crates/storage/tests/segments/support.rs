//! A disk in memory that knows what was synced, batches to put on it, and a partition driven on it.

use borzoi_storage::cache::{CacheOptions, SegmentCache};
use borzoi_storage::disk::{
    Directory, Disk, DiskError, DiskErrorKind, DiskIdentity, DiskOperation, DiskSubmissions,
    DiskTicket, FileName, Listing, execute,
};
use borzoi_storage::partition::{
    CheckpointWork, FlushError, PartitionLog, ReadError, ReadOutcome, ReadStart,
};
use borzoi_types::{Micros, Offset, PartitionId, PartitionKey};
use borzoi_wire::batch::{Batches, MessageId, NewMessage, encode_batch, stamp, verify_stored};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A key whose chunks close three bytes above the minimum of 64 KiB.
pub const KEY: PartitionKey = PartitionKey(0x232);
const SECTOR: usize = 4096;

/// xorshift64*: enough randomness for a test, from one number.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Clone, Default, Debug)]
struct TestFile {
    current: Vec<u8>,
    durable: Option<Vec<u8>>,
    dirty: BTreeSet<usize>,
    /// Sectors written in this life of the process.
    written: BTreeSet<usize>,
}

/// Sector-accurate: what was not synced may be lost, kept or torn at a crash.
#[derive(Clone, Default, Debug)]
pub struct TestDisk {
    files: BTreeMap<FileName, TestFile>,
    /// Operations that change something, so far.
    pub operations: u64,
    /// The operation from which on everything fails.
    pub crash_at: Option<u64>,
    /// Writes fail for want of space.
    pub full: bool,
}

impl TestDisk {
    fn tick(&mut self, file: &FileName, operation: DiskOperation) -> Result<(), DiskError> {
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            return Err(DiskError::new(operation, file, DiskErrorKind::Crashed, ""));
        }
        self.operations += 1;
        Ok(())
    }

    /// What a power loss leaves: every sector that was not synced is old, new or torn.
    pub fn after_crash(&self, random: &mut Random) -> Self {
        let mut after = Self::default();
        for (name, file) in &self.files {
            let Some(durable) = &file.durable else {
                // The name itself was not synced.
                if random.below(2) == 0 {
                    let torn = tear(&[], &file.current, &file.dirty, random);
                    after.put(name.clone(), torn);
                }
                continue;
            };
            after.put(name.clone(), tear(durable, &file.current, &file.dirty, random));
        }
        after
    }

    /// What `kill -9` leaves: everything that was written.
    pub fn restarted(&self) -> Self {
        let mut after = Self { files: self.files.clone(), ..Self::default() };
        for file in after.files.values_mut() {
            file.written.clear();
        }
        after
    }

    fn put(&mut self, name: FileName, content: Vec<u8>) {
        let file = TestFile {
            current: content.clone(),
            durable: Some(content),
            dirty: BTreeSet::new(),
            written: BTreeSet::new(),
        };
        self.files.insert(name, file);
    }

    pub fn content(&self, name: &FileName) -> Option<&[u8]> {
        self.files.get(name).map(|file| file.current.as_slice())
    }

    pub fn corrupt(&mut self, name: &FileName, position: usize) {
        self.files.get_mut(name).unwrap().current[position] ^= 0x40;
    }

    pub fn shorten(&mut self, name: &FileName, length: usize) {
        self.files.get_mut(name).unwrap().current.truncate(length);
    }

    pub fn delete(&mut self, name: &FileName) {
        self.files.remove(name);
    }

    pub fn names(&self) -> Vec<FileName> {
        self.files.keys().cloned().collect()
    }
}

fn tear(old: &[u8], new: &[u8], dirty: &BTreeSet<usize>, random: &mut Random) -> Vec<u8> {
    let grown = new.len() > old.len() && random.below(4) > 0;
    let mut content = old.to_vec();
    if grown {
        content.resize(new.len(), 0);
    }
    for sector in dirty {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(new.len()).min(content.len());
        if start >= end {
            continue;
        }
        match random.below(3) {
            0 => {}
            1 => content[start..end].copy_from_slice(&new[start..end]),
            _ => {
                let cut = start + 512 * (1 + random.below(7) as usize);
                let end = cut.min(end);
                content[start..end].copy_from_slice(&new[start..end]);
            }
        }
    }
    content
}

impl Disk for TestDisk {
    fn read(&mut self, file: &FileName, offset: u64, bytes: u64) -> Result<Bytes, DiskError> {
        let not_found = || DiskError::new(DiskOperation::Read, file, DiskErrorKind::NotFound, "");
        let content = &self.files.get(file).ok_or_else(not_found)?.current;
        let start = (offset as usize).min(content.len());
        let end = (start + bytes as usize).min(content.len());
        Ok(Bytes::copy_from_slice(&content[start..end]))
    }

    fn write(&mut self, file: &FileName, offset: u64, parts: &[Bytes]) -> Result<(), DiskError> {
        self.tick(file, DiskOperation::Write)?;
        if self.full {
            return Err(DiskError::new(DiskOperation::Write, file, DiskErrorKind::NoSpace, ""));
        }
        let derived = matches!(file, FileName::SegmentIndex { .. });
        let entry = self.files.entry(file.clone()).or_default();
        let bytes = parts.concat();
        let start = offset as usize;
        if entry.current.len() < start + bytes.len() {
            entry.current.resize(start + bytes.len(), 0);
        }
        entry.current[start..start + bytes.len()].copy_from_slice(&bytes);
        for sector in start / SECTOR..(start + bytes.len()) / SECTOR {
            let first = entry.written.insert(sector);
            assert!(first || derived, "sector {sector} of {file} is written twice");
            entry.dirty.insert(sector);
        }
        Ok(())
    }

    fn sync(&mut self, file: &FileName) -> Result<(), DiskError> {
        self.tick(file, DiskOperation::Sync)?;
        let entry = self.files.get_mut(file).expect("only written files are synced");
        entry.durable = Some(entry.current.clone());
        entry.dirty.clear();
        Ok(())
    }

    fn sync_names(&mut self, _: Directory) -> Result<(), DiskError> {
        Ok(())
    }

    fn create_zeroed(&mut self, _: &FileName, _: u64) -> Result<(), DiskError> {
        unreachable!("segments are never zeroed")
    }

    fn durable_replace(&mut self, file: &FileName, parts: &[Bytes]) -> Result<(), DiskError> {
        self.tick(file, DiskOperation::Replace)?;
        if self.full {
            return Err(DiskError::new(DiskOperation::Replace, file, DiskErrorKind::NoSpace, ""));
        }
        self.put(file.clone(), parts.concat());
        Ok(())
    }

    fn remove(&mut self, file: &FileName) -> Result<(), DiskError> {
        self.tick(file, DiskOperation::Remove)?;
        self.files.remove(file);
        Ok(())
    }

    fn set_aside(&mut self, file: &FileName) -> Result<FileName, DiskError> {
        self.files.remove(file);
        Ok(file.clone())
    }

    fn list(&mut self, directory: Directory) -> Result<Listing, DiskError> {
        let files = self.files.keys().filter(|name| name.directory() == directory).cloned();
        Ok(Listing { files: files.collect(), strays: Vec::new() })
    }

    fn len(&mut self, file: &FileName) -> Result<Option<u64>, DiskError> {
        Ok(self.files.get(file).map(|file| file.current.len() as u64))
    }

    fn identity(&mut self) -> DiskIdentity {
        DiskIdentity::default()
    }

    fn free_bytes(&mut self) -> Result<u64, DiskError> {
        Ok(u64::MAX)
    }
}

/// What a message of these tests carries: its offset, repeated to some length.
pub fn payload(offset: u64, length: usize) -> Vec<u8> {
    offset.to_le_bytes().iter().copied().cycle().take(length).collect()
}

/// A stamped wire batch.
pub fn batch(base: Offset, timestamp: Micros, payload_lengths: &[usize]) -> Bytes {
    let payloads: Vec<Vec<u8>> =
        (base.0..).zip(payload_lengths).map(|(offset, length)| payload(offset, *length)).collect();
    let messages: Vec<NewMessage<'_>> = payloads
        .iter()
        .zip(1u128..)
        .map(|(payload, id)| NewMessage {
            id: MessageId(u128::from(base.0) + id),
            origin_timestamp: Micros(77),
            payload,
            user_headers: &[],
        })
        .collect();
    let mut batch = Vec::new();
    encode_batch(&messages, &mut batch).unwrap();
    stamp(&mut batch, PartitionId(3), base, timestamp).unwrap();
    Bytes::from(batch)
}

/// One message as a client would see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub offset: u64,
    pub timestamp: u64,
    pub payload_length: usize,
}

/// Decodes a reply as a client would, checking every length and checksum on the way.
pub fn decode(outcome: &ReadOutcome) -> Vec<Message> {
    let all = outcome.batches.concat();
    let mut messages = Vec::new();
    for view in Batches::new(&all) {
        let view = view.unwrap();
        let header = verify_stored(view.bytes()).unwrap();
        for frame in view.frames() {
            let frame = frame.unwrap();
            let offset = frame.offset(&header).0;
            let payload_length = frame.payload().len();
            assert_eq!(frame.payload(), payload(offset, payload_length));
            let timestamp = header.base_timestamp.0;
            messages.push(Message { offset, timestamp, payload_length });
        }
    }
    assert_eq!(messages.len(), outcome.messages as usize);
    assert_eq!(all.len(), outcome.bytes);
    assert_eq!(messages.first().map(|m| m.offset), outcome.first.map(Offset::get));
    assert_eq!(messages.last().map(|m| m.offset), outcome.last.map(Offset::get));
    messages
}

pub fn offsets(outcome: &ReadOutcome) -> Vec<u64> {
    decode(outcome).into_iter().map(|message| message.offset).collect()
}

/// A partition with its cache on a test disk.
pub struct Bench {
    pub log: PartitionLog,
    pub cache: SegmentCache,
    pub disk: TestDisk,
    pub out: DiskSubmissions,
}

impl Bench {
    pub fn new(segment_bytes_max: u64) -> Self {
        Self::with_cache(segment_bytes_max, CacheOptions::default())
    }

    pub fn with_cache(segment_bytes_max: u64, options: CacheOptions) -> Self {
        Self {
            log: PartitionLog::new(KEY, segment_bytes_max),
            cache: SegmentCache::new(options),
            disk: TestDisk::default(),
            out: DiskSubmissions::new(),
        }
    }

    pub fn append(&mut self, timestamp: u64, payload_lengths: &[usize]) {
        let base = self.log.next_offset();
        let batch = batch(base, Micros(timestamp), payload_lengths);
        self.log.append(batch, base, payload_lengths.len() as u32, Micros(timestamp));
    }

    /// Executes what was submitted and hands the results back.
    pub fn execute(&mut self, tickets: &[DiskTicket]) -> Result<(), FlushError> {
        let submissions: Vec<_> = self.out.drain().collect();
        assert_eq!(submissions.len(), tickets.len());
        let mut failed = Ok(());
        for submission in submissions {
            assert!(tickets.contains(&submission.ticket));
            let result = execute(&mut self.disk, &submission.request);
            let taken = self.log.complete(&mut self.cache, submission.ticket, &result);
            failed = failed.and(taken.map(|_| ()));
        }
        failed
    }

    pub fn flush(&mut self) -> Result<(), FlushError> {
        let tickets = self.log.flush(&mut self.cache, 0, &mut self.out);
        self.execute(&tickets)
    }

    pub fn sync(&mut self) -> Result<(), FlushError> {
        let tickets = self.log.sync(&mut self.out);
        self.execute(&tickets)
    }

    /// Flushes and syncs until nothing is left to do.
    pub fn settle(&mut self) -> Result<(), FlushError> {
        while self.log.is_flushing() {
            self.flush()?;
            self.sync()?;
        }
        Ok(())
    }

    pub fn finish(&mut self, work: &CheckpointWork) -> Result<(), FlushError> {
        let tickets = self.log.checkpoint_durable(work, &mut self.out);
        self.execute(&tickets)
    }

    pub fn read(
        &mut self,
        start: ReadStart,
        count: u32,
        bytes_max: usize,
    ) -> Result<ReadOutcome, ReadError> {
        let disk = &mut self.disk;
        self.log
            .read_now(&mut self.cache, start, count, bytes_max, |request| execute(disk, request))
    }

    /// Forgets everything that is also on the disk.
    pub fn evict(&mut self) {
        self.log.evict(&mut self.cache);
    }
}
