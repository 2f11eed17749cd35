//! A replica that may have lost acknowledged records votes with what it holds, never nacks, and
//! counts toward a view change only after it has copied the log of a normal primary.

use crate::harness::{Config, World};

fn replicated(n: u8) -> Config {
    let mut config = Config::calm(n);
    config.written_counts = true;
    config.flush_us = (50_000, 200_000);
    config
}

#[test]
fn one_power_cut_of_three_loses_nothing_and_is_learned_again() {
    for seed in 0..20 {
        let mut world = World::new(seed, replicated(3));
        assert!(world.run_ms_until(5_000, |world| world.serving().is_some()));
        for _ in 0..100 {
            world.propose();
            world.run_ms(3);
        }
        let victim = world.random.below(3) as usize;
        world.crash(victim, true);
        world.run_ms(200);
        world.start(victim);
        assert!(world.replica(victim).must_learn(), "its tail is not trusted");
        let learned = world.run_ms_until(10_000, |world| {
            !world.replica(victim).must_learn() && world.serving().is_some()
        });
        assert!(learned, "seed {seed}: {}", world.describe());
        world.converge(10_000);
    }
}

#[test]
fn while_one_is_untrusted_the_other_two_are_both_needed() {
    let mut world = World::new(7, replicated(3));
    assert!(world.run_ms_until(5_000, |world| world.serving().is_some()));
    for _ in 0..50 {
        world.propose();
        world.run_ms(3);
    }
    let primary = world.serving().expect("serves");
    let (victim, other) = ((primary + 1) % 3, (primary + 2) % 3);
    world.crash(victim, true);
    world.crash(primary, false);
    world.start(victim);
    world.run_ms(10_000);
    assert_eq!(world.serving(), None, "one trusted replica is no quorum: {}", world.describe());
    assert!(world.is_up(other));
    world.start(primary);
    let served = world.run_ms_until(10_000, |world| world.serving().is_some());
    assert!(served, "{}", world.describe());
    world.converge(10_000);
}

#[test]
fn a_power_cut_of_all_starts_with_a_loss_epoch() {
    for seed in 0..20 {
        let mut world = World::new(seed, replicated(3));
        assert!(world.run_ms_until(5_000, |world| world.serving().is_some()));
        for _ in 0..100 {
            world.propose();
            world.run_ms(3);
        }
        for index in 0..3 {
            world.crash(index, true);
        }
        world.checks.losses_allowed = true;
        world.start(0);
        world.start(1);
        world.run_ms(5_000);
        assert_eq!(world.serving(), None, "the third has not answered: {}", world.describe());
        world.start(2);
        let served = world.run_ms_until(10_000, |world| world.serving().is_some());
        assert!(served, "seed {seed}: {}", world.describe());
        let epochs: u64 = (0..3).map(|index| world.replica(index).counters().loss_epochs).sum();
        assert!(epochs >= 1, "{}", world.describe());
        world.converge(10_000);
    }
}

#[test]
fn an_empty_disk_joins_without_a_vote_and_learns() {
    for seed in 0..20 {
        let mut world = World::new(seed, Config::calm(3));
        assert!(world.run_ms_until(5_000, |world| world.serving().is_some()));
        for _ in 0..120 {
            world.propose();
            world.run_ms(3);
        }
        let victim = world.random.below(3) as usize;
        world.crash(victim, true);
        world.replace_disk(victim);
        world.start(victim);
        assert!(world.replica(victim).must_learn());
        world.converge(20_000);
        assert!(!world.replica(victim).must_learn());
    }
}
