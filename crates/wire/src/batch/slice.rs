//! The part of a stored batch that a poll wants (section 6.5): a new header and a range of the
//! frames, which are not copied.

use super::header::{BatchHeader, BatchView};
use super::{BATCH_HEADER_BYTES, BatchFault};
use borzoi_types::Offset;
use core::ops::Range;

/// How much of a batch is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceLimits {
    /// First offset wanted; earlier messages are left out.
    pub from: Offset,
    /// Messages wanted at most.
    pub count_max: u32,
    /// Bytes wanted at most, batch header included. One message is given even if it is larger.
    pub bytes_max: usize,
}

/// A part of a batch, ready to be served: `header`, then the bytes `frames` of the stored batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchSlice {
    /// The new header; the stored one when everything is wanted.
    pub header: BatchHeader,
    /// Where the wanted frames are in the stored batch, its header counted.
    pub frames: Range<usize>,
    /// Offset of the first message.
    pub first: Offset,
    /// Offset of the last message.
    pub last: Offset,
    /// Whether this is the whole stored batch, which can then be served as it is.
    pub is_whole: bool,
}

impl BatchSlice {
    /// Bytes of header and frames.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        BATCH_HEADER_BYTES + (self.frames.end - self.frames.start)
    }
}

/// Finds the part of a stored batch that is wanted. `Ok(None)` when no message of it is.
///
/// The new header keeps the base offset and the frames keep their deltas, so that clients compute
/// the offsets of the stored batch.
///
/// # Errors
/// When `batch` is not one batch, its offsets do not count up, or, if all of it is wanted, its
/// header counts another number of frames. Checksums are not looked at.
pub fn slice_batch(batch: &[u8], limits: SliceLimits) -> Result<Option<BatchSlice>, BatchFault> {
    let view = BatchView::whole(batch)?;
    let Some(found) = find(&view, limits)? else { return Ok(None) };
    let is_whole = found.frames == (BATCH_HEADER_BYTES..batch.len());
    let mut header = *view.header();
    if is_whole {
        if found.count != header.message_count {
            let count = header.message_count;
            return Err(BatchFault::FrameCount { count, frames: found.count });
        }
    } else {
        header.batch_length = (BATCH_HEADER_BYTES + found.frames.len()) as u64;
        header.message_count = found.count;
        header.batch_checksum = header.checksum_over(&batch[found.frames.clone()])?;
    }
    let Found { frames, first, last, .. } = found;
    Ok(Some(BatchSlice { header, frames, first, last, is_whole }))
}

struct Found {
    frames: Range<usize>,
    first: Offset,
    last: Offset,
    count: u32,
}

fn find(view: &BatchView<'_>, limits: SliceLimits) -> Result<Option<Found>, BatchFault> {
    let mut found: Option<Found> = None;
    let mut at = BATCH_HEADER_BYTES;
    let mut next_delta = None;
    for (place, frame) in (0u32..).zip(view.frames()) {
        let frame = frame?;
        let delta = frame.offset_delta();
        if next_delta.is_some_and(|next| next != Some(delta)) {
            return Err(BatchFault::OffsetDelta { frame: place, delta });
        }
        next_delta = Some(delta.checked_add(1));
        let (start, end) = (at, at + frame.bytes().len());
        at = end;
        let offset = frame.offset(view.header());
        match &mut found {
            _ if offset < limits.from => {}
            None if limits.count_max == 0 => return Ok(None),
            None => {
                found = Some(Found { frames: start..end, first: offset, last: offset, count: 1 });
            }
            Some(part) => {
                let bytes = BATCH_HEADER_BYTES + (end - part.frames.start);
                if part.count == limits.count_max || bytes > limits.bytes_max {
                    break;
                }
                part.frames.end = end;
                part.last = offset;
                part.count += 1;
            }
        }
    }
    Ok(found)
}
