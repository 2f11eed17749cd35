//! The whole state as bytes, for checkpoints and state transfer.
//!
//! ```text
//! version u8 = 1 | layout | applied, next key, next group, next user
//! | streams with topics and groups | users with tokens | partitions | per lane: what it has not
//! | confirmed | sessions
//! ```
//!
//! The storage layer adds magic, length and checksum. Indexes are not written but rebuilt, so equal
//! states give equal bytes; a snapshot whose parts contradict each other is refused by name.

use crate::codec::{Codec, DecodeError, Input, codec_struct};
use crate::identity::GroupPlace;
use crate::lanes::{Lane, Layout};
use crate::partition_table::PartitionRecord;
use crate::state::Metadata;
use crate::streams::{Stream, Topic};
use crate::users::User;
use borzoi_types::{Op, PartitionKey};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the snapshot that this build writes.
pub const SNAPSHOT_VERSION: u8 = 1;

/// What a snapshot has of one lane.
struct LaneRecord {
    tombstones: BTreeMap<PartitionKey, Op>,
    wishes: BTreeMap<(PartitionKey, Op), u32>,
    confirmed: Op,
}

codec_struct!(LaneRecord { tombstones, wishes, confirmed });

impl Codec for Topic {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.name.put(out);
        self.created.put(out);
        self.options.put(out);
        self.options_op.put(out);
        self.partitions.put(out);
        self.groups.put(out);
        self.next_group.put(out);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut topic = Self {
            id: Codec::get(input)?,
            name: Codec::get(input)?,
            created: Codec::get(input)?,
            options: Codec::get(input)?,
            options_op: Codec::get(input)?,
            partitions: Codec::get(input)?,
            groups: Codec::get(input)?,
            group_names: BTreeMap::new(),
            next_group: Codec::get(input)?,
        };
        let names = topic.groups.values().map(|group| (group.name.clone(), group.id));
        topic.group_names = names.collect();
        Ok(topic)
    }
}

impl Codec for Stream {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.name.put(out);
        self.created.put(out);
        self.topics.put(out);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut stream = Self {
            id: Codec::get(input)?,
            name: Codec::get(input)?,
            created: Codec::get(input)?,
            topics: Codec::get(input)?,
            topic_names: BTreeMap::new(),
        };
        let names = stream.topics.values().map(|topic| (topic.name.clone(), topic.id));
        stream.topic_names = names.collect();
        Ok(stream)
    }
}

impl Metadata {
    /// The state as bytes. Equal states give equal bytes.
    #[must_use]
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut out = vec![SNAPSHOT_VERSION];
        self.layout.put(&mut out);
        self.applied.put(&mut out);
        self.next_key.put(&mut out);
        self.next_group.put(&mut out);
        self.next_user.put(&mut out);
        self.streams.put(&mut out);
        self.users.put(&mut out);
        u32::try_from(self.partitions.len()).expect("limited to PARTITIONS_MAX").put(&mut out);
        for record in self.partitions.sorted() {
            record.put(&mut out);
        }
        for lane in &self.lanes {
            lane.tombstones.put(&mut out);
            lane.wishes.put(&mut out);
            lane.confirmed.put(&mut out);
        }
        self.sessions.put(&mut out);
        out
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// What is wrong with the bytes first, an unknown version included.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(bytes);
        let version = u8::get(&mut input)?;
        if version != SNAPSHOT_VERSION {
            let value = u64::from(version);
            return Err(DecodeError::Value { what: "snapshot version", value });
        }
        let layout: Layout = Codec::get(&mut input)?;
        if !layout.is_valid() {
            return Err(DecodeError::Inconsistent {
                what: "lanes of both levels, within the limit",
            });
        }
        let mut metadata = Self::empty(layout, Vec::new());
        metadata.applied = Codec::get(&mut input)?;
        metadata.next_key = Codec::get(&mut input)?;
        metadata.next_group = Codec::get(&mut input)?;
        metadata.next_user = Codec::get(&mut input)?;
        metadata.streams = Codec::get(&mut input)?;
        metadata.users = Codec::get(&mut input)?;
        let partitions: Vec<PartitionRecord> = Codec::get(&mut input)?;
        let mut lanes = Vec::new();
        for _ in 0..layout.lanes() {
            lanes.push(LaneRecord::get(&mut input)?);
        }
        metadata.sessions = Codec::get(&mut input)?;
        input.end()?;
        metadata.restore_partitions(partitions, lanes)?;
        metadata.restore_indexes();
        match metadata.broken_rule() {
            None => Ok(metadata),
            Some(what) => Err(DecodeError::Inconsistent { what }),
        }
    }

    fn restore_partitions(
        &mut self,
        partitions: Vec<PartitionRecord>,
        lanes: Vec<LaneRecord>,
    ) -> Result<(), DecodeError> {
        let mut keys = vec![BTreeSet::new(); lanes.len()];
        let mut last = PartitionKey::ZERO;
        for record in partitions {
            if record.key <= last || record.key >= self.next_key {
                return Err(DecodeError::Unordered { what: "partitions" });
            }
            last = record.key;
            let index = usize::try_from(record.lane.0).ok().and_then(|lane| lane.checked_sub(1));
            let lane = index.and_then(|index| keys.get_mut(index));
            let lane = lane.ok_or(DecodeError::Inconsistent { what: "a partition has a lane" })?;
            lane.insert(record.key);
            self.partitions.insert(record);
        }
        let floor = self.applied;
        let restored = lanes.into_iter().zip(keys).map(|(record, keys)| {
            Lane::restored(keys, record.tombstones, record.wishes, record.confirmed, floor)
        });
        self.lanes = restored.collect();
        Ok(())
    }

    fn restore_indexes(&mut self) {
        for (id, stream) in &self.streams {
            self.stream_names.insert(stream.name.clone(), *id);
            for topic in stream.topics.values() {
                for group in topic.groups.values() {
                    let place = GroupPlace { stream: *id, topic: topic.id, group: group.id };
                    self.groups.insert(group.key, place);
                    let keys = group.handovers().filter_map(|(it, _)| topic.partition(it));
                    self.handovers.extend(keys.map(|key| (key, group.key)));
                }
            }
        }
        let users: Vec<&User> = self.users.values().collect();
        for user in users {
            self.user_ids.insert(user.id, user.key);
            self.user_names.insert(user.name.clone(), user.key);
            for (name, token) in &user.tokens {
                let places = self.tokens.entry(token.hash.prefix()).or_default();
                places.push((user.key, name.clone()));
            }
        }
    }
}
