//! Batches: each thing that can be wrong with one has its own fault and its own answer; stamping
//! and slicing keep the frames and the checksums right.

#![allow(clippy::unwrap_used)] // A failed step is the test's failure.

use borzoi_types::limits::{PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX};
use borzoi_types::{Micros, Offset, PartitionId, checksum::xxh3_64};
use borzoi_wire::ErrorCode;
use borzoi_wire::batch::*;
use proptest::collection::vec;
use proptest::prelude::*;

const HEAD: usize = BATCH_HEADER_BYTES;

fn messages<'a>(payloads: &'a [Vec<u8>], headers: &'a [u8]) -> Vec<NewMessage<'a>> {
    let message = |(place, payload): (usize, &'a Vec<u8>)| NewMessage {
        id: MessageId(place as u128 + 1),
        origin_timestamp: Micros(1_000 + 3 * place as u64),
        payload,
        user_headers: headers,
    };
    payloads.iter().enumerate().map(message).collect()
}

fn batch(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_batch(&messages(payloads, b""), &mut out).unwrap();
    out
}

/// Three messages of 10, 20 and 30 bytes: frames at 256, 314 and 382.
fn three() -> Vec<u8> {
    batch(&[vec![1; 10], vec![2; 20], vec![3; 30]])
}

fn put<const N: usize>(batch: &mut [u8], at: usize, bytes: [u8; N]) {
    batch[at..at + N].copy_from_slice(&bytes);
}

/// Gives the frame at `at` the checksum that its bytes have now.
fn reseal(batch: &mut [u8], at: usize, len: usize) {
    let checksum = xxh3_64(&batch[at + 8..at + len]);
    put(batch, at, checksum.to_le_bytes());
}

#[track_caller]
fn assert_fault(batch: &[u8], count: u32, fault: BatchFault, deny: ErrorCode) {
    assert_eq!(verify_send(batch, count), Err(fault));
    assert_eq!(fault.deny(), deny);
    assert!(!fault.to_string().is_empty());
}

#[test]
fn a_built_batch_verifies_and_reads_back() {
    let batch = three();
    let header = verify_send(&batch, 3).unwrap();
    assert_eq!(header.message_count, 3);
    assert_eq!(header.origin_timestamp, Micros(1_000));
    assert_eq!(header.batch_length, batch.len() as u64);
    let view = BatchView::whole(&batch).unwrap();
    let read: Vec<_> = view.frames().map(Result::unwrap).collect();
    assert_eq!(read[2].payload(), [3; 30]);
    assert_eq!(read[2].origin_timestamp(&header), Micros(1_006));
    assert_eq!(read[2].id(), MessageId(3));
    assert_eq!(read[1].offset(&header), Offset(1));
    assert_eq!(BatchHeader::decode(&header.encode()), Ok(header));
}

#[test]
fn a_batch_shorter_than_its_header_is_refused() {
    for len in [0, 1, 255] {
        let fault = BatchFault::TooShort { len };
        assert_fault(&three()[..len], 3, fault, ErrorCode::InvalidCommand);
    }
}

#[test]
fn a_length_field_that_lies_is_refused() {
    for announced in [0u64, 255, 256, 10_000, u64::MAX] {
        let mut batch = three();
        put(&mut batch, 32, announced.to_le_bytes());
        let fault = BatchFault::Length { announced, actual: batch.len() };
        assert_fault(&batch, 3, fault, ErrorCode::InvalidCommand);
    }
    let longer = [&three()[..], &[0]].concat();
    let fault = BatchFault::Length { announced: longer.len() as u64 - 1, actual: longer.len() };
    assert_fault(&longer, 3, fault, ErrorCode::InvalidCommand);
}

#[test]
fn a_reserved_byte_that_is_set_is_refused() {
    for at in [52, 53, 100, 255] {
        let mut batch = three();
        batch[at] = 1;
        assert_fault(&batch, 3, BatchFault::Reserved, ErrorCode::InvalidCommand);
    }
}

