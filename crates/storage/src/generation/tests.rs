//! Formatting and beginning generations, on whole, full and failing disks.

use super::*;
use crate::bench::{Bench, OPTIONS, formatted, ops, prepare};
use crate::disk::DiskOperation;
use crate::journal::{RecordClass, RecordKind};
use crate::recovery::{RecoveryError, recover};
use crate::sim_disk::{Fault, SimDisk};
use borzoi_types::{Durability, Op};
use bytes::Bytes;

fn options(shards: u16, journal: JournalOptions, salt_seed: u64) -> GenerationOptions {
    GenerationOptions { shards, journal, must_learn: BTreeSet::new(), salt_seed }
}

/// What a start would carry: everything, dealt to `shards` shards.
fn everything(recovered: &Recovered, shards: u16) -> Vec<Vec<JournalRecord>> {
    let mut carried = vec![Vec::new(); usize::from(shards)];
    for (log, found) in &recovered.logs {
        let records = found.records.iter().map(|found| found.record.clone());
        carried[usize::from(log.shard(shards).get())].extend(records);
    }
    carried
}

fn restart(disk: &mut SimDisk, shards: u16, journal: JournalOptions, seed: u64) -> Begun {
    let recovered = recover(disk).unwrap();
    let carried = everything(&recovered, shards);
    begin_generation(disk, &recovered, &options(shards, journal, seed), carried).unwrap()
}

#[test]
fn a_directory_is_formatted_once() {
    let mut disk = formatted(1);
    let again = FormatOptions {
        cluster: ClusterId(8),
        replica: ReplicaId(0),
        replica_count: 1,
        lanes_persisted: 1,
        lanes_replicated: 1,
        must_learn: BTreeSet::new(),
    };
    assert_eq!(format(&mut disk, &again), Err(FormatError::AlreadyFormatted));
    assert_eq!(recover(&mut disk).unwrap().superblock.cluster, ClusterId(7));
    let mut foreign = SimDisk::default();
    foreign.add_stray(crate::disk::Directory::Root, "thesis.tex");
    let example = "thesis.tex".to_owned();
    assert_eq!(format(&mut foreign, &again), Err(FormatError::Foreign { example }));
}

#[test]
fn a_crash_while_formatting_leaves_a_directory_that_can_be_formatted() {
    let whole = formatted(1);
    for step in 0..whole.steps() {
        let mut disk = SimDisk::default();
        disk.crash_before(step);
        let options = FormatOptions {
            cluster: ClusterId(7),
            replica: ReplicaId(0),
            replica_count: 1,
            lanes_persisted: 1,
            lanes_replicated: 1,
            must_learn: [LogId(1)].into(),
        };
        assert!(format(&mut disk, &options).is_err());
        for mut image in [disk.kill(), disk.power_cut(|_| crate::sim_disk::Fate::Lost)] {
            match recover(&mut image) {
                Ok(recovered) => assert_eq!(recovered.superblock.must_learn, [LogId(1)].into()),
                Err(error) => {
                    assert_eq!(error, RecoveryError::NotFormatted, "step {step}");
                    format(&mut image, &options).unwrap();
                }
            }
        }
    }
}

#[test]
fn every_start_begins_a_generation_and_keeps_everything_with_any_number_of_shards() {
    let mut bench = Bench::new();
    bench.settle();
    for op in 1..=5 {
        for log in 0..4 {
            bench.append(prepare(log, op, 700), Durability::Persisted);
        }
        bench.settle();
    }
    let mut disk = bench.disk.kill();
    for (number, shards) in [1, 2, 4, 3, 1].into_iter().enumerate() {
        let begun = restart(&mut disk, shards, OPTIONS, number as u64);
        assert_eq!(begun.journals.len(), usize::from(shards));
        assert_eq!(begun.superblock.generation, 2 + number as u64);
        let recovered = recover(&mut disk).unwrap();
        for log in 0..4 {
            assert_eq!(ops(&recovered, log), [1, 2, 3, 4, 5]);
        }
        let proved = |log: &crate::recovery::RecoveredLog| log.records.iter().all(|r| r.below_mark);
        assert!(recovered.logs.values().all(proved), "a start leaves everything below the mark");
        assert!(recovered.trusted && recovered.findings.is_empty());
    }
}

