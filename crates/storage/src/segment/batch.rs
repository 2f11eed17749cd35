//! Batches as storage sees them: lengths, offsets, and what a read gathers of them.
//!
//! The format is the wire crate's (wire protocol, section 6). A batch was verified at admission;
//! here its header is read to know positions, and every length and offset is checked again. A poll
//! that wants part of a batch gets a rewritten header with the frames it asked for, unchanged and
//! not copied (section 6.5).

use super::chunk::Part;
use crate::sealing::{OpenError, Opener};
use borzoi_types::{Micros, Offset};
use borzoi_wire::batch::{
    BATCH_HEADER_BYTES, BatchFault, BatchView, FRAME_HEADER_BYTES, SliceLimits, slice_batch,
};
use bytes::Bytes;

/// Why bytes are not whole batches with the offsets that their place promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// Not a batch.
    #[error(transparent)]
    Fault(#[from] BatchFault),
    /// The header counts more messages than the batch has room for, or none.
    #[error("a batch of {length} bytes cannot hold {messages} messages")]
    Count {
        /// Bytes of the batch.
        length: usize,
        /// Messages it counts.
        messages: u32,
    },
    /// A batch starts at another offset than the one before it ended.
    #[error("a batch starts at offset {found} where {expected} was due")]
    Offset {
        /// Where it should start.
        expected: Offset,
        /// Where it says it starts.
        found: Offset,
    },
    /// The batch is encrypted and cannot be opened.
    #[error(transparent)]
    Sealed(#[from] OpenError),
}

/// What storage reads of a batch's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredBatch {
    /// Offset of the first message.
    pub base: Offset,
    /// Server time, one for the whole batch.
    pub timestamp: Micros,
    /// Header and frames, in bytes.
    pub length: usize,
    /// Number of messages, at least 1.
    pub messages: u32,
    /// Whether its frames are encrypted.
    pub is_sealed: bool,
}

impl StoredBatch {
    /// Reads the header of the batch that `bytes` starts with.
    ///
    /// # Errors
    /// [`BatchError::Fault`] if the batch is not whole, [`BatchError::Count`] if its length
    /// cannot hold its messages.
    pub fn read(bytes: &[u8]) -> Result<Self, BatchError> {
        let (view, is_sealed, rest) = BatchView::take_stored(bytes)?;
        let header = view.header();
        let (messages, length) = (header.message_count, view.bytes().len());
        let room = (length - BATCH_HEADER_BYTES) / FRAME_HEADER_BYTES;
        let base = header.base_offset;
        let fits = messages > 0 && messages as usize <= room;
        if !fits || base.0.checked_add(u64::from(messages)).is_none() {
            return Err(BatchError::Count { length, messages });
        }
        assert!(length + rest.len() == bytes.len());
        Ok(Self { base, timestamp: header.base_timestamp, length, messages, is_sealed })
    }

    /// Offset after the last message.
    #[must_use]
    pub fn end(&self) -> Offset {
        assert!(self.messages > 0, "checked when it was read");
        Offset(self.base.0 + u64::from(self.messages))
    }
}

/// Checks that `content` is whole batches whose offsets run from `base` to `end` without a gap.
///
/// # Errors
/// See [`BatchError`].
pub fn verify_tiling(content: &[u8], base: Offset, end: Offset) -> Result<(), BatchError> {
    assert!(base <= end);
    let mut at = 0;
    let mut expected = base;
    while at < content.len() {
        let view = StoredBatch::read(&content[at..])?;
        if view.base != expected {
            return Err(BatchError::Offset { expected, found: view.base });
        }
        at += view.length;
        expected = view.end();
    }
    if expected != end {
        return Err(BatchError::Offset { expected: end, found: expected });
    }
    assert!(at == content.len());
    Ok(())
}

/// What a read has gathered.
#[derive(Clone, Debug, Default)]
pub struct ReadOutcome {
    /// Whole wire batches back to back, in pieces; the first and the last may be sliced.
    pub batches: Vec<Bytes>,
    /// Messages in `batches`.
    pub messages: u32,
    /// Bytes in `batches`.
    pub bytes: usize,
    /// Offset of the first message in `batches`.
    pub first: Option<Offset>,
    /// Offset of the last message in `batches`.
    pub last: Option<Offset>,
}

/// How much a read may gather in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Messages.
    pub messages: u32,
    /// Bytes; one message is returned however large it is.
    pub bytes: usize,
}

/// Whether a read wants more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Everything in the given parts was taken; the next one may follow.
    More,
    /// A bound is reached.
    Nothing,
}

impl ReadOutcome {
    fn push(&mut self, slice: Bytes, messages: u32, first: Offset, last: Offset) {
        assert!(messages > 0 && first <= last);
        assert!(self.last.is_none_or(|before| before < first), "offsets rise");
        self.bytes += slice.len();
        self.messages = self.messages.checked_add(messages).expect("bounded by the wanted count");
        self.first.get_or_insert(first);
        self.last = Some(last);
        self.batches.push(slice);
        self.assert_valid();
    }

