//! Starts that are stopped in front of every step of their own: one continuous life over one shard,
//! two and one again with load in between; after a flush that failed; and a power cut after a
//! restart and before its first flush.

use crate::harness::Counts;
use crate::run::{DURABLE, FAST, Run, Step};
use crate::support::model::End;
use crate::support::new_disk;
use borzoi_storage::disk::{DiskErrorKind, DiskOperation};
use borzoi_storage::sim_disk::Fault;
use borzoi_storage::superblock;

const LOAD: &[Step] = &[
    Step::Send(DURABLE, 0, 2, 10),
    Step::Send(FAST, 0, 3, 10),
    Step::Send(DURABLE, 1, 1, 70_000),
    Step::Wait,
    Step::Store(DURABLE, 0),
    Step::Checkpoint,
    Step::Wait,
    Step::Send(FAST, 0, 20, 10),
    Step::Send(DURABLE, 1, 1, 300),
    Step::Wait,
    Step::Poll(DURABLE, 0),
    Step::Checkpoint,
    Step::Wait,
    Step::Store(FAST, 0),
    Step::Send(DURABLE, 0, 1, 10),
    Step::Wait,
];

/// Still on its way when the life ends.
const LAST_WORDS: &[Step] = &[
    Step::Send(DURABLE, 0, 1, 5_000),
    Step::Send(FAST, 0, 1, 10),
    Step::Send(DURABLE, 1, 2, 10),
    Step::Send(FAST, 0, 1, 10),
];

/// There and back, and once more over what the second start has written.
fn one_two_one(end: End, seed: u64) -> Counts {
    let mut run = Run::new(1, seed, 16);
    run.second_every = 2;
    // The steps between the starts are tried by the other workloads.
    run.stride = 12;
    for shards in [2, 1, 2] {
        run.workload(LOAD);
        run.steps(LAST_WORDS);
        run.restart(end, shards);
    }
    run.workload(LOAD);
    run.counts
}

pub fn one_shard_two_and_one_again_after_kills() -> Counts {
    one_two_one(End::Kill, 21)
}

pub fn one_shard_two_and_one_again_after_power_cuts() -> Counts {
    one_two_one(End::PowerCut, 22)
}

pub fn one_shard_two_and_one_again_after_clean_stops() -> Counts {
    one_two_one(End::Clean, 23)
}

/// The very first start formats the directory; nothing was promised, but it must not be left in a
/// state that the next start refuses.
pub fn a_first_start_that_was_stopped_anywhere_is_begun_over() -> Counts {
    let mut run = Run::empty(1, 50, 10);
    for shards in 1..=2 {
        run.crash_start(&new_disk(), shards);
    }
    run.counts
}

/// A flush fails, the process ends, with or without having noted it, and is started again on the
/// same machine, where what the flush left behind looks clean and is on no disk.
pub fn a_process_restarted_after_a_failed_flush_loses_nothing_confirmed() -> Counts {
    let mut counts = Counts::default();
    for after in 0..6 {
        let mut run = Run::new(1 + (after % 2) as u16, 30 + after, 4);
        run.stride = u64::MAX;
        run.workload(LOAD);
        let (operation, kind) = (DiskOperation::Sync, DiskErrorKind::Io);
        run.node.disk.inject(Fault { operation, file: None, after, kind, lasting: false });
        run.workload(LOAD);
        assert_eq!(run.node.fatal.len(), 1, "the flush has failed: {:?}", run.node.fatal);
        if after % 3 > 0 {
            superblock::mark_write_failed(&mut run.node.disk).unwrap();
        }
        run.restart(End::Kill, 1 + (after % 3 == 2) as u16);
        run.workload(LAST_WORDS);
        counts.add(run.counts);
    }
    counts
}

/// Killed, started again, and then cut from power before anything was flushed: what the new life
/// rests on must be durable by itself.
pub fn a_power_cut_before_the_first_flush_after_a_kill_loses_nothing_confirmed() -> Counts {
    let mut counts = Counts::default();
    for seed in 40..43 {
        let mut run = Run::new(1, seed, 8);
        run.stride = u64::MAX;
        run.workload(LOAD);
        run.steps(LAST_WORDS);
        let shards = 1 + (seed % 2) as u16;
        run.restart(End::Kill, shards);
        run.stride = 1;
        run.workload(LAST_WORDS);
        counts.add(run.counts);
    }
    counts
}
