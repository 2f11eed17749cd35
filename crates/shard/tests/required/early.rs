//! B1, B2, B5, B7, B12, B13: requests that come before their partition exists.

use crate::client::{Answer, Client, confirmation, number};
use crate::support::model::Model;
use crate::support::{
    Node, Place, create_stream, create_topic, new_disk, options, poll_request, start_time,
    store_request,
};
use crate::world::World;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart, Refusal};
use borzoi_types::{Durability, Duration, Offset, PartitionId};
use borzoi_wire::body::{CreateTopic, OffsetAck, StoreConsumerOffset};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{
    ConsumerKind, ConsumerRef, ErrorCode, IdentifierRef, NameRef, OptionalPartition, Partitioning,
    PollingStrategy, Request,
};

/// What published clients wait for an answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

fn create_topic_frame(client: &mut Client, partitions: u32) -> Vec<u8> {
    client.request_frame(&Request::CreateTopic(CreateTopic {
        stream: number(0),
        partitions_count: partitions,
        name: crate::client::name("topic"),
        options: TrailingOptions::default(),
    }))
}

fn to(partition: u32) -> Partitioning<'static> {
    Partitioning::Partition(PartitionId(partition))
}

fn store_frame(client: &mut Client, partition: u32) -> Vec<u8> {
    client.request_frame(&Request::StoreConsumerOffset(StoreConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(1) },
        stream: IdentifierRef::Numeric(0),
        topic: IdentifierRef::Numeric(0),
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: Offset(0),
        ack: OffsetAck::Quorum,
    }))
}

/// Steps until `client` has an answer that nobody took.
fn run_until_answered(world: &mut World, client: &Client) {
    while world.seen[&client.connection].frames.is_empty() {
        assert!(world.step(), "no answer");
    }
}

/// A world at the instant in which a create was answered: the disk has stopped, so that no lane
/// has its partitions yet. The creator, and one more client on each shard.
fn just_created(shards: u16, partitions: u32) -> (World, Client, Vec<Client>) {
    let mut world = World::new(shards);
    let mut creator = Client::root(&mut world, 0, 5);
    creator.create_stream(&mut world, "stream").payload();
    let others = (0..shards).map(|n| Client::root(&mut world, n, 100 + u128::from(n))).collect();
    let frame = create_topic_frame(&mut creator, partitions);
    world.deliver(creator.connection, &frame);
    run_until_answered(&mut world, &creator);
    creator.take(&mut world).payload();
    world.hold_disk = true;
    (world, creator, others)
}

#[test]
fn b1_whatever_follows_a_create_at_once_succeeds_or_may_be_repeated_from_every_connection() {
    for shards in [1, 2] {
        let (mut world, mut creator, mut others) = just_created(shards, 4);
        let mut sends = Vec::new();
        let mut rest = Vec::new();
        for (index, client) in others.iter_mut().enumerate() {
            for partition in 0..4 {
                let payload = format!("{index}-{partition}");
                let frame = client.send_frame(to(partition), &[payload.as_bytes()]);
                world.deliver(client.connection, &frame);
                sends.push((index, partition, payload));
            }
            for partition in 0..4 {
                let strategy = PollingStrategy::First;
                let poll = Client::poll_request(Some(partition), strategy, 10, false);
                let frame = client.request_frame(&Request::PollMessages(poll));
                world.deliver(client.connection, &frame);
                let frame = store_frame(client, partition);
                world.deliver(client.connection, &frame);
                rest.push(index);
            }
        }
        world.run();
        assert!(world.seen.values().all(|seen| seen.frames.is_empty()), "the lanes are not ready");
        world.hold_disk = false;
        world.run();
        let mut confirmed = Vec::new();
        for (index, partition, payload) in sends {
            let answer = others[index].take(&mut world);
            let sent = confirmation(&answer);
            assert_eq!(sent.partition, PartitionId(partition));
            confirmed.push((partition, sent.base_offset.0, payload.into_bytes()));
        }
        for index in rest {
            let polled = others[index].take(&mut world);
            assert!(matches!(polled, Answer::Done { .. }), "{polled:?}");
            let stored = others[index].take(&mut world);
            assert!(matches!(stored, Answer::Done { .. }), "{stored:?}");
        }
        for (partition, offset, payload) in confirmed {
            let read = creator.poll(&mut world, partition, PollingStrategy::First, 100);
            assert!(read.messages.contains(&(offset, payload)), "{:?}", read.messages);
        }
        world.assert_at_rest();
    }
}

