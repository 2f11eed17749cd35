//! The end-to-end crash test: fixed workloads at both levels; the world stops in front of every
//! step of the disk, of running nodes and of nodes that start; what was unsynced is kept, lost or
//! torn; the node boots from what is left, now with one shard and now with two, and is crashed
//! again inside that boot. Nothing confirmed may be lost, nothing invented, nothing doubled, and no
//! offset used twice. The target has its own `main`, which prints what was tried.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports its counts")]

#[path = "../../storage/tests/crash/harness.rs"]
mod harness;
#[path = "crash/restarts.rs"]
mod restarts;
#[path = "crash/run.rs"]
mod run;
mod support;

use borzoi_shard::{Random, SeededRandom};
use borzoi_types::Offset;
use harness::{Case, Counts, Demand};
use run::{DURABLE, FAST, Run, Step};
use std::process::ExitCode;
use support::model::Model;

/// The longest ones first, so that they run beside each other.
const CASES: &[Case] = &[
    Case {
        name: "one_shard_two_and_one_again_after_kills",
        run: restarts::one_shard_two_and_one_again_after_kills,
    },
    Case {
        name: "one_shard_two_and_one_again_after_power_cuts",
        run: restarts::one_shard_two_and_one_again_after_power_cuts,
    },
    Case {
        name: "one_shard_two_and_one_again_after_clean_stops",
        run: restarts::one_shard_two_and_one_again_after_clean_stops,
    },
    Case {
        name: "a_process_restarted_after_a_failed_flush_loses_nothing_confirmed",
        run: restarts::a_process_restarted_after_a_failed_flush_loses_nothing_confirmed,
    },
    Case {
        name: "a_power_cut_before_the_first_flush_after_a_kill_loses_nothing_confirmed",
        run: restarts::a_power_cut_before_the_first_flush_after_a_kill_loses_nothing_confirmed,
    },
    Case {
        name: "a_first_start_that_was_stopped_anywhere_is_begun_over",
        run: restarts::a_first_start_that_was_stopped_anywhere_is_begun_over,
    },
    Case {
        name: "small_sends_and_offset_stores_survive_a_crash_at_every_step",
        run: small_sends_and_offset_stores_survive_a_crash_at_every_step,
    },
    Case {
        name: "deleted_segments_stay_deleted_and_nothing_else_goes_after_a_crash_at_every_step",
        run: deleted_segments_stay_deleted_and_nothing_else_goes_after_a_crash_at_every_step,
    },
    Case {
        name: "large_sends_segments_and_checkpoints_survive_a_crash_at_every_step",
        run: large_sends_segments_and_checkpoints_survive_a_crash_at_every_step,
    },
    Case {
        name: "topics_that_come_and_go_survive_a_crash_at_every_step",
        run: topics_that_come_and_go_survive_a_crash_at_every_step,
    },
    Case {
        name: "random_workloads_survive_a_crash_at_every_step",
        run: random_workloads_survive_a_crash_at_every_step,
    },
    Case {
        name: "two_shards_survive_a_crash_at_every_step",
        run: two_shards_survive_a_crash_at_every_step,
    },
];

fn main() -> ExitCode {
    harness::main(CASES, &Demand { images_min: 20_000, cpu_seconds_max: 180.0 })
}

fn small_sends_and_offset_stores_survive_a_crash_at_every_step() -> Counts {
    let mut run = Run::new(1, 11, 24);
    run.workload(&[
        Step::Send(DURABLE, 0, 1, 10),
        Step::Send(FAST, 0, 3, 10),
        Step::Send(DURABLE, 0, 2, 100),
        Step::Wait,
        Step::Store(DURABLE, 0),
        Step::Store(FAST, 0),
        Step::Send(DURABLE, 1, 1, 200),
        Step::Poll(DURABLE, 0),
        Step::Wait,
        Step::Send(FAST, 0, 20, 10),
        Step::Send(FAST, 0, 1, 10),
        Step::Send(DURABLE, 0, 1, 10),
        Step::Poll(DURABLE, 0),
        Step::Send(DURABLE, 1, 4, 10),
        Step::Wait,
        Step::Store(DURABLE, 1),
    ]);
    assert_eq!(run.model.highest_seen(run.places[2].0), Some(Offset(23)));
    run.counts
}

