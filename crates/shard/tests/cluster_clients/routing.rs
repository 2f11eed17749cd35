//! The cluster as its clients see it.

use crate::client::{Answer, Client, group_consumer, number, polled};
use crate::support::{
    call, create_group, partition_led_by, prepare, root, send_frame, until_accepted,
};
use crate::world::{NODES, World, advertised};
use borzoi_types::{ClientId, Op, PartitionId};
use borzoi_wire::body::{
    AttachRecord, ClusterMetadata, GetConsumerOffset, JoinConsumerGroup, NodeRole, NodeStatus,
    OffsetAck, Routing, StoreConsumerOffset,
};
use borzoi_wire::{
    ConsumerKind, ConsumerRef, ErrorCode, IdentifierRef, OptionalPartition, PollingStrategy,
    Request,
};

const PARTITIONS: u32 = 6;
const ZERO: IdentifierRef<'static> = IdentifierRef::Numeric(0);

fn cluster(client: &mut Client, world: &mut World) -> ClusterMetadata {
    client.call(world, &Request::GetClusterMetadata).decode()
}

fn leaders(cluster: &ClusterMetadata) -> Vec<usize> {
    let all = cluster.nodes.iter().enumerate();
    all.filter(|(_, node)| node.role == NodeRole::Leader).map(|(at, _)| at).collect()
}

#[test]
fn every_node_names_the_same_nodes_and_the_same_leader() {
    let mut world = World::new(1);
    let leader = usize::from(world.led_by(0));
    for node in 0..NODES {
        let mut client = root(&mut world, node, 10 + u128::from(node));
        let seen = cluster(&mut client, &mut world);
        assert_eq!(seen.name.0, "three");
        assert_eq!(leaders(&seen), [leader], "asked node {node}");
        for (at, found) in (0..NODES).zip(&seen.nodes) {
            assert_eq!(found.name.0, advertised(at).name);
            assert_eq!(
                (found.address.0.as_str(), found.tcp),
                (advertised(at).address.as_str(), advertised(at).tcp)
            );
            assert_eq!(found.status, NodeStatus::Healthy);
        }
        assert_eq!(seen.nodes.len(), usize::from(NODES));
    }
}

#[test]
fn a_dead_leader_is_unreachable_and_another_node_is_named() {
    let mut world = World::new(1);
    let old = world.led_by(0);
    world.kill(old);
    world.settle();
    for node in (0..NODES).filter(|node| *node != old) {
        let mut client = root(&mut world, node, 10 + u128::from(node));
        let seen = cluster(&mut client, &mut world);
        assert_eq!(leaders(&seen), [usize::from(world.led_by(0))]);
        assert_eq!(seen.nodes[usize::from(old)].status, NodeStatus::Unreachable);
    }
}

#[test]
fn a_route_names_the_leader_of_the_partition_and_whom_to_act_for() {
    let mut world = World::new(1);
    let node = world.not_led_by(0);
    let mut client = root(&mut world, node, 10);
    prepare(&mut client, &mut world, PARTITIONS);
    for leader in 0..NODES {
        let partition = partition_led_by(&world, leader, PARTITIONS);
        let poll = Client::poll_request(Some(partition), PollingStrategy::Next, 1, true);
        let route: Routing = client.call(&mut world, &Request::GetPollRouting(poll)).decode();
        assert_eq!(route.node.name.0, advertised(leader).name);
        assert_eq!((route.attach.client, route.attach.session), (client.id, client.session));
        assert!(route.attach.metadata_watermark > Op::ZERO);
        let offset = GetConsumerOffset {
            consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(3) },
            stream: ZERO,
            topic: ZERO,
            partition: OptionalPartition(Some(PartitionId(partition))),
        };
        let route: Routing = client.call(&mut world, &Request::GetOffsetRouting(offset)).decode();
        assert_eq!(route.node.name.0, advertised(leader).name);
    }
    let unknown = Client::poll_request(Some(99), PollingStrategy::Next, 1, true);
    let answer = client.call(&mut world, &Request::GetPollRouting(unknown));
    assert_eq!(answer, Answer::Denied(ErrorCode::PartitionNotFound));
}

#[test]
fn an_attached_connection_does_the_consumer_work_of_the_main_one() {
    let mut world = World::new(1);
    let leader = world.not_led_by(0);
    let node = world.led_by(0);
    let mut main = root(&mut world, node, 10);
    prepare(&mut main, &mut world, PARTITIONS);
    create_group(&mut main, &mut world);
    let partition = partition_led_by(&world, leader, PARTITIONS);
    let frame = send_frame(&mut main, partition, &[b"m"]);
    until_accepted(&mut main, &mut world, &frame);
    let join = JoinConsumerGroup {
        stream: number(0),
        topic: number(0),
        group: crate::client::named("group"),
    };
    call(&mut main, &mut world, &Request::JoinConsumerGroup(join)).payload();
    let mut poll = Client::poll_request(Some(partition), PollingStrategy::Next, 10, true);
    poll.consumer = group_consumer("group");
    let route: Routing = main.call(&mut world, &Request::GetPollRouting(poll)).decode();
    assert_eq!(route.node.name.0, advertised(leader).name);

    let mut second = root(&mut world, leader, 11);
    let outsider = polled(second.call(&mut world, &Request::PollOnPrimary(poll)));
    assert!(outsider.messages.is_empty(), "it is no member itself");
    let attach = Request::AttachConsumerSession(route.attach);
    assert!(second.call(&mut world, &attach).payload().is_empty());
    let read = polled(second.call(&mut world, &Request::PollOnPrimary(poll)));
    assert_eq!(read.messages.len(), 1);
    let store = StoreConsumerOffset {
        consumer: group_consumer("group"),
        stream: ZERO,
        topic: ZERO,
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: borzoi_types::Offset(0),
        ack: OffsetAck::Quorum,
    };
    assert!(second.call(&mut world, &Request::StoreConsumerOffset(store)).payload().is_empty());
    world.assert_at_rest();
}

#[test]
fn nobody_attaches_to_a_session_that_is_not_there_or_not_his() {
    let mut world = World::new(1);
    let mut main = root(&mut world, 0, 10);
    let mut second = root(&mut world, 1, 11);
    let record = |client, session| {
        let metadata_watermark = Op::ZERO;
        Request::AttachConsumerSession(AttachRecord { client, session, metadata_watermark })
    };
    let refused = Answer::Denied(ErrorCode::InvalidSession);
    let unknown = record(ClientId(77), main.session);
    assert_eq!(second.call(&mut world, &unknown), refused);
    let old = record(main.id, borzoi_types::SessionId(1));
    assert_eq!(second.call(&mut world, &old), refused);
    crate::support::create_user(&mut main, &mut world, "alice");
    let mut alice = Client::connect(&mut world, 2, 12);
    alice.login(&mut world, "alice", "password");
    assert_eq!(alice.call(&mut world, &record(main.id, main.session)), refused);
    assert!(second.call(&mut world, &record(main.id, main.session)).payload().is_empty());
}

#[test]
fn a_watermark_that_the_node_never_reaches_is_answered_not_now() {
    let mut world = World::new(1);
    let main = root(&mut world, 0, 10);
    let mut second = root(&mut world, 1, 11);
    let record =
        AttachRecord { client: main.id, session: main.session, metadata_watermark: Op(1_000_000) };
    let answer = second.call(&mut world, &Request::AttachConsumerSession(record));
    assert!(answer.error().is_transient());
    world.assert_at_rest();
}
