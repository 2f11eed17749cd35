//! A batch: verification, stamping and slicing agree about what is one.
#![no_main]

use borzoi_types::{Micros, Offset, PartitionId};
use borzoi_wire::batch::{
    BATCH_HEADER_BYTES, BatchView, MessageId, NewMessage, SliceLimits, encode_batch, slice_batch,
    stamp, verify_send, verify_stored,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes.to_vec());
    // Checksums are hard to guess, so the input also says how to build and then damage a batch.
    let Some(([count, len, at, flip], data)) = bytes.split_first_chunk::<4>() else { return };
    let messages: Vec<NewMessage<'_>> = (0..u128::from(*count % 8) + 1)
        .zip(data.chunks(usize::from(*len) + 1).cycle())
        .map(|(id, payload)| NewMessage {
            id: MessageId(id + 1),
            origin_timestamp: Micros(u64::from(*at)),
            payload,
            user_headers: &[],
        })
        .collect();
    let mut batch = Vec::new();
    if encode_batch(&messages, &mut batch).is_err() {
        return;
    }
    let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
    assert!(verify_send(&batch, count).is_ok());
    check(batch.clone());
    let place = usize::from(*at) * batch.len() / 256;
    batch[place] ^= *flip;
    assert_eq!(verify_send(&batch, count).is_ok(), *flip == 0);
    check(batch);
});

fn check(mut batch: Vec<u8>) {
    let verified = verify_stored(&batch).is_ok();
    let view = BatchView::whole(&batch).map(|view| view.frames().count());
    for from in [0, 1, 5] {
        let limits = SliceLimits { from: Offset(from), count_max: 2, bytes_max: 600 };
        if let Ok(Some(slice)) = slice_batch(&batch, limits) {
            assert!(slice.frames.start >= BATCH_HEADER_BYTES && slice.first <= slice.last);
            let served = [&slice.header.encode()[..], &batch[slice.frames]].concat();
            assert!(!verified || verify_stored(&served).is_ok());
        }
    }
    let stamped = stamp(&mut batch, PartitionId(3), Offset(9), Micros(7));
    assert!(stamped.is_err() || view.is_ok());
    assert!(!verified || verify_stored(&batch).is_ok());
}
