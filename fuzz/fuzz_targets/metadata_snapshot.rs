//! Snapshots of the metadata: arbitrary bytes are refused or make a state that keeps its rules.
#![no_main]

use borzoi_metadata::Metadata;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(metadata) = Metadata::decode_snapshot(bytes) {
        assert_eq!(metadata.broken_rule(), None);
        assert_eq!(metadata.encode_snapshot(), bytes);
    }
});
