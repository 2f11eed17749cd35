//! Retention, segment deletion, changed options and the end of consumer groups, over a whole node
//! with a simulated disk, restarts included.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use borzoi_metadata::{Change, GroupName, TopicOptionsUpdate, UpdateTopic};
use borzoi_shard::lane::api::{
    ConsumerKey, LaneReply, LaneRequestKind, PollStart, Refusal, Ticket,
};
use borzoi_shard::partition::Partition;
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_types::limits::SEGMENT_WISHES_PER_PARTITION_MAX;
use borzoi_types::{Durability, Duration, GroupId, Micros, Offset};
use borzoi_wire::{Identifier, Name};
use support::model::Model;
use support::{
    Node, Place, create_stream, create_topic_with, delete_segments, new_disk, options,
    poll_request, start_time, store_request, topic_name,
};

const TOPIC: &str = "topic";
const READER: ConsumerKey = ConsumerKey::Consumer(9);
const MINUTE: Duration = Duration::from_secs(60);

/// A topic whose segments close after two sends of 700 bytes; messages expire after an hour.
fn node_with(level: Durability, shards: u16) -> (Node, Model, Place) {
    let mut node = Node::start(new_disk(), &options(shards), start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic_with(TOPIC, 1, level, |options| {
        options.segment_size = 2_000;
        options.message_expiry = Micros(3_600_000_000);
    }));
    node.settle();
    let at = node.place(TOPIC, 0).unwrap();
    (node, Model::default(), at)
}

fn send(node: &mut Node, model: &mut Model, at: Place, level: Durability, count: usize) {
    for _ in 0..count {
        model.send(node, at, level, 1, 700);
        node.settle();
    }
    assert_eq!(model.note_replies(node), 0);
}

fn partition(node: &Node, at: Place) -> &Partition {
    let mut lanes = node.shards.iter().flat_map(|shard| shard.back().lanes());
    let lane = lanes.find(|lane| lane.log() == at.lane).unwrap();
    lane.state().partition(at.key).unwrap()
}

fn first(node: &Node, at: Place) -> u64 {
    partition(node, at).log.first_offset().0
}

fn ask(node: &mut Node, at: Place, kind: LaneRequestKind) -> LaneReply {
    let ticket = node.request(at, kind);
    node.settle();
    node.answer(ticket)
}

fn store(node: &mut Node, at: Place, offset: u64) {
    let reply = ask(node, at, store_request(READER, Offset(offset)));
    assert!(matches!(reply, LaneReply::Stored), "{reply:?}");
}

/// Kills the node and starts it again from what the disk holds.
fn restart(node: Node, shards: u16) -> Node {
    let now = node.now;
    let mut node = Node::start(node.disk.kill(), &options(shards), now, 6);
    node.settle();
    node
}

/// Lets time pass in steps in which every timer is noticed.
fn pass(node: &mut Node, span: Duration, steps: u32) {
    for _ in 0..steps {
        node.pass(span);
        node.settle();
    }
}

#[test]
fn expired_segments_go_and_counters_offsets_and_polls_are_true_afterwards() {
    for level in [Durability::Persisted, Durability::Replicated] {
        let (mut node, mut model, at) = node_with(level, 1);
        send(&mut node, &mut model, at, level, 6);
        pass(&mut node, MINUTE, 30);
        send(&mut node, &mut model, at, level, 3);
        assert_eq!(partition(&node, at).counters().segments, 5);
        assert_eq!(first(&node, at), 0);
        pass(&mut node, MINUTE, 32);
        let counters = partition(&node, at).counters();
        assert_eq!((first(&node, at), counters.messages, counters.segments), (6, 3, 2));
        assert_eq!(counters.current_offset, Some(Offset(8)));
        // A poll below the first offset continues at the first that exists.
        let kind = poll_request(PollStart::Offset(Offset(0)), 2, READER, false);
        let LaneReply::Polled { current_offset, count, .. } = ask(&mut node, at, kind) else {
            panic!("a poll was refused");
        };
        assert_eq!((current_offset, count), (Offset(8), 2));
        let left = Model::read_all(&mut node, at);
        let offsets: Vec<u64> = left.keys().map(|offset| offset.0).collect();
        assert_eq!(offsets, [6, 7, 8]);
        let mut node = restart(node, 2);
        assert_eq!(Model::read_all(&mut node, at), left);
        assert_eq!(partition(&node, at).counters().current_offset, Some(Offset(8)));
        send(&mut node, &mut model, at, level, 1);
        // A kill of a replicated lane skips what was reserved.
        let next = model.highest_seen(at).unwrap();
        let expected = if level == Durability::Persisted { 9..=9 } else { 10..=9 + 2 * 16 };
        assert!(expected.contains(&next.0), "{next:?}: offsets never renumber");
        assert_eq!(partition(&node, at).counters().current_offset, Some(next));
    }
}

