//! A whole frame from a client, as a connection reads it.
#![no_main]

use borzoi_wire::frame::{FrameSize, HEADER_BYTES, RequestView};
use borzoi_wire::{Profile, detect_first_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = detect_first_bytes(bytes);
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(size) = FrameSize::peek(header, 1 << 20) {
        assert_eq!(size.frame_bytes() - HEADER_BYTES, size.body_bytes());
    }
    let Some((view, body)) = RequestView::split(bytes) else { return };
    for bound in [false, true] {
        match view.check(bound) {
            Ok(operation) => {
                let _ = view.check_body(body);
                if let Err(error) = Profile::A.decode_request(view, operation, body) {
                    let _ = (error.reaction(), error.to_string());
                }
            }
            Err(fault) => drop((fault.reaction(), fault.to_string())),
        }
    }
});
