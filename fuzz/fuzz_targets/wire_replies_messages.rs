//! Replies about messages and offsets, as a client walks through them.
#![no_main]

use borzoi_wire::body::{ConsumerOffset, PollReply, SendConfirmation};
use borzoi_wire::{Entries, Wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Vec::<SendConfirmation>::decode_exact(bytes);
    let _ = Option::<ConsumerOffset>::decode_exact(bytes);
    let Ok(poll) = PollReply::decode(bytes) else { return };
    for batch in poll.batches() {
        let Ok(batch) = batch else { return };
        for frame in batch.frames() {
            let Ok(frame) = frame else { return };
            let length = frame.payload().len() + frame.user_headers().len();
            assert_eq!(length + 48, frame.bytes().len());
            let _ = (frame.offset(batch.header()), frame.origin_timestamp(batch.header()));
            Entries::new(frame.user_headers()).for_each(drop);
        }
    }
});
