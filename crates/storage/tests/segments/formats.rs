//! The bytes of segments, indexes and checkpoints: golden files of every version that was
//! released, and what arbitrary bytes do to the decoders (nothing).

use crate::support::{Bench, KEY, TestDisk, batch, offsets};
use borzoi_storage::checkpoint::{
    Checkpoint, CheckpointError, ConsumerKey, ConsumerState, LoadError, PartitionSection,
    load_newest, obsolete,
};
use borzoi_storage::disk::{Directory, Disk, DiskIdentity, FileName};
use borzoi_storage::index::SegmentIndex;
use borzoi_storage::partition::{PartitionLog, ReadStart};
use borzoi_storage::segment::batch::StoredBatch;
use borzoi_storage::segment::chunk::{Chunk, ChunkHeader};
use borzoi_storage::segment::decode_header;
use borzoi_storage::sim_disk::{Fate, SimDisk};
use borzoi_types::checksum::xxh3_128;
use borzoi_types::{Body, GroupId, LogId, Micros, Offset, Op, PartitionKey};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

const SEGMENT: FileName = FileName::Segment { key: KEY, base: Offset(0) };
/// XXH3-128 of the files of a segment of three chunks.
const SEVERAL_CHUNKS: u128 = 12_513_851_283_059_673_316_393_114_950_549_423_795;
const SEVERAL_CHUNKS_INDEX: u128 = 97_852_396_327_132_226_468_463_967_424_379_742_844;
const INDEX: FileName = FileName::SegmentIndex { key: KEY, base: Offset(0) };

/// Two closed segments with a hole between them, and a tail.
fn example() -> (Bench, Checkpoint) {
    let mut bench = Bench::new(1_200);
    bench.append(1_000, &[30, 0, 40]);
    bench.append(2_000, &[90]);
    bench.append(3_000, &[66]);
    bench.append(4_000, &[1]);
    bench.log.jump_to(Offset(65_536));
    bench.append(5_000, &[5, 6]);
    let (state, work) = bench.log.begin_checkpoint();
    bench.settle().unwrap();
    assert!(bench.log.checkpoint_ready(&work));
    let consumers = BTreeMap::from([
        (ConsumerKey::Consumer(7), ConsumerState { offset: Some(Offset(2)), generation: 0 }),
        (ConsumerKey::Group(GroupId(1)), ConsumerState { offset: None, generation: 4 }),
    ]);
    let first = PartitionSection {
        state,
        consumers,
        reserved: Some(Offset(131_072)),
        extra: Bytes::from_static(b"options of the owner"),
    };
    let second = PartitionSection {
        state: PartitionLog::new(PartitionKey(0x233), 1 << 30).begin_checkpoint().0,
        consumers: BTreeMap::new(),
        reserved: None,
        extra: Bytes::new(),
    };
    let checkpoint = Checkpoint {
        log: LogId(3),
        op: Op(4_711),
        prepare_checksum: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        owner: Body::from(Bytes::from_static(b"client table")),
        partitions: vec![first, second],
    };
    (bench, checkpoint)
}

/// Compares with the file of a release. `BLESS_GOLDEN=1` writes those that are missing, never
/// replaces one: a changed format is a new version with a new file.
fn assert_golden(name: &str, content: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if !path.exists() && std::env::var_os("BLESS_GOLDEN").is_some() {
        std::fs::write(&path, content).unwrap();
    }
    let golden = std::fs::read(&path).expect("the golden file of this version");
    assert!(golden == content, "{name} differs from what version 1 writes");
}

fn golden(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    Bytes::from(std::fs::read(path).expect("the golden file of this version"))
}

#[test]
fn the_files_of_version_1_are_what_they_were() {
    let (bench, checkpoint) = example();
    assert_golden("segment.v1", bench.disk.content(&SEGMENT).unwrap());
    assert_golden("index.v1", bench.disk.content(&INDEX).unwrap());
    assert_golden("checkpoint.v1", &checkpoint.encode().to_bytes());
}

