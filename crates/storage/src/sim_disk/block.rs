//! The content of one simulated file, block by block, with what a crash may undo.

use super::gather;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes of one block, the unit in which content is kept or lost.
pub const BLOCK_BYTES: usize = 4_096;

/// Content of a block; `None` is all zeros.
pub(super) type Version = Option<Bytes>;

/// A block with writes that no sync has covered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// What is durable.
    pub durable: Version,
    /// How many writes the block has seen; tells a sync in flight from later writes.
    pub writes: usize,
    /// A sync that should have covered it failed: syncs do not touch it any more.
    pub poisoned: bool,
}

/// One file.
#[derive(Clone, Default, Debug)]
pub(super) struct SimFile {
    blocks: Vec<Version>,
    bytes: u64,
    durable_bytes: u64,
    pending: BTreeMap<u64, Pending>,
}

impl SimFile {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn durable_bytes(&self) -> u64 {
        self.durable_bytes
    }

    pub(super) fn pending(&self) -> &BTreeMap<u64, Pending> {
        &self.pending
    }

    pub(super) fn block(&self, index: u64) -> Version {
        let index = usize::try_from(index).expect("simulated files fit in memory");
        self.blocks.get(index).cloned().flatten()
    }

    /// Lengthens the file with zeros.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
        let blocks = usize::try_from(self.bytes.div_ceil(BLOCK_BYTES as u64)).expect("in memory");
        self.blocks.resize(blocks, None);
        assert!(self.durable_bytes <= self.bytes, "a file never shrinks");
    }

    pub(super) fn write(&mut self, offset: u64, parts: &[Bytes]) {
        let data = gather(parts);
        self.grow(offset + data.len() as u64);
        let mut at = 0;
        while at < data.len() {
            let position = offset + at as u64;
            let index = position / BLOCK_BYTES as u64;
            let within = usize::try_from(position % BLOCK_BYTES as u64).expect("below a block");
            let take = (BLOCK_BYTES - within).min(data.len() - at);
            let piece = data.slice(at..at + take);
            let block = if take == BLOCK_BYTES {
                piece
            } else {
                let mut whole = bytes_of(&self.block(index)).to_vec();
                whole[within..within + take].copy_from_slice(&piece);
                Bytes::from(whole)
            };
            self.replace(index, Some(block));
            at += take;
        }
    }

    fn replace(&mut self, index: u64, block: Version) {
        let durable = self.block(index);
        let pending =
            self.pending.entry(index).or_insert(Pending { durable, writes: 0, poisoned: false });
        pending.writes += 1;
        pending.poisoned = false;
        self.blocks[usize::try_from(index).expect("in memory")] = block;
    }

    pub(super) fn read(&self, offset: u64, bytes: u64) -> Bytes {
        let end = offset.saturating_add(bytes).min(self.bytes);
        if offset >= end {
            return Bytes::new();
        }
        let wanted = usize::try_from(end - offset).expect("in memory");
        let mut data = Vec::with_capacity(wanted);
        let mut position = offset;
        while position < end {
            let block = self.block(position / BLOCK_BYTES as u64);
            let within = usize::try_from(position % BLOCK_BYTES as u64).expect("below a block");
            let take = (BLOCK_BYTES - within).min(wanted - data.len());
            match block {
                Some(block) => data.extend_from_slice(&block[within..within + take]),
                None => data.resize(data.len() + take, 0),
            }
            position += take as u64;
        }
        assert_eq!(data.len(), wanted);
        Bytes::from(data)
    }

    /// How often each unsynced block has been written so far.
    pub(super) fn newest_versions(&self) -> BTreeMap<u64, usize> {
        self.pending.iter().map(|(index, pending)| (*index, pending.writes)).collect()
    }

    /// Makes blocks durable that have not been written since `versions` was taken.
    pub(super) fn sync(&mut self, versions: &BTreeMap<u64, usize>, bytes: u64) {
        self.durable_bytes = self.durable_bytes.max(bytes);
        assert!(bytes <= self.bytes, "a sync covers what was there");
        self.pending.retain(|index, pending| {
            pending.poisoned || versions.get(index).is_none_or(|writes| *writes != pending.writes)
        });
    }

    pub(super) fn poison(&mut self, versions: &BTreeMap<u64, usize>) {
        for (index, pending) in &mut self.pending {
            pending.poisoned |= versions.contains_key(index);
        }
    }

    /// Changes one byte in what is durable and in what reads return.
    pub(super) fn damage(&mut self, offset: u64, change: &impl Fn(u8) -> u8) {
        let index = offset / BLOCK_BYTES as u64;
        let within = usize::try_from(offset % BLOCK_BYTES as u64).expect("below a block");
        let damaged = |version: &Version| {
            let mut bytes = bytes_of(version).to_vec();
            bytes[within] = change(bytes[within]);
            Some(Bytes::from(bytes))
        };
        let at = usize::try_from(index).expect("in memory");
        self.blocks[at] = damaged(&self.blocks[at]);
        if let Some(pending) = self.pending.get_mut(&index) {
            pending.durable = damaged(&pending.durable);
        }
    }

    /// The file as a power cut leaves it: every pending block replaced by what `decide` returns
    /// for it, everything durable.
    pub(super) fn settled(
        &self,
        mut decide: impl FnMut(u64, &Pending, &Version) -> Version,
    ) -> Self {
        let mut file = Self { durable_bytes: self.durable_bytes, ..self.clone() };
        let mut bytes = self.durable_bytes;
        for (index, pending) in &self.pending {
            let current = self.block(*index);
            let block = decide(*index, pending, &current);
            if block != pending.durable {
                // Data beyond the durable length brings the length with it.
                bytes = bytes.max(((index + 1) * BLOCK_BYTES as u64).min(self.bytes));
            }
            file.blocks[usize::try_from(*index).expect("in memory")] = block;
        }
        file.pending.clear();
        (file.bytes, file.durable_bytes) = (bytes, bytes);
        let blocks = usize::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).expect("in memory");
        file.blocks.resize(blocks, None);
        file
    }
}

/// The bytes of a block.
pub(super) fn bytes_of(version: &Version) -> Bytes {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    version.clone().unwrap_or(Bytes::from_static(&ZEROS))
}
