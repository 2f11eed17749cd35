//! The part of a read that needs a segment's file: its index, and its chunks.

use super::PartitionLog;
use super::read::{ReadCursor, ReadError, ReadErrorKind, Seek, Step, batch_at_time};
use crate::cache::SegmentCache;
use crate::disk::{DiskOutcome, DiskRequest, DiskResult, FileName};
use crate::index::{IndexEntry, SegmentIndex};
use crate::segment::batch::{BatchError, Bounds};
use crate::segment::chunk::{Chunk, ChunkError, ChunkHeader};
use crate::segment::{self, SEGMENT_HEADER_BYTES, Segment};
use borzoi_types::limits::{DISK_ALIGNMENT, SEGMENT_CHUNK_BYTES_MIN, SEGMENT_SCAN_BYTES};
use bytes::Bytes;
use std::sync::Arc;

/// What the file of a segment says about a seek.
pub(super) enum FileAnswer {
    Chunks(Vec<IndexEntry>),
    Ask(Step, DiskRequest),
    NotHere,
}

impl PartitionLog {
    /// Where in the file of `segment` what is only in memory would begin.
    fn file_end(&self, segment: &Segment) -> u64 {
        let pending = self.queue.as_ref().and_then(|q| q.file_bytes_below(segment.base));
        let end = pending.unwrap_or(segment.file_bytes);
        assert!(end <= segment.file_bytes);
        assert!(end == 0 || end >= SEGMENT_HEADER_BYTES, "a file has a header");
        end
    }

    /// Looks a seek up in the index of `segment`, or says what to read to get that far.
    pub(super) fn ask_file(
        &mut self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        segment: &Segment,
    ) -> Result<FileAnswer, ReadError> {
        let file_end = self.file_end(segment);
        if cursor.scan.as_ref().is_some_and(|(base, _)| *base != segment.base) {
            cursor.scan = None;
        }
        let scanned = cursor.scan.as_ref().map(|(_, index)| index);
        let index = scanned.or_else(|| cache.index(self.key, segment.base));
        let found = index.and_then(|index| run_at(index, cursor.seek, &cursor.read_left()));
        if let Some(entries) = found {
            let last = entries.last().expect("an answer names a chunk");
            assert!(last.position_end() <= file_end, "only what is written is indexed");
            self.keep_scan(cache, cursor, segment);
            return Ok(FileAnswer::Chunks(entries));
        }
        let covered = index.map_or(SEGMENT_HEADER_BYTES, SegmentIndex::covered_bytes);
        if covered >= file_end {
            self.keep_scan(cache, cursor, segment);
            return Ok(FileAnswer::NotHere);
        }
        let whole = file_end == segment.file_bytes && segment.base != self.active.base;
        if index.is_none() && whole && cursor.index_tried != Some(segment.base) {
            return Ok(self.read_index_file(segment));
        }
        if cursor.scan.is_none() {
            let start = cache.take_index(self.key, segment.base);
            let start = start.unwrap_or_else(|| SegmentIndex::empty_at(segment.base));
            cursor.scan = Some((segment.base, start));
        }
        Ok(self.read_headers(cursor, segment, file_end))
    }

    /// A scan has come far enough: its index moves to the cache, and is written if it is complete.
    fn keep_scan(&mut self, cache: &mut SegmentCache, cursor: &mut ReadCursor, segment: &Segment) {
        let Some((base, index)) = cursor.scan.take() else { return };
        assert!(base == segment.base && index.end() <= segment.end);
        assert!(index.covered_bytes() <= segment.file_bytes.max(SEGMENT_HEADER_BYTES));
        let complete = index.covered_bytes() == segment.file_bytes;
        cache.insert_index(self.key, base, index);
        if complete && self.closed.contains(segment) {
            self.want_index(*segment);
        }
    }

    fn read_index_file(&self, segment: &Segment) -> FileAnswer {
        // Every chunk but the last of a segment has at least this many bytes.
        assert!(segment.file_bytes > SEGMENT_HEADER_BYTES && !segment.is_empty());
        let chunks = segment.file_bytes / SEGMENT_CHUNK_BYTES_MIN as u64 + 2;
        let request = DiskRequest::Read {
            file: FileName::SegmentIndex { key: self.key, base: segment.base },
            offset: 0,
            bytes: segment::align_up(64 + chunks * size_of::<IndexEntry>() as u64),
        };
        FileAnswer::Ask(Step::IndexFile { segment: *segment }, request)
    }

