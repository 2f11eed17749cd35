//! The journal against a simulated disk, one request at a time.

use super::*;
use crate::bench::{Bench, OPTIONS, ops, prepare, view};
use crate::disk::{DiskErrorKind, DiskOperation, DiskQueue, DiskRequest, Submission, execute};
use crate::sim_disk::Fault;

fn writes(submissions: &[Submission]) -> usize {
    submissions.iter().filter(|s| s.queue == DiskQueue::JournalWrite).count()
}

fn flushes(submissions: &[Submission]) -> usize {
    submissions.iter().filter(|s| s.queue == DiskQueue::JournalFlush).count()
}

#[test]
fn a_record_is_written_then_flushed_and_each_level_is_reported_in_its_turn() {
    let mut bench = Bench::new();
    bench.settle();
    let sequence = bench.append(prepare(1, 1, 100), Durability::Persisted);
    let submissions = bench.drive();
    assert_eq!((writes(&submissions), flushes(&submissions)), (1, 1));
    let before = bench.journal.progress().clone();
    assert!(before.written_through < sequence);
    let written = bench.run(&submissions[0]);
    assert_eq!((written.written_through, written.synced_through < sequence), (sequence, true));
    assert_eq!(bench.run(&submissions[1]).synced_through, sequence);
}

#[test]
fn a_flush_that_returns_before_its_write_proves_nothing_yet() {
    let mut bench = Bench::new();
    bench.settle();
    let sequence = bench.append(prepare(1, 1, 100), Durability::Persisted);
    let submissions = bench.drive();
    let write = execute(&mut bench.disk, &submissions[0].request);
    let early = bench.run(&submissions[1]);
    assert!(early.synced_through < sequence && early.written_through < sequence);
    let done = bench.journal.complete(submissions[0].ticket, write);
    assert_eq!((done.written_through, done.synced_through), (sequence, sequence));
}

#[test]
fn records_that_arrive_during_a_flush_share_the_next_one() {
    let mut bench = Bench::new();
    bench.settle();
    bench.append(prepare(1, 1, 100), Durability::Persisted);
    let first = bench.drive();
    let flushes_before = bench.journal.usage().flushes_with_records;
    for op in 2..=20 {
        bench.append(prepare(1 + op as u32 % 2, op, 100), Durability::Persisted);
        assert!(bench.drive().is_empty(), "small persisted records gather during a flush");
    }
    bench.run(&first[0]);
    bench.run(&first[1]);
    let second = bench.drive();
    assert_eq!((writes(&second), flushes(&second)), (1, 1), "one group serves them all");
    for submission in &second {
        bench.run(submission);
    }
    assert_eq!(bench.journal.progress().synced_through, bench.journal.last_record());
    assert_eq!(bench.journal.usage().flushes_with_records, flushes_before + 2);
}

#[test]
fn a_replicated_record_is_written_while_a_flush_is_in_flight() {
    let mut bench = Bench::new();
    bench.settle();
    bench.append(prepare(1, 1, 100), Durability::Persisted);
    let first = bench.drive();
    let sequence = bench.append(prepare(3, 1, 100), Durability::Replicated);
    let second = bench.drive();
    assert_eq!((writes(&second), flushes(&second)), (1, 0));
    bench.run(&first[0]);
    assert_eq!(bench.run(&second[0]).written_through, sequence);
}

#[test]
fn much_gathered_data_does_not_wait_for_the_flush() {
    let file_bytes = 4 * 1024 * 1024;
    let mut bench = Bench::with(JournalOptions { file_bytes, files_max: 3 });
    bench.settle();
    bench.append(prepare(1, 1, 100), Durability::Persisted);
    let first = bench.drive();
    bench.append(prepare(1, 2, 500_000), Durability::Persisted);
    assert!(bench.drive().is_empty());
    bench.append(prepare(1, 3, 600_000), Durability::Persisted);
    let second = bench.drive();
    assert_eq!((writes(&second), flushes(&second)), (1, 0));
    for submission in first.iter().chain(&second) {
        bench.run(submission);
    }
    bench.settle();
    assert_eq!(ops(&bench.recovered(), 1), [1, 2, 3]);
}

