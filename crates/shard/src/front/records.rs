//! Records of streams, topics, partitions and users, as replies carry them.

use super::counters::Counts;
use crate::lane::api::PartitionCounters;
use borzoi_metadata::{Metadata, Stream, Topic, TopicOptions, UserStatus};
use borzoi_types::{LogId, Micros, Offset, PartitionId, PartitionKey, StreamId, TopicId, UserId};
use borzoi_wire::body::{
    MessageExpiry, PartitionRecord, SizeLimit, StreamDetails, StreamRecord, TopicDetails,
    TopicHeader, UserRecord,
};
use borzoi_wire::{Name, Options};

/// Sums over partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) segments: u64,
}

impl Sums {
    fn add(&mut self, counters: &PartitionCounters) {
        self.bytes = self.bytes.saturating_add(counters.bytes);
        self.messages = self.messages.saturating_add(counters.messages);
        self.segments = self.segments.saturating_add(u64::from(counters.segments));
    }
}

fn counters(counts: &Counts, key: PartitionKey) -> PartitionCounters {
    counts.get(&key).copied().unwrap_or_default()
}

/// Sums over the partitions of a topic.
pub(super) fn topic_sums(topic: &Topic, counts: &Counts) -> Sums {
    let mut sums = Sums::default();
    for key in &topic.partitions {
        sums.add(&counters(counts, *key));
    }
    sums
}

fn stream_sums(stream: &Stream, counts: &Counts) -> Sums {
    let mut sums = Sums::default();
    for key in stream.topics.values().flat_map(|topic| &topic.partitions) {
        sums.add(&counters(counts, *key));
    }
    sums
}

/// Partitions of topics, with their lanes: what counters are asked of.
pub(super) fn keys_of<'a>(
    metadata: &'a Metadata,
    topics: impl Iterator<Item = &'a Topic>,
) -> Vec<(LogId, PartitionKey)> {
    let keys = topics.flat_map(|topic| topic.partitions.iter().copied());
    keys.filter_map(|key| metadata.partition(key).map(|record| (record.lane, key))).collect()
}

pub(super) fn stream_record(stream: &Stream, counts: &Counts) -> StreamRecord {
    let sums = stream_sums(stream, counts);
    StreamRecord {
        id: stream.id,
        created: stream.created,
        topics_count: u32::try_from(stream.topics.len()).expect("limited to 4,096"),
        size_bytes: sums.bytes,
        messages: sums.messages,
        name: stream.name.clone(),
        options: Options::none(),
    }
}

pub(super) fn stream_details(stream: &Stream, counts: &Counts) -> StreamDetails {
    let topics = stream.topics.values().map(|topic| topic_header(topic, counts)).collect();
    StreamDetails { stream: stream_record(stream, counts), topics }
}

/// A stream that was just created.
pub(super) fn new_stream(id: StreamId, created: Micros, name: Name) -> StreamDetails {
    let stream = StreamRecord {
        id,
        created,
        topics_count: 0,
        size_bytes: 0,
        messages: 0,
        name,
        options: Options::none(),
    };
    StreamDetails { stream, topics: Vec::new() }
}

fn header(
    id: TopicId,
    created: Micros,
    name: Name,
    partitions: u32,
    options: &TopicOptions,
    sums: Sums,
) -> TopicHeader {
    TopicHeader {
        id,
        created,
        partitions_count: partitions,
        message_expiry: MessageExpiry(options.message_expiry.0),
        compression: options.compression,
        max_topic_size: SizeLimit(options.max_topic_size),
        size_bytes: sums.bytes,
        messages: sums.messages,
        name,
        explicit: options.explicit(),
        derived: options.derived(),
    }
}

pub(super) fn topic_header(topic: &Topic, counts: &Counts) -> TopicHeader {
    let sums = topic_sums(topic, counts);
    let partitions = topic.partition_count();
    header(topic.id, topic.created, topic.name.clone(), partitions, &topic.options, sums)
}

pub(super) fn topic_details(metadata: &Metadata, topic: &Topic, counts: &Counts) -> TopicDetails {
    let partitions = (0..).map(PartitionId).zip(&topic.partitions).map(|(id, key)| {
        let created = metadata.partition(*key).map_or(topic.created, |record| record.created);
        partition_record(id, created, &counters(counts, *key))
    });
    TopicDetails { topic: topic_header(topic, counts), partitions: partitions.collect() }
}

/// A topic that was just created, with its partitions.
pub(super) fn new_topic(
    id: TopicId,
    created: Micros,
    name: Name,
    partitions: u32,
    options: &TopicOptions,
) -> TopicDetails {
    let empty = PartitionCounters::default();
    let records = (0..partitions).map(|id| partition_record(PartitionId(id), created, &empty));
    let topic = header(id, created, name, partitions, options, Sums::default());
    TopicDetails { topic, partitions: records.collect() }
}

fn partition_record(
    id: PartitionId,
    created: Micros,
    counters: &PartitionCounters,
) -> PartitionRecord {
    PartitionRecord {
        id,
        created,
        segments: counters.segments,
        current_offset: counters.current_offset.unwrap_or(Offset::ZERO),
        size_bytes: counters.bytes,
        messages: counters.messages,
    }
}

pub(super) fn user_record(
    id: UserId,
    created: Micros,
    status: UserStatus,
    name: Name,
) -> UserRecord {
    UserRecord { id, created, status, name, options: Options::none() }
}
