//! Streams, topics, partitions, segments: what is created, where, under which numbers and keys.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{Change, Desired, Metadata, Notice, Outcome, Reply, TopicOptionsUpdate};
use borzoi_metadata::{PartitionRecord, UpdateTopic};
use borzoi_types::{Durability, LogId, Micros, Op, PartitionId, PartitionKey, StreamId, TopicId};
use borzoi_wire::ErrorCode;
use support::{World, genesis, ident, name, topic_name};

#[test]
fn the_lowest_free_number_is_given_and_a_freed_one_comes_back() {
    let mut world = World::default();
    for (text, id) in [("a", 0), ("b", 1), ("c", 2)] {
        assert_eq!(world.create_stream(text), StreamId(id));
    }
    world.system_ok(Change::DeleteStream { stream: ident("b") });
    assert_eq!(world.create_stream("d"), StreamId(1));
    assert_eq!(world.create_stream("e"), StreamId(3));
    for (text, id) in [("t", 0), ("u", 1), ("v", 2)] {
        assert_eq!(world.create_topic("a", text, 1), TopicId(id));
    }
    world.system_ok(Change::DeleteTopic(topic_name("a", "0")));
    assert_eq!(world.create_topic("a", "w", 1), TopicId(0));
}

#[test]
fn a_partition_key_is_never_given_twice_even_though_numbers_are() {
    let mut world = World::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        world.create_stream("s");
        world.create_topic("s", "t", 3);
        for partition in 0..3 {
            assert!(seen.insert(world.key("s", "t", partition)));
        }
        world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
        for partition in 0..3 {
            assert!(seen.insert(world.key("s", "t", partition)));
        }
        world.system_ok(Change::DeleteStream { stream: ident("0") });
    }
    assert_eq!(world.metadata.next_key(), PartitionKey(31));
}

#[test]
fn partitions_spread_over_the_lanes_of_their_level() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic_at("s", "safe", 10, Durability::Persisted);
    world.create_topic_at("s", "fast", 3, Durability::Replicated);
    let loads: Vec<usize> = (1..=6).map(|lane| world.metadata.lane_len(LogId(lane))).collect();
    assert_eq!(loads, [3, 3, 2, 2, 2, 1]);
    // The next ones go where there is least.
    world.create_topic_at("s", "more", 2, Durability::Persisted);
    let loads: Vec<usize> = (1..=4).map(|lane| world.metadata.lane_len(LogId(lane))).collect();
    assert_eq!(loads, [3, 3, 3, 3]);
    for lane in 1..=6 {
        let keys = world.metadata.partitions_of_lane(LogId(lane), PartitionKey(0));
        let keys: Vec<PartitionKey> = keys.map(|record| record.key).collect();
        assert!(keys.is_sorted() && keys.len() == world.metadata.lane_len(LogId(lane)));
    }
}

#[test]
fn a_partition_record_says_when_where_and_by_which_operation_it_came() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 1);
    let (op, now) = (world.op(), world.now);
    let found = world.metadata.resolve(&ident("s"), &ident("t"), PartitionId(0)).unwrap();
    let record = *world.metadata.partition(found.key).unwrap();
    assert_eq!((record.created_by, record.created, record.lane), (op, now, found.lane));
    assert_eq!(record.replaces, None);
    assert_eq!(world.metadata.topic_of(found.key).unwrap().options_op, op);

    world.seconds(5);
    world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    let key = world.key("s", "t", 0);
    let purged: PartitionRecord = *world.metadata.partition(key).unwrap();
    assert!(key > found.key);
    assert_eq!(purged.replaces, Some(found.key));
    assert_eq!((purged.created, purged.lane), (now, record.lane));
    assert_eq!(purged.created_by, world.op());
    let deleted = world.metadata.desired(record.lane, found.key);
    assert_eq!(deleted, Desired::Deleted { by: world.op() });
}

#[test]
fn absence_is_proof_of_deletion_only_below_the_key_counter() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 2);
    let lane = LogId(1);
    assert!(matches!(world.metadata.desired(lane, PartitionKey(1)), Desired::Present(_)));
    assert_eq!(world.metadata.desired(lane, PartitionKey(3)), Desired::NotYet);
    world.system_ok(Change::DeletePartitions { topic: topic_name("s", "t"), count: 2 });
    let deleted_by = world.op();
    world.create_stream("later");
    let gone = Desired::Deleted { by: deleted_by };
    assert_eq!(world.metadata.desired(lane, PartitionKey(1)), gone);
    // Once the lane has confirmed, the exact operation is forgotten, the fact is not.
    world.system_ok(Change::LanesConfirmed(vec![(lane, deleted_by)]));
    let applied = Desired::Deleted { by: world.op() };
    assert_eq!(world.metadata.desired(lane, PartitionKey(1)), applied);
    assert_eq!(world.metadata.desired(lane, PartitionKey(3)), Desired::NotYet);
}

