//! Every row of the table of read edges (behaviour specification, section 13.1), wherever the
//! messages happen to be.

use crate::support::{Bench, offsets};
use borzoi_storage::partition::{PartitionLog, ReadStart};
use borzoi_types::limits::POLL_REPLY_BYTES_MAX;
use borzoi_types::{Micros, Offset};

const LIMIT: usize = POLL_REPLY_BYTES_MAX;

/// Where the messages are when they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Tail,
    ClosedChunks,
    Written,
    Cache,
    DiskWithIndex,
    DiskWithoutIndex,
    RestoredFromCheckpoint,
}

const PLACES: [Place; 7] = [
    Place::Tail,
    Place::ClosedChunks,
    Place::Written,
    Place::Cache,
    Place::DiskWithIndex,
    Place::DiskWithoutIndex,
    Place::RestoredFromCheckpoint,
];

/// Offsets 10-19 in batches 10-12, 13-16 and 17-19, of times 100, 200 and 300; 0-9 were removed.
fn ten_to_nineteen(place: Place) -> Bench {
    // Two batches of five close the first segment. Large messages make every batch a chunk.
    let size = if place == Place::Tail { 100 } else { 70_000 };
    let segment_bytes = 2 * (256 + 5 * (48 + size as u64));
    let mut bench = Bench::new(segment_bytes);
    bench.append(10, &[size; 5]);
    bench.append(20, &[size; 5]);
    bench.append(100, &[size; 3]);
    bench.append(200, &[size; 4]);
    bench.append(300, &[size; 3]);
    assert_eq!(bench.log.truncate_before(&mut bench.cache, Offset(10)), 1);
    match place {
        Place::Tail | Place::ClosedChunks => {}
        Place::Written => bench.flush().unwrap(),
        Place::Cache => bench.settle().unwrap(),
        Place::DiskWithIndex | Place::DiskWithoutIndex => {
            bench.settle().unwrap();
            bench.evict();
        }
        Place::RestoredFromCheckpoint => {
            let (state, work) = bench.log.begin_checkpoint();
            bench.settle().unwrap();
            assert!(bench.log.checkpoint_ready(&work));
            bench.evict();
            bench.log = PartitionLog::restore(&state).unwrap();
        }
    }
    if place == Place::DiskWithoutIndex {
        for name in bench.disk.names() {
            if matches!(name, borzoi_storage::disk::FileName::SegmentIndex { .. }) {
                bench.disk.delete(&name);
            }
        }
    }
    bench
}

fn rows() -> Vec<(&'static str, ReadStart, u32, Vec<u64>)> {
    vec![
        ("offset 0, count 5", ReadStart::Offset(Offset(0)), 5, (10..15).collect()),
        ("offset 15, count 100", ReadStart::Offset(Offset(15)), 100, (15..20).collect()),
        ("offset 20", ReadStart::Offset(Offset(20)), 100, vec![]),
        ("offset far beyond", ReadStart::Offset(Offset(u64::MAX)), 1, vec![]),
        ("first, count 3", ReadStart::First, 3, (10..13).collect()),
        ("last, count 3", ReadStart::Last(3), 3, (17..20).collect()),
        ("last, count 100", ReadStart::Last(100), 100, (10..20).collect()),
        ("next, nothing stored", ReadStart::Offset(Offset(0)), 5, (10..15).collect()),
        ("next, stored 12", ReadStart::Offset(Offset(13)), 5, (13..18).collect()),
        ("next, stored 19", ReadStart::Offset(Offset(20)), 5, vec![]),
        ("time of a batch", ReadStart::Timestamp(Micros(200)), 100, (13..20).collect()),
        ("just after it", ReadStart::Timestamp(Micros(201)), 100, (17..20).collect()),
        ("before everything", ReadStart::Timestamp(Micros(0)), 2, vec![10, 11]),
        ("time, few", ReadStart::Timestamp(Micros(101)), 2, vec![13, 14]),
        ("in the future", ReadStart::Timestamp(Micros(301)), 100, vec![]),
        ("count 0, offset", ReadStart::Offset(Offset(10)), 0, vec![]),
        ("count 0, first", ReadStart::First, 0, vec![]),
        ("count 0, last", ReadStart::Last(0), 0, vec![]),
        ("count 0, time", ReadStart::Timestamp(Micros(0)), 0, vec![]),
    ]
}

#[test]
fn every_row_of_the_table_holds_wherever_the_messages_are() {
    for place in PLACES {
        for (row, start, count, expected) in rows() {
            let mut bench = ten_to_nineteen(place);
            let outcome = bench.read(start, count, LIMIT).unwrap();
            assert_eq!(offsets(&outcome), expected, "{row}, {place:?}");
        }
    }
}

#[test]
fn every_row_holds_when_all_of_them_are_asked_of_one_partition() {
    for place in PLACES {
        let mut bench = ten_to_nineteen(place);
        for _ in 0..2 {
            for (row, start, count, expected) in rows() {
                let outcome = bench.read(start, count, LIMIT).unwrap();
                assert_eq!(offsets(&outcome), expected, "{row}, {place:?}");
            }
        }
        bench.settle().unwrap();
    }
}