#[test]
fn a_segment_of_several_chunks_is_laid_out_as_version_1_did() {
    let mut bench = Bench::new(200_000);
    for time in 0..4 {
        bench.append(time, &[20_000 + time as usize, 100, 40_000, 7_000]);
    }
    bench.settle().unwrap();
    let sums = [SEGMENT, INDEX].map(|name| xxh3_128(bench.disk.content(&name).unwrap()));
    assert_eq!(bench.log.closed_segments().len(), 1);
    assert_eq!(sums, [SEVERAL_CHUNKS, SEVERAL_CHUNKS_INDEX]);
}

#[test]
fn files_of_version_1_are_read() {
    let read = Checkpoint::decode(&golden("checkpoint.v1")).unwrap();
    let (mut bench, written) = example();
    assert_eq!(read, written);
    bench.evict();
    bench.log = PartitionLog::restore(&read.partitions[0].state).unwrap();
    bench.disk.delete(&SEGMENT);
    bench.disk.delete(&INDEX);
    bench.disk.write(&SEGMENT, 0, &[golden("segment.v1")]).unwrap();
    for with_index in [false, true] {
        if with_index {
            bench.evict();
            bench.disk.write(&INDEX, 0, &[golden("index.v1")]).unwrap();
        }
        let outcome = bench.read(ReadStart::First, 100, 1 << 20).unwrap();
        assert_eq!(offsets(&outcome), [0, 1, 2, 3, 4, 5, 65_536, 65_537]);
    }
}

#[test]
fn every_flipped_bit_of_a_checkpoint_is_noticed() {
    let (_, checkpoint) = example();
    let bytes = checkpoint.encode().to_bytes();
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        assert!(Checkpoint::decode(&Bytes::from(flipped)).is_err(), "byte {at}");
    }
    for length in 0..bytes.len() {
        assert!(Checkpoint::decode(&bytes.slice(..length)).is_err(), "{length} bytes");
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert_eq!(Checkpoint::decode(&Bytes::from(longer)), Err(CheckpointError::Length));
}

#[test]
fn a_checkpoint_of_another_version_is_refused_by_number_and_never_skipped() {
    let (mut bench, checkpoint) = example();
    let mut newer = checkpoint.encode().to_bytes().to_vec();
    newer[8..12].copy_from_slice(&2u32.to_le_bytes());
    let sum = xxh3_128(&newer[..112]);
    newer[112..128].copy_from_slice(&sum.to_le_bytes());
    let newer = Bytes::from(newer);
    assert_eq!(Checkpoint::decode(&newer), Err(CheckpointError::Version { found: 2 }));
    let older = Checkpoint { op: Op(1), ..checkpoint.clone() };
    bench.disk.durable_replace(&older.file(), older.encode().parts()).unwrap();
    bench.disk.durable_replace(&checkpoint.file(), &[newer]).unwrap();
    let error = load_newest(&mut bench.disk, LogId(3)).unwrap_err();
    assert!(matches!(error, LoadError::Version { .. }), "{error}");
}

