//! Sends: unique messages, every kind of partitioning.

use super::cx::Cx;
use super::draft::Draft;
use crate::history::{
    History, Intent, Message, MessageRef, OpRef, PAYLOAD_BYTES_MIN, SendTo, TopicRef,
};
use borzoi_types::{Micros, PartitionId};
use borzoi_wire::batch::{NewMessage, encode_batch};
use borzoi_wire::body::SendMessages;
use borzoi_wire::{Identifier, MessagesKey, Partitioning, Request};

/// Keys that producers use: few, so that several messages share one.
const KEYS: u64 = 12;

/// A batch for some topic.
pub(super) fn send(cx: &mut Cx<'_>) -> Option<Draft> {
    let topic = cx.topic()?;
    let to = match cx.dice.below(4) {
        0 => SendTo::Balanced,
        1 => SendTo::Key(u32::try_from(cx.dice.below(KEYS)).unwrap_or(0)),
        _ => SendTo::Partition(cx.partition(topic)?),
    };
    if cx.history.topic(topic).partitions == 0 {
        return None;
    }
    let count = cx.dice.between(1, cx.memory.batch_max);
    Some(send_to(cx, topic, to, count))
}

/// A batch of `count` new messages.
pub(super) fn send_to(cx: &mut Cx<'_>, topic: TopicRef, to: SendTo, count: u64) -> Draft {
    let send = OpRef(u32::try_from(cx.history.ops.len()).expect("fewer than 2^32 operations"));
    let mut first = None;
    for _ in 0..count {
        let smallest = PAYLOAD_BYTES_MIN as u64;
        let largest =
            if cx.dice.chance(cx.memory.small_percent) { 200 } else { cx.memory.payload_bytes_max };
        let bytes = cx.dice.between(smallest, largest.max(smallest));
        let message = Message {
            send,
            topic,
            producer: cx.memory.client,
            sequence: cx.memory.sequence,
            bytes: usize::try_from(bytes).expect("payloads are small"),
        };
        cx.memory.sequence += 1;
        let at = cx.history.new_message(message);
        first.get_or_insert(at);
    }
    let first = first.expect("a batch has at least one message");
    let count = u32::try_from(count).expect("batches are small");
    let origin = cx.origin();
    let batch = batch(cx.history, first, count, origin);
    let (stream, name) = cx.names(topic);
    let key = match to {
        SendTo::Key(key) => key.to_string(),
        _ => String::new(),
    };
    let body = SendMessages {
        stream: Identifier::as_identifier_ref(&stream),
        topic: name.as_identifier_ref(),
        partitioning: match to {
            SendTo::Partition(partition) => Partitioning::Partition(PartitionId(partition)),
            SendTo::Balanced => Partitioning::Balanced,
            SendTo::Key(_) => {
                MessagesKey::new(key.as_bytes()).map_or(Partitioning::Balanced, Partitioning::Key)
            }
        },
        messages_count: count,
        batch: &batch,
    };
    Draft::new(Intent::Send { topic, to, first, count }, &Request::SendMessages(body))
}

/// The batch of messages that were made before.
fn batch(history: &History, first: MessageRef, count: u32, origin: Micros) -> Vec<u8> {
    let payloads: Vec<(MessageRef, Vec<u8>)> = (first.0..first.0 + count)
        .map(|at| (MessageRef(at), history.payload(MessageRef(at))))
        .collect();
    let messages: Vec<NewMessage<'_>> = payloads
        .iter()
        .map(|(at, payload)| NewMessage {
            id: history.message_id(*at),
            origin_timestamp: origin,
            payload,
            user_headers: &[],
        })
        .collect();
    let mut out = Vec::new();
    encode_batch(&messages, &mut out).expect("a small batch breaks no limit");
    out
}

/// The partition of a key in a topic with `partitions` partitions.
#[must_use]
pub fn partition_of_key(key: u32, partitions: u32) -> Option<u32> {
    let text = key.to_string();
    let key = MessagesKey::new(text.as_bytes())?;
    key.partition(partitions).map(|partition| partition.0)
}
