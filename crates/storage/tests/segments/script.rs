//! Committed operations, a plain model of what they mean, and a node that survives restarts.

use crate::support::{Bench, KEY, Message, Random, TestDisk, batch, decode};
use borzoi_storage::cache::{CacheOptions, SegmentCache};
use borzoi_storage::checkpoint::{Checkpoint, PartitionSection, load_newest, obsolete};
use borzoi_storage::disk::{Directory, Disk, DiskSubmissions, FileName, execute};
use borzoi_storage::partition::{CheckpointWork, FlushError, PartitionLog, ReadStart};
use borzoi_types::{Body, LogId, Micros, Offset, Op};
use bytes::Bytes;
use std::collections::BTreeMap;

pub const LANE: LogId = LogId(3);

/// What a lane's log can do to a partition.
#[derive(Clone, Debug)]
pub enum Step {
    Append { timestamp: u64, payload_lengths: Vec<usize> },
    Truncate { offset: u64 },
    DeleteOldest { count: u32, barrier: Option<u64> },
    Jump { by: u64 },
}

pub fn apply(log: &mut PartitionLog, cache: &mut SegmentCache, step: &Step) {
    match step {
        Step::Append { timestamp, payload_lengths } => {
            let base = log.next_offset();
            let bytes = batch(base, Micros(*timestamp), payload_lengths);
            let count = payload_lengths.len() as u32;
            log.append(bytes, base, count, Micros(*timestamp));
        }
        Step::Truncate { offset } => {
            log.truncate_before(cache, Offset(*offset));
        }
        Step::DeleteOldest { count, barrier } => {
            log.delete_oldest(cache, *count, barrier.map(Offset));
        }
        Step::Jump { by } => log.jump_to(Offset(log.next_offset().0 + by)),
    }
}

/// Every message that exists, and nothing else.
#[derive(Clone, Default, Debug)]
pub struct Model {
    pub messages: Vec<Message>,
    pub bytes: BTreeMap<u64, u64>,
    pub next: u64,
}

impl Model {
    /// `first` is where the log says it starts after the step: which closed segments go follows
    /// from the segments, which have tests of their own.
    pub fn apply(&mut self, step: &Step, first: u64) {
        match step {
            Step::Append { timestamp, payload_lengths } => {
                let mut bytes = 256;
                for (index, length) in payload_lengths.iter().enumerate() {
                    let offset = self.next + index as u64;
                    let timestamp = *timestamp;
                    self.messages.push(Message { offset, timestamp, payload_length: *length });
                    bytes += 48 + *length as u64;
                }
                self.bytes.insert(self.next, bytes);
                self.next += payload_lengths.len() as u64;
            }
            Step::Truncate { offset } => assert!(self.below(first).all(|m| m.offset < *offset)),
            Step::DeleteOldest { count, barrier } => {
                let barrier = if *count == 0 { Some(0) } else { barrier.map(|b| b + 1) };
                let free = barrier.unwrap_or(u64::MAX);
                assert!(self.below(first).all(|m| m.offset < free));
            }
            Step::Jump { by } => self.next += by,
        }
        self.messages.retain(|message| message.offset >= first);
        self.bytes = self.bytes.split_off(&first);
    }

    fn below(&self, first: u64) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.offset < first)
    }

    pub fn read(&self, start: ReadStart, count: u32) -> Vec<Message> {
        let from = match start {
            ReadStart::Offset(offset) => {
                self.messages.partition_point(|message| message.offset < offset.0)
            }
            ReadStart::First => 0,
            ReadStart::Last(back) => self.messages.len().saturating_sub(back as usize),
            ReadStart::Timestamp(time) => {
                let found = self.messages.iter().position(|m| m.timestamp >= time.0);
                found.unwrap_or(self.messages.len())
            }
        };
        self.messages[from..].iter().take(count as usize).cloned().collect()
    }

    pub fn check(&self, bench: &mut Bench) {
        let counters = bench.log.counters();
        assert_eq!(counters.messages, self.messages.len() as u64);
        assert_eq!(counters.bytes, self.bytes.values().sum::<u64>());
        assert_eq!(bench.log.next_offset().0, self.next);
        let mut from = 0;
        let mut all = Vec::new();
        loop {
            let outcome = bench.read(ReadStart::Offset(Offset(from)), 1_000, 1 << 20).unwrap();
            let Some(last) = outcome.last else { break };
            all.extend(decode(&outcome));
            from = last.0 + 1;
        }
        assert_eq!(all, self.messages);
    }
}

/// A partition whose lane's log is remembered, so that it can be restarted.
pub struct Node {
    pub bench: Bench,
    pub model: Model,
    /// Everything committed: operation `n` is at `n - 1`.
    pub steps: Vec<Step>,
    pub segment_bytes_max: u64,
    pub cache_options: CacheOptions,
}

impl Node {
    pub fn new(segment_bytes_max: u64, cache_options: CacheOptions) -> Self {
        Self {
            bench: Bench::with_cache(segment_bytes_max, cache_options),
            model: Model::default(),
            steps: Vec::new(),
            segment_bytes_max,
            cache_options,
        }
    }

