//! Leaders that die, links that break, nodes that lag: one answer per request, each batch stored
//! once, nothing stale.

use crate::client::{Answer, Client, confirmation, named, number};
use crate::support::{call, lane_of, partition_led_by, prepare, root, send_frame, until_accepted};
use crate::world::{NODES, World};
use borzoi_types::Duration;
use borzoi_wire::body::{
    CreateStream, CreateTopic, DeleteStream, DeleteTopic, GetStream, SendMessages, StreamDetails,
};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{ErrorCode, IdentifierRef, NameRef, Partitioning, PollingStrategy, Request};

const PARTITIONS: u32 = 6;

/// What a partition of stream 0, topic 0 holds, read through a client until it is accepted.
fn payloads(client: &mut Client, world: &mut World, partition: u32) -> Vec<(u64, Vec<u8>)> {
    let poll = Client::poll_request(Some(partition), PollingStrategy::First, 1_000, false);
    crate::client::polled(call(client, world, &Request::PollMessages(poll))).messages
}

#[test]
fn a_batch_resent_after_the_leader_was_killed_gets_its_original_offset() {
    let mut world = World::new(1);
    // The client's node leads neither metadata nor the partition.
    let victim = world.not_led_by(0);
    let node = (0..NODES).find(|node| *node != victim && *node != world.led_by(0)).unwrap();
    let mut client = root(&mut world, node, 10);
    prepare(&mut client, &mut world, PARTITIONS);
    let partition = partition_led_by(&world, victim, PARTITIONS);
    client.send(&mut world, partition, &[b"before"]);
    let frame = send_frame(&mut client, partition, &[b"once", b"twice"]);
    let first = confirmation(&client.exchange_raw(&mut world, &frame));
    assert_eq!(first.base_offset.0, 1);
    world.kill(victim);
    let (again, _) = until_accepted(&mut client, &mut world, &frame);
    assert_eq!(confirmation(&again), first, "the new leader knows the batch");
    // And after a login with the same identity through another node.
    let other = world.led_by(0);
    world.hang_up(client.connection);
    let mut moved = root(&mut world, other, 10);
    let (again, _) = until_accepted(&mut moved, &mut world, &frame);
    assert_eq!(confirmation(&again), first);
    world.start(victim);
    world.settle();
    let mut third = root(&mut world, victim, 30);
    assert_eq!(payloads(&mut third, &mut world, partition).len(), 3);
    world.assert_at_rest();
}

#[test]
fn a_leader_killed_at_any_moment_of_a_send_leaves_one_answer_and_the_batch_once() {
    let mut unknown = 0;
    for steps in 0..12 {
        let mut world = World::new(1);
        let victim = world.not_led_by(0);
        let node = world.led_by(0);
        let mut client = root(&mut world, node, 10);
        prepare(&mut client, &mut world, PARTITIONS);
        let partition = partition_led_by(&world, victim, PARTITIONS);
        let frame = send_frame(&mut client, partition, &[b"once"]);
        world.deliver(client.connection, &frame);
        world.run_steps(steps);
        world.kill(victim);
        world.run();
        let answer = client.take(&mut world);
        let stored = matches!(answer, Answer::Done { .. });
        if !stored {
            let code = answer.error();
            assert!(code.is_transient(), "step {steps}: {code:?}");
            unknown += usize::from(code == ErrorCode::TransientNotCommitted);
        }
        let (again, _) = until_accepted(&mut client, &mut world, &frame);
        assert_eq!(confirmation(&again).base_offset.0, 0, "step {steps}");
        assert_eq!(client.request, 4, "the same request all along");
        assert_eq!(payloads(&mut client, &mut world, partition).len(), 1, "step {steps}");
        world.assert_at_rest();
    }
    assert!(unknown > 0, "some kill came when the fate of the batch was open");
}

#[test]
fn a_metadata_primary_killed_at_any_moment_of_a_change_leaves_it_executed_once() {
    for steps in 0..12 {
        let mut world = World::new(1);
        let victim = world.led_by(0);
        let node = world.not_led_by(0);
        let mut client = root(&mut world, node, 10);
        let body = CreateStream { name: crate::client::name("once"), options: options() };
        let frame = client.request_frame(&Request::CreateStream(body));
        world.deliver(client.connection, &frame);
        world.run_steps(steps);
        world.kill(victim);
        world.run();
        let mut answer = client.take(&mut world);
        if !matches!(answer, Answer::Done { .. }) {
            assert!(answer.clone().error().is_transient(), "step {steps}: {answer:?}");
            answer = until_accepted(&mut client, &mut world, &frame).0;
        }
        let created: StreamDetails = answer.decode();
        assert_eq!(created.stream.id.0, 0, "step {steps}");
        let (again, _) = until_accepted(&mut client, &mut world, &frame);
        assert_eq!(again.decode::<StreamDetails>(), created, "step {steps}: the same reply");
        let mut other = root(&mut world, 3 - victim - node, 11);
        let found = Request::GetStream(GetStream { stream: named("once") });
        assert!(!call(&mut other, &mut world, &found).payload().is_empty());
        world.assert_at_rest();
    }
}

