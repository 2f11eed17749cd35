//! Where chunks and segments end, what goes when, and what it costs.

use crate::support::{Bench, KEY, offsets};
use borzoi_storage::disk::{
    DiskError, DiskErrorKind, DiskOperation, DiskOutcome, DiskRequest, FileName, Submission,
    execute,
};
use borzoi_storage::partition::{FlushError, PartitionLog, ReadStart};
use borzoi_storage::segment::chunk::chunk_bytes;
use borzoi_types::limits::{
    SEGMENT_CHUNK_BYTES_MIN, SEGMENT_CHUNK_BYTES_SPREAD, SEGMENT_WRITES_IN_FLIGHT_MAX,
};
use borzoi_types::{Micros, Offset, PartitionKey};

/// A batch of one message that is `bytes` long in all.
fn sized(bench: &mut Bench, bytes: usize) {
    bench.append(1, &[bytes - 256 - 48]);
}

#[test]
fn an_idle_partition_costs_less_than_a_kibibyte_and_no_file() {
    let mut bench = Bench::new(1 << 30);
    assert!(bench.log.memory_bytes() < 512, "{}", bench.log.memory_bytes());
    bench.append(1, &[200]);
    assert!(bench.log.memory_bytes() < 2_048, "{}", bench.log.memory_bytes());
    bench.settle().unwrap();
    assert!(bench.disk.names().is_empty(), "a small tail is in no file");
}

#[test]
fn a_small_batch_does_not_keep_the_buffer_it_arrived_in() {
    let mut bench = Bench::new(1 << 30);
    let batch = crate::support::batch(Offset(0), Micros(1), &[100]);
    let mut large = batch.to_vec();
    large.resize(1 << 20, 0);
    let large = bytes::Bytes::from(large);
    bench.log.append(large.slice(..batch.len()), Offset(0), 1, Micros(1));
    assert!(large.is_unique());
}

#[test]
fn a_chunk_closes_at_the_batch_that_reaches_its_size_and_not_before() {
    let mut bench = Bench::new(1 << 30);
    sized(&mut bench, chunk_bytes(KEY) - 400);
    assert_eq!(bench.log.waiting_bytes(), 0);
    bench.append(1, &[95]);
    assert_eq!(bench.log.waiting_bytes(), 0, "one byte short");
    let mut bench = Bench::new(1 << 30);
    sized(&mut bench, chunk_bytes(KEY) - 400);
    bench.append(1, &[96]);
    assert_eq!(bench.log.waiting_bytes(), chunk_bytes(KEY));
}

#[test]
fn chunk_sizes_of_partitions_created_together_are_spread_evenly() {
    let mut tenths = [0u32; 10];
    for key in 1..=10_000 {
        let bytes = chunk_bytes(PartitionKey(key));
        assert!(bytes >= SEGMENT_CHUNK_BYTES_MIN, "indexes and scans rely on it");
        tenths[(bytes - SEGMENT_CHUNK_BYTES_MIN) * 10 / SEGMENT_CHUNK_BYTES_SPREAD] += 1;
    }
    assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
}

#[test]
fn a_segment_closes_at_the_batch_that_reaches_its_size() {
    let mut bench = Bench::new(10_000);
    sized(&mut bench, 9_999);
    assert_eq!(bench.log.counters().segments, 1);
    sized(&mut bench, 400);
    assert_eq!(bench.log.counters().segments, 2);
    assert_eq!(bench.log.closed_segments()[0].bytes, 10_399, "a batch is never split");
    assert_eq!(bench.log.active_segment().base, Offset(2));
    assert_eq!(bench.log.counters().bytes, 10_399);
}

#[test]
fn a_jump_closes_a_segment_with_content_and_renames_one_without() {
    let mut bench = Bench::new(1 << 30);
    bench.log.jump_to(Offset(17));
    assert_eq!(bench.log.counters().segments, 1);
    bench.append(1, &[100; 2]);
    bench.log.jump_to(Offset(40));
    bench.log.jump_to(Offset(60));
    bench.log.jump_to(Offset(60));
    bench.append(2, &[100]);
    bench.settle().unwrap();
    let bases: Vec<u64> = bench.log.closed_segments().iter().map(|s| s.base.0).collect();
    assert_eq!(bases, [17], "the one without content left nothing");
    assert_eq!(bench.log.active_segment().base, Offset(60));
    let segments = bench.disk.names().into_iter();
    let segments: Vec<_> = segments.filter(|n| matches!(n, FileName::Segment { .. })).collect();
    assert_eq!(segments, [FileName::Segment { key: KEY, base: Offset(17) }]);
}

#[test]
#[should_panic(expected = "offsets are handed out once")]
fn an_offset_that_was_handed_out_is_refused() {
    let mut bench = Bench::new(1 << 30);
    bench.append(1, &[1]);
    let again = crate::support::batch(Offset(0), Micros(1), &[1]);
    bench.log.append(again, Offset(0), 1, Micros(1));
}

