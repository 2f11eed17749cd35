//! Recovery of damaged, foreign and interrupted directories. The crash test over all steps is in
//! `tests/crash.rs`.

use super::*;
use crate::bench::{Bench, OPTIONS, formatted, ops, prepare};
use crate::checkpoint::Checkpoint;
use crate::disk::DiskErrorKind;
use crate::disk::DiskOperation;
use crate::journal::JournalOptions;
use crate::sim_disk::{Fate, Fault, SimDisk, UnsyncedWhat};
use borzoi_types::Durability;

const BLOCK: u64 = DISK_ALIGNMENT as u64;

/// Three durable records of log 1 in slot 0, each in a group of its own: blocks 2 (an empty
/// group), 3 and 4, then 5 (the mark), 6 and 7, and so on.
fn three_at_rest(replica_count: u8) -> Bench {
    let mut bench = Bench::of(replica_count, OPTIONS);
    bench.settle();
    for op in 1..=3 {
        bench.append(prepare(1, op, 100), Durability::Persisted);
        bench.settle();
    }
    bench
}

fn slot_of(bench: &Bench, op: u64) -> (FileName, u64) {
    let location = bench.journal.locate(LogId(1), Op(op)).unwrap();
    (location.file, location.offset)
}

/// One record written after the last mark, its trailer too, and neither flushed; then a power cut
/// that keeps everything but what `lost` says of (file, block).
fn cut(bench: &mut Bench, lost: impl Fn(u64) -> bool) -> SimDisk {
    let write = bench.drive().remove(0);
    bench.run(&write);
    bench.disk.power_cut(|item| match item.what {
        UnsyncedWhat::Block(block) if lost(block) => Fate::Lost,
        _ => Fate::Kept,
    })
}

#[test]
fn an_empty_directory_is_not_formatted_and_a_stray_file_makes_it_foreign() {
    let mut disk = SimDisk::default();
    assert_eq!(recover(&mut disk).unwrap_err(), RecoveryError::NotFormatted);
    disk.add_stray(Directory::Root, "holiday.jpg");
    let example = "holiday.jpg".to_owned();
    assert_eq!(recover(&mut disk).unwrap_err(), RecoveryError::Foreign { example });
}

