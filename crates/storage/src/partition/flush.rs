//! From closed chunks to durable bytes: writes, syncs and their results.
//!
//! ```text
//! waiting ──flush──▶ writing ──written, in order──▶ written ──sync──▶ syncing ──▶ durable
//! ```
//!
//! Chunks keep their order throughout; results may come back in any order and are taken over from
//! the oldest on. A write that found no space goes back to be written again (its bytes were never
//! relied on); any other failed write, and every failed sync, is fatal: what the kernel did with
//! those pages is unknown, so they are never tried again.

use super::PartitionLog;
use crate::cache::SegmentCache;
use crate::disk::{
    DiskError, DiskErrorKind, DiskQueue, DiskRequest, DiskResult, DiskSubmissions, DiskTicket,
    FileName, padding,
};
use crate::index::IndexEntry;
use crate::segment::chunk::{CHUNK_HEADER_BYTES, Chunk, ChunkHeader, chunk_file_bytes};
use crate::segment::{self, SEGMENT_HEADER_BYTES, Segment};
use borzoi_types::limits::{SEGMENT_WRITE_BYTES_MAX, SEGMENT_WRITES_IN_FLIGHT_MAX};
use borzoi_types::{Offset, PartitionKey};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// A closed chunk whose bytes are not known to be in its file.
#[derive(Debug)]
pub(super) struct PendingChunk {
    /// Base of its segment.
    segment: Offset,
    /// Where its header goes in the segment file.
    position: u64,
    pub(super) chunk: Arc<Chunk>,
}

impl PendingChunk {
    pub(super) fn new(segment: Offset, position: u64, chunk: Chunk) -> Self {
        chunk.assert_valid();
        assert!(segment <= chunk.base && position >= SEGMENT_HEADER_BYTES);
        assert!(position.is_multiple_of(SEGMENT_HEADER_BYTES), "chunks are padded");
        Self { segment, position, chunk: Arc::new(chunk) }
    }

    fn position_end(&self) -> u64 {
        let end = self.position + chunk_file_bytes(self.chunk.length);
        assert!(end > self.position);
        end
    }
}

/// One write on its way: adjacent chunks of one segment.
#[derive(Debug)]
struct Writing {
    state: WriteState,
    chunks: Vec<SealedChunk>,
}

/// A chunk with its header, checksums computed once.
#[derive(Debug)]
struct SealedChunk {
    pending: PendingChunk,
    header: ChunkHeader,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteState {
    InFlight(DiskTicket),
    Done,
    /// Found no space; written again by the next flush.
    Failed,
}

/// Bytes written and not known to be durable, all of one segment.
#[derive(Debug)]
struct Written {
    segment: Offset,
    start: Offset,
    end: Offset,
    sync: SyncState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncState {
    Wanted,
    InFlight(DiskTicket),
    Done,
}

/// Everything of a partition between a closed chunk and durable bytes. Exists while not empty.
#[derive(Debug, Default)]
pub(super) struct FlushQueue {
    waiting: VecDeque<PendingChunk>,
    waiting_bytes: usize,
    /// Bytes of batches in `waiting` and `writing`.
    unwritten_bytes: usize,
    writing: VecDeque<Writing>,
    written: VecDeque<Written>,
    /// Closed segments whose index file is not written yet.
    index_wanted: VecDeque<Segment>,
    /// Index writes and removals whose results change nothing.
    side: Vec<DiskTicket>,
}

/// What a result changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushProgress {
    /// Bytes of batches that are now in a file and no longer held for being written.
    pub bytes_written: u64,
    /// More bytes are durable: a waiting checkpoint may be ready.
    pub durable_advanced: bool,
    /// An index file could not be written or a file not be removed; nothing depends on it.
    pub side_failed: bool,
}

/// A flush that did not work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlushError {
    /// No space: the bytes stay in memory and the journal; flush again later.
    #[error("segment not written, to be tried again: {0}")]
    Retry(DiskError),
    /// What is on the disk is unknown: the process must end.
    #[error("segment not written: {0}")]
    Fatal(DiskError),
}

impl FlushQueue {
    pub(super) fn push(&mut self, chunk: PendingChunk) {
        if let Some(last) = self.waiting.back() {
            assert!(last.chunk.end <= chunk.chunk.base, "chunks stay in order");
            let adjacent = last.segment == chunk.segment;
            assert!(!adjacent || last.position_end() == chunk.position, "chunks are adjacent");
        }
        self.waiting_bytes += chunk.chunk.length as usize;
        self.unwritten_bytes += chunk.chunk.length as usize;
        self.waiting.push_back(chunk);
        self.assert_valid();
    }

