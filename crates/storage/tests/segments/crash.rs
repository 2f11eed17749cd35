//! Power loss before any disk operation of flush, sync and checkpoint: the checkpoint and the
//! journal's later operations give back the same content, and life goes on.

use crate::script::{Node, random_step};
use crate::support::Random;
use borzoi_storage::cache::CacheOptions;
use borzoi_storage::partition::FlushError;

const CACHE: CacheOptions = CacheOptions { chunk_bytes_max: 200_000, index_bytes_max: 10_000 };

/// One life: operations, flushes, checkpoints with operations in the middle. Ends early when the
/// disk stops.
fn live(node: &mut Node, random: &mut Random, steps: usize) -> Result<(), FlushError> {
    for _ in 0..steps {
        match random.below(10) {
            0 => node.bench.flush()?,
            1 => node.bench.sync()?,
            2 => {
                let (checkpoint, work) = node.begin_checkpoint();
                for _ in 0..random.below(4) {
                    let step = random_step(random, node);
                    node.commit(step);
                }
                node.finish_checkpoint(&checkpoint, &work)?;
            }
            _ => {
                let step = random_step(random, node);
                node.commit(step);
            }
        }
    }
    Ok(())
}

/// Runs a life that loses power before disk operation `crash_at`, and two more after it, each of
/// which loses power too. Returns whether the first crash happened.
fn crash_and_recover(seed: u64, crash_at: u64, steps: usize) -> bool {
    let mut random = Random(seed | 1);
    let mut node = Node::new([150_000, 1 << 20][(seed % 2) as usize], CACHE);
    node.bench.disk.crash_at = Some(crash_at);
    let crashed = live(&mut node, &mut random, steps).is_err();
    for life in 0..3 {
        let mut draw = Random(seed.wrapping_mul(31).wrapping_add(crash_at * 7 + life) | 1);
        let disk = node.bench.disk.after_crash(&mut draw);
        node.restart(disk);
        let model = node.model.clone();
        model.check(&mut node.bench);
        node.bench.disk.crash_at = Some(draw.below(12));
        if live(&mut node, &mut draw, 15).is_ok() {
            node.bench.disk.crash_at = None;
        }
    }
    let disk = node.bench.disk.after_crash(&mut random);
    node.restart(disk);
    let model = node.model.clone();
    model.check(&mut node.bench);
    node.check_files_equal_a_quiet_node();
    node.checkpoint().unwrap();
    model.check(&mut node.bench);
    crashed
}

#[test]
fn a_crash_before_any_disk_operation_loses_nothing_and_invents_nothing() {
    let mut images = 0;
    for seed in 1..=8 {
        let mut crash_at = 0;
        while crash_and_recover(seed, crash_at, 60) {
            crash_at += 1;
            images += 4;
        }
        assert!(crash_at > 10, "the workload uses the disk");
    }
    println!("{images} crash images");
    assert!(images >= 500);
}

#[test]
fn a_damaged_newest_checkpoint_falls_back_to_the_older_one() {
    let mut random = Random(77);
    let mut node = Node::new(150_000, CACHE);
    for _ in 0..3 {
        for _ in 0..20 {
            let step = random_step(&mut random, &node);
            node.commit(step);
        }
        node.checkpoint().unwrap();
    }
    let names = node.bench.disk.names();
    let newest = names.iter().rfind(|name| name.path().ends_with(".checkpoint"));
    let newest = newest.unwrap().clone();
    node.bench.disk.corrupt(&newest, 130);
    let disk = node.bench.disk.restarted();
    node.restart(disk);
    let model = node.model.clone();
    model.check(&mut node.bench);
    node.check_files_equal_a_quiet_node();
}

#[test]
fn a_full_disk_keeps_everything_readable_and_writing_resumes_when_space_returns() {
    let mut random = Random(5);
    let mut node = Node::new(150_000, CACHE);
    node.bench.disk.full = true;
    for _ in 0..60 {
        let step = random_step(&mut random, &node);
        node.commit(step);
        if node.bench.log.is_flushing() && node.bench.log.waiting_bytes() > 0 {
            assert!(matches!(node.bench.flush(), Err(FlushError::Retry(_))));
        }
    }
    let model = node.model.clone();
    model.check(&mut node.bench);
    let (_, work) = node.begin_checkpoint();
    assert!(!node.bench.log.checkpoint_ready(&work));
    node.bench.disk.full = false;
    node.checkpoint().unwrap();
    model.check(&mut node.bench);
    node.check_files_equal_a_quiet_node();
    let disk = node.bench.disk.after_crash(&mut random);
    node.restart(disk);
    model.check(&mut node.bench);
}
