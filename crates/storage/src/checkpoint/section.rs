//! One partition's section of a checkpoint.
//!
//! ```text
//! 0      8             16            24        32        36       40       44      48
//! ┌──────┬─────────────┬─────────────┬─────────┬─────────┬────────┬────────┬────────┐
//! │ key  │segment size │ next offset │ reserved│ flags   │segments│consum. │ extra  │
//! ├──────┴───┬─────────┴─┬───────┬───┴──┬──────┴─────────┴────────┴────────┴────────┘
//! │ segments │ consumers │ extra │ tail │
//! └──────────┴───────────┴───────┴──────┘
//! segment   0      8     16      24           32          40
//!           ┌──────┬─────┬───────┬────────────┬───────────┐
//!           │ base │ end │ bytes │ file bytes │ max. time │     the last one is the active segment
//!           └──────┴─────┴───────┴────────────┴───────────┘
//! consumer  0      1    4    8        16           24
//!           ┌──────┬────┬────┬────────┬────────────┐
//!           │ kind │ 0  │ id │ offset │ generation │           offset 2^64-1: none is stored
//!           └──────┴────┴────┴────────┴────────────┘
//! ```
//!
//! Flag bit 0: a reservation is recorded. There is no layout without the field, so that a zero
//! can never be taken for a reservation (required behaviour A11). `extra` is the owner's. The tail
//! goes on to the end of the section.

use super::Gather;
use crate::partition::{PartitionState, RestoreError};
use crate::segment::{Segment, u32_at, u64_at};
use borzoi_types::{Body, GroupId, Micros, Offset, PartitionKey};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

const FIXED_BYTES: usize = 48;
const SEGMENT_BYTES: usize = 40;
const CONSUMER_BYTES: usize = 24;
const KIND_CONSUMER: u8 = 1;
const KIND_GROUP: u8 = 2;
const FLAG_RESERVED: u32 = 1;
const NO_OFFSET: u64 = u64::MAX;

/// Whose offset is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConsumerKey {
    /// A plain consumer: its number, or the hash of its name.
    Consumer(u32),
    /// A consumer group.
    Group(GroupId),
}

/// What a partition keeps of one consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerState {
    /// Offset of the last message processed, if one is stored.
    pub offset: Option<Offset>,
    /// Highest owner generation seen of a group; 0 for plain consumers.
    pub generation: u64,
}

/// Everything a checkpoint keeps of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSection {
    /// Its batches: segments and tail.
    pub state: PartitionState,
    /// Its consumers.
    pub consumers: BTreeMap<ConsumerKey, ConsumerState>,
    /// The reserved ceiling of a `replicated` lane: no offset at or above it was given to anyone
    /// (required behaviour A1). Never below the next offset.
    pub reserved: Option<Offset>,
    /// Whatever else its owner keeps of it: options, names.
    pub extra: Bytes,
}

/// Why a section is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SectionError {
    /// Ends before its counts do.
    #[error("cut short")]
    Length,
    /// A field holds what it cannot hold.
    #[error("a field is out of range")]
    Field,
    /// Consumers are not in order.
    #[error("consumers are not in order")]
    Order,
    /// The batches cannot be those of a partition.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl PartitionSection {
    /// The section's content; a large tail is shared.
    #[must_use]
    pub fn encode(&self) -> Body {
        let state = &self.state;
        assert!(self.reserved.is_none_or(|reserved| reserved >= state.next_offset), "A1");
        let count = |length: usize| u32::try_from(length).expect("bounded by memory");
        let mut gather = Gather::default();
        let out = gather.packed();
        out.put_u64_le(state.key.0);
        out.put_u64_le(state.segment_bytes_max);
        out.put_u64_le(state.next_offset.0);
        out.put_u64_le(self.reserved.map_or(0, Offset::get));
        out.put_u32_le(if self.reserved.is_some() { FLAG_RESERVED } else { 0 });
        out.put_u32_le(count(state.closed.len() + 1));
        out.put_u32_le(count(self.consumers.len()));
        out.put_u32_le(count(self.extra.len()));
        assert!(out.len() == FIXED_BYTES);
        for segment in state.closed.iter().chain([&state.active]) {
            put_segment(out, segment);
        }
        for (key, consumer) in &self.consumers {
            put_consumer(out, *key, consumer);
        }
        let lists =
            (state.closed.len() + 1) * SEGMENT_BYTES + self.consumers.len() * CONSUMER_BYTES;
        assert!(gather.packed().len() == FIXED_BYTES + lists, "as the counts say");
        gather.push(&self.extra);
        for part in state.tail.parts() {
            gather.push(part);
        }
        gather.finish()
    }

    /// Reads a section. Everything is checked, down to whether the batches could be restored.
    ///
    /// # Errors
    /// See [`SectionError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, SectionError> {
        if bytes.len() < FIXED_BYTES {
            return Err(SectionError::Length);
        }
        let flags = u32_at(bytes, 32);
        let segments = u32_at(bytes, 36) as usize;
        let consumers = u32_at(bytes, 40) as usize;
        let extra = u32_at(bytes, 44) as usize;
        let mut rest = bytes.slice(FIXED_BYTES..);
        let segments = take(&mut rest, segments.checked_mul(SEGMENT_BYTES))?;
        let consumers = take(&mut rest, consumers.checked_mul(CONSUMER_BYTES))?;
        let extra = take(&mut rest, Some(extra))?;
        let mut closed: Vec<Segment> =
            segments.chunks_exact(SEGMENT_BYTES).map(get_segment).collect();
        let active = closed.pop().ok_or(SectionError::Field)?;
        let state = PartitionState {
            key: PartitionKey(u64_at(bytes, 0)),
            segment_bytes_max: u64_at(bytes, 8),
            next_offset: Offset(u64_at(bytes, 16)),
            closed,
            active,
            tail: Body::from(rest),
        };
        let reserved = match flags {
            0 if u64_at(bytes, 24) == 0 => None,
            FLAG_RESERVED => Some(Offset(u64_at(bytes, 24))),
            _ => return Err(SectionError::Field),
        };
        if reserved.is_some_and(|reserved| reserved < state.next_offset) {
            return Err(SectionError::Field);
        }
        let (messages, _) = state.check()?;
        assert!(messages <= state.next_offset.0, "offsets count every message");
        assert!(reserved.is_none_or(|reserved| reserved >= state.next_offset), "A1");
        Ok(Self { state, consumers: get_consumers(&consumers)?, reserved, extra })
    }
}