    pub(super) fn segment_closed(&mut self, segment: Segment) {
        segment.assert_valid();
        assert!(segment.file_bytes > SEGMENT_HEADER_BYTES, "closed segments have content");
        self.index_wanted.push_back(segment);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let chunks = self.waiting.iter().chain(self.pending_in_writes());
        size_of::<Self>() + chunks.map(|chunk| chunk.chunk.length as usize).sum::<usize>()
    }

    fn pending_in_writes(&self) -> impl Iterator<Item = &PendingChunk> {
        self.writing.iter().flat_map(|write| write.chunks.iter().map(|sealed| &sealed.pending))
    }

    /// Chunks that are only in memory, oldest first.
    pub(super) fn in_memory(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.pending_in_writes().chain(&self.waiting).map(|pending| &pending.chunk)
    }

    /// Where in the file of `segment` the chunks begin that are only in memory, if any are.
    pub(super) fn file_bytes_below(&self, segment: Offset) -> Option<u64> {
        let mut pending = self.pending_in_writes().chain(&self.waiting);
        let position = pending.find(|chunk| chunk.segment == segment).map(|chunk| chunk.position);
        let chunk_at =
            |at: u64| at >= SEGMENT_HEADER_BYTES && at.is_multiple_of(SEGMENT_HEADER_BYTES);
        assert!(position.is_none_or(chunk_at), "where a chunk is");
        position
    }

    fn wants_flush(&self) -> bool {
        let retry = self.writing.iter().any(|write| write.state == WriteState::Failed);
        let write =
            !self.waiting.is_empty() && self.writes_in_flight() < SEGMENT_WRITES_IN_FLIGHT_MAX;
        let next = self.index_wanted.front();
        retry || write || next.is_some_and(|next| self.file_bytes_below(next.base).is_none())
    }

    /// The partition is gone, nobody will read what is not written. If something still had to be
    /// written, drops everything but requests that are in flight, and returns where what was not
    /// durable began.
    pub(super) fn discard(&mut self) -> Option<Offset> {
        let failed = self.writing.iter().any(|write| write.state == WriteState::Failed);
        if self.waiting.is_empty() && !failed {
            return None;
        }
        let lost = self.first_not_durable();
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.writing.retain(|write| matches!(write.state, WriteState::InFlight(_)));
        self.written.retain(|written| matches!(written.sync, SyncState::InFlight(_)));
        self.unwritten_bytes =
            self.pending_in_writes().map(|pending| pending.chunk.length as usize).sum();
        self.index_wanted.clear();
        self.assert_valid();
        assert!(lost.is_some(), "what waits is not durable");
        lost
    }

    /// Takes the result of a write or sync of a partition that is gone: the file will be removed.
    /// Whether the ticket was one of these.
    fn forget(&mut self, ticket: DiskTicket) -> bool {
        let write = self.writing.iter().position(|w| w.state == WriteState::InFlight(ticket));
        if let Some(at) = write {
            let write = self.writing.remove(at).expect("just found");
            let bytes = write.chunks.iter().map(|chunk| chunk.pending.chunk.length as usize);
            self.unwritten_bytes -= bytes.sum::<usize>();
            return true;
        }
        let sync = self.written.iter().position(|w| w.sync == SyncState::InFlight(ticket));
        sync.is_some_and(|at| self.written.remove(at).is_some())
    }

    /// What holds between any two calls, as far as it can be seen from the ends.
    fn assert_valid(&self) {
        assert!(self.waiting.is_empty() == (self.waiting_bytes == 0), "no chunk is empty");
        assert!(self.waiting_bytes <= self.unwritten_bytes, "what waits is not written");
        assert!(self.writes_in_flight() <= SEGMENT_WRITES_IN_FLIGHT_MAX);
        let writing = self.writing.back().and_then(|write| write.chunks.last());
        if let (Some(writing), Some(waiting)) = (writing, self.waiting.front()) {
            assert!(writing.pending.chunk.end <= waiting.chunk.base, "chunks stay in order");
        }
        if let (Some(written), Some(writing)) = (self.written.back(), self.writing.front()) {
            let next = writing.chunks.first().expect("a write holds a chunk");
            assert!(written.end <= next.pending.chunk.base, "chunks stay in order");
        }
        if let (Some(first), Some(last)) = (self.written.front(), self.written.back()) {
            assert!(first.sync != SyncState::Done, "what is durable has left");
            assert!(first.start < first.end && first.segment <= last.segment);
        }
    }