fn options() -> TrailingOptions {
    TrailingOptions::default()
}

#[test]
fn requests_to_a_leader_that_vanished_are_answered_in_time_and_succeed_after_the_failover() {
    let mut world = World::new(1);
    let victim = world.not_led_by(0);
    let node = world.led_by(0);
    let mut client = root(&mut world, node, 10);
    prepare(&mut client, &mut world, PARTITIONS);
    let partition = partition_led_by(&world, victim, PARTITIONS);
    world.vanish(victim);
    let before = world.now.mono;
    let frame = send_frame(&mut client, partition, &[b"m"]);
    let first = client.exchange_raw(&mut world, &frame);
    assert!(first.error().is_transient(), "the way to the old leader leads nowhere");
    assert!(world.now.mono.since(before) <= Duration::from_secs(6), "in time");
    let (sent, _) = until_accepted(&mut client, &mut world, &frame);
    assert_eq!(confirmation(&sent).base_offset.0, 0);
    world.assert_at_rest();
}

#[test]
fn without_a_majority_everything_is_answered_not_now_and_nothing_hangs() {
    let mut world = World::new(1);
    let node = world.led_by(0);
    let mut client = root(&mut world, node, 10);
    prepare(&mut client, &mut world, PARTITIONS);
    for other in (0..NODES).filter(|other| *other != node) {
        world.kill(other);
    }
    world.advance(Duration::from_secs(10));
    for partition in 0..PARTITIONS {
        let frame = send_frame(&mut client, partition, &[b"m"]);
        assert!(client.exchange_raw(&mut world, &frame).error().is_transient());
    }
    let answer = client.create_stream(&mut world, "other");
    assert!(answer.error().is_transient());
    let missing = Request::GetStream(GetStream { stream: named("missing") });
    let answer = client.call(&mut world, &missing);
    assert!(answer.error().is_transient(), "nobody can say that it does not exist");
    let mut late = Client::connect(&mut world, u16::from(node), 11);
    assert!(late.try_login(&mut world, "iggy", "iggy").error().is_transient());
    world.assert_at_rest();
}

#[test]
fn a_deposed_metadata_primary_does_not_deny_what_was_created_without_it() {
    let mut world = World::new(1);
    let old = world.led_by(0);
    let others: Vec<u8> = (0..NODES).filter(|node| *node != old).collect();
    let mut deposed = root(&mut world, old, 10);
    world.isolate(old);
    world.settle();
    let mut client = root(&mut world, others[0], 11);
    let body = CreateStream { name: crate::client::name("new"), options: options() };
    call(&mut client, &mut world, &Request::CreateStream(body)).payload();
    let find = Request::GetStream(GetStream { stream: named("new") });
    let answer = deposed.call(&mut world, &find);
    assert!(answer.error().is_transient(), "it cannot know");
    world.heal();
    assert!(!call(&mut deposed, &mut world, &find).payload().is_empty());
    world.assert_at_rest();
}

#[test]
fn the_first_question_to_a_primary_that_does_not_know_yet_that_it_is_deposed_is_not_answered_no() {
    let mut world = World::new(1);
    let old = world.led_by(0);
    let others: Vec<u8> = (0..NODES).filter(|node| *node != old).collect();
    let mut deposed = root(&mut world, old, 10);
    // Nobody notices: frames are lost both ways.
    for other in &others {
        world.silent.insert((old, *other));
        world.silent.insert((*other, old));
    }
    let mut client = None;
    for _ in 0..400 {
        world.advance(Duration::from_millis(10));
        if others.iter().any(|node| world.serves(*node, borzoi_types::LogId(0))) {
            client = Some(root(&mut world, others[0], 11));
            break;
        }
    }
    let mut client = client.expect("the majority has a primary");
    let body = CreateStream { name: crate::client::name("new"), options: options() };
    call(&mut client, &mut world, &Request::CreateStream(body)).payload();
    let find = Request::GetStream(GetStream { stream: named("new") });
    assert!(deposed.call(&mut world, &find).error().is_transient());
}

