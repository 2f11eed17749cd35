//! Three nodes; one fails, leads or not, and comes back.

use crate::support::{create_stream, create_topic};
use crate::world::World;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, Refusal};
use borzoi_types::{Durability, Duration, LogId, Offset, ReplicaId};

const TOPICS: [&str; 2] = ["durable", "fast"];

fn cluster(shards: &[u16]) -> World {
    let mut world = World::new(shards);
    world.settle();
    world.command(create_stream());
    world.command(create_topic("durable", 3, Durability::Persisted));
    world.command(create_topic("fast", 2, Durability::Replicated));
    world
}

/// Sends to every partition; the number of messages each has now is `before + count`.
fn send_everywhere(world: &mut World, before: u64, count: usize) {
    for topic in TOPICS {
        for partition in 0..2 {
            let at = world.place(topic, partition);
            assert_eq!(world.send(at, count, 50), Offset(before), "{topic} {partition}");
        }
    }
}

#[test]
fn what_is_sent_to_leaders_is_read_back_and_the_same_everywhere() {
    for shards in [[1, 1, 1], [2, 2, 2], [1, 2, 3]] {
        let mut world = cluster(&shards);
        let leaders: Vec<_> = (0..6).map(|log| world.leader(LogId(log)).unwrap()).collect();
        for replica in world.replicas() {
            assert!(leaders.contains(&replica), "every node leads its share: {leaders:?}");
        }
        send_everywhere(&mut world, 0, 10);
        let at = world.place("durable", 0);
        assert_eq!(world.poll_all(at).0, 10);
        let (consumer, offset) = (ConsumerKey::Consumer(4), Offset(3));
        let (wait, generation, persisted) = (true, 0, false);
        let store = LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted };
        let stored = world.ask(at, store);
        assert!(matches!(stored, LaneReply::Stored), "{stored:?}");
        world.check_replicas_agree();
    }
}

#[test]
fn a_cluster_goes_on_without_any_one_node_and_the_node_comes_back() {
    for shards in [[1, 1, 1], [2, 1, 2]] {
        for victim in 0..3 {
            let mut world = cluster(&shards);
            send_everywhere(&mut world, 0, 5);
            let at = world.place("fast", 1);
            let (_, bytes) = world.poll_all(at);
            world.kill(ReplicaId(victim));
            world.settle();
            send_everywhere(&mut world, 5, 5);
            let (count, after) = world.poll_all(at);
            assert_eq!(count, 10);
            assert_eq!(after[..bytes.len()], bytes[..], "what was served is served again");
            world.start(ReplicaId(victim));
            world.check_replicas_agree();
            send_everywhere(&mut world, 10, 5);
            world.check_replicas_agree();
        }
    }
}

#[test]
fn who_waits_at_a_leader_that_loses_its_lead_is_told_once_that_the_fate_is_unknown() {
    let mut world = cluster(&[1, 1, 1]);
    let at = world.place("durable", 0);
    let leader = world.leader(at.lane).unwrap();
    for other in world.replicas() {
        world.cut.insert((leader, other));
        world.cut.insert((other, leader));
    }
    let ticket = world.submit_send(at, 1, 10);
    let answered = world.until(Duration::from_secs(3), |w| w.replies.contains_key(&ticket));
    assert!(answered, "nobody waits for ever");
    let reply = world.replies.remove(&ticket).unwrap();
    assert!(matches!(reply, LaneReply::Refused(Refusal::Unknown)), "{reply:?}");
    world.cut.clear();
    world.settle();
    world.check_replicas_agree();
}

#[test]
fn the_whole_cluster_restarts_from_its_disks() {
    let mut world = cluster(&[2, 2, 2]);
    send_everywhere(&mut world, 0, 5);
    for _ in 0..2 {
        for replica in world.replicas() {
            world.kill(replica);
        }
        for replica in world.replicas() {
            world.start(replica);
        }
        world.settle();
        world.check_replicas_agree();
    }
    send_everywhere(&mut world, 5, 5);
    world.check_replicas_agree();
}
