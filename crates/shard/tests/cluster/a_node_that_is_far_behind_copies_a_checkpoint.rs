//! Peers have released what a node lacks: it takes over a checkpoint and goes on from there.

use crate::support::{create_stream, create_topic, delete_topic};
use crate::world::World;
use borzoi_types::{Durability, Duration, Offset, ReplicaId};

fn busy_cluster(shards: &[u16]) -> World {
    let mut world = World::with(shards, |options| {
        options.checkpoint_interval = Duration::from_millis(200);
    });
    world.settle();
    world.command(create_stream());
    world.command(create_topic("durable", 2, Durability::Persisted));
    world.command(create_topic("fast", 2, Durability::Replicated));
    world
}

/// Sends until every lane that is written to has released operations that nobody else keeps.
fn write_past_two_checkpoints(world: &mut World, rounds: u64, before: u64) {
    for round in 0..rounds {
        for topic in ["durable", "fast"] {
            for partition in 0..2 {
                let at = world.place(topic, partition);
                assert_eq!(world.send(at, 20, 1_000), Offset(before + round * 20));
            }
        }
        world.pass(Duration::from_millis(250));
    }
}

#[test]
fn a_node_that_was_away_for_long_copies_what_it_lacks_and_agrees() {
    for shards in [[1, 1, 1], [2, 2, 1]] {
        let mut world = busy_cluster(&shards);
        write_past_two_checkpoints(&mut world, 2, 0);
        let victim = ReplicaId(2);
        world.kill(victim);
        world.settle();
        write_past_two_checkpoints(&mut world, 6, 40);
        world.command(create_topic("late", 1, Durability::Persisted));
        world.command(delete_topic("late"));
        world.pass(Duration::from_secs(1));
        world.start(victim);
        world.check_replicas_agree();
        let copied = world.texts.iter().any(|text| text.contains("is installed"));
        assert!(copied, "there was something to copy: {:#?}", world.texts);
        // What it copied is what it serves once it leads.
        let at = world.place("fast", 0);
        let (count, bytes) = world.poll_all(at);
        assert_eq!(count, 160);
        world.kill(ReplicaId(0));
        world.settle();
        assert_eq!(world.poll_all(at), (count, bytes.clone()));
        world.start(ReplicaId(0));
        world.check_replicas_agree();
        world.kill(ReplicaId(1));
        world.settle();
        assert_eq!(world.poll_all(at), (count, bytes));
    }
}

#[test]
fn a_transfer_begins_again_when_its_peer_dies_and_when_the_node_itself_does() {
    let mut world = busy_cluster(&[1, 1, 1]);
    world.kill(ReplicaId(2));
    world.settle();
    write_past_two_checkpoints(&mut world, 8, 0);
    world.start(ReplicaId(2));
    let begun = |w: &World| w.texts.iter().any(|text| text.contains("copying the state"));
    assert!(world.until(Duration::from_secs(5), begun), "{:#?}", world.texts);
    world.kill(ReplicaId(2));
    world.start(ReplicaId(2));
    world.pass(Duration::from_millis(30));
    world.kill(ReplicaId(0));
    world.pass(Duration::from_millis(300));
    world.start(ReplicaId(0));
    world.settle();
    world.check_replicas_agree();
    write_past_two_checkpoints(&mut world, 1, 160);
}