#[test]
fn only_closed_segments_go_and_only_below_what_consumers_have_read() {
    let mut bench = Bench::new(1);
    for time in 0..5 {
        bench.append(time, &[10]);
    }
    assert_eq!(bench.log.closed_segments().len(), 5);
    assert_eq!(bench.log.delete_oldest(&mut bench.cache, 0, None), 0);
    assert_eq!(bench.log.delete_oldest(&mut bench.cache, 9, Some(Offset(1))), 2);
    assert_eq!(bench.log.first_offset(), Offset(2));
    assert_eq!(bench.log.delete_oldest(&mut bench.cache, 1, None), 1);
    assert_eq!(bench.log.truncate_before(&mut bench.cache, Offset(3)), 0);
    assert_eq!(bench.log.truncate_before(&mut bench.cache, Offset(u64::MAX)), 2);
    assert_eq!(bench.log.counters().messages, 0);
    assert_eq!(bench.log.next_offset(), Offset(5), "offsets never renumber");
    assert_eq!(bench.log.first_offset(), Offset(5));
    bench.append(9, &[10]);
    assert_eq!(offsets(&bench.read(ReadStart::First, 9, 1 << 20).unwrap()), [5]);
}

#[test]
fn retention_cuts_by_time_by_size_and_never_above_the_barrier() {
    let mut bench = Bench::new(1);
    for time in [10, 20, 30, 40] {
        bench.append(time, &[696]);
    }
    let cut = |barrier: Option<u64>, before: Option<u64>, bytes, segments| {
        let barrier = barrier.map(Offset);
        bench.log.retention_cut(barrier, before.map(Micros), bytes, segments).map(Offset::get)
    };
    assert_eq!(cut(None, None, None, 16), None);
    assert_eq!(cut(None, Some(31), None, 16), Some(3));
    assert_eq!(cut(None, Some(31), None, 2), Some(2));
    assert_eq!(cut(None, None, Some(2_000), 16), Some(2));
    assert_eq!(cut(None, None, Some(4_000), 16), None);
    assert_eq!(cut(None, Some(11), Some(2_000), 16), Some(2), "either reason is enough");
    assert_eq!(cut(Some(0), Some(31), None, 16), Some(1));
    assert_eq!(cut(Some(u64::MAX), Some(31), None, 16), Some(3));
    assert_eq!(cut(None, Some(5), None, 16), None);
}

#[test]
fn files_go_only_when_a_checkpoint_that_does_not_name_them_is_durable() {
    let mut bench = Bench::new(1);
    for time in 0..3 {
        bench.append(time, &[10]);
    }
    bench.settle().unwrap();
    let (_, before) = bench.log.begin_checkpoint();
    bench.log.truncate_before(&mut bench.cache, Offset(2));
    bench.finish(&before).unwrap();
    let file = |base| FileName::Segment { key: KEY, base: Offset(base) };
    assert!(bench.disk.names().contains(&file(0)), "that checkpoint names it");
    let (state, after) = bench.log.begin_checkpoint();
    assert_eq!(state.closed.len(), 1);
    bench.finish(&after).unwrap();
    let names = bench.disk.names();
    assert_eq!(names.len(), 2, "segment and index of the one that is left: {names:?}");
    assert!(names.contains(&file(2)));
}

#[test]
fn a_removed_partition_keeps_its_files_until_the_next_checkpoint_and_then_leaves_none() {
    let mut bench = Bench::new(100_000);
    for time in 0..7 {
        bench.append(time, &[40_000]);
    }
    bench.flush().unwrap();
    let (_, under_way) = bench.log.begin_checkpoint();
    bench.log.retire_all(&mut bench.cache);
    assert_eq!(bench.log.counters().messages, 0);
    assert!(!bench.log.is_removed());
    // The checkpoint under way names the files: its conditions are still met.
    while !bench.log.checkpoint_ready(&under_way) {
        bench.flush().unwrap();
        bench.sync().unwrap();
    }
    bench.finish(&under_way).unwrap();
    assert!(!bench.disk.names().is_empty());
    let (_, next) = bench.log.begin_checkpoint();
    assert!(bench.log.checkpoint_ready(&next));
    bench.finish(&next).unwrap();
    bench.settle().unwrap();
    assert!(bench.log.is_removed());
    assert!(bench.disk.names().is_empty(), "{:?}", bench.disk.names());
}

