//! Reads: planned at once against committed state, finished from memory or step by step from disk.
//!
//! A read looks for its next message in the open chunk, in closed chunks that are not written yet,
//! in the cache, and at last in the segment's file, for which it needs the segment's index. Each
//! time it needs the disk it hands out one request and waits as a [`ReadCursor`];
//! [`PartitionLog::resume`] goes on with the result:
//!
//! ```text
//!            ┌──────── memory or cache ────────┐
//! plan ──▶ seek ──▶ index file ──▶ scan ──▶ chunks ──▶ verified, cached, sliced ──▶ ready
//!            ▲         (absent or wrong)  │ headers      │
//!            └─────────────────────────────┴─────────────┘
//! ```
//!
//! Nothing is remembered about the log between two steps but where to go on, so truncation, jumps
//! and new batches in between are seen as they are. A failure is an error naming file and position;
//! only when earlier messages were gathered are those delivered first, and the next read meets the
//! failure.

use super::PartitionLog;
use super::read_disk::FileAnswer;
use crate::cache::SegmentCache;
use crate::disk::{DiskError, DiskRequest, DiskResult, FileName};
use crate::index::{IndexEntry, SegmentIndex};
use crate::sealing::{Keyring, OpenError, Opener};
use crate::segment::batch::{BatchError, Bounds, StoredBatch, Wants};
use crate::segment::chunk::{Chunk, ChunkError, Part};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeaderError};
use borzoi_types::{Micros, Offset};
use std::sync::Arc;

pub use crate::segment::batch::ReadOutcome;

/// Where a read starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStart {
    /// At this offset, or the next one that exists.
    Offset(Offset),
    /// At the first batch whose server time is at or after this.
    Timestamp(Micros),
    /// At the oldest message.
    First,
    /// So many messages before the end, or at the oldest if there are fewer.
    Last(u32),
}

/// How a read goes on.
#[derive(Debug)]
pub enum ReadPlan {
    /// It is finished.
    Ready(ReadOutcome),
    /// It needs the disk: execute `request`, then [`PartitionLog::resume`].
    Disk {
        /// A [`DiskRequest::Read`].
        request: DiskRequest,
        /// The read, waiting.
        cursor: Box<ReadCursor>,
    },
}

/// A read that waits for the disk.
#[derive(Debug)]
pub struct ReadCursor {
    pub(super) seek: Seek,
    bounds: Bounds,
    outcome: ReadOutcome,
    pub(super) full: bool,
    step: Step,
    pub(super) scan: Option<(Offset, SegmentIndex)>,
    /// Segment whose index file was tried and is not to be tried again.
    pub(super) index_tried: Option<Offset>,
    /// Segment whose index was found wrong and rebuilt once.
    pub(super) rebuilt: Option<Offset>,
    /// For batches that are encrypted.
    opener: Opener,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seek {
    Offset(Offset),
    Time(Micros),
}

#[derive(Debug)]
pub(super) enum Step {
    Memory,
    IndexFile { segment: Segment },
    Scan { segment: Segment, position: u64, file_end: u64 },
    Chunks { segment: Segment, entries: Vec<IndexEntry> },
}

/// A read that failed: where and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file} at byte {position}: {kind}")]
pub struct ReadError {
    /// The segment file.
    pub file: FileName,
    /// Where in it.
    pub position: u64,
    /// Why.
    pub kind: ReadErrorKind,
}

/// Why a read failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadErrorKind {
    /// The disk did not read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A chunk is damaged.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The file's header is damaged.
    #[error(transparent)]
    Header(#[from] SegmentHeaderError),
    /// The file ends or goes on where the log says otherwise.
    #[error("the segment's chunks do not add up to what the log says")]
    Content,
    /// A batch is encrypted and cannot be opened.
    #[error(transparent)]
    Sealed(#[from] OpenError),
}

impl ReadErrorKind {
    /// Whether stored bytes are damaged, as opposed to a disk that could not be asked.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::Disk(_) | Self::Sealed(_))
    }
}

impl From<BatchError> for ReadErrorKind {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Sealed(error) => Self::Sealed(error),
            other => Self::Chunk(ChunkError::Batch(other)),
        }
    }
}

