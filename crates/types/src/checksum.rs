//! XXH3, the one hash of the project: 64 bits where the client protocol dictates it, 128 bits for
//! Borzoi's own headers and records.

use crate::Body;
use core::hash::Hasher;
use twox_hash::{XxHash3_64, XxHash3_128};

/// XXH3-64 with seed 0, as the client protocol uses it.
#[must_use]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// XXH3-64 with a seed.
#[must_use]
pub fn xxh3_64_seeded(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// XXH3-64 with seed 0 over the concatenation of a body's pieces.
#[must_use]
pub fn xxh3_64_body(body: &Body) -> u64 {
    match body.parts() {
        [] => XxHash3_64::oneshot(&[]),
        [one] => XxHash3_64::oneshot(one),
        many => {
            let mut hasher = XxHash3_64::new();
            for part in many {
                hasher.write(part);
            }
            hasher.finish()
        }
    }
}

/// XXH3-128 with seed 0.
#[must_use]
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// XXH3-128 with seed 0 over the concatenation of a body's pieces.
#[must_use]
pub fn xxh3_128_body(body: &Body) -> u128 {
    match body.parts() {
        [] => XxHash3_128::oneshot(&[]),
        [one] => XxHash3_128::oneshot(one),
        many => {
            let mut hasher = XxHash3_128::new();
            for part in many {
                hasher.write(part);
            }
            hasher.finish_128()
        }
    }
}

/// XXH3-128 with a seed.
#[must_use]
pub fn xxh3_128_seeded(seed: u64, bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(seed, bytes)
}

/// XXH3-128 with a seed over `first` followed by a body's pieces.
#[must_use]
pub fn xxh3_128_seeded_body(seed: u64, first: &[u8], body: &Body) -> u128 {
    if body.is_empty() {
        return XxHash3_128::oneshot_with_seed(seed, first);
    }
    if let ([], [one]) = (first, body.parts()) {
        return XxHash3_128::oneshot_with_seed(seed, one);
    }
    let mut hasher = XxHash3_128::with_seed(seed);
    hasher.write(first);
    for part in body.parts() {
        hasher.write(part);
    }
    hasher.finish_128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn published_check_values_hold() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_64(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn a_body_hashes_like_its_concatenation() {
        let mut body = Body::empty();
        let text: Vec<u8> = (0..1_000u32).map(|i| (i % 251) as u8).collect();
        for piece in text.chunks(77) {
            body.push(Bytes::copy_from_slice(piece));
        }
        assert_eq!(xxh3_128_body(&body), xxh3_128(&text));
        assert_eq!(xxh3_64_body(&body), xxh3_64(&text));
        assert_eq!(xxh3_64_body(&Body::empty()), xxh3_64(b""));
        assert_eq!(xxh3_128_body(&Body::empty()), xxh3_128(b""));
        for cut in [0, 1, 100, 500, 1_000] {
            let mut rest = Body::empty();
            rest.push(Bytes::copy_from_slice(&text[cut..]));
            assert_eq!(xxh3_128_seeded_body(7, &text[..cut], &rest), xxh3_128_seeded(7, &text));
        }
    }
}
