//! Verification of a batch in one pass over its bytes.

use super::BatchFault;
use super::checksum::BatchChecksum;
use super::frames::MessageFrame;
use super::header::{BatchHeader, BatchView};
use crate::codec::usize_from;
use borzoi_types::limits::{PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX};

/// Whose batch is verified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A client: its frames count from 0, limits apply, nothing is assigned yet.
    Client,
    /// A disk or a peer: a slice may start anywhere, limits were checked at admission.
    Stored,
}

/// Verifies a batch that a client sends: every check of section 6.4 that concerns the batch, each
/// with a fault of its own, in one pass.
///
/// Partition, base offset and time of appending are covered by the checksum and otherwise not
/// looked at, as in the reference system: [`super::stamp`] overwrites them.
///
/// `announced_count` is the number of messages that the request announces beside the batch.
///
/// # Errors
/// The first check that fails; [`BatchFault::deny`] is the answer.
pub fn verify_send(batch: &[u8], announced_count: u32) -> Result<BatchHeader, BatchFault> {
    let view = BatchView::whole(batch)?;
    let header = *view.header();
    if header.message_count == 0 {
        return Err(BatchFault::Empty);
    }
    if header.message_count != announced_count {
        let count = header.message_count;
        return Err(BatchFault::AnnouncedCount { count, announced: announced_count });
    }
    verify_frames(&view, Source::Client)?;
    Ok(header)
}

/// Verifies a batch that was stored or comes from a peer: structure and all checksums.
///
/// # Errors
/// The first check that fails.
pub fn verify_stored(batch: &[u8]) -> Result<BatchHeader, BatchFault> {
    let view = BatchView::whole(batch)?;
    if view.header().message_count == 0 {
        return Err(BatchFault::Empty);
    }
    verify_frames(&view, Source::Stored)?;
    Ok(*view.header())
}

fn verify_frames(view: &BatchView<'_>, source: Source) -> Result<(), BatchFault> {
    let header = view.header();
    let mut checksum = BatchChecksum::new(&header.checksum_part());
    let mut left = view.frame_bytes();
    let mut frames: u32 = 0;
    let mut first_delta = 0;
    while !left.is_empty() {
        let (frame, rest) = MessageFrame::take(left, frames)?;
        if frames == header.message_count {
            return Err(BatchFault::FrameCount { count: header.message_count, frames: frames + 1 });
        }
        if source == Source::Client {
            verify_limits(&frame, frames)?;
        } else if frames == 0 {
            first_delta = frame.offset_delta();
        }
        if frame.reserved() != 0 {
            return Err(BatchFault::FrameReserved { frame: frames });
        }
        let delta = frame.offset_delta();
        if first_delta.checked_add(frames) != Some(delta) {
            return Err(BatchFault::OffsetDelta { frame: frames, delta });
        }
        if frame.checksum() != frame.computed_checksum() {
            return Err(BatchFault::FrameChecksum { frame: frames });
        }
        checksum.add(frame.checksum().to_le_bytes());
        frames += 1;
        left = rest;
    }
    if frames != header.message_count {
        return Err(BatchFault::FrameCount { count: header.message_count, frames });
    }
    if checksum.finish() != header.batch_checksum {
        return Err(BatchFault::BatchChecksum);
    }
    Ok(())
}

fn verify_limits(frame: &MessageFrame<'_>, place: u32) -> Result<(), BatchFault> {
    let payload = frame.payload_length();
    if usize_from(payload) > PAYLOAD_BYTES_MAX {
        return Err(BatchFault::Payload { frame: place, len: payload });
    }
    let headers = frame.user_headers_length();
    if usize_from(headers) > USER_HEADERS_BYTES_MAX {
        return Err(BatchFault::UserHeaders { frame: place, len: headers });
    }
    Ok(())
}
