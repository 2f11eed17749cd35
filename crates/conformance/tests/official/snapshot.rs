//! Diagnostic archives.

use crate::support::{Account, Place, code};
use iggy::prelude::*;

#[tokio::test]
async fn an_archive_holds_a_text_for_every_section_asked_for() {
    let place = Place::new(1).await;
    let sections = vec![SystemSnapshotType::Test, SystemSnapshotType::ServerConfig];
    let archive = place.client.snapshot(SnapshotCompression::Stored, sections).await;
    let bytes = archive.expect("made").0;
    assert_eq!(bytes[..4], *b"PK\x03\x04", "a zip archive");
    let text = String::from_utf8_lossy(&bytes);
    for part in ["test.txt", "server_config.txt"] {
        assert!(text.contains(part), "{part} is missing");
    }
    assert!(!text.contains(borzoi_conformance::ROOT_PASSWORD), "secrets stay inside");
}

#[tokio::test]
async fn an_archive_needs_the_right_to_read_servers() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let sections = vec![SystemSnapshotType::Test];
    assert_eq!(code(client.snapshot(SnapshotCompression::Stored, sections).await), 41);
}
