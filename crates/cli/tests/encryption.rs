//! Encryption at rest on the real server: what its disk shows, and what it says about keys.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Server, borzoi, refusal};

const MARKER: &str = "a-word-that-no-disk-should-show";
const ONE: &str = "1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const TWO: &str = "2:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

fn command(data: &Path, keys: &str, enabled: bool) -> Command {
    let mut command = borzoi(data);
    command
        .env("BORZOI_ENCRYPTION_KEYS", keys)
        .env("BORZOI_ENCRYPTION_ENABLED", enabled.to_string())
        .env("BORZOI_CHECKPOINT_INTERVAL", "200 ms")
        .args(["--with-default-root-credentials", "--log-level", "trace"])
        .stderr(Stdio::null());
    command
}

fn client(server: &Server, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_borzoi"))
        .args(arguments)
        .args(["--address", &server.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Files below `data` in which the marker stands.
fn showing(data: &Path) -> String {
    let found = Command::new("grep").args(["-rlaF", MARKER]).arg(data).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

/// Enough for segments, and a tail that stays in the checkpoint.
fn messages(name: &str, count: usize) -> String {
    (0..count).map(|number| format!("{name} {number} {MARKER} {}\n", "x".repeat(400))).collect()
}

#[test]
fn no_file_shows_a_message_and_every_restart_reads_all_of_them_through_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut expected = String::new();
    for (keys, name) in [(ONE.to_owned(), "first"), (format!("{ONE},{TWO}"), "second")] {
        let server = Server::start(&mut command(&data, &keys, true));
        let more = messages(name, 1_000);
        client(&server, &["send", "s", "t", "--create"], &more);
        expected.push_str(&more);
        assert!(client(&server, &["poll", "s", "t"], "") == expected, "{name}: other messages");
        std::thread::sleep(std::time::Duration::from_millis(600));
        drop(server); // kill -9
        let segments = Command::new("find").arg(data.join("segments")).output().unwrap();
        assert!(String::from_utf8_lossy(&segments.stdout).contains(".segment"), "all in memory");
        assert_eq!(showing(&data), "");
    }
    let errors = refusal(command(&data, TWO, true).stderr(Stdio::piped()));
    assert!(errors.contains("key 1, which is not given"), "{errors}");
    let other = TWO.replacen('2', "1", 1);
    let errors = refusal(command(&data, &format!("{other},{TWO}"), true).stderr(Stdio::piped()));
    assert!(errors.contains("key 1") && errors.contains("is not the key"), "{errors}");
    // Turned off: old messages stay readable, new ones are plain.
    let server = Server::start(&mut command(&data, &format!("{ONE},{TWO}"), false));
    client(&server, &["send", "s", "t"], &messages("third", 1));
    expected.push_str(&messages("third", 1));
    assert!(client(&server, &["poll", "s", "t"], "") == expected, "other messages");
    drop(server);
    assert_ne!(showing(&data), "", "the search finds what is there");
}