#[test]
fn an_empty_batch_is_refused() {
    let mut batch = BatchHeader { batch_length: 256, ..BatchHeader::default() }.encode();
    assert_fault(&batch, 0, BatchFault::Empty, ErrorCode::InvalidMessagesCount);
    put(&mut batch, 48, 1u32.to_le_bytes());
    let fault = BatchFault::FrameCount { count: 1, frames: 0 };
    assert_fault(&batch, 1, fault, ErrorCode::InvalidCommand);
}

#[test]
fn counts_that_differ_are_refused() {
    let fault = BatchFault::AnnouncedCount { count: 3, announced: 2 };
    assert_fault(&three(), 2, fault, ErrorCode::InvalidCommand);
    for (count, frames) in [(2u32, 3), (4, 3), (u32::MAX, 3)] {
        let mut batch = three();
        put(&mut batch, 48, count.to_le_bytes());
        let fault = BatchFault::FrameCount { count, frames };
        assert_fault(&batch, count, fault, ErrorCode::InvalidCommand);
    }
}

#[test]
fn a_frame_that_reaches_beyond_the_batch_is_refused() {
    let mut batch = three();
    put(&mut batch, 382 + 36, u32::MAX.to_le_bytes());
    let needed = 48 + u64::from(u32::MAX);
    let fault = BatchFault::FrameLength { frame: 2, needed, left: 78 };
    assert_fault(&batch, 3, fault, ErrorCode::InvalidCommand);
    // Half a frame header at the end.
    let mut batch = three();
    put(&mut batch, 382 + 36, 10u32.to_le_bytes());
    reseal(&mut batch, 382, 58);
    let fault = BatchFault::FrameLength { frame: 3, needed: 48, left: 20 };
    assert_fault(&batch, 3, fault, ErrorCode::InvalidCommand);
}

#[test]
fn a_reserved_field_of_a_frame_that_is_set_is_refused() {
    let mut batch = three();
    batch[314 + 47] = 1;
    reseal(&mut batch, 314, 68);
    let fault = BatchFault::FrameReserved { frame: 1 };
    assert_fault(&batch, 3, fault, ErrorCode::InvalidCommand);
}

#[test]
fn offsets_that_do_not_count_up_are_refused() {
    for delta in [0u32, 2, 7, u32::MAX] {
        let mut batch = three();
        put(&mut batch, 314 + 24, delta.to_le_bytes());
        reseal(&mut batch, 314, 68);
        let fault = BatchFault::OffsetDelta { frame: 1, delta };
        assert_fault(&batch, 3, fault, ErrorCode::InvalidCommand);
    }
}

#[test]
fn a_damaged_frame_and_a_damaged_header_have_different_faults() {
    let mut damaged = three();
    damaged[314 + 50] ^= 1;
    let fault = BatchFault::FrameChecksum { frame: 1 };
    assert_fault(&damaged, 3, fault, ErrorCode::InvalidMessageChecksum);
    for at in [0, 8, 16, 24, 40] {
        let mut damaged = three();
        damaged[at] ^= 1;
        let fault = BatchFault::BatchChecksum;
        assert_fault(&damaged, 3, fault, ErrorCode::InvalidBatchChecksum);
    }
    // A frame that was exchanged for another intact one.
    let mut exchanged = three();
    exchanged[314 + 50] ^= 1;
    reseal(&mut exchanged, 314, 68);
    assert_fault(&exchanged, 3, BatchFault::BatchChecksum, ErrorCode::InvalidBatchChecksum);
}

