//! Replies about the server, its clients and the cluster, and login answers.
#![no_main]

use borzoi_wire::Wire;
use borzoi_wire::body::*;
use borzoi_wire::codec::ToEnd;
use borzoi_wire::profile::profile_a;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = profile_a::read_reply(bytes);
    let Some((&which, body)) = bytes.split_first() else { return };
    match which % 7 {
        0 => check::<Stats>(body),
        1 => check::<ClusterMetadata>(body),
        2 => check::<Routing>(body),
        3 => check::<Option<ClientDetails>>(body),
        4 => check::<ToEnd<ClientRecord>>(body),
        5 => check::<Vec<OptionDescription>>(body),
        _ => check::<Identity>(body),
    }
});

/// What decodes exactly encodes to the same bytes.
fn check<'a, T: Wire<'a>>(body: &'a [u8]) {
    if let Ok(value) = T::decode_exact(body) {
        assert_eq!(value.encode(), body);
    }
}
