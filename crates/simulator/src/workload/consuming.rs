//! A consumer on its own: every polling strategy, stored offsets.

use super::cx::{Cx, WALL_START_MICROS, name};
use super::draft::Draft;
use crate::history::{ConsumerId, Intent, Strategy, TopicRef};
use borzoi_types::{Micros, Offset, PartitionId};
use borzoi_wire::body::{
    DeleteConsumerOffset, GetConsumerOffset, OffsetAck, PollMessages, StoreConsumerOffset,
};
use borzoi_wire::identifier::consumer_number;
use borzoi_wire::{
    CommandCode, ConsumerKind, ConsumerRef, Identifier, OptionalPartition, PollingStrategy, Request,
};

/// The poll strategy as it travels.
pub(super) const fn strategy(strategy: Strategy) -> PollingStrategy {
    match strategy {
        Strategy::Offset(offset) => PollingStrategy::Offset(Offset(offset)),
        Strategy::Timestamp(time) => PollingStrategy::Timestamp(Micros(time)),
        Strategy::First => PollingStrategy::First,
        Strategy::Last => PollingStrategy::Last,
        Strategy::Next => PollingStrategy::Next,
    }
}

/// The consumer that this worker is: half of them by number, half by name.
fn consumer(cx: &Cx<'_>) -> (Identifier, ConsumerId) {
    let number = cx.consumer_number();
    if cx.memory.client.is_multiple_of(2) {
        return (Identifier::Numeric(number), ConsumerId::Plain(number));
    }
    let name = name(&format!("consumer-{number}"));
    let hashed = consumer_number(name.as_name_ref());
    (Identifier::Name(name), ConsumerId::Plain(hashed))
}

fn draw_strategy(cx: &mut Cx<'_>, topic: TopicRef, partition: u32) -> Strategy {
    let known = cx.memory.current.get(&(topic, partition)).copied().unwrap_or(0);
    match cx.dice.below(10) {
        0..=3 => {
            let position = cx.memory.positions.get(&(topic, partition)).copied();
            Strategy::Offset(position.unwrap_or(0))
        }
        4 => Strategy::Offset(cx.dice.between(0, known + 20)),
        5 => {
            let back = cx.dice.below(cx.now.0 / 1_000 + 1);
            Strategy::Timestamp(WALL_START_MICROS + (cx.now.0 / 1_000).saturating_sub(back))
        }
        6 => Strategy::First,
        7 => Strategy::Last,
        _ => Strategy::Next,
    }
}

/// Reads messages.
pub(super) fn poll(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    let topic = cx.topic()?;
    let partition = cx.partition(topic)?;
    let strategy = draw_strategy(cx, topic, partition);
    let count = if cx.dice.chance(2) { 0 } else { cx.dice.between(1, 100) };
    let auto_commit = strategy == Strategy::Next && cx.dice.chance(60);
    let (id, consumer) = consumer(cx);
    let kind = ConsumerKind::Consumer;
    let count = u32::try_from(count).unwrap_or(0);
    let intent = Intent::Poll { topic, partition, consumer, strategy, count, auto_commit };
    // A consumer that names no partition means partition 0.
    let named = partition != 0 || cx.dice.chance(70);
    let (stream, name) = cx.names(topic);
    let body = PollMessages {
        consumer: ConsumerRef { kind, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(named.then_some(PartitionId(partition))),
        strategy: self::strategy(strategy),
        count,
        auto_commit,
    };
    Some(Draft::new(
        intent,
        &match command {
            CommandCode::PollOnPrimary => Request::PollOnPrimary(body),
            _ => Request::PollMessages(body),
        },
    ))
}

/// Stores an offset that exists as far as the worker knows.
pub(super) fn store_offset(cx: &mut Cx<'_>) -> Option<Draft> {
    let known: Vec<(TopicRef, u32, u64)> = cx
        .memory
        .current
        .iter()
        .map(|(&(topic, partition), &current)| (topic, partition, current))
        .filter(|(topic, partition, _)| {
            let there = cx.history.topic(*topic).partitions;
            cx.history.live_topics(false).contains(topic) && *partition < there
        })
        .collect();
    if known.is_empty() {
        return None;
    }
    let (topic, partition, current) = *cx.dice.pick(&known);
    let offset = cx.dice.between(0, current);
    let (id, consumer) = consumer(cx);
    let quorum = cx.dice.chance(80);
    let (stream, name) = cx.names(topic);
    let body = StoreConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: Offset(offset),
        ack: if quorum { OffsetAck::Quorum } else { OffsetAck::Local },
    };
    let intent = Intent::StoreOffset { topic, partition, consumer, offset, quorum };
    Some(Draft::new(intent, &Request::StoreConsumerOffset(body)))
}

/// Asks for a stored offset.
pub(super) fn get_offset(cx: &mut Cx<'_>) -> Option<Draft> {
    let topic = cx.topic()?;
    let partition = cx.partition(topic)?;
    let (id, consumer) = consumer(cx);
    let (stream, name) = cx.names(topic);
    let body = GetConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
    };
    let intent = Intent::GetOffset { topic, partition, consumer };
    Some(Draft::new(intent, &Request::GetConsumerOffset(body)))
}

/// Forgets a stored offset.
pub(super) fn delete_offset(cx: &mut Cx<'_>) -> Option<Draft> {
    let topic = cx.topic()?;
    let partition = cx.partition(topic)?;
    let (id, consumer) = consumer(cx);
    let (stream, name) = cx.names(topic);
    let body = DeleteConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
        ack: OffsetAck::Quorum,
    };
    let intent = Intent::DeleteOffset { topic, partition, consumer };
    Some(Draft::new(intent, &Request::DeleteConsumerOffset(body)))
}