#[test]
fn a_full_disk_can_start_with_a_journal_as_full_as_it_gets() {
    for shards in [1, 2] {
        let mut bench = Bench::new();
        // Room for the spares of two live files and nothing more.
        bench.disk.set_capacity(Some(4 * 4_096 + 4 * OPTIONS.file_bytes));
        bench.settle();
        let mut op = 0;
        loop {
            op += 1;
            let record = prepare(1 + (op % 2) as u32, op / 2 + 1, 3_000);
            if bench.journal.append(record, Durability::Persisted, RecordClass::Reserved).is_err() {
                break;
            }
            bench.settle();
        }
        assert!(op > 20 && bench.journal.usage().spares_refused > 0);
        let mut disk = bench.disk.kill();
        let before = recover(&mut disk).unwrap();
        restart(&mut disk, shards, OPTIONS, 9);
        let after = recover(&mut disk).unwrap();
        assert_eq!((ops(&before, 1), ops(&before, 2)), (ops(&after, 1), ops(&after, 2)));
    }
}

#[test]
fn when_even_the_spares_do_not_suffice_the_error_says_so_and_nothing_is_lost() {
    let mut bench = Bench::new();
    bench.disk.set_capacity(Some(4 * 4_096 + 2 * OPTIONS.file_bytes));
    bench.settle();
    bench.append(prepare(1, 1, 100), Durability::Persisted);
    bench.settle();
    let mut disk = bench.disk.kill();
    let recovered = recover(&mut disk).unwrap();
    let carried = everything(&recovered, 3);
    let error = begin_generation(&mut disk, &recovered, &options(3, OPTIONS, 1), carried);
    let Err(GenerationError::Disk(error)) = error else { panic!() };
    assert_eq!(error.kind, DiskErrorKind::NoSpace);
    assert_eq!(ops(&recover(&mut disk).unwrap(), 1), [1]);
    restart(&mut disk, 1, OPTIONS, 2);
    assert_eq!(ops(&recover(&mut disk).unwrap(), 1), [1]);
}

#[test]
fn the_size_of_journal_files_may_change_at_a_restart() {
    let mut bench = Bench::new();
    bench.settle();
    for op in 1..=10 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
    }
    bench.settle();
    let mut disk = bench.disk.kill();
    let expected: Vec<u64> = (1..=10).collect();
    for (number, file_bytes) in [64 * 1024, 256 * 1024, 128 * 1024].into_iter().enumerate() {
        restart(&mut disk, 1, JournalOptions { file_bytes, files_max: 3 }, number as u64);
        let recovered = recover(&mut disk).unwrap();
        assert_eq!(ops(&recovered, 1), expected);
        assert!(recovered.slots.values().all(|bytes| *bytes == file_bytes), "others are removed");
    }
    let recovered = recover(&mut disk).unwrap();
    let tiny = JournalOptions { file_bytes: 40 * 1024, files_max: 3 };
    let large = vec![vec![prepare(1, 11, 60_000)]];
    let error = begin_generation(&mut disk, &recovered, &options(1, tiny, 3), large);
    assert!(matches!(error, Err(GenerationError::RecordTooLarge { .. })));
}

#[test]
fn the_flags_are_in_the_same_write_as_the_new_boot() {
    let mut bench = Bench::of(3, OPTIONS);
    bench.settle();
    let mut disk = bench.disk.kill();
    let identity = crate::disk::DiskIdentity { boot_id: Some([5; 16]), device: 8, inode: 9 };
    disk.set_identity(identity);
    let recovered = recover(&mut disk).unwrap();
    assert!(!recovered.trusted);
    let mut wanted = options(1, OPTIONS, 4);
    wanted.must_learn = [LogId(0), LogId(2)].into();
    let mut checked = 0;
    let whole = {
        let mut disk = disk.kill();
        begin_generation(&mut disk, &recovered, &wanted, vec![vec![]]).unwrap();
        disk.steps()
    };
    for step in disk.steps()..whole {
        let mut crashed = disk.kill();
        crashed.crash_before(step);
        begin_generation(&mut crashed, &recovered, &wanted, vec![vec![]]).unwrap_err();
        let found = recover(&mut crashed.kill()).unwrap();
        let switched = found.superblock.generation == 2;
        assert_eq!(found.superblock.must_learn.len(), if switched { 2 } else { 0 });
        assert_eq!(found.trusted, switched, "trusted only with the flags in place");
        checked += u32::from(switched);
    }
    assert!(checked > 0);
}

