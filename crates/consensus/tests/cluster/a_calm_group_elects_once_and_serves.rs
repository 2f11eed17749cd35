//! Without faults every group size elects a primary at once, commits, and never elects again.

use crate::harness::{Config, World};

#[test]
fn a_calm_group_of_every_size_elects_once_and_serves() {
    for n in 1..=7 {
        let mut world = World::new(u64::from(n), Config::calm(n));
        let served = world.run_ms_until(2_000, |world| world.serving().is_some());
        assert!(served, "n = {n}: {}", world.describe());
        for _ in 0..500 {
            world.propose();
            world.run_ms(2);
        }
        world.run_ms(500);
        assert_eq!(world.checks.confirmed_count(), 500, "n = {n}: {}", world.describe());
        for index in 0..usize::from(n) {
            let replica = world.replica(index);
            assert_eq!(replica.commit(), replica.head(), "n = {n}: {}", world.describe());
            assert_eq!(replica.view().get(), 1, "n = {n}: {}", world.describe());
        }
    }
}

#[test]
fn an_hour_without_faults_sees_no_election() {
    let mut world = World::new(99, Config::calm(3));
    world.run_ms(2_000);
    for _ in 0..3_600 {
        world.propose();
        world.run_ms(1_000);
    }
    for index in 0..3 {
        assert_eq!(world.replica(index).view().get(), 1, "{}", world.describe());
    }
    assert!(world.checks.confirmed_count() >= 3_599);
}
