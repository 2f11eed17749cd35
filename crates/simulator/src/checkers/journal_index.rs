//! What the journals of one node hold, read from the bytes that were written, and how safely. Not
//! a checker itself: others ask it.

use borzoi_consensus::{HEADER_BYTES, PrepareHeader};
use borzoi_storage::disk::{DiskRequest, FileName};
use borzoi_storage::journal::RecordKind;
use borzoi_storage::journal::layout::{
    FILE_HEADER_BYTES, FileHeader, HeaderRead, RECORD_HEADER_BYTES, RecordHeader,
};
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Durability, LogId, Op, View};
use std::collections::BTreeMap;

/// Log, operation and checksum of a prepare.
pub type Key = (LogId, Op, u128);

/// A record that has become safer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marked {
    /// Which prepare.
    pub key: Key,
    /// The view it was prepared in.
    pub view: View,
    /// Whether it is synced, not only written.
    pub synced: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    parent: u128,
    view: View,
    written: bool,
    synced: bool,
    /// It was there, and an injected fault has taken it.
    lost: bool,
}

/// A record on its way to the disk.
#[derive(Clone, Debug)]
struct Fresh {
    key: Key,
    file: FileName,
    offset: u64,
    bytes: u64,
    salt: u64,
    checksum: u128,
}

/// See the module.
#[derive(Debug, Default)]
pub struct JournalIndex {
    salts: BTreeMap<FileName, u64>,
    known: BTreeMap<Key, Known>,
    fresh: Vec<Fresh>,
}

impl JournalIndex {
    /// A write to the journal is under way.
    pub fn submitted(&mut self, request: &DiskRequest) {
        let DiskRequest::Write { file, offset, parts } = request else { return };
        if !matches!(file, FileName::Journal(_)) {
            return;
        }
        let mut bytes = Vec::with_capacity(parts.iter().map(bytes::Bytes::len).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let mut at = 0;
        if *offset == 0 {
            if let HeaderRead::Header(header) = FileHeader::decode(&bytes) {
                self.salts.insert(file.clone(), header.salt);
            }
            at = usize::try_from(FILE_HEADER_BYTES).expect("two blocks");
        }
        let Some(salt) = self.salts.get(file).copied() else { return };
        while let Some((header, checksum)) =
            bytes.get(at..).and_then(|rest| RecordHeader::decode(rest, salt))
        {
            let from = at + RECORD_HEADER_BYTES;
            if header.kind == RecordKind::Prepare
                && let Some(encoded) = bytes.get(from..from + HEADER_BYTES)
                && let Ok(prepare) = PrepareHeader::decode(encoded)
            {
                let key = (header.log, header.op, prepare.checksum);
                let (parent, view) = (prepare.parent, prepare.view);
                self.known.entry(key).or_insert(Known {
                    parent,
                    view,
                    written: false,
                    synced: false,
                    lost: false,
                });
                let offset = offset + at as u64;
                let bytes = header.record_bytes();
                let file = file.clone();
                self.fresh.push(Fresh { key, file, offset, bytes, salt, checksum });
            }
            at += usize::try_from(header.record_bytes()).expect("in memory");
        }
    }

    /// Looks at the disk for what is on its way; gives what has become safer.
    pub fn look(&mut self, disk: &SimDisk) -> Vec<Marked> {
        let mut marked = Vec::new();
        let known = &mut self.known;
        self.fresh.retain(|fresh| {
            let head = disk.peek(&fresh.file, fresh.offset, RECORD_HEADER_BYTES as u64);
            let found = head.and_then(|head| RecordHeader::decode(&head, fresh.salt));
            if found.is_none_or(|(_, checksum)| checksum != fresh.checksum) {
                return true;
            }
            let Some(entry) = known.get_mut(&fresh.key) else { return false };
            let synced = disk.is_range_durable(&fresh.file, fresh.offset, fresh.bytes);
            if !entry.written || synced {
                marked.push(Marked { key: fresh.key, view: entry.view, synced });
            }
            entry.written = true;
            entry.lost = false;
            entry.synced |= synced;
            !synced
        });
        marked
    }

    /// The process is gone: what was on its way is not waited for any more.
    pub fn forget_unfinished(&mut self) {
        self.fresh.clear();
    }

    /// The power was cut: what was not synced may be gone.
    pub fn unsynced_lost(&mut self) {
        self.fresh.clear();
        self.known.values_mut().for_each(|known| known.lost |= !known.synced);
    }

    /// Whether a prepare has reached the disk at a level, and nothing injected has taken it since.
    #[must_use]
    pub fn holds_now(&self, key: Key, level: Durability) -> bool {
        self.holds(key, level) && self.known.get(&key).is_some_and(|known| !known.lost)
    }

    /// Whether a prepare has ever reached the disk at a level.
    #[must_use]
    pub fn holds(&self, key: Key, level: Durability) -> bool {
        self.known.get(&key).is_some_and(|known| match level {
            Durability::Persisted => known.synced,
            Durability::Replicated => known.written,
        })
    }

    /// The checksum of the operation before a prepare.
    #[must_use]
    pub fn parent(&self, key: Key) -> Option<u128> {
        self.known.get(&key).map(|known| known.parent)
    }
}
