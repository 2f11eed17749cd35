//! Retention and segment deletion as clients see them.

use crate::client::{Answer, Client, name, number, polled};
use crate::world::World;
use borzoi_types::{Duration, Offset, PartitionId};
use borzoi_wire::body::{
    CreateTopic, DeleteSegments, OffsetAck, StoreConsumerOffset, TopicDetails, UpdateTopic,
};
use borzoi_wire::options::{Options, TrailingOptions};
use borzoi_wire::{
    ConsumerKind, ConsumerRef, ErrorCode, IdentifierRef, OptionalPartition, PollingStrategy,
    Request, Value,
};

const MIB: u64 = 1024 * 1024;

fn options(entries: &[(&str, u64)]) -> TrailingOptions {
    let mut options = Options::none();
    for (key, value) in entries {
        options.set(key, Value::U64(*value)).unwrap();
    }
    TrailingOptions(options)
}

/// Stream 0 and topic 0 with one partition whose segments hold two sends of [`send`].
fn prepare(client: &mut Client, world: &mut World, more: &[(&str, u64)]) {
    client.create_stream(world, "stream").payload();
    let entries: Vec<_> = [("segment_size", MIB)].iter().chain(more).copied().collect();
    let body = CreateTopic {
        stream: number(0),
        partitions_count: 1,
        name: name("topic"),
        options: options(&entries),
    };
    client.call(world, &Request::CreateTopic(body)).payload();
}

fn send(client: &mut Client, world: &mut World) {
    client.send(world, 0, &[&vec![7; 600_000]]);
}

fn delete_segments(client: &mut Client, world: &mut World, partition: u32, count: u32) -> Answer {
    let (stream, topic, partition) = (number(0), number(0), PartitionId(partition));
    let body = DeleteSegments { stream, topic, partition, segments_count: count };
    client.call(world, &Request::DeleteSegments(body))
}

fn topic(client: &mut Client, world: &mut World) -> TopicDetails {
    let body = borzoi_wire::body::GetTopic { stream: number(0), topic: number(0) };
    client.call(world, &Request::GetTopic(body)).decode()
}

fn store(client: &mut Client, world: &mut World, offset: u64) -> Answer {
    let id = IdentifierRef::Numeric(1);
    let request = StoreConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id },
        stream: IdentifierRef::Numeric(0),
        topic: IdentifierRef::Numeric(0),
        partition: OptionalPartition(Some(PartitionId(0))),
        offset: Offset(offset),
        ack: OffsetAck::Quorum,
    };
    client.call(world, &Request::StoreConsumerOffset(request))
}

#[test]
fn the_oldest_closed_segments_are_deleted_and_every_counter_says_so() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        prepare(&mut client, &mut world, &[]);
        for _ in 0..7 {
            send(&mut client, &mut world);
        }
        let before = topic(&mut client, &mut world);
        assert_eq!((before.partitions[0].segments, before.topic.messages), (4, 7));
        match delete_segments(&mut client, &mut world, 0, 2) {
            Answer::Done { operation, payload, .. } => {
                assert_eq!((operation, payload.len()), (68, 0), "TruncatePartition, empty");
            }
            other => panic!("{other:?}"),
        }
        let after = topic(&mut client, &mut world);
        let partition = &after.partitions[0];
        assert_eq!((partition.segments, partition.messages), (2, 3));
        assert_eq!(partition.current_offset, Offset(6), "unaffected");
        assert_eq!(after.topic.messages, 3);
        assert_eq!(
            after.topic.size_bytes * 7,
            before.topic.size_bytes * 3,
            "all messages are of one size"
        );
        let first = client.poll(&mut world, 0, PollingStrategy::Offset(Offset(0)), 1);
        assert_eq!((first.current, first.messages[0].0), (Offset(6), 4));
        // Nothing to delete, none asked for, more than there are: a success each time.
        for count in [0, 1_000, 1] {
            assert!(delete_segments(&mut client, &mut world, 0, count).payload().is_empty());
        }
        let left = client.poll(&mut world, 0, PollingStrategy::First, 10);
        assert_eq!(left.messages.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [6]);
        let mut world = world.restart(1);
        let mut client = Client::root(&mut world, 0, 5);
        assert_eq!(topic(&mut client, &mut world).partitions[0].messages, 1);
        client.send(&mut world, 0, &[b"next"]);
        let all = client.poll(&mut world, 0, PollingStrategy::Last, 2);
        assert_eq!(all.messages.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [6, 7]);
    }
}

#[test]
fn a_stored_offset_holds_segments_back_and_the_wish_is_granted_when_it_has_moved_on() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    prepare(&mut client, &mut world, &[]);
    for _ in 0..6 {
        send(&mut client, &mut world);
    }
    store(&mut client, &mut world, 0).payload();
    assert!(delete_segments(&mut client, &mut world, 0, 2).payload().is_empty(), "a success");
    assert_eq!(topic(&mut client, &mut world).topic.messages, 6, "but nothing has gone");
    store(&mut client, &mut world, 2).payload();
    world.advance(Duration::from_secs(2));
    assert_eq!(topic(&mut client, &mut world).topic.messages, 4);
    store(&mut client, &mut world, 5).payload();
    world.advance(Duration::from_secs(2));
    assert_eq!(topic(&mut client, &mut world).topic.messages, 2, "two, as was wished");
    world.assert_at_rest();
}

#[test]
fn an_expiry_that_is_set_later_removes_what_is_older_already() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 0, 5);
    prepare(&mut client, &mut world, &[]);
    for _ in 0..4 {
        send(&mut client, &mut world);
    }
    world.advance(Duration::from_secs(65));
    assert_eq!(topic(&mut client, &mut world).topic.messages, 4, "nothing expires");
    let update = UpdateTopic {
        stream: number(0),
        topic: number(0),
        name: name("topic"),
        options: options(&[("message_expiry", 10_000_000)]),
    };
    client.call(&mut world, &Request::UpdateTopic(update)).payload();
    world.advance(Duration::from_secs(61));
    let after = topic(&mut client, &mut world);
    assert_eq!((after.topic.messages, after.topic.size_bytes), (0, 0));
    assert_eq!(after.partitions[0].current_offset, Offset(3));
    let request = Client::poll_request(Some(0), PollingStrategy::First, 10, false);
    let empty = polled(client.call(&mut world, &Request::PollMessages(request)));
    assert_eq!((empty.current, empty.messages.len()), (Offset(3), 0));
    assert_eq!(client.send(&mut world, 0, &[b"next"]), 4);
}

#[test]
fn what_segments_cannot_be_deleted_of_is_named() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let rejected = |answer: Answer| answer.error();
    let missing = delete_segments(&mut client, &mut world, 0, 1);
    assert_eq!(rejected(missing), ErrorCode::StreamIdNotFound);
    client.create_stream(&mut world, "stream").payload();
    let missing = delete_segments(&mut client, &mut world, 0, 1);
    assert_eq!(rejected(missing), ErrorCode::TopicIdNotFound);
    client.create_topic(&mut world, "topic", 1).payload();
    let missing = delete_segments(&mut client, &mut world, 1, 1);
    assert_eq!(rejected(missing), ErrorCode::PartitionNotFound);
    assert!(delete_segments(&mut client, &mut world, 0, 1).payload().is_empty());
}