    fn is_idle(&self) -> bool {
        let everything_written = self.waiting.is_empty() && self.writing.is_empty();
        assert!(everything_written == (self.unwritten_bytes == 0), "each chunk is counted once");
        everything_written
            && self.written.is_empty()
            && self.index_wanted.is_empty()
            && self.side.is_empty()
    }

    fn writes_in_flight(&self) -> usize {
        self.writing.iter().filter(|w| matches!(w.state, WriteState::InFlight(_))).count()
    }

    /// Takes adjacent chunks of one segment off the front, up to the size of one write.
    fn next_run(&mut self, key: PartitionKey) -> Vec<SealedChunk> {
        let mut run: Vec<SealedChunk> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            let next_bytes = next.chunk.length as usize;
            let joins = run.first().is_none_or(|first| first.pending.segment == next.segment);
            if !joins || (bytes > 0 && bytes + next_bytes > SEGMENT_WRITE_BYTES_MAX) {
                break;
            }
            bytes += next_bytes;
            let pending = self.waiting.pop_front().expect("just seen");
            let header = pending.chunk.seal(key);
            run.push(SealedChunk { pending, header });
        }
        assert!(self.waiting_bytes >= bytes, "the sum of what waits");
        self.waiting_bytes -= bytes;
        let adjacent =
            |two: &[SealedChunk]| two[0].pending.position_end() == two[1].pending.position;
        assert!(run.windows(2).all(adjacent), "one write is one piece of a file");
        assert!(!run.is_empty(), "called with chunks waiting");
        self.assert_valid();
        run
    }

    /// Moves the oldest finished writes on to `written`, their chunks into the cache.
    fn settle_writes(&mut self, key: PartitionKey, first: Offset, cache: &mut SegmentCache) -> u64 {
        let mut bytes = 0;
        while self.writing.front().is_some_and(|write| write.state == WriteState::Done) {
            let write = self.writing.pop_front().expect("just seen");
            for SealedChunk { pending, header } in write.chunks {
                let entry = IndexEntry::new(&header, pending.position);
                assert!(header.length == pending.chunk.length, "sealed as it was written");
                bytes += u64::from(pending.chunk.length);
                self.unwritten_bytes -= pending.chunk.length as usize;
                self.note_written(pending.segment, pending.chunk.base, pending.chunk.end);
                if pending.segment >= first {
                    cache.note_written(key, pending.segment, entry);
                    cache.insert_chunk(key, pending.chunk);
                }
            }
        }
        bytes
    }

    fn note_written(&mut self, segment: Offset, start: Offset, end: Offset) {
        assert!(segment <= start && start < end, "a chunk lies in its segment");
        match self.written.back_mut() {
            Some(last) if last.segment == segment && last.sync == SyncState::Wanted => {
                assert!(last.end == start && start < end);
                last.end = end;
            }
            _ => self.written.push_back(Written { segment, start, end, sync: SyncState::Wanted }),
        }
    }

    /// Drops what is durable from the front; whether there was anything.
    fn settle_syncs(&mut self) -> bool {
        let before = self.written.len();
        while self.written.front().is_some_and(|written| written.sync == SyncState::Done) {
            let durable = self.written.pop_front().expect("just seen");
            let next = self.first_not_durable();
            assert!(next.is_none_or(|next| next >= durable.end), "durable in order");
        }
        let waits = self.written.front().is_none_or(|written| written.sync != SyncState::Done);
        assert!(waits && self.written.len() <= before);
        self.written.len() < before
    }

    /// Offset of the first message in a closed chunk that is not durable.
    pub(super) fn first_not_durable(&self) -> Option<Offset> {
        let pending = self.pending_in_writes().chain(&self.waiting).next();
        let pending = pending.map(|pending| pending.chunk.base);
        let written = self.written.front().map(|written| written.start);
        assert!(written.is_none() || pending.is_none() || written < pending, "in order");
        written.or(pending)
    }
}

