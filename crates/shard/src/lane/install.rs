//! Replacing a lane's state by a peer's (state transfer).
//!
//! Offsets (architecture, section 7; required behaviour A9): the reservation follows the
//! transferred frontier, down as well as up, unless operations above the checkpoint are in this
//! node's log already: what they claimed stays claimed.

use super::Lane;
use super::checkpoint::{LaneRestoreError, restore};
use super::reservation::{self, Reservation, ReservationMode};
use crate::back::shared::Shared;
use borzoi_consensus::Anchor;
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::FileName;
use borzoi_storage::journal::{JournalRecord, RecordClass, RecordKind};
use borzoi_types::{Durability, Offset, PartitionKey};
use std::collections::BTreeSet;

impl Lane {
    /// While a transfer ends: nothing of the lane's own is written.
    pub fn set_resting(&mut self, resting: bool) {
        self.resting = resting;
    }

    /// Bytes of a segment file that are durable here and cannot change.
    #[must_use]
    pub fn durable_bytes_of(&self, key: PartitionKey, base: Offset) -> u64 {
        let Some(partition) = self.state.partition(key) else { return 0 };
        let log = &partition.log;
        if log.is_flushing() {
            return 0; // Something closed is not durable yet: rare, and copied again.
        }
        let segments = log.closed_segments().iter().chain([log.active_segment()]);
        segments.filter(|segment| segment.base == base).map(|segment| segment.file_bytes).sum()
    }

    /// Takes over the state of a durable checkpoint whose files are all here. `copied` are the
    /// files that were written for it. Returns the files that nobody names any more.
    ///
    /// # Errors
    /// When the checkpoint, though intact, does not describe a lane; nothing has changed then.
    pub fn install(
        &mut self,
        checkpoint: &Checkpoint,
        copied: &BTreeSet<FileName>,
        shared: &mut Shared,
    ) -> Result<Vec<FileName>, LaneRestoreError> {
        assert!(!self.serving && self.in_flight.is_empty(), "who leads has nothing to learn");
        assert!(self.checkpoint.is_none(), "one state at a time");
        assert_eq!(checkpoint.log, self.log);
        let restored = restore(checkpoint)?;
        let mut unnamed = self.files();
        for (_, partition) in self.state.partitions() {
            partition.log.evict(&mut shared.cache);
        }
        self.state = restored.state;
        self.applied = Anchor { op: checkpoint.op, checksum: checkpoint.prepare_checksum };
        self.removed.clear();
        self.flush_wanted.clear();
        self.forget_plans();
        self.create_planned = self.state.highest_created();
        self.reconciled = None;
        self.host.note_timestamp(restored.timestamp);
        for (_, partition) in self.state.partitions() {
            partition.log.evict(&mut shared.cache);
        }
        self.install_reservations(shared);
        let named = self.files();
        unnamed.retain(|file| !named.contains(file));
        // Indexes are derived: one of a file that was written over is made again.
        let stale = copied.iter().filter_map(|file| match file {
            FileName::Segment { key, base } => {
                Some(FileName::SegmentIndex { key: *key, base: *base })
            }
            _ => None,
        });
        unnamed.extend(stale);
        Ok(unnamed.into_iter().collect())
    }

    /// Every segment file of the lane, with its index.
    fn files(&self) -> BTreeSet<FileName> {
        let logs = self.state.partitions().map(|(_, partition)| &partition.log);
        let mut files = BTreeSet::new();
        for log in logs.chain(self.removed.values()) {
            for base in log.file_bases() {
                let key = log.key();
                files.insert(FileName::Segment { key, base });
                files.insert(FileName::SegmentIndex { key, base });
            }
        }
        files
    }

    fn install_reservations(&mut self, shared: &mut Shared) {
        if self.level == Durability::Persisted {
            return;
        }
        let above = self.host.replica().head() > self.applied.op;
        let before = core::mem::take(&mut self.reservations);
        let mut entries: Vec<(PartitionKey, Reservation)> = Vec::new();
        for (key, partition) in self.state.partitions() {
            let frontier = partition.log.next_offset();
            let claimed = if above { before.get(key).reserved } else { frontier };
            entries.push((key, Reservation { frontier, reserved: claimed.max(frontier) }));
        }
        self.reservations = before.replaced(&entries);
        let (header, body) = reservation::encode(ReservationMode::Install, &entries);
        let (kind, log) = (RecordKind::Reservation, self.log);
        let record = JournalRecord { kind, log, op: self.applied.op.next(), header, body };
        // A journal that does not take it leaves the higher claims of before on disk, which cost a
        // hole and nothing else.
        let _ = shared.journal.append(record, Durability::Persisted, RecordClass::Reserved);
    }
}
