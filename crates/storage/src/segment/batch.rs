//! The little of the client's batch format that storage needs: lengths, offsets, and slicing.
//!
//! A batch is a 256-byte header and its frames (wire protocol, sections 6.1 to 6.3). It was verified
//! at admission; here only what decides over positions is read, every length is checked again, and
//! a poll that wants part of a batch gets a rewritten header with the frames it asked for, unchanged
//! and not copied (section 6.5).

use super::chunk::Part;
use super::{u32_at, u64_at};
use borzoi_types::checksum::xxh3_64;
use borzoi_types::{Micros, Offset};
use bytes::Bytes;

/// Length of a batch's header in bytes.
pub const BATCH_HEADER_BYTES: usize = 256;

/// Length of a message frame's fixed part in bytes.
pub const FRAME_HEADER_BYTES: usize = 48;

const BASE_OFFSET_AT: usize = 8;
const BASE_TIMESTAMP_AT: usize = 16;
const BATCH_LENGTH_AT: usize = 32;
const BATCH_CHECKSUM_AT: usize = 40;
const MESSAGE_COUNT_AT: usize = 48;
const PRODUCER_AT: usize = 52;

/// Why bytes are not whole batches with the offsets that their place promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// A length points past the bytes there are.
    #[error("a batch is cut short")]
    Short,
    /// The frames do not fill the batch, or their number is another one.
    #[error("a batch's length and its frames disagree")]
    Frames,
    /// A batch starts at another offset than the one before it ended.
    #[error("a batch starts at offset {found} where {expected} was due")]
    Offset {
        /// Where it should start.
        expected: Offset,
        /// Where it says it starts.
        found: Offset,
    },
}

/// What storage reads of a batch's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchView {
    /// Offset of the first message.
    pub base: Offset,
    /// Server time, one for the whole batch.
    pub timestamp: Micros,
    /// Header and frames, in bytes.
    pub length: usize,
    /// Number of messages, at least 1.
    pub messages: u32,
}