/// The gather list of one write: chunk headers, batches, padding, and the file's header sector
/// before the first chunk.
fn write_request(key: PartitionKey, run: &[SealedChunk]) -> DiskRequest {
    let first = &run.first().expect("a write holds a chunk").pending;
    let mut parts: Vec<Bytes> = Vec::with_capacity(run.len() * 3 + 1);
    let mut offset = first.position;
    if first.position == SEGMENT_HEADER_BYTES {
        parts.push(segment::encode_header(key, first.segment));
        offset = 0;
    }
    let mut position = first.position;
    for SealedChunk { pending, header } in run {
        assert!(pending.position == position, "chunks of a write are adjacent");
        assert!(header.key == key && header.base == pending.chunk.base);
        parts.push(Bytes::copy_from_slice(&header.encode()));
        parts.extend(pending.chunk.parts.iter().map(|part| part.bytes.clone()));
        let pad = padding(CHUNK_HEADER_BYTES as u64 + u64::from(pending.chunk.length));
        if !pad.is_empty() {
            parts.push(pad);
        }
        position = pending.position_end();
    }
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    assert!(offset + bytes == position, "the parts end where the next chunk begins");
    DiskRequest::Write { file: FileName::Segment { key, base: first.segment }, offset, parts }
}

/// What the result of a request means whose file nobody needs any more. One for which there was no
/// space has left nothing behind; any other error is the device's, and no smaller for that.
fn removed_result(result: &DiskResult) -> Result<FlushProgress, FlushError> {
    match result {
        Err(error) if !is_passing(error.kind) => Err(FlushError::Fatal(error.clone())),
        Ok(_) | Err(_) => Ok(FlushProgress { durable_advanced: true, ..FlushProgress::default() }),
    }
}

/// Whether the same write may work later.
const fn is_passing(kind: DiskErrorKind) -> bool {
    matches!(kind, DiskErrorKind::NoSpace | DiskErrorKind::TooManyOpen)
}

