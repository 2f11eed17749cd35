//! What several tests need: clients that repeat what was not accepted, as published clients do, and
//! where a partition lives.

use crate::client::{Answer, Client, name, number};
use crate::world::World;
use borzoi_types::{Duration, LogId, PartitionId, StreamId, TopicId};
use borzoi_wire::body::{CreateConsumerGroup, CreateTopic, CreateUser, UserStatus};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{Partitioning, Request, Secret};

/// How long a client repeats a request before the test fails.
const REPEATS: usize = 400;

fn is_transient(answer: &Answer) -> bool {
    match answer {
        Answer::Denied(code) | Answer::Rejected(code) => code.is_transient(),
        Answer::Done { .. } | Answer::Evicted(_) => false,
    }
}

/// Sends a frame, and again every 50 ms while it is answered "not now"; how often it was sent.
pub fn until_accepted(client: &mut Client, world: &mut World, frame: &[u8]) -> (Answer, usize) {
    for sent in 1..=REPEATS {
        let answer = client.exchange_raw(world, frame);
        if !is_transient(&answer) {
            return (answer, sent);
        }
        world.advance(Duration::from_millis(50));
    }
    panic!("not accepted after {REPEATS} attempts");
}

/// A request until it is accepted.
pub fn call(client: &mut Client, world: &mut World, request: &Request<'_>) -> Answer {
    let frame = client.request_frame(request);
    until_accepted(client, world, &frame).0
}

/// A frame that sends payloads to a partition of stream 0, topic 0.
pub fn send_frame(client: &mut Client, partition: u32, payloads: &[&[u8]]) -> Vec<u8> {
    client.send_frame(Partitioning::Partition(PartitionId(partition)), payloads)
}

/// A client of a node that signs in until it succeeds.
pub fn root(world: &mut World, node: u8, id: u128) -> Client {
    let mut client = Client::connect(world, u16::from(node), id);
    for _ in 0..REPEATS {
        let answer = client.try_login(world, "iggy", "iggy");
        if !is_transient(&answer) {
            let identity: borzoi_wire::body::Identity = answer.decode();
            client.session = identity.session;
            return client;
        }
        world.advance(Duration::from_millis(50));
    }
    panic!("no login");
}

/// Stream 0 and topic 0 with this many partitions.
pub fn prepare(client: &mut Client, world: &mut World, partitions: u32) {
    let options = TrailingOptions::default;
    let stream = borzoi_wire::body::CreateStream { name: name("stream"), options: options() };
    call(client, world, &Request::CreateStream(stream)).payload();
    let topic = CreateTopic {
        stream: number(0),
        partitions_count: partitions,
        name: name("topic"),
        options: options(),
    };
    call(client, world, &Request::CreateTopic(topic)).payload();
}

/// A user with the password "password".
pub fn create_user(client: &mut Client, world: &mut World, user: &str) {
    let body = CreateUser {
        name: name(user),
        password: Secret::new("password").unwrap(),
        status: UserStatus::Active,
        permissions: None,
        options: TrailingOptions::default(),
    };
    call(client, world, &Request::CreateUser(body)).payload();
}

/// The group "group" of topic 0.
pub fn create_group(client: &mut Client, world: &mut World) {
    let body = CreateConsumerGroup { stream: number(0), topic: number(0), name: name("group") };
    call(client, world, &Request::CreateConsumerGroup(body)).payload();
}

/// The lane of a partition of stream 0, topic 0, as a node sees it.
pub fn lane_of(world: &World, node: u8, partition: u32) -> LogId {
    let metadata = world.shard(node, 0).front().metadata();
    let topic = metadata.topic(StreamId(0), TopicId(0)).expect("there is a topic");
    let partition = metadata.resolve_in(StreamId(0), topic, PartitionId(partition));
    partition.expect("there is a partition").lane
}

/// A partition of stream 0, topic 0, that this node leads.
pub fn partition_led_by(world: &World, node: u8, partitions: u32) -> u32 {
    let led = (0..partitions).find(|it| world.leader(lane_of(world, node, *it)) == Some(node));
    led.expect("every node leads a lane")
}
