//! Sending, polling, offsets, counters.

use crate::client::{Answer, Client, batch_of, confirmation, number, polled};
use crate::world::World;
use borzoi_types::{Micros, Offset, PartitionId};
use borzoi_wire::body::{
    ConsumerOffset, DeleteConsumerOffset, DeleteTopic, GetConsumerOffset, GetStream, GetTopic,
    OffsetAck, PurgeTopic, SendMessages, Stats, StoreConsumerOffset, StreamDetails, TopicDetails,
};
use borzoi_wire::{
    ConsumerKind, ConsumerRef, ErrorCode, IdentifierRef, MessagesKey, OptionalPartition,
    Partitioning, PollingStrategy, Request,
};

fn consumer(id: u32) -> ConsumerRef<'static> {
    ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(id) }
}

const STREAM: IdentifierRef<'static> = IdentifierRef::Numeric(0);

fn store(id: u32, partition: u32, offset: u64) -> Request<'static> {
    Request::StoreConsumerOffset(StoreConsumerOffset {
        consumer: consumer(id),
        stream: STREAM,
        topic: STREAM,
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: Offset(offset),
        ack: OffsetAck::Quorum,
    })
}

fn get(id: u32, partition: u32) -> Request<'static> {
    Request::GetConsumerOffset(GetConsumerOffset {
        consumer: consumer(id),
        stream: STREAM,
        topic: STREAM,
        partition: OptionalPartition(Some(PartitionId(partition))),
    })
}

fn delete(id: u32, partition: u32) -> Request<'static> {
    Request::DeleteConsumerOffset(DeleteConsumerOffset {
        consumer: consumer(id),
        stream: STREAM,
        topic: STREAM,
        partition: OptionalPartition(Some(PartitionId(partition))),
        ack: OffsetAck::Quorum,
    })
}

#[test]
fn a_topic_takes_messages_the_moment_its_creation_is_answered_on_every_shard() {
    let mut world = World::new(2);
    let mut creator = Client::root(&mut world, 0, 5);
    let mut sender = Client::root(&mut world, 1, 6);
    creator.create_stream(&mut world, "stream").payload();
    creator.create_topic(&mut world, "topic", 4).payload();
    for partition in 0..4 {
        assert_eq!(sender.send(&mut world, partition, &[b"first"]), 0);
        assert_eq!(creator.send(&mut world, partition, &[b"second", b"third"]), 1);
        let read = sender.poll(&mut world, partition, PollingStrategy::First, 10);
        let payloads: Vec<&[u8]> = read.messages.iter().map(|it| it.1.as_slice()).collect();
        assert_eq!(payloads, [&b"first"[..], b"second", b"third"]);
        assert_eq!((read.partition, read.current), (PartitionId(partition), Offset(2)));
    }
}

#[test]
fn balanced_sends_go_round_and_a_key_always_finds_its_partition() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    client.prepare(&mut world, 3);
    let mut balanced = Vec::new();
    for _ in 0..6 {
        let answer = client.send_to(&mut world, Partitioning::Balanced, &[b"m"]);
        balanced.push(confirmation(&answer).partition.0);
    }
    balanced.sort_unstable();
    assert_eq!(balanced, [0, 0, 1, 1, 2, 2]);
    let key = MessagesKey::new(b"user-7").unwrap();
    let expected = key.partition(3).unwrap();
    for _ in 0..3 {
        let answer = client.send_to(&mut world, Partitioning::Key(key), &[b"m"]);
        assert_eq!(confirmation(&answer).partition, expected);
    }
}

#[test]
fn a_send_to_what_does_not_exist_is_denied_with_20() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let missing = Answer::Denied(ErrorCode::ResourceNotFound);
        assert_eq!(client.send_to(&mut world, Partitioning::Balanced, &[b"m"]), missing);
        client.prepare(&mut world, 0);
        assert_eq!(client.send_to(&mut world, Partitioning::Balanced, &[b"m"]), missing);
        let to = Partitioning::Partition(PartitionId(0));
        assert_eq!(client.send_to(&mut world, to, &[b"m"]), missing);
    }
}

#[test]
fn every_strategy_starts_where_it_should() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    client.prepare(&mut world, 1);
    client.send(&mut world, 0, &[b"0", b"1", b"2"]);
    world.advance(borzoi_types::Duration::from_secs(1));
    let later = world.now.wall;
    client.send(&mut world, 0, &[b"3", b"4"]);
    let mut offsets = |strategy, count| -> Vec<u64> {
        let read = client.poll(&mut world, 0, strategy, count);
        assert_eq!(read.current, Offset(4));
        read.messages.iter().map(|message| message.0).collect()
    };
    assert_eq!(offsets(PollingStrategy::First, 2), [0, 1]);
    assert_eq!(offsets(PollingStrategy::Offset(Offset(1)), 3), [1, 2, 3]);
    assert_eq!(offsets(PollingStrategy::Offset(Offset(9)), 3), [0; 0]);
    assert_eq!(offsets(PollingStrategy::Last, 2), [3, 4]);
    assert_eq!(offsets(PollingStrategy::Last, 100), [0, 1, 2, 3, 4]);
    assert_eq!(offsets(PollingStrategy::Next, 100), [0, 1, 2, 3, 4]);
    assert_eq!(offsets(PollingStrategy::Timestamp(later), 100), [3, 4]);
    assert_eq!(offsets(PollingStrategy::Timestamp(Micros(u64::MAX)), 100), [0; 0]);
    assert_eq!(offsets(PollingStrategy::First, 0), [0; 0]);
}

