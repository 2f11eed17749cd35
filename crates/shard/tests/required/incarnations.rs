//! B6, B9, B11: topics that are deleted and created again under the feet of their producers.

use crate::client::{Answer, Client, confirmation, number};
use crate::support::model::Model;
use crate::support::{
    Node, create_stream, create_topic, delete_topic, new_disk, options, poll_request, start_time,
    store_request,
};
use crate::world::World;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart};
use borzoi_shard::{Random, SeededRandom};
use borzoi_types::{Durability, Offset, PartitionId, PartitionKey};
use borzoi_wire::body::DeleteTopic;
use borzoi_wire::{ErrorCode, Partitioning, PollingStrategy, Request};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn b6_a_request_for_another_incarnation_is_never_served_and_is_counted() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("topic", 1, Durability::Replicated));
    node.settle();
    let mut model = Model::default();
    let mut old = Vec::new();
    for round in 0..3 {
        let at = node.place("topic", 0).unwrap();
        model.send(&mut node, at, Durability::Replicated, 2, 10);
        node.settle();
        assert_eq!(model.note_replies(&mut node), 0);
        old.push(at);
        node.command(delete_topic("topic"));
        node.command(create_topic("topic", 1, Durability::Replicated));
        node.settle();
        let fresh = node.place("topic", 0).unwrap();
        assert!(fresh.key > at.key && !old.contains(&fresh), "keys are never used again");
        let consumer = ConsumerKey::Consumer(1);
        for at in &old {
            let kinds = [
                LaneRequestKind::Send {
                    batch: crate::support::model::batch(&[900 + round], 10),
                    count: 1,
                    identity: None,
                },
                poll_request(PollStart::First, 10, consumer, true),
                store_request(consumer, Offset(0)),
                LaneRequestKind::DeleteOffset { consumer, generation: 0 },
                LaneRequestKind::GetOffset { consumer },
            ];
            for kind in kinds {
                let before = stale(&node);
                let ticket = node.request(*at, kind);
                node.settle();
                let answer = node.answer(ticket);
                assert!(matches!(answer, LaneReply::KeyDeleted { .. }), "{answer:?}");
                assert_eq!(stale(&node), before + 1);
            }
        }
        assert!(Model::read_all(&mut node, fresh).is_empty(), "nothing of the others");
    }
}

fn stale(node: &Node) -> u64 {
    node.shards[0].back().lanes().map(|lane| lane.counters().stale).sum()
}

/// What became of one send.
struct Sent {
    payload: Vec<u8>,
    /// Incarnations known to be created when it was sent, and when it was answered.
    after: usize,
    before: usize,
    base: Option<u64>,
}

struct Producer {
    client: Client,
    /// Payloads under way, oldest first.
    under_way: Vec<(Vec<u8>, usize)>,
    sent: Vec<Sent>,
    next: u64,
}

impl Producer {
    fn send(&mut self, world: &mut World, incarnation: usize) {
        let payload = format!("{}:{}", self.client.id.0, self.next).into_bytes();
        self.next += 1;
        let to = Partitioning::Partition(PartitionId(0));
        let frame = self.client.send_frame(to, &[&payload]);
        world.deliver(self.client.connection, &frame);
        self.under_way.push((payload, incarnation));
    }

    fn take(&mut self, world: &mut World, incarnation: usize) {
        while !world.seen[&self.client.connection].frames.is_empty() {
            let (payload, after) = self.under_way.remove(0);
            let base = match self.client.take(world) {
                answer @ Answer::Done { .. } => Some(confirmation(&answer).base_offset.0),
                Answer::Denied(ErrorCode::ResourceNotFound | ErrorCode::TransientNotAccepted) => {
                    None
                }
                other => panic!("a send was answered {other:?}"),
            };
            self.sent.push(Sent { payload, after, before: incarnation, base });
        }
    }
}

fn delete_frame(client: &mut Client) -> Vec<u8> {
    client.request_frame(&Request::DeleteTopic(DeleteTopic { stream: number(0), topic: number(0) }))
}

fn create_frame(client: &mut Client) -> Vec<u8> {
    client.request_frame(&Request::CreateTopic(borzoi_wire::body::CreateTopic {
        stream: number(0),
        partitions_count: 1,
        name: crate::client::name("topic"),
        options: borzoi_wire::options::TrailingOptions::default(),
    }))
}

/// Delivers `frame` and lets the producers work until it is answered.
fn meanwhile(
    world: &mut World,
    owner: &mut Client,
    frame: &[u8],
    producers: &mut [Producer],
    incarnation: usize,
    random: &mut SeededRandom,
) {
    world.deliver(owner.connection, frame);
    while world.seen[&owner.connection].frames.is_empty() {
        for producer in producers.iter_mut() {
            if random.next_u64().is_multiple_of(3) && producer.under_way.len() < 8 {
                producer.send(world, incarnation);
            }
        }
        for _ in 0..random.next_u64() % 4 {
            world.step();
        }
        for producer in producers.iter_mut() {
            producer.take(world, incarnation);
        }
    }
    owner.take(world).payload();
}

