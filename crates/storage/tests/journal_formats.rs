//! The bytes of journal files and of the superblock: golden files of every version that was
//! released, and what damaged and arbitrary bytes do to the decoders (nothing).

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not recognise")]

use borzoi_storage::disk::{Disk, DiskIdentity, DiskSubmissions, FileName, execute};
use borzoi_storage::generation::{FormatOptions, GenerationOptions, begin_generation, format};
use borzoi_storage::journal::layout::{
    FileHeader, HeaderRead, NextFile, RecordHeader, Trailer, TrailerEntry,
};
use borzoi_storage::journal::{
    Journal, JournalOptions, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use borzoi_storage::recovery::{Recovered, recover};
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Body, ClusterId, Durability, LogId, Op, ReplicaId, ShardId};
use bytes::Bytes;
use proptest::prelude::*;
use std::path::PathBuf;

const JOURNAL: FileName = FileName::Journal(0);
const FILE_BYTES: u64 = 64 * 1024;

fn record(kind: RecordKind, log: u32, op: u64, header: &[u8], body: usize) -> JournalRecord {
    let header = Bytes::copy_from_slice(header);
    let body = Body::from(vec![op as u8; body]);
    JournalRecord { kind, log: LogId(log), op: Op(op), header, body }
}

fn records() -> Vec<JournalRecord> {
    vec![
        record(RecordKind::ViewState, 0, 0, b"view", 40),
        record(RecordKind::Prepare, 0, 1, b"a prepare's header", 300),
        record(RecordKind::Prepare, 3, 1, b"", 5_000),
        record(RecordKind::Reservation, 3, 1, b"reserved", 0),
        record(RecordKind::CheckpointPointer, 3, 1, b"pointer", 1),
    ]
}

fn settle(disk: &mut SimDisk, journal: &mut Journal) {
    let mut out = DiskSubmissions::new();
    loop {
        journal.drive(&mut out);
        let submissions: Vec<_> = out.drain().collect();
        if submissions.is_empty() {
            return;
        }
        for submission in submissions {
            journal.complete(submission.ticket, execute(disk, &submission.request));
        }
    }
}

/// A node of version 1 that has written the records above, the first two in one group.
fn example() -> SimDisk {
    let identity = DiskIdentity { boot_id: Some([0xb0; 16]), device: 66_305, inode: 131_074 };
    let mut disk = SimDisk::new(identity);
    let options = FormatOptions {
        cluster: ClusterId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        replica: ReplicaId(0),
        replica_count: 1,
        lanes_persisted: 8,
        lanes_replicated: 8,
        must_learn: [LogId(5)].into(),
    };
    format(&mut disk, &options).unwrap();
    let recovered = recover(&mut disk).unwrap();
    let options = GenerationOptions {
        shards: 1,
        journal: JournalOptions { file_bytes: FILE_BYTES, files_max: 2 },
        must_learn: [LogId(5)].into(),
        salt_seed: 42,
    };
    let begun = begin_generation(&mut disk, &recovered, &options, vec![vec![]]).unwrap();
    let mut journal = begun.journals.into_iter().next().unwrap();
    for (index, record) in records().into_iter().enumerate() {
        let level = [Durability::Persisted, Durability::Replicated][index % 2];
        journal.append(record, level, RecordClass::Normal).unwrap();
        if index > 0 {
            settle(&mut disk, &mut journal);
        }
    }
    disk
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn assert_golden(name: &str, content: &[u8]) {
    if !path(name).exists() && std::env::var_os("BLESS_GOLDEN").is_some() {
        std::fs::write(path(name), content).unwrap();
    }
    let golden = std::fs::read(path(name)).expect("the golden file of this version");
    assert!(golden == content, "{name} differs from what version 1 writes");
}

/// A file without the zeros at its end.
fn content(disk: &mut SimDisk, file: &FileName) -> Vec<u8> {
    let mut bytes = disk.read(file, 0, u64::MAX / 2).unwrap().to_vec();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end);
    bytes
}

fn assert_is_example(recovered: &Recovered) {
    let found: Vec<JournalRecord> =
        recovered.logs.values().flat_map(|log| &log.records).map(|r| r.record.clone()).collect();
    assert_eq!(found, records());
    assert!(recovered.logs.values().flat_map(|log| &log.records).all(|r| r.below_mark));
    assert!(recovered.trusted && recovered.findings.is_empty());
}

#[test]
fn version_1_writes_these_bytes() {
    let mut disk = example();
    assert_golden("journal.v1", &content(&mut disk, &JOURNAL));
    assert_golden("superblock.v1", &content(&mut disk, &FileName::Superblock));
    assert_is_example(&recover(&mut disk).unwrap());
}

#[test]
fn a_directory_of_version_1_opens() {
    let identity = DiskIdentity { boot_id: Some([0xb0; 16]), device: 66_305, inode: 131_074 };
    let mut disk = SimDisk::new(identity);
    for (name, file, bytes) in
        [("journal.v1", JOURNAL, FILE_BYTES), ("superblock.v1", FileName::Superblock, 16_384)]
    {
        let mut content = std::fs::read(path(name)).expect("the golden file of this version");
        assert!(content.len() as u64 <= bytes, "the zeros at the end were cut off");
        content.resize(usize::try_from(bytes).unwrap(), 0);
        disk.durable_replace(&file, &[Bytes::from(content)]).unwrap();
    }
    let recovered = recover(&mut disk).unwrap();
    assert_is_example(&recovered);
    assert_eq!(recovered.superblock.must_learn, [LogId(5)].into());
    assert_eq!(recovered.superblock.generation, 1);
}