#[test]
fn data_without_a_superblock_is_not_taken_for_a_new_directory() {
    let mut disk = SimDisk::default();
    disk.create_zeroed(&FileName::Journal(3), 8 * BLOCK).unwrap();
    let error = recover(&mut disk).unwrap_err();
    assert_eq!(error, RecoveryError::SuperblockMissing { example: FileName::Journal(3) });
    let text = error.to_string();
    for part in ["superblock is missing", "journal/00000003.journal", "from a backup"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn another_programs_superblock_is_foreign_and_another_version_is_named() {
    let mut disk = formatted(1);
    disk.durable_replace(&FileName::Superblock, &[Bytes::from(vec![7; 16_384])]).unwrap();
    let example = "superblock".to_owned();
    assert_eq!(recover(&mut disk).unwrap_err(), RecoveryError::Foreign { example });

    let mut disk = formatted(1);
    for copy in 0..4 {
        assert!(disk.flip_bit(&FileName::Superblock, copy * BLOCK + 8, 3));
    }
    let (file, found) = (FileName::Superblock, SUPERBLOCK_VERSION ^ 8);
    let version = RecoveryError::Version { file, found, supported: SUPERBLOCK_VERSION };
    assert_eq!(recover(&mut disk).unwrap_err(), version);
}

#[test]
fn two_damaged_copies_of_the_superblock_are_reported_and_three_are_fatal() {
    let mut bench = three_at_rest(1);
    for copy in 0..3 {
        bench.disk.fill_block(&FileName::Superblock, copy * BLOCK, 0);
        match recover(&mut bench.disk) {
            Ok(recovered) => {
                assert_eq!(recovered.findings.len() as u64, copy + 1);
                assert_eq!(ops(&recovered, 1), [1, 2, 3]);
            }
            Err(error) => {
                assert_eq!(copy, 2);
                assert_eq!(error, RecoveryError::SuperblockDamaged { intact: 1, copies: 4 });
                assert!(error.to_string().contains("put the file `superblock` back"), "{error}");
            }
        }
    }
}

#[test]
fn stray_files_are_reported_and_left_alone() {
    let mut bench = three_at_rest(1);
    bench.disk.add_stray(Directory::Journal, "core.1234");
    bench.disk.add_stray(Directory::Root, "notes");
    let recovered = recover(&mut bench.disk).unwrap();
    let strays = vec!["notes".to_owned(), "journal/core.1234".to_owned()];
    assert_eq!(recovered.findings, [Finding::Strays(strays)]);
}

#[test]
fn a_damaged_record_that_a_checkpoint_contains_is_reported_and_stops_nobody() {
    for replica_count in [1, 3] {
        let mut bench = three_at_rest(replica_count);
        let (file, offset) = slot_of(&bench, 2);
        bench.disk.flip_bit(&file, offset + 120, 5);
        let checkpoint = |op| Checkpoint {
            log: LogId(1),
            op: Op(op),
            prepare_checksum: 0,
            owner: borzoi_types::Body::empty(),
            partitions: Vec::new(),
        };
        let put = |disk: &mut SimDisk, op| {
            let at = checkpoint(op);
            disk.durable_replace(&at.file(), at.encode().parts()).unwrap();
        };
        // One that ends before the record does not help, nor does a damaged one.
        put(&mut bench.disk, 1);
        put(&mut bench.disk, 3);
        bench.disk.flip_bit(&checkpoint(3).file(), 130, 0);
        let covered = Finding::Covered { file: file.clone(), offset, log: LogId(1), op: Op(2) };
        match recover(&mut bench.disk) {
            Ok(recovered) => assert!(replica_count > 1 && !recovered.findings.contains(&covered)),
            Err(error) => assert!(replica_count == 1, "{error}"),
        }
        put(&mut bench.disk, 2);
        let recovered = recover(&mut bench.disk).unwrap();
        assert_eq!(recovered.findings, [covered]);
        assert_eq!(ops(&recovered, 1), [1, 3]);
        assert!(recovered.logs[&LogId(1)].faulty.is_empty(), "nothing is to be repaired");
    }
}

#[test]
fn an_error_of_the_disk_is_passed_on_as_it_is() {
    let mut bench = three_at_rest(1);
    let (operation, kind) = (DiskOperation::Read, DiskErrorKind::Io);
    bench.disk.inject(Fault { operation, file: None, after: 1, kind, lasting: true });
    let Err(RecoveryError::Disk(error)) = recover(&mut bench.disk) else { panic!() };
    assert_eq!((error.operation, error.kind), (operation, kind));
}

#[test]
fn a_solo_node_names_file_position_log_and_op_of_a_durable_record_that_is_damaged() {
    let mut bench = three_at_rest(1);
    let (file, offset) = slot_of(&bench, 2);
    bench.disk.flip_bit(&file, offset + 120, 5);
    let error = recover(&mut bench.disk).unwrap_err();
    let RecoveryError::Damaged { file: at_file, offset: at, named, .. } = &error else { panic!() };
    assert_eq!((at_file, *at, *named), (&file, offset, Some((LogId(1), Op(2)))));
    let text = error.to_string();
    assert!(text.contains("journal/00000000.journal") && text.contains("op 2"), "{text}");
}

#[test]
fn one_of_several_nodes_calls_it_faulty_and_keeps_what_follows() {
    let mut bench = three_at_rest(3);
    let (file, offset) = slot_of(&bench, 2);
    bench.disk.flip_bit(&file, offset + 120, 5);
    let recovered = recover(&mut bench.disk).unwrap();
    assert_eq!(ops(&recovered, 1), [1, 3]);
    let log = &recovered.logs[&LogId(1)];
    assert_eq!(log.faulty.len(), 1);
    assert_eq!((log.faulty[0].op, log.faulty[0].offset), (Op(2), offset));
    assert!(recovered.trusted && !recovered.damaged_nameless, "the damage has a name");
}

#[test]
fn without_the_trailer_the_damage_has_no_name_and_every_log_must_learn() {
    let mut bench = three_at_rest(3);
    let (file, offset) = slot_of(&bench, 2);
    bench.disk.fill_block(&file, offset, 0);
    bench.disk.fill_block(&file, offset + BLOCK, 0);
    let recovered = recover(&mut bench.disk).unwrap();
    assert_eq!(ops(&recovered, 1), [1, 3]);
    assert!(recovered.damaged_nameless && !recovered.trusted);
}

#[test]
fn a_trailer_alone_may_be_damaged_without_loss() {
    let mut bench = three_at_rest(1);
    let (file, offset) = slot_of(&bench, 2);
    bench.disk.fill_block(&file, offset + BLOCK, 0xaa);
    let recovered = recover(&mut bench.disk).unwrap();
    assert_eq!(ops(&recovered, 1), [1, 2, 3]);
    assert!(matches!(recovered.findings[..], [Finding::Repairable { .. }]));
}

#[test]
fn an_unsynced_record_that_its_trailer_names_is_set_aside_by_a_solo_node() {
    let mut bench = three_at_rest(1);
    bench.append(prepare(1, 4, 100), Durability::Persisted);
    let next_block = bench.journal.usage().bytes_used / BLOCK;
    let mut disk = cut(&mut bench, |block| block == next_block);
    let recovered = recover(&mut disk).unwrap();
    assert_eq!(ops(&recovered, 1), [1, 2, 3]);
    let [Finding::SetAside { op, aside, .. }] = &recovered.findings[..] else { panic!() };
    assert_eq!(*op, Op(4));
    assert_eq!(recovered.aside[0].0, *aside);
    assert!(!recovered.trusted, "the same boot has lost a written sector");
}

#[test]
fn one_of_several_nodes_calls_it_unknown() {
    let mut bench = three_at_rest(3);
    bench.append(prepare(1, 4, 100), Durability::Persisted);
    let next_block = bench.journal.usage().bytes_used / BLOCK;
    let mut disk = cut(&mut bench, |block| block == next_block);
    let recovered = recover(&mut disk).unwrap();
    assert_eq!(ops(&recovered, 1), [1, 2, 3]);
    assert_eq!(recovered.logs[&LogId(1)].unknown[0].op, Op(4));
    assert!(recovered.logs[&LogId(1)].faulty.is_empty());
}

#[test]
fn an_unsynced_record_without_trailer_is_torn_whatever_follows() {
    let mut bench = three_at_rest(1);
    let next_block = bench.journal.usage().bytes_used / BLOCK;
    // Two groups in flight: the first loses record and trailer, the second is whole.
    for op in 4..=5 {
        bench.append(prepare(3, op, 100), Durability::Replicated);
        let submissions = bench.drive();
        bench.run(&submissions[0]);
    }
    let mut disk = bench.disk.power_cut(|item| match item.what {
        UnsyncedWhat::Block(block) if block < next_block + 2 => Fate::Lost,
        _ => Fate::Kept,
    });
    let recovered = recover(&mut disk).unwrap();
    assert_eq!(ops(&recovered, 3), [0u64; 0], "what follows is void");
    assert!(matches!(recovered.findings[..], [Finding::Torn { .. }]));
    assert!(!recovered.trusted, "an intact group follows a hole");
}

#[test]
fn trust_needs_the_same_boot_device_and_inode_and_no_failed_write() {
    let bench = three_at_rest(1);
    let same = bench.disk.kill().identity();
    assert!(bench.recovered().trusted);
    let others = [
        DiskIdentity { boot_id: Some([9; 16]), ..same },
        DiskIdentity { boot_id: None, ..same },
        DiskIdentity { device: 99, ..same },
        DiskIdentity { inode: 99, ..same },
    ];
    for other in others {
        let mut disk = bench.disk.kill();
        disk.set_identity(other);
        let recovered = recover(&mut disk).unwrap();
        assert!(!recovered.trusted, "{other:?}");
        assert_eq!(ops(&recovered, 1), [1, 2, 3], "trust changes nothing that is found");
    }
    let mut disk = bench.disk.kill();
    crate::superblock::mark_write_failed(&mut disk).unwrap();
    let sequence = recover(&mut disk).unwrap().superblock.sequence;
    crate::superblock::mark_write_failed(&mut disk).unwrap();
    assert_eq!(recover(&mut disk).unwrap().superblock.sequence, sequence, "once is enough");
    assert!(!recover(&mut disk).unwrap().trusted);
}

/// A journal of several files, everything still needed.
fn several_files(replica_count: u8) -> Bench {
    let options = JournalOptions { file_bytes: 64 * 1024, files_max: 6 };
    let mut bench = Bench::of(replica_count, options);
    bench.settle();
    for op in 1..=24 {
        bench.append(prepare(1, op, 3_000), Durability::Persisted);
        bench.settle();
    }
    assert!(bench.journal.usage().files_live >= 4);
    bench
}

#[test]
fn one_copy_of_a_file_header_is_enough() {
    let mut bench = several_files(1);
    let (file, _) = slot_of(&bench, 24);
    bench.disk.fill_block(&file, 0, 0);
    let recovered = recover(&mut bench.disk).unwrap();
    assert_eq!(ops(&recovered, 1).len(), 24);
    let expected = [Finding::Repairable { file, offset: 0 }];
    assert_eq!(recovered.findings, expected);
}

#[test]
fn a_file_without_any_header_is_read_with_the_help_of_the_one_before() {
    let mut bench = several_files(1);
    let (file, _) = slot_of(&bench, 24);
    bench.disk.fill_block(&file, 0, 0);
    bench.disk.fill_block(&file, BLOCK, 0);
    let recovered = recover(&mut bench.disk).unwrap();
    assert_eq!(ops(&recovered, 1).len(), 24);
    assert_eq!(recovered.findings, [Finding::Repairable { file, offset: 0 }]);
}

#[test]
fn a_file_in_the_middle_that_is_gone_is_missed() {
    for replica_count in [1, 3] {
        let mut bench = several_files(replica_count);
        let (file, _) = slot_of(&bench, 12);
        bench.disk.remove(&file).unwrap();
        match recover(&mut bench.disk) {
            Err(error) => {
                assert_eq!(replica_count, 1);
                assert!(error.to_string().contains("is missing"), "{error}");
            }
            Ok(recovered) => {
                assert_eq!(replica_count, 3);
                assert!(recovered.damaged_nameless && !recovered.trusted);
            }
        }
    }
}

#[test]
fn a_file_that_has_lost_its_end_is_not_taken_for_the_end_of_the_journal() {
    for replica_count in [1, 3] {
        let mut bench = three_at_rest(replica_count);
        let (file, offset) = slot_of(&bench, 3);
        // What is left is whole groups.
        let left = bench.disk.read(&file, 0, offset).unwrap();
        bench.disk.durable_replace(&file, &[left]).unwrap();
        match recover(&mut bench.disk) {
            Err(RecoveryError::Damaged { file: named, offset: at, .. }) => {
                assert_eq!((replica_count, named, at), (1, file, offset));
            }
            Err(error) => panic!("{error}"),
            Ok(recovered) => {
                assert_eq!(replica_count, 3);
                assert!(recovered.damaged_nameless && !recovered.trusted);
            }
        }
    }
}

#[test]
fn a_journal_of_which_nothing_is_left_is_missed() {
    let mut bench = three_at_rest(1);
    for slot in 0..8 {
        bench.disk.remove(&FileName::Journal(slot)).unwrap();
    }
    let error = recover(&mut bench.disk).unwrap_err();
    assert!(matches!(error, RecoveryError::Damaged { named: None, .. }), "{error}");
}

#[test]
fn recovery_writes_nothing() {
    let mut bench = three_at_rest(1);
    bench.append(prepare(1, 4, 100), Durability::Persisted);
    let next_block = bench.journal.usage().bytes_used / BLOCK;
    let mut disk = cut(&mut bench, |block| block == next_block);
    let steps = disk.steps();
    recover(&mut disk).unwrap();
    assert_eq!(disk.steps(), steps);
}
