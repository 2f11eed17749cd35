//! A lane's checkpoint: taken at one operation, written when everything it names is durable.
//!
//! ```text
//! owner section   0 u16 version (1)   2  6 zero bytes     8 u64 highest key created
//!                16 u64 highest metadata op that deleted a key    24 u64 newest timestamp
//!                32 windows (see `window`)
//! partition extra 0 u32 partition number   4 u32 flags (1: there is a newest message)
//!                 8 u64 message expiry    16 u64 bytes limit    24 u64 operation of the options
//!                32 u64 newest message    40 u64 end of the segments wished away
//!                48 u64 operation of the last such wish
//! ```
//!
//! Checkpoints of the first version have eight bytes of partition extra: the number and four zeros.
//!
//! Crash argument. The state is captured synchronously, after an operation was applied and before
//! the next; what it names is flushed and synced; only then is it written, under its own name, by
//! one durable replace. The journal is released, and unnamed files removed, after that. A crash at
//! any point finds the older checkpoint with the journal that follows it, or the newer one whole.

use super::Lane;
use super::api::ConsumerKey;
use super::operation::{PartitionOptions, Retention};
use super::reservation::{Reservation, Reservations};
use super::state::{LaneState, RestoredLane};
use super::window::SendWindows;
use crate::back::shared::{Shared, TicketOwner};
use crate::event::FatalError;
use crate::partition::{Partition, PartitionState};
use borzoi_storage::checkpoint::{
    Checkpoint, ConsumerKey as StoredConsumerKey, ConsumerState, PartitionSection,
};
use borzoi_storage::disk::{DiskResult, DiskTicket};
use borzoi_storage::partition::{CheckpointWork, FlushError, PartitionLog, RestoreError};
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Body, Micros, Now, Offset, Op, PartitionId, PartitionKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};

const VERSION: u16 = 1;
const FIXED_BYTES: usize = 32;
const EXTRA_BYTES: usize = 56;
const EXTRA_BYTES_OLD: usize = 8;
const EXTRA_FLAG_LAST: u32 = 1;

/// A checkpoint on its way to the disk.
#[derive(Debug)]
pub struct LaneCheckpoint {
    checkpoint: Checkpoint,
    works: BTreeMap<PartitionKey, CheckpointWork>,
    /// Partitions that have something to make durable first.
    unready: BTreeSet<PartitionKey>,
}

/// Why a checkpoint's content is not a lane's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaneRestoreError {
    /// Written by a build with another layout.
    #[error("lane state of version {0}, this build knows {VERSION}")]
    Version(u16),
    /// The checksum was right and the content is not: a checkpoint of a broken build.
    #[error("malformed lane state")]
    Malformed,
    /// A partition's batches cannot be restored.
    #[error(transparent)]
    Partition(#[from] RestoreError),
}

/// What a checkpoint holds of a lane.
pub struct RestoredCheckpoint {
    /// The replicated state.
    pub state: LaneState,
    /// What was reserved.
    pub reservations: Reservations,
    /// The newest timestamp of the log.
    pub timestamp: Micros,
}

impl Lane {
    /// Whether a checkpoint of this lane is under way.
    #[must_use]
    pub const fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Captures the state as of the last operation applied and starts making durable what it names.
    pub fn begin_checkpoint(&mut self, shared: &mut Shared) {
        assert!(self.checkpoint.is_none(), "one at a time");
        let mut works = BTreeMap::new();
        let mut partitions = Vec::with_capacity(self.state.partitions().len());
        let replicated = self.level == borzoi_types::Durability::Replicated;
        let reservations = &self.reservations;
        for (key, partition) in self.state.partitions_mut() {
            let (state, work) = partition.log.begin_checkpoint();
            works.insert(key, work);
            let reserved = reservations.get(key).reserved.max(state.next_offset);
            partitions.push(PartitionSection {
                state,
                consumers: stored_consumers(partition),
                reserved: replicated.then_some(reserved),
                extra: encode_extra(partition),
            });
        }
        for (key, log) in &mut self.removed {
            let (_, work) = log.begin_checkpoint();
            works.insert(*key, work);
        }
        let owner = encode_owner(&self.state, self.host.timestamp());
        let checkpoint = Checkpoint {
            log: self.log,
            op: self.applied.op,
            prepare_checksum: self.applied.checksum,
            owner,
            partitions,
        };
        assert_eq!(checkpoint.op, self.state.applied());
        let unready = works.keys().copied().collect();
        self.checkpoint = Some(LaneCheckpoint { checkpoint, works, unready });
        for key in self.unready_keys() {
            self.drive_checkpoint_of(key, shared);
        }
    }

