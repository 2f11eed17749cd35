//! The committed batches of a partition that are not in a closed chunk yet.
//!
//! Large batches stay in the buffer they arrived in; small ones are packed by copy into buffers of
//! their own, so that a slow partition never pins the megabyte its 500 bytes arrived in. A reader
//! gets slices of either; a packing buffer goes on being filled behind what was handed out.

use crate::segment::batch::StoredBatch;
use crate::segment::chunk::{Chunk, Part};
use borzoi_types::limits::BODY_BY_REFERENCE_BYTES_MIN;
use borzoi_types::{Micros, Offset};
use bytes::{BufMut, Bytes, BytesMut};

/// First packing buffer of a tail; each next one is as large as everything before it, so at most
/// half of the memory is spare.
const PACK_BYTES_MIN: usize = 1024;

/// The open chunk. Exists only while it holds a batch.
#[derive(Debug)]
pub(super) struct Tail {
    base: Offset,
    end: Offset,
    timestamp_first: Micros,
    timestamp_max: Micros,
    length: usize,
    parts: Vec<Part>,
    packing: BytesMut,
    packing_base: Offset,
}

impl Tail {
    pub(super) fn new(base: Offset) -> Self {
        assert!(base < Offset::MAX, "offsets never run out");
        Self {
            base,
            end: base,
            timestamp_first: Micros(u64::MAX),
            timestamp_max: Micros(0),
            length: 0,
            parts: Vec::new(),
            packing: BytesMut::new(),
            packing_base: base,
        }
    }

    pub(super) const fn base(&self) -> Offset {
        self.base
    }

    pub(super) const fn end(&self) -> Offset {
        self.end
    }

    pub(super) const fn length(&self) -> usize {
        self.length
    }

    pub(super) const fn timestamp_max(&self) -> Micros {
        self.timestamp_max
    }

    /// Bytes of memory allocated for packing, filled or not.
    pub(super) fn memory_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.bytes.len()).sum();
        assert!(parts + self.packing.len() == self.length, "everything is in one of the two");
        size_of::<Self>() + parts + self.packing.capacity() + size_of_val(self.parts.as_slice())
    }

    /// Adds a batch that `view` describes.
    pub(super) fn push(&mut self, batch: Bytes, view: &StoredBatch) {
        assert!(view.base == self.end, "batches follow one another");
        assert!(batch.len() == view.length);
        if self.length == 0 {
            self.timestamp_first = view.timestamp;
        }
        self.timestamp_max = self.timestamp_max.max(view.timestamp);
        self.timestamp_first = self.timestamp_first.min(self.timestamp_max);
        if batch.len() >= BODY_BY_REFERENCE_BYTES_MIN {
            self.freeze();
            self.parts.push(Part { base: view.base, bytes: batch });
        } else {
            self.pack(&batch, view.base);
        }
        self.length += view.length;
        self.end = view.end();
        assert!(self.base < self.end && self.timestamp_first <= self.timestamp_max);
        assert!(self.packing.is_empty() || self.packing_base < self.end);
    }

    fn pack(&mut self, batch: &[u8], base: Offset) {
        if self.packing.capacity() - self.packing.len() < batch.len() {
            self.freeze();
            let wanted = self.length.clamp(PACK_BYTES_MIN, BODY_BY_REFERENCE_BYTES_MIN);
            self.packing = BytesMut::with_capacity(wanted.max(batch.len()));
        }
        if self.packing.is_empty() {
            self.packing_base = base;
        }
        let capacity = self.packing.capacity();
        self.packing.put_slice(batch);
        assert!(self.packing.capacity() == capacity, "a packing buffer is never moved");
        assert!(!self.packing.is_empty() && self.packing_base <= base);
    }

    fn freeze(&mut self) {
        if !self.packing.is_empty() {
            let bytes = self.packing.split().freeze();
            self.parts.push(Part { base: self.packing_base, bytes });
        }
        assert!(self.packing.is_empty());
        assert!(self.parts.last().is_none_or(|part| part.base < self.end || self.length == 0));
    }

    /// Everything so far as readable parts, in order.
    pub(super) fn parts(&mut self) -> &[Part] {
        self.freeze();
        assert!(self.parts.first().is_none_or(|part| part.base == self.base));
        &self.parts
    }

    /// The finished chunk.
    pub(super) fn close(mut self) -> Chunk {
        self.freeze();
        assert!(self.base < self.end, "an empty tail is not a chunk");
        let chunk = Chunk {
            base: self.base,
            end: self.end,
            timestamp_first: self.timestamp_first,
            timestamp_max: self.timestamp_max,
            length: u32::try_from(self.length).expect("below a chunk plus one frame"),
            parts: self.parts,
        };
        chunk.assert_valid();
        chunk
    }
}
