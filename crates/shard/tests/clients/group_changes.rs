//! Consumer groups whose members, partitions or servers come and go.

use crate::client::{Answer, Client, group_consumer, named, number, polled};
use crate::groups::{GROUP, create, details, join, poll, store, sync};
use crate::world::World;
use borzoi_types::{Duration, PartitionId};
use borzoi_wire::body::{
    ConsumerOffset, CreatePartitions, DeleteConsumerGroup, DeletePartitions, GetConsumerOffset,
    PARTITION_RESYNC,
};
use borzoi_wire::{IdentifierRef, OptionalPartition, Request};
use std::collections::BTreeSet;

fn stored(client: &mut Client, world: &mut World, partition: u32) -> Option<u64> {
    let request = GetConsumerOffset {
        consumer: group_consumer(GROUP),
        stream: IdentifierRef::Numeric(0),
        topic: IdentifierRef::Numeric(0),
        partition: OptionalPartition(Some(PartitionId(partition))),
    };
    let answer = client.call(world, &Request::GetConsumerOffset(request));
    if answer.clone().payload().is_empty() {
        return None;
    }
    Some(answer.decode::<ConsumerOffset>().stored_offset.0)
}

/// Every partition of the topic has exactly one owner, and shares differ by one at most.
fn assert_dealt(client: &mut Client, world: &mut World, members: usize, partitions: u32) {
    let group = details(client, world).unwrap();
    assert_eq!(group.members.len(), members);
    let owned: Vec<u32> =
        group.members.iter().flat_map(|it| it.partitions.iter().map(|it| it.0)).collect();
    let distinct: BTreeSet<u32> = owned.iter().copied().collect();
    assert_eq!(owned.len(), distinct.len(), "no partition has two owners");
    assert_eq!(distinct, (0..partitions).collect(), "and none has none");
    let shares = || group.members.iter().map(|member| member.partitions.len());
    assert!(shares().max().unwrap() - shares().min().unwrap() <= 1);
}

#[test]
fn partitions_that_come_and_go_are_dealt_out_at_once_while_members_are_present() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut members: Vec<Client> =
            (0..3).map(|id| Client::root(&mut world, id, 5 + u128::from(id))).collect();
        members[0].prepare(&mut world, 6);
        create(&mut members[0], &mut world).payload();
        for member in &mut members {
            join(member, &mut world).payload();
        }
        assert_dealt(&mut members[0], &mut world, 3, 6);
        let (stream, topic) = (number(0), number(0));
        let more = CreatePartitions { stream, topic, partitions_count: 2 };
        members[0].call(&mut world, &Request::CreatePartitions(more)).payload();
        assert_dealt(&mut members[1], &mut world, 3, 8);
        let shares: Vec<Vec<u32>> =
            members.iter_mut().map(|member| sync(member, &mut world).unwrap()).collect();
        assert_eq!(shares, [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        // The new owners read the new partitions, and nobody else does.
        members[0].send(&mut world, 7, &[b"new"]);
        assert_eq!(polled(poll(&mut members[1], &mut world, 7)).messages.len(), 1);
        let stale = polled(poll(&mut members[0], &mut world, 7));
        assert_eq!(stale.partition, PARTITION_RESYNC);
        let (stream, topic) = (number(0), number(0));
        let fewer = DeletePartitions { stream, topic, partitions_count: 5 };
        members[2].call(&mut world, &Request::DeletePartitions(fewer)).payload();
        assert_dealt(&mut members[0], &mut world, 3, 3);
        world.assert_at_rest();
    }
}