    /// Once everything is durable: the checkpoint to write. Returned once.
    pub fn checkpoint_to_write(&mut self) -> Option<Checkpoint> {
        let capture = self.checkpoint.as_mut()?;
        if !capture.unready.is_empty() || capture.checkpoint.op == Op::MAX {
            return None;
        }
        let empty = Checkpoint {
            log: self.log,
            op: Op::MAX,
            prepare_checksum: 0,
            owner: Body::empty(),
            partitions: Vec::new(),
        };
        Some(core::mem::replace(&mut capture.checkpoint, empty))
    }

    /// The checkpoint is durable: files it does not name go away.
    pub fn checkpoint_durable(&mut self, shared: &mut Shared) {
        let capture = self.checkpoint.take().expect("one was under way");
        assert!(capture.unready.is_empty());
        for (key, work) in &capture.works {
            let Some(log) = log_of(&mut self.state, &mut self.removed, *key) else { continue };
            let tickets = log.checkpoint_durable(work, &mut shared.disk);
            own(shared, self.log, *key, &tickets);
        }
        self.removed.retain(|_, log| !log.is_removed());
    }

    /// Whether the checkpoint under way names chunks of a partition that was removed before they
    /// were durable: it has to be taken again.
    #[must_use]
    pub fn is_checkpoint_void(&self) -> bool {
        let Some(capture) = &self.checkpoint else { return false };
        let voided = |(key, log): (&PartitionKey, &PartitionLog)| {
            capture.works.get(key).is_some_and(|work| log.voids_checkpoint(work))
        };
        self.removed.iter().any(voided)
    }

    /// The checkpoint could not be written for lack of space, or not as it was captured; another
    /// will be tried.
    pub fn abandon_checkpoint(&mut self) {
        self.checkpoint = None;
    }

    /// Writes closed chunks of partitions that have any.
    pub fn flush(&mut self, shared: &mut Shared) {
        if shared.no_space.is_some() || self.resting {
            return;
        }
        for key in core::mem::take(&mut self.flush_wanted) {
            let Some(log) = log_of(&mut self.state, &mut self.removed, key) else { continue };
            let tickets = log.flush(&mut shared.cache, 0, &mut shared.disk);
            shared.note_unwritten(log.unwritten_change());
            own(shared, self.log, key, &tickets);
        }
    }

    /// A disk request of a partition has ended.
    pub fn partition_disk(
        &mut self,
        now: Now,
        key: PartitionKey,
        ticket: DiskTicket,
        result: &DiskResult,
        shared: &mut Shared,
    ) {
        let Some(log) = log_of(&mut self.state, &mut self.removed, key) else { return };
        let completed = log.complete(&mut shared.cache, ticket, result);
        shared.note_unwritten(log.unwritten_change());
        match completed {
            Ok(_) => {
                if result.is_ok() {
                    shared.retrying = None;
                }
            }
            Err(FlushError::Retry(error)) => {
                shared.note_no_space(now.mono, error);
                self.flush_wanted.insert(key);
                shared.work.insert(self.log);
                return;
            }
            Err(FlushError::Fatal(error)) => return shared.fail(FatalError::Disk(error)),
        }
        if log.wants_flush() {
            self.flush_wanted.insert(key);
        }
        if log.is_removed() {
            self.removed.remove(&key);
        }
        self.drive_checkpoint_of(key, shared);
        shared.work.insert(self.log);
    }

    /// Tries again what a full disk refused.
    pub fn retry_writes(&mut self, shared: &mut Shared) {
        self.flush(shared);
        for key in self.unready_keys() {
            self.drive_checkpoint_of(key, shared);
        }
    }

