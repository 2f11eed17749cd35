//! Consumer groups.

use crate::client::{Answer, Client, group_consumer, name, named, number, polled};
use crate::world::World;
use borzoi_shard::event::CloseReason;
use borzoi_types::{Duration, Offset, PartitionId};
use borzoi_wire::body::{
    Assignment, CreateConsumerGroup, DeleteConsumerGroup, GetConsumerGroup, GroupDetails,
    GroupRecord, JoinConsumerGroup, LeaveConsumerGroup, OffsetAck, PARTITION_RESYNC,
    StoreConsumerOffset, SyncConsumerGroup,
};
use borzoi_wire::frame::EvictionReason;
use borzoi_wire::{ErrorCode, IdentifierRef, OptionalPartition, PollingStrategy, Request};

pub const GROUP: &str = "group";

pub fn create(client: &mut Client, world: &mut World) -> Answer {
    let body = CreateConsumerGroup { stream: number(0), topic: number(0), name: name(GROUP) };
    client.call(world, &Request::CreateConsumerGroup(body))
}

pub fn join(client: &mut Client, world: &mut World) -> Answer {
    let body = JoinConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
    client.call(world, &Request::JoinConsumerGroup(body))
}

pub fn leave(client: &mut Client, world: &mut World) -> Answer {
    let body = LeaveConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
    client.call(world, &Request::LeaveConsumerGroup(body))
}

pub fn sync(client: &mut Client, world: &mut World) -> Option<Vec<u32>> {
    let body = SyncConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
    let answer = client.call(world, &Request::SyncConsumerGroup(body));
    if answer.clone().payload().is_empty() {
        return None;
    }
    let assignment: Assignment = answer.decode();
    Some(assignment.partitions.iter().map(|partition| partition.0).collect())
}

pub fn details(client: &mut Client, world: &mut World) -> Option<GroupDetails> {
    let body = GetConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
    let answer = client.call(world, &Request::GetConsumerGroup(body));
    (!answer.clone().payload().is_empty()).then(|| answer.decode())
}

pub fn poll(client: &mut Client, world: &mut World, partition: u32) -> Answer {
    let mut request = Client::poll_request(Some(partition), PollingStrategy::Next, 10, false);
    request.consumer = group_consumer(GROUP);
    client.call(world, &Request::PollMessages(request))
}

pub fn store(client: &mut Client, world: &mut World, partition: u32, offset: u64) -> Answer {
    let request = StoreConsumerOffset {
        consumer: group_consumer(GROUP),
        stream: IdentifierRef::Numeric(0),
        topic: IdentifierRef::Numeric(0),
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: Offset(offset),
        ack: OffsetAck::Quorum,
    };
    client.call(world, &Request::StoreConsumerOffset(request))
}

#[test]
fn members_join_sync_poll_their_partitions_and_are_told_to_sync_when_one_moves() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut first = Client::root(&mut world, 0, 5);
        first.prepare(&mut world, 2);
        let created: GroupRecord = create(&mut first, &mut world).decode();
        assert_eq!((created.members_count, created.partitions_count), (0, 2));
        assert_eq!(sync(&mut first, &mut world), None, "not a member");
        assert!(join(&mut first, &mut world).payload().is_empty());
        assert!(join(&mut first, &mut world).payload().is_empty(), "joining twice is harmless");
        assert_eq!(sync(&mut first, &mut world), Some(vec![0, 1]));
        first.send(&mut world, 0, &[b"a"]);
        first.send(&mut world, 1, &[b"b"]);
        assert_eq!(polled(poll(&mut first, &mut world, 1)).messages.len(), 1);
        assert!(store(&mut first, &mut world, 1, 0).payload().is_empty());

        let mut second = Client::root(&mut world, 1, 6);
        let outsider = polled(poll(&mut second, &mut world, 0));
        assert_eq!(outsider.partition, PARTITION_RESYNC, "no member");
        join(&mut second, &mut world).payload();
        // All that was polled is committed, so the partition moves at once.
        let (mine, yours) =
            (sync(&mut first, &mut world).unwrap(), sync(&mut second, &mut world).unwrap());
        assert_eq!((mine.len(), yours.len()), (1, 1), "{mine:?} {yours:?}");
        let moved = yours[0];
        let stale = polled(poll(&mut first, &mut world, moved));
        assert_eq!((stale.partition, stale.messages.len()), (PARTITION_RESYNC, 0));
        assert_ne!(polled(poll(&mut second, &mut world, moved)).partition, PARTITION_RESYNC);
        let refused = store(&mut first, &mut world, moved, 0);
        assert_eq!(refused, Answer::Denied(ErrorCode::ResourceNotFound));
        assert_eq!(details(&mut first, &mut world).unwrap().members.len(), 2);
    }
}