#[test]
fn every_pair_of_start_and_count_is_sliced_exactly() {
    for place in PLACES {
        let mut bench = ten_to_nineteen(place);
        for from in 0..22 {
            for count in 1..12 {
                let start = ReadStart::Offset(Offset(from));
                let outcome = bench.read(start, count, LIMIT).unwrap();
                let first = from.max(10);
                let expected: Vec<u64> = (first..20).take(count as usize).collect();
                assert_eq!(offsets(&outcome), expected, "{from} + {count}, {place:?}");
            }
        }
    }
}

#[test]
fn an_empty_partition_answers_every_strategy_with_nothing() {
    let mut bench = Bench::new(1 << 20);
    let starts = [
        ReadStart::First,
        ReadStart::Last(5),
        ReadStart::Offset(Offset(3)),
        ReadStart::Timestamp(Micros(0)),
    ];
    for start in starts {
        let outcome = bench.read(start, 10, LIMIT).unwrap();
        assert_eq!((outcome.messages, outcome.bytes, outcome.first), (0, 0, None));
    }
}

#[test]
fn a_partition_emptied_by_a_jump_alone_answers_with_nothing() {
    let mut bench = Bench::new(1 << 20);
    bench.log.jump_to(Offset(65_536));
    assert!(offsets(&bench.read(ReadStart::First, 10, LIMIT).unwrap()).is_empty());
    bench.append(1, &[10]);
    assert_eq!(offsets(&bench.read(ReadStart::First, 10, LIMIT).unwrap()), [65_536]);
    assert_eq!(offsets(&bench.read(ReadStart::Last(2), 2, LIMIT).unwrap()), [65_536]);
}

#[test]
fn a_poll_into_a_hole_goes_on_at_the_next_message_and_last_does_not_count_the_hole() {
    for flushed in [false, true] {
        let mut bench = Bench::new(1 << 20);
        bench.append(1, &[10; 3]);
        bench.log.jump_to(Offset(100));
        bench.append(2, &[10; 3]);
        if flushed {
            bench.settle().unwrap();
            bench.evict();
        }
        let mut read = |start, count| offsets(&bench.read(start, count, LIMIT).unwrap());
        assert_eq!(read(ReadStart::Offset(Offset(3)), 2), [100, 101]);
        assert_eq!(read(ReadStart::Offset(Offset(50)), 9), [100, 101, 102]);
        assert_eq!(read(ReadStart::Offset(Offset(1)), 9), [1, 2, 100, 101, 102]);
        assert_eq!(read(ReadStart::Last(4), 4), [2, 100, 101, 102]);
        assert_eq!(read(ReadStart::Last(9), 9), [0, 1, 2, 100, 101, 102]);
        assert_eq!(read(ReadStart::Timestamp(Micros(2)), 1), [100]);
    }
}

#[test]
fn the_byte_limit_ends_a_reply_at_a_batch_border_but_one_message_always_goes_out() {
    for flushed in [false, true] {
        let mut bench = Bench::new(1 << 30);
        for time in 0..4 {
            bench.append(time, &[1_000; 2]);
        }
        bench.append(9, &[100_000; 3]);
        if flushed {
            bench.settle().unwrap();
            bench.evict();
        }
        let whole = 256 + 2 * 1_048;
        let mut read = |from, bytes| {
            offsets(&bench.read(ReadStart::Offset(Offset(from)), 100, bytes).unwrap())
        };
        assert_eq!(read(0, 2 * whole), [0, 1, 2, 3]);
        assert_eq!(read(0, 2 * whole + 1_500), [0, 1, 2, 3]);
        assert_eq!(read(1, 256 + 1_048 + whole), [1, 2, 3]);
        assert_eq!(read(0, 1_304), [0], "part of the first batch if it alone is too large");
        assert_eq!(read(0, 0), [0], "one message however small the limit");
        assert_eq!(read(8, 1), [8]);
        assert_eq!(read(8, 256 + 2 * 100_048), [8, 9]);
    }
}

#[test]
fn a_wall_clock_that_steps_back_does_not_hide_messages() {
    for flushed in [false, true] {
        let mut bench = Bench::new(1 << 30);
        for time in [500, 100, 600, 50] {
            bench.append(time, &[70_000]);
        }
        if flushed {
            bench.settle().unwrap();
            bench.evict();
        }
        let mut read =
            |time| offsets(&bench.read(ReadStart::Timestamp(Micros(time)), 1, LIMIT).unwrap());
        assert_eq!(read(0), [0]);
        assert_eq!(read(200), [0]);
        assert_eq!(read(501), [2]);
        assert!(read(601).is_empty());
    }
}

#[test]
fn whole_batches_next_to_each_other_are_served_as_one_piece_and_not_copied() {
    let mut bench = Bench::new(1 << 30);
    for time in 0..120 {
        bench.append(time, &[1_000]);
    }
    bench.settle().unwrap();
    bench.evict();
    let outcome = bench.read(ReadStart::First, 60, LIMIT).unwrap();
    assert_eq!(outcome.messages, 60);
    assert!(outcome.batches.len() <= 2, "one piece per chunk, not per batch");
}
