//! One partition's committed batches: appended here when their operation commits, kept in memory
//! until they are in a segment, read from memory or disk.
//!
//! The batches of a partition are, from old to new:
//!
//! ```text
//! segments: durable │ written, not synced │ in a write │ closed chunks │ open chunk (tail)
//!                   └──────────── all of it below `next_offset` ───────────────────────┘
//! ```
//!
//! - The *open chunk* closes when its batches reach [`chunk_bytes`] or its segment reaches
//!   `segment_size`, both decided by content ([`crate::segment`]).
//! - [`PartitionLog::flush`] turns closed chunks into writes, [`PartitionLog::sync`] makes what was
//!   written durable, [`PartitionLog::complete`] takes the results.
//! - A checkpoint is taken at one operation of the lane ([`PartitionLog::begin_checkpoint`]): it
//!   names the closed chunks as segments and carries the open chunk itself. It may be written to
//!   disk only when [`PartitionLog::checkpoint_ready`] says that every byte it names is durable.
//!
//! Crash argument. Let C be the newest durable checkpoint, at operation op(C). Every batch
//! committed up to op(C) is in a segment, durable before C was written, or inside C. Every later
//! batch is in the journal, which is released only up to the older of the two kept checkpoints.
//! Replaying the journal after op(C) closes the same chunks at the same positions, because both
//! follow from content: bytes that were written after C and before the crash are either written
//! again, identically, or never named. A file is removed only when a checkpoint that does not name
//! it is durable ([`PartitionLog::checkpoint_durable`]); an older checkpoint that names it is
//! followed, in the journal, by the operation that truncated it.
//!
//! What this module does not do: it knows no consumers, no client replies and no replication. It
//! is told what was committed and asked what to read.

mod capture;
mod flush;
mod read;
mod read_disk;
mod tail;

pub use capture::{CheckpointWork, PartitionState, RestoreError};
pub use flush::{FlushError, FlushProgress};
pub use read::{ReadCursor, ReadError, ReadErrorKind, ReadOutcome, ReadPlan, ReadStart};

use crate::cache::SegmentCache;
use crate::disk::FileName;
use crate::segment::batch::StoredBatch;
use crate::segment::chunk::{chunk_bytes, chunk_file_bytes};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};
use borzoi_types::{Micros, Offset, PartitionKey};
use bytes::Bytes;
use flush::{FlushQueue, PendingChunk};
use tail::Tail;

/// What an append did beside keeping the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// A chunk was closed: [`PartitionLog::flush`] has something to write.
    pub chunk_closed: bool,
    /// A segment was closed: retention may have something to remove.
    pub segment_closed: bool,
}

/// Figures of a partition, by what the log says (flushed or not).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that exist.
    pub messages: u64,
    /// Their bytes as wire batches, 256 per batch included (behaviour specification, section 8).
    pub bytes: u64,
    /// Segments, the active one included even when it is empty.
    pub segments: u32,
}

/// The committed batches of one partition key.
#[derive(Debug)]
pub struct PartitionLog {
    key: PartitionKey,
    /// Bytes at which the open chunk closes.
    chunk_bytes: usize,
    segment_bytes_max: u64,
    next_offset: Offset,
    messages: u64,
    bytes: u64,
    /// Oldest first; none is empty.
    closed: Vec<Segment>,
    active: Segment,
    tail: Option<Box<Tail>>,
    queue: Option<Box<FlushQueue>>,
    /// What [`Self::unwritten_change`] has told so far.
    unwritten_told: usize,
    /// The partition is gone; only its files are left.
    removed: bool,
    /// Closed chunks from here on were dropped before they were durable, because the partition was
    /// removed.
    dropped: Option<Offset>,
    /// Segments that no longer exist but whose files may, oldest first.
    retired: Vec<Segment>,
}

impl PartitionLog {
    /// An empty partition whose first message will have offset 0 and whose segments close at
    /// `segment_bytes_max` bytes of batches.
    #[must_use]
    pub fn new(key: PartitionKey, segment_bytes_max: u64) -> Self {
        assert!(segment_bytes_max > 0, "a segment holds at least one batch");
        let log = Self {
            key,
            chunk_bytes: chunk_bytes(key),
            segment_bytes_max,
            next_offset: Offset::ZERO,
            messages: 0,
            bytes: 0,
            closed: Vec::new(),
            active: Segment::empty_at(Offset::ZERO),
            tail: None,
            queue: None,
            unwritten_told: 0,
            removed: false,
            dropped: None,
            retired: Vec::new(),
        };
        log.assert_valid();
        log
    }

