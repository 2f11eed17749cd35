//! The superblock: copies, damage, choice of the newest.

use super::*;

fn sample(sequence: u64) -> Superblock {
    Superblock {
        sequence,
        cluster: ClusterId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        replica: ReplicaId(1),
        replica_count: 3,
        lanes_persisted: 8,
        lanes_replicated: 8,
        generation: 7,
        nonce: 0xfeed,
        epoch: 5,
        shards: 2,
        boot_id: Some([9; 16]),
        device: 64_768,
        inode: 1_234,
        write_failed: true,
        features: 0,
        must_learn: [LogId(0), LogId(3), LogId(LANES_MAX)].into(),
        oldest_files: vec![4, u64::MAX],
    }
}

fn intact(sequence: u64) -> Copy {
    Copy::Intact(Box::new(sample(sequence)))
}

#[test]
fn a_copy_reads_back_as_it_was_written() {
    let superblock = sample(3);
    assert_eq!(Superblock::decode(&superblock.encode()), intact(3));
    let mut plain = sample(4);
    (plain.boot_id, plain.write_failed) = (None, false);
    plain.must_learn.clear();
    assert_eq!(Superblock::decode(&plain.encode()), Copy::Intact(Box::new(plain)));
}

#[test]
fn every_flipped_bit_of_the_content_is_noticed() {
    let block = sample(3).encode();
    for bit in 0..CONTENT_BYTES * 8 {
        let mut bad = block.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(Superblock::decode(&bad), Copy::Intact(_)), "bit {bit}");
    }
}

/// Every combination of old, new and damaged copies that an interrupted write can leave.
#[test]
fn an_interrupted_write_leaves_the_old_or_the_new_superblock() {
    let states = || [intact(1), intact(2), Copy::Damaged];
    for first in states() {
        for second in states() {
            // While the first half is being written the second is old, and the other way round.
            let old = [first.clone(), second.clone(), intact(1), intact(1)];
            let read = choose(&old).unwrap().superblock.sequence;
            let both_new = first == intact(2) && second == intact(2);
            assert_eq!(read, if both_new { 2 } else { 1 });
            let new = [intact(2), intact(2), first.clone(), second.clone()];
            assert_eq!(choose(&new).unwrap().superblock.sequence, 2);
        }
    }
}

#[test]
fn one_copy_alone_is_not_believed() {
    let copies = [intact(1), Copy::Damaged, intact(2), Copy::Damaged];
    assert_eq!(choose(&copies), Err(SuperblockError::Damaged { intact: 2 }));
}

#[test]
fn two_damaged_copies_are_survived_and_named() {
    let read = choose(&[Copy::Damaged, intact(5), Copy::Foreign, intact(5)]).unwrap();
    assert_eq!((read.superblock.sequence, read.damaged), (5, vec![0, 2]));
}

#[test]
fn other_versions_features_and_programs_are_told_apart() {
    let version = || Copy::Version(9);
    let copies = [version(), version(), version(), version()];
    assert_eq!(choose(&copies), Err(SuperblockError::Version(9)));
    let mut future = sample(1);
    future.features = 4;
    let copies = vec![Copy::Intact(Box::new(future)); 4];
    assert_eq!(choose(&copies), Err(SuperblockError::Features(4)));
    let copies = vec![Copy::Foreign; 4];
    assert_eq!(choose(&copies), Err(SuperblockError::Foreign));
}

/// Torn sectors of 512 bytes cannot show a missing sync: everything that changes lies in the first
/// of them. So the order is held to here.
#[test]
fn the_second_half_is_written_only_after_the_first_is_durable() {
    let requests = sample(9).requests([0, 1, 2, 3]);
    let offset = |request: &DiskRequest| match request {
        DiskRequest::Write { offset, .. } => Some(*offset / DISK_ALIGNMENT as u64),
        _ => None,
    };
    let written: Vec<Option<u64>> = requests.iter().map(offset).collect();
    assert_eq!(written, [Some(0), Some(1), None, Some(2), Some(3), None]);
    let synced = DiskRequest::Sync { file: FileName::Superblock };
    assert_eq!((&requests[2], &requests[5]), (&synced, &synced));
}

/// After a write that came to half, the only two copies of the newest content are not touched
/// before the other two are durable.
#[test]
fn the_copies_that_are_behind_are_written_first() {
    let copy = |sequence| Copy::Intact(Box::new(sample(sequence)));
    assert_eq!(order_of(&[copy(7), copy(7), copy(6), copy(6)]), [2, 3, 0, 1]);
    assert_eq!(order_of(&[copy(6), copy(7), copy(7), copy(6)]), [0, 3, 1, 2]);
    assert_eq!(order_of(&[copy(8), copy(7), copy(7), Copy::Damaged]), [0, 3, 1, 2]);
    assert_eq!(order_of(&[copy(7), copy(7), copy(7), copy(7)]), [0, 1, 2, 3]);
}
