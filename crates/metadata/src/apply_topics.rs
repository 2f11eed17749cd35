//! Commands on streams, topics, partitions and segments.

use crate::access::Action;
use crate::apply::{Applied, Context};
use crate::command::{CreateTopic, TopicName, UpdateTopic};
use crate::identity::PartitionPlace;
use crate::lanes::LaneChooser;
use crate::options::SIZE_UNLIMITED;
use crate::outcome::Reply;
use crate::partition_table::PartitionRecord;
use crate::state::Metadata;
use crate::streams::{Stream, Topic, lowest_free};
use borzoi_types::limits::{
    PARTITIONS_MAX, PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_TOPIC_MAX, STREAMS_MAX,
    TOPICS_PER_STREAM_MAX,
};
use borzoi_types::planted::{self, Bug};
use borzoi_types::{GroupId, LogId, Op, PartitionId, PartitionKey, StreamId, TopicId};
use borzoi_wire::{ErrorCode, Identifier, Name};
use std::collections::BTreeMap;

/// Streams.
impl Metadata {
    pub(crate) fn create_stream(&mut self, context: &Context, name: &Name) -> Applied {
        self.require(context, Action::CreateStream)?;
        if self.stream_names.contains_key(name) {
            return Err(ErrorCode::StreamNameAlreadyExists);
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(ErrorCode::TooManyStreams);
        }
        let id = StreamId(lowest_free(&self.streams, |id| id.0));
        let (name, created) = (name.clone(), context.now);
        self.stream_names.insert(name.clone(), id);
        let stream = Stream {
            id,
            name: name.clone(),
            created,
            topics: BTreeMap::new(),
            topic_names: BTreeMap::new(),
        };
        self.streams.insert(id, stream);
        Ok(Reply::Stream { id, created, name })
    }

    pub(crate) fn update_stream(
        &mut self,
        context: &Context,
        stream: &Identifier,
        name: &Name,
    ) -> Applied {
        let id = self.find_stream(stream)?.id;
        self.require(context, Action::UpdateStream(id))?;
        if self.stream_names.get(name).is_some_and(|holder| *holder != id) {
            return Err(ErrorCode::StreamNameAlreadyExists);
        }
        let stream = self.streams.get_mut(&id).expect("found above");
        let old = core::mem::replace(&mut stream.name, name.clone());
        self.stream_names.remove(&old);
        self.stream_names.insert(name.clone(), id);
        Ok(Reply::Nothing)
    }

    pub(crate) fn delete_stream(&mut self, context: &Context, stream: &Identifier) -> Applied {
        let id = self.find_stream(stream)?.id;
        self.require(context, Action::DeleteStream(id))?;
        let stream = self.streams.remove(&id).expect("found above");
        self.stream_names.remove(&stream.name);
        for topic in stream.topics.into_values() {
            self.drop_topic(context, topic);
        }
        Ok(Reply::Nothing)
    }

    pub(crate) fn purge_stream(&mut self, context: &Context, stream: &Identifier) -> Applied {
        let found = self.find_stream(stream)?;
        let id = found.id;
        let topics: Vec<TopicId> = found.topics.keys().copied().collect();
        self.require(context, Action::PurgeStream(id))?;
        for topic in topics {
            self.purge(context, id, topic);
        }
        Ok(Reply::Nothing)
    }
}

/// Topics.
impl Metadata {
    /// Numbers of the topic that a request names.
    pub(crate) fn place_of(&self, topic: &TopicName) -> Result<(StreamId, TopicId), ErrorCode> {
        let (stream, topic) = self.find_topic(&topic.stream, &topic.topic)?;
        Ok((stream.id, topic.id))
    }

    pub(crate) fn topic_mut(&mut self, stream: StreamId, topic: TopicId) -> &mut Topic {
        let stream = self.streams.get_mut(&stream).expect("resolved by the caller");
        stream.topics.get_mut(&topic).expect("resolved by the caller")
    }