#[test]
fn forgotten_tombstones_leave_the_proof_of_deletion() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 1_000);
    let oldest = world.key("s", "t", 0);
    let lane = world.metadata.partition(oldest).unwrap().lane;
    world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    let by = world.op();
    assert_eq!(world.metadata.desired(lane, oldest), Desired::Deleted { by });
    for _ in 0..borzoi_types::limits::LANE_TOMBSTONES_MAX / 250 {
        world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    }
    let by = world.op();
    assert_eq!(world.metadata.desired(lane, oldest), Desired::Deleted { by });
    let newest = world.metadata.partition(world.key("s", "t", 0)).unwrap().replaces.unwrap();
    assert_eq!(world.metadata.desired(lane, newest), Desired::Deleted { by });
}

fn changes(metadata: &Metadata, lane: u32, since: Op) -> Option<Vec<(u64, u64)>> {
    let changes = metadata.lane_changes(LogId(lane), since)?;
    Some(changes.map(|(op, key)| (op.0, key.0)).collect())
}

#[test]
fn a_lane_is_told_what_changed_since_it_last_looked() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 4);
    let created = world.op();
    assert_eq!(world.metadata.notices().len(), 4, "four lanes have something new");
    assert_eq!(changes(&world.metadata, 1, Op(0)), Some(vec![(created.0, 1)]));
    assert_eq!(changes(&world.metadata, 1, created), Some(vec![]));

    // Options that lanes read, a purge, a wish, a deleted group.
    let update = UpdateTopic {
        stream: ident("s"),
        topic: ident("t"),
        name: name("t"),
        options: TopicOptionsUpdate { message_expiry: Some(Micros(5)), ..Default::default() },
    };
    world.system_ok(Change::UpdateTopic(update.clone()));
    let updated = world.op();
    world.system_ok(Change::UpdateTopic(update));
    assert_eq!(changes(&world.metadata, 1, created), Some(vec![(updated.0, 1)]));
    assert!(world.metadata.notices().is_empty(), "the same options again change nothing");
    world.create_group("s", "t", "g");
    world.system_ok(Change::DeleteGroup(support::group_name("s", "t", "g")));
    let group_deleted = world.op();
    assert_eq!(changes(&world.metadata, 1, updated), Some(vec![(group_deleted.0, 1)]));
    world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    let purged = world.op();
    let expected = vec![(purged.0, 1), (purged.0, 5)];
    assert_eq!(changes(&world.metadata, 1, group_deleted), Some(expected));
}

#[test]
fn a_restored_copy_looks_at_everything_once() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 4);
    let before = world.op();
    world.create_stream("other");
    let mut copy = Metadata::decode_snapshot(&world.metadata.encode_snapshot()).unwrap();
    assert_eq!(changes(&copy, 1, before), None);
    assert_eq!(changes(&copy, 1, world.op()), Some(vec![]));
    copy.advance(copy.applied().next());
    assert_eq!(changes(&copy, 1, world.op()), Some(vec![]));
}

#[test]
fn a_feed_that_grew_too_long_asks_for_a_full_look() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 1_000);
    let first = world.op();
    let purge = Change::PurgeTopic(topic_name("s", "t"));
    for _ in 0..140 {
        world.system_ok(purge.clone());
    }
    assert_eq!(changes(&world.metadata, 1, first), None);
    let recent = Op(world.op().0 - 1);
    assert_eq!(changes(&world.metadata, 1, recent).map(|list| list.len()), Some(500));
}

#[test]
fn deletes_name_the_lanes_that_have_to_confirm() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 2);
    let delete = Change::DeleteTopic(topic_name("s", "t"));
    assert!(delete.waits_for_lanes());
    world.system_ok(delete);
    let notices = [Notice::LaneChanged(LogId(1)), Notice::LaneChanged(LogId(2))];
    assert_eq!(world.metadata.notices(), notices);
    assert_eq!(world.metadata.lane_confirmed(LogId(1)), Op(0));
    let deleted = world.op();
    world.system_ok(Change::LanesConfirmed(vec![(LogId(1), deleted), (LogId(99), deleted)]));
    assert_eq!(world.metadata.lane_confirmed(LogId(1)), deleted);
    // A lane cannot have confirmed what is not in the log yet.
    world.system_ok(Change::LanesConfirmed(vec![(LogId(2), Op(u64::MAX))]));
    assert_eq!(world.metadata.lane_confirmed(LogId(2)), world.op());
}

#[test]
fn segment_wishes_wait_for_their_lane_and_are_bounded() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 1);
    let wish = |count| Change::DeleteSegments {
        topic: topic_name("s", "t"),
        partition: PartitionId(0),
        count,
    };
    world.system_ok(wish(0));
    let key = world.key("s", "t", 0);
    assert_eq!(world.metadata.segment_wishes(key).count(), 0, "none is a successful no-op");
    for count in 1..=16 {
        world.system_ok(wish(count));
    }
    assert_eq!(world.rejection(wish(1)), ErrorCode::TransientNotAccepted);
    let wishes: Vec<(Op, u32)> = world.metadata.segment_wishes(key).collect();
    assert_eq!(wishes.len(), 16);
    let (through, _) = wishes[9];
    world.system_ok(Change::LanesConfirmed(vec![(LogId(1), through)]));
    let left: Vec<u32> = world.metadata.segment_wishes(key).map(|(_, count)| count).collect();
    assert_eq!(left, [11, 12, 13, 14, 15, 16]);
    world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    let new = world.key("s", "t", 0);
    assert_eq!(world.metadata.segment_wishes(new).count(), 0, "a purge has nothing left to wish");
}