impl ReadCursor {
    pub(super) fn take(&mut self, parts: &[Part], end: Offset) -> Result<(), BatchError> {
        let Seek::Offset(from) = self.seek else { unreachable!("the caller resolved the time") };
        assert!(from < end && !self.full);
        match self.outcome.take(parts, from, self.bounds, &self.opener)? {
            Wants::More => self.seek = Seek::Offset(end),
            Wants::Nothing => self.full = true,
        }
        assert!(self.outcome.messages <= self.bounds.messages);
        assert!(self.full || self.outcome.messages < self.bounds.messages, "full at its bound");
        assert!(self.full || self.seek == Seek::Offset(end), "it goes on behind what it took");
        Ok(())
    }
}

impl PartitionLog {
    /// Plans a read of at most `count` messages in at most `bytes_max` bytes from `start` on. At
    /// least one message is returned if one exists there, however large.
    ///
    /// Strategy `next` is the caller's: it knows what the consumer has stored.
    ///
    /// # Errors
    /// [`ReadError`]; never an empty result instead of a failure.
    pub fn plan_read(
        &mut self,
        cache: &mut SegmentCache,
        start: ReadStart,
        count: u32,
        bytes_max: usize,
    ) -> Result<ReadPlan, ReadError> {
        self.plan_read_with(cache, &Keyring::default(), start, (count, bytes_max))
    }

    /// The same where batches may be encrypted with one of `keys`; `max` are messages and bytes.
    ///
    /// # Errors
    /// As [`Self::plan_read`].
    pub fn plan_read_with(
        &mut self,
        cache: &mut SegmentCache,
        keys: &Keyring,
        start: ReadStart,
        (count, bytes_max): (u32, usize),
    ) -> Result<ReadPlan, ReadError> {
        if count == 0 || self.next_offset == self.first_offset() {
            return Ok(ReadPlan::Ready(ReadOutcome::default()));
        }
        assert!(self.messages > 0, "offsets below the next one are those of messages");
        let seek = match start {
            ReadStart::Offset(offset) => Seek::Offset(offset),
            ReadStart::Timestamp(time) => Seek::Time(time),
            ReadStart::First => Seek::Offset(Offset::ZERO),
            ReadStart::Last(back) => Seek::Offset(self.offset_from_end(back)),
        };
        let cursor = ReadCursor {
            seek,
            bounds: Bounds { messages: count, bytes: bytes_max },
            outcome: ReadOutcome::default(),
            full: false,
            step: Step::Memory,
            scan: None,
            index_tried: None,
            rebuilt: None,
            opener: Opener::new(keys.clone(), self.key),
        };
        self.advance(cache, Box::new(cursor))
    }

    /// Goes on with a read whose request has been executed.
    ///
    /// # Errors
    /// [`ReadError`], as for [`Self::plan_read`].
    pub fn resume(
        &mut self,
        cache: &mut SegmentCache,
        mut cursor: Box<ReadCursor>,
        result: DiskResult,
    ) -> Result<ReadPlan, ReadError> {
        let step = core::mem::replace(&mut cursor.step, Step::Memory);
        let segment = match &step {
            Step::IndexFile { segment } => *segment,
            Step::Scan { segment, .. } | Step::Chunks { segment, .. } => *segment,
            Step::Memory => unreachable!("a cursor that waits has a request"),
        };
        if !self.has_segment(segment.base) {
            // Truncated meanwhile: whatever came back, go on with what exists now.
            cursor.scan = None;
            return self.advance(cache, cursor);
        }
        let done = match step {
            Step::IndexFile { segment } => {
                self.resume_index(cache, &mut cursor, &segment, result);
                Ok(())
            }
            Step::Scan { segment, position, file_end } => {
                self.resume_scan(&mut cursor, &segment, position, file_end, result)
            }
            Step::Chunks { segment, entries } => {
                self.resume_chunks(cache, &mut cursor, &segment, &entries, result)
            }
            Step::Memory => unreachable!("handled above"),
        };
        match done {
            Ok(()) => self.advance(cache, cursor),
            Err(error) => finish_early(*cursor, error),
        }
    }

    /// Runs a read to its end on a disk that answers at once; for boot, tools and tests.
    ///
    /// # Errors
    /// [`ReadError`], as for [`Self::plan_read`].
    pub fn read_now(
        &mut self,
        cache: &mut SegmentCache,
        start: ReadStart,
        count: u32,
        bytes_max: usize,
        mut execute: impl FnMut(&DiskRequest) -> DiskResult,
    ) -> Result<ReadOutcome, ReadError> {
        let mut plan = self.plan_read(cache, start, count, bytes_max)?;
        loop {
            match plan {
                ReadPlan::Ready(outcome) => return Ok(outcome),
                ReadPlan::Disk { request, cursor } => {
                    assert!(matches!(request, DiskRequest::Read { .. }));
                    plan = self.resume(cache, cursor, execute(&request))?;
                }
            }
        }
    }

