//! Every node loses power at once, and with it whatever was not flushed.

use crate::support::{create_stream, create_topic};
use crate::world::World;
use borzoi_shard::lane::api::LaneReply;
use borzoi_storage::sim_disk::Fate;
use borzoi_types::{Durability, Duration, Offset, ReplicaId};

fn power_cut(world: &mut World, life: u8) {
    for replica in world.replicas() {
        world.kill(replica);
        let boot_id = [100 + life * 10 + replica.0; 16];
        let disk = world.node(replica).disk.power_cut_and_boot(boot_id, |_| Fate::Lost);
        world.node_mut(replica).disk = disk;
    }
}

#[test]
fn offsets_are_handed_out_once_at_either_level() {
    for shards in [[1, 1, 1], [2, 2, 2]] {
        let mut world = World::new(&shards);
        world.settle();
        world.command(create_stream());
        world.command(create_topic("durable", 2, Durability::Persisted));
        world.command(create_topic("fast", 2, Durability::Replicated));
        let (durable, fast) = (world.place("durable", 0), world.place("fast", 0));
        let mut told = (0, 0);
        for life in 0..4 {
            for _ in 0..3 {
                assert_eq!(world.send(durable, 4, 20), Offset(told.0));
                let offset = world.send(fast, 4, 20).0;
                assert!(offset >= told.1, "{offset} was handed out before (below {})", told.1);
                told = (told.0 + 4, offset + 4);
            }
            let submitted = world.submit_send(fast, 1, 10);
            world.pass(Duration::from_micros(500));
            if let Some(LaneReply::Sent { base_offset, .. }) = world.replies.remove(&submitted) {
                told.1 = base_offset.0 + 1;
            }
            power_cut(&mut world, life);
            for replica in world.replicas() {
                world.start(replica);
                world.pass(Duration::from_millis(100));
            }
            world.settle();
            let (count, _) = world.poll_all(durable);
            assert_eq!(u64::from(count), told.0, "what was durable is there");
            world.check_replicas_agree();
        }
    }
}

#[test]
fn two_of_three_are_not_enough_to_declare_a_loss() {
    let mut world = World::new(&[1, 1, 1]);
    world.settle();
    world.command(create_stream());
    power_cut(&mut world, 0);
    world.start(ReplicaId(0));
    world.start(ReplicaId(1));
    world.pass(Duration::from_secs(5));
    assert!((0..6).all(|log| world.leader(borzoi_types::LogId(log)).is_none()));
    world.start(ReplicaId(2));
    world.settle();
}