    /// What holds between any two batches.
    fn assert_valid(&self) {
        assert!(self.batches.is_empty() == (self.messages == 0));
        assert!((self.bytes == 0) == (self.messages == 0), "messages have bytes");
        assert!(self.first.is_some() == (self.messages > 0) && self.first <= self.last);
        if let (Some(first), Some(last)) = (self.first, self.last) {
            // Holes lie between partition segments: offsets may span more than the messages.
            assert!(last.0 - first.0 >= u64::from(self.messages) - 1);
        }
    }

    /// Adds the messages of `parts` (in order) that are at or after `from`, within `bounds`.
    ///
    /// # Errors
    /// [`BatchError`] if the bytes are not batches; nothing of the bad batch is added.
    pub fn take(
        &mut self,
        parts: &[Part],
        from: Offset,
        bounds: Bounds,
        opener: &Opener,
    ) -> Result<Wants, BatchError> {
        assert!(bounds.messages > 0);
        let start = parts.partition_point(|part| part.base <= from).saturating_sub(1);
        for part in &parts[start.min(parts.len())..] {
            if self.take_part(&part.bytes, from, bounds, opener)? == Wants::Nothing {
                return Ok(Wants::Nothing);
            }
        }
        assert!(self.messages < bounds.messages, "a reached bound ends the walk");
        Ok(Wants::More)
    }

    /// One part: runs of whole batches become one slice each.
    fn take_part(
        &mut self,
        bytes: &Bytes,
        from: Offset,
        bounds: Bounds,
        opener: &Opener,
    ) -> Result<Wants, BatchError> {
        assert!(self.messages < bounds.messages, "a reached bound ends the walk");
        let mut run = Run::default();
        let mut at = 0;
        while at < bytes.len() {
            let view = StoredBatch::read(&bytes[at..])?;
            let next = at + view.length;
            if view.end() <= from {
                at = next;
                continue;
            }
            let messages_left = bounds.messages - self.messages - run.messages;
            let bytes_left = bounds.bytes.saturating_sub(self.bytes + run.bytes());
            let whole =
                from <= view.base && view.messages <= messages_left && view.length <= bytes_left;
            if whole && !view.is_sealed {
                run.extend(at, next, &view);
                at = next;
                if run.messages + self.messages < bounds.messages {
                    continue;
                }
                run.flush(bytes, self);
                return Ok(Wants::Nothing);
            }
            run.flush(bytes, self);
            // At a byte limit a reply ends at a batch border, unless it would be empty.
            if view.length > bytes_left && self.messages > 0 {
                return Ok(Wants::Nothing);
            }
            let left = Bounds { messages: messages_left, bytes: bytes_left };
            let batch = bytes.slice(at..next);
            let batch = if view.is_sealed { opener.open(&batch)? } else { batch };
            let all = self.take_sliced(&batch, &view, from, left)?;
            if !all || self.messages == bounds.messages {
                return Ok(Wants::Nothing);
            }
            at = next;
        }
        run.flush(bytes, self);
        assert!(at == bytes.len(), "batches tile a part");
        Ok(Wants::More)
    }

    /// Part of one batch, or all of one that was opened: a rewritten header, then the wanted
    /// frames. Returns whether the slice reaches the batch's end.
    fn take_sliced(
        &mut self,
        batch: &Bytes,
        view: &StoredBatch,
        from: Offset,
        bounds: Bounds,
    ) -> Result<bool, BatchError> {
        assert!(batch.len() == view.length && bounds.messages > 0);
        let limits = SliceLimits { from, count_max: bounds.messages, bytes_max: bounds.bytes };
        let expected = from.max(view.base);
        let slice = slice_batch(batch, limits)?;
        let slice = slice.filter(|slice| slice.first == expected && slice.last < view.end());
        let Some(slice) = slice else {
            return Err(BatchError::Offset { expected, found: view.base });
        };
        let header = Bytes::copy_from_slice(&slice.header.encode());
        self.bytes += header.len();
        self.batches.push(header);
        let messages = slice.header.message_count;
        assert!(messages > 0 && messages <= bounds.messages);
        self.push(batch.slice(slice.frames), messages, slice.first, slice.last);
        Ok(slice.last.next() == view.end())
    }
}

/// Whole batches next to each other in one part.
#[derive(Default)]
struct Run {
    start: usize,
    end: usize,
    messages: u32,
    first: Offset,
    last: Offset,
}

impl Run {
    fn bytes(&self) -> usize {
        assert!(self.start <= self.end);
        self.end - self.start
    }

    fn extend(&mut self, at: usize, next: usize, view: &StoredBatch) {
        if self.messages == 0 {
            self.start = at;
            self.first = view.base;
        } else {
            assert!(self.end == at, "a run has no gap");
        }
        assert!(next - at == view.length, "exactly one batch");
        self.end = next;
        self.messages += view.messages;
        self.last = Offset(view.end().0 - 1);
    }

    fn flush(&mut self, bytes: &Bytes, into: &mut ReadOutcome) {
        assert!((self.messages > 0) == (self.bytes() > 0), "messages have bytes");
        if self.messages > 0 {
            into.push(bytes.slice(self.start..self.end), self.messages, self.first, self.last);
        }
        *self = Self::default();
        assert!(self.messages == 0);
    }
}
