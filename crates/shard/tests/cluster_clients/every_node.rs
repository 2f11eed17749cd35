//! Every operation through every node, whoever leads.

use crate::client::{Answer, Client, group_consumer, name, named, number, polled};
use crate::support::{call, create_group, lane_of, prepare, root};
use crate::world::{NODES, World};
use borzoi_types::{Offset, PartitionId, UserId};
use borzoi_wire::body::{
    Assignment, ChangePassword, ClientRecord, ConsumerOffset, CreatePartitions,
    CreatePersonalAccessToken, CreateUser, DeleteConsumerGroup, DeleteConsumerOffset,
    DeletePartitions, DeletePersonalAccessToken, DeleteStream, DeleteTopic, DeleteUser,
    GetConsumerOffset, GetStream, GetTopic, JoinConsumerGroup, LeaveConsumerGroup, OffsetAck,
    PurgeStream, PurgeTopic, Stats, StoreConsumerOffset, StreamDetails, SyncConsumerGroup,
    TokenLifetime, TopicDetails, UpdateStream, UpdateUser, UserStatus,
};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{
    CommandCode, ConsumerKind, ConsumerRef, ErrorCode, Identifier, IdentifierRef,
    OptionalPartition, PollingStrategy, Request, Secret, Wire,
};
use std::collections::BTreeSet;

const PARTITIONS: u32 = 6;
const ZERO: IdentifierRef<'static> = IdentifierRef::Numeric(0);

fn stream() -> Identifier {
    number(0)
}

fn group() -> Identifier {
    named("group")
}

fn consumer() -> ConsumerRef<'static> {
    ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(3) }
}

fn partition(number: u32) -> OptionalPartition {
    OptionalPartition(Some(PartitionId(number)))
}

fn store(number: u32, offset: u64) -> Request<'static> {
    Request::StoreConsumerOffset(StoreConsumerOffset {
        consumer: consumer(),
        stream: ZERO,
        topic: ZERO,
        partition: partition(number),
        offset: Offset(offset),
        ack: OffsetAck::Quorum,
    })
}

fn get(number: u32) -> Request<'static> {
    let (stream, topic, partition) = (ZERO, ZERO, partition(number));
    Request::GetConsumerOffset(GetConsumerOffset { consumer: consumer(), stream, topic, partition })
}

fn forget(number: u32) -> Request<'static> {
    Request::DeleteConsumerOffset(DeleteConsumerOffset {
        consumer: consumer(),
        stream: ZERO,
        topic: ZERO,
        partition: partition(number),
        ack: OffsetAck::Quorum,
    })
}

/// The answer at the first attempt: nothing of a healthy cluster is "not now".
fn at_once(client: &mut Client, world: &mut World, request: &Request<'_>) -> Vec<u8> {
    client.call(world, request).payload()
}

#[test]
fn a_client_of_any_node_changes_streams_topics_partitions_and_users() {
    let mut world = World::new(1);
    for node in 0..NODES {
        let mut client = root(&mut world, node, 10 + u128::from(node));
        // Whoever looks is on another node and sees it at once.
        let mut other = root(&mut world, (node + 1) % NODES, 20 + u128::from(node));
        prepare(&mut client, &mut world, 2);
        let topic = Request::GetTopic(GetTopic { stream: stream(), topic: number(0) });
        let seen: TopicDetails = other.call(&mut world, &topic).decode();
        assert_eq!(seen.partitions.len(), 2, "node {node}");
        let (options, renamed) = (TrailingOptions::default(), name("renamed"));
        let body = UpdateStream { stream: stream(), name: renamed, options };
        at_once(&mut client, &mut world, &Request::UpdateStream(body));
        let body = CreatePartitions { stream: stream(), topic: number(0), partitions_count: 4 };
        at_once(&mut client, &mut world, &Request::CreatePartitions(body));
        assert_eq!(other.send(&mut world, 5, &[b"m"]), 0);
        let body = DeletePartitions { stream: stream(), topic: number(0), partitions_count: 1 };
        at_once(&mut client, &mut world, &Request::DeletePartitions(body));
        assert_eq!(client.send(&mut world, 4, &[b"m"]), 0);
        let purge = Request::PurgeTopic(PurgeTopic { stream: stream(), topic: number(0) });
        at_once(&mut client, &mut world, &purge);
        assert!(client.poll(&mut world, 4, PollingStrategy::First, 1).messages.is_empty());
        at_once(&mut client, &mut world, &Request::PurgeStream(PurgeStream { stream: stream() }));
        users(&mut world, &mut client, node);
        let delete = Request::DeleteTopic(DeleteTopic { stream: stream(), topic: number(0) });
        at_once(&mut client, &mut world, &delete);
        at_once(&mut client, &mut world, &Request::DeleteStream(DeleteStream { stream: stream() }));
        let gone = Request::GetStream(GetStream { stream: named("renamed") });
        assert!(other.call(&mut world, &gone).payload().is_empty(), "gone everywhere");
        world.assert_at_rest();
    }
}