#[test]
fn a_read_through_a_deposed_leader_of_a_lane_is_never_stale() {
    let mut world = World::new(1);
    let old = world.not_led_by(0);
    let other = world.led_by(0);
    let mut client = root(&mut world, other, 10);
    prepare(&mut client, &mut world, PARTITIONS);
    let partition = partition_led_by(&world, old, PARTITIONS);
    client.send(&mut world, partition, &[b"first"]);
    let mut deposed = root(&mut world, old, 11);
    assert_eq!(payloads(&mut deposed, &mut world, partition).len(), 1);
    for node in (0..NODES).filter(|node| *node != old) {
        world.silent.insert((old, node));
        world.silent.insert((node, old));
    }
    let frame = send_frame(&mut client, partition, &[b"second"]);
    until_accepted(&mut client, &mut world, &frame);
    let poll = Client::poll_request(Some(partition), PollingStrategy::First, 1_000, false);
    let answer = deposed.call(&mut world, &Request::PollMessages(poll));
    assert!(answer.error().is_transient(), "it cannot know what was confirmed since");
    world.heal();
    assert_eq!(payloads(&mut deposed, &mut world, partition).len(), 2);
}

fn create_stream(client: &mut Client, world: &mut World, stream: &str) {
    let body = CreateStream { name: crate::client::name(stream), options: options() };
    call(client, world, &Request::CreateStream(body)).payload();
}

/// A topic with one partition.
fn create_topic(client: &mut Client, world: &mut World, stream: u32, topic: &str) {
    let body = CreateTopic {
        stream: number(stream),
        partitions_count: 1,
        name: crate::client::name(topic),
        options: options(),
    };
    call(client, world, &Request::CreateTopic(body)).payload();
}

fn named_send(client: &mut Client, topic: &'static str) -> Vec<u8> {
    let batch = crate::client::batch_of(&[b"m"]);
    let send = SendMessages {
        stream: IdentifierRef::Name(NameRef::new("stream").unwrap()),
        topic: IdentifierRef::Name(NameRef::new(topic).unwrap()),
        partitioning: Partitioning::Partition(borzoi_types::PartitionId(0)),
        messages_count: 1,
        batch: &batch,
    };
    client.request_frame(&Request::SendMessages(send))
}

#[test]
fn a_name_that_was_deleted_and_created_anew_is_never_taken_for_the_old_one_by_a_node_that_lags() {
    let mut world = World::new(1);
    let leader = world.led_by(0);
    let lagging = world.not_led_by(0);
    let third = 3 - leader - lagging;
    let mut client = root(&mut world, leader, 10);
    let mut late = root(&mut world, lagging, 11);
    // A topic whose partition is led by the node that both can reach. Others take up the lanes
    // before that one: a new partition goes to the lane that has the fewest.
    create_stream(&mut client, &mut world, "stream");
    create_stream(&mut client, &mut world, "others");
    for other in 0..8 {
        create_topic(&mut client, &mut world, 0, "topic");
        if world.leader(lane_of(&world, leader, 0)) == Some(third) {
            break;
        }
        let delete = Request::DeleteTopic(DeleteTopic { stream: number(0), topic: named("topic") });
        call(&mut client, &mut world, &delete).payload();
        create_topic(&mut client, &mut world, 1, &format!("other-{other}"));
    }
    assert_eq!(world.leader(lane_of(&world, leader, 0)), Some(third), "every node leads a lane");
    let frame = named_send(&mut late, "topic");
    assert_eq!(confirmation(&until_accepted(&mut late, &mut world, &frame).0).base_offset.0, 0);
    let old_key = world.shard(lagging, 0).front().metadata().next_key();

    // The node hears nothing of metadata any more, but reaches the lane.
    world.silent.insert((leader, lagging));
    let delete = Request::DeleteStream(DeleteStream { stream: named("stream") });
    call(&mut client, &mut world, &delete).payload();
    create_stream(&mut client, &mut world, "stream");
    create_topic(&mut client, &mut world, 0, "topic");
    assert_eq!(world.shard(lagging, 0).front().metadata().next_key(), old_key, "it lags");
    let frame = named_send(&mut late, "topic");
    let answer = late.exchange_raw(&mut world, &frame);
    assert!(answer.error().is_transient(), "the old incarnation is gone, the new one unknown");
    world.heal();
    let (sent, _) = until_accepted(&mut late, &mut world, &frame);
    assert_eq!(confirmation(&sent).base_offset.0, 0, "the first message of the new one");
    assert_eq!(payloads(&mut client, &mut world, 0).len(), 1);
    world.assert_at_rest();
}
