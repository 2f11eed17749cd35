//! Every codec: round trips, refuses every flipped bit and every truncation, and survives
//! arbitrary bytes.

use borzoi_consensus::{
    Anchor, DoViewChange, Evidence, HEADER_BYTES, LogSuffix, Message, Prepare, PrepareHeader,
    PrepareKind, StartView, ViewState,
};
use borzoi_types::{Body, ClusterId, LogId, Micros, Op, View, checksum};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

fn kinds() -> impl Strategy<Value = PrepareKind> {
    prop_oneof![
        Just(PrepareKind::Normal),
        Just(PrepareKind::ViewStart),
        Just(PrepareKind::LossEpoch)
    ]
}

prop_compose! {
    fn prepares()(
        parent in any::<u128>(), cluster in any::<u128>(), log in any::<u32>(),
        view in any::<u32>(), op in 1..1u64 << 60, below in any::<u64>(),
        timestamp in any::<u64>(), kind in kinds(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) -> Arc<Prepare> {
        let header = PrepareHeader {
            checksum: 0,
            body_checksum: checksum::xxh3_128(&bytes),
            parent,
            cluster: ClusterId(cluster),
            log: LogId(log),
            view: View(view),
            op: Op(op),
            commit: Op(below % op),
            timestamp: Micros(timestamp),
            kind,
            body_len: bytes.len() as u32,
            config_epoch: 0,
        };
        Arc::new(Prepare { header: header.sealed(), body: Body::from(bytes) })
    }
}

/// A chain of headers above `first - 1`.
fn chain(first: u64, len: u64) -> Vec<PrepareHeader> {
    let mut parent = 77;
    let mut headers = Vec::new();
    for op in first..first + len {
        let header = PrepareHeader {
            checksum: 0,
            body_checksum: 1,
            parent,
            cluster: ClusterId(5),
            log: LogId(2),
            view: View(3),
            op: Op(op),
            commit: Op(0),
            timestamp: Micros(op),
            kind: PrepareKind::Normal,
            body_len: 0,
            config_epoch: 0,
        }
        .sealed();
        parent = header.checksum;
        headers.push(header);
    }
    headers
}

fn evidence(byte: u8) -> Evidence {
    match byte % 4 {
        0 => Evidence::Clean,
        1 => Evidence::Held,
        2 => Evidence::Faulty,
        _ => Evidence::Unknown,
    }
}

prop_compose! {
    fn suffixes()(
        first in 1..1_000_000u64, len in 0..20u64, bytes in any::<[u8; 20]>()
    ) -> LogSuffix {
        let headers = chain(first, len);
        let alone = Anchor { op: Op(first), checksum: 9 };
        let head = headers.last().map_or(alone, PrepareHeader::anchor);
        let evidence = bytes.iter().take(headers.len()).map(|byte| evidence(*byte)).collect();
        LogSuffix { head, headers, evidence }
    }
}

fn ops() -> impl Strategy<Value = u64> {
    0..=1u64 << 60
}

fn anchors() -> impl Strategy<Value = Anchor> {
    (ops(), any::<u128>()).prop_map(|(op, checksum)| Anchor { op: Op(op), checksum })
}

fn do_view_changes() -> impl Strategy<Value = Message> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..50);
    (any::<u32>(), any::<u32>(), suffixes(), any::<bool>(), bytes).prop_map(
        |(view, log_view, suffix, must_learn, attachment)| {
            Message::DoViewChange(Box::new(DoViewChange {
                view: View(view.max(log_view)),
                log_view: View(log_view.min(view)),
                commit: suffix.below().op,
                released: Op(3),
                suffix,
                must_learn,
                attachment: Bytes::from(attachment),
            }))
        },
    )
}