fn take(rest: &mut Bytes, length: Option<usize>) -> Result<Bytes, SectionError> {
    let length = length.filter(|length| *length <= rest.len()).ok_or(SectionError::Length)?;
    let taken = rest.split_to(length);
    assert!(taken.len() == length);
    Ok(taken)
}

fn put_segment(out: &mut BytesMut, segment: &Segment) {
    segment.assert_valid();
    let before = out.len();
    out.put_u64_le(segment.base.0);
    out.put_u64_le(segment.end.0);
    out.put_u64_le(segment.bytes);
    out.put_u64_le(segment.file_bytes);
    out.put_u64_le(segment.timestamp_max.0);
    assert!(out.len() - before == SEGMENT_BYTES);
}

fn get_segment(slot: &[u8]) -> Segment {
    assert!(slot.len() == SEGMENT_BYTES);
    Segment {
        base: Offset(u64_at(slot, 0)),
        end: Offset(u64_at(slot, 8)),
        bytes: u64_at(slot, 16),
        file_bytes: u64_at(slot, 24),
        timestamp_max: Micros(u64_at(slot, 32)),
    }
}

fn put_consumer(out: &mut BytesMut, key: ConsumerKey, consumer: &ConsumerState) {
    assert!(consumer.offset != Some(Offset(NO_OFFSET)), "no message has that offset");
    let before = out.len();
    let (kind, id) = match key {
        ConsumerKey::Consumer(id) => (KIND_CONSUMER, id),
        ConsumerKey::Group(id) => (KIND_GROUP, id.0),
    };
    out.put_slice(&[kind, 0, 0, 0]);
    out.put_u32_le(id);
    out.put_u64_le(consumer.offset.map_or(NO_OFFSET, Offset::get));
    out.put_u64_le(consumer.generation);
    assert!(out.len() - before == CONSUMER_BYTES);
}

fn get_consumers(bytes: &[u8]) -> Result<BTreeMap<ConsumerKey, ConsumerState>, SectionError> {
    assert!(bytes.len().is_multiple_of(CONSUMER_BYTES));
    let mut consumers = BTreeMap::new();
    for slot in bytes.chunks_exact(CONSUMER_BYTES) {
        let id = u32_at(slot, 4);
        let key = match slot[0..4] {
            [KIND_CONSUMER, 0, 0, 0] => ConsumerKey::Consumer(id),
            [KIND_GROUP, 0, 0, 0] => ConsumerKey::Group(GroupId(id)),
            _ => return Err(SectionError::Field),
        };
        let offset = Some(u64_at(slot, 8)).filter(|offset| *offset != NO_OFFSET).map(Offset);
        let state = ConsumerState { offset, generation: u64_at(slot, 16) };
        if consumers.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(SectionError::Order);
        }
        consumers.insert(key, state);
    }
    assert!(consumers.len() == bytes.len() / CONSUMER_BYTES);
    Ok(consumers)
}
