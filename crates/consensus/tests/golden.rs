//! Bytes that released builds wrote into the journal: prepare headers and view records. Every later
//! build reads them and writes the same. A file that does not exist yet is written when
//! `BLESS_GOLDEN` is set.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not recognise")]

use borzoi_consensus::{
    Anchor, Evidence, HEADER_BYTES, LogSuffix, PrepareHeader, PrepareKind, ViewState,
};
use borzoi_types::{ClusterId, LogId, Micros, Op, View, checksum};
use std::path::PathBuf;

const CLUSTER: ClusterId = ClusterId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const LOG: LogId = LogId(7);

fn golden(name: &str, content: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if !path.exists() && std::env::var_os("BLESS_GOLDEN").is_some() {
        std::fs::write(&path, content).unwrap();
    }
    let golden = std::fs::read(&path).expect("the golden file of this version");
    assert!(golden == content, "{name} differs from what version 1 writes");
    golden
}

/// One header of each kind, chained.
fn headers() -> Vec<PrepareHeader> {
    let mut below = Anchor::root(CLUSTER, LOG);
    let kinds = [PrepareKind::Normal, PrepareKind::ViewStart, PrepareKind::LossEpoch];
    kinds
        .into_iter()
        .map(|kind| {
            let body = vec![kind as u8; 40];
            let header = PrepareHeader {
                checksum: 0,
                body_checksum: checksum::xxh3_128(&body),
                parent: below.checksum,
                cluster: CLUSTER,
                log: LOG,
                view: View(3),
                op: below.op.next(),
                commit: below.op,
                timestamp: Micros(1_700_000_000_000_000 + below.op.get()),
                kind,
                body_len: 40,
                config_epoch: 0,
            }
            .sealed();
            below = header.anchor();
            header
        })
        .collect()
}

#[test]
fn prepare_headers_of_version_1_are_what_they_were() {
    let headers = headers();
    let bytes: Vec<u8> = headers.iter().flat_map(PrepareHeader::encode).collect();
    let golden = golden("headers.v1", &bytes);
    let read: Vec<PrepareHeader> = golden
        .chunks(HEADER_BYTES)
        .map(|bytes| PrepareHeader::decode(bytes).expect("an intact header"))
        .collect();
    assert_eq!(read, headers);
}

#[test]
fn view_records_of_version_1_are_what_they_were() {
    let headers = headers();
    let evidence = [Evidence::Held, Evidence::Faulty, Evidence::Unknown, Evidence::Clean];
    let head = headers.last().unwrap().anchor();
    let evidence: Vec<Evidence> = evidence.into_iter().cycle().take(headers.len()).collect();
    let state = ViewState {
        cluster: CLUSTER,
        log: LOG,
        view: View(4),
        log_view: View(3),
        commit: Op::ZERO,
        suffix: LogSuffix { head, headers, evidence },
        must_learn: true,
    };
    let golden = golden("view_state.v1", &state.encode());
    assert_eq!(ViewState::decode(&golden).expect("an intact record"), state);
}