fn users(world: &mut World, root: &mut Client, node: u8) {
    let (status, options) = (UserStatus::Active, TrailingOptions::default());
    let password = Secret::new("password").unwrap();
    let permissions = None;
    let body =
        CreateUser { name: name("alice"), password, status, permissions, options: options.clone() };
    at_once(root, world, &Request::CreateUser(body));
    // On another node, at once.
    let place = u16::from((node + 2) % NODES);
    let mut alice = Client::connect(world, place, 30 + u128::from(node));
    assert_ne!(alice.login(world, "alice", "password"), UserId(0));
    let body = ChangePassword {
        user: named("alice"),
        current: Secret::new("password").unwrap(),
        new: Secret::new("another").unwrap(),
    };
    at_once(&mut alice, world, &Request::ChangePassword(body));
    let body = CreatePersonalAccessToken { name: name("token"), lifetime: TokenLifetime::NEVER };
    assert!(!at_once(&mut alice, world, &Request::CreatePersonalAccessToken(body)).is_empty());
    let body = DeletePersonalAccessToken { name: name("token") };
    at_once(&mut alice, world, &Request::DeletePersonalAccessToken(body));
    let body = UpdateUser { user: named("alice"), name: Some(name("bob")), status: None, options };
    at_once(root, world, &Request::UpdateUser(body));
    at_once(root, world, &Request::DeleteUser(DeleteUser { user: named("bob") }));
    let mut late = Client::connect(world, u16::from(node), 40 + u128::from(node));
    assert!(matches!(late.try_login(world, "bob", "another"), Answer::Evicted(_)));
}

#[test]
fn a_client_of_any_node_sends_polls_and_keeps_offsets_in_every_lane() {
    let mut world = World::new(1);
    let mut clients: Vec<Client> =
        (0..NODES).map(|node| root(&mut world, node, 10 + u128::from(node))).collect();
    prepare(&mut clients[0], &mut world, PARTITIONS);
    let lanes: BTreeSet<u32> = (0..PARTITIONS).map(|it| lane_of(&world, 0, it).get()).collect();
    let leaders: BTreeSet<u8> = lanes.iter().map(|lane| world.led_by(*lane)).collect();
    assert_eq!(leaders.len(), 3, "every node leads some lane");
    for number in 0..PARTITIONS {
        for (at, client) in clients.iter_mut().enumerate() {
            let before = 2 * at as u64;
            assert_eq!(client.send(&mut world, number, &[b"a", b"b"]), before, "{number}, {at}");
            let read = client.poll(&mut world, number, PollingStrategy::First, 100);
            assert_eq!(read.messages.len() as u64, before + 2, "a read sees what was confirmed");
            assert!(at_once(client, &mut world, &store(number, before)).is_empty());
            let offset: ConsumerOffset = client.call(&mut world, &get(number)).decode();
            assert_eq!(offset.stored_offset, Offset(before));
            let beyond = client.call(&mut world, &store(number, 1_000));
            assert_eq!(beyond.error(), ErrorCode::InvalidOffset);
        }
        let client = &mut clients[1];
        assert!(at_once(client, &mut world, &forget(number)).is_empty());
        assert!(at_once(&mut clients[2], &mut world, &get(number)).is_empty(), "forgotten");
    }
    world.assert_at_rest();
}