#[test]
fn b9_every_message_confirmed_while_a_topic_is_recreated_is_in_the_incarnation_that_confirmed_it() {
    for (shards, seed) in [(1, 1), (2, 2), (2, 3), (3, 4)] {
        let mut random = SeededRandom::new(seed);
        let mut world = World::new(shards);
        let mut owner = Client::root(&mut world, 0, 5);
        owner.create_stream(&mut world, "stream").payload();
        let mut producers: Vec<Producer> = (0..3)
            .map(|n| {
                let client = Client::root(&mut world, n, 100 + u128::from(n));
                Producer { client, under_way: Vec::new(), sent: Vec::new(), next: 0 }
            })
            .collect();
        // Incarnation n is what the n-th create made; contents as they were when it was quiet.
        let mut contents: Vec<BTreeMap<u64, Vec<u8>>> = vec![BTreeMap::new()];
        for incarnation in 1..=12 {
            let create = create_frame(&mut owner);
            meanwhile(&mut world, &mut owner, &create, &mut producers, incarnation, &mut random);
            for _ in 0..20 {
                for producer in &mut producers {
                    producer.send(&mut world, incarnation);
                }
                world.step();
            }
            world.run();
            for producer in &mut producers {
                producer.take(&mut world, incarnation);
                assert!(producer.under_way.is_empty(), "every send was answered");
            }
            let read = owner.poll(&mut world, 0, PollingStrategy::First, 10_000);
            contents.push(read.messages.into_iter().collect());
            let delete = delete_frame(&mut owner);
            meanwhile(&mut world, &mut owner, &delete, &mut producers, incarnation, &mut random);
        }
        world.run();
        for producer in &mut producers {
            producer.take(&mut world, 13);
        }
        check(&producers, &contents);
        world.assert_at_rest();
    }
}

fn check(producers: &[Producer], contents: &[BTreeMap<u64, Vec<u8>>]) {
    let mut seen = BTreeSet::new();
    for content in contents {
        for payload in content.values() {
            assert!(seen.insert(payload.clone()), "a message is in two incarnations");
        }
    }
    let (mut confirmed, mut exact) = (0, 0);
    for sent in producers.iter().flat_map(|producer| &producer.sent) {
        let Some(base) = sent.base else { continue };
        confirmed += 1;
        let places: Vec<usize> = (1..contents.len())
            .filter(|n| contents[*n].values().any(|payload| *payload == sent.payload))
            .collect();
        match places.as_slice() {
            [place] => {
                exact += 1;
                assert!((sent.after..=sent.before).contains(place), "{place} took it");
                assert_eq!(contents[*place].get(&base), Some(&sent.payload), "at its offset");
            }
            // Confirmed by an incarnation that was deleted before anybody could read it again.
            [] => assert!(
                contents.get(sent.after).is_none_or(|held| !held.contains_key(&base)),
                "{base} was confirmed to somebody else"
            ),
            more => panic!("it is in {more:?}"),
        }
    }
    assert!(confirmed > 100 && exact > 100, "{confirmed} confirmed, {exact} of them read back");
}

#[test]
fn b11_a_key_is_found_whatever_keys_are_in_use_and_deleted_ones_cost_nothing() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 3);
    node.settle();
    node.command(create_stream());
    // Long-lived topics between many that come and go: keys in use lie far apart.
    for round in 0..20 {
        node.command(create_topic(&format!("kept-{round}"), 3, Durability::Persisted));
        for _ in 0..3 {
            node.command(create_topic("brief", 50, Durability::Replicated));
            node.command(delete_topic("brief"));
            node.settle();
        }
    }
    node.settle();
    let metadata = node.shards[0].front().metadata();
    let mut keys = BTreeSet::new();
    for round in 0..20 {
        for partition in 0..3 {
            let at = node.place(&format!("kept-{round}"), partition).unwrap();
            let record = metadata.partition(at.key).expect("found by its key");
            assert_eq!((record.key, record.lane), (at.key, at.lane));
            assert_eq!(record.place.partition, PartitionId(partition));
            keys.insert(at.key);
        }
    }
    let highest = keys.last().unwrap().0;
    assert!(highest > 2_800, "keys are never used again: {highest}");
    let found = (0..=highest + 100).filter(|key| metadata.partition(PartitionKey(*key)).is_some());
    assert_eq!(found.map(PartitionKey).collect::<BTreeSet<_>>(), keys, "and nothing else is");
}