    fn unready_keys(&self) -> Vec<PartitionKey> {
        let unready = self.checkpoint.as_ref().map(|capture| capture.unready.iter().copied());
        unready.map(Iterator::collect).unwrap_or_default()
    }

    /// Moves one partition towards what the checkpoint under way names.
    fn drive_checkpoint_of(&mut self, key: PartitionKey, shared: &mut Shared) {
        let Some(capture) = &mut self.checkpoint else { return };
        if !capture.unready.contains(&key) {
            return;
        }
        let Some(log) = log_of(&mut self.state, &mut self.removed, key) else {
            capture.unready.remove(&key);
            return;
        };
        let work = capture.works.get(&key).expect("made when the checkpoint began");
        if log.checkpoint_ready(work) {
            capture.unready.remove(&key);
            return;
        }
        if shared.no_space.is_none() {
            let mut tickets = log.flush(&mut shared.cache, 0, &mut shared.disk);
            tickets.extend(log.sync(&mut shared.disk));
            own(shared, self.log, key, &tickets);
        }
    }
}

/// The log of a partition, whether it exists or is on its way out.
fn log_of<'a>(
    state: &'a mut LaneState,
    removed: &'a mut BTreeMap<PartitionKey, PartitionLog>,
    key: PartitionKey,
) -> Option<&'a mut PartitionLog> {
    match state.partition_mut(key) {
        Some(partition) => Some(&mut partition.log),
        None => removed.get_mut(&key),
    }
}

fn own(shared: &mut Shared, log: borzoi_types::LogId, key: PartitionKey, tickets: &[DiskTicket]) {
    for ticket in tickets {
        let before = shared.tickets.insert(*ticket, TicketOwner::Partition { log, key });
        assert!(before.is_none(), "tickets are unique");
    }
}

fn stored_consumers(partition: &Partition) -> BTreeMap<StoredConsumerKey, ConsumerState> {
    let stored = |consumer| match consumer {
        ConsumerKey::Consumer(id) => StoredConsumerKey::Consumer(id),
        ConsumerKey::Group(id) => StoredConsumerKey::Group(id),
    };
    let mut consumers: BTreeMap<StoredConsumerKey, ConsumerState> = partition
        .offsets()
        .map(|(consumer, offset)| {
            (stored(consumer), ConsumerState { offset: Some(offset), generation: 0 })
        })
        .collect();
    for (group, generation) in &partition.state().generations {
        consumers.entry(StoredConsumerKey::Group(*group)).or_default().generation = *generation;
    }
    consumers
}

fn encode_extra(partition: &Partition) -> Bytes {
    let (options, state) = (&partition.options, partition.state());
    let mut extra = BytesMut::with_capacity(EXTRA_BYTES);
    extra.put_u32_le(options.partition.0);
    extra.put_u32_le(if state.last.is_some() { EXTRA_FLAG_LAST } else { 0 });
    extra.put_u64_le(options.retention.message_expiry.0);
    extra.put_u64_le(options.retention.bytes_max);
    extra.put_u64_le(options.options_op.0);
    extra.put_u64_le(state.last.unwrap_or_default().0);
    extra.put_u64_le(state.delete_through.0);
    extra.put_u64_le(state.wish_op.0);
    assert_eq!(extra.len(), EXTRA_BYTES);
    extra.freeze()
}

fn encode_owner(state: &LaneState, timestamp: Micros) -> Body {
    let mut owner = BytesMut::new();
    owner.put_u16_le(VERSION);
    owner.put_bytes(0, 6);
    owner.put_u64_le(state.highest_created().0);
    owner.put_u64_le(state.deleted_by().0);
    owner.put_u64_le(timestamp.0);
    assert_eq!(owner.len(), FIXED_BYTES);
    let no_windows = SendWindows::default();
    let left_out = planted::is(Bug::DedupNotInCheckpoint);
    if left_out { &no_windows } else { state.windows() }.encode(&mut owner);
    Body::from(owner.freeze())
}

