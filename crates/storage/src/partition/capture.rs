//! A partition's part of a checkpoint: taken at one operation, restored at boot.

use super::PartitionLog;
use super::flush::FlushQueue;
use super::tail::Tail;
use crate::cache::SegmentCache;
use crate::disk::{DiskQueue, DiskRequest, DiskSubmissions, DiskTicket, FileName};
use crate::segment::batch::{BatchError, StoredBatch};
use crate::segment::chunk::chunk_bytes;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};
use borzoi_types::{Body, Offset, PartitionKey};
use bytes::Bytes;

/// What a checkpoint says about one partition's batches.
///
/// `closed` and `active` name what is durable in files: their `file_bytes` count closed chunks
/// only, all of them synced before the checkpoint is written. `tail` is the rest, the open chunk,
/// below [`chunk_bytes`]; `active.end`, `active.bytes` and `active.timestamp_max`
/// include it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionState {
    /// Whose.
    pub key: PartitionKey,
    /// Bytes of batches at which a segment closes.
    pub segment_bytes_max: u64,
    /// Offset that the next message will have.
    pub next_offset: Offset,
    /// Closed segments, oldest first.
    pub closed: Vec<Segment>,
    /// The segment being filled.
    pub active: Segment,
    /// Whole wire batches that are in no closed chunk.
    pub tail: Body,
}

/// A checkpoint's claim on one partition: what must be durable before it is written, and which
/// files nobody needs afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointWork {
    pub(super) closed_end: Offset,
    retired: Vec<Offset>,
    /// The partition was gone when the checkpoint was taken: it names nothing of it.
    pub(super) removed: bool,
}

/// Why a state cannot be that of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The segments overlap, are empty or do not end where the partition does.
    #[error("the segments do not follow one another")]
    Segments,
    /// The open chunk is not whole batches up to the end of the partition.
    #[error("the open chunk does not end where the partition does")]
    Tail,
    /// The open chunk holds something that is not a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl PartitionLog {
    /// The state as of now, for a checkpoint at the operation just applied, and the work that has
    /// to be done before it may be written.
    ///
    /// The tail shares the memory of the log; nothing large is copied.
    pub fn begin_checkpoint(&mut self) -> (PartitionState, CheckpointWork) {
        let closed_end = self.tail.as_ref().map_or(self.next_offset, |tail| tail.base());
        let mut tail = Body::empty();
        if let Some(open) = &mut self.tail {
            for part in open.parts() {
                tail.push(part.bytes.clone());
            }
        }
        assert!(tail.len() < self.chunk_bytes, "larger ones are closed chunks");
        assert!(closed_end <= self.next_offset);
        assert!((closed_end == self.next_offset) == tail.is_empty(), "the tail is the rest");
        let state = PartitionState {
            key: self.key,
            segment_bytes_max: self.segment_bytes_max,
            next_offset: self.next_offset,
            closed: self.closed.clone(),
            active: self.active,
            tail,
        };
        let retired = self.retired.iter().map(|segment| segment.base).collect();
        (state, CheckpointWork { closed_end, retired, removed: self.removed })
    }

    /// Whether everything that the checkpoint names is durable, so that it may be written. Until
    /// then: [`Self::flush`] with no minimum, [`Self::sync`], [`Self::complete`].
    #[must_use]
    pub fn checkpoint_ready(&self, work: &CheckpointWork) -> bool {
        assert!(work.closed_end <= self.next_offset, "work of this log");
        if self.voids_checkpoint(work) {
            return false;
        }
        let not_durable = self.queue.as_ref().and_then(|queue| queue.first_not_durable());
        not_durable.is_none_or(|offset| offset >= work.closed_end)
    }

    /// The checkpoint is durable: removes the files that it, the newest one, no longer names.
    /// Returns the tickets whose results belong to [`Self::complete`].
    pub fn checkpoint_durable(
        &mut self,
        work: &CheckpointWork,
        out: &mut DiskSubmissions,
    ) -> Vec<DiskTicket> {
        assert!(self.checkpoint_ready(work), "a checkpoint is written when it is ready");
        let mut tickets = Vec::new();
        for base in &work.retired {
            self.retired.retain(|segment| segment.base != *base);
            for file in [
                FileName::SegmentIndex { key: self.key, base: *base },
                FileName::Segment { key: self.key, base: *base },
            ] {
                let ticket = out.submit(DiskQueue::Pool, DiskRequest::Remove { file });
                self.remember_side(ticket);
                tickets.push(ticket);
            }
        }
        assert!(tickets.len() == work.retired.len() * 2, "segment and index");
        assert!(!self.retired.iter().any(|segment| work.retired.contains(&segment.base)));
        tickets
    }

    /// The partition that a checkpoint describes. Replaying the lane's later operations brings it
    /// up to date. Small batches of the tail are copied, so the checkpoint's memory can be freed.
    ///
    /// # Errors
    /// [`RestoreError`] if the state is impossible; the checkpoint was intact by its checksum, so
    /// this is a checkpoint of a broken build.
    pub fn restore(state: &PartitionState) -> Result<Self, RestoreError> {
        let (messages, bytes) = state.check()?;
        let log = Self {
            key: state.key,
            chunk_bytes: chunk_bytes(state.key),
            segment_bytes_max: state.segment_bytes_max,
            next_offset: state.next_offset,
            messages,
            bytes,
            closed: state.closed.clone(),
            active: state.active,
            tail: restore_tail(&state.tail)?,
            queue: None,
            unwritten_told: 0,
            removed: false,
            dropped: None,
            retired: Vec::new(),
        };
        log.assert_valid();
        assert!(log.counters().segments as usize == state.closed.len() + 1);
        Ok(log)
    }

    /// A queue with the index of `segment` to be written, after a reader has rebuilt it.
    pub(super) fn want_index(&mut self, segment: Segment) {
        assert!(self.closed.contains(&segment), "only closed segments have index files");
        assert!(segment.file_bytes > SEGMENT_HEADER_BYTES, "with content");
        let queue: &mut FlushQueue = self.queue.get_or_insert_default();
        queue.segment_closed(segment);
    }

    /// Forgets what the cache holds of this partition.
    pub fn evict(&self, cache: &mut SegmentCache) {
        cache.remove_below(self.key, Offset::MAX);
    }
}

