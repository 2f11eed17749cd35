//! Crashes at every write and sync boundary of random workloads, with every subset of what was
//! unsynced kept, lost or torn, and what recovery makes of each.
//!
//! A record is (log, op, bytes) here; the same through a whole shard is tested above `storage`.
//!
//! Checked on every image (see `ledger`): nothing acknowledged at its level is lost, nothing
//! is invented, nothing comes back twice or after it had been given up, a solo node never refuses.
//! The target has its own `main`, which prints what was tried.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports its counts")]

#[path = "crash/harness.rs"]
mod harness;
#[path = "crash/ledger.rs"]
mod ledger;
#[path = "crash/life.rs"]
mod life;
#[path = "crash/world.rs"]
mod world;

use borzoi_storage::disk::{Directory, DiskErrorKind, DiskOperation, FileName};
use borzoi_storage::recovery::{Finding, RecoveryError, recover};
use borzoi_storage::sim_disk::{Fate, Fault, SimDisk};
use harness::{Case, Counts, Demand};
use ledger::{Level, check};
use life::{OTHER_BOOT, Plan, Run};
use std::process::ExitCode;
use world::Random;

/// The longest one first, so that the others run beside it.
const CASES: &[Case] = &[
    Case {
        name: "no_crash_loses_what_was_acknowledged_invents_anything_or_stops_a_solo_node",
        run: no_crash_loses_what_was_acknowledged_invents_anything_or_stops_a_solo_node,
    },
    Case {
        name: "large_unsynced_groups_survive_a_thousand_random_cuts_each",
        run: large_unsynced_groups_survive_a_thousand_random_cuts_each,
    },
    Case {
        name: "a_failed_flush_followed_by_a_restart_and_a_power_cut_loses_nothing_persisted",
        run: a_failed_flush_followed_by_a_restart_and_a_power_cut_loses_nothing_persisted,
    },
    Case {
        name: "damage_below_the_mark_is_named_and_never_truncated",
        run: damage_below_the_mark_is_named_and_never_truncated,
    },
];

fn main() -> ExitCode {
    harness::main(CASES, &Demand { images_min: 40_000, cpu_seconds_max: 180.0 })
}

/// Counts what was tried.
#[derive(Default, Debug)]
struct Tally {
    tried: Counts,
    refusals: u64,
    groups: u64,
    records_carried: u64,
    files_reused: u64,
}

/// Recovers `image` and holds it against what the crashed run knows.
fn try_image(run: &Run, image: &mut SimDisk, level: Level, what: &str, tally: &mut Tally) {
    tally.tried.images += 1;
    match recover(image) {
        Ok(recovered) => {
            if let Err(wrong) = check(&run.ledger, &recovered, level) {
                panic!("{what}: {wrong}\nplan {:?}\nfindings {:?}", run.plan, recovered.findings);
            }
        }
        Err(RecoveryError::NotFormatted) if !run.formatted => {}
        Err(error) => panic!("{what}: refuses to start: {error}\nplan {:?}", run.plan),
    }
}

/// The images of one crash: the process killed, and the power cut in every way or many ways.
fn try_crash(run: &Run, step: u64, draws: u64, random: &mut Random, tally: &mut Tally) {
    tally.tried.crash_points += 1;
    let kill = run.disk.kill();
    let mut image = kill.clone();
    try_image(run, &mut image, Level::Written, &format!("step {step}, killed"), tally);
    if let Ok(recovered) = recover(&mut image)
        && recovered.superblock.boot_id.is_some()
        && !run.write_failed
    {
        assert!(recovered.trusted, "step {step}: a kill loses nothing, so nothing is distrusted");
        let mut moved = kill.power_cut_and_boot(OTHER_BOOT, |_| Fate::Kept);
        let found = recover(&mut moved).unwrap();
        assert!(!found.trusted, "another boot is never trusted");
    }
    let unsynced = run.disk.unsynced().len();
    let subsets = if unsynced <= 10 { 1u64 << unsynced } else { 0 };
    for subset in 0..subsets {
        let mut item = 0;
        let mut image = run.disk.power_cut_and_boot(OTHER_BOOT, |_| {
            item += 1;
            if subset >> (item - 1) & 1 == 1 { Fate::Kept } else { Fate::Lost }
        });
        let what = format!("step {step}, subset {subset:b} of {unsynced}");
        try_image(run, &mut image, Level::Synced, &what, tally);
    }
    // Torn sectors, same boot identity half of the time.
    for draw in 0..if unsynced == 0 { 0 } else { draws } {
        let state = random.clone();
        let mut image = run.disk.power_cut(|_| random.fate());
        let what = format!("step {step}, draw {draw} from {state:?} of {unsynced}");
        try_image(run, &mut image, Level::Synced, &what, tally);
    }
}