#[test]
fn a_partition_in_flight_stays_until_its_owner_has_committed_or_half_a_minute_is_over() {
    for shards in [1, 2] {
        for commits in [true, false] {
            let mut world = World::new(shards);
            let mut old = Client::root(&mut world, 0, 5);
            old.prepare(&mut world, 2);
            create(&mut old, &mut world).payload();
            join(&mut old, &mut world).payload();
            for partition in 0..2 {
                old.send(&mut world, partition, &[b"0", b"1"]);
                assert_eq!(polled(poll(&mut old, &mut world, partition)).messages.len(), 2);
            }
            let mut new = Client::root(&mut world, 1, 6);
            join(&mut new, &mut world).payload();
            assert_eq!(sync(&mut new, &mut world), Some(vec![]), "nothing has moved yet");
            let kept = sync(&mut old, &mut world).unwrap();
            assert_eq!(kept.len(), 1, "and what is to move is not polled any more");
            let moving = 1 - kept[0];
            let resync = polled(poll(&mut old, &mut world, moving));
            assert_eq!(resync.partition, PARTITION_RESYNC);
            if commits {
                store(&mut old, &mut world, moving, 0).payload();
                assert_eq!(sync(&mut new, &mut world), Some(vec![]), "the last one is missing");
                store(&mut old, &mut world, moving, 1).payload();
            } else {
                for _ in 0..4 {
                    world.advance(Duration::from_secs(8));
                    old.ping(&mut world).payload();
                    new.ping(&mut world).payload();
                }
            }
            assert_eq!(sync(&mut new, &mut world), Some(vec![moving]));
            let first = polled(poll(&mut new, &mut world, moving)).messages.len();
            assert_eq!(first, if commits { 0 } else { 2 });
            world.assert_at_rest_but(usize::from(!commits));
        }
    }
}

#[test]
fn a_member_leaves_with_its_request_its_logout_or_its_connection() {
    let mut world = World::new(2);
    let mut keeper = Client::root(&mut world, 0, 5);
    keeper.prepare(&mut world, 3);
    create(&mut keeper, &mut world).payload();
    join(&mut keeper, &mut world).payload();
    let members =
        |keeper: &mut Client, world: &mut World| details(keeper, world).unwrap().members.len();
    for way in 0..3 {
        let mut guest = Client::root(&mut world, 1, 10 + way);
        join(&mut guest, &mut world).payload();
        assert_eq!(members(&mut keeper, &mut world), 2);
        match way {
            0 => drop(leave(&mut guest, &mut world).payload()),
            1 => drop(guest.call(&mut world, &Request::Logout).payload()),
            _ => world.hang_up(guest.connection),
        }
        assert_eq!(members(&mut keeper, &mut world), 1, "way {way}");
        assert_eq!(sync(&mut keeper, &mut world), Some(vec![0, 1, 2]));
    }
    let not_member = leave(&mut Client::root(&mut world, 1, 20), &mut world);
    assert_eq!(not_member, Answer::Rejected(ErrorCode::ConsumerGroupMemberNotFound));
}

#[test]
fn only_a_silent_member_is_evicted_and_loses_its_partitions() {
    let mut world = World::new(1);
    let mut member = Client::root(&mut world, 0, 5);
    member.prepare(&mut world, 1);
    create(&mut member, &mut world).payload();
    join(&mut member, &mut world).payload();
    let mut idler = Client::root(&mut world, 0, 6);
    for _ in 0..4 {
        world.advance(Duration::from_secs(20));
        member.ping(&mut world).payload();
    }
    assert_eq!(member.closed(&world), None, "pings are a sign of life");
    world.advance(Duration::from_secs(38));
    assert_eq!(member.take(&mut world), Answer::Evicted(EvictionReason::StaleClient));
    assert_eq!(member.closed(&world), Some(CloseReason::Idle));
    assert_eq!(details(&mut idler, &mut world).unwrap().members.len(), 0);
}

#[test]
fn missing_groups_and_topics_are_named_by_their_numbers() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    assert_eq!(create(&mut client, &mut world), Answer::Rejected(ErrorCode::StreamIdNotFound));
    client.prepare(&mut world, 1);
    assert_eq!(join(&mut client, &mut world), Answer::Rejected(ErrorCode::ConsumerGroupIdNotFound));
    assert_eq!(details(&mut client, &mut world), None);
    let answer = poll(&mut client, &mut world, 0);
    assert_eq!(answer, Answer::Denied(ErrorCode::ConsumerGroupIdNotFound));
    create(&mut client, &mut world).payload();
    let again = create(&mut client, &mut world);
    assert_eq!(again, Answer::Rejected(ErrorCode::ConsumerGroupNameAlreadyExists));
    let body = DeleteConsumerGroup { stream: number(0), topic: number(0), group: named(GROUP) };
    client.call(&mut world, &Request::DeleteConsumerGroup(body)).payload();
    assert_eq!(details(&mut client, &mut world), None);
}
