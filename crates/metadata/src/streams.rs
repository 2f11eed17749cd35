//! Streams and topics.
//!
//! Invariants: names are unique within their parent; visible numbers are the lowest free ones;
//! a topic's partitions are dense from 0, each with a live key.

use crate::groups::Group;
use crate::options::TopicOptions;
use borzoi_types::{GroupId, Micros, Op, PartitionId, PartitionKey, StreamId, TopicId};
use borzoi_wire::{Identifier, Name};
use std::collections::BTreeMap;

/// A stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Its visible number.
    pub id: StreamId,
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created: Micros,
    /// Its topics.
    pub topics: BTreeMap<TopicId, Topic>,
    /// Their numbers by name.
    pub(crate) topic_names: BTreeMap<Name, TopicId>,
}

impl Stream {
    /// The topic that a request means.
    #[must_use]
    pub fn find(&self, topic: &Identifier) -> Option<&Topic> {
        self.topics.get(&self.find_id(topic)?)
    }

    pub(crate) fn find_id(&self, topic: &Identifier) -> Option<TopicId> {
        match topic {
            Identifier::Numeric(number) => {
                let id = TopicId(*number);
                self.topics.contains_key(&id).then_some(id)
            }
            Identifier::Name(name) => self.topic_names.get(name).copied(),
        }
    }
}

/// A topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its visible number within the stream.
    pub id: TopicId,
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created: Micros,
    /// Its options.
    pub options: TopicOptions,
    /// The operation that set them last: lanes compare it with what they have applied.
    pub options_op: Op,
    /// The keys of its partitions, by partition number.
    pub partitions: Vec<PartitionKey>,
    /// Its consumer groups.
    pub groups: BTreeMap<GroupId, Group>,
    /// Their numbers by name.
    pub(crate) group_names: BTreeMap<Name, GroupId>,
    /// The number of the next group; lower ones were given before.
    pub next_group: GroupId,
}

impl Topic {
    /// The consumer group that a request means.
    #[must_use]
    pub fn find_group(&self, group: &Identifier) -> Option<&Group> {
        self.groups.get(&self.find_group_id(group)?)
    }

    pub(crate) fn find_group_id(&self, group: &Identifier) -> Option<GroupId> {
        match group {
            Identifier::Numeric(number) => {
                let id = GroupId(*number);
                self.groups.contains_key(&id).then_some(id)
            }
            Identifier::Name(name) => self.group_names.get(name).copied(),
        }
    }

    /// The key of a partition.
    #[must_use]
    pub fn partition(&self, partition: PartitionId) -> Option<PartitionKey> {
        self.partitions.get(usize::try_from(partition.0).ok()?).copied()
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("limited to PARTITIONS_PER_TOPIC_MAX")
    }
}

/// The lowest number that is no key of `map`.
pub(crate) fn lowest_free<K: Copy + Ord, V>(
    map: &BTreeMap<K, V>,
    number: impl Fn(K) -> u32,
) -> u32 {
    let len = u32::try_from(map.len()).expect("every table is limited far below 2^32");
    match map.last_key_value() {
        None => 0,
        // No gaps: the usual case, without looking at the others.
        Some((last, _)) if number(*last) + 1 == len => len,
        Some(_) => {
            let pairs = map.keys().zip(0u32..);
            let gap = pairs.into_iter().find(|(key, expected)| number(**key) != *expected);
            gap.map_or(len, |(_, expected)| expected)
        }
    }
}