#[test]
fn an_empty_poll_has_16_bytes_and_a_missing_target_an_error() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let poll = |partition| {
            let poll = Client::poll_request(partition, PollingStrategy::First, 1, false);
            Request::PollMessages(poll)
        };
        assert_eq!(client.call(&mut world, &poll(None)).error(), ErrorCode::StreamIdNotFound);
        client.create_stream(&mut world, "stream").payload();
        assert_eq!(client.call(&mut world, &poll(None)).error(), ErrorCode::TopicIdNotFound);
        client.create_topic(&mut world, "topic", 1).payload();
        assert_eq!(client.call(&mut world, &poll(Some(1))).error(), ErrorCode::PartitionNotFound);
        assert_eq!(client.call(&mut world, &poll(None)).payload(), [0; 16]);
    }
}

#[test]
fn auto_commit_moves_the_consumer_on_and_nothing_else_does() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    client.send(&mut world, 0, &[b"0", b"1", b"2"]);
    let next = |auto_commit| {
        let poll = Client::poll_request(Some(0), PollingStrategy::Next, 2, auto_commit);
        Request::PollMessages(poll)
    };
    let offsets = |answer| -> Vec<u64> { polled(answer).messages.iter().map(|it| it.0).collect() };
    assert_eq!(offsets(client.call(&mut world, &next(false))), [0, 1]);
    assert_eq!(offsets(client.call(&mut world, &next(true))), [0, 1]);
    assert_eq!(offsets(client.call(&mut world, &next(true))), [2]);
    assert_eq!(offsets(client.call(&mut world, &next(true))), [0; 0]);
    let stored: ConsumerOffset = client.call(&mut world, &get(1, 0)).decode();
    assert_eq!((stored.stored_offset, stored.current_offset), (Offset(2), Offset(2)));
}

#[test]
fn offsets_are_stored_read_deleted_and_refused_as_the_protocol_says() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let missing = Answer::Denied(ErrorCode::ResourceNotFound);
        assert_eq!(client.call(&mut world, &store(9, 0, 0)), missing);
        assert!(client.call(&mut world, &get(9, 0)).payload().is_empty(), "unknown stream");
        client.prepare(&mut world, 1);
        let invalid = Answer::Denied(ErrorCode::InvalidOffset);
        assert_eq!(client.call(&mut world, &store(9, 0, 0)), invalid, "an empty partition");
        client.send(&mut world, 0, &[b"0", b"1"]);
        assert!(client.call(&mut world, &get(9, 0)).payload().is_empty(), "nothing stored");
        let not_stored = Answer::Denied(ErrorCode::ConsumerOffsetNotFound);
        assert_eq!(client.call(&mut world, &delete(9, 0)), not_stored);
        assert_eq!(client.call(&mut world, &store(9, 0, 2)), invalid, "beyond the end");
        assert!(client.call(&mut world, &store(9, 0, 1)).payload().is_empty());
        assert!(client.call(&mut world, &store(9, 0, 0)).payload().is_empty(), "back again");
        let stored: ConsumerOffset = client.call(&mut world, &get(9, 0)).decode();
        assert_eq!((stored.stored_offset, stored.current_offset), (Offset(0), Offset(1)));
        assert_eq!(client.call(&mut world, &get(9, 7)).error(), ErrorCode::PartitionNotFound);
        assert_eq!(client.call(&mut world, &store(9, 7, 0)), missing);
        assert!(client.call(&mut world, &delete(9, 0)).payload().is_empty());
        assert!(client.call(&mut world, &get(9, 0)).payload().is_empty());
    }
}

#[test]
fn counters_count_every_confirmed_message_wherever_they_are_asked_for() {
    let mut world = World::new(2);
    let mut sender = Client::root(&mut world, 0, 5);
    let mut reader = Client::root(&mut world, 1, 6);
    sender.prepare(&mut world, 3);
    let mut bytes = 0;
    for round in 0..6u32 {
        sender.send(&mut world, round % 3, &[b"payload"]);
        bytes += batch_of(&[b"payload"]).len() as u64;
        let details: StreamDetails =
            reader.call(&mut world, &Request::GetStream(GetStream { stream: number(0) })).decode();
        assert_eq!(details.stream.messages, u64::from(round) + 1);
        assert_eq!(details.stream.size_bytes, bytes);
        assert_eq!(details.topics[0].messages, u64::from(round) + 1);
    }
    let topic = GetTopic { stream: number(0), topic: number(0) };
    let topic: TopicDetails = reader.call(&mut world, &Request::GetTopic(topic)).decode();
    assert_eq!(topic.partitions.len(), 3);
    for partition in &topic.partitions {
        assert_eq!((partition.messages, partition.current_offset), (2, Offset(1)));
    }
    let stats: Stats = reader.call(&mut world, &Request::GetStats).decode();
    assert_eq!((stats.messages_count, stats.messages_size_bytes), (6, bytes));
    assert_eq!((stats.streams_count, stats.topics_count, stats.partitions_count), (1, 1, 3));
    assert_eq!(stats.clients_count, 2);
    world.assert_at_rest();
}