#[test]
fn what_a_solo_node_cut_off_is_kept_aside_unless_the_disk_is_full() {
    for full in [false, true] {
        let mut bench = Bench::new();
        bench.settle();
        bench.append(prepare(1, 1, 100), Durability::Persisted);
        let block = bench.journal.usage().bytes_used / 4_096;
        let submissions = bench.drive();
        bench.run(&submissions[0]);
        let mut disk = bench.disk.power_cut(|item| match item.what {
            crate::sim_disk::UnsyncedWhat::Block(b) if b == block => crate::sim_disk::Fate::Lost,
            _ => crate::sim_disk::Fate::Kept,
        });
        if full {
            let kind = DiskErrorKind::NoSpace;
            let operation = DiskOperation::Replace;
            disk.inject(Fault { operation, file: None, after: 0, kind, lasting: true });
        }
        let recovered = recover(&mut disk).unwrap();
        let (aside, bytes) = recovered.aside[0].clone();
        let begun = restart(&mut disk, 1, OPTIONS, 6);
        assert_eq!(begun.aside_lost.len(), usize::from(full));
        if !full {
            assert_eq!(disk.read(&aside, 0, 1 << 20).unwrap(), bytes);
        }
    }
}

#[test]
fn interrupted_replacements_are_removed_after_the_switch() {
    let mut bench = Bench::new();
    let checkpoint = FileName::Checkpoint { log: LogId(1), op: Op(5) };
    let beside = FileName::Unfinished(Box::new(checkpoint));
    bench.disk.write(&beside, 0, &[Bytes::from(vec![1; 4_096])]).unwrap();
    let mut disk = bench.disk.kill();
    restart(&mut disk, 1, OPTIONS, 6);
    assert_eq!(disk.len(&beside).unwrap(), None);
}

#[test]
fn a_read_only_disk_stops_a_start_by_name_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.settle();
    let mut disk = bench.disk.kill();
    let (kind, operation) = (DiskErrorKind::ReadOnly, DiskOperation::Write);
    disk.inject(Fault { operation, file: None, after: 0, kind, lasting: true });
    let recovered = recover(&mut disk).unwrap();
    let error = begin_generation(&mut disk, &recovered, &options(1, OPTIONS, 1), vec![vec![]]);
    let Err(GenerationError::Disk(error)) = error else { panic!() };
    assert_eq!(error.kind, DiskErrorKind::ReadOnly);
    assert_eq!(error.file, Some(FileName::Superblock));
}

#[test]
fn carried_state_records_and_their_order_survive() {
    let mut bench = Bench::new();
    bench.settle();
    bench.append(crate::bench::view(1, 3), Durability::Persisted);
    bench.append(prepare(1, 1, 10), Durability::Persisted);
    bench.settle();
    let mut disk = bench.disk.kill();
    restart(&mut disk, 2, OPTIONS, 1);
    let records = recover(&mut disk).unwrap().logs.remove(&LogId(1)).unwrap().records;
    let kinds: Vec<RecordKind> = records.iter().map(|found| found.record.kind).collect();
    assert_eq!(kinds, [RecordKind::ViewState, RecordKind::Prepare]);
}

/// Found by the crash test: a trailer said that a file was not needed, the process was killed
/// before the flush, the next start read the trailer, overwrote the file, and lost power before it
/// had switched. The trailer was gone, so the file was needed again: the node refused to start.
/// Now a start makes durable what it has read before it overwrites anything because of it.
#[test]
fn a_file_is_not_overwritten_because_of_a_trailer_that_a_power_loss_may_take_back() {
    let journal = JournalOptions { file_bytes: 64 * 1024, files_max: 6 };
    let mut bench = Bench::with(journal);
    bench.settle();
    for op in 1..=24 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
    }
    bench.journal.release(LogId(1), Op(20));
    let write = bench.drive().remove(0);
    bench.run(&write);
    let disk = bench.disk.kill();
    assert!(recover(&mut disk.kill()).unwrap().oldest_files[0] > 0, "the trailer is read");
    let whole = {
        let mut disk = disk.kill();
        restart(&mut disk, 1, journal, 9);
        disk.steps()
    };
    for step in disk.steps()..whole {
        let mut crashed = disk.kill();
        crashed.crash_before(step);
        let recovered = recover(&mut crashed).unwrap();
        let carried = everything(&recovered, 1);
        begin_generation(&mut crashed, &recovered, &options(1, journal, 9), carried).unwrap_err();
        let mut image = crashed.power_cut(|_| crate::sim_disk::Fate::Lost);
        let found = recover(&mut image).unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(ops(&found, 1).ends_with(&[21, 22, 23, 24]), "step {step}");
    }
}