    /// Whose log this is.
    #[must_use]
    pub const fn key(&self) -> PartitionKey {
        self.key
    }

    /// Offset that the next message will have.
    #[must_use]
    pub const fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Offset of the oldest message that exists; equal to [`Self::next_offset`] when none does.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        let first = self.closed.first().map_or(self.active.base, |segment| segment.base);
        assert!(first <= self.next_offset);
        first
    }

    /// Figures as of now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let segments = u32::try_from(self.closed.len() + 1).expect("bounded by offsets and memory");
        assert!((self.messages == 0) == (self.bytes == 0), "messages have bytes");
        assert!(self.messages <= self.next_offset.0, "offsets count every message");
        Counters { messages: self.messages, bytes: self.bytes, segments }
    }

    /// Closed segments, oldest first: what retention may remove. The active one never is.
    #[must_use]
    pub fn closed_segments(&self) -> &[Segment] {
        &self.closed
    }

    /// The segment that is being filled.
    #[must_use]
    pub const fn active_segment(&self) -> &Segment {
        &self.active
    }

    /// Whether a durable state of this log needs `file`. For the check at boot that sets aside
    /// what nobody names.
    #[must_use]
    pub fn names_file(&self, file: &FileName) -> bool {
        let (FileName::Segment { key, base } | FileName::SegmentIndex { key, base }) = file else {
            return false;
        };
        let segments = self.closed.iter().chain(&self.retired).chain([&self.active]);
        let named = segments.filter(|segment| segment.file_bytes > 0).any(|s| s.base == *base);
        *key == self.key && named
    }

    /// First offsets of the segments that may have files, oldest first.
    pub fn file_bases(&self) -> impl Iterator<Item = Offset> + '_ {
        let segments = self.retired.iter().chain(&self.closed).chain([&self.active]);
        segments.filter(|segment| segment.file_bytes > 0).map(|segment| segment.base)
    }

    /// Memory that this partition takes beside the shared cache, in bytes (an estimate that counts
    /// every allocation of its own).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let segments = (self.closed.capacity() + self.retired.capacity()) * size_of::<Segment>();
        let tail = self.tail.as_ref().map_or(0, |tail| tail.memory_bytes());
        let queue = self.queue.as_ref().map_or(0, |queue| queue.memory_bytes());
        let total = size_of::<Self>() + segments + tail + queue;
        assert!(total >= size_of::<Self>());
        total
    }

    /// Appends one committed batch: a whole wire batch whose header carries `base_offset` and
    /// `timestamp`, exactly as the log says.
    ///
    /// Panics if the batch does not continue the partition: committed operations were validated
    /// before they were prepared, so anything else is a broken invariant.
    pub fn append(
        &mut self,
        batch: Bytes,
        base_offset: Offset,
        messages: u32,
        timestamp: Micros,
    ) -> Appended {
        let view = StoredBatch::read(&batch).expect("validated before it was prepared");
        assert!(view.length == batch.len(), "exactly one batch");
        assert!(view.base == base_offset && view.messages == messages, "as the log says");
        assert!(view.timestamp == timestamp, "as the log says");
        assert!(base_offset == self.next_offset, "offsets are handed out once, in order");
        let tail = self.tail.get_or_insert_with(|| Box::new(Tail::new(base_offset)));
        tail.push(batch, &view);
        let length = view.length as u64;
        let chunk_full = tail.length() >= self.chunk_bytes;
        self.active.end = view.end();
        self.active.bytes += length;
        self.active.timestamp_max = self.active.timestamp_max.max(timestamp);
        self.next_offset = view.end();
        self.messages += u64::from(messages);
        self.bytes += length;
        let segment_closed = self.active.bytes >= self.segment_bytes_max;
        if chunk_full || segment_closed {
            self.close_chunk();
        }
        if segment_closed {
            self.close_segment(self.next_offset);
        }
        self.assert_valid();
        Appended { chunk_closed: chunk_full || segment_closed, segment_closed }
    }

    /// Moves on to `offset`, leaving a hole: whatever was told to anyone below it is never handed
    /// out again (required behaviours, A5 and A6). The next message starts a segment named for it.
    /// Jumping to where the partition is already changes nothing.
    ///
    /// Panics if `offset` is below the next offset.
    pub fn jump_to(&mut self, offset: Offset) {
        assert!(offset >= self.next_offset, "offsets never go back");
        if offset == self.next_offset {
            return;
        }
        self.close_chunk();
        if self.active.is_empty() {
            // It has no file and nothing durable names it: it goes away by being renamed.
            assert!(self.active.file_bytes == 0, "only segments with content have files");
            self.active = Segment::empty_at(offset);
        } else {
            self.close_segment(offset);
        }
        self.next_offset = offset;
        self.assert_valid();
    }

    /// Removes every closed segment all of whose messages are below `offset`. Returns how many.
    /// Their files go when the next checkpoint is durable.
    pub fn truncate_before(&mut self, cache: &mut SegmentCache, offset: Offset) -> u32 {
        let count = self.closed.partition_point(|segment| segment.end <= offset);
        let removed = self.retire_closed(cache, count);
        assert!(self.closed.first().is_none_or(|segment| segment.end > offset), "all of them");
        assert!(self.retired.last().is_none_or(|gone| removed == 0 || gone.end <= offset));
        removed
    }

    /// Removes up to `count` of the oldest closed segments, stopping at the first that holds a
    /// message above `barrier` (the lowest committed offset of any consumer; none: no consumer).
    /// Returns how many were removed.
    pub fn delete_oldest(
        &mut self,
        cache: &mut SegmentCache,
        count: u32,
        barrier: Option<Offset>,
    ) -> u32 {
        let free = barrier.map_or(self.closed.len(), |barrier| {
            self.closed.partition_point(|segment| segment.end.0 <= barrier.0.saturating_add(1))
        });
        let count = free.min(count as usize);
        let next_offset = self.next_offset;
        let removed = self.retire_closed(cache, count);
        assert!(removed as usize == count, "only closed segments go, and all that may");
        assert!(self.next_offset == next_offset, "offsets never renumber");
        removed
    }

    /// Removes everything: the partition was deleted or purged and its key will never be used
    /// again. The log must be kept, and driven, until [`Self::is_removed`]: a checkpoint that is
    /// under way may still name its files.
    ///
    /// Closed chunks that wait to be written are dropped: on a full disk they could never be, and
    /// nothing may wait for them, least of all the checkpoint that frees space. One that is under
    /// way and names them can never be ready ([`Self::voids_checkpoint`]): it is taken again.
    pub fn retire_all(&mut self, cache: &mut SegmentCache) {
        assert!(!self.removed, "a partition is removed once");
        self.removed = true;
        self.retire_closed(cache, self.closed.len());
        self.tail = None;
        self.dropped = self.queue.as_mut().and_then(|queue| queue.discard());
        if self.active.file_bytes > 0 {
            self.retired.push(self.active);
        }
        self.active = Segment::empty_at(self.next_offset);
        self.messages = 0;
        self.bytes = 0;
        cache.remove_below(self.key, Offset::MAX);
        self.drop_idle_queue();
        self.assert_valid();
        assert!(self.first_offset() == self.next_offset, "nothing is left to read");
    }

    /// Whether a checkpoint whose `work` this is can never be written, because what it names was
    /// dropped when the partition was removed.
    #[must_use]
    pub fn voids_checkpoint(&self, work: &CheckpointWork) -> bool {
        assert!(self.dropped.is_none() || self.removed, "only a removed partition drops anything");
        self.dropped.is_some_and(|from| !work.removed && from < work.closed_end)
    }

    /// Whether no file and no request of a removed partition is left.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let removed = self.messages == 0 && self.retired.is_empty() && self.queue.is_none();
        assert!(!removed || (self.tail.is_none() && self.active.file_bytes == 0), "nothing left");
        assert!(!removed || self.closed.is_empty());
        removed
    }

    /// Where retention should cut, for a truncate operation: the offset before which at most
    /// `segments_max` of the oldest closed segments lie that are wholly at or below `barrier` and
    /// are expired (newest message older than `expired_before`) or in excess of `bytes_max` bytes
    /// of closed segments. None if nothing is to go (behaviour specification, section 16).
    #[must_use]
    pub fn retention_cut(
        &self,
        barrier: Option<Offset>,
        expired_before: Option<Micros>,
        bytes_max: Option<u64>,
        segments_max: u32,
    ) -> Option<Offset> {
        let mut sealed_bytes: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
        let mut cut = None;
        for segment in self.closed.iter().take(segments_max as usize) {
            let consumed =
                barrier.is_none_or(|barrier| segment.end.0 <= barrier.0.saturating_add(1));
            let expired = expired_before.is_some_and(|before| segment.timestamp_max < before);
            let in_excess = bytes_max.is_some_and(|bytes_max| sealed_bytes > bytes_max);
            if !consumed || !(expired || in_excess) {
                break;
            }
            sealed_bytes -= segment.bytes;
            cut = Some(segment.end);
        }
        assert!(cut.is_none_or(|cut| cut > self.first_offset() && cut <= self.active.base));
        cut
    }

    /// Closes the open chunk, if there is one: its place in the file is decided here.
    fn close_chunk(&mut self) {
        let Some(tail) = self.tail.take() else { return };
        assert!(tail.end() == self.active.end, "the tail is the end of the active segment");
        let chunk = tail.close();
        if self.active.file_bytes == 0 {
            self.active.file_bytes = SEGMENT_HEADER_BYTES;
        }
        let position = self.active.file_bytes;
        self.active.file_bytes += chunk_file_bytes(chunk.length);
        assert!(chunk.end == self.next_offset, "chunks close at the end of what is committed");
        let queue = self.queue.get_or_insert_default();
        queue.push(PendingChunk::new(self.active.base, position, chunk));
        assert!(self.active.file_bytes > position && position >= SEGMENT_HEADER_BYTES);
    }

    /// Closes the active segment, whose chunks are all closed; the next one starts at `next_base`.
    fn close_segment(&mut self, next_base: Offset) {
        assert!(self.tail.is_none() && !self.active.is_empty());
        assert!(next_base >= self.active.end);
        let closed = core::mem::replace(&mut self.active, Segment::empty_at(next_base));
        closed.assert_valid();
        assert!(closed.file_bytes > SEGMENT_HEADER_BYTES, "its chunks are closed");
        self.closed.push(closed);
        self.queue.get_or_insert_default().segment_closed(closed);
    }

    fn retire_closed(&mut self, cache: &mut SegmentCache, count: usize) -> u32 {
        assert!(count <= self.closed.len(), "the active segment never goes");
        for segment in self.closed.drain(..count) {
            assert!(segment.file_bytes > 0, "closed segments have content");
            assert!(self.messages >= segment.messages() && self.bytes >= segment.bytes);
            self.messages -= segment.messages();
            self.bytes -= segment.bytes;
            self.retired.push(segment);
        }
        if count > 0 {
            cache.remove_below(self.key, self.first_offset());
            self.drop_idle_queue();
        }
        self.assert_valid();
        u32::try_from(count).expect("bounded by the segments there are")
    }

    /// What holds between any two calls.
    fn assert_valid(&self) {
        self.active.assert_valid();
        assert!(self.active.is_empty() || self.active.end == self.next_offset);
        assert!(!self.active.is_empty() || self.active.base == self.next_offset);
        if let Some(tail) = &self.tail {
            assert!(tail.base() < tail.end() && tail.end() == self.next_offset);
            assert!(tail.base() >= self.active.base, "one chunk lies in one segment");
            assert!(tail.length() < self.chunk_bytes, "or it would have been closed");
            assert!(tail.timestamp_max() <= self.active.timestamp_max);
        }
        if let (Some(first), Some(last)) = (self.closed.first(), self.closed.last()) {
            assert!(last.end <= self.active.base && !last.is_empty());
            assert!(first.base <= last.base && first.file_bytes > 0);
        }
        assert!(self.messages >= self.active.messages() && self.bytes >= self.active.bytes);
        assert!(self.retired.last().is_none_or(|gone| gone.end <= self.next_offset));
    }
}
