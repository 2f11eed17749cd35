//! Bytes that released builds wrote: lane operations, reservations, a lane's part of a checkpoint.
//! Every later build reads them; what this build writes is compared as well. A file that does not
//! exist yet is written when `BLESS_GOLDEN` is set.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not recognise")]

mod support;

use borzoi_shard::lane::api::{ConsumerKey, SendIdentity};
use borzoi_shard::lane::checkpoint::restore;
use borzoi_shard::lane::operation::{self, Entry, OperationBuilder, PartitionOptions, Retention};
use borzoi_shard::lane::reservation::{self, Reservation, ReservationMode};
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_types::{
    Body, Durability, Duration, GroupId, Micros, Offset, Op, PartitionId, PartitionKey,
    RequestNumber, SessionId,
};
use borzoi_wire::batch::stamp;
use bytes::Bytes;
use std::path::PathBuf;
use support::model::{Model, batch};
use support::{Node, create_stream, create_topic, new_disk, options, start_time};

/// The golden file; `content` is what this build would write.
fn read(name: &str, content: &[u8]) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if !path.exists() && std::env::var_os("BLESS_GOLDEN").is_some() {
        std::fs::write(&path, content).unwrap();
    }
    Bytes::from(std::fs::read(&path).expect("the golden file of this version"))
}

/// The golden file, which must be what this build writes.
fn golden(name: &str, content: &[u8]) -> Bytes {
    let golden = read(name, content);
    assert!(golden == content, "{name} differs from what version 1 writes");
    golden
}

/// The entries of the first build, with what later builds have added to them at rest.
fn first_entries() -> Vec<Entry> {
    let key = PartitionKey(0x1_0203);
    let mut messages = batch(&[1, 2, 3], 30);
    stamp(&mut messages, PartitionId(5), Offset(70), Micros(1_700_000_000_000_000)).unwrap();
    let messages = messages.freeze();
    let identity = SendIdentity { session: SessionId(9), request: RequestNumber(10), hash: 11 };
    let options = PartitionOptions {
        segment_bytes: 1 << 30,
        partition: PartitionId(5),
        retention: Retention::NONE,
        options_op: Op::ZERO,
    };
    let (consumer, group) = (ConsumerKey::Consumer(3), ConsumerKey::Group(GroupId(4)));
    let sent = |identity| Entry::Batch {
        key,
        base_offset: Offset(70),
        count: 3,
        identity,
        batch: messages.clone(),
    };
    let store = |consumer, offset, auto_commit| Entry::StoreOffset {
        key,
        consumer,
        offset: Offset(offset),
        auto_commit,
        generation: 0,
        persisted: false,
    };
    vec![
        Entry::Create { key, options, by: Op(12) },
        sent(Some(identity)),
        sent(None),
        store(consumer, 71, false),
        store(group, 72, true),
        Entry::DeleteOffset { key, consumer, generation: 0 },
        Entry::Truncate { key, first: Offset(70) },
        Entry::OffsetJump { key, to: Offset(100) },
        Entry::Purge { key, new_key: PartitionKey(0x1_0204), by: Op(13) },
        Entry::Delete { key: PartitionKey(0x1_0204), by: Op(14) },
        Entry::SessionExpired { session: SessionId(9) },
    ]
}

/// Every kind of entry that this build writes.
fn entries() -> Vec<Entry> {
    let (key, group) = (PartitionKey(0x1_0203), GroupId(4));
    let retention = Retention { message_expiry: Micros(60_000_000), bytes_max: 1 << 20 };
    let consumer = ConsumerKey::Group(group);
    let (offset, generation) = (Offset(73), 6);
    let mut entries = first_entries();
    entries.extend([
        Entry::StoreOffset {
            key,
            consumer,
            offset,
            auto_commit: false,
            generation,
            persisted: true,
        },
        Entry::DeleteOffset { key, consumer, generation },
        Entry::Options { key, retention, by: Op(15) },
        Entry::DeleteSegments { key, count: 2, by: Op(16) },
        Entry::Generation { key, group, generation },
        Entry::GroupDeleted { key, group },
    ]);
    entries
}

#[test]
fn lane_operations_of_the_first_build_are_read() {
    let golden = read("operation.v1", &[]);
    assert_eq!(operation::decode(&Body::from(golden)).unwrap(), first_entries());
}

#[test]
fn lane_operations_are_what_they_were() {
    let entries = entries();
    let mut builder = OperationBuilder::default();
    entries.iter().for_each(|entry| builder.push(entry));
    let golden = golden("operation.v1.1", &builder.finish().to_bytes());
    assert_eq!(operation::decode(&Body::from(golden)).unwrap(), entries);
}

#[test]
fn reservations_of_version_1_are_what_they_were() {
    let claims = [
        (PartitionKey(3), Reservation { frontier: Offset(10), reserved: Offset(65_546) }),
        (PartitionKey(4), Reservation { frontier: Offset(0), reserved: Offset(16) }),
    ];
    for (name, mode) in [
        ("reservation-advance.v1", ReservationMode::Advance),
        ("reservation-install.v1", ReservationMode::Install),
    ] {
        let (header, body) = reservation::encode(mode, &claims);
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(&body.to_bytes());
        let golden = golden(name, &bytes);
        let body = Body::from(golden.slice(header.len()..));
        let read = reservation::decode(&golden.slice(..header.len()), &body).unwrap();
        assert_eq!(read, (mode, claims.to_vec()));
    }
}

#[test]
fn a_lane_checkpoint_of_version_1_is_restored() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("fast", 1, Durability::Replicated));
    node.settle();
    let place = node.place("fast", 0).unwrap();
    let mut model = Model::default();
    model.send(&mut node, place, Durability::Replicated, 2, 10);
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    model.store(&mut node, place, Durability::Replicated, 3, Offset(1));
    node.settle();
    node.pass(Duration::from_secs(61));
    node.settle();
    let files = node.disk.list(Directory::Checkpoints).unwrap().files;
    let file = files
        .into_iter()
        .find(|file| matches!(file, FileName::Checkpoint { log, .. } if *log == place.lane))
        .expect("the interval has passed");
    let content = node.disk.read(&file, 0, 1 << 20).unwrap();
    // Later versions may write more; they still read this.
    let golden = read("lane-checkpoint.v1", &content);
    let checkpoint = Checkpoint::decode(&golden).unwrap();
    let restored = restore(&checkpoint).unwrap();
    let partition = restored.state.partition(place.key).expect("it was created");
    assert_eq!(partition.log.next_offset(), Offset(2));
    assert_eq!(partition.offset(ConsumerKey::Consumer(3)), Some(Offset(1)));
    assert_eq!(restored.reservations.get(place.key).reserved, Offset(18));
    assert!(restored.state.windows().knows(SessionId(77)), "who sent is remembered");
}