#[test]
fn payload_and_headers_are_taken_at_their_limit_and_refused_one_past_it() {
    let headers = vec![0; USER_HEADERS_BYTES_MAX + 1];
    let message = |payload, user_headers| NewMessage {
        id: MessageId(1),
        origin_timestamp: Micros(1),
        payload,
        user_headers,
    };
    let mut out = Vec::new();
    let at_limit = message(b"x", &headers[1..]);
    encode_batch(&[at_limit], &mut out).unwrap();
    verify_send(&out, 1).unwrap();
    let len = USER_HEADERS_BYTES_MAX + 1;
    let error = BatchBuildError::UserHeaders { message: 0, len };
    assert_eq!(encode_batch(&[message(b"x", &headers)], &mut Vec::new()), Err(error));
    let mut past = out.clone();
    past.push(0);
    let total = past.len() as u64;
    put(&mut past, 32, total.to_le_bytes());
    put(&mut past, HEAD + 32, u32::try_from(len).unwrap().to_le_bytes());
    let fault = BatchFault::UserHeaders { frame: 0, len: u32::try_from(len).unwrap() };
    assert_fault(&past, 1, fault, ErrorCode::TooBigUserHeaders);

    let payload = vec![0; PAYLOAD_BYTES_MAX + 1];
    out.clear();
    encode_batch(&[message(&payload[1..], b"")], &mut out).unwrap();
    verify_send(&out, 1).unwrap();
    let len = PAYLOAD_BYTES_MAX + 1;
    let error = BatchBuildError::Payload { message: 0, len };
    assert_eq!(encode_batch(&[message(&payload, b"")], &mut Vec::new()), Err(error));
    out.push(0);
    let total = out.len() as u64;
    put(&mut out, 32, total.to_le_bytes());
    put(&mut out, HEAD + 36, u32::try_from(len).unwrap().to_le_bytes());
    let fault = BatchFault::Payload { frame: 0, len: u32::try_from(len).unwrap() };
    assert_fault(&out, 1, fault, ErrorCode::TooBigMessagePayload);
}

#[test]
fn a_batch_is_built_from_at_least_one_message_within_71_minutes() {
    let mut out = vec![9];
    assert_eq!(encode_batch(&[], &mut out), Err(BatchBuildError::Empty));
    let at = |time| NewMessage {
        id: MessageId(1),
        origin_timestamp: Micros(time),
        payload: b"x",
        user_headers: b"",
    };
    let span = u64::from(u32::MAX);
    let error = BatchBuildError::TimeSpan { message: 1 };
    assert_eq!(encode_batch(&[at(5), at(6 + span)], &mut out), Err(error));
    assert_eq!(error.code(), ErrorCode::InvalidMessageTimestampDelta);
    assert_eq!(out, [9], "a refused batch leaves nothing behind");
    let header = encode_batch(&[at(5 + span), at(5)], &mut out).unwrap();
    assert_eq!(header.origin_timestamp, Micros(5), "the oldest message need not be the first");
    assert_eq!(verify_send(&out[1..], 2), Ok(header));
}

#[test]
fn stamping_what_is_no_batch_changes_nothing() {
    let mut short = vec![7; 300];
    assert!(stamp(&mut short, PartitionId(1), Offset(2), Micros(3)).is_err());
    assert_eq!(short, [7; 300]);
    let mut torn = three();
    put(&mut torn, 382 + 36, 1_000u32.to_le_bytes());
    let before = torn.clone();
    assert!(stamp(&mut torn, PartitionId(1), Offset(2), Micros(3)).is_err());
    assert_eq!(torn, before);
}

#[test]
fn a_slice_of_nothing_is_none_and_one_message_is_given_even_if_it_is_too_large() {
    let batch = three();
    let slice = |from, count_max, bytes_max| {
        slice_batch(&batch, SliceLimits { from: Offset(from), count_max, bytes_max }).unwrap()
    };
    assert_eq!(slice(3, 10, 10_000), None);
    assert_eq!(slice(0, 0, 10_000), None);
    let one = slice(1, 10, 0).unwrap();
    assert_eq!((one.first, one.last, one.frames.clone()), (Offset(1), Offset(1), 314..382));
    assert_eq!(one.bytes(), 256 + 68);
    let whole = slice(0, 10, 10_000).unwrap();
    assert!(whole.is_whole);
    assert_eq!(whole.header, *BatchView::whole(&batch).unwrap().header());
}

