//! The body of every command: what decodes encodes to something no longer that decodes again.
#![no_main]

use borzoi_wire::{CommandCode, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, body)) = bytes.split_first() else { return };
    let command = CommandCode::ALL[usize::from(which) % CommandCode::ALL.len()];
    let Some(operation) = command.operation() else { return };
    let Ok(request) = Request::decode(operation, command.code(), body) else { return };
    let mut again = Vec::new();
    request.write_body(&mut again);
    assert!(again.len() <= body.len());
    let Ok(second) = Request::decode(operation, command.code(), &again) else {
        panic!("{command:?} encodes to what does not decode")
    };
    let mut third = Vec::new();
    second.write_body(&mut third);
    assert_eq!(again, third);
});
