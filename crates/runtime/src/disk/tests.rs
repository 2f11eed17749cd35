//! The disk over a real directory.

use super::*;
use borzoi_types::{LogId, Offset, Op, PartitionKey};

fn open(root: &Path) -> FileDisk {
    FileDisk::open(root, &FileDiskOptions::default()).unwrap().0
}

fn block(byte: u8) -> Bytes {
    Bytes::from(vec![byte; DISK_ALIGNMENT])
}

const CHECKPOINT: FileName = FileName::Checkpoint { log: LogId(2), op: Op(7) };
const SEGMENT: FileName = FileName::Segment { key: PartitionKey(5), base: Offset(0) };

#[test]
fn what_was_written_in_pieces_is_read_back_at_any_position() {
    let directory = tempfile::tempdir().unwrap();
    for direct in [true, false] {
        let root = directory.path().join(direct.to_string());
        let (mut disk, _) =
            FileDisk::open(&root, &FileDiskOptions { direct, ..FileDiskOptions::default() })
                .unwrap();
        let mut parts: Vec<Bytes> =
            (0..2_000_u32).map(|i| Bytes::from(vec![(i % 251) as u8; (i % 13) as usize])).collect();
        let len: usize = parts.iter().map(Bytes::len).sum();
        parts.push(Bytes::from(vec![0; len.next_multiple_of(DISK_ALIGNMENT) - len]));
        let whole: Vec<u8> = parts.iter().flatten().copied().collect();
        disk.write(&SEGMENT, 8_192, &parts).unwrap();
        disk.sync(&SEGMENT).unwrap();
        for (offset, bytes) in [(0, 10), (1, 9_000), (8_192, 1), (8_200, 5_000), (8_192, 1 << 20)] {
            let read = disk.read(&SEGMENT, offset, bytes).unwrap();
            let mut expected = vec![0; 8_192];
            expected.extend_from_slice(&whole);
            let end = expected.len().min((offset + bytes) as usize);
            assert_eq!(read, &expected[offset as usize..end], "{direct} {offset} {bytes}");
        }
        assert_eq!(disk.read(&SEGMENT, 1 << 30, 10).unwrap().len(), 0);
        assert_eq!(disk.len(&SEGMENT).unwrap(), Some(8_192 + whole.len() as u64));
    }
}

#[test]
fn a_write_larger_than_the_scratch_buffer_arrives_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    let mut parts: Vec<Bytes> = (0..11_u8).map(|i| Bytes::from(vec![i; 1_048_575])).collect();
    let len: usize = parts.iter().map(Bytes::len).sum();
    parts.push(Bytes::from(vec![99; len.next_multiple_of(4_096) - len]));
    disk.write(&FileName::Journal(3), 4_096, &parts).unwrap();
    let whole: Vec<u8> = parts.iter().flatten().copied().collect();
    assert_eq!(disk.read(&FileName::Journal(3), 4_096, whole.len() as u64).unwrap(), whole);
}

#[test]
fn a_replaced_file_shows_the_new_content_through_handles_opened_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    disk.durable_replace(&CHECKPOINT, &[Bytes::from_static(b"old")]).unwrap();
    assert_eq!(disk.read(&CHECKPOINT, 0, 10).unwrap(), "old");
    disk.durable_replace(&CHECKPOINT, &[Bytes::from_static(b"new"), Bytes::from_static(b"er")])
        .unwrap();
    assert_eq!(disk.read(&CHECKPOINT, 0, 10).unwrap(), "newer");
    assert_eq!(disk.list(Directory::Checkpoints).unwrap().files, [CHECKPOINT]);
}

#[test]
fn zeroed_files_are_zero_and_take_the_place_of_older_ones() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    let file = FileName::Journal(1);
    disk.write(&file, 0, &[block(7)]).unwrap();
    let bytes = 3 * 1024 * 1024 + 4_096;
    disk.create_zeroed(&file, bytes).unwrap();
    assert_eq!(disk.len(&file).unwrap(), Some(bytes));
    assert!(disk.read(&file, 0, bytes).unwrap().iter().all(|byte| *byte == 0));
    disk.write(&file, 4_096, &[block(9)]).unwrap();
    assert_eq!(disk.read(&file, 4_096, 4_096).unwrap(), block(9));
}

#[test]
fn listing_tells_own_files_from_strays_and_descends_into_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    assert_eq!(disk.list(Directory::Journal).unwrap(), Listing::default());
    disk.write(&SEGMENT, 0, &[block(1)]).unwrap();
    disk.durable_replace(&FileName::Superblock, &[block(2)]).unwrap();
    std::fs::write(directory.path().join("segments/05/notes"), "").unwrap();
    std::fs::create_dir(directory.path().join("photos")).unwrap();
    let segments = disk.list(Directory::Segments).unwrap();
    assert_eq!(segments.files, [SEGMENT]);
    assert_eq!(segments.strays, ["segments/05/notes"]);
    let root = disk.list(Directory::Root).unwrap();
    assert_eq!(root.files, [FileName::Superblock, FileName::Lock]);
    assert_eq!(root.strays, ["photos"]);
}

#[test]
fn removing_is_idempotent_and_setting_aside_never_overwrites() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    disk.remove(&CHECKPOINT).unwrap();
    let mut names = Vec::new();
    for content in ["one", "two"] {
        disk.durable_replace(&CHECKPOINT, &[Bytes::from(content)]).unwrap();
        names.push(disk.set_aside(&CHECKPOINT).unwrap());
    }
    assert_ne!(names[0], names[1]);
    assert_eq!(disk.read(&names[0], 0, 10).unwrap(), "one");
    assert_eq!(disk.read(&names[1], 0, 10).unwrap(), "two");
    assert_eq!(disk.len(&CHECKPOINT).unwrap(), None);
    disk.remove(&names[0]).unwrap();
    let error = disk.read(&names[0], 0, 10).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NotFound);
    assert_eq!(disk.read(&CHECKPOINT, 0, 1).unwrap_err().kind, DiskErrorKind::NotFound);
}

