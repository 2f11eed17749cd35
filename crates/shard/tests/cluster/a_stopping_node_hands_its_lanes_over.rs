//! A node that stops cleanly, or comes back: leads move without anyone waiting for a time-out.

use crate::support::{create_stream, create_topic};
use crate::world::World;
use borzoi_types::{Durability, Duration, LogId, Offset, ReplicaId};

#[test]
fn a_clean_stop_is_followed_by_other_leaders_at_once() {
    for shards in [[1, 1, 1], [2, 2, 2]] {
        for victim in 0..3 {
            let mut world = World::new(&shards);
            world.settle();
            world.command(create_stream());
            world.command(create_topic("durable", 3, Durability::Persisted));
            world.command(create_topic("fast", 2, Durability::Replicated));
            let at = world.place("fast", 0);
            assert_eq!(world.send(at, 5, 10), Offset(0));
            world.stop(ReplicaId(victim));
            let before = world.now.mono;
            world.settle();
            let took = world.now.mono.since(before);
            assert!(took < Duration::from_millis(200), "nobody waited for a time-out: {took:?}");
            assert_eq!(world.send(at, 5, 10), Offset(5));
            world.start(ReplicaId(victim));
            world.check_replicas_agree();
        }
    }
}

#[test]
fn a_stop_without_a_quorum_ends() {
    let mut world = World::new(&[2, 2, 2]);
    world.settle();
    world.command(create_stream());
    world.command(create_topic("durable", 3, Durability::Persisted));
    let at = world.place("durable", 0);
    let leader = world.leader(at.lane).unwrap();
    for other in world.replicas().into_iter().filter(|other| *other != leader) {
        world.kill(other);
    }
    world.submit_send(at, 1, 10);
    world.pass(Duration::from_millis(10));
    world.stop(leader);
}

#[test]
fn a_node_that_is_back_leads_its_share_again() {
    let mut world = World::new(&[2, 2, 2]);
    world.settle();
    let preferred: Vec<_> = (0..6u8).map(|log| Some(ReplicaId(log % 3))).collect();
    world.command(create_stream());
    world.command(create_topic("durable", 3, Durability::Persisted));
    let at = world.place("durable", 0);
    for victim in 0..3 {
        world.kill(ReplicaId(victim));
        world.settle();
        world.start(ReplicaId(victim));
        let restored = |world: &World| {
            (0..6).map(|log| world.leader(LogId(log))).eq(preferred.iter().copied())
        };
        let mut sent = world.send(at, 1, 10).0;
        for _ in 0..100 {
            // The world goes on meanwhile.
            if restored(&world) {
                break;
            }
            world.pass(Duration::from_secs(1));
            world.settle();
            let offset = world.send(at, 1, 10).0;
            assert_eq!(offset, sent + 1);
            sent = offset;
        }
        let leaders: Vec<_> = (0..6).map(|log| world.leader(LogId(log))).collect();
        assert_eq!(leaders, preferred, "every log is led by its preferred node");
        // And stays there.
        let views = world.views();
        world.pass(Duration::from_secs(30));
        assert_eq!(world.views(), views, "no election without cause");
    }
    world.check_replicas_agree();
}

#[test]
fn ten_thousand_idle_partitions_and_every_idle_lane_cost_nothing() {
    let mut world = World::with(&[1, 1, 1], |options| {
        options.lanes = borzoi_shard::Lanes { persisted: 60, replicated: 4 };
        options.journal.file_bytes = 4 * 1024 * 1024;
    });
    world.settle();
    world.command(create_stream());
    for topic in 0..10 {
        world.command(create_topic(&format!("t{topic}"), 1_000, Durability::Persisted));
    }
    // Until every lane is led by its preferred node.
    world.pass(Duration::from_secs(200));
    let partitions: usize = world.node(ReplicaId(0)).shards[0]
        .back()
        .lanes()
        .map(|lane| lane.state().partitions().len())
        .sum();
    assert_eq!(partitions, 10_000);
    let before = world.work_counted();
    world.pass(Duration::from_secs(10));
    let after = world.work_counted();
    // Per node and second: ten heartbeats to each peer, which name no log; the timers of each log
    // as primary (every 400 ms) or backup (every 500 to 800 ms); nothing per partition.
    let heartbeat_logs = after.heartbeat_logs - before.heartbeat_logs;
    assert_eq!(heartbeat_logs, 0, "logs at rest have nothing to say");
    let ticked = after.ticked - before.ticked;
    assert!(ticked <= 3 * 65 * 26, "{ticked} ticks in ten seconds");
    let frames = after.frames - before.frames;
    assert!(frames <= 6 * 10 * 11, "{frames} frames in ten seconds");
}