    pub(crate) fn create_topic(&mut self, context: &Context, create: &CreateTopic) -> Applied {
        let stream = self.find_stream(&create.stream)?;
        let stream_id = stream.id;
        self.require(context, Action::CreateTopic(stream_id))?;
        if create.partitions > PARTITIONS_PER_REQUEST_MAX {
            return Err(ErrorCode::TooManyPartitions);
        }
        if stream.topic_names.contains_key(&create.name) {
            return Err(ErrorCode::TopicNameAlreadyExists);
        }
        if stream.topics.len() >= TOPICS_PER_STREAM_MAX {
            return Err(ErrorCode::TooManyTopics);
        }
        if !create.options.preallocation_fits(create.partitions) {
            return Err(ErrorCode::InvalidOptionValue);
        }
        self.check_room_for(create.partitions)?;
        let id = TopicId(lowest_free(&stream.topics, |id| id.0));
        let topic = Topic {
            id,
            name: create.name.clone(),
            created: context.now,
            options: create.options,
            options_op: context.op,
            partitions: Vec::new(),
            groups: BTreeMap::new(),
            group_names: BTreeMap::new(),
            next_group: GroupId(0),
        };
        let stream = self.streams.get_mut(&stream_id).expect("found above");
        stream.topic_names.insert(create.name.clone(), id);
        stream.topics.insert(id, topic);
        self.add_partitions(context, stream_id, id, create.partitions);
        Ok(Reply::Topic {
            stream: stream_id,
            id,
            created: context.now,
            name: create.name.clone(),
            partitions: create.partitions,
            options: create.options,
        })
    }

    pub(crate) fn update_topic(&mut self, context: &Context, update: &UpdateTopic) -> Applied {
        let (stream, topic) = self.find_topic(&update.stream, &update.topic)?;
        let (stream_id, id) = (stream.id, topic.id);
        self.require(context, Action::UpdateTopic(stream_id, id))?;
        if stream.topic_names.get(&update.name).is_some_and(|holder| *holder != id) {
            return Err(ErrorCode::TopicNameAlreadyExists);
        }
        let options = topic.options.updated(&update.options)?;
        let changed = options != topic.options;
        let stream = self.streams.get_mut(&stream_id).expect("found above");
        let topic = stream.topics.get_mut(&id).expect("found above");
        let old = core::mem::replace(&mut topic.name, update.name.clone());
        stream.topic_names.remove(&old);
        stream.topic_names.insert(update.name.clone(), id);
        if changed {
            topic.options = options;
            topic.options_op = context.op;
            self.touch_partitions(context.op, stream_id, id);
        }
        Ok(Reply::Nothing)
    }

    pub(crate) fn delete_topic(&mut self, context: &Context, topic: &TopicName) -> Applied {
        let (stream, id) = self.place_of(topic)?;
        self.require(context, Action::DeleteTopic(stream, id))?;
        let stream = self.streams.get_mut(&stream).expect("found above");
        let topic = stream.topics.remove(&id).expect("found above");
        stream.topic_names.remove(&topic.name);
        self.drop_topic(context, topic);
        Ok(Reply::Nothing)
    }

    pub(crate) fn purge_topic(&mut self, context: &Context, topic: &TopicName) -> Applied {
        let (stream, id) = self.place_of(topic)?;
        self.require(context, Action::PurgeTopic(stream, id))?;
        self.purge(context, stream, id);
        Ok(Reply::Nothing)
    }

    /// Ends everything that a topic taken out of its stream still holds.
    fn drop_topic(&mut self, context: &Context, topic: Topic) {
        for group in topic.groups.values() {
            self.forget_group(group, &topic.partitions);
        }
        for key in topic.partitions {
            self.bury(context.op, key);
        }
    }

    /// Gives every partition of a topic a new key in its lane; groups keep their members.
    fn purge(&mut self, context: &Context, stream: StreamId, topic: TopicId) {
        self.end_handovers(stream, topic);
        let old_keys = core::mem::take(&mut self.topic_mut(stream, topic).partitions);
        let mut new_keys = Vec::with_capacity(old_keys.len());
        for old in old_keys {
            let record = self.bury(context.op, old);
            let key = self.mint();
            let replaces = Some(old);
            let created_by = context.op;
            self.place(context.op, PartitionRecord { key, replaces, created_by, ..record });
            new_keys.push(key);
        }
        self.topic_mut(stream, topic).partitions = new_keys;
    }
}

/// Partitions.
impl Metadata {
    fn mint(&mut self) -> PartitionKey {
        let key = self.next_key;
        if !planted::is(Bug::ReuseKey) || !key.0.is_multiple_of(4) {
            self.next_key = key.next();
        }
        key
    }

    fn place(&mut self, op: Op, record: PartitionRecord) {
        assert!(record.key < self.next_key, "the key was minted before");
        self.lane_mut(record.lane).add(op, record.key);
        self.partitions.insert(record);
    }

    fn bury(&mut self, op: Op, key: PartitionKey) -> PartitionRecord {
        let record = self.partitions.remove(key).expect("a topic's partitions live");
        self.lane_mut(record.lane).bury(op, key);
        record
    }

