//! B3, B4, B8: how much may be parked, and what a full disk does to it.

use crate::support::model::batch;
use crate::support::{
    Node, Place, create_stream, create_topic, delete_topic, new_disk, options, start_time,
};
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, Refusal, Ticket};
use borzoi_shard::parking::Parking;
use borzoi_storage::disk::{DiskErrorKind, DiskOperation, FileName};
use borzoi_storage::sim_disk::Fault;
use borzoi_types::limits::{
    DISK_ALIGNMENT, PARKED_BYTES_PER_PARTITION_MAX, PARKED_BYTES_PER_SHARD_MAX,
    PARKED_REQUESTS_PER_PARTITION_MAX,
};
use borzoi_types::{Durability, Duration, Offset, PartitionKey, ShardId};

fn node() -> (Node, Place) {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("first", 1, Durability::Replicated));
    node.settle();
    let at = node.place("first", 0).unwrap();
    (node, at)
}

/// A key of the same lane that no topic has yet; `ahead` keys after the newest.
fn coming(at: Place, ahead: u64) -> Place {
    Place { key: PartitionKey(at.key.0 + ahead), ..at }
}

fn parking(node: &Node) -> &Parking {
    &node.shards[0].back().shared().parking
}

fn send(node: &mut Node, at: Place, bytes: usize) -> Ticket {
    let kind = LaneRequestKind::Send { batch: batch(&[7], bytes), count: 1, identity: None };
    let ticket = node.request(at, kind);
    node.run_events();
    ticket
}

fn is_put_off(node: &mut Node, ticket: Ticket) -> bool {
    matches!(
        node.replies.remove(&ticket),
        Some(LaneReply::Refused(refusal)) if refusal == Refusal::NotMaterialised
    )
}

#[test]
fn b3_the_limits_are_128_requests_16_mib_a_shard_and_a_quarter_a_partition() {
    assert_eq!(PARKED_REQUESTS_PER_PARTITION_MAX, 128);
    assert_eq!(PARKED_BYTES_PER_SHARD_MAX, 16 << 20);
    assert_eq!(PARKED_BYTES_PER_PARTITION_MAX, 4 << 20);
    let (mut node, at) = node();
    let early = coming(at, 50);
    for _ in 0..128 {
        let ticket = send(&mut node, early, 10);
        assert!(!node.replies.contains_key(&ticket), "it waits");
    }
    assert_eq!((parking(&node).len(), parking(&node).bytes()), (128, 128 * DISK_ALIGNMENT));
    let ticket = send(&mut node, early, 10);
    assert!(is_put_off(&mut node, ticket), "the one too many is answered at once");
    // Another partition has room; resident sizes are rounded up to the buffers' granularity.
    let large = coming(at, 51);
    let mut expected = parking(&node).bytes();
    for bytes in [3_000, 5_000, 1_000_000] {
        let ticket = send(&mut node, large, bytes);
        assert!(!node.replies.contains_key(&ticket));
        let charged = parking(&node).bytes() - expected;
        assert_eq!(charged % DISK_ALIGNMENT, 0);
        assert!(charged > bytes && charged < bytes + 2 * DISK_ALIGNMENT, "{charged}");
        expected += charged;
    }
}

#[test]
fn b3_bytes_are_bounded_per_partition_and_per_shard_and_return_to_zero_with_age() {
    let (mut node, at) = node();
    let mut waiting = Vec::new();
    for ahead in 0..4 {
        let early = coming(at, 50 + ahead);
        for _ in 0..3 {
            waiting.push(send(&mut node, early, 1_390_000));
        }
        let over = send(&mut node, early, 60_000);
        assert!(is_put_off(&mut node, over), "over a quarter of the shard's");
    }
    assert!(parking(&node).bytes() <= PARKED_BYTES_PER_SHARD_MAX);
    let over = send(&mut node, coming(at, 90), 200_000);
    assert!(is_put_off(&mut node, over), "over all of the shard's");
    assert!(waiting.iter().all(|ticket| !node.replies.contains_key(ticket)));
    node.pass(Duration::from_secs(2));
    node.settle();
    for ticket in waiting {
        assert!(is_put_off(&mut node, ticket), "answered by its age");
    }
    assert_eq!((parking(&node).len(), parking(&node).bytes()), (0, 0));
}