/// Every way to crash once more while starting from `image`.
fn try_second_crash(
    run: &Run,
    image: &SimDisk,
    stride: u64,
    random: &mut Random,
    tally: &mut Tally,
) {
    let shards = 1 + random.below(2) as u16;
    let first = image.steps();
    let total = {
        let mut whole = image.clone();
        let level = Level::Synced;
        let recovered = run.restart(&mut whole, shards).expect("nothing stops this start");
        tally.tried.images += 1;
        let again = recover(&mut whole).expect("a generation that has begun is whole");
        run.same_after_restart(&recovered, &again);
        check(&run.ledger, &again, level).unwrap();
        whole.steps() - first
    };
    let mut step = random.below(stride);
    while step < total {
        let mut crashed = image.clone();
        crashed.crash_before(first + step);
        assert!(run.restart(&mut crashed, shards).is_none(), "it stops where it is told to");
        tally.tried.second_crashes += 1;
        for draw in 0..3 {
            let mut second = if draw == 0 {
                crashed.kill()
            } else {
                crashed.power_cut_and_boot(OTHER_BOOT, |_| random.fate())
            };
            let what = format!("second crash at step {step}, draw {draw}");
            try_image(run, &mut second, Level::Synced, &what, tally);
            let mut whole = second.kill();
            let recovered = run.restart(&mut whole, 1).expect("nothing stops this start");
            let again = recover(&mut whole).expect("a generation that has begun is whole");
            run.same_after_restart(&recovered, &again);
        }
        step += stride;
    }
}

fn torture(seeds: core::ops::Range<u64>, draws: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let mut random = Random::new(seed ^ 0x5eed);
        let plan = Plan::draw(seed);
        let whole = Run::to_the_end(&plan);
        tally.groups += whole.groups;
        tally.records_carried += whole.records_carried;
        tally.files_reused += whole.files_reused;
        let steps = whole.disk.steps();
        for step in 0..steps {
            let run = Run::until(&plan, step);
            assert!(run.disk.is_crashed(), "seed {seed}: step {step} of {steps} is reached");
            let unsynced = run.disk.unsynced().len();
            let draws = if unsynced > 10 { draws * 5 } else { draws };
            try_crash(&run, step, draws, &mut random, &mut tally);
            if run.formatted && step % 5 == seed % 5 {
                let image = match random.below(3) {
                    0 => run.disk.kill(),
                    _ => run.disk.power_cut_and_boot(OTHER_BOOT, |_| random.fate()),
                };
                // All points of the restart for some workloads, a sample for the others.
                let stride = if seed % 8 == 0 { 1 } else { 7 };
                try_second_crash(&run, &image, stride, &mut random, &mut tally);
            }
        }
    }
    tally
}

fn no_crash_loses_what_was_acknowledged_invents_anything_or_stops_a_solo_node() -> Counts {
    let tally = torture(0..16, 20);
    assert!(tally.tried.images >= 20_000, "{tally:?}");
    assert!(tally.tried.second_crashes >= 500, "{tally:?}");
    assert!(tally.records_carried > 0 && tally.files_reused > 0, "{tally:?}");
    tally.tried
}