    fn read_headers(&self, cursor: &ReadCursor, segment: &Segment, file_end: u64) -> FileAnswer {
        let (_, index) = cursor.scan.as_ref().expect("the caller started the scan");
        let covered = index.covered_bytes();
        let position = if covered == SEGMENT_HEADER_BYTES { 0 } else { covered };
        let last = index.entries().last().map_or(0, |entry| entry.position_end() - entry.position);
        // After a large chunk the next header alone is read, after small ones several at once.
        let window =
            if last > SEGMENT_SCAN_BYTES { DISK_ALIGNMENT as u64 } else { SEGMENT_SCAN_BYTES };
        assert!(covered < file_end && position <= covered);
        let request = DiskRequest::Read {
            file: FileName::Segment { key: self.key, base: segment.base },
            offset: position,
            bytes: window.min(file_end - position),
        };
        FileAnswer::Ask(Step::Scan { segment: *segment, position, file_end }, request)
    }

    pub(super) fn read_chunks(
        &self,
        segment: &Segment,
        entries: Vec<IndexEntry>,
    ) -> (Step, DiskRequest) {
        let (first, last) = (entries.first(), entries.last());
        let first = first.expect("an answer names a chunk").position;
        let end = last.expect("an answer names a chunk").position_end();
        assert!(first >= SEGMENT_HEADER_BYTES && end > first && end <= segment.file_bytes);
        assert!(entries.windows(2).all(|pair| pair[0].position_end() == pair[1].position));
        let request = DiskRequest::Read {
            file: FileName::Segment { key: self.key, base: segment.base },
            offset: first,
            bytes: end - first,
        };
        (Step::Chunks { segment: *segment, entries }, request)
    }

    /// An index file came back: good or not, the read goes on.
    pub(super) fn resume_index(
        &mut self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        segment: &Segment,
        result: DiskResult,
    ) {
        cursor.index_tried = Some(segment.base);
        let Ok(DiskOutcome::Data(data)) = result else { return };
        let index = SegmentIndex::decode(&data, self.key, segment.base, segment.file_bytes);
        if let Ok(index) = index
            && index.end() == segment.end
        {
            cache.insert_index(self.key, segment.base, index);
        }
        assert!(cursor.scan.is_none(), "the file is tried before a scan");
        assert!(segment.base != self.active.base, "only closed segments have index files");
    }

    /// Bytes with chunk headers came back.
    pub(super) fn resume_scan(
        &self,
        cursor: &mut ReadCursor,
        segment: &Segment,
        position: u64,
        file_end: u64,
        result: DiskResult,
    ) -> Result<(), ReadError> {
        assert!(position <= file_end && file_end <= segment.file_bytes);
        let (base, index) = cursor.scan.as_mut().expect("a scan is under way");
        assert!(*base == segment.base);
        let data = self.data_of(segment, position, result)?;
        if position == 0 {
            let header = segment::decode_header(&data);
            let (key, base) = header.map_err(|error| self.error_at(segment, 0, error.into()))?;
            if key != self.key || base != segment.base {
                let error = ChunkError::Misplaced { key, base };
                return Err(self.error_at(segment, 0, error.into()));
            }
        }
        let before = index.covered_bytes();
        loop {
            let at = index.covered_bytes();
            let inside = usize::try_from(at - position).unwrap_or(usize::MAX);
            let enough = inside < data.len() && data.len() - inside >= DISK_ALIGNMENT;
            if at >= file_end || (at > before && !enough) {
                break;
            }
            let bytes = data.get(inside..).unwrap_or_default();
            let header = ChunkHeader::decode_expected(bytes, self.key, index.end());
            let header = header.map_err(|error| self.error_at(segment, at, error.into()))?;
            let entry = IndexEntry::new(&header, at);
            let inside = entry.position_end() <= file_end && entry.end() <= segment.end;
            if !inside || !index.push(entry) {
                return Err(self.error_at(segment, at, ReadErrorKind::Content));
            }
        }
        assert!(index.covered_bytes() > before, "every step of a scan finds a chunk");
        Ok(())
    }