    /// The offset of the message that has `back - 1` messages after it, holes not counted.
    fn offset_from_end(&self, back: u32) -> Offset {
        let mut left = u64::from(back);
        for segment in self.closed.iter().chain([&self.active]).rev() {
            if segment.messages() >= left {
                return Offset(segment.end.0 - left);
            }
            left -= segment.messages();
        }
        assert!(left > 0 && u64::from(back) > self.messages, "more than there are");
        self.first_offset()
    }

    fn has_segment(&self, base: Offset) -> bool {
        self.active.base == base
            || self.closed.binary_search_by_key(&base, |segment| segment.base).is_ok()
    }

    /// The segment that holds the first message at or after `offset`, and that message's offset.
    fn next_existing(&self, offset: Offset) -> Option<(Offset, Segment)> {
        let at = self.closed.partition_point(|segment| segment.end <= offset);
        let segment = *self.closed.get(at).unwrap_or(&self.active);
        let offset = offset.max(segment.base);
        assert!(at == 0 || self.closed[at - 1].end <= offset, "nothing before it is left out");
        segment.contains(offset).then_some((offset, segment))
    }

    /// Goes on until the read is finished or needs the disk.
    fn advance(
        &mut self,
        cache: &mut SegmentCache,
        mut cursor: Box<ReadCursor>,
    ) -> Result<ReadPlan, ReadError> {
        loop {
            let target = match cursor.seek {
                _ if cursor.full => None,
                Seek::Offset(offset) => self.next_existing(offset).map(|(offset, segment)| {
                    cursor.seek = Seek::Offset(offset);
                    segment
                }),
                Seek::Time(time) => self.segment_at_time(time),
            };
            let Some(segment) = target else {
                return Ok(ReadPlan::Ready(cursor.outcome));
            };
            let asked = match cursor.seek {
                Seek::Offset(offset) => self.seek_offset(cache, &mut cursor, offset, &segment),
                Seek::Time(time) => self.seek_time(cache, &mut cursor, time, &segment),
            };
            match asked {
                Ok(None) => {}
                Ok(Some((step, request))) => {
                    assert!(matches!(cursor.step, Step::Memory), "one request at a time");
                    assert!(matches!(request, DiskRequest::Read { bytes: 1.., .. }));
                    cursor.step = step;
                    return Ok(ReadPlan::Disk { request, cursor });
                }
                Err(error) => return finish_early(*cursor, error),
            }
        }
    }

    /// Takes messages from `offset` on from memory, or says what to ask the disk.
    fn seek_offset(
        &mut self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        offset: Offset,
        segment: &Segment,
    ) -> Result<Option<(Step, DiskRequest)>, ReadError> {
        assert!(segment.contains(offset) && offset < self.next_offset);
        if let Some(tail) = self.tail.as_mut().filter(|tail| offset >= tail.base()) {
            let end = tail.end();
            if let Err(error) = cursor.take(tail.parts(), end) {
                return Err(self.error_at(segment, segment.file_bytes, error.into()));
            }
            return Ok(None);
        }
        if let Some(chunk) = self.chunk_in_memory(cache, offset) {
            let taken = cursor.take(&chunk.parts, chunk.end);
            taken.map_err(|error| self.error_at(segment, 0, error.into()))?;
            return Ok(None);
        }
        match self.ask_file(cache, cursor, segment)? {
            FileAnswer::Ask(step, request) => Ok(Some((step, request))),
            FileAnswer::Chunks(entries) => Ok(Some(self.read_chunks(segment, entries))),
            FileAnswer::NotHere => Err(self.error_at(segment, 0, ReadErrorKind::Content)),
        }
    }

