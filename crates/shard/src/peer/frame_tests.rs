//! Frames: what is read back, and what is refused under which name.

use super::*;
use crate::peer::{ForwardMessage, Heartbeat, PeerMessage};
use borzoi_consensus::Message;
use borzoi_types::View;
use proptest::prelude::*;

const CLUSTER: ClusterId = ClusterId(77);

fn own() -> Recipient {
    Recipient { cluster: CLUSTER, replica: ReplicaId(0), replica_count: 3, shards: 2, lanes: 4 }
}

fn header(kind: FrameKind, destination: Destination) -> PeerHeader {
    PeerHeader {
        cluster: CLUSTER,
        sender: ReplicaId(1),
        generation: 5,
        sender_shard: ShardId(1),
        sender_shards: 2,
        kind,
        destination,
    }
}

fn joined(parts: &[Bytes]) -> Bytes {
    Bytes::from(parts.concat())
}

fn probe(view: u32) -> Message {
    Message::StartViewChange { view: View(view), target: View(view) }
}

fn log_frame() -> Bytes {
    let message = PeerMessage::Log { log: LogId(3), message: probe(2) };
    let header = header(message.kind(), message.destination());
    joined(&header.frame(&message.encode()))
}

/// `frame` with a change and a checksum that fits it: what an attacker or another build would send.
fn forged(frame: &Bytes, change: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = frame.to_vec();
    change(&mut bytes);
    let sum = borzoi_types::checksum::xxh3_128(&bytes[CHECKSUM_BYTES..]);
    bytes[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    Bytes::from(bytes)
}

fn fault(frame: &Bytes) -> Option<FrameFault> {
    PeerHeader::check(frame, ReplicaId(1), &own()).err()
}

#[test]
fn every_message_is_read_as_it_was_written() {
    let to = Destination::Shard(ShardId(1));
    let messages = [
        PeerMessage::Log { log: LogId(0), message: probe(1) },
        PeerMessage::Heartbeat(Heartbeat::default()),
        PeerMessage::Heartbeat(Heartbeat {
            logs: vec![(LogId(0), probe(3)), (LogId(4), probe(9))],
        }),
        PeerMessage::Forward(ForwardMessage { to, body: Body::from(vec![1, 2, 3]) }),
    ];
    for message in messages {
        let sent = header(message.kind(), message.destination());
        let frame = joined(&sent.frame(&message.encode()));
        let (read, body) = PeerHeader::check(&frame, ReplicaId(1), &own()).expect("a good frame");
        assert_eq!(read, sent);
        assert_eq!(PeerMessage::decode(&read, body), Ok(message));
    }
}

#[test]
fn a_frame_cut_anywhere_is_refused() {
    let frame = log_frame();
    for len in 0..frame.len() {
        let found = fault(&frame.slice(..len));
        assert!(matches!(found, Some(FrameFault::Truncated | FrameFault::Corrupted)), "{len}");
    }
    let mut longer = frame.to_vec();
    longer.push(0);
    assert_eq!(fault(&Bytes::from(longer)), Some(FrameFault::Corrupted));
    let longer = forged(&frame, |bytes| bytes.push(0));
    assert_eq!(fault(&longer), Some(FrameFault::Truncated));
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let frame = log_frame();
    for bit in 0..frame.len() * 8 {
        let mut bytes = frame.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(fault(&Bytes::from(bytes)).is_some(), "bit {bit}");
    }
}

#[test]
fn each_fault_is_called_by_its_name() {
    let frame = log_frame();
    assert_eq!(fault(&frame), None);
    let named = [
        (16, b'X', FrameFault::Magic),
        (20, 2, FrameFault::Version),
        (22, 99, FrameFault::Malformed),
        (23, 2, FrameFault::Impostor),
        (23, 0, FrameFault::Impostor),
        (24, 1, FrameFault::Cluster),
        (48, 7, FrameFault::Malformed),
        (49, 1, FrameFault::Malformed),
        (50, 2, FrameFault::Malformed),
        (54, 1, FrameFault::Malformed),
        (56, 5, FrameFault::Unknown),
        (60, 1, FrameFault::Truncated),
    ];
    for (at, byte, expected) in named {
        let changed = forged(&frame, |bytes| bytes[at] = byte);
        assert_eq!(fault(&changed), Some(expected), "byte {at}");
    }
    // A member of the roster that is not the one at the other end of the link.
    let other = PeerHeader::check(&frame, ReplicaId(2), &own());
    assert_eq!(other.err(), Some(FrameFault::Impostor));
}

#[test]
fn a_shard_that_does_not_exist_is_unknown_and_the_last_one_is_known() {
    for (shard, expected) in [(1, None), (2, Some(FrameFault::Unknown))] {
        let header = header(FrameKind::Forward, Destination::Shard(ShardId(shard)));
        assert_eq!(fault(&joined(&header.frame(&Body::empty()))), expected);
    }
    for (log, expected) in [(4, None), (5, Some(FrameFault::Unknown))] {
        let header = header(FrameKind::Log, Destination::Log(LogId(log)));
        assert_eq!(fault(&joined(&header.frame(&Body::empty()))), expected);
    }
}

#[test]
fn only_a_join_passes_without_a_cluster() {
    let stranger = |kind| PeerHeader { cluster: ClusterId(0), ..header(kind, Destination::Link) };
    let frame = joined(&stranger(FrameKind::Join).frame(&Body::empty()));
    assert_eq!(fault(&frame), None);
    let frame = joined(&stranger(FrameKind::Heartbeat).frame(&Body::empty()));
    assert_eq!(fault(&frame), Some(FrameFault::Cluster));
    let without = Recipient { cluster: ClusterId(0), ..own() };
    let frame = joined(&header(FrameKind::Heartbeat, Destination::Link).frame(&Body::empty()));
    let found = PeerHeader::check(&frame, ReplicaId(1), &without).err();
    assert_eq!(found, Some(FrameFault::Cluster));
    let frame = joined(&stranger(FrameKind::Heartbeat).frame(&Body::empty()));
    let found = PeerHeader::check(&frame, ReplicaId(1), &without).err();
    assert_eq!(found, Some(FrameFault::Cluster));
}

#[test]
fn logs_of_a_heartbeat_rise() {
    let heartbeat = Heartbeat { logs: vec![(LogId(2), probe(1)), (LogId(2), probe(1))] };
    let header = header(FrameKind::Heartbeat, Destination::Link);
    let body = PeerMessage::Heartbeat(heartbeat).encode().to_bytes();
    assert_eq!(PeerMessage::decode(&header, body), Err(FrameFault::Malformed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let frame = Bytes::from(bytes);
        let _ = PeerHeader::check(&frame, ReplicaId(1), &own());
        let kinds = [FrameKind::Log, FrameKind::Heartbeat, FrameKind::Forward, FrameKind::Join];
        for kind in kinds {
            let destination = match kind {
                FrameKind::Log => Destination::Log(LogId(1)),
                _ => Destination::Link,
            };
            let _ = PeerMessage::decode(&header(kind, destination), frame.clone());
        }
    }
}