fn messages() -> impl Strategy<Value = Message> {
    let control = prop_oneof![
        (any::<u32>(), anchors(), ops(), any::<u64>()).prop_map(|(v, held, c, round)| {
            Message::PrepareOk { view: View(v), held, commit: Op(c), round }
        }),
        (any::<u32>(), anchors(), ops(), any::<u64>()).prop_map(|(v, commit, h, round)| {
            Message::Commit { view: View(v), commit, head: Op(h), round }
        }),
        (any::<u32>(), any::<u32>())
            .prop_map(|(v, t)| Message::StartViewChange { view: View(v), target: View(t) }),
        (any::<u32>(), any::<u64>())
            .prop_map(|(v, nonce)| Message::RequestStartView { view: View(v), nonce }),
        (anchors(), ops()).prop_map(|(top, low)| Message::RequestHeaders { top, low: Op(low) }),
        (1..1_000u64, 0..40u64)
            .prop_map(|(first, len)| Message::Headers { headers: chain(first, len) }),
        proptest::collection::vec(anchors(), 0..30)
            .prop_map(|wanted| Message::RequestPrepares { wanted }),
        ops().prop_map(|through| Message::Released { through: Op(through) }),
    ];
    let carrying = prop_oneof![
        (any::<u32>(), ops(), any::<u64>(), prepares()).prop_map(
            |(view, commit, round, prepare)| Message::Prepare {
                view: View(view),
                commit: Op(commit),
                round,
                prepare
            }
        ),
        prepares().prop_map(|prepare| Message::RepairPrepare { prepare }),
        do_view_changes(),
        (any::<u32>(), any::<u64>(), suffixes()).prop_map(|(view, nonce, suffix)| {
            let commit = suffix.below().op;
            let released = Op(0);
            Message::StartView(Box::new(StartView {
                view: View(view),
                nonce,
                commit,
                released,
                suffix,
            }))
        }),
    ];
    prop_oneof![control, carrying]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn headers_round_trip_and_refuse_every_flipped_bit(prepare in prepares(), at in 0..1024usize) {
        let bytes = prepare.header.encode();
        prop_assert_eq!(PrepareHeader::decode(&bytes), Ok(prepare.header));
        let mut flipped = bytes;
        flipped[at / 8] ^= 1 << (at % 8);
        prop_assert!(PrepareHeader::decode(&flipped).is_err());
        prop_assert!(PrepareHeader::decode(&bytes[..HEADER_BYTES - 1]).is_err());
    }

    #[test]
    fn messages_round_trip_and_refuse_damage(message in messages(), at in any::<usize>()) {
        let frame = message.encode().to_bytes();
        prop_assert_eq!(Message::decode(&frame), Ok(message));
        let mut flipped = frame.to_vec();
        let bit = at % (flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Message::decode(&Bytes::from(flipped)).is_err());
        let cut = frame.slice(..at % frame.len());
        prop_assert!(Message::decode(&cut).is_err());
        let mut longer = frame.to_vec();
        longer.push(0);
        prop_assert!(Message::decode(&Bytes::from(longer)).is_err());
    }

    #[test]
    fn view_records_round_trip_and_refuse_damage(
        suffix in suffixes(), view in any::<u32>(),
        must_learn in any::<bool>(), at in any::<usize>()
    ) {
        let state = ViewState {
            cluster: ClusterId(5),
            log: LogId(2),
            view: View(view),
            log_view: View(view / 2),
            commit: suffix.below().op,
            suffix,
            must_learn,
        };
        let bytes = state.encode();
        prop_assert_eq!(ViewState::decode(&bytes), Ok(state));
        let mut flipped = bytes.to_vec();
        let bit = at % (flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(ViewState::decode(&flipped).is_err());
        prop_assert!(ViewState::decode(&bytes[..at % bytes.len()]).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = PrepareHeader::decode(&bytes);
        let _ = ViewState::decode(&bytes);
        let _ = Message::decode(&Bytes::from(bytes));
    }

    /// With right magic, version, length and checksum every field decoder is reached.
    #[test]
    fn arbitrary_fields_behind_a_valid_checksum_never_panic(
        kind in 0..16u8, fields in proptest::collection::vec(any::<u8>(), 0..600)
    ) {
        let mut frame = vec![0u8; 16];
        frame.extend_from_slice(b"BM");
        frame.extend_from_slice(&[1, kind]);
        frame.extend_from_slice(&(24 + fields.len() as u32).to_le_bytes());
        frame.extend_from_slice(&fields);
        let sum = checksum::xxh3_128(&frame[16..]);
        frame[..16].copy_from_slice(&sum.to_le_bytes());
        let _ = Message::decode(&Bytes::from(frame));
    }
}