    pub fn commit(&mut self, step: Step) {
        apply(&mut self.bench.log, &mut self.bench.cache, &step);
        self.model.apply(&step, self.bench.log.first_offset().0);
        self.steps.push(step);
    }

    /// Takes a checkpoint as a lane does; operations may be committed between its parts.
    pub fn begin_checkpoint(&mut self) -> (Checkpoint, CheckpointWork) {
        let (state, work) = self.bench.log.begin_checkpoint();
        let section = PartitionSection {
            state,
            consumers: BTreeMap::new(),
            reserved: None,
            extra: Bytes::from_static(b"options"),
        };
        let checkpoint = Checkpoint {
            log: LANE,
            op: Op(self.steps.len() as u64),
            prepare_checksum: self.steps.len() as u128,
            owner: Body::from(Bytes::from_static(b"client table")),
            partitions: vec![section],
        };
        (checkpoint, work)
    }

    pub fn finish_checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        work: &CheckpointWork,
    ) -> Result<(), FlushError> {
        while !self.bench.log.checkpoint_ready(work) {
            self.bench.flush()?;
            self.bench.sync()?;
        }
        execute(&mut self.bench.disk, &checkpoint.request()).map_err(FlushError::Fatal)?;
        self.bench.finish(work)?;
        let listing = self.bench.disk.list(Directory::Checkpoints).unwrap();
        for file in obsolete(LANE, checkpoint.op, &listing.files) {
            self.bench.disk.remove(&file).map_err(FlushError::Fatal)?;
        }
        Ok(())
    }

    pub fn checkpoint(&mut self) -> Result<(), FlushError> {
        let (checkpoint, work) = self.begin_checkpoint();
        self.finish_checkpoint(&checkpoint, &work)
    }

    /// Starts again from `disk`: the newest checkpoint, then every later operation.
    pub fn restart(&mut self, disk: TestDisk) {
        self.bench.disk = disk;
        self.bench.out = DiskSubmissions::new();
        self.bench.cache = SegmentCache::new(self.cache_options);
        let loaded = load_newest(&mut self.bench.disk, LANE).unwrap();
        let (mut log, op) = match &loaded.checkpoint {
            None => (PartitionLog::new(KEY, self.segment_bytes_max), 0),
            Some(checkpoint) => {
                let section = &checkpoint.partitions[0];
                assert_eq!(section.extra, "options");
                (PartitionLog::restore(&section.state).unwrap(), checkpoint.op.0 as usize)
            }
        };
        for step in &self.steps[op..] {
            apply(&mut log, &mut self.bench.cache, step);
        }
        self.bench.log = log;
        self.set_unnamed_aside();
    }

    fn set_unnamed_aside(&mut self) {
        for name in self.bench.disk.names() {
            let kept = matches!(name, FileName::Checkpoint { .. });
            if !kept && !self.bench.log.names_file(&name) {
                self.bench.disk.delete(&name);
            }
        }
    }

    /// The same log on a node that never stopped and flushed only at the end has the same files.
    pub fn check_files_equal_a_quiet_node(&mut self) {
        self.bench.settle().unwrap();
        let mut quiet = Bench::new(self.segment_bytes_max);
        for step in &self.steps {
            apply(&mut quiet.log, &mut quiet.cache, step);
        }
        quiet.settle().unwrap();
        assert_eq!(quiet.log.closed_segments(), self.bench.log.closed_segments());
        assert_eq!(quiet.log.active_segment(), self.bench.log.active_segment());
        let segments: Vec<_> = quiet.log.closed_segments().to_vec();
        for segment in segments.iter().chain([quiet.log.active_segment()]) {
            if segment.file_bytes == 0 {
                continue;
            }
            let name = FileName::Segment { key: KEY, base: segment.base };
            let length = segment.file_bytes as usize;
            let ours = &self.bench.disk.content(&name).unwrap()[..length];
            assert!(ours == &quiet.disk.content(&name).unwrap()[..length], "{name} differs");
        }
    }
}

/// A random committed operation; sizes are such that chunks and segments close often.
pub fn random_step(random: &mut Random, node: &Node) -> Step {
    let next = node.model.next;
    match random.below(20) {
        0 => Step::Jump { by: random.below(100) },
        1 => Step::Truncate { offset: random.below(next + 2) },
        2 => {
            let barrier = (random.below(2) == 0).then(|| random.below(next + 1));
            Step::DeleteOldest { count: random.below(4) as u32, barrier }
        }
        _ => {
            let count = 1 + random.below(4);
            let bound = [40, 3_000, 30_000, 90_000][random.below(4) as usize];
            let payload_lengths = (0..count).map(|_| random.below(bound) as usize).collect();
            // Mostly rising, sometimes stepping back.
            let timestamp = 1_000 + node.steps.len() as u64 * 10 - random.below(30).min(25);
            Step::Append { timestamp, payload_lengths }
        }
    }
}