#[test]
fn a_slice_of_a_slice_keeps_its_offsets() {
    let mut batch = three();
    stamp(&mut batch, PartitionId(4), Offset(100), Micros(9)).unwrap();
    let cut = |batch: &[u8], from| {
        let limits = SliceLimits { from: Offset(from), count_max: 10, bytes_max: 10_000 };
        let slice = slice_batch(batch, limits).unwrap().unwrap();
        [&slice.header.encode()[..], &batch[slice.frames]].concat()
    };
    let twice = cut(&cut(&batch, 101), 102);
    assert_eq!(twice, cut(&batch, 102));
    let header = verify_stored(&twice).unwrap();
    assert_eq!((header.base_offset, header.message_count), (Offset(100), 1));
    let frame = BatchView::whole(&twice).unwrap().frames().next().unwrap().unwrap();
    assert_eq!(frame.offset(&header), Offset(102));
}

proptest! {
    #[test]
    fn any_slice_verifies_and_holds_exactly_what_was_asked_for(
        payloads in vec(vec(any::<u8>(), 0..60), 1..40),
        base in 0..u64::from(u32::MAX),
        from in 0..50u64,
        count_max in 0..50u32,
        bytes_max in 0..6_000usize,
    ) {
        let mut batch = batch(&payloads);
        let header = stamp(&mut batch, PartitionId(2), Offset(base), Micros(5)).unwrap();
        prop_assert_eq!(verify_stored(&batch), Ok(header));
        let from = Offset(base + from);
        let slice = slice_batch(&batch, SliceLimits { from, count_max, bytes_max }).unwrap();
        let available = (base + payloads.len() as u64).saturating_sub(from.0);
        let Some(slice) = slice else {
            prop_assert!(available == 0 || count_max == 0);
            return Ok(());
        };
        let served = [&slice.header.encode()[..], &batch[slice.frames.clone()]].concat();
        let served_header = verify_stored(&served).unwrap();
        prop_assert_eq!(served_header, slice.header);
        prop_assert_eq!(served.len(), slice.bytes());
        let count = u64::from(served_header.message_count);
        prop_assert_eq!(slice.first, from);
        prop_assert_eq!(slice.last.0, from.0 + count - 1);
        prop_assert!(count <= available && count <= u64::from(count_max));
        prop_assert!(count == 1 || slice.bytes() <= bytes_max);
        prop_assert_eq!(slice.is_whole, served == batch);
        // Not one message fewer than fits.
        if count < available && count < u64::from(count_max) {
            let next = usize::try_from(slice.last.0 + 1 - base).unwrap();
            prop_assert!(slice.bytes() + 48 + payloads[next].len() > bytes_max);
        }
    }

    #[test]
    fn a_flipped_byte_anywhere_in_a_batch_is_found(
        payloads in vec(vec(any::<u8>(), 0..60), 1..40),
        at in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let mut batch = batch(&payloads);
        let count = u32::try_from(payloads.len()).unwrap();
        prop_assert!(verify_send(&batch, count).is_ok());
        let at = at.index(batch.len());
        batch[at] ^= flip;
        prop_assert!(verify_send(&batch, count).is_err());
        prop_assert!(verify_stored(&batch).is_err());
    }

    #[test]
    fn a_batch_cut_anywhere_is_refused(
        payloads in vec(vec(any::<u8>(), 0..60), 1..20),
        at in any::<prop::sample::Index>(),
    ) {
        let batch = batch(&payloads);
        let cut = &batch[..at.index(batch.len())];
        prop_assert!(verify_send(cut, u32::try_from(payloads.len()).unwrap()).is_err());
    }
}