impl PartitionState {
    /// Whether this can be the state of a partition; the messages and bytes in it.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn check(&self) -> Result<(u64, u64), RestoreError> {
        let mut messages = 0u64;
        let mut bytes = 0u64;
        let mut before = Offset::ZERO;
        for segment in self.closed.iter().chain([&self.active]) {
            check_segment(segment, before)?;
            before = segment.end;
            messages = messages.checked_add(segment.messages()).ok_or(RestoreError::Segments)?;
            bytes = bytes.checked_add(segment.bytes).ok_or(RestoreError::Segments)?;
        }
        let closed_ok = self.closed.iter().all(|s| !s.is_empty() && s.file_bytes > 0);
        if !closed_ok || self.active.end != self.next_offset || self.segment_bytes_max == 0 {
            return Err(RestoreError::Segments);
        }
        self.check_tail()?;
        assert!((messages == 0) == (bytes == 0));
        assert!(messages <= self.next_offset.0, "offsets count every message");
        Ok((messages, bytes))
    }

    fn check_tail(&self) -> Result<(), RestoreError> {
        let closed_chunks = self.active.file_bytes > 0;
        let length = self.tail.len() as u64;
        // With no closed chunk the tail is the whole segment; otherwise it is less.
        let adds_up = length <= self.active.bytes && (length < self.active.bytes) == closed_chunks;
        if !adds_up || self.tail.len() >= chunk_bytes(self.key) {
            return Err(RestoreError::Tail);
        }
        if self.tail.is_empty() {
            return Ok(());
        }
        let content = self.tail.to_bytes();
        let first = StoredBatch::read(&content)?;
        let at_base = first.base == self.active.base;
        if first.base < self.active.base || at_base == closed_chunks {
            return Err(RestoreError::Tail);
        }
        let mut at = 0;
        let mut next = first.base;
        while at < content.len() {
            let batch = StoredBatch::read(&content[at..])?;
            if batch.base != next || batch.timestamp > self.active.timestamp_max {
                return Err(RestoreError::Tail);
            }
            at += batch.length;
            next = batch.end();
        }
        assert!(at == content.len() && next > first.base);
        if next == self.next_offset { Ok(()) } else { Err(RestoreError::Tail) }
    }
}

fn check_segment(segment: &Segment, before: Offset) -> Result<(), RestoreError> {
    let aligned = segment.file_bytes.is_multiple_of(SEGMENT_HEADER_BYTES);
    let has_chunk = segment.file_bytes == 0 || segment.file_bytes > SEGMENT_HEADER_BYTES;
    let ordered = before <= segment.base && segment.base <= segment.end;
    let empty = segment.base == segment.end;
    if ordered && aligned && has_chunk && empty == (segment.bytes == 0) {
        segment.assert_valid();
        assert!(segment.end >= before);
        Ok(())
    } else {
        Err(RestoreError::Segments)
    }
}

/// The open chunk; its content has been checked.
fn restore_tail(content: &Body) -> Result<Option<Box<Tail>>, RestoreError> {
    if content.is_empty() {
        return Ok(None);
    }
    let content = content.to_bytes();
    let mut tail = Box::new(Tail::new(StoredBatch::read(&content)?.base));
    let mut at = 0;
    while at < content.len() {
        let view = StoredBatch::read(&content[at..])?;
        let batch = Bytes::copy_from_slice(&content[at..at + view.length]);
        tail.push(batch, &view);
        at += view.length;
    }
    assert!(tail.length() == content.len());
    assert!(tail.base() < tail.end(), "content has batches");
    Ok(Some(tail))
}
