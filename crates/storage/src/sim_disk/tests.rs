//! What the simulated disk promises.

use super::*;

const FILE: FileName = FileName::Journal(1);

fn block(byte: u8) -> Bytes {
    Bytes::from(vec![byte; BLOCK_BYTES])
}

fn first_byte(disk: &mut SimDisk, offset: u64) -> Option<u8> {
    disk.read(&FILE, offset, 1).ok().and_then(|bytes| bytes.first().copied())
}

fn synced_file() -> SimDisk {
    let mut disk = SimDisk::default();
    disk.write(&FILE, 0, &[block(1), block(2)]).unwrap();
    disk.sync(&FILE).unwrap();
    disk
}

#[test]
fn what_was_synced_survives_a_power_cut_and_what_was_not_is_at_the_callers_mercy() {
    let mut disk = synced_file();
    disk.write(&FILE, 0, &[block(3)]).unwrap();
    assert_eq!(disk.unsynced().len(), 1);
    for (fate, expected) in [(Fate::Kept, 3), (Fate::Lost, 1), (Fate::Torn(0b1111_1110), 1)] {
        let mut image = disk.power_cut(|_| fate);
        assert_eq!(first_byte(&mut image, 0), Some(expected), "{fate:?}");
        assert_eq!(first_byte(&mut image, 4_096), Some(2));
        assert!(image.unsynced().is_empty(), "what is found is durable");
    }
    assert_eq!(first_byte(&mut disk.power_cut(|_| Fate::Torn(2)), 512), Some(3));
}

#[test]
fn a_killed_process_finds_everything_and_it_is_as_unsynced_as_before() {
    let mut disk = synced_file();
    disk.write(&FILE, 0, &[block(3)]).unwrap();
    let mut killed = disk.kill();
    assert_eq!(first_byte(&mut killed, 0), Some(3));
    assert_eq!(first_byte(&mut killed.power_cut(|_| Fate::Lost), 0), Some(1));
}

#[test]
fn a_sync_covers_what_was_written_before_it_started() {
    let mut disk = synced_file();
    disk.write(&FILE, 0, &[block(3)]).unwrap();
    let sync = disk.start_sync(&FILE).unwrap();
    disk.write(&FILE, 0, &[block(4)]).unwrap();
    disk.write(&FILE, 4_096, &[block(5)]).unwrap();
    disk.finish_sync(&sync).unwrap();
    assert_eq!(disk.unsynced().len(), 2);
    disk.sync(&FILE).unwrap();
    assert_eq!(first_byte(&mut disk.power_cut(|_| Fate::Lost), 0), Some(4));
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next_one() {
    let mut disk = synced_file();
    disk.write(&FILE, 0, &[block(3)]).unwrap();
    let (operation, kind) = (DiskOperation::Sync, DiskErrorKind::Io);
    disk.inject(Fault { operation, file: Some(FILE), after: 0, kind, lasting: false });
    assert_eq!(disk.sync(&FILE).unwrap_err().kind, DiskErrorKind::Io);
    disk.sync(&FILE).unwrap();
    assert_eq!(first_byte(&mut disk, 0), Some(3), "the cache still shows it");
    assert_eq!(first_byte(&mut disk.power_cut(|_| Fate::Lost), 0), Some(1));
    disk.write(&FILE, 0, &[block(3)]).unwrap();
    disk.sync(&FILE).unwrap();
    assert_eq!(first_byte(&mut disk.power_cut(|_| Fate::Lost), 0), Some(3));
}

#[test]
fn a_name_is_durable_after_a_sync_of_its_file() {
    let mut disk = SimDisk::default();
    disk.write(&FILE, 0, &[block(1)]).unwrap();
    assert_eq!(disk.power_cut(|_| Fate::Lost).len(&FILE).unwrap(), None);
    disk.sync(&FILE).unwrap();
    assert_eq!(disk.power_cut(|_| Fate::Lost).len(&FILE).unwrap(), Some(4_096));
}

#[test]
fn a_replacement_is_there_whole_or_not_at_all_at_every_step() {
    let mut whole = synced_file();
    let before = whole.steps();
    whole.durable_replace(&FILE, &[block(7)]).unwrap();
    for step in before..whole.steps() {
        let mut disk = synced_file();
        disk.crash_before(step);
        assert_eq!(
            disk.durable_replace(&FILE, &[block(7)]).unwrap_err().kind,
            DiskErrorKind::Crashed
        );
        for mask in 0..1u32 << disk.unsynced().len() {
            let mut item = 0;
            let mut image = disk.power_cut(|_| {
                item += 1;
                if mask >> (item - 1) & 1 == 1 { Fate::Kept } else { Fate::Lost }
            });
            let found = (first_byte(&mut image, 0), image.len(&FILE).unwrap());
            let old = (Some(1), Some(8_192));
            assert!(found == old || found == (Some(7), Some(4_096)), "step {step}: {found:?}");
        }
    }
    assert_eq!(first_byte(&mut whole.power_cut(|_| Fate::Lost), 0), Some(7));
    assert_eq!(whole.list(Directory::Journal).unwrap().files, [FILE]);
}

#[test]
fn a_crashed_disk_does_nothing_any_more() {
    let mut disk = synced_file();
    disk.crash_before(disk.steps());
    assert_eq!(disk.write(&FILE, 0, &[block(9)]).unwrap_err().kind, DiskErrorKind::Crashed);
    assert_eq!(disk.read(&FILE, 0, 1).unwrap_err().kind, DiskErrorKind::Crashed);
    assert!(disk.is_crashed());
    assert_eq!(first_byte(&mut disk.kill(), 0), Some(1));
}

#[test]
fn a_full_disk_refuses_growth_and_takes_overwrites() {
    let mut disk = synced_file();
    disk.set_capacity(Some(8_192));
    assert_eq!(disk.write(&FILE, 8_192, &[block(1)]).unwrap_err().kind, DiskErrorKind::NoSpace);
    disk.write(&FILE, 0, &[block(9)]).unwrap();
    let other = FileName::Journal(2);
    assert_eq!(disk.create_zeroed(&other, 4_096).unwrap_err().kind, DiskErrorKind::NoSpace);
    disk.remove(&FILE).unwrap();
    disk.create_zeroed(&other, 4_096).unwrap();
}

#[test]
fn a_file_set_aside_keeps_its_content_under_a_new_name() {
    let mut disk = synced_file();
    let aside = disk.set_aside(&FILE).unwrap();
    assert_eq!(aside.directory(), Directory::SetAside);
    assert_eq!(disk.len(&FILE).unwrap(), None);
    let mut image = disk.power_cut(|_| Fate::Lost);
    assert_eq!(image.read(&aside, 0, 1).unwrap(), Bytes::from_static(&[1]));
}