#[test]
fn groups_offsets_and_generations_survive_a_kill_and_members_join_again() {
    for shards in [1, 2] {
        let mut world = World::new(2);
        let mut first = Client::root(&mut world, 0, 5);
        first.prepare(&mut world, 4);
        create(&mut first, &mut world).payload();
        join(&mut first, &mut world).payload();
        for partition in 0..4 {
            first.send(&mut world, partition, &[b"0", b"1", b"2"]);
            assert_eq!(polled(poll(&mut first, &mut world, partition)).messages.len(), 3);
        }
        store(&mut first, &mut world, 0, 1).payload();
        store(&mut first, &mut world, 1, 2).payload();
        // A second member waits for what the first has not committed.
        let mut second = Client::root(&mut world, 1, 6);
        join(&mut second, &mut world).payload();
        let group = |world: &World| {
            let metadata = world.shards[0].front().metadata();
            let topic = metadata.topic(borzoi_types::StreamId(0), borzoi_types::TopicId(0));
            topic.unwrap().groups.values().next().unwrap().clone()
        };
        let before = group(&world);
        assert!(before.handovers().count() > 0);

        let mut world = world.restart(shards);
        let after = group(&world);
        assert!(after.generation > before.generation, "its members are gone");
        assert_eq!((after.id, after.members().len()), (before.id, 0));
        let mut again = Client::root(&mut world, 0, 7);
        assert_eq!(sync(&mut again, &mut world), None, "membership ends with the connection");
        join(&mut again, &mut world).payload();
        assert_eq!(sync(&mut again, &mut world), Some(vec![0, 1, 2, 3]));
        for (partition, left) in [(0, 1), (1, 0), (2, 3), (3, 3)] {
            let read = polled(poll(&mut again, &mut world, partition));
            assert_eq!((read.partition.0, read.messages.len()), (partition, left));
        }
        assert_eq!(stored(&mut again, &mut world, 1), Some(2));
    }
}

#[test]
fn offsets_of_a_deleted_group_are_gone_when_the_deletion_is_answered() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    client.prepare(&mut world, 5);
    for round in 0..3 {
        create(&mut client, &mut world).payload();
        join(&mut client, &mut world).payload();
        for partition in 0..5 {
            assert_eq!(stored(&mut client, &mut world, partition), None, "round {round}");
            client.send(&mut world, partition, &[b"0"]);
            poll(&mut client, &mut world, partition).payload();
            store(&mut client, &mut world, partition, 0).payload();
            assert_eq!(stored(&mut client, &mut world, partition), Some(0));
        }
        let body = DeleteConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
        client.call(&mut world, &Request::DeleteConsumerGroup(body)).payload();
        let kept: usize = world
            .shards
            .iter()
            .flat_map(|shard| shard.back().lanes())
            .flat_map(|lane| lane.state().partitions())
            .map(|(_, partition)| partition.groups().len() + partition.offsets().len())
            .sum();
        assert_eq!(kept, 0, "nothing is kept in any lane");
    }
    world.advance(Duration::from_secs(1));
    world.assert_at_rest();
}

#[test]
fn a_thousand_members_share_a_thousand_partitions_and_half_of_them_leave() {
    const MEMBERS: u16 = 1_000;
    let mut world = World::new(2);
    let mut observer = Client::root(&mut world, 0, 1);
    observer.prepare(&mut world, u32::from(MEMBERS));
    create(&mut observer, &mut world).payload();
    let mut members: Vec<Client> =
        (0..MEMBERS).map(|id| Client::root(&mut world, id, 10 + u128::from(id))).collect();
    // All join in one batch of events.
    for member in &mut members {
        let frame = member.request_frame(&join_request());
        world.deliver(member.connection, &frame);
    }
    world.run();
    for member in &mut members {
        assert!(matches!(member.take(&mut world), Answer::Done { .. }));
    }
    assert_dealt(&mut observer, &mut world, usize::from(MEMBERS), u32::from(MEMBERS));
    // Every other one is lost; who is left takes over at once.
    let (gone, mut left): (Vec<_>, Vec<_>) =
        members.into_iter().enumerate().partition(|(place, _)| place % 2 == 0);
    for (_, member) in &gone {
        world.lose(member.connection);
    }
    world.run();
    assert_dealt(&mut observer, &mut world, left.len(), u32::from(MEMBERS));
    for (_, member) in left.iter_mut().take(3) {
        for partition in sync(member, &mut world).unwrap() {
            assert_eq!(polled(poll(member, &mut world, partition)).partition.0, partition);
        }
    }
    world.assert_at_rest();
}

fn join_request() -> Request<'static> {
    let (stream, topic, group) = (number(0), number(0), named(GROUP));
    Request::JoinConsumerGroup(borzoi_wire::body::JoinConsumerGroup { stream, topic, group })
}
