//! Random faults of every kind, drawn per seed, with every check looking on; then everything heals
//! and the group must serve and agree.

use crate::harness::random::Random;
use crate::harness::{Config, World};
use borzoi_consensus::{DamageKind, Quorums};
use std::collections::{BTreeMap, BTreeSet};

/// Which faults a seed has, and how often.
struct Plan {
    crash: u64,
    power: u64,
    partition: u64,
    one_way: u64,
    pause: u64,
    stick: u64,
    damage: u64,
    step_down: u64,
    replace: u64,
    transfer: bool,
}

fn config(random: &mut Random) -> Config {
    let n = *random.pick(&[1u8, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7]);
    let mut config = Config::calm(n);
    if random.chance(60) {
        config.loss_percent = random.between(0, 20);
        config.duplicate_percent = random.between(0, 30);
        let high = *random.pick(&[500, 5_000, 50_000, 150_000]);
        config.delay_us = (100, high);
    }
    config.written_counts = random.chance(30);
    config.flush_us = *random.pick(&[(100, 1_000), (200, 10_000), (1_000, 200_000)]);
    config.checkpoint_every = *random.pick(&[10, 50, 1_000_000]);
    config
}

fn plan(random: &mut Random) -> Plan {
    let mut draw = |percent, max| if random.chance(percent) { random.between(1, max) } else { 0 };
    Plan {
        crash: draw(70, 6),
        power: draw(50, 100),
        partition: draw(60, 6),
        one_way: draw(50, 6),
        pause: draw(40, 4),
        stick: draw(40, 4),
        damage: draw(50, 60),
        step_down: draw(40, 3),
        replace: draw(30, 30),
        transfer: draw(50, 1) > 0,
    }
}

/// Damages prepares on a node that is down, at most one short of a replication quorum per op.
fn damage(
    world: &mut World,
    node: usize,
    percent: u64,
    atlas: &mut BTreeMap<u64, BTreeSet<usize>>,
) {
    let limit = usize::from(Quorums::of(world.config.n).replication) - 1;
    let mut random = world.random.clone();
    for record in &mut world.nodes[node].disk.records {
        if let crate::harness::disk::Body::Prepare(prepare) = &record.body {
            if !random.chance(percent) || !random.chance(20) {
                continue;
            }
            let damaged = atlas.entry(prepare.header.op.get()).or_default();
            if damaged.len() < limit || damaged.contains(&node) {
                damaged.insert(node);
                world.damage_injected = true;
                record.damage = Some(DamageKind::Faulty);
            }
        }
    }
    world.random = random;
}

fn act(world: &mut World, plan: &Plan, atlas: &mut BTreeMap<u64, BTreeSet<usize>>) {
    let n = world.nodes.len() as u64;
    let node = world.random.below(n) as usize;
    let other = world.random.below(n) as usize;
    let mut roll = |chance| world.random.chance(chance);
    let (crash, power) = (roll(plan.crash), roll(plan.power));
    let (partition, one_way) = (roll(plan.partition), roll(plan.one_way));
    let (pause, stick, step_down) = (roll(plan.pause), roll(plan.stick), roll(plan.step_down));
    let replace = roll(plan.replace);
    let (heal, restart) = (roll(8), roll(15));
    if crash && world.is_up(node) {
        let budget = usize::from(Quorums::of(world.config.n).replication) - 1;
        let spare = world.untrusted() < budget || world.replica(node).must_learn();
        world.crash(node, power && (spare || !world.config.written_counts));
        if replace && spare && world.nodes.len() > 2 && plan.damage == 0 {
            world.replace_disk(node);
        } else if plan.damage > 0 {
            damage(world, node, plan.damage, atlas);
        }
    } else if restart && !world.is_up(node) {
        world.start(node);
    }
    if partition {
        world.isolate(node);
    }
    if one_way && node != other {
        world.blocked[node][other] = true;
    }
    if pause {
        world.nodes[node].paused_until = world.now + world.random.between(1, 3_000) * 1_000_000;
    }
    if stick && world.is_up(node) {
        world.nodes[node].disk.stuck = true;
    }
    if step_down && world.is_up(node) && world.nodes[node].paused_until <= world.now {
        world.handle(node, borzoi_consensus::Event::StepDown);
    }
    if heal {
        world.heal();
        if world.nodes[other].disk.stuck {
            world.unstick(other);
        }
    }
}

/// What one seed did.
#[derive(Default)]
struct Sum {
    confirmed: usize,
    looked: u64,
    safe_stops: u64,
}

fn run(seed: u64) -> Sum {
    let mut random = Random::new(seed);
    let mut config = config(&mut random);
    let mut plan = plan(&mut random);
    if config.n == 1 {
        plan.damage = 0;
    }
    if plan.transfer {
        config.checkpoint_every = 10;
    }
    let mut atlas = BTreeMap::new();
    let mut world = World::new(seed, config);
    let steps = random.between(100, 400);
    for _ in 0..steps {
        let ms = world.random.between(1, 50);
        world.run_ms(ms);
        for _ in 0..world.random.below(6) {
            world.propose();
        }
        act(&mut world, &plan, &mut atlas);
    }
    world.converge(60_000);
    Sum {
        confirmed: world.checks.confirmed_count(),
        looked: world.checks.looked,
        safe_stops: world.safe_stops,
    }
}

#[test]
fn seeds_of_every_fault_keep_every_promise() {
    let (first, count) = match std::env::var("BORZOI_SEED") {
        Ok(seed) => (seed.parse().expect("a number"), 1),
        Err(_) => (1, std::env::var("BORZOI_SEEDS").map_or(300, |s| s.parse().expect("a number"))),
    };
    let mut sum = Sum::default();
    let mut failed = Vec::new();
    for seed in first..first + count {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(one) => {
                sum.confirmed += one.confirmed;
                sum.looked += one.looked;
                sum.safe_stops += one.safe_stops;
            }
            Err(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}; run one with BORZOI_SEED=<seed>");
    println!("{} confirmed, {} looks, {} safe stops", sum.confirmed, sum.looked, sum.safe_stops);
    if count > 1 {
        assert!(sum.confirmed > 20 * count as usize, "the seeds confirm requests");
        assert!(sum.looked > 1_000 * count, "the checks look");
        assert!(sum.safe_stops * 20 <= count, "stopping is the exception");
    }
}
