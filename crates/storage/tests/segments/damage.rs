//! Bytes on the disk that are not what was written: named with file and position, never an empty
//! answer, and the rest is served.

use crate::support::{Bench, KEY, offsets};
use borzoi_storage::disk::{DiskErrorKind, DiskRequest, FileName, execute};
use borzoi_storage::partition::{PartitionLog, ReadErrorKind, ReadPlan, ReadStart};
use borzoi_types::{Micros, Offset};

const LIMIT: usize = 12 << 20;

fn segment(base: u64) -> FileName {
    FileName::Segment { key: KEY, base: Offset(base) }
}

fn index(base: u64) -> FileName {
    FileName::SegmentIndex { key: KEY, base: Offset(base) }
}

/// Two closed segments of four one-message chunks each, and an open one, all on disk only.
fn eight_chunks() -> Bench {
    let mut bench = Bench::new(4 * (256 + 48 + 70_000));
    for time in 0..9 {
        bench.append(time, &[70_000]);
    }
    bench.settle().unwrap();
    bench.evict();
    assert_eq!(bench.log.closed_segments().len(), 2);
    bench
}

const CHUNK: usize = 73_728;

#[test]
fn a_flipped_bit_in_a_chunk_is_named_and_everything_else_is_served() {
    for with_index in [true, false] {
        let mut bench = eight_chunks();
        if !with_index {
            bench.disk.delete(&index(0));
        }
        bench.disk.corrupt(&segment(0), 4_096 + CHUNK + 5_000);
        for _ in 0..2 {
            let mut read = |from| bench.read(ReadStart::Offset(Offset(from)), 100, LIMIT);
            assert_eq!(offsets(&read(0).unwrap()), [0], "what lies before is delivered first");
            let error = read(1).unwrap_err();
            assert_eq!(error.file, segment(0));
            assert_eq!(error.position, 4_096 + CHUNK as u64);
            assert!(error.kind.is_damage());
            assert_eq!(offsets(&read(2).unwrap()), [2, 3, 4, 5, 6, 7, 8]);
        }
    }
}

#[test]
fn every_damaged_byte_of_a_chunk_header_is_named() {
    for byte in 0..64 {
        let mut bench = eight_chunks();
        bench.disk.corrupt(&segment(4), 4_096 + byte);
        let error = bench.read(ReadStart::Offset(Offset(4)), 1, LIMIT).unwrap_err();
        assert_eq!((error.file, error.position), (segment(4), 4_096), "byte {byte}");
        assert!(error.kind.is_damage());
        let after = bench.read(ReadStart::Offset(Offset(8)), 100, LIMIT).unwrap();
        assert_eq!(offsets(&after), [8]);
    }
}

#[test]
fn a_wrong_index_is_rebuilt_from_the_log() {
    for byte in 0..64 + 4 * 32 {
        let mut bench = eight_chunks();
        bench.disk.corrupt(&index(0), byte);
        let outcome = bench.read(ReadStart::Offset(Offset(2)), 2, LIMIT).unwrap();
        assert_eq!(offsets(&outcome), [2, 3], "byte {byte}");
        let intact = eight_chunks();
        bench.settle().unwrap();
        let rewritten = bench.disk.content(&index(0)) == intact.disk.content(&index(0));
        assert!(rewritten, "byte {byte}");
    }
}

#[test]
fn an_intact_index_of_other_content_is_not_believed() {
    let mut bench = eight_chunks();
    // The same key, base, end and file length, but other chunks inside.
    let mut other = Bench::new(4 * (256 + 48 + 70_000));
    other.append(0, &[70_000 + 100]);
    other.append(1, &[70_000 - 100]);
    other.append(2, &[70_000]);
    other.append(3, &[70_000]);
    other.settle().unwrap();
    let forged = other.disk.content(&index(0)).unwrap().to_vec();
    assert!(bench.disk.content(&index(0)) != Some(forged.as_slice()));
    let parts = [bytes::Bytes::from(forged)];
    borzoi_storage::disk::Disk::write(&mut bench.disk, &index(0), 0, &parts).unwrap();
    for from in 0..4 {
        let outcome = bench.read(ReadStart::Offset(Offset(from)), 1, LIMIT).unwrap();
        assert_eq!(offsets(&outcome), [from]);
    }
}