#[test]
fn b2_a_partition_lives_where_the_arithmetic_on_its_lane_says_on_any_number_of_shards() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    for index in 0..6 {
        node.command(create_topic(&format!("topic-{index}"), 3, level(index)));
    }
    node.settle();
    let places = |node: &Node| -> Vec<Place> {
        let each = (0..6).flat_map(|t| (0..3).map(move |p| (t, p)));
        each.map(|(t, p)| node.place(&format!("topic-{t}"), p).unwrap()).collect()
    };
    let before = places(&node);
    for shards in [1u16, 3, 2, 1] {
        node = Node::start(node.disk.kill(), &options(shards), node.now, u64::from(shards));
        node.settle();
        // Nothing but the lane is recorded, and nobody remembers a route: a full pass of the
        // reconciler on each shard has found all of them again.
        assert_eq!(places(&node), before, "lanes stay, whatever the number of shards");
        for at in &before {
            let shard = at.lane.shard(shards);
            for (index, other) in node.shards.iter().enumerate() {
                let lane = other.back().lanes().find(|lane| lane.log() == at.lane);
                assert_eq!(lane.is_some(), index == usize::from(shard.0), "{at:?}");
                if let Some(lane) = lane {
                    assert!(lane.state().partition(at.key).is_some(), "{at:?}");
                }
            }
        }
    }
}

fn level(index: u32) -> Durability {
    if index.is_multiple_of(2) { Durability::Persisted } else { Durability::Replicated }
}

/// A node whose topic is in metadata, while the lane's log does not have its partition yet.
fn created_and_not_materialised() -> (Node, Place) {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.settle();
    node.command(create_topic("durable", 1, Durability::Persisted));
    let at = loop {
        node.run_events();
        if let Some(at) = node.place("durable", 0) {
            break at;
        }
        let (shard, ticket, action) = node.next_action().expect("the commit is on its way");
        node.finish(shard, ticket, &action);
    };
    (node, at)
}

#[test]
fn b5_parked_requests_come_before_those_that_came_later_and_in_the_order_they_came() {
    // Also when the later ones arrive in the very batch in which the partition is created.
    for later_first in [false, true] {
        let (mut node, at) = created_and_not_materialised();
        let mut model = Model::default();
        for _ in 0..5 {
            model.send(&mut node, at, Durability::Persisted, 1, 10);
        }
        node.run_events();
        assert_eq!(node.shards[0].back().shared().parking.len(), 5);
        while !node.shards[0].back().shared().parking.is_empty() {
            let (shard, ticket, action) = node.next_action().expect("the creation is on its way");
            if later_first {
                model.send(&mut node, at, Durability::Persisted, 1, 10);
            }
            node.finish(shard, ticket, &action);
            if !later_first {
                model.send(&mut node, at, Durability::Persisted, 1, 10);
            }
            node.run_events_batched();
        }
        node.settle();
        assert_eq!(model.note_replies(&mut node), 0);
        let order: Vec<u64> = model.sends.values().map(|send| send.confirmed.unwrap().0).collect();
        let expected: Vec<u64> = (0..order.len() as u64).collect();
        assert_eq!(order, expected, "tickets rise in the order in which requests came");
        assert_eq!(node.shards[0].back().shared().parking.bytes(), 0);
    }
}