#[test]
fn reads_that_come_together_share_a_round_of_counters() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    client.prepare(&mut world, 3);
    let mut others: Vec<Client> = (0..10).map(|id| Client::root(&mut world, 1, 10 + id)).collect();
    for other in &mut others {
        let frame = other.request_frame(&Request::GetStreams);
        world.deliver(other.connection, &frame);
    }
    world.run();
    for other in &mut others {
        assert!(!other.take(&mut world).payload().is_empty());
    }
    world.assert_at_rest();
}

#[test]
fn a_purge_empties_a_topic_for_good_and_offsets_start_again() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        client.prepare(&mut world, 2);
        client.send(&mut world, 0, &[b"old", b"old"]);
        client.call(&mut world, &store(9, 0, 1)).payload();
        let purge = PurgeTopic { stream: number(0), topic: number(0) };
        client.call(&mut world, &Request::PurgeTopic(purge)).payload();
        let read = client.poll(&mut world, 0, PollingStrategy::First, 10);
        assert_eq!((read.messages, read.current), (Vec::new(), Offset(0)));
        assert!(client.call(&mut world, &get(9, 0)).payload().is_empty());
        assert_eq!(client.send(&mut world, 0, &[b"new"]), 0);
        let read = client.poll(&mut world, 0, PollingStrategy::First, 10);
        assert_eq!(read.messages, [(0, b"new".to_vec())]);
    }
}

#[test]
fn a_recreated_topic_serves_only_its_own_messages() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut admin = Client::root(&mut world, 0, 5);
        let mut sender = Client::root(&mut world, 1, 6);
        admin.prepare(&mut world, 2);
        for round in 0..5u8 {
            assert_eq!(sender.send(&mut world, 1, &[&[round]]), 0);
            let delete = DeleteTopic { stream: number(0), topic: number(0) };
            admin.call(&mut world, &Request::DeleteTopic(delete)).payload();
            let gone = sender.send_to(&mut world, Partitioning::Balanced, &[b"m"]);
            assert_eq!(gone, Answer::Denied(ErrorCode::ResourceNotFound));
            admin.create_topic(&mut world, "topic", 2).payload();
            let read = sender.poll(&mut world, 1, PollingStrategy::First, 10);
            assert!(read.messages.is_empty());
        }
    }
}

#[test]
fn a_batch_with_a_defect_is_denied_with_the_defect() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let good = batch_of(&[b"one", b"two"]);
    let change = |at: usize, xor: u8| {
        let mut batch = good.clone();
        batch[at] ^= xor;
        batch
    };
    let cases = [
        (change(40, 1), 2, ErrorCode::InvalidBatchChecksum),
        (change(256 + 48, 1), 2, ErrorCode::InvalidMessageChecksum),
        (change(52, 1), 2, ErrorCode::InvalidCommand),
        (change(32, 1), 2, ErrorCode::InvalidCommand),
        (good[..good.len() - 1].to_vec(), 2, ErrorCode::InvalidCommand),
        (good.clone(), 3, ErrorCode::InvalidCommand),
        (good.clone(), 0, ErrorCode::InvalidCommand),
        (change(8, 1), 2, ErrorCode::InvalidBatchChecksum),
        (Vec::new(), 0, ErrorCode::InvalidCommand),
    ];
    for (index, (batch, count, code)) in cases.into_iter().enumerate() {
        let send = SendMessages {
            stream: STREAM,
            topic: STREAM,
            partitioning: Partitioning::Balanced,
            messages_count: count,
            batch: &batch,
        };
        let answer = client.call(&mut world, &Request::SendMessages(send));
        assert_eq!(answer, Answer::Denied(code), "case {index}");
    }
    assert_eq!(client.send(&mut world, 0, &[b"good"]), 0, "nothing of that was stored");
}

#[test]
fn confirmed_messages_offsets_and_topics_survive_a_kill_with_another_shard_count() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 3);
    for partition in 0..3 {
        client.send(&mut world, partition, &[b"kept", b"as well"]);
    }
    client.call(&mut world, &store(9, 1, 1)).payload();
    for shards in [2, 1, 3] {
        world = world.restart(shards);
        client = Client::root(&mut world, 1, 100 + u128::from(shards));
        for partition in 0..3 {
            let read = client.poll(&mut world, partition, PollingStrategy::First, 10);
            assert_eq!(read.messages.len(), 2);
        }
        let stored: ConsumerOffset = client.call(&mut world, &get(9, 1)).decode();
        assert_eq!(stored.stored_offset, Offset(1));
    }
    assert_eq!(client.send(&mut world, 2, &[b"next"]), 2);
}