#[test]
fn b3_the_totals_return_to_zero_when_the_partition_comes_and_when_it_never_will() {
    let (mut node, at) = node();
    // Re-dispatch: the next topic gets the next key of the only lane of its level.
    let next = coming(at, 1);
    let parked: Vec<Ticket> = (0..5).map(|_| send(&mut node, next, 9_000)).collect();
    assert_eq!(parking(&node).len(), 5);
    node.command(create_topic("second", 1, Durability::Replicated));
    node.settle();
    assert_eq!(node.place("second", 0), Some(next));
    for (offset, ticket) in (0..).zip(parked) {
        match node.answer(ticket) {
            LaneReply::Sent { base_offset, .. } => assert_eq!(base_offset, Offset(offset)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((parking(&node).len(), parking(&node).bytes()), (0, 0));
    // Reclaim: created and deleted by metadata before the lane looks, or soon after.
    let gone = coming(at, 2);
    let parked: Vec<Ticket> = (0..5).map(|_| send(&mut node, gone, 9_000)).collect();
    node.command(create_topic("third", 1, Durability::Replicated));
    node.command(delete_topic("third"));
    node.settle();
    for ticket in parked {
        let answer = node.answer(ticket);
        let told = matches!(answer, LaneReply::KeyDeleted { .. } | LaneReply::Sent { .. });
        assert!(told, "{answer:?}");
    }
    assert_eq!((parking(&node).len(), parking(&node).bytes()), (0, 0));
}

#[test]
fn b4_over_a_limit_the_request_is_answered_at_once_and_counted() {
    let (mut node, at) = node();
    let early = coming(at, 50);
    for _ in 0..PARKED_REQUESTS_PER_PARTITION_MAX {
        send(&mut node, early, 10);
    }
    assert_eq!(parking(&node).counters().overflows, 0);
    let now = node.now;
    for refused in 1..=10 {
        let ticket = send(&mut node, early, 10);
        assert!(is_put_off(&mut node, ticket), "before any time has passed");
        assert_eq!(parking(&node).counters().overflows, refused);
    }
    assert_eq!(node.now, now);
    assert_eq!(parking(&node).counters().parked, 128);
    // What was parked before is undisturbed.
    assert_eq!(parking(&node).len(), PARKED_REQUESTS_PER_PARTITION_MAX);
}

fn full_disk(node: &mut Node, at: Place) {
    let file = Some(FileName::Segment { key: at.key, base: Offset(0) });
    let (operation, kind) = (DiskOperation::Write, DiskErrorKind::NoSpace);
    node.disk.inject(Fault { operation, file, after: 0, kind, lasting: true });
    send(node, at, 200_000);
    node.settle();
}

#[test]
fn b8_a_first_write_that_fails_is_backed_off_from_1_second_to_60() {
    let (mut node, at) = node();
    full_disk(&mut node, at);
    for secs in [1, 2, 4, 8, 16, 32, 60, 60] {
        let backoff = node.shards[0].back().shared().no_space.expect("the disk is full");
        assert_eq!(backoff.retry_at, node.now.mono.plus(Duration::from_secs(secs)));
        node.pass(Duration::from_secs(secs));
        node.settle();
    }
    node.disk.heal();
    node.pass(Duration::from_secs(60));
    node.settle();
    assert!(node.shards[0].back().shared().no_space.is_none(), "space has returned");
    let ticket = send(&mut node, at, 10);
    node.settle();
    assert!(matches!(node.answer(ticket), LaneReply::Sent { .. }));
}

#[test]
fn b8_while_the_disk_is_full_early_writes_are_answered_at_once_and_early_reads_are_served() {
    let (mut node, at) = node();
    full_disk(&mut node, at);
    let next = coming(at, 1);
    let early = send(&mut node, next, 10);
    let answer = node.answer(early);
    assert!(matches!(answer, LaneReply::Refused(Refusal::NoSpace)), "at once: {answer:?}");
    let consumer = ConsumerKey::Consumer(1);
    let read = node.request(next, LaneRequestKind::GetOffset { consumer });
    node.command(create_topic("second", 1, Durability::Replicated));
    node.settle();
    assert_eq!(node.place("second", 0), Some(next));
    assert!(matches!(node.answer(read), LaneReply::Offset { .. }), "metadata goes on");
    assert_eq!(parking(&node).bytes(), 0);
}

#[test]
fn b8_a_request_that_reaches_a_shard_without_its_lane_is_passed_on_and_answered_at_once() {
    let mut node = Node::start(new_disk(), &options(2), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("first", 1, Durability::Persisted));
    node.settle();
    let at = node.place("first", 0).unwrap();
    let wrong = ShardId(1 - at.lane.shard(2).0);
    let ticket = Ticket(1 << 40);
    let origin = borzoi_shard::lane::api::Origin::here(crate::support::OUTSIDE, ticket);
    let kind = LaneRequestKind::GetOffset { consumer: ConsumerKey::Consumer(1) };
    let request = borzoi_shard::lane::api::LaneRequest { origin, key: at.key, lane: at.lane, kind };
    let message = borzoi_shard::ShardMessage::Lane(Box::new(request));
    let from = crate::support::OUTSIDE;
    // Straight to the back of that shard: the front never routes like this.
    node.push(wrong, borzoi_shard::Event::FromShard { from, message });
    node.run_events();
    let answer = node.answer(ticket);
    assert!(matches!(answer, LaneReply::Offset { .. }), "{answer:?}");
    for shard in &node.shards {
        assert!(shard.back().shared().parking.is_empty(), "it waits nowhere");
    }
}