#[test]
fn segment_files_are_removed_only_after_the_checkpoint_that_does_not_name_them() {
    let (mut node, mut model, at) = node_with(Durability::Persisted, 1);
    send(&mut node, &mut model, at, Durability::Persisted, 8);
    pass(&mut node, Duration::from_secs(61), 3);
    let files = |node: &mut Node| {
        let listed = node.disk.list(Directory::Segments).unwrap().files;
        listed.iter().filter(|file| matches!(file, FileName::Segment { .. })).count()
    };
    let before = files(&mut node);
    assert!(before >= 4, "{before} files");
    node.command(delete_segments(TOPIC, 0, 3));
    node.settle();
    assert_eq!(first(&node, at), 6);
    assert_eq!(files(&mut node), before, "the durable checkpoint names them");
    pass(&mut node, Duration::from_secs(61), 2);
    assert_eq!(files(&mut node), before - 3);
    let mut node = restart(node, 1);
    assert_eq!(Model::read_all(&mut node, at).len(), 2);
}

#[test]
fn a_consumer_holds_segments_back_and_they_go_soon_after_it_has_passed_them() {
    let level = Durability::Persisted;
    let (mut node, mut model, at) = node_with(level, 1);
    send(&mut node, &mut model, at, level, 8);
    store(&mut node, at, 2);
    pass(&mut node, MINUTE, 63);
    assert_eq!(first(&node, at), 2, "the consumer has passed the first segment only");
    store(&mut node, at, 5);
    pass(&mut node, Duration::from_secs(1), 2);
    assert_eq!(first(&node, at), 6);
    let (consumer, generation) = (READER, 0);
    ask(&mut node, at, LaneRequestKind::DeleteOffset { consumer, generation });
    pass(&mut node, MINUTE, 1);
    assert_eq!(first(&node, at), 8, "without consumers all closed ones may go");
    let kind = poll_request(PollStart::First, 10, READER, false);
    match ask(&mut node, at, kind) {
        LaneReply::Polled { current_offset, count, .. } => {
            assert_eq!((current_offset, count), (Offset(7), 0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_removed_by_age_while_retention_is_off_but_wishes_are_granted() {
    let mut options = options(1);
    options.retention_interval = None;
    let mut node = Node::start(new_disk(), &options, start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic_with(TOPIC, 1, Durability::Persisted, |options| {
        options.segment_size = 2_000;
        options.message_expiry = Micros(1_000_000);
    }));
    node.settle();
    let at = node.place(TOPIC, 0).unwrap();
    let mut model = Model::default();
    send(&mut node, &mut model, at, Durability::Persisted, 6);
    store(&mut node, at, 1);
    pass(&mut node, MINUTE, 10);
    assert_eq!(first(&node, at), 0);
    node.command(delete_segments(TOPIC, 0, 2));
    node.settle();
    assert_eq!(first(&node, at), 2);
    store(&mut node, at, 5);
    pass(&mut node, Duration::from_secs(1), 2);
    assert_eq!(first(&node, at), 4, "the rest of the wish, and no more");
}

#[test]
fn a_wish_that_a_consumer_holds_back_survives_a_restart() {
    let level = Durability::Persisted;
    for checkpoint in [false, true] {
        let (mut node, mut model, at) = node_with(level, 2);
        send(&mut node, &mut model, at, level, 8);
        store(&mut node, at, 1);
        node.command(delete_segments(TOPIC, 0, 3));
        node.settle();
        assert_eq!(first(&node, at), 2);
        if checkpoint {
            pass(&mut node, Duration::from_secs(61), 3);
        }
        let mut node = restart(node, 1);
        assert_eq!(first(&node, at), 2);
        store(&mut node, at, 7);
        pass(&mut node, Duration::from_secs(1), 2);
        assert_eq!(first(&node, at), 6);
    }
}

#[test]
fn many_more_wishes_than_may_wait_are_granted_because_lanes_confirm_them() {
    let (mut node, mut model, at) = node_with(Durability::Persisted, 2);
    let wishes = 2 * SEGMENT_WISHES_PER_PARTITION_MAX + 4;
    send(&mut node, &mut model, at, Durability::Persisted, 2 * wishes + 2);
    for done in 1..=wishes {
        node.command(delete_segments(TOPIC, 0, 1));
        node.settle();
        assert_eq!(first(&node, at), 2 * done as u64);
        pass(&mut node, Duration::from_millis(100), 1);
    }
    let metadata = node.shards[0].front().metadata();
    assert_eq!(metadata.segment_wishes(at.key).count(), 0, "all are confirmed");
    assert!(!metadata.lane_waits(at.lane));
    let confirmed = metadata.lane_confirmed(at.lane);
    let applied = metadata.applied();
    pass(&mut node, MINUTE, 3);
    let metadata = node.shards[0].front().metadata();
    assert_eq!(metadata.lane_confirmed(at.lane), confirmed, "nothing to confirm, nothing said");
    assert!(metadata.applied().0 <= applied.0 + 12, "metadata rests");
}

#[test]
fn changed_options_reach_every_partition_and_survive() {
    let (mut node, _, _) = node_with(Durability::Persisted, 2);
    node.command(create_topic_with("other", 5, Durability::Replicated, |_| {}));
    node.settle();
    let expiry = |node: &Node, number| {
        let at = node.place("other", number).unwrap();
        partition(node, at).options.retention.message_expiry.0
    };
    assert_eq!(expiry(&node, 4), u64::MAX);
    let name = topic_name("other");
    let changed = TopicOptionsUpdate {
        message_expiry: Some(Micros(77)),
        max_topic_size: Some(50 << 30),
        ..TopicOptionsUpdate::default()
    };
    node.command(Change::UpdateTopic(UpdateTopic {
        stream: name.stream,
        topic: name.topic,
        name: Name::new("other").unwrap(),
        options: changed,
    }));
    node.settle();
    let share = |node: &Node, number| {
        let at = node.place("other", number).unwrap();
        partition(node, at).options.retention.bytes_max
    };
    for number in 0..5 {
        assert_eq!((expiry(&node, number), share(&node, number)), (77, 10 << 30));
    }
    // More partitions share the same limit.
    node.command(Change::CreatePartitions { topic: topic_name("other"), count: 5 });
    node.settle();
    for number in 0..10 {
        assert_eq!((expiry(&node, number), share(&node, number)), (77, 5 << 30));
    }
    node.command(Change::PurgeTopic(topic_name("other")));
    node.settle();
    let node = restart(node, 1);
    for number in 0..10 {
        assert_eq!((expiry(&node, number), share(&node, number)), (77, 5 << 30));
    }
}

fn create_group(node: &mut Node, name: &str) {
    let (topic, name) = (topic_name(TOPIC), Name::new(name).unwrap());
    node.command(Change::CreateGroup { topic, name });
    node.settle();
}

fn group_store(group: u32, offset: u64, generation: u64) -> LaneRequestKind {
    let (wait, persisted) = (true, false);
    let consumer = ConsumerKey::Group(GroupId(group));
    LaneRequestKind::StoreOffset { consumer, offset: Offset(offset), wait, generation, persisted }
}

#[test]
fn offsets_of_a_deleted_group_go_also_when_one_was_stored_too_late() {
    let level = Durability::Persisted;
    let (mut node, mut model, at) = node_with(level, 2);
    send(&mut node, &mut model, at, level, 4);
    for name in ["kept", "gone"] {
        create_group(&mut node, name);
    }
    for group in [0, 1] {
        let stored = ask(&mut node, at, group_store(group, 1, 3));
        assert!(matches!(stored, LaneReply::Stored));
    }
    let name = topic_name(TOPIC);
    let group = Identifier::Name(Name::new("gone").unwrap());
    let gone = GroupName { stream: name.stream, topic: name.topic, group };
    node.command(Change::DeleteGroup(gone));
    node.settle();
    let groups = |node: &Node| partition(node, at).groups();
    assert_eq!(groups(&node), [GroupId(0)].into());
    // A store that was admitted before the deletion was known to its shard.
    let late = ask(&mut node, at, group_store(1, 2, 3));
    assert!(matches!(late, LaneReply::Stored));
    assert_eq!(groups(&node), [GroupId(0)].into());
    // One that no metadata knows yet stays.
    ask(&mut node, at, group_store(7, 2, 3));
    assert_eq!(groups(&node), [GroupId(0), GroupId(7)].into());
    let node = restart(node, 1);
    assert_eq!(groups(&node), [GroupId(0), GroupId(7)].into());
    assert_eq!(partition(&node, at).generation(GroupId(0)), 3);
}

fn group_poll(generation: u64, auto_commit: bool) -> LaneRequestKind {
    let (start, count, consumer) = (PollStart::Next, 2, ConsumerKey::Group(GroupId(0)));
    LaneRequestKind::Poll { start, count, consumer, auto_commit, generation }
}

fn delivered(reply: &LaneReply) -> u32 {
    match reply {
        LaneReply::Polled { count, .. } => *count,
        other => panic!("a poll was answered {other:?}"),
    }
}

#[test]
fn the_first_poll_of_a_new_owner_refuses_what_the_former_one_still_asks_for() {
    let level = Durability::Persisted;
    for checkpoint in [false, true] {
        let (mut node, mut model, at) = node_with(level, 1);
        send(&mut node, &mut model, at, level, 6);
        create_group(&mut node, "group");
        assert_eq!(delivered(&ask(&mut node, at, group_poll(4, true))), 2);
        // The former owner's commit and the new owner's poll are on their way together: whatever
        // was in the log first is seen by the poll.
        let commit = node.request(at, group_store(0, 3, 4));
        let poll = node.request(at, group_poll(5, false));
        let late = node.request(at, group_store(0, 0, 4));
        node.settle();
        assert!(matches!(node.answer(commit), LaneReply::Stored));
        let LaneReply::Polled { batches, .. } = node.answer(poll) else { panic!("refused") };
        assert_eq!(first_offset(&batches), 4, "after what was committed");
        let fenced = |reply| matches!(reply, LaneReply::Refused(Refusal::NotOwner));
        assert!(fenced(node.answer(late)));
        assert!(fenced(ask(&mut node, at, group_poll(4, true))));
        if checkpoint {
            pass(&mut node, Duration::from_secs(61), 3);
        }
        let mut node = restart(node, 1);
        assert!(fenced(ask(&mut node, at, group_store(0, 0, 4))), "remembered");
        assert!(fenced(ask(&mut node, at, group_poll(4, false))));
        assert!(matches!(ask(&mut node, at, group_store(0, 4, 5)), LaneReply::Stored));
    }
}

fn first_offset(batches: &[bytes::Bytes]) -> u64 {
    let bytes: Vec<u8> = batches.iter().flat_map(|part| part.iter().copied()).collect();
    let batch = borzoi_wire::batch::Batches::new(&bytes).next().unwrap().unwrap();
    let frame = batch.frames().next().unwrap().unwrap();
    frame.offset(batch.header()).0
}

#[test]
fn a_store_that_asks_for_persisted_waits_for_the_flush_in_a_replicated_lane() {
    let level = Durability::Replicated;
    let (mut node, mut model, at) = node_with(level, 1);
    send(&mut node, &mut model, at, level, 2);
    let store = |persisted| {
        let (wait, generation, offset) = (true, 0, Offset(1));
        LaneRequestKind::StoreOffset { consumer: READER, offset, wait, generation, persisted }
    };
    for persisted in [true, false] {
        node.settle();
        let ticket: Ticket = node.request(at, store(persisted));
        // Everything but flushes happens.
        node.run_events();
        let mut held = Vec::new();
        while let Some((shard, disk_ticket, action)) = node.next_action() {
            if matches!(action, support::Action::FinishSync(_)) {
                held.push((shard, disk_ticket, action));
                break;
            }
            node.finish(shard, disk_ticket, &action);
            node.run_events();
        }
        assert_eq!(node.replies.contains_key(&ticket), !persisted);
        for (shard, disk_ticket, action) in held {
            node.finish(shard, disk_ticket, &action);
        }
        node.settle();
        assert!(matches!(node.answer(ticket), LaneReply::Stored));
    }
}