impl BatchView {
    /// Reads the header of the batch that `bytes` starts with.
    ///
    /// # Errors
    /// [`BatchError::Short`] if the batch is not whole, [`BatchError::Frames`] if its length
    /// cannot hold its messages.
    pub fn read(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err(BatchError::Short);
        }
        let length = usize::try_from(u64_at(bytes, BATCH_LENGTH_AT)).unwrap_or(usize::MAX);
        if length > bytes.len() {
            return Err(BatchError::Short);
        }
        let messages = u32_at(bytes, MESSAGE_COUNT_AT);
        let room = length.saturating_sub(BATCH_HEADER_BYTES) / FRAME_HEADER_BYTES;
        let base = Offset(u64_at(bytes, BASE_OFFSET_AT));
        let fits = messages > 0 && messages as usize <= room;
        if !fits || base.0.checked_add(u64::from(messages)).is_none() {
            return Err(BatchError::Frames);
        }
        let timestamp = Micros(u64_at(bytes, BASE_TIMESTAMP_AT));
        Ok(Self { base, timestamp, length, messages })
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
        let view = BatchView::read(&content[at..])?;
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
    ) -> Result<Wants, BatchError> {
        assert!(bounds.messages > 0);
        let start = parts.partition_point(|part| part.base <= from).saturating_sub(1);
        for part in &parts[start.min(parts.len())..] {
            if self.take_part(&part.bytes, from, bounds)? == Wants::Nothing {
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
    ) -> Result<Wants, BatchError> {
        let mut run = Run::default();
        let mut at = 0;
        while at < bytes.len() {
            let view = BatchView::read(&bytes[at..])?;
            let next = at + view.length;
            if view.end() <= from {
                at = next;
                continue;
            }
            let messages_left = bounds.messages - self.messages - run.messages;
            let bytes_left = bounds.bytes.saturating_sub(self.bytes + run.bytes());
            let whole =
                from <= view.base && view.messages <= messages_left && view.length <= bytes_left;
            if whole {
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
            let all = self.take_sliced(&bytes.slice(at..next), &view, from, left)?;
            if !all || self.messages == bounds.messages {
                return Ok(Wants::Nothing);
            }
            at = next;
        }
        run.flush(bytes, self);
        Ok(Wants::More)
    }

    /// Part of one batch: a rewritten header, then the wanted frames. Returns whether the slice
    /// reaches the batch's end.
    fn take_sliced(
        &mut self,
        batch: &Bytes,
        view: &BatchView,
        from: Offset,
        bounds: Bounds,
    ) -> Result<bool, BatchError> {
        assert!(batch.len() == view.length && bounds.messages > 0);
        let cut = cut_frames(batch, view, from, bounds)?;
        let frames = batch.slice(cut.start..cut.end);
        let header = sliced_header(batch, &frames, &cut);
        let first = Offset(view.base.0 + u64::from(cut.skipped));
        let last = Offset(first.0 + u64::from(cut.messages) - 1);
        assert!(last < view.end());
        self.bytes += header.len();
        self.batches.push(header);
        self.push(frames, cut.messages, first, last);
        Ok(last.next() == view.end())
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

    fn extend(&mut self, at: usize, next: usize, view: &BatchView) {
        if self.messages == 0 {
            self.start = at;
            self.first = view.base;
        } else {
            assert!(self.end == at, "a run has no gap");
        }
        self.end = next;
        self.messages += view.messages;
        self.last = Offset(view.end().0 - 1);
    }

    fn flush(&mut self, bytes: &Bytes, into: &mut ReadOutcome) {
        if self.messages > 0 {
            into.push(bytes.slice(self.start..self.end), self.messages, self.first, self.last);
        }
        *self = Self::default();
        assert!(self.messages == 0);
    }
}

/// Which frames of a batch a read gets.
struct Cut {
    start: usize,
    end: usize,
    skipped: u32,
    messages: u32,
}

fn cut_frames(
    batch: &[u8],
    view: &BatchView,
    from: Offset,
    bounds: Bounds,
) -> Result<Cut, BatchError> {
    let skip = u32::try_from(from.0.saturating_sub(view.base.0)).map_err(|_| BatchError::Frames)?;
    assert!(skip < view.messages, "the caller skips batches that end before `from`");
    let mut at = BATCH_HEADER_BYTES;
    let mut cut = Cut { start: at, end: at, skipped: skip, messages: 0 };
    for index in 0..view.messages {
        if batch.len() - at < FRAME_HEADER_BYTES {
            return Err(BatchError::Frames);
        }
        let headers = u32_at(batch, at + 32) as usize;
        let payload = u32_at(batch, at + 36) as usize;
        let next = at + FRAME_HEADER_BYTES + headers + payload;
        if next > batch.len() || u32_at(batch, at + 24) != index {
            return Err(BatchError::Frames);
        }
        if index < skip {
            cut.start = next;
        } else {
            let bytes = BATCH_HEADER_BYTES + (next - cut.start);
            if cut.messages > 0 && (cut.messages == bounds.messages || bytes > bounds.bytes) {
                break;
            }
            cut.messages += 1;
            cut.end = next;
        }
        at = next;
    }
    assert!(cut.messages > 0 && cut.start < cut.end);
    Ok(cut)
}

/// The header of a slice: length, count and checksum are those of what is sent (6.3).
fn sliced_header(batch: &[u8], frames: &[u8], cut: &Cut) -> Bytes {
    let mut header = batch[..BATCH_HEADER_BYTES].to_vec();
    let length = (BATCH_HEADER_BYTES + frames.len()) as u64;
    header[BATCH_LENGTH_AT..BATCH_LENGTH_AT + 8].copy_from_slice(&length.to_le_bytes());
    header[MESSAGE_COUNT_AT..MESSAGE_COUNT_AT + 4].copy_from_slice(&cut.messages.to_le_bytes());
    let checksum = batch_checksum(&header, frames);
    header[BATCH_CHECKSUM_AT..BATCH_CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
    assert!(header.len() == BATCH_HEADER_BYTES);
    Bytes::from(header)
}

/// The batch checksum (6.3) of a header with its fields in place and frames that tile `frames`.
#[must_use]
pub fn batch_checksum(header: &[u8], frames: &[u8]) -> u64 {
    assert!(header.len() == BATCH_HEADER_BYTES);
    let messages = u32_at(header, MESSAGE_COUNT_AT) as usize;
    let mut covered = Vec::with_capacity(64 + messages * 8);
    covered.extend_from_slice(&header[..BATCH_CHECKSUM_AT]);
    covered.extend_from_slice(&header[MESSAGE_COUNT_AT..PRODUCER_AT]);
    if header[PRODUCER_AT] == 1 {
        covered.push(1);
        covered.extend_from_slice(&header[56..66]);
        covered.extend_from_slice(&header[68..72]);
    }
    let mut at = 0;
    while at + FRAME_HEADER_BYTES <= frames.len() {
        covered.extend_from_slice(&frames[at..at + 8]);
        let headers = u32_at(frames, at + 32) as usize;
        at += FRAME_HEADER_BYTES + headers + u32_at(frames, at + 36) as usize;
    }
    assert!(at == frames.len(), "frames tile what is sent");
    xxh3_64(&covered)
}
