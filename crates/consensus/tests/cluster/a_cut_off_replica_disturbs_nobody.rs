//! A replica that loses some or all of its links asks for views but enters none, and the group
//! does not notice: neither while it is cut off nor when it returns.

use crate::harness::{Config, World};

fn settled_world(seed: u64, n: u8) -> (World, usize) {
    let mut world = World::new(seed, Config::calm(n));
    assert!(world.run_ms_until(3_000, |world| world.serving().is_some()));
    world.run_ms(500);
    let primary = world.serving().expect("a calm group serves");
    (world, primary)
}

fn views(world: &World) -> Vec<u32> {
    (0..world.nodes.len()).map(|index| world.replica(index).view().get()).collect()
}

#[test]
fn an_isolated_backup_raises_no_view_and_returns_quietly() {
    for seed in 0..20 {
        let (mut world, primary) = settled_world(seed, 3);
        let before = views(&world);
        world.isolate((primary + 1) % 3);
        for _ in 0..200 {
            world.propose();
            world.run_ms(50);
        }
        world.heal();
        world.run_ms(2_000);
        assert_eq!(views(&world), before, "seed {seed}: {}", world.describe());
        assert_eq!(world.serving(), Some(primary));
        let lagging = world.replica((primary + 1) % 3);
        assert_eq!(lagging.commit(), lagging.head(), "it caught up: {}", world.describe());
        assert!(lagging.commit().get() >= 200);
    }
}

#[test]
fn a_backup_that_hears_all_but_the_primary_follows_through_its_peers() {
    for seed in 0..20 {
        let (mut world, primary) = settled_world(seed, 3);
        let before = views(&world);
        let deaf = (primary + 1) % 3;
        world.blocked[primary][deaf] = true;
        for _ in 0..100 {
            world.propose();
            world.run_ms(50);
        }
        assert_eq!(views(&world), before, "seed {seed}: {}", world.describe());
        assert!(world.replica(deaf).commit().get() > 50, "seed {seed}: {}", world.describe());
    }
}

#[test]
fn a_primary_that_hears_nobody_steps_down_and_another_serves() {
    for seed in 0..20 {
        let (mut world, primary) = settled_world(seed, 3);
        for other in (0..3).filter(|other| *other != primary) {
            world.blocked[other][primary] = true;
        }
        let replaced = world
            .run_ms_until(5_000, |world| world.serving().is_some_and(|serving| serving != primary));
        assert!(replaced, "seed {seed}: {}", world.describe());
        assert!(!world.replica(primary).is_serving_primary(), "{}", world.describe());
    }
}

#[test]
fn any_single_broken_link_leaves_a_serving_primary() {
    for seed in 0..30 {
        let (mut world, _) = settled_world(seed, 3);
        let from = world.random.below(3) as usize;
        let to = (from + 1 + world.random.below(2) as usize) % 3;
        if seed % 2 == 0 {
            world.block_both(from, to);
        } else {
            world.blocked[from][to] = true;
        }
        let before = world.checks.confirmed_count();
        for _ in 0..200 {
            world.propose();
            world.run_ms(50);
        }
        let confirmed = world.checks.confirmed_count() - before;
        assert!(confirmed > 150, "seed {seed} {from}->{to}: {confirmed} {}", world.describe());
        let view = (0..3).map(|index| world.replica(index).view().get()).max();
        assert!(view <= Some(4), "seed {seed}: no flapping: {}", world.describe());
    }
}