impl PartitionLog {
    /// Bytes of batches in closed chunks that no write has been issued for.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.waiting_bytes)
    }

    /// Bytes of batches in closed chunks that are not in a file yet.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.unwritten_bytes)
    }

    /// By how much [`Self::unwritten_bytes`] has changed since this was asked last: for a sum over
    /// partitions that does not look at each of them.
    pub fn unwritten_change(&mut self) -> i64 {
        let now = self.unwritten_bytes();
        let signed = |bytes: usize| i64::try_from(bytes).expect("it fits in memory");
        let change = signed(now) - signed(self.unwritten_told);
        self.unwritten_told = now;
        assert!(now > 0 || change <= 0, "what is written was unwritten");
        change
    }

    /// Whether [`Self::flush`] has something to issue now, at no minimum.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        let wants = self.queue.as_ref().is_some_and(|queue| queue.wants_flush());
        assert!(!wants || self.is_flushing());
        wants
    }

    /// Whether anything closed is not durable yet, or a request is in flight.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        self.queue.is_some()
    }

    /// Issues writes for closed chunks while at least `bytes_min` bytes of them wait (0: for all),
    /// up to the limit of writes in flight, and index files of segments that are complete. Returns
    /// the tickets whose results belong to [`Self::complete`].
    pub fn flush(
        &mut self,
        cache: &mut SegmentCache,
        bytes_min: usize,
        out: &mut DiskSubmissions,
    ) -> Vec<DiskTicket> {
        let key = self.key;
        let mut tickets = Vec::new();
        let Some(queue) = &mut self.queue else { return tickets };
        for write in &mut queue.writing {
            if write.state == WriteState::Failed {
                let ticket = out.submit(DiskQueue::Pool, write_request(key, &write.chunks));
                write.state = WriteState::InFlight(ticket);
                tickets.push(ticket);
            }
        }
        while !queue.waiting.is_empty()
            && queue.writes_in_flight() < SEGMENT_WRITES_IN_FLIGHT_MAX
            && queue.waiting_bytes >= bytes_min
        {
            let chunks = queue.next_run(key);
            let ticket = out.submit(DiskQueue::Pool, write_request(key, &chunks));
            queue.writing.push_back(Writing { state: WriteState::InFlight(ticket), chunks });
            tickets.push(ticket);
        }
        self.flush_indexes(cache, out, &mut tickets);
        self.drop_idle_queue();
        assert!(tickets.is_empty() || self.is_flushing(), "a request keeps its queue");
        tickets
    }

    /// Index files of closed segments all of whose chunks are written and indexed.
    fn flush_indexes(
        &mut self,
        cache: &mut SegmentCache,
        out: &mut DiskSubmissions,
        tickets: &mut Vec<DiskTicket>,
    ) {
        let (key, first) = (self.key, self.first_offset());
        let Some(queue) = &mut self.queue else { return };
        while let Some(segment) = queue.index_wanted.front().copied() {
            let gone = segment.base < first;
            if !gone && queue.file_bytes_below(segment.base).is_some() {
                return;
            }
            queue.index_wanted.pop_front();
            let index = cache.index(key, segment.base).filter(|_| !gone);
            // Not all of it in memory (a restart, an eviction): readers rebuild it when needed.
            let Some(index) = index.filter(|i| i.covered_bytes() == segment.file_bytes) else {
                continue;
            };
            assert!(index.end() == segment.end, "the index describes this segment");
            assert!(index.entries().len() <= segment.messages() as usize, "a message a chunk");
            let file = FileName::SegmentIndex { key, base: segment.base };
            let parts = vec![index.encode(key)];
            let request = DiskRequest::Write { file, offset: 0, parts };
            let ticket = out.submit(DiskQueue::Pool, request);
            queue.side.push(ticket);
            tickets.push(ticket);
        }
    }

    /// Issues syncs for everything that was written and is not durable. Returns their tickets.
    pub fn sync(&mut self, out: &mut DiskSubmissions) -> Vec<DiskTicket> {
        let key = self.key;
        let mut tickets = Vec::new();
        let Some(queue) = &mut self.queue else { return tickets };
        for written in &mut queue.written {
            if written.sync == SyncState::Wanted {
                let file = FileName::Segment { key, base: written.segment };
                let ticket = out.submit(DiskQueue::Pool, DiskRequest::Sync { file });
                written.sync = SyncState::InFlight(ticket);
                tickets.push(ticket);
            }
        }
        let wanted = queue.written.iter().any(|written| written.sync == SyncState::Wanted);
        assert!(!wanted && tickets.len() <= queue.written.len());
        tickets
    }

    /// Takes the result of a request that [`Self::flush`], [`Self::sync`] or
    /// [`Self::checkpoint_durable`] issued.
    ///
    /// # Errors
    /// [`FlushError::Retry`] when there was no space: flush again later. [`FlushError::Fatal`] when
    /// the process must end.
    pub fn complete(
        &mut self,
        cache: &mut SegmentCache,
        ticket: DiskTicket,
        result: &DiskResult,
    ) -> Result<FlushProgress, FlushError> {
        let (key, first) = (self.key, self.first_offset());
        let queue = self.queue.as_mut().expect("only a queue issues requests");
        let mut progress = FlushProgress::default();
        if self.dropped.is_some() && queue.forget(ticket) {
            self.drop_idle_queue();
            return removed_result(result);
        }
        let in_flight = WriteState::InFlight(ticket);
        if let Some(write) = queue.writing.iter_mut().find(|write| write.state == in_flight) {
            if let Err(error) = result {
                assert!(!self.removed || self.dropped.is_none(), "what is dropped is forgotten");
                write.state = WriteState::Failed;
                let error = error.clone();
                if self.removed && is_passing(error.kind) {
                    self.dropped = queue.discard();
                    self.drop_idle_queue();
                }
                return Err(if is_passing(error.kind) {
                    FlushError::Retry(error)
                } else {
                    FlushError::Fatal(error)
                });
            }
            assert!(!write.chunks.is_empty(), "a write holds a chunk");
            write.state = WriteState::Done;
            progress.bytes_written = queue.settle_writes(key, first, cache);
        } else if let Some(written) =
            queue.written.iter_mut().find(|written| written.sync == SyncState::InFlight(ticket))
        {
            if let Err(error) = result {
                return Err(FlushError::Fatal(error.clone()));
            }
            written.sync = SyncState::Done;
            progress.durable_advanced = queue.settle_syncs();
        } else {
            let side = queue.side.iter().position(|side| *side == ticket);
            queue.side.swap_remove(side.expect("a ticket this partition issued"));
            progress.side_failed = result.is_err();
        }
        assert!(progress.bytes_written == 0 || !progress.durable_advanced, "one result, one step");
        self.drop_idle_queue();
        Ok(progress)
    }

    pub(super) fn remember_side(&mut self, ticket: DiskTicket) {
        let side = &mut self.queue.get_or_insert_default().side;
        assert!(!side.contains(&ticket), "tickets are unique");
        side.push(ticket);
        assert!(self.is_flushing());
    }

    /// Forgets index files of segments that are gone, and the queue when nothing is left in it.
    pub(super) fn drop_idle_queue(&mut self) {
        let first = self.first_offset();
        if let Some(queue) = &mut self.queue {
            queue.index_wanted.retain(|segment| segment.base >= first);
            queue.assert_valid();
        }
        if self.queue.as_ref().is_some_and(|queue| queue.is_idle()) {
            self.queue = None;
        }
    }
}
