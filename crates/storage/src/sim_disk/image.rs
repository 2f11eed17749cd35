//! What a restarted machine finds on the simulated disk.

use super::block::{Version, bytes_of};
use super::{BLOCK_BYTES, SimDisk};
use crate::disk::{Directory, DiskIdentity, FileName};
use bytes::Bytes;

/// What becomes of one unsynced item at a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached the disk.
    Kept,
    /// The disk holds what was there before.
    Lost,
    /// Of a block: 512-byte piece i is new where bit i is set, old elsewhere. Of a name: kept.
    Torn(u8),
}

/// One item whose fate is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsynced {
    /// The file, by its newest name.
    pub file: FileName,
    /// What of it.
    pub what: UnsyncedWhat,
}

/// What a crash may undo.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnsyncedWhat {
    /// The block with this index.
    Block(u64),
    /// A creation, a rename or an unlink. If it is lost, later ones of its directory are as well.
    Name,
}

impl SimDisk {
    /// The items whose fate a power cut would decide now, in a fixed order.
    #[must_use]
    pub fn unsynced(&self) -> Vec<Unsynced> {
        let mut items = Vec::new();
        for changes in self.pending_names.values() {
            for change in changes {
                items.push(Unsynced { file: change.file.clone(), what: UnsyncedWhat::Name });
            }
        }
        for (file, node) in &self.names {
            for index in self.files[node].pending().keys() {
                let what = UnsyncedWhat::Block(*index);
                items.push(Unsynced { file: file.clone(), what });
            }
        }
        items
    }

    /// What a read would return now, without being one: no fault strikes it, nothing is counted.
    #[must_use]
    pub fn peek(&self, file: &FileName, offset: u64, bytes: u64) -> Option<Bytes> {
        let node = self.names.get(file)?;
        Some(self.files[node].read(offset, bytes))
    }

    /// Whether a power cut now would leave these bytes of `file` as they are, under its name.
    #[must_use]
    pub fn is_range_durable(&self, file: &FileName, offset: u64, bytes: u64) -> bool {
        let Some(node) = self.names.get(file) else { return false };
        let end = offset + bytes;
        let blocks = offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64);
        let content = &self.files[node];
        self.durable_names.get(file) == Some(node)
            && content.durable_bytes() >= end
            && content.pending().range(blocks).next().is_none()
    }

    /// The process is gone, the machine lives: everything written is there, unsynced as before,
    /// and a step at which the process was to crash is forgotten.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut image = self.clone();
        image.crashed = false;
        image.crash_before = None;
        image
    }

    /// The power was cut: `fate` is asked once for every item of [`Self::unsynced`], in that
    /// order; what is left is durable.
    #[must_use]
    pub fn power_cut(&self, mut fate: impl FnMut(&Unsynced) -> Fate) -> Self {
        let mut image = Self::new(self.identity);
        image.strays = self.strays.clone();
        image.capacity = self.capacity;
        image.next_node = self.next_node;
        image.names = self.durable_names.clone();
        for changes in self.pending_names.values() {
            let mut lost = false;
            for change in changes {
                let item = Unsynced { file: change.file.clone(), what: UnsyncedWhat::Name };
                // The question is asked even when the answer no longer matters: the order of
                // questions is the order of `unsynced`.
                lost |= fate(&item) == Fate::Lost;
                match change.now {
                    _ if lost => None,
                    Some(node) => image.names.insert(change.file.clone(), node),
                    None => image.names.remove(&change.file),
                };
            }
        }
        let mut settled = std::collections::BTreeMap::new();
        for (file, node) in &self.names {
            let content = self.files[node].settled(|index, pending, current| {
                let item = Unsynced { file: file.clone(), what: UnsyncedWhat::Block(index) };
                match fate(&item) {
                    Fate::Kept => current.clone(),
                    Fate::Lost => pending.durable.clone(),
                    Fate::Torn(mask) => torn(&pending.durable, current, mask),
                }
            });
            settled.insert(*node, content);
        }
        for node in image.names.values() {
            // A file whose newest name is gone: its old name is back, with what was durable.
            let content = settled.get(node).cloned().unwrap_or_else(|| {
                self.files[node].settled(|_, pending, _| pending.durable.clone())
            });
            assert!(content.bytes() == content.durable_bytes(), "an image is durable");
            image.files.insert(*node, content);
        }
        image.durable_names = image.names.clone();
        image
    }

    /// As [`Self::power_cut`], on a machine that came up with another boot identity.
    #[must_use]
    pub fn power_cut_and_boot(
        &self,
        boot_id: [u8; 16],
        fate: impl FnMut(&Unsynced) -> Fate,
    ) -> Self {
        let mut image = self.power_cut(fate);
        image.identity = DiskIdentity { boot_id: Some(boot_id), ..image.identity };
        image
    }

    /// Whether nothing is unsynced in `directory`.
    #[must_use]
    pub fn is_synced(&self, directory: Directory) -> bool {
        self.unsynced().iter().all(|item| item.file.directory() != directory)
    }
}

fn torn(old: &Version, new: &Version, mask: u8) -> Version {
    let (old, new) = (bytes_of(old), bytes_of(new));
    assert_eq!((old.len(), new.len()), (BLOCK_BYTES, BLOCK_BYTES), "blocks are whole");
    let mut mixed = old.to_vec();
    for piece in (0..8).filter(|piece| mask >> piece & 1 == 1) {
        let range = piece * 512..(piece + 1) * 512;
        mixed[range.clone()].copy_from_slice(&new[range]);
    }
    Some(Bytes::from(mixed))
}
