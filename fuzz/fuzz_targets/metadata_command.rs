//! Commands of the metadata log: what decodes encodes to the same bytes and applies to a state
//! without breaking its rules.
#![no_main]

use borzoi_metadata::{Command, Genesis, Layout, Metadata, PasswordHash};
use borzoi_types::Micros;
use borzoi_wire::Name;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut metadata = Metadata::format(Genesis {
        layout: Layout { persisted: 2, replicated: 1 },
        root_name: Name::new("root").expect("has 1 to 255 bytes"),
        root_password: PasswordHash("$".to_owned()),
    });
    let mut left = bytes;
    // Several commands, each after its length, so that later ones meet what earlier ones made.
    while let Some((&len, rest)) = left.split_first() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(len)));
        left = rest;
        let Ok(command) = Command::decode(bytes) else { continue };
        assert_eq!(command.encode(), bytes);
        let _ = metadata.validate(&command);
        let op = metadata.applied().next();
        let _ = metadata.apply(op, Micros(op.0), &command);
        assert_eq!(metadata.broken_rule(), None);
    }
    let snapshot = metadata.encode_snapshot();
    let restored = Metadata::decode_snapshot(&snapshot).expect("own snapshots are read");
    assert_eq!(restored.encode_snapshot(), snapshot);
});