#[test]
fn at_rest_an_empty_group_moves_the_mark_above_everything_acknowledged() {
    let mut bench = Bench::new();
    for op in 1..=3 {
        bench.append(prepare(1, op, 100), Durability::Persisted);
        bench.settle();
    }
    let recovered = bench.recovered();
    let log = &recovered.logs[&LogId(1)];
    assert_eq!(ops(&recovered, 1), [1, 2, 3]);
    assert!(log.records.iter().all(|record| record.below_mark));
    assert!(recovered.findings.is_empty(), "{:?}", recovered.findings);
}

#[test]
fn after_a_failed_flush_nothing_is_acknowledged_and_nothing_is_emitted() {
    for operation in [DiskOperation::Sync, DiskOperation::Write] {
        let mut bench = Bench::new();
        bench.settle();
        let (kind, file) = (DiskErrorKind::Io, None);
        bench.disk.inject(Fault { operation, file, after: 0, kind, lasting: false });
        let before = bench.journal.progress().synced_through;
        bench.append(prepare(1, 1, 100), Durability::Persisted);
        for submission in bench.drive() {
            bench.run(&submission);
        }
        let progress = bench.journal.progress().clone();
        assert_eq!(progress.failed.as_ref().unwrap().kind, DiskErrorKind::Io);
        assert_eq!(progress.synced_through, before);
        let again =
            bench.journal.append(prepare(1, 2, 100), Durability::Persisted, RecordClass::Reserved);
        assert!(matches!(again, Err(AppendError::Failed(_))));
        assert!(bench.drive().is_empty());
    }
}

#[test]
fn large_bodies_are_passed_by_reference_and_small_ones_are_packed() {
    let mut bench = Bench::new();
    bench.settle();
    let record = prepare(1, 1, 40_000);
    let pointer = record.body.parts()[0].as_ptr();
    bench.append(record, Durability::Persisted);
    bench.append(prepare(1, 2, 40), Durability::Persisted);
    let submissions = bench.drive();
    let DiskRequest::Write { parts, .. } = &submissions[0].request else { panic!() };
    assert_eq!(parts.iter().filter(|part| part.as_ptr() == pointer).count(), 1);
    assert_eq!(parts.len(), 3, "what is before it, the body, what is behind it");
}

#[test]
fn files_are_reused_once_released_and_the_journal_goes_on_for_ever() {
    let mut bench = Bench::new();
    for op in 1..=400 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
        bench.journal.release(LogId(1), Op(op.saturating_sub(5)));
    }
    let usage = bench.journal.usage();
    assert!(usage.files_live <= 3, "{usage:?}");
    assert!(bench.disk.counters.bytes_written > 10 * OPTIONS.file_bytes);
    let recovered = bench.recovered();
    let found = ops(&recovered, 1);
    assert_eq!(found.last(), Some(&400));
    assert!(found.windows(2).all(|two| two[0] + 1 == two[1]), "{found:?}");
    assert!(found[0] <= 395);
}