#[test]
fn names_and_numbers_lead_to_the_same_partition() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 2);
    let metadata = &world.metadata;
    let by_name = metadata.resolve(&ident("s"), &ident("t"), PartitionId(1)).unwrap();
    let by_number = metadata.resolve(&ident("0"), &ident("0"), PartitionId(1)).unwrap();
    assert_eq!(by_name, by_number);
    let cases = [
        (("x", "t", 0), ErrorCode::StreamIdNotFound),
        (("s", "x", 0), ErrorCode::TopicIdNotFound),
        (("s", "7", 0), ErrorCode::TopicIdNotFound),
        (("s", "t", 2), ErrorCode::PartitionNotFound),
        (("s", "t", u32::MAX), ErrorCode::PartitionNotFound),
    ];
    for ((stream, topic, partition), code) in cases {
        let found = metadata.resolve(&ident(stream), &ident(topic), PartitionId(partition));
        assert_eq!(found, Err(code));
    }
}

#[test]
fn deleting_partitions_takes_the_highest_and_their_numbers_come_back() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 3);
    let kept = world.key("s", "t", 0);
    world.system_ok(Change::DeletePartitions { topic: topic_name("s", "t"), count: 2 });
    world.system_ok(Change::CreatePartitions { topic: topic_name("s", "t"), count: 1 });
    assert_eq!(world.key("s", "t", 0), kept);
    assert_eq!(world.key("s", "t", 1), PartitionKey(4));
    let topic = world.metadata.find_topic(&ident("s"), &ident("t")).unwrap().1;
    assert_eq!(topic.partition_count(), 2);
}

#[test]
fn renaming_frees_the_old_name_and_a_name_may_stay_as_it_is() {
    let mut world = World::default();
    world.create_stream("a");
    world.create_stream("b");
    let rename = |to: &str| Change::UpdateStream { stream: ident("a"), name: name(to) };
    world.system_ok(rename("a"));
    assert_eq!(world.rejection(rename("b")), ErrorCode::StreamNameAlreadyExists);
    world.system_ok(rename("c"));
    assert_eq!(world.create_stream("a"), StreamId(2));
    world.create_topic("c", "t", 0);
    world.create_topic("c", "u", 0);
    let update = |topic: &str, to: &str| {
        Change::UpdateTopic(UpdateTopic {
            stream: ident("c"),
            topic: ident(topic),
            name: name(to),
            options: TopicOptionsUpdate::default(),
        })
    };
    world.system_ok(update("t", "t"));
    assert_eq!(world.rejection(update("t", "u")), ErrorCode::TopicNameAlreadyExists);
    world.system_ok(update("t", "v"));
    world.create_topic("c", "t", 0);
}

#[test]
fn creating_answers_with_the_whole_object() {
    let mut world = World::default();
    let stream = world.system_ok(Change::CreateStream { name: name("s") });
    let expected = Reply::Stream { id: StreamId(0), created: world.now, name: name("s") };
    assert_eq!(stream, expected);
    world.create_topic("s", "t", 2);
    let topic = world.metadata.topic(StreamId(0), TopicId(0)).unwrap();
    assert_eq!((topic.created, topic.partitions.len()), (world.now, 2));
    let totals = world.metadata.totals();
    let counts = (totals.streams, totals.topics, totals.partitions, totals.groups);
    assert_eq!(counts, (1, 1, 2, 0));
}

#[test]
fn a_purged_stream_keeps_its_topics_and_partition_counts() {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 2);
    world.create_topic("s", "u", 1);
    world.system_ok(Change::PurgeStream { stream: ident("s") });
    assert_eq!(world.key("s", "t", 1), PartitionKey(5));
    assert_eq!(world.key("s", "u", 0), PartitionKey(6));
    assert_eq!(world.metadata.totals().partitions, 3);
}

#[test]
#[should_panic(expected = "operations are applied in order")]
fn an_operation_is_not_skipped() {
    Metadata::format(genesis()).advance(Op(2));
}

#[test]
fn rejected_commands_change_nothing() {
    let mut world = World::default();
    world.create_stream("s");
    let before = world.metadata.encode_snapshot();
    let outcome = world.system(Change::CreateStream { name: name("s") });
    assert_eq!(outcome, Outcome::Rejected(ErrorCode::StreamNameAlreadyExists));
    let mut after = world.metadata.encode_snapshot();
    // The applied operation is the only difference.
    let position = 1 + 8;
    after[position..position + 8].copy_from_slice(&before[position..position + 8]);
    assert_eq!(before, after);
}