    fn check_room_for(&self, count: u32) -> Result<(), ErrorCode> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let total = self.partitions.len().saturating_add(count);
        if total > PARTITIONS_MAX { Err(ErrorCode::PartitionsLimitReached) } else { Ok(()) }
    }

    /// Adds partitions behind the last one of a topic.
    fn add_partitions(&mut self, context: &Context, stream: StreamId, topic: TopicId, count: u32) {
        let found = self.topic_mut(stream, topic);
        let (first, level) = (found.partition_count(), found.options.durability);
        let mut chooser = LaneChooser::new(&self.layout, &self.lanes, level);
        for number in first..first + count {
            let (key, lane): (PartitionKey, LogId) = (self.mint(), chooser.choose());
            let record = PartitionRecord {
                key,
                place: PartitionPlace { stream, topic, partition: PartitionId(number) },
                lane,
                created: context.now,
                created_by: context.op,
                replaces: None,
            };
            self.place(context.op, record);
            self.topic_mut(stream, topic).partitions.push(key);
        }
    }

    pub(crate) fn create_partitions(
        &mut self,
        context: &Context,
        topic: &TopicName,
        count: u32,
    ) -> Applied {
        let (stream, id) = self.place_of(topic)?;
        self.require(context, Action::CreatePartitions(stream, id))?;
        check_partition_count(count)?;
        let present = self.topic_mut(stream, id).partition_count();
        if present + count > PARTITIONS_PER_TOPIC_MAX {
            return Err(ErrorCode::PartitionIdSpaceExhausted);
        }
        self.check_room_for(count)?;
        self.add_partitions(context, stream, id, count);
        self.share_limit_anew(context.op, stream, id);
        self.resize_groups(stream, id);
        Ok(Reply::Nothing)
    }

    pub(crate) fn delete_partitions(
        &mut self,
        context: &Context,
        topic: &TopicName,
        count: u32,
    ) -> Applied {
        let (stream, id) = self.place_of(topic)?;
        self.require(context, Action::DeletePartitions(stream, id))?;
        check_partition_count(count)?;
        let present = self.topic_mut(stream, id).partition_count();
        let left = present.checked_sub(count).ok_or(ErrorCode::InvalidPartitionsCount)?;
        let left = usize::try_from(left).expect("a usize holds a u32");
        self.end_handovers(stream, id);
        let removed = self.topic_mut(stream, id).partitions.split_off(left);
        for key in removed {
            self.bury(context.op, key);
        }
        self.share_limit_anew(context.op, stream, id);
        self.resize_groups(stream, id);
        Ok(Reply::Nothing)
    }

    pub(crate) fn delete_segments(
        &mut self,
        context: &Context,
        topic: &TopicName,
        partition: PartitionId,
        count: u32,
    ) -> Applied {
        let (stream, id) = self.place_of(topic)?;
        self.require(context, Action::DeleteSegments(stream, id))?;
        let found = self.resolve(&topic.stream, &topic.topic, partition)?;
        if count == 0 {
            return Ok(Reply::Nothing);
        }
        if self.lane_mut(found.lane).wish(context.op, found.key, count) {
            Ok(Reply::Nothing)
        } else {
            Err(ErrorCode::TransientNotAccepted)
        }
    }

    /// Tells the lanes that something they read about these partitions has changed.
    pub(crate) fn touch_partitions(&mut self, op: Op, stream: StreamId, topic: TopicId) {
        let keys = self.topic_mut(stream, topic).partitions.clone();
        for key in keys {
            let lane = self.partitions.get(key).expect("a topic's partitions live").lane;
            self.lane_mut(lane).touch(op, key);
        }
    }

    /// A topic has another number of partitions now: each has another share of its size limit.
    fn share_limit_anew(&mut self, op: Op, stream: StreamId, id: TopicId) {
        if self.topic_mut(stream, id).options.max_topic_size != SIZE_UNLIMITED {
            self.touch_partitions(op, stream, id);
        }
    }

    pub(crate) fn lanes_confirmed(&mut self, context: &Context, lanes: &[(LogId, Op)]) {
        for (lane, through) in lanes {
            if self.layout.durability(*lane).is_some() {
                let through = (*through).min(context.op);
                let index = usize::try_from(lane.0 - 1).expect("a usize holds a u32");
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.confirm(through);
                }
            }
        }
    }
}

/// Counts that one request may create or delete.
pub(crate) const fn check_partition_count(count: u32) -> Result<(), ErrorCode> {
    if count == 0 || count > PARTITIONS_PER_REQUEST_MAX {
        Err(ErrorCode::TooManyPartitions)
    } else {
        Ok(())
    }
}