#[test]
fn a_full_journal_refuses_normal_records_and_takes_reserved_ones() {
    let mut bench = Bench::new();
    bench.settle();
    let mut op = 0;
    loop {
        op += 1;
        let class = RecordClass::Normal;
        match bench.journal.append(prepare(1, op, 3_000), Durability::Persisted, class) {
            Ok(_) => bench.settle(),
            Err(AppendError::Full { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(bench.journal.pressure(), Pressure::Full(vec![LogId(1)]));
    let reserved = RecordClass::Reserved;
    assert!(bench.journal.has_room(8, 3_000, reserved));
    bench.journal.append(prepare(2, 1, 3_000), Durability::Persisted, reserved).unwrap();
    bench.settle();
    bench.journal.release(LogId(1), Op(op));
    bench.settle();
    bench.append(prepare(1, op, 3_000), Durability::Persisted);
    bench.settle();
    assert_eq!(ops(&bench.recovered(), 2), [1]);
}

#[test]
fn one_stuck_log_does_not_stop_its_neighbours() {
    let mut bench = Bench::new();
    bench.append(prepare(2, 1, 500), Durability::Persisted);
    bench.append(view(2, 9), Durability::Persisted);
    bench.append(prepare(2, 2, 500), Durability::Persisted);
    for op in 1..=400 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
        bench.journal.release(LogId(1), Op(op.saturating_sub(5)));
        bench.settle();
    }
    assert!(bench.journal.usage().records_carried > 0);
    let recovered = bench.recovered();
    let kinds: Vec<(RecordKind, u64)> =
        recovered.logs[&LogId(2)].records.iter().map(|r| (r.record.kind, r.record.op.0)).collect();
    let expected = [(RecordKind::Prepare, 1), (RecordKind::ViewState, 0), (RecordKind::Prepare, 2)];
    assert_eq!(kinds, expected, "copies take the places of their originals, once");
    let location = bench.journal.locate(LogId(2), Op(2)).unwrap();
    let bytes =
        crate::disk::Disk::read(&mut bench.disk, &location.file, location.offset, location.bytes);
    let found = bench.journal.decode_located(&location, &bytes.unwrap());
    assert_eq!(found, Some(prepare(2, 2, 500)));
}

#[test]
fn of_state_records_only_the_newest_is_carried() {
    let mut bench = Bench::new();
    for number in 1..=5 {
        bench.append(view(2, number), Durability::Persisted);
        bench.settle();
    }
    for op in 1..=200 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
        bench.journal.release(LogId(1), Op(op.saturating_sub(5)));
        bench.settle();
    }
    let records = &bench.recovered().logs[&LogId(2)].records;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].record, view(2, 5));
}

#[test]
fn a_record_can_be_found_and_read_back_until_its_file_is_reused() {
    let mut bench = Bench::new();
    bench.append(prepare(1, 1, 500), Durability::Persisted);
    assert_eq!(bench.journal.locate(LogId(1), Op(1)), None, "not written yet");
    bench.settle();
    let location = bench.journal.locate(LogId(1), Op(1)).unwrap();
    let read = |bench: &mut Bench| {
        let disk: &mut dyn crate::disk::Disk = &mut bench.disk;
        let bytes = disk.read(&location.file, location.offset, location.bytes).unwrap();
        bench.journal.decode_located(&location, &bytes)
    };
    assert_eq!(read(&mut bench), Some(prepare(1, 1, 500)));
    for op in 2..=300 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
        bench.journal.release(LogId(1), Op(op));
    }
    assert_eq!(bench.journal.locate(LogId(1), Op(1)), None);
    assert_eq!(read(&mut bench), None, "another record lies there now");
}

#[test]
fn a_record_longer_than_a_file_is_refused_by_name() {
    let mut bench = Bench::new();
    bench.settle();
    let max = bench.journal.record_bytes_max() as usize;
    let class = RecordClass::Reserved;
    let error = bench.journal.append(prepare(1, 1, max), Durability::Persisted, class);
    assert!(matches!(error, Err(AppendError::TooLarge { .. })));
    bench.journal.append(prepare(1, 1, max - 8), Durability::Persisted, class).unwrap();
    bench.settle();
    assert_eq!(ops(&bench.recovered(), 1), [1]);
}

#[test]
fn a_disk_that_refuses_spares_does_not_stop_the_journal() {
    let mut bench = Bench::new();
    bench.disk.set_capacity(Some(4 * 4_096 + 3 * OPTIONS.file_bytes));
    for op in 1..=200 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
        bench.journal.release(LogId(1), Op(op));
        bench.settle();
    }
    assert!(bench.journal.usage().spares_refused > 0);
    assert_eq!(ops(&bench.recovered(), 1).last(), Some(&200));
}