#[test]
fn members_of_a_group_on_different_nodes_share_its_partitions() {
    let mut world = World::new(1);
    let mut clients: Vec<Client> =
        (0..NODES).map(|node| root(&mut world, node, 10 + u128::from(node))).collect();
    prepare(&mut clients[0], &mut world, PARTITIONS);
    create_group(&mut clients[1], &mut world);
    for client in &mut clients {
        let body = JoinConsumerGroup { stream: stream(), topic: number(0), group: group() };
        at_once(client, &mut world, &Request::JoinConsumerGroup(body));
    }
    for number in 0..PARTITIONS {
        clients[0].send(&mut world, number, &[b"m"]);
    }
    let mut owned = BTreeSet::new();
    for client in &mut clients {
        let body = SyncConsumerGroup { stream: stream(), topic: number(0), group: group() };
        let assignment: Assignment =
            client.call(&mut world, &Request::SyncConsumerGroup(body)).decode();
        assert_eq!(assignment.partitions.len(), 2);
        for partition in assignment.partitions {
            assert!(owned.insert(partition), "one owner each");
            let mut poll = Client::poll_request(Some(partition.0), PollingStrategy::Next, 10, true);
            poll.consumer = group_consumer("group");
            let read = polled(client.call(&mut world, &Request::PollMessages(poll)));
            assert_eq!(read.messages.len(), 1);
        }
    }
    assert_eq!(owned.len(), 6);
    let body = LeaveConsumerGroup { stream: stream(), topic: number(0), group: group() };
    at_once(&mut clients[2], &mut world, &Request::LeaveConsumerGroup(body));
    let body = DeleteConsumerGroup { stream: stream(), topic: number(0), group: group() };
    at_once(&mut clients[0], &mut world, &Request::DeleteConsumerGroup(body));
    world.assert_at_rest();
}

#[test]
fn figures_and_clients_are_those_of_the_cluster_whichever_node_is_asked() {
    let mut world = World::new(1);
    let mut clients: Vec<Client> =
        (0..NODES).map(|node| root(&mut world, node, 10 + u128::from(node))).collect();
    prepare(&mut clients[0], &mut world, PARTITIONS);
    for number in 0..PARTITIONS {
        clients[usize::try_from(number % 3).unwrap()].send(&mut world, number, &[b"a", b"b"]);
    }
    let mut numbers = BTreeSet::new();
    for client in &mut clients {
        let stats: Stats = client.call(&mut world, &Request::GetStats).decode();
        assert_eq!((stats.messages_count, stats.clients_count), (12, 3));
        assert_eq!((stats.streams_count, stats.topics_count, stats.partitions_count), (1, 1, 6));
        let request = Request::GetStream(GetStream { stream: stream() });
        let details: StreamDetails = client.call(&mut world, &request).decode();
        assert_eq!(details.stream.messages, 12);
        let records = client.call(&mut world, &Request::GetClients).payload();
        let listed = records_of(&records);
        assert_eq!(listed.len(), 3, "the clients of all nodes");
        numbers.insert(listed);
        let me = client.read(&mut world, CommandCode::GetMe.code(), &[]).payload();
        assert!(!me.is_empty());
    }
    assert_eq!(numbers.len(), 1, "every node lists the same connections");
    world.assert_at_rest();
}

fn records_of(mut bytes: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let record = ClientRecord::decode(bytes).expect("client records to the end");
        bytes = &bytes[record.encode().len()..];
        numbers.push(record.client.0);
    }
    numbers
}

#[test]
fn a_node_that_cannot_be_reached_is_left_out_of_the_list_of_clients() {
    let mut world = World::new(1);
    let (leader, other) = (world.led_by(0), world.not_led_by(0));
    let third = 3 - leader - other;
    let mut client = root(&mut world, leader, 10);
    let _ = root(&mut world, other, 11);
    let _ = root(&mut world, third, 12);
    world.kill(third);
    let records = client.call(&mut world, &Request::GetClients).payload();
    assert_eq!(records_of(&records).len(), 2);
    // The link hangs: the answer comes without that node's clients, after a moment.
    world.silent.insert((other, leader));
    let records = client.call(&mut world, &Request::GetClients).payload();
    assert_eq!(records_of(&records).len(), 1);
}

#[test]
fn nodes_with_several_shards_forward_as_well() {
    let mut world = World::new(2);
    for place in 0..2 * u16::from(NODES) {
        let mut client = Client::root(&mut world, place, 50 + u128::from(place));
        prepare(&mut client, &mut world, PARTITIONS);
        for number in 0..PARTITIONS {
            assert_eq!(client.send(&mut world, number, &[b"m"]), 0, "{place}, {number}");
            assert_eq!(
                client.poll(&mut world, number, PollingStrategy::First, 10).messages.len(),
                1
            );
        }
        let stats: Stats = client.call(&mut world, &Request::GetStats).decode();
        assert_eq!(stats.messages_count, u64::from(PARTITIONS));
        let delete = Request::DeleteStream(DeleteStream { stream: stream() });
        call(&mut client, &mut world, &delete).payload();
    }
    world.assert_at_rest();
}
