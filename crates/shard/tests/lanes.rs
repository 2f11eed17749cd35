//! A node of one and of two shards, without faults: what clients of lanes rely on.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart, Refusal};
use borzoi_types::{Durability, Duration, Offset};
use support::model::{End, Model};
use support::{
    Node, Place, create_stream, create_topic, new_disk, options, poll_request, start_time,
    store_request,
};

fn node_with_topics(shards: u16) -> Node {
    let mut node = Node::start(new_disk(), &options(shards), start_time(), 1);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("durable", 3, Durability::Persisted));
    node.command(create_topic("fast", 2, Durability::Replicated));
    node.settle();
    assert_eq!(node.refused_commands, 0);
    node
}

fn place(node: &Node, topic: &str, partition: u32) -> Place {
    node.place(topic, partition).expect("metadata has it")
}

fn poll(node: &mut Node, at: Place, start: PollStart, count: u32, auto_commit: bool) -> LaneReply {
    let consumer = ConsumerKey::Consumer(1);
    let ticket = node.request(at, poll_request(start, count, consumer, auto_commit));
    node.settle();
    node.answer(ticket)
}

fn polled(reply: &LaneReply) -> (Offset, u32) {
    match reply {
        LaneReply::Polled { current_offset, count, .. } => (*current_offset, *count),
        other => panic!("a poll was answered {other:?}"),
    }
}

#[test]
fn sends_are_confirmed_with_rising_offsets_and_read_back_on_one_and_two_shards() {
    for shards in [1, 2] {
        let mut node = node_with_topics(shards);
        let mut model = Model::default();
        for round in 0..5usize {
            for (topic, level) in
                [("durable", Durability::Persisted), ("fast", Durability::Replicated)]
            {
                for partition in 0..2 {
                    let at = place(&node, topic, partition);
                    model.send(&mut node, at, level, 1 + round, 100 * round);
                }
            }
        }
        node.settle();
        assert_eq!(model.note_replies(&mut node), 0);
        for send in model.sends.values() {
            assert!(send.confirmed.is_some());
        }
        for (topic, partition) in [("durable", 0), ("durable", 1), ("fast", 0), ("fast", 1)] {
            let at = place(&node, topic, partition);
            model.check_partition(&mut node, at, "after sending");
            assert_eq!(model.highest_seen(at), Some(Offset(14)));
        }
        let at = place(&node, "durable", 2);
        assert_eq!(polled(&poll(&mut node, at, PollStart::First, 10, false)), (Offset(0), 0));
    }
}

#[test]
fn a_send_right_behind_its_create_is_parked_and_confirmed() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("durable", 1, Durability::Persisted));
    // Only the metadata commit: the lane has not created the partition yet.
    let mut model = Model::default();
    let at = loop {
        node.run_events();
        if let Some(at) = node.place("durable", 0) {
            break at;
        }
        let (shard, ticket, action) = node.next_action().expect("the commit is on its way");
        node.finish(shard, ticket, &action);
    };
    for _ in 0..3 {
        model.send(&mut node, at, Durability::Persisted, 1, 10);
    }
    node.run_events();
    assert!(
        !node.shards[0].back().shared().parking.is_empty() || model.note_replies(&mut node) == 0
    );
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    model.check_partition(&mut node, at, "parked sends");
    let order: Vec<Offset> = model.sends.values().filter_map(|send| send.confirmed).collect();
    assert_eq!(order, [Offset(0), Offset(1), Offset(2)], "in arrival order");
    assert_eq!(node.shards[0].back().shared().parking.bytes(), 0);
}

#[test]
fn a_request_for_a_key_that_never_comes_is_answered_when_its_age_is_up() {
    let mut node = node_with_topics(1);
    let mut at = place(&node, "durable", 0);
    at.key = borzoi_types::PartitionKey(at.key.0 + 1_000);
    let ticket =
        node.request(at, LaneRequestKind::GetOffset { consumer: ConsumerKey::Consumer(1) });
    node.settle();
    assert!(!node.replies.contains_key(&ticket));
    node.pass(Duration::from_secs(2));
    node.settle();
    assert!(matches!(node.answer(ticket), LaneReply::Refused(Refusal::NotMaterialised)));
}

