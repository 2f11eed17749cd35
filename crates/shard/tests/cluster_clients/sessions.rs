//! Sessions and groups when nodes die, come back, or are written off.

use crate::client::{Client, group_consumer, named, number, polled};
use crate::support::{call, create_group, prepare, root};
use crate::world::{NODES, World};
use borzoi_types::{Duration, SessionId};
use borzoi_wire::body::{
    Assignment, GetConsumerGroup, GroupDetails, JoinConsumerGroup, SyncConsumerGroup,
};
use borzoi_wire::{CommandCode, PollingStrategy, Request};

fn join(client: &mut Client, world: &mut World) {
    let group = named("group");
    let body = JoinConsumerGroup { stream: number(0), topic: number(0), group };
    call(client, world, &Request::JoinConsumerGroup(body)).payload();
}

fn assigned(client: &mut Client, world: &mut World) -> usize {
    let group = named("group");
    let body = SyncConsumerGroup { stream: number(0), topic: number(0), group };
    let assignment: Assignment = call(client, world, &Request::SyncConsumerGroup(body)).decode();
    assignment.partitions.len()
}

fn members(client: &mut Client, world: &mut World) -> usize {
    let group = named("group");
    let body = GetConsumerGroup { stream: number(0), topic: number(0), group };
    let details: GroupDetails = call(client, world, &Request::GetConsumerGroup(body)).decode();
    details.members.len()
}

/// Time passes while clients show that they live.
fn pass(world: &mut World, seconds: u64, clients: &mut [&mut Client]) {
    for _ in 0..seconds {
        world.advance(Duration::from_secs(1));
        for client in clients.iter_mut() {
            client.ping(world).payload();
        }
    }
}

#[test]
fn the_clients_of_a_node_that_stays_away_leave_their_groups_and_later_lose_their_sessions() {
    let mut world = World::new(1);
    let leader = world.led_by(0);
    let victim = world.not_led_by(0);
    let mut stays = root(&mut world, leader, 10);
    prepare(&mut stays, &mut world, 4);
    create_group(&mut stays, &mut world);
    let mut goes = root(&mut world, victim, 11);
    join(&mut stays, &mut world);
    join(&mut goes, &mut world);
    assert_eq!(assigned(&mut stays, &mut world), 2);
    world.kill(victim);
    world.settle();
    pass(&mut world, 30, &mut [&mut stays]);
    assert_eq!(members(&mut stays, &mut world), 2, "it may come back");
    pass(&mut world, 15, &mut [&mut stays]);
    assert_eq!(members(&mut stays, &mut world), 1);
    assert_eq!(assigned(&mut stays, &mut world), 4);
    let sessions =
        |world: &World| world.shard(leader, 0).front().metadata().sessions().get(goes.id).is_some();
    assert!(sessions(&world), "the session waits for its client");
    pass(&mut world, 70, &mut [&mut stays]);
    assert!(!sessions(&world), "for as long as it is promised");
    world.assert_at_rest();
}

#[test]
fn a_node_that_comes_back_from_a_crash_tells_that_its_connections_are_gone() {
    let mut world = World::new(1);
    let leader = world.led_by(0);
    let victim = world.not_led_by(0);
    let mut stays = root(&mut world, leader, 10);
    prepare(&mut stays, &mut world, 4);
    create_group(&mut stays, &mut world);
    let mut goes = root(&mut world, victim, 11);
    join(&mut goes, &mut world);
    assert_eq!(members(&mut stays, &mut world), 1);
    world.kill(victim);
    world.start(victim);
    world.advance(Duration::from_secs(3));
    assert_eq!(members(&mut stays, &mut world), 0);
    // The client comes back to another node: the same session, what it asked before is known.
    let back = root(&mut world, leader, 11);
    assert!(back.session > goes.session);
    world.assert_at_rest();
}

#[test]
fn a_node_that_was_written_off_closes_the_connections_it_held() {
    let mut world = World::new(1);
    let leader = world.led_by(0);
    let away = world.not_led_by(0);
    let mut stays = root(&mut world, leader, 10);
    let held = root(&mut world, away, 11);
    let nobody = Client::connect(&mut world, u16::from(away), 12);
    world.isolate(away);
    pass(&mut world, 45, &mut [&mut stays]);
    assert_eq!(held.closed(&world), None, "nobody can tell it");
    world.heal();
    pass(&mut world, 3, &mut [&mut stays]);
    assert!(held.closed(&world).is_some(), "its client signs in anew");
    world.seen.get_mut(&held.connection).unwrap().frames.clear();
    let _ = nobody;
    let again = root(&mut world, away, 11);
    assert!(again.session > SessionId::ZERO);
    world.assert_at_rest();
}

#[test]
fn a_session_moves_to_another_node_and_writes_of_the_old_connection_are_evicted() {
    let mut world = World::new(1);
    for node in 0..NODES {
        let mut old = root(&mut world, node, 10);
        let mut new = root(&mut world, (node + 1) % NODES, 10);
        assert!(new.session > old.session);
        prepare(&mut new, &mut world, 1);
        world.advance(Duration::from_secs(1));
        let answer = old.create_stream(&mut world, "other");
        assert!(matches!(answer, crate::client::Answer::Evicted(_)), "{answer:?}");
        old.read(&mut world, CommandCode::Ping.code(), &[]).payload();
        world.hang_up(old.connection);
        let delete = borzoi_wire::body::DeleteStream { stream: number(0) };
        call(&mut new, &mut world, &Request::DeleteStream(delete)).payload();
        world.hang_up(new.connection);
        world.advance(Duration::from_secs(1));
    }
    world.assert_at_rest();
}

#[test]
fn a_partition_moves_between_members_on_different_nodes_when_its_owner_has_committed() {
    let mut world = World::new(1);
    let mut old = root(&mut world, 0, 10);
    prepare(&mut old, &mut world, 2);
    create_group(&mut old, &mut world);
    join(&mut old, &mut world);
    for partition in 0..2 {
        old.send(&mut world, partition, &[b"0", b"1"]);
        let mut poll = Client::poll_request(Some(partition), PollingStrategy::Next, 10, false);
        poll.consumer = group_consumer("group");
        assert_eq!(polled(old.call(&mut world, &Request::PollMessages(poll))).messages.len(), 2);
    }
    let mut new = root(&mut world, 1, 11);
    join(&mut new, &mut world);
    assert_eq!(assigned(&mut new, &mut world), 0, "nothing has moved yet");
    for partition in 0..2 {
        let store = borzoi_wire::body::StoreConsumerOffset {
            consumer: group_consumer("group"),
            stream: borzoi_wire::IdentifierRef::Numeric(0),
            topic: borzoi_wire::IdentifierRef::Numeric(0),
            partition: borzoi_wire::OptionalPartition(Some(borzoi_types::PartitionId(partition))),
            offset: borzoi_types::Offset(1),
            ack: borzoi_wire::body::OffsetAck::Quorum,
        };
        old.call(&mut world, &Request::StoreConsumerOffset(store)).payload();
    }
    world.advance(Duration::from_secs(1));
    assert_eq!(assigned(&mut new, &mut world), 1);
    assert_eq!(assigned(&mut old, &mut world), 1);
    world.assert_at_rest();
}