    /// Chunks came back: verified once, cached, and taken from.
    pub(super) fn resume_chunks(
        &mut self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        segment: &Segment,
        entries: &[IndexEntry],
        result: DiskResult,
    ) -> Result<(), ReadError> {
        assert!(!cursor.full, "a read that has everything asks for nothing");
        let start = entries.first().expect("a request names a chunk").position;
        let data = self.data_of(segment, start, result)?;
        for entry in entries {
            let inside = usize::try_from(entry.position - start).unwrap_or(usize::MAX);
            let bytes = data.slice(inside.min(data.len())..);
            let chunk = match Chunk::from_file(&bytes, self.key, entry.base) {
                Ok(chunk) if chunk.end == entry.end() && chunk.length == entry.length => chunk,
                // Read ahead of what is wanted: whoever wants it will meet the damage.
                _ if cursor.full => return Ok(()),
                wrong => {
                    let kind = wrong.map_or_else(ReadErrorKind::Chunk, |_| ReadErrorKind::Content);
                    let error = self.error_at(segment, entry.position, kind);
                    return self.doubt_index(cache, cursor, segment, error);
                }
            };
            let chunk = Arc::new(chunk);
            cache.insert_chunk(self.key, Arc::clone(&chunk));
            if cursor.full {
                continue;
            }
            let bad_batch = |e: BatchError| self.error_at(segment, entry.position, e.into());
            if let Seek::Time(time) = cursor.seek {
                let Some(offset) = batch_at_time(&chunk.parts, time).map_err(bad_batch)? else {
                    let error = self.error_at(segment, entry.position, ReadErrorKind::Content);
                    return self.doubt_index(cache, cursor, segment, error);
                };
                cursor.seek = Seek::Offset(offset);
            }
            cursor.take(&chunk.parts, chunk.end).map_err(bad_batch)?;
        }
        Ok(())
    }

    /// A chunk is not what the index said. If the chunk cannot be recognised, the index may be to
    /// blame: it is rebuilt from the log, once; if that leads to the same place, the log is.
    fn doubt_index(
        &self,
        cache: &mut SegmentCache,
        cursor: &mut ReadCursor,
        segment: &Segment,
        error: ReadError,
    ) -> Result<(), ReadError> {
        let content = matches!(
            error.kind,
            ReadErrorKind::Chunk(ChunkError::ContentChecksum | ChunkError::Batch(_))
        );
        assert!(error.position <= segment.file_bytes && error.kind.is_damage());
        if content || cursor.rebuilt == Some(segment.base) {
            return Err(error);
        }
        cache.remove_index(self.key, segment.base);
        cursor.rebuilt = Some(segment.base);
        cursor.index_tried = Some(segment.base);
        assert!(cursor.scan.is_none());
        Ok(())
    }

    fn data_of(
        &self,
        segment: &Segment,
        position: u64,
        result: DiskResult,
    ) -> Result<Bytes, ReadError> {
        match result {
            Ok(DiskOutcome::Data(data)) => Ok(data),
            Ok(DiskOutcome::Done) => unreachable!("a read gives data"),
            Err(error) => Err(self.error_at(segment, position, error.into())),
        }
    }
}

/// The adjacent chunks to read for a seek: enough for what is wanted, and no more.
fn run_at(index: &SegmentIndex, seek: Seek, left: &Bounds) -> Option<Vec<IndexEntry>> {
    let (at, from) = match seek {
        Seek::Offset(offset) => (index.find_offset(offset)?, offset),
        Seek::Time(time) => {
            let at = index.find_time(time)?;
            return Some(vec![index.entries()[at]]);
        }
    };
    let mut entries: Vec<IndexEntry> = Vec::new();
    let mut bytes = 0usize;
    for entry in &index.entries()[at..] {
        bytes = bytes.saturating_add(entry.length as usize);
        let enough = entry.base.0.saturating_sub(from.0) >= u64::from(left.messages);
        if !entries.is_empty() && (enough || bytes > left.bytes) {
            break;
        }
        entries.push(*entry);
    }
    let last = entries.last().expect("the first one is always taken");
    assert!(entries[0].base <= from && from < last.end());
    Some(entries)
}