fn file_header() -> FileHeader {
    FileHeader {
        cluster: ClusterId(1 << 100),
        generation: 3,
        nonce: 4,
        file_sequence: 5,
        shard: ShardId(6),
        slot: 7,
        file_bytes: 8 << 20,
        salt: 9,
        first_group: 10,
        first_record: RecordSeq(11),
        previous: 12 << 90,
    }
}

fn trailer() -> Trailer {
    let entry = |op: u64| TrailerEntry {
        checksum: u128::from(op) << 64,
        op: Op(op),
        log: LogId(3),
        bytes: 128 * op,
        kind: RecordKind::Prepare,
    };
    Trailer {
        group: 10,
        synced_through: 9,
        group_offset: 8_192,
        first_record: RecordSeq(11),
        oldest_live_file: 2,
        next: Some(NextFile { slot: 4, salt: 5 }),
        previous: 6,
        entries: (1..=150).map(entry).collect(),
    }
}

#[test]
fn every_flipped_bit_of_a_header_record_or_trailer_is_noticed() {
    let header = file_header().encode();
    assert_eq!(FileHeader::decode(&header), HeaderRead::Header(file_header()));
    for bit in 0..128 * 8 {
        let mut bad = header.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(FileHeader::decode(&bad), HeaderRead::Header(_)), "bit {bit}");
    }
    let record = RecordHeader {
        kind: RecordKind::Prepare,
        level: Durability::Persisted,
        log: LogId(1),
        op: Op(2),
        header_bytes: 3,
        body_bytes: 4,
        sequence: RecordSeq(6),
        order: RecordSeq(5),
        previous: 7,
        content: 8,
    };
    let (bytes, checksum) = record.encode(77);
    assert_eq!(RecordHeader::decode(&bytes, 77), Some((record, checksum)));
    assert_eq!(RecordHeader::decode(&bytes, 78), None, "another life of the file");
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(RecordHeader::decode(&bad, 77), None, "bit {bit}");
    }
    let bytes = trailer().encode(77);
    assert_eq!(bytes.len(), 8_192, "150 entries take two blocks");
    assert_eq!(Trailer::decode(&bytes, 77), Some(trailer()));
    assert_eq!(Trailer::decode(&bytes, 78), None, "another life of the file");
    for bit in 0..(112 + 150 * 40) * 8 {
        // Bytes 80..96 and those behind the kind are zero and covered as well.
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Trailer::decode(&bad, 77), None, "bit {bit}");
    }
}

#[test]
fn an_image_of_a_journal_inside_a_message_is_not_taken_for_journal() {
    let mut disk = example();
    let image = disk.read(&JOURNAL, 0, 40_960).unwrap();
    let recovered = recover(&mut disk).unwrap();
    let options = GenerationOptions {
        shards: 1,
        journal: JournalOptions { file_bytes: FILE_BYTES, files_max: 2 },
        must_learn: [].into(),
        salt_seed: 43,
    };
    let mut hostile = record(RecordKind::Prepare, 1, 1, &[], 0);
    // Aligned so that the image's blocks come to lie on block borders of the new file.
    let mut body = vec![0; 4_096 - 96];
    body.extend_from_slice(&image);
    hostile.body = Body::from(body);
    let carried = vec![vec![hostile.clone()]];
    begin_generation(&mut disk, &recovered, &options, carried).unwrap();
    // Even with the record itself gone the image inside it says nothing.
    let mut found = recover(&mut disk).unwrap();
    assert_eq!(found.logs.len(), 1);
    assert_eq!(found.logs.remove(&LogId(1)).unwrap().records[0].record, hostile);
    let slot = (0..4).map(FileName::Journal).find(|file| {
        let data = disk.read(file, 0, 4_096).unwrap_or_default();
        matches!(FileHeader::decode(&data), HeaderRead::Header(header) if header.generation == 2)
    });
    disk.flip_bit(&slot.unwrap(), 8_192 + 90, 1);
    assert!(recover(&mut disk).is_err(), "the damage is named, nothing is made up instead");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_never_a_header_a_record_or_a_trailer(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..9_000),
        magic in 0usize..4,
        salt: u64,
    ) {
        let magic: &[u8] = [&b"BORZOIJF"[..], b"BRec", b"BTrl", b""][magic];
        if bytes.len() >= magic.len() {
            bytes[..magic.len()].copy_from_slice(magic);
        }
        prop_assert_eq!(FileHeader::decode(&bytes), HeaderRead::None);
        prop_assert_eq!(RecordHeader::decode(&bytes, salt), None);
        prop_assert_eq!(Trailer::decode(&bytes, salt), None);
    }

    #[test]
    fn arbitrary_blocks_in_a_journal_never_panic_recovery(
        blocks in proptest::collection::vec((0u64..16, any::<u8>()), 0..6),
    ) {
        let mut disk = example();
        for (block, byte) in blocks {
            disk.fill_block(&JOURNAL, block * 4_096, byte);
        }
        let _ = recover(&mut disk);
    }
}
