//! Protocol-aware recovery. An operation is committed by two of three; one of the two is down, the
//! other's record is damaged, the third never saw it. The two that are up may not decide that it
//! never was: they wait for the holder, and it is still there.

use crate::harness::disk::Body;
use crate::harness::{Config, World};
use borzoi_consensus::DamageKind;
use borzoi_types::Op;

/// A world with the last confirmed operation on the primary and one backup only.
fn committed_by_two(seed: u64) -> (World, usize, usize, usize, Op) {
    let mut world = World::new(seed, Config::calm(3));
    assert!(world.run_ms_until(3_000, |world| world.serving().is_some()));
    for _ in 0..20 {
        world.propose();
        world.run_ms(5);
    }
    world.run_ms(300);
    let primary = world.serving().expect("serves");
    let (holder, third) = ((primary + 1) % 3, (primary + 2) % 3);
    world.isolate(third);
    world.propose();
    world.run_ms(50);
    let op = world.replica(primary).commit();
    assert_eq!(world.replica(holder).held(), op, "committed by two");
    (world, primary, holder, third, op)
}

fn damage(world: &mut World, node: usize, op: Op, kind: DamageKind) {
    for record in &mut world.nodes[node].disk.records {
        if matches!(&record.body, Body::Prepare(prepare) if prepare.header.op == op) {
            record.damage = Some(kind);
        }
    }
    world.damage_injected = true;
}

fn the_damaged_and_the_ignorant_wait(kind: DamageKind) {
    for seed in 0..20 {
        let (mut world, primary, holder, third, op) = committed_by_two(seed);
        world.crash(primary, false);
        world.crash(holder, false);
        damage(&mut world, holder, op, kind);
        world.heal();
        world.start(holder);
        world.run_ms(10_000);
        assert_eq!(world.serving(), None, "seed {seed}: {}", world.describe());
        assert!(world.is_up(third));
        world.start(primary);
        let served = world.run_ms_until(10_000, |world| world.serving().is_some());
        assert!(served, "seed {seed}: {}", world.describe());
        world.converge(10_000);
        assert_eq!(world.safe_stops, 0);
    }
}

#[test]
fn a_damaged_committed_operation_is_never_discarded() {
    the_damaged_and_the_ignorant_wait(DamageKind::Faulty);
}

#[test]
fn an_unknown_committed_operation_is_never_discarded() {
    the_damaged_and_the_ignorant_wait(DamageKind::Unknown);
}

#[test]
fn a_damaged_operation_that_nobody_else_holds_is_discarded_when_two_never_had_it() {
    for seed in 0..20 {
        let mut world = World::new(seed, Config::calm(3));
        assert!(world.run_ms_until(3_000, |world| world.serving().is_some()));
        world.run_ms(300);
        let primary = world.serving().expect("serves");
        world.isolate(primary);
        world.propose();
        world.run_ms(20);
        let op = world.replica(primary).held();
        world.crash(primary, false);
        damage(&mut world, primary, op, DamageKind::Faulty);
        world.heal();
        world.start(primary);
        let served = world.run_ms_until(10_000, |world| world.serving().is_some());
        assert!(served, "seed {seed}: {}", world.describe());
        world.converge(10_000);
        assert_eq!(world.safe_stops, 0);
    }
}
