//! An idle log costs no frames: heartbeats belong to the link and carry nothing of a log whose
//! peers have echoed everything; and an idle replica wants few ticks.

use crate::harness::{Config, World};
use borzoi_consensus::Event;
use borzoi_types::{Mono, ReplicaId};

#[test]
fn an_idle_log_has_nothing_to_say() {
    let mut world = World::new(4, Config::calm(3));
    world.run_ms(2_000);
    for _ in 0..20 {
        world.propose();
        world.run_ms(10);
    }
    world.run_ms(1_000);
    for index in 0..3 {
        for peer in (0..3).map(ReplicaId) {
            let carried = world.replica(index).heartbeat_for(peer);
            assert_eq!(carried, None, "{index} to {peer}: {}", world.describe());
        }
    }
}

#[test]
fn an_idle_replica_wants_few_ticks() {
    let mut world = World::new(4, Config::calm(3));
    world.run_ms(3_000);
    for index in 0..3 {
        let mut now = world.now;
        let until = now + 10_000 * crate::harness::world::MS;
        let mut ticks = 0;
        while let Some(deadline) = world.replica(index).deadline() {
            now = deadline.0.max(now);
            if now >= until {
                break;
            }
            ticks += 1;
            let replica = world.nodes[index].replica.as_mut().expect("up");
            let mut effects = Vec::new();
            for peer in (0..3u8).filter(|peer| usize::from(*peer) != index).map(ReplicaId) {
                let heard = Event::PeerHeard { peer, at: Mono(now) };
                replica.handle(Mono(now), heard, &mut effects);
            }
            replica.handle(Mono(now), Event::Tick, &mut effects);
            assert!(effects.is_empty(), "an idle tick has no effect: {effects:?}");
        }
        assert!(ticks <= 30, "{index}: {ticks} ticks in ten seconds");
    }
}