/// The lane that a checkpoint describes.
///
/// # Errors
/// [`LaneRestoreError`] if the checkpoint, though intact, does not describe one.
pub fn restore(checkpoint: &Checkpoint) -> Result<RestoredCheckpoint, LaneRestoreError> {
    let mut owner = checkpoint.owner.to_bytes();
    if owner.remaining() < FIXED_BYTES {
        return Err(LaneRestoreError::Malformed);
    }
    let version = owner.get_u16_le();
    if version != VERSION {
        return Err(LaneRestoreError::Version(version));
    }
    owner.advance(6);
    let highest_created = PartitionKey(owner.get_u64_le());
    let deleted_by = Op(owner.get_u64_le());
    let timestamp = Micros(owner.get_u64_le());
    let windows = SendWindows::decode(&mut owner).ok_or(LaneRestoreError::Malformed)?;
    if owner.has_remaining() {
        return Err(LaneRestoreError::Malformed);
    }
    let mut partitions = BTreeMap::new();
    let mut reserved = Vec::new();
    for section in &checkpoint.partitions {
        let key = section.state.key;
        if key > highest_created {
            return Err(LaneRestoreError::Malformed);
        }
        if let Some(ceiling) = section.reserved {
            let frontier = section.state.next_offset;
            reserved.push((key, Reservation { frontier, reserved: ceiling }));
        }
        partitions.insert(key, restore_partition(section)?);
    }
    let mut reservations = Reservations::default();
    reservations.merge(super::reservation::ReservationMode::Advance, &reserved);
    let applied = checkpoint.op;
    let state = LaneState::restored(RestoredLane {
        partitions,
        windows,
        highest_created,
        deleted_by,
        applied,
    });
    Ok(RestoredCheckpoint { state, reservations, timestamp })
}

fn restore_partition(section: &PartitionSection) -> Result<Partition, LaneRestoreError> {
    let log = PartitionLog::restore(&section.state)?;
    let (options, mut state) = decode_extra(section, &log).ok_or(LaneRestoreError::Malformed)?;
    for (consumer, stored) in &section.consumers {
        let consumer = match consumer {
            StoredConsumerKey::Consumer(id) => ConsumerKey::Consumer(*id),
            StoredConsumerKey::Group(group) => {
                if stored.generation > 0 {
                    state.generations.insert(*group, stored.generation);
                }
                ConsumerKey::Group(*group)
            }
        };
        if let Some(offset) = stored.offset {
            state.offsets.insert(consumer, offset);
        }
    }
    Ok(Partition::restored(log, options, state))
}

/// What the lane keeps of a partition; none if it is malformed.
fn decode_extra(
    section: &PartitionSection,
    log: &PartitionLog,
) -> Option<(PartitionOptions, PartitionState)> {
    let mut extra = section.extra.clone();
    let old = extra.len() == EXTRA_BYTES_OLD;
    if !old && extra.len() != EXTRA_BYTES {
        return None;
    }
    let partition = PartitionId(extra.get_u32_le());
    let flags = extra.get_u32_le();
    let segment_bytes = section.state.segment_bytes_max;
    if old {
        let (retention, options_op) = (Retention::NONE, Op::ZERO);
        let options = PartitionOptions { segment_bytes, partition, retention, options_op };
        // Nothing was ever removed then: the newest message is in the newest segment with any.
        let segments = log.closed_segments().iter().chain([log.active_segment()]);
        let newest = segments.rev().find(|segment| !segment.is_empty());
        let last = newest.and_then(|segment| segment.end.0.checked_sub(1)).map(Offset);
        return Some((options, PartitionState { last, ..PartitionState::default() }));
    }
    let message_expiry = Micros(extra.get_u64_le());
    let retention = Retention { message_expiry, bytes_max: extra.get_u64_le() };
    let options_op = Op(extra.get_u64_le());
    let options = PartitionOptions { segment_bytes, partition, retention, options_op };
    let last = Offset(extra.get_u64_le());
    let last = (flags & EXTRA_FLAG_LAST != 0).then_some(last);
    let delete_through = Offset(extra.get_u64_le());
    let wish_op = Op(extra.get_u64_le());
    if last.is_some_and(|last| last >= log.next_offset()) {
        return None;
    }
    Some((options, PartitionState { last, delete_through, wish_op, ..PartitionState::default() }))
}
