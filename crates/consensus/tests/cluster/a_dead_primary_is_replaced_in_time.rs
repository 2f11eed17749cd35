//! Failover with the default timers: under a second at the median and three at the 99th percentile,
//! for a killed process, a paused one and a stuck disk.

use crate::harness::{Config, World};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Paused,
    StuckDisk,
    CleanStop,
}

/// Milliseconds from the fault to another serving primary.
fn failover_ms(seed: u64, n: u8, fault: Fault) -> u64 {
    let mut world = World::new(seed, Config::calm(n));
    assert!(world.run_ms_until(3_000, |world| world.serving().is_some()));
    let extra = world.random.below(500);
    for _ in 0..extra / 5 {
        world.propose();
        world.run_ms(5);
    }
    let primary = world.serving().expect("a calm group serves");
    match fault {
        Fault::Killed => world.crash(primary, false),
        Fault::Paused => world.nodes[primary].paused_until = u64::MAX,
        Fault::StuckDisk => world.nodes[primary].disk.stuck = true,
        Fault::CleanStop => {
            world.handle(primary, borzoi_consensus::Event::StepDown);
            world.crash(primary, false);
        }
    }
    let start = world.now;
    let mut waited = 0;
    loop {
        world.propose();
        world.run_ms(5);
        let others = (0..usize::from(n)).filter(|index| *index != primary && world.is_up(*index));
        let mut others = others;
        if others.any(|index| world.replica(index).is_serving_primary()) {
            break;
        }
        waited += 5;
        assert!(waited < 20_000, "seed {seed} {fault:?}: {}", world.describe());
    }
    (world.now - start) / crate::harness::world::MS
}

fn measure(fault: Fault) -> (u64, u64) {
    let mut times: Vec<u64> =
        (0..200).map(|seed| failover_ms(seed, if seed % 3 == 0 { 5 } else { 3 }, fault)).collect();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

#[test]
fn a_dead_primary_is_replaced_in_time() {
    for fault in [Fault::Killed, Fault::Paused, Fault::StuckDisk] {
        let (median, p99) = measure(fault);
        println!("{fault:?}: median {median} ms, p99 {p99} ms");
        assert!(median < 1_000, "{fault:?}: median {median} ms");
        assert!(p99 <= 3_000, "{fault:?}: p99 {p99} ms");
    }
}

#[test]
fn a_primary_that_stops_cleanly_is_replaced_at_once() {
    let (median, p99) = measure(Fault::CleanStop);
    println!("clean stop: median {median} ms, p99 {p99} ms");
    assert!(median < 100, "median {median} ms");
    assert!(p99 < 1_000, "p99 {p99} ms");
}