    /// Finds the first batch at or after `time` and turns the seek into one by offset.
    fn seek_time(
        &mut self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        time: Micros,
        segment: &Segment,
    ) -> Result<Option<(Step, DiskRequest)>, ReadError> {
        assert!(segment.timestamp_max >= time && cursor.outcome.messages == 0);
        let found = match self.ask_file(cache, cursor, segment)? {
            FileAnswer::Ask(step, request) => return Ok(Some((step, request))),
            FileAnswer::Chunks(entries) => {
                let first = entries.first().expect("an answer names a chunk");
                let Some(chunk) = cache.chunk(self.key, first.base) else {
                    return Ok(Some(self.read_chunks(segment, entries)));
                };
                batch_at_time(&chunk.parts, time)
            }
            FileAnswer::NotHere => self.memory_at_time(segment, time),
        };
        match found.map_err(|error| self.error_at(segment, 0, error.into()))? {
            Some(offset) => {
                assert!(segment.contains(offset));
                cursor.seek = Seek::Offset(offset);
                Ok(None)
            }
            None => Err(self.error_at(segment, 0, ReadErrorKind::Content)),
        }
    }

    fn segment_at_time(&self, time: Micros) -> Option<Segment> {
        let mut segments = self.closed.iter().chain([&self.active]);
        let found = segments.find(|segment| !segment.is_empty() && segment.timestamp_max >= time);
        assert!(found.is_none_or(|segment| segment.end <= self.next_offset));
        found.copied()
    }

    /// The first batch at or after `time` among what is only in memory of `segment`.
    fn memory_at_time(
        &mut self,
        segment: &Segment,
        time: Micros,
    ) -> Result<Option<Offset>, BatchError> {
        assert!(!segment.is_empty() && segment.timestamp_max >= time);
        if let Some(queue) = &self.queue {
            let mut chunks = queue.in_memory().filter(|chunk| segment.contains(chunk.base));
            if let Some(chunk) = chunks.find(|chunk| chunk.timestamp_max >= time) {
                return batch_at_time(&chunk.parts, time);
            }
        }
        let tail = self.tail.as_mut().filter(|tail| segment.contains(tail.base()));
        tail.map_or(Ok(None), |tail| batch_at_time(tail.parts(), time))
    }

    fn chunk_in_memory(&self, cache: &mut SegmentCache, offset: Offset) -> Option<Arc<Chunk>> {
        let holds = |chunk: &Chunk| chunk.base <= offset && offset < chunk.end;
        let pending = self.queue.as_ref().and_then(|queue| {
            let found = queue.in_memory().find(|chunk| holds(chunk));
            found.cloned()
        });
        let found = pending.or_else(|| cache.chunk(self.key, offset));
        if let Some(chunk) = &found {
            chunk.assert_valid();
            assert!(holds(chunk) && chunk.end <= self.next_offset);
        }
        found
    }

    pub(super) fn error_at(
        &self,
        segment: &Segment,
        position: u64,
        kind: ReadErrorKind,
    ) -> ReadError {
        let file = FileName::Segment { key: self.key, base: segment.base };
        assert!(position <= segment.file_bytes.max(SEGMENT_HEADER_BYTES));
        assert!(segment.base <= segment.end);
        ReadError { file, position, kind }
    }
}

impl ReadCursor {
    /// What the read may still gather.
    pub(super) fn read_left(&self) -> Bounds {
        assert!(self.outcome.messages < self.bounds.messages, "or it would be full");
        let left = Bounds {
            messages: self.bounds.messages - self.outcome.messages,
            bytes: self.bounds.bytes.saturating_sub(self.outcome.bytes),
        };
        assert!(left.messages > 0 && left.messages <= self.bounds.messages);
        left
    }
}

/// What was gathered before a failure is delivered; without any, the failure is.
fn finish_early(cursor: ReadCursor, error: ReadError) -> Result<ReadPlan, ReadError> {
    assert!(!cursor.full, "a read that has everything asks for nothing");
    assert!(cursor.outcome.messages < cursor.bounds.messages);
    if cursor.outcome.messages > 0 { Ok(ReadPlan::Ready(cursor.outcome)) } else { Err(error) }
}

/// Base offset of the first batch in `parts` at or after `time`.
pub(super) fn batch_at_time(parts: &[Part], time: Micros) -> Result<Option<Offset>, BatchError> {
    for part in parts {
        let mut at = 0;
        while at < part.bytes.len() {
            let view = StoredBatch::read(&part.bytes[at..])?;
            assert!(view.length > 0, "a batch has a header");
            if view.timestamp >= time {
                return Ok(Some(view.base));
            }
            at += view.length;
        }
        assert!(at == part.bytes.len());
    }
    Ok(None)
}