#[test]
fn b7_a_parked_request_is_answered_when_its_window_ends_long_before_its_client_gives_up() {
    let window = options(1).park_age_max;
    assert!(window.0 * 2 < CLIENT_PATIENCE.0, "{window:?}");
    assert!(borzoi_shard::boot::BootOptions::solo(1).park_age_max.0 * 2 < CLIENT_PATIENCE.0);
    let (mut node, mut at) = created_and_not_materialised();
    node.settle();
    at.key = borzoi_types::PartitionKey(at.key.0 + 1_000);
    let consumer = ConsumerKey::Consumer(1);
    let kinds = [
        LaneRequestKind::GetOffset { consumer },
        poll_request(PollStart::First, 1, consumer, false),
        store_request(consumer, Offset(0)),
    ];
    let tickets: Vec<_> = kinds.into_iter().map(|kind| node.request(at, kind)).collect();
    node.settle();
    node.pass(Duration(window.0 - 1));
    node.settle();
    assert!(node.replies.is_empty(), "not before");
    node.pass(Duration(1));
    node.settle();
    for ticket in tickets {
        let answer = node.answer(ticket);
        assert!(matches!(answer, LaneReply::Refused(Refusal::NotMaterialised)), "{answer:?}");
    }
    assert_eq!(node.shards[0].back().shared().parking.bytes(), 0);
}

#[test]
fn b12_a_request_that_was_early_for_too_long_may_be_repeated_in_the_same_session() {
    // Profile A has one retriable number for both; inside they are told apart, and neither ends
    // the session.
    assert_ne!(Refusal::NotMaterialised, Refusal::NotServing);
    assert!(Refusal::NotMaterialised.is_retriable() && Refusal::NotServing.is_retriable());
    let (mut world, _, mut others) = just_created(2, 1);
    let client = &mut others[1];
    let session = client.session;
    let frame = client.send_frame(to(0), &[b"early"]);
    world.deliver(client.connection, &frame);
    world.run();
    world.advance(Duration::from_secs(2));
    let answer = client.take(&mut world);
    assert_eq!(answer, Answer::Denied(ErrorCode::TransientNotAccepted));
    assert_eq!(client.closed(&world), None, "no eviction, no close");
    world.hold_disk = false;
    world.run();
    // The same frame under the same number in the same session.
    let again = confirmation(&client.exchange_raw(&mut world, &frame));
    assert_eq!((again.base_offset, client.session), (Offset(0), session));
    let read = client.poll(&mut world, 0, PollingStrategy::First, 10);
    assert_eq!(read.messages, [(0, b"early".to_vec())], "and it was executed once");
}

#[test]
fn b13_denials_are_counted_when_a_transport_gets_them_and_not_when_nobody_is_there() {
    let denied = |world: &World| -> u64 {
        let each = world.shards.iter().map(|shard| shard.front().counters().denied_transient);
        each.sum()
    };
    let (mut world, _, mut others) = just_created(2, 1);
    assert_eq!(denied(&world), 0);
    for client in &mut others {
        let frame = client.send_frame(to(0), &[b"early"]);
        world.deliver(client.connection, &frame);
        world.run();
    }
    world.hang_up(others[0].connection);
    world.advance(Duration::from_secs(2));
    assert_eq!(denied(&world), 1, "one of the two was still there");
    let answer = others[1].take(&mut world);
    assert_eq!(answer, Answer::Denied(ErrorCode::TransientNotAccepted));
    assert!(world.seen[&others[0].connection].frames.is_empty());
}

#[test]
fn b1_a_request_for_a_topic_by_a_name_just_created_is_not_refused_by_a_shard_that_lags() {
    let mut world = World::new(2);
    let mut creator = Client::root(&mut world, 0, 5);
    creator.create_stream(&mut world, "stream").payload();
    let mut other = Client::root(&mut world, 1, 6);
    // Both frames arrive in one batch: the other shard has never heard of the topic.
    let create = create_topic_frame(&mut creator, 1);
    let batch = crate::client::batch_of(&[b"m"]);
    let send = borzoi_wire::body::SendMessages {
        stream: IdentifierRef::Numeric(0),
        topic: IdentifierRef::Name(NameRef::new("topic").unwrap()),
        partitioning: to(0),
        messages_count: 1,
        batch: &batch,
    };
    let frame = other.request_frame(&Request::SendMessages(send));
    world.deliver(creator.connection, &create);
    run_until_answered(&mut world, &creator);
    creator.take(&mut world).payload();
    world.deliver(other.connection, &frame);
    world.run();
    assert_eq!(confirmation(&other.take(&mut world)).base_offset, Offset(0));
    assert_eq!(world.shards[0].front().counters().denied_transient, 0);
}
