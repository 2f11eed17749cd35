//! Deliberate faults stay out of everything that is released: only a command line can ask for them.

use borzoi_tidy::root;
use std::fs;

#[test]
fn no_manifest_and_no_stage_of_the_build_switches_planted_bugs_on() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("crates")).expect("the workspace has crates").flatten() {
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        for line in manifest.lines().filter(|line| line.contains("planted-bugs")) {
            let forwards = line.starts_with("planted-bugs = [");
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(forwards, "crates/{name} switches planted bugs on: {line}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "types defines the feature, simulator and cli pass it on");
}
