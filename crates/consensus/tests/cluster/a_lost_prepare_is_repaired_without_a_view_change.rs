//! Gaps C1 and C2: what a backup missed reaches it in normal status; what arrived out of order was
//! buffered, not dropped; and a backup far behind takes a checkpoint.

use crate::harness::{Config, World};

#[test]
fn a_lost_prepare_is_repaired_without_a_view_change() {
    for seed in 0..20 {
        let mut config = Config::calm(3);
        config.loss_percent = 25;
        config.duplicate_percent = 25;
        config.delay_us = (100, 20_000);
        let mut world = World::new(seed, config);
        assert!(world.run_ms_until(10_000, |world| world.serving().is_some()));
        for _ in 0..300 {
            world.propose();
            world.run_ms(5);
        }
        world.config.loss_percent = 0;
        world.run_ms(2_000);
        let mut buffered = 0;
        for index in 0..3 {
            let replica = world.replica(index);
            assert_eq!(replica.commit(), replica.head(), "seed {seed}: {}", world.describe());
            assert!(replica.view().get() <= 3, "seed {seed}: {}", world.describe());
            buffered += replica.counters().buffered;
        }
        assert!(buffered > 0, "seed {seed}: out of order prepares are buffered");
    }
}

#[test]
fn a_backup_that_missed_a_released_log_takes_a_checkpoint() {
    for seed in 0..10 {
        let mut config = Config::calm(3);
        config.checkpoint_every = 20;
        let mut world = World::new(seed, config);
        assert!(world.run_ms_until(3_000, |world| world.serving().is_some()));
        let primary = world.serving().expect("serves");
        let down = (primary + 2) % 3;
        world.crash(down, false);
        for _ in 0..300 {
            world.propose();
            world.run_ms(3);
        }
        world.start(down);
        world.run_ms(3_000);
        let replica = world.replica(down);
        assert!(replica.counters().state_transfers >= 1, "{}", world.describe());
        assert_eq!(replica.commit(), replica.head(), "seed {seed}: {}", world.describe());
        assert!(replica.commit().get() >= 300);
    }
}
