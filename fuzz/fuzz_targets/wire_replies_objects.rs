//! Replies about streams, topics, groups and users.
#![no_main]

use borzoi_wire::Wire;
use borzoi_wire::body::*;
use borzoi_wire::codec::ToEnd;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, body)) = bytes.split_first() else { return };
    match which % 10 {
        0 => check::<Option<StreamDetails>>(body),
        1 => check::<ToEnd<StreamRecord>>(body),
        2 => check::<Option<TopicDetails>>(body),
        3 => check::<Vec<TopicHeader>>(body),
        4 => check::<Option<GroupDetails>>(body),
        5 => check::<ToEnd<GroupRecord>>(body),
        6 => check::<Option<Assignment>>(body),
        7 => check::<Option<UserDetails>>(body),
        8 => check::<ToEnd<UserRecord>>(body),
        _ => check::<ToEnd<TokenRecord>>(body),
    }
});

/// What decodes exactly encodes to the same bytes.
fn check<'a, T: Wire<'a>>(body: &'a [u8]) {
    if let Ok(value) = T::decode_exact(body) {
        assert!(value.encode().len() <= body.len());
    }
}