#[test]
fn more_files_than_handles_stay_usable_and_the_cache_stays_under_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    let file = |slot: u32| FileName::Journal(slot);
    let count = u32::try_from(borzoi_types::limits::FILE_HANDLES_MAX).unwrap() + 20;
    for slot in 0..count {
        disk.write(&file(slot), 0, &[block((slot % 200) as u8)]).unwrap();
    }
    assert_eq!(disk.open_handles(), borzoi_types::limits::FILE_HANDLES_MAX);
    for slot in 0..count {
        assert_eq!(disk.read(&file(slot), 0, 4_096).unwrap()[0], (slot % 200) as u8);
    }
}

#[test]
fn wiping_leaves_an_empty_node_and_what_is_not_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    disk.write(&SEGMENT, 0, &[block(1)]).unwrap();
    disk.durable_replace(&FileName::Superblock, &[block(2)]).unwrap();
    std::fs::write(directory.path().join("notes"), "mine").unwrap();
    disk.wipe().unwrap();
    assert_eq!(disk.list(Directory::Root).unwrap().files, [FileName::Lock]);
    assert_eq!(disk.list(Directory::Root).unwrap().strays, ["notes"]);
    assert_eq!(disk.len(&SEGMENT).unwrap(), None);
}

#[test]
fn identity_names_boot_device_and_inode() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = open(directory.path());
    let identity = disk.identity();
    assert!(identity.boot_id.is_some());
    assert_ne!(identity.inode, 0);
    assert_eq!(identity, disk.identity());
    assert!(disk.free_bytes().unwrap() > 0);
}

/// A small file system of its own, where the test may mount one.
struct SmallVolume(tempfile::TempDir);

impl SmallVolume {
    fn mount(options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(directory.path())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then_some(Self(directory))
    }

    fn remount(&self, options: &str) {
        let status = std::process::Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(self.0.path())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_volume_and_a_read_only_one_have_their_own_errors() {
    let Some(volume) = SmallVolume::mount("size=1m") else {
        return; // Only root may mount; the mapping is the same code everywhere.
    };
    let unreserved = FileDiskOptions { reserve_bytes: 0, ..FileDiskOptions::default() };
    let (mut disk, _) = FileDisk::open(volume.0.path(), &unreserved).unwrap();
    let error = disk.create_zeroed(&FileName::Journal(0), 8 * 1024 * 1024).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NoSpace, "{error}");
    let left: Vec<FileName> = disk.list(Directory::Journal).unwrap().files;
    assert!(left.is_empty(), "the space of the attempt is given back: {left:?}");
    disk.durable_replace(&CHECKPOINT, &[block(1)]).unwrap();
    let big = vec![Bytes::from(vec![1; 2 * 1024 * 1024])];
    let error = disk.durable_replace(&CHECKPOINT, &big).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NoSpace, "{error}");
    assert_eq!(disk.read(&CHECKPOINT, 0, 4_096).unwrap(), block(1), "the old content stands");
    drop(disk);
    volume.remount("ro");
    let Err(error) = FileDisk::open(volume.0.path(), &FileDiskOptions::default()) else {
        panic!("a read-only directory cannot be locked");
    };
    assert!(matches!(error, DirectoryError::ReadOnly { .. }), "{error}");
}

#[test]
fn segments_and_journal_files_leave_room_for_checkpoints() {
    let Some(volume) = SmallVolume::mount("size=2m") else {
        return; // Only root may mount.
    };
    let options = FileDiskOptions { reserve_bytes: 1024 * 1024, ..FileDiskOptions::default() };
    let (mut disk, _) = FileDisk::open(volume.0.path(), &options).unwrap();
    let error = disk.create_zeroed(&FileName::Journal(0), 1024 * 1024).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("reserved"), "{error}");
    let part = vec![Bytes::from(vec![1; 256 * 1024])];
    let written = (0..8).take_while(|i| disk.write(&SEGMENT, i * 262_144, &part).is_ok()).count();
    assert!((2..4).contains(&written), "{written}");
    disk.durable_replace(&CHECKPOINT, &part).unwrap();
    disk.remove(&SEGMENT).unwrap();
    disk.write(&SEGMENT, 0, &part).unwrap();
}

#[test]
fn errors_of_the_system_keep_their_meaning() {
    use rustix::io::Errno;
    let cases = [
        (Errno::NOSPC, DiskErrorKind::NoSpace),
        (Errno::DQUOT, DiskErrorKind::NoSpace),
        (Errno::ROFS, DiskErrorKind::ReadOnly),
        (Errno::ACCESS, DiskErrorKind::PermissionDenied),
        (Errno::NOENT, DiskErrorKind::NotFound),
        (Errno::MFILE, DiskErrorKind::TooManyOpen),
        (Errno::IO, DiskErrorKind::Io),
    ];
    for (errno, kind) in cases {
        let error = io::Error::from_raw_os_error(errno.raw_os_error());
        let mapped = failed(DiskOperation::Write, Some(&CHECKPOINT), &error);
        assert_eq!(mapped.kind, kind, "{errno:?}");
        assert_eq!(mapped.file, Some(CHECKPOINT));
    }
}
