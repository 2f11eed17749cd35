//! B10, B15: when the reconciler may rest, and that equal inputs give equal outputs.

use crate::client::{Client, named, number};
use crate::support::{
    Node, Place, create_stream, create_topic, delete_topic, new_disk, options, start_time,
};
use crate::world::World;
use borzoi_shard::lane::Lane;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind};
use borzoi_types::{Durability, Duration, PartitionId, PartitionKey};
use borzoi_wire::body::{self, GetStream};
use borzoi_wire::{Partitioning, PollingStrategy, Request};

fn lane(node: &Node, at: Place) -> &Lane {
    node.shards[0].back().lanes().find(|lane| lane.log() == at.lane).unwrap()
}

fn wants(node: &Node, at: Place) -> bool {
    let shard = &node.shards[0];
    lane(node, at).wants_reconcile(shard.front().metadata(), shard.back().shared())
}

#[test]
fn b10_a_pass_is_skipped_only_when_metadata_rests_and_nothing_is_planned_or_parked() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("topic", 1, Durability::Replicated));
    node.settle();
    let at = node.place("topic", 0).unwrap();
    let applied = node.shards[0].front().metadata().applied();
    assert!(!wants(&node, at), "all is as metadata wants it");
    assert_eq!(lane(&node, at).reconciled(), Some(applied));
    // Something parked asks for passes until it has left.
    let early = Place { key: PartitionKey(at.key.0 + 9), ..at };
    let consumer = ConsumerKey::Consumer(1);
    let ticket = node.request(early, LaneRequestKind::GetOffset { consumer });
    node.settle();
    assert!(wants(&node, at), "something is parked");
    node.pass(Duration::from_secs(2));
    node.settle();
    assert!(matches!(node.answer(ticket), LaneReply::Refused(_)));
    assert!(!wants(&node, at));
    // Another revision of metadata, even one that does not concern the lane.
    node.command(create_topic("elsewhere", 1, Durability::Persisted));
    node.settle();
    let later = node.shards[0].front().metadata().applied();
    assert!(later > applied);
    assert_eq!(lane(&node, at).reconciled(), Some(later), "looked at again");
    // What is planned and not done keeps the lane from saying that it is reconciled.
    node.command(delete_topic("topic"));
    let mut busy = 0;
    loop {
        node.run_events_batched();
        let gone = node.place("topic", 0).is_none();
        let exists = lane(&node, at).state().partition(at.key).is_some();
        if gone && exists {
            busy += 1;
        }
        let Some((shard, disk, action)) = node.next_action() else { break };
        node.finish(shard, disk, &action);
    }
    assert!(busy > 0, "the deletion took its way through the lane's log");
    assert!(lane(&node, at).state().partition(at.key).is_none());
    assert!(!wants(&node, at));
}

#[test]
fn b10_a_restart_compares_everything_and_repairs_what_no_change_announces() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.settle();
    node.command(create_topic("topic", 4, Durability::Replicated));
    // Killed as soon as metadata has it, before the lane does: nobody will announce it again.
    while node.place("topic", 0).is_none() {
        node.run_events();
        let (shard, ticket, action) = node.next_action().expect("the commit is on its way");
        node.finish(shard, ticket, &action);
    }
    let at = node.place("topic", 0).unwrap();
    assert!(lane(&node, at).state().partition(at.key).is_none());
    let mut node = Node::start(node.disk.kill(), &options(1), node.now, 4);
    node.settle();
    for partition in 0..4 {
        let at = node.place("topic", partition).expect("the create was committed");
        assert!(lane(&node, at).state().partition(at.key).is_some(), "{partition}");
    }
}

/// A day in the life of a node, as every effect of its shards.
fn trace(shards: u16) -> String {
    let mut world = World::new(shards);
    world.trace = Some(String::new());
    let mut root = Client::root(&mut world, 0, 5);
    root.prepare(&mut world, 7);
    let group = body::CreateConsumerGroup {
        stream: number(0),
        topic: number(0),
        name: crate::client::name("group"),
    };
    root.call(&mut world, &Request::CreateConsumerGroup(group)).payload();
    let mut members: Vec<Client> =
        (0..9).map(|n| Client::root(&mut world, n, 50 + u128::from(n))).collect();
    for member in &mut members {
        let join =
            body::JoinConsumerGroup { stream: number(0), topic: number(0), group: named("group") };
        member.call(&mut world, &Request::JoinConsumerGroup(join)).payload();
    }
    for round in 0..30u32 {
        for (index, member) in (0u32..).zip(&mut members) {
            let to = Partitioning::Partition(PartitionId((index + round) % 7));
            let frame = member.send_frame(to, &[format!("{round}.{index}").as_bytes()]);
            world.deliver(member.connection, &frame);
        }
        world.run();
        for member in &mut members {
            member.take(&mut world).payload();
        }
    }
    // Half of them leave at once: every partition moves, connections and sessions end.
    for member in &members[..4] {
        world.hang_up(member.connection);
    }
    world.advance(Duration::from_secs(70));
    root.poll(&mut world, 3, PollingStrategy::First, 100);
    root.call(&mut world, &Request::GetStream(GetStream { stream: number(0) })).payload();
    world.stop();
    world.trace.take().unwrap()
}

#[test]
fn b15_the_same_inputs_give_the_same_effects_byte_for_byte() {
    for shards in [1, 2, 3] {
        let (first, second) = (trace(shards), trace(shards));
        assert!(first.lines().count() > 400, "{} effects", first.lines().count());
        let differing = first.lines().zip(second.lines()).position(|(a, b)| a != b);
        assert_eq!(differing, None, "with {shards} shards");
        assert_eq!(first.len(), second.len());
    }
}
