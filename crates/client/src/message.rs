//! Messages: building a batch to send, reading what was polled.

use crate::error::Error;
use borzoi_types::{Micros, Offset, PartitionId};
use borzoi_wire::Wire;
use borzoi_wire::batch::{MessageId, NewMessage, encode_batch};
use borzoi_wire::body::PollReply;
use bytes::Bytes;
use std::time::{SystemTime, UNIX_EPOCH};

/// A message as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Position in the partition.
    pub offset: Offset,
    /// Identity that the producer gave it.
    pub id: u128,
    /// When the server appended it.
    pub timestamp: Micros,
    /// When the producer made it.
    pub origin_timestamp: Micros,
    /// The payload.
    pub payload: Bytes,
    /// Encoded user headers (wire protocol, section 5.6).
    pub user_headers: Bytes,
}

/// The answer to a poll.
#[derive(Clone, Debug)]
pub struct Polled {
    /// The partition that was read.
    pub partition: PartitionId,
    /// Offset of the partition's last message; 0 when it is empty.
    pub current_offset: Offset,
    /// Messages in the answer.
    pub count: u32,
    records: Bytes,
}

impl Polled {
    /// Takes the answer apart; messages are looked at later.
    ///
    /// # Errors
    /// When the answer is shorter than its prefix.
    pub(crate) fn new(payload: &Bytes) -> Result<Self, Error> {
        let reply = PollReply::decode(payload)?;
        let prefix = reply.prefix;
        Ok(Self {
            partition: prefix.partition,
            current_offset: prefix.current_offset,
            count: prefix.messages_count,
            records: payload.slice(payload.len() - reply.records.len()..),
        })
    }

    /// Bytes of the batches, headers included.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.records.len()
    }

    /// The messages in order; their payloads share the memory of the answer.
    ///
    /// # Errors
    /// When a batch does not hold together.
    pub fn messages(&self) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::with_capacity(self.count as usize);
        let reply = PollReply {
            prefix: borzoi_wire::body::PollPrefix {
                partition: self.partition,
                current_offset: self.current_offset,
                messages_count: self.count,
            },
            records: &self.records,
        };
        for batch in reply.batches() {
            let batch = batch?;
            let header = *batch.header();
            for frame in batch.frames() {
                let frame = frame?;
                messages.push(Message {
                    offset: frame.offset(&header),
                    id: frame.id().0,
                    timestamp: header.base_timestamp,
                    origin_timestamp: frame.origin_timestamp(&header),
                    payload: self.records.slice_ref(frame.payload()),
                    user_headers: self.records.slice_ref(frame.user_headers()),
                });
            }
        }
        Ok(messages)
    }
}

/// The wall clock in microseconds since 1970.
pub(crate) fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// One batch of these payloads, made now, with random message identities: what
/// [`crate::Client::send_batch`] sends.
///
/// # Errors
/// When there are none or one is too large.
pub fn batch_of<P: AsRef<[u8]>>(payloads: &[P]) -> Result<Vec<u8>, Error> {
    let now = wall();
    // One random number for the batch and a counter: unique, and cheap for many small messages.
    let first: u128 = rand::random::<u128>() | 1 << 64;
    let messages: Vec<NewMessage<'_>> = (0_u128..)
        .zip(payloads)
        .map(|(index, payload)| NewMessage {
            id: MessageId(first.wrapping_add(index).max(1)),
            origin_timestamp: now,
            payload: payload.as_ref(),
            user_headers: &[],
        })
        .collect();
    let mut batch = Vec::new();
    encode_batch(&messages, &mut batch)?;
    Ok(batch)
}