/// A thousand draws at points with more than ten unsynced sectors.
fn large_unsynced_groups_survive_a_thousand_random_cuts_each() -> Counts {
    let mut tally = Tally::default();
    let mut random = Random::new(99);
    let plan = Plan::large(3);
    let steps = Run::to_the_end(&plan).disk.steps();
    let mut points = 0;
    for step in 0..steps {
        let run = Run::until(&plan, step);
        if run.disk.unsynced().len() > 10 && points < 8 {
            points += 1;
            try_crash(&run, step, 1_000, &mut random, &mut tally);
        }
    }
    assert!(tally.tried.images >= 5_000, "{tally:?}");
    tally.tried
}

/// A flush fails, the process stops, is restarted on the same machine, and the power is cut then.
fn a_failed_flush_followed_by_a_restart_and_a_power_cut_loses_nothing_persisted() -> Counts {
    let mut tally = Tally::default();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let plan = Plan::draw(seed);
        let fault = Fault {
            operation: DiskOperation::Sync,
            file: None,
            after: 8 + random.below(20),
            kind: DiskErrorKind::Io,
            lasting: false,
        };
        let run = Run::with_fault(&plan, fault);
        if !run.formatted {
            continue;
        }
        let killed = run.disk.kill();
        try_image(&run, &mut killed.clone(), Level::Synced, "after the failed flush", &mut tally);
        try_second_crash(&run, &killed, 1, &mut random, &mut tally);
        for _ in 0..50 {
            let mut image = killed.power_cut(|_| random.fate());
            try_image(&run, &mut image, Level::Synced, "power cut after it", &mut tally);
        }
    }
    assert!(tally.tried.images >= 1_000, "{tally:?}");
    tally.tried
}

/// Damages every block of the journal of a node at rest. Solo: everything is there or the node
/// names the damage. Several nodes: what is missing is named, or everything must be learned.
fn damage_below_the_mark_is_named_and_never_truncated() -> Counts {
    let mut tally = Tally::default();
    for seed in 0..12u64 {
        let plan = Plan { solo: seed % 2 == 0, ..Plan::draw(seed) };
        let run = Run::to_the_end(&plan);
        let mut listed = run.disk.kill();
        let files = borzoi_storage::disk::Disk::list(&mut listed, Directory::Journal).unwrap();
        for file in files.files {
            let mut disk = run.disk.kill();
            let bytes = borzoi_storage::disk::Disk::len(&mut disk, &file).unwrap().unwrap();
            for offset in (0..bytes).step_by(4_096) {
                for kind in 0..3 {
                    let mut image = run.disk.kill();
                    match kind {
                        0 => image.flip_bit(&file, offset + 5 + (seed * 97) % 4_000, 3),
                        1 => image.flip_bit(&file, offset + 1, 0),
                        _ => image.fill_block(&file, offset, 0),
                    };
                    tally.tried.images += 1;
                    try_damage(&run, &mut image, &file, offset, &mut tally);
                }
            }
        }
    }
    assert!(tally.refusals > 50, "{tally:?}");
    tally.tried
}

fn try_damage(run: &Run, image: &mut SimDisk, file: &FileName, block: u64, tally: &mut Tally) {
    match recover(image) {
        Ok(recovered) => {
            let missing = ledger::missing(&run.ledger, &recovered, Level::Synced);
            assert!(!run.plan.solo || missing.is_empty(), "{file} {block}: lost {missing:?}");
            for (log, op) in missing {
                let named = recovered.logs.get(&log).is_some_and(|log| {
                    log.faulty.iter().chain(&log.unknown).any(|lost| lost.op == op)
                });
                assert!(named || recovered.damaged_nameless, "{file} {block}: {log} {op} vanished");
            }
            let torn = |f: &Finding| matches!(f, Finding::Torn { .. } | Finding::SetAside { .. });
            assert!(!recovered.findings.iter().any(torn), "{file} {block}: truncated");
        }
        Err(RecoveryError::Damaged { file: named, offset, named: record, what }) => {
            tally.refusals += 1;
            assert!(run.plan.solo, "only a solo node refuses: {what}");
            if record.is_some() {
                assert_eq!(named, *file, "{what}");
                // A record is named by its start; it may reach into the damaged block.
                assert!(offset < block + 4_096, "{what}: named at {offset}, damaged at {block}");
            }
        }
        Err(other) => panic!("{file} {block}: {other}"),
    }
}