#[test]
fn the_newest_intact_checkpoint_is_loaded_and_only_its_log_is_looked_at() {
    let (_, checkpoint) = example();
    let mut disk = TestDisk::default();
    assert_eq!(load_newest(&mut disk, LogId(3)).unwrap().checkpoint, None);
    for op in [5, 6, 7] {
        let at = Checkpoint { op: Op(op), ..checkpoint.clone() };
        disk.durable_replace(&at.file(), at.encode().parts()).unwrap();
    }
    let other = Checkpoint { log: LogId(4), op: Op(99), ..checkpoint.clone() };
    disk.durable_replace(&other.file(), other.encode().parts()).unwrap();
    let loaded = load_newest(&mut disk, LogId(3)).unwrap();
    assert_eq!(loaded.checkpoint.unwrap().op, Op(7));
    assert_eq!(loaded.older.map(|older| older.op), Some(Op(6)));
    // Under a wrong name.
    let misnamed = FileName::Checkpoint { log: LogId(3), op: Op(8) };
    disk.durable_replace(&misnamed, checkpoint.encode().parts()).unwrap();
    disk.corrupt(&FileName::Checkpoint { log: LogId(3), op: Op(7) }, 200);
    let loaded = load_newest(&mut disk, LogId(3)).unwrap();
    assert_eq!(loaded.checkpoint.unwrap().op, Op(6));
    assert_eq!(loaded.damaged.len(), 2);
    assert!(matches!(loaded.damaged[0].1, CheckpointError::Misplaced { op: Op(4_711), .. }));
    for op in [5, 6] {
        disk.corrupt(&FileName::Checkpoint { log: LogId(3), op: Op(op) }, 10);
    }
    let loaded = load_newest(&mut disk, LogId(3)).unwrap();
    assert_eq!((loaded.checkpoint, loaded.older), (None, None));
    let named: Vec<u64> = loaded
        .damaged
        .iter()
        .map(|(file, _)| match file {
            FileName::Checkpoint { op, .. } => op.0,
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(named, [8, 7, 6, 5], "all of them are named, the newest first");
}

/// A process killed inside the replacement of a checkpoint left a name that was not durable yet.
/// The next start took the checkpoint for granted, wrote a journal without the operations it
/// contains, and a power loss then took the name back: a confirmed operation was gone. A start now
/// syncs the names first.
#[test]
fn a_checkpoint_that_was_loaded_cannot_be_taken_back_by_a_power_loss() {
    let (_, checkpoint) = example();
    let newer = Checkpoint { op: Op(4_712), ..checkpoint.clone() };
    let mut before = SimDisk::new(DiskIdentity::default());
    before.durable_replace(&checkpoint.file(), checkpoint.encode().parts()).unwrap();
    let mut whole = before.clone();
    whole.durable_replace(&newer.file(), newer.encode().parts()).unwrap();
    let mut loaded = Vec::new();
    for step in before.steps()..whole.steps() {
        let mut crashed = before.clone();
        crashed.crash_before(step);
        crashed.durable_replace(&newer.file(), newer.encode().parts()).unwrap_err();
        let mut restarted = crashed.kill();
        restarted.sync_names(Directory::Checkpoints).unwrap();
        let first = load_newest(&mut restarted, LogId(3)).unwrap().checkpoint.unwrap();
        let mut cut = restarted.power_cut(|_| Fate::Lost);
        let second = load_newest(&mut cut, LogId(3)).unwrap().checkpoint.unwrap();
        assert_eq!(first.op, second.op, "step {step}");
        loaded.push(first.op);
    }
    assert!(loaded.contains(&Op(4_711)) && loaded.contains(&Op(4_712)));
}

#[test]
fn two_checkpoints_are_kept_and_newer_ones_are_not_touched() {
    let file = |log, op| FileName::Checkpoint { log: LogId(log), op: Op(op) };
    let files = [file(1, 1), file(1, 5), file(1, 7), file(1, 9), file(2, 3), FileName::Lock];
    assert_eq!(obsolete(LogId(1), Op(9), &files), [file(1, 1), file(1, 5)]);
    assert_eq!(obsolete(LogId(1), Op(7), &files), [file(1, 1)]);
    assert!(obsolete(LogId(1), Op(5), &files).is_empty());
    assert!(obsolete(LogId(2), Op(3), &files).is_empty());
}

#[test]
fn an_impossible_state_is_refused_and_not_restored() {
    let (_, checkpoint) = example();
    let good = &checkpoint.partitions[0].state;
    PartitionLog::restore(good).unwrap();
    let spoiled: [&dyn Fn(&mut borzoi_storage::partition::PartitionState); 9] = [
        &|s| s.next_offset = Offset(s.next_offset.0 + 1),
        &|s| s.segment_bytes_max = 0,
        &|s| s.closed[0].end = s.closed[0].base,
        &|s| s.closed[0].end = Offset(s.active.base.0 + 1),
        &|s| s.closed[0].file_bytes += 1,
        &|s| s.closed[0].file_bytes = 0,
        &|s| s.active.file_bytes = 8_192,
        &|s| s.tail = Body::empty(),
        &|s| s.tail = Body::from(batch(Offset(0), Micros(1), &[1])),
    ];
    for (index, spoil) in spoiled.iter().enumerate() {
        let mut state = good.clone();
        spoil(&mut state);
        assert!(PartitionLog::restore(&state).is_err(), "case {index}");
    }
}

/// A checkpoint with a body of choice under valid checksums: the decoder of sections must stand
/// on its own.
fn sealed(body: &[u8], sections: u32) -> Bytes {
    let mut file = vec![0u8; 128];
    file[0..8].copy_from_slice(b"BRZCHECK");
    file[8..12].copy_from_slice(&1u32.to_le_bytes());
    file[24..28].copy_from_slice(&sections.to_le_bytes());
    file[48..56].copy_from_slice(&(body.len() as u64).to_le_bytes());
    file[64..80].copy_from_slice(&xxh3_128(body).to_le_bytes());
    let sum = xxh3_128(&file[..112]);
    file[112..128].copy_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(body);
    Bytes::from(file)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_break_no_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = Bytes::from(bytes);
        let _ = Checkpoint::decode(&bytes);
        let _ = Checkpoint::decode(&sealed(&bytes, 2));
        let _ = PartitionSection::decode(&bytes);
        let _ = SegmentIndex::decode(&bytes, KEY, Offset(0), 8_192);
        let _ = ChunkHeader::decode(&bytes);
        let _ = Chunk::from_file(&bytes, KEY, Offset(0));
        let _ = decode_header(&bytes);
        let _ = StoredBatch::read(&bytes);
    }

    #[test]
    fn a_changed_section_under_valid_checksums_breaks_nothing(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let (_, checkpoint) = example();
        let mut section = checkpoint.partitions[0].encode().to_bytes().to_vec();
        let fields = section.len().min(250);
        for (at, value) in changes {
            section[at.index(fields)] = value;
        }
        if let Ok(read) = PartitionSection::decode(&Bytes::from(section)) {
            prop_assert_eq!(&PartitionSection::decode(&read.encode().to_bytes()).unwrap(), &read);
        }
    }

    #[test]
    fn sections_round_trip(
        messages in 0u32..5, jump in 0u64..10, reserved in any::<bool>(),
        consumers in proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..5),
    ) {
        let mut log = PartitionLog::new(KEY, 1 << 20);
        for index in 0..messages {
            let base = log.next_offset();
            let at = Micros(u64::from(index));
            log.append(batch(base, at, &[9; 2]), base, 2, at);
        }
        log.jump_to(Offset(log.next_offset().0 + jump));
        let consumers = consumers.into_iter().map(|(id, offset)| {
            let (plain, group) = (ConsumerKey::Consumer(id), ConsumerKey::Group(GroupId(id)));
            let key = if id % 2 == 0 { plain } else { group };
            let offset = Some(Offset(offset)).filter(|o| o.0 % 3 != 0 && *o != Offset::MAX);
            (key, ConsumerState { offset, generation: u64::from(id) })
        });
        let section = PartitionSection {
            reserved: reserved.then(|| log.next_offset()),
            state: log.begin_checkpoint().0,
            consumers: consumers.collect(),
            extra: Bytes::from(vec![7; jump as usize]),
        };
        prop_assert_eq!(PartitionSection::decode(&section.encode().to_bytes()).unwrap(), section);
    }
}