/// A removed partition once waited for a flush that nobody had a reason to ask for, because an
/// index file of a segment that was gone was still wanted: its lane kept it for ever.
#[test]
fn a_removed_partition_does_not_wait_for_an_index_file_that_nobody_needs() {
    let mut bench = Bench::new(1_000);
    bench.append(1, &[2_000]);
    bench.flush().unwrap();
    bench.sync().unwrap();
    assert!(bench.log.wants_flush(), "the index file is due");
    bench.log.retire_all(&mut bench.cache);
    assert!(!bench.log.wants_flush());
    let (_, work) = bench.log.begin_checkpoint();
    bench.finish(&work).unwrap();
    assert!(bench.log.is_removed());
}

/// On a full disk a deleted topic once freed nothing: its own chunks waited for space, and the
/// checkpoint that would have removed its files waited for them.
#[test]
fn a_removed_partition_drops_what_waits_for_space_and_its_files_go_with_the_next_checkpoint() {
    for in_flight in [false, true] {
        let mut bench = Bench::new(100_000);
        bench.append(1, &[70_000]);
        bench.settle().unwrap();
        let (_, durable) = bench.log.begin_checkpoint();
        bench.finish(&durable).unwrap();
        assert_eq!(bench.disk.names().len(), 1);
        bench.disk.full = true;
        for time in 2..12 {
            bench.append(time, &[70_000]);
        }
        let (_, under_way) = bench.log.begin_checkpoint();
        let tickets = bench.log.flush(&mut bench.cache, 0, &mut bench.out);
        if !in_flight {
            assert!(bench.execute(&tickets).is_err(), "full");
        }
        assert!(bench.log.unwritten_bytes() >= 700_000);
        bench.log.retire_all(&mut bench.cache);
        assert!(bench.log.voids_checkpoint(&under_way), "it names what was dropped");
        assert!(!bench.log.checkpoint_ready(&under_way));
        let (_, next) = bench.log.begin_checkpoint();
        assert!(!bench.log.voids_checkpoint(&next) && !bench.log.wants_flush());
        if in_flight {
            // What was on its way finds no space either, and nobody tries it again.
            bench.execute(&tickets).unwrap();
        }
        assert_eq!(bench.log.unwritten_bytes(), 0);
        assert!(bench.log.checkpoint_ready(&next));
        bench.finish(&next).unwrap();
        assert!(bench.log.is_removed());
        assert!(bench.disk.names().is_empty(), "{:?}", bench.disk.names());
    }
}

#[test]
fn a_removed_partition_without_files_is_removed_at_once() {
    let mut bench = Bench::new(100_000);
    bench.append(1, &[10]);
    bench.log.retire_all(&mut bench.cache);
    assert!(bench.log.is_removed());
}

#[test]
fn adjacent_chunks_share_a_write_and_writes_in_flight_are_bounded() {
    let mut bench = Bench::new(1 << 30);
    for time in 0..16 {
        bench.append(time, &[70_000]);
    }
    assert!(bench.log.flush(&mut bench.cache, 2 << 20, &mut bench.out).is_empty(), "too little");
    let tickets = bench.log.flush(&mut bench.cache, 1 << 20, &mut bench.out);
    assert_eq!(tickets.len(), 1, "sixteen chunks in one write");
    bench.execute(&tickets).unwrap();
    for time in 0..200 {
        bench.append(time, &[1 << 20; 2]);
    }
    let tickets = bench.log.flush(&mut bench.cache, 0, &mut bench.out);
    assert_eq!(tickets.len(), SEGMENT_WRITES_IN_FLIGHT_MAX);
    assert!(bench.log.flush(&mut bench.cache, 0, &mut bench.out).is_empty());
    bench.execute(&tickets).unwrap();
}

/// Three segments, each with one write in flight.
fn three_writes() -> (Bench, Vec<Submission>) {
    let mut bench = Bench::new(70_000);
    for time in 0..3 {
        bench.append(time, &[70_000]);
    }
    let tickets = bench.log.flush(&mut bench.cache, 0, &mut bench.out);
    assert_eq!(tickets.len(), 3);
    let submissions: Vec<_> = bench.out.drain().collect();
    (bench, submissions)
}

#[test]
fn results_may_come_back_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (mut bench, submissions) = three_writes();
        let (_, work) = bench.log.begin_checkpoint();
        for (done, at) in order.into_iter().enumerate() {
            let submission = &submissions[at];
            let result = execute(&mut bench.disk, &submission.request);
            bench.log.complete(&mut bench.cache, submission.ticket, &result).unwrap();
            assert!(!bench.log.checkpoint_ready(&work), "written is not durable");
            let read = bench.read(ReadStart::First, 9, 1 << 20).unwrap();
            assert_eq!(offsets(&read), [0, 1, 2], "{order:?} after {done}");
        }
        let tickets = bench.log.sync(&mut bench.out);
        assert_eq!(tickets.len(), 3, "one per file");
        let mut syncs: Vec<_> = bench.out.drain().collect();
        syncs.rotate_left(order[0]);
        for (done, sync) in syncs.iter().enumerate() {
            let result = execute(&mut bench.disk, &sync.request);
            bench.log.complete(&mut bench.cache, sync.ticket, &result).unwrap();
            assert_eq!(bench.log.checkpoint_ready(&work), done == 2);
        }
        bench.settle().unwrap();
        assert!(!bench.log.is_flushing());
    }
}

