//! Stored offsets (wire protocol, section 9.12).
//!
//! Reads and writes report a missing target differently: a read of an unknown stream, topic or
//! group is empty, of an unknown partition 3007; a write of anything unresolvable is denied with
//! 20.

use super::Front;
use super::command::LaneCall;
use super::reads::or_return;
use super::request::{Caller, Known, Step};
use crate::lane::api::{ConsumerKey, LaneRequestKind};
use borzoi_metadata::{Action, Ownership, Resolved, Stream, Topic};
use borzoi_types::{Durability, PartitionId};
use borzoi_wire::body::{DeleteConsumerOffset, GetConsumerOffset, OffsetAck, StoreConsumerOffset};
use borzoi_wire::{ConsumerKind, ConsumerRef, ErrorCode, IdentifierRef, OptionalPartition};

/// What an offset write names.
struct WriteTarget<'a> {
    consumer: ConsumerRef<'a>,
    stream: IdentifierRef<'a>,
    topic: IdentifierRef<'a>,
    partition: OptionalPartition,
}

/// Where an offset write goes, and under what conditions.
struct Written {
    partition: Resolved,
    consumer: ConsumerKey,
    /// Of the group; 0 for a plain consumer.
    generation: u64,
    /// When a store is confirmed.
    level: Durability,
}

impl Front {
    pub(super) fn get_offset(
        &self,
        caller: &Caller,
        known: Known<'_>,
        request: &GetConsumerOffset<'_>,
    ) -> Step {
        let Some((stream, topic)) = self.find_topic_ref(request.stream, request.topic) else {
            return self.not_found(caller, known);
        };
        let action = Action::GetConsumerOffset(stream.id, topic.id);
        or_return!(self.authorise(caller, known, action));
        let Some(consumer) = consumer_key(topic, &request.consumer) else {
            return self.not_found(caller, known);
        };
        let partition = request.partition.0.unwrap_or(PartitionId(0));
        match self.metadata.resolve_in(stream.id, topic, partition) {
            Ok(partition) => {
                let kind = LaneRequestKind::GetOffset { consumer };
                Step::Lane(Box::new(LaneCall { caller: *caller, partition, kind }))
            }
            Err(code) => self.refuse(caller, known, code),
        }
    }

    pub(super) fn store_offset(
        &self,
        caller: &Caller,
        known: Known<'_>,
        request: &StoreConsumerOffset<'_>,
    ) -> Step {
        let target = WriteTarget {
            consumer: request.consumer,
            stream: request.stream,
            topic: request.topic,
            partition: request.partition,
        };
        let written = self.write_target(caller, known, &target, Action::StoreConsumerOffset);
        let Written { partition, consumer, generation, level } = or_return!(written);
        let wait = request.ack == OffsetAck::Quorum;
        let (offset, persisted) = (request.offset, level == Durability::Persisted);
        let kind = LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted };
        Step::Lane(Box::new(LaneCall { caller: *caller, partition, kind }))
    }

    pub(super) fn delete_offset(
        &self,
        caller: &Caller,
        known: Known<'_>,
        request: &DeleteConsumerOffset<'_>,
    ) -> Step {
        let target = WriteTarget {
            consumer: request.consumer,
            stream: request.stream,
            topic: request.topic,
            partition: request.partition,
        };
        let written = self.write_target(caller, known, &target, Action::DeleteConsumerOffset);
        let Written { partition, consumer, generation, .. } = or_return!(written);
        let kind = LaneRequestKind::DeleteOffset { consumer, generation };
        Step::Lane(Box::new(LaneCall { caller: *caller, partition, kind }))
    }

    /// The partition and consumer of an offset write. A group's offsets are written by the member
    /// that owns the partition, also while it hands it over.
    fn write_target(
        &self,
        caller: &Caller,
        known: Known<'_>,
        target: &WriteTarget<'_>,
        action: fn(borzoi_types::StreamId, borzoi_types::TopicId) -> Action,
    ) -> Result<Written, Step> {
        let missing = || self.refuse(caller, known, ErrorCode::ResourceNotFound);
        let found = self.find_topic_ref(target.stream, target.topic);
        let (stream, topic) = found.ok_or_else(missing)?;
        self.authorise(caller, known, action(stream.id, topic.id))?;
        let consumer = consumer_key(topic, &target.consumer).ok_or_else(missing)?;
        let level = topic.options.consumer_offset_durability;
        let mut generation = 0;
        let partition = target.partition.0.unwrap_or(PartitionId(0));
        if target.consumer.kind == ConsumerKind::Group {
            let group = topic.find_group(&target.consumer.id.to_identifier());
            let ownership = group.map(|group| group.ownership(caller.consumer, partition));
            if !matches!(ownership, Some(Ownership::Owner | Ownership::HandingOver)) {
                return Err(missing());
            }
            generation = group.map_or(0, |group| group.generation);
        }
        let resolved = self.metadata.resolve_in(stream.id, topic, partition);
        let partition = resolved.map_err(|_| missing())?;
        Ok(Written { partition, consumer, generation, level })
    }

    fn find_topic_ref(
        &self,
        stream: IdentifierRef<'_>,
        topic: IdentifierRef<'_>,
    ) -> Option<(&Stream, &Topic)> {
        self.metadata.find_topic(&stream.to_identifier(), &topic.to_identifier()).ok()
    }
}

/// What a consumer's offset is stored under; none for an unknown group.
fn consumer_key(topic: &Topic, consumer: &ConsumerRef<'_>) -> Option<ConsumerKey> {
    match consumer.plain_number() {
        Some(number) => Some(ConsumerKey::Consumer(number)),
        None => {
            let group = topic.find_group(&consumer.id.to_identifier())?;
            Some(ConsumerKey::Group(group.id))
        }
    }
}