#[test]
fn a_resent_batch_gets_its_original_offsets_even_when_it_overtakes_the_commit() {
    let mut node = node_with_topics(1);
    let mut model = Model::default();
    let at = place(&node, "durable", 0);
    let ticket = model.send(&mut node, at, Durability::Persisted, 3, 50);
    let send = model.sends[&ticket].clone();
    let early = model.resend(&mut node, &send);
    node.settle();
    let late = model.resend(&mut node, &send);
    node.settle();
    for ticket in [early, late] {
        match node.answer(ticket) {
            LaneReply::Sent { base_offset, .. } => assert_eq!(base_offset, Offset(0)),
            other => panic!("{other:?}"),
        }
    }
    model.note_replies(&mut node);
    model.check_partition(&mut node, at, "resent");
    assert_eq!(model.highest_seen(at), Some(Offset(2)));
}

#[test]
fn offsets_are_stored_read_and_deleted_with_the_refusals_of_the_protocol() {
    let mut node = node_with_topics(1);
    let mut model = Model::default();
    let at = place(&node, "durable", 0);
    let consumer = ConsumerKey::Consumer(5);
    let store = |offset| store_request(consumer, offset);
    let ask = |node: &mut Node, kind| {
        let ticket = node.request(at, kind);
        node.settle();
        node.answer(ticket)
    };
    let empty = ask(&mut node, store(Offset(0)));
    assert!(matches!(empty, LaneReply::Refused(Refusal::InvalidOffset)));
    let missing = ask(&mut node, LaneRequestKind::DeleteOffset { consumer, generation: 0 });
    assert!(matches!(missing, LaneReply::Refused(Refusal::OffsetNotFound)));
    model.send(&mut node, at, Durability::Persisted, 10, 10);
    node.settle();
    assert!(matches!(ask(&mut node, store(Offset(9))), LaneReply::Stored));
    let beyond = ask(&mut node, store(Offset(10)));
    assert!(matches!(beyond, LaneReply::Refused(Refusal::InvalidOffset)));
    assert!(matches!(ask(&mut node, store(Offset(4))), LaneReply::Stored), "backwards is allowed");
    let get = || LaneRequestKind::GetOffset { consumer };
    match ask(&mut node, get()) {
        LaneReply::Offset { current_offset, stored_offset } => {
            assert_eq!((current_offset, stored_offset), (Offset(9), Some(Offset(4))));
        }
        other => panic!("{other:?}"),
    }
    let deleted = ask(&mut node, LaneRequestKind::DeleteOffset { consumer, generation: 0 });
    assert!(matches!(deleted, LaneReply::Stored));
    assert!(matches!(ask(&mut node, get()), LaneReply::Offset { stored_offset: None, .. }));
}

#[test]
fn polling_next_with_auto_commit_walks_through_the_partition_once() {
    let mut node = node_with_topics(2);
    let mut model = Model::default();
    let at = place(&node, "durable", 1);
    for _ in 0..4 {
        model.send(&mut node, at, Durability::Persisted, 3, 20);
    }
    node.settle();
    let mut delivered = 0;
    for expected in [5, 5, 2, 0] {
        let (current, count) = polled(&poll(&mut node, at, PollStart::Next, 5, true));
        assert_eq!((current, count), (Offset(11), expected));
        delivered += count;
    }
    assert_eq!(delivered, 12);
    let get = LaneRequestKind::GetOffset { consumer: ConsumerKey::Consumer(1) };
    let ticket = node.request(at, get);
    node.settle();
    match node.answer(ticket) {
        LaneReply::Offset { stored_offset, .. } => assert_eq!(stored_offset, Some(Offset(11))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_survives_a_clean_stop_and_a_change_of_the_shard_count() {
    let mut node = node_with_topics(1);
    let mut model = Model::default();
    let places: Vec<(Place, Durability)> = vec![
        (place(&node, "durable", 0), Durability::Persisted),
        (place(&node, "durable", 1), Durability::Persisted),
        (place(&node, "fast", 0), Durability::Replicated),
    ];
    for shards in [2, 1, 2] {
        for (at, level) in &places {
            model.send(&mut node, *at, *level, 4, 300);
            model.send(&mut node, *at, *level, 1, 20_000);
        }
        node.settle();
        assert_eq!(model.note_replies(&mut node), 0);
        node.stop();
        model.life_ended(End::Clean);
        let now = node.now;
        node = Node::start(node.disk.kill(), &options(shards), now, u64::from(shards));
        node.settle();
        for (at, _) in &places {
            model.check_partition(&mut node, *at, "after a clean stop");
        }
    }
    // A clean stop leaves no hole.
    for (at, _) in &places {
        assert_eq!(model.highest_seen(*at), Some(Offset(14)));
        model.send(&mut node, *at, Durability::Persisted, 1, 1);
        node.settle();
        model.note_replies(&mut node);
        assert_eq!(model.highest_seen(*at), Some(Offset(15)));
    }
}
