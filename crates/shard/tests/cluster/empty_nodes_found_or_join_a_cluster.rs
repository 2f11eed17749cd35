//! Directories without state: a cluster is founded once, by all; whoever is empty later joins.

use crate::support::{create_stream, create_topic};
use crate::world::World;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Durability, Duration, LogId, Offset, ReplicaId};

#[test]
fn empty_nodes_found_one_cluster_whatever_the_order_they_start_in() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut world = World::empty(&[2, 1, 2]);
        for replica in order {
            assert!(world.running().next().is_none(), "nobody runs before all have met");
            world.start(ReplicaId(replica));
            world.pass(Duration::from_millis(500));
        }
        world.settle();
        let clusters = world.clusters();
        assert_eq!(clusters.len(), 1, "one incarnation: {clusters:?}");
        world.command(create_stream());
        world.command(create_topic("durable", 2, Durability::Persisted));
        let at = world.place("durable", 0);
        assert_eq!(world.send(at, 3, 10), Offset(0));
        world.check_replicas_agree();
    }
}

#[test]
fn a_founding_that_is_interrupted_anywhere_ends_in_one_cluster() {
    // Each node in turn is killed after each few steps of its disk while the others wait.
    for victim in 0..3 {
        for step in [1, 3, 4, 6, 8, 11] {
            let mut world = World::empty(&[1, 1, 1]);
            for replica in world.replicas() {
                world.start(replica);
            }
            world.kill_after_disk_steps(ReplicaId(victim), step);
            world.pass(Duration::from_secs(1));
            world.revive(ReplicaId(victim));
            world.settle();
            assert_eq!(world.clusters().len(), 1);
            world.command(create_stream());
            world.check_replicas_agree();
        }
    }
}

#[test]
fn a_node_with_an_empty_disk_joins_learns_and_then_counts() {
    for shards in [[1, 1, 1], [2, 2, 1]] {
        let mut world = World::empty(&shards);
        for replica in world.replicas() {
            world.start(replica);
        }
        world.settle();
        world.command(create_stream());
        world.command(create_topic("durable", 2, Durability::Persisted));
        world.command(create_topic("fast", 2, Durability::Replicated));
        let at = world.place("fast", 0);
        assert_eq!(world.send(at, 30, 500), Offset(0));
        let (victim, disk) = (ReplicaId(1), world.fresh_disk(ReplicaId(1)));
        world.kill(victim);
        world.node_mut(victim).disk = disk;
        world.settle();
        assert_eq!(world.send(at, 30, 500), Offset(30));
        world.start(victim);
        assert!(world.until(Duration::from_secs(5), |w| w.node(victim).running), "it joins");
        world.check_replicas_agree();
        let learned = |world: &World| {
            let shards = &world.node(victim).shards;
            let mut lanes = shards.iter().flat_map(|shard| shard.back().lanes());
            lanes.all(|lane| !lane.host().replica().must_learn())
        };
        assert!(world.until(Duration::from_secs(5), learned), "it has learned");
        // It counts now: with another node gone there is still a quorum.
        world.kill(ReplicaId(0));
        world.settle();
        assert_eq!(world.send(at, 1, 10), Offset(60));
        world.start(ReplicaId(0));
        world.check_replicas_agree();
        // And it stays learned over a restart.
        world.kill(victim);
        world.start(victim);
        assert!(learned(&world), "what was learned is not forgotten");
    }
}

#[test]
fn an_empty_disk_does_not_vote() {
    let mut world = World::new(&[1, 1, 1]);
    world.settle();
    world.command(create_stream());
    // Two of three lose everything: nothing may be decided by them and the third alone.
    for victim in [ReplicaId(1), ReplicaId(2)] {
        let disk: SimDisk = world.fresh_disk(victim);
        world.kill(victim);
        let node = world.node_mut(victim);
        node.disk = disk;
        node.options.formed = None;
    }
    world.start(ReplicaId(1));
    world.start(ReplicaId(2));
    world.pass(Duration::from_secs(3));
    assert!(!world.node(ReplicaId(1)).running, "one report is not enough to join");
    assert_eq!(world.leader(LogId::METADATA), None, "nobody leads without a quorum");
}

#[test]
fn a_restored_copy_of_a_directory_is_refused() {
    let mut world = World::new(&[1, 1, 1]);
    world.settle();
    let victim = ReplicaId(2);
    world.kill(victim);
    let old = world.node(victim).disk.clone();
    world.start(victim);
    world.settle();
    world.command(create_stream());
    world.kill(victim);
    world.start(victim);
    world.pass(Duration::from_secs(1));
    world.kill(victim);
    world.node_mut(victim).disk = old;
    world.expect_fatal = true;
    world.start(victim);
    let refused = world.until(Duration::from_secs(3), |w| !w.node(victim).running);
    assert!(refused, "it is told that it is out of date");
    assert!(world.texts.iter().any(|text| text.contains("later state of this node")));
}