#[test]
fn a_missing_or_shortened_file_is_an_error_and_not_an_empty_answer() {
    for with_index in [true, false] {
        let mut bench = eight_chunks();
        if !with_index {
            bench.disk.delete(&index(4));
        }
        bench.disk.delete(&segment(4));
        let error = bench.read(ReadStart::Offset(Offset(4)), 1, LIMIT).unwrap_err();
        let ReadErrorKind::Disk(disk) = &error.kind else { panic!("{error}") };
        assert_eq!(disk.kind, DiskErrorKind::NotFound);

        let mut bench = eight_chunks();
        if !with_index {
            bench.disk.delete(&index(4));
        }
        let whole = bench.disk.content(&segment(4)).unwrap().len();
        bench.disk.shorten(&segment(4), whole - 8_192);
        let outcome = bench.read(ReadStart::Offset(Offset(4)), 3, LIMIT).unwrap();
        assert_eq!(offsets(&outcome), [4, 5, 6]);
        let error = bench.read(ReadStart::Offset(Offset(7)), 1, LIMIT).unwrap_err();
        assert!(error.kind.is_damage(), "{error}");
        assert_eq!(error.position, 4_096 + 3 * CHUNK as u64);
    }
}

#[test]
fn the_file_of_another_partition_under_our_name_is_noticed() {
    let mut bench = eight_chunks();
    let mut other = Bench::new(4 * (256 + 48 + 70_000));
    other.log = PartitionLog::new(borzoi_types::PartitionKey(0x7c7), 4 * (256 + 48 + 70_000));
    for time in 0..4 {
        other.append(time, &[70_000]);
    }
    other.settle().unwrap();
    let name = FileName::Segment { key: borzoi_types::PartitionKey(0x7c7), base: Offset(0) };
    let theirs = other.disk.content(&name).unwrap().to_vec();
    bench.disk.delete(&segment(0));
    let parts = [bytes::Bytes::from(theirs)];
    borzoi_storage::disk::Disk::write(&mut bench.disk, &segment(0), 0, &parts).unwrap();
    let error = bench.read(ReadStart::Offset(Offset(0)), 1, LIMIT).unwrap_err();
    assert!(error.kind.is_damage(), "{error}");
    bench.disk.delete(&index(0));
    let error = bench.read(ReadStart::Offset(Offset(0)), 1, LIMIT).unwrap_err();
    assert_eq!(error.position, 0, "the file's header says whose it is");
}

#[test]
fn a_read_survives_whatever_happens_between_its_steps() {
    let mut bench = eight_chunks();
    bench.disk.delete(&index(0));
    let start = ReadStart::Timestamp(Micros(2));
    let mut plan = bench.log.plan_read(&mut bench.cache, start, 100, LIMIT).unwrap();
    let mut steps = 0;
    let outcome = loop {
        match plan {
            ReadPlan::Ready(outcome) => break outcome,
            ReadPlan::Disk { request, cursor } => {
                assert!(matches!(request, DiskRequest::Read { .. }));
                let result = execute(&mut bench.disk, &request);
                match steps {
                    0 => {
                        let removed = bench.log.truncate_before(&mut bench.cache, Offset(4));
                        assert_eq!(removed, 1);
                    }
                    1 => bench.evict(),
                    2 => {
                        bench.append(100, &[10]);
                        bench.log.jump_to(Offset(50));
                        bench.append(101, &[10]);
                    }
                    _ => {}
                }
                steps += 1;
                plan = bench.log.resume(&mut bench.cache, cursor, result).unwrap();
            }
        }
    };
    assert_eq!(offsets(&outcome), [4, 5, 6, 7, 8, 9, 50]);
    assert!(steps >= 3);
}