fn deleted_segments_stay_deleted_and_nothing_else_goes_after_a_crash_at_every_step() -> Counts {
    const SMALL: &str = "small";
    let mut run = Run::new(1, 14, 8);
    let mut steps = vec![Step::CreateSmall(SMALL, 2_000)];
    // Two sends of 700 bytes and their frames close a segment: offsets 0 and 1, 2 and 3, ...
    steps.extend([Step::Send(SMALL, 0, 1, 700), Step::Wait].repeat(7));
    steps.extend([
        Step::DeleteSegments(SMALL, 1, Offset(2)),
        Step::Wait,
        Step::Checkpoint,
        Step::Send(SMALL, 0, 1, 700),
        Step::DeleteSegments(SMALL, 2, Offset(6)),
        Step::Wait,
        Step::Checkpoint,
        Step::Wait,
    ]);
    run.workload(&steps);
    let at = run.node.place(SMALL, 0).unwrap();
    let left = Model::read_all(&mut run.node, at);
    assert_eq!(left.keys().next(), Some(&Offset(6)), "three of four closed segments are gone");
    run.counts
}

fn large_sends_segments_and_checkpoints_survive_a_crash_at_every_step() -> Counts {
    let mut run = Run::new(1, 12, 12);
    run.workload(&[
        Step::Send(DURABLE, 0, 2, 40_000),
        Step::Send(DURABLE, 1, 1, 10),
        Step::Send(FAST, 0, 4, 5_000),
        Step::Wait,
        Step::Checkpoint,
        Step::Send(DURABLE, 0, 3, 100),
        Step::Send(FAST, 0, 2, 30_000),
        Step::Wait,
        Step::Send(DURABLE, 0, 1, 60_000),
        Step::Store(DURABLE, 0),
        Step::Checkpoint,
        Step::Wait,
        Step::Send(FAST, 0, 1, 10),
        Step::Checkpoint,
        Step::Wait,
    ]);
    assert!(run.node.shards[0].back().checkpointer().counters().durable >= 3);
    run.counts
}

fn topics_that_come_and_go_survive_a_crash_at_every_step() -> Counts {
    let mut run = Run::new(2, 14, 12);
    run.workload(&[
        Step::Create("one"),
        Step::Send("one", 0, 1, 10),
        Step::Send(DURABLE, 0, 1, 10),
        Step::Create("two"),
        Step::Send("two", 0, 2, 40_000),
        Step::Delete("one"),
        Step::Checkpoint,
        Step::Send("two", 0, 1, 10),
        Step::Create("three"),
        Step::Delete("two"),
        Step::Send("three", 0, 1, 10),
        Step::Checkpoint,
        Step::Wait,
        Step::Checkpoint,
        Step::Store("three", 0),
    ]);
    run.counts
}

fn random_workloads_survive_a_crash_at_every_step() -> Counts {
    let mut counts = Counts::default();
    for seed in 100..103u64 {
        let mut random = SeededRandom::new(seed);
        let mut run = Run::new(1 + u16::from(seed % 2 == 0), seed, 4);
        let steps: Vec<Step> = (0..30)
            .map(|_| {
                let bytes = [10, 10, 200, 3_000, 45_000];
                let pick = |random: &mut SeededRandom, n: u64| random.next_u64() % n;
                let topic = if pick(&mut random, 3) == 0 { FAST } else { DURABLE };
                let partition = if topic == FAST { 0 } else { pick(&mut random, 2) as u32 };
                match pick(&mut random, 10) {
                    0 => Step::Checkpoint,
                    1 => Step::Wait,
                    2 => Step::Store(topic, partition),
                    3 => Step::Poll(topic, partition),
                    _ => {
                        let bytes = bytes[pick(&mut random, 5) as usize];
                        let count = 1 + pick(&mut random, 3) as usize;
                        Step::Send(topic, partition, count, bytes)
                    }
                }
            })
            .collect();
        run.workload(&steps);
        counts.add(run.counts);
    }
    counts
}

fn two_shards_survive_a_crash_at_every_step() -> Counts {
    let mut run = Run::new(2, 13, 12);
    run.workload(&[
        Step::Send(DURABLE, 0, 1, 10),
        Step::Send(DURABLE, 1, 1, 10),
        Step::Send(FAST, 0, 3, 10),
        Step::Send(FAST, 0, 20, 10),
        Step::Wait,
        Step::Store(DURABLE, 1),
        Step::Send(DURABLE, 0, 2, 35_000),
        Step::Checkpoint,
        Step::Send(FAST, 0, 1, 10),
        Step::Wait,
    ]);
    run.counts
}