#[test]
fn what_is_written_while_a_sync_is_in_flight_is_not_durable_by_it() {
    let mut bench = Bench::new(1 << 30);
    bench.append(1, &[70_000]);
    bench.flush().unwrap();
    let first = bench.log.sync(&mut bench.out);
    let submissions: Vec<_> = bench.out.drain().collect();
    let result = execute(&mut bench.disk, &submissions[0].request);
    bench.append(2, &[70_000]);
    let (_, work) = bench.log.begin_checkpoint();
    bench.flush().unwrap();
    bench.log.complete(&mut bench.cache, first[0], &result).unwrap();
    assert!(!bench.log.checkpoint_ready(&work));
    bench.sync().unwrap();
    assert!(bench.log.checkpoint_ready(&work));
}

#[test]
fn a_failed_sync_and_a_failed_write_end_the_process_but_no_space_does_not() {
    let failure = |kind| {
        let file = FileName::Segment { key: KEY, base: Offset(0) };
        Err(DiskError::new(DiskOperation::Write, &file, kind, ""))
    };
    let (mut bench, writes) = three_writes();
    let mut complete =
        |at: usize, result| bench.log.complete(&mut bench.cache, writes[at].ticket, &result);
    assert!(matches!(complete(0, failure(DiskErrorKind::NoSpace)), Err(FlushError::Retry(_))));
    assert!(matches!(complete(1, failure(DiskErrorKind::Io)), Err(FlushError::Fatal(_))));
    assert!(complete(2, Ok(DiskOutcome::Done)).is_ok());
    let again = bench.log.flush(&mut bench.cache, 0, &mut bench.out);
    assert!(!again.is_empty());
    let retried: Vec<DiskRequest> = bench.out.drain().map(|s| s.request).collect();
    assert!(retried.contains(&writes[0].request), "the same bytes to the same place");

    let mut bench = Bench::new(1 << 30);
    bench.append(1, &[70_000]);
    bench.flush().unwrap();
    let sync = bench.log.sync(&mut bench.out);
    let failed = failure(DiskErrorKind::NoSpace);
    let error = bench.log.complete(&mut bench.cache, sync[0], &failed).unwrap_err();
    assert!(matches!(error, FlushError::Fatal(_)), "a failed sync is never tried again");
}

#[test]
fn a_cache_within_a_small_budget_changes_no_answer() {
    let options =
        borzoi_storage::cache::CacheOptions { chunk_bytes_max: 150_000, index_bytes_max: 1 };
    let mut bench = Bench::with_cache(300_000, options);
    for time in 0..20 {
        bench.append(time, &[70_000]);
    }
    bench.settle().unwrap();
    for _ in 0..3 {
        for from in 0..20 {
            let read = bench.read(ReadStart::Offset(Offset(from)), 1, 1 << 20).unwrap();
            assert_eq!(offsets(&read), [from]);
        }
    }
    let (chunks, _) = bench.cache.bytes();
    assert!(chunks <= 150_000);
    assert!(bench.cache.counters().evictions > 0);
}

#[test]
fn a_tailing_reader_never_touches_the_disk() {
    let mut bench = Bench::new(400_000);
    for time in 0..40 {
        let from = bench.log.next_offset();
        bench.append(time, &[30_000]);
        if time % 3 == 0 {
            bench.settle().unwrap();
        }
        let plan = bench.log.plan_read(&mut bench.cache, ReadStart::Offset(from), 10, 1 << 20);
        assert!(
            matches!(plan, Ok(borzoi_storage::partition::ReadPlan::Ready(o)) if o.messages == 1)
        );
    }
}

#[test]
fn a_restored_partition_goes_on_where_the_checkpoint_ends() {
    let mut bench = Bench::new(200_000);
    for time in 0..8 {
        bench.append(time, &[30_000]);
    }
    let (state, work) = bench.log.begin_checkpoint();
    bench.settle().unwrap();
    assert!(bench.log.checkpoint_ready(&work));
    let mut restored = PartitionLog::restore(&state).unwrap();
    assert_eq!(restored.counters(), bench.log.counters());
    assert_eq!(restored.begin_checkpoint().0, state);
    for time in 8..20 {
        let base = restored.next_offset();
        let batch = crate::support::batch(base, Micros(time), &[30_000]);
        let ours = restored.append(batch.clone(), base, 1, Micros(time));
        assert_eq!(ours, bench.log.append(batch, base, 1, Micros(time)), "the same cuts");
    }
    assert_eq!(restored.closed_segments(), bench.log.closed_segments());
}
