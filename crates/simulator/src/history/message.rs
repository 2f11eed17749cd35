//! Messages: every payload names its run, producer, sequence and topic incarnation, and is filled
//! so that any other bytes in its place are noticed.

use super::{History, OpRef, TopicRef};
use borzoi_wire::batch::{MessageFrame, MessageId};

/// One message, numbered in the order in which producers made them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MessageRef(pub u32);

/// A message as its producer made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The send it travels with.
    pub send: OpRef,
    /// The topic that the producer meant.
    pub topic: TopicRef,
    /// Which client made it.
    pub producer: usize,
    /// The producer's own count.
    pub sequence: u64,
    /// Bytes of its payload, at least [`PAYLOAD_BYTES_MIN`].
    pub bytes: usize,
}

/// Magic, run, message, producer, sequence, topic.
pub const PAYLOAD_BYTES_MIN: usize = 28;

const MAGIC: [u8; 4] = *b"brz1";

/// A message that a poll has returned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Seen {
    /// One that a producer made, byte for byte.
    Known(MessageRef),
    /// Something that nobody made: what is wrong with it.
    Foreign(String),
}

impl History {
    /// The message under a number.
    #[must_use]
    pub fn message(&self, message: MessageRef) -> &Message {
        &self.messages[message.0 as usize]
    }

    /// Makes a message.
    pub fn new_message(&mut self, message: Message) -> MessageRef {
        assert!(message.bytes >= PAYLOAD_BYTES_MIN, "a payload names its message");
        let number = u32::try_from(self.messages.len()).expect("fewer than 2^32 messages");
        self.messages.push(message);
        MessageRef(number)
    }

    /// Payload bytes of a message that was read.
    #[must_use]
    pub fn bytes(&self, seen: &Seen) -> usize {
        match seen {
            Seen::Known(at) => self.message(*at).bytes,
            Seen::Foreign(_) => 0,
        }
    }

    /// The payload of a message.
    #[must_use]
    pub fn payload(&self, at: MessageRef) -> Vec<u8> {
        let message = self.message(at);
        let mut out = Vec::with_capacity(message.bytes + 8);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&at.0.to_le_bytes());
        let producer = u32::try_from(message.producer).expect("few clients");
        out.extend_from_slice(&producer.to_le_bytes());
        out.extend_from_slice(&message.sequence.to_le_bytes());
        out.extend_from_slice(&message.topic.0.to_le_bytes());
        let mut word = u64::from(self.salt) << 32 | u64::from(at.0) | 1;
        while out.len() < message.bytes {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.truncate(message.bytes);
        out
    }

    /// The identity that a producer gives a message.
    #[must_use]
    pub fn message_id(&self, at: MessageRef) -> MessageId {
        MessageId(u128::from(self.salt) << 64 | u128::from(at.0) << 1 | 1)
    }

    /// Recognises a message that was read.
    #[must_use]
    pub fn recognise(&self, frame: &MessageFrame<'_>) -> Seen {
        let payload = frame.payload();
        if frame.checksum() != frame.computed_checksum() {
            return Seen::Foreign("a frame that does not match its checksum".to_owned());
        }
        let field = |at: usize| payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let (Some(MAGIC), Some(salt), Some(number)) = (field(0), field(4), field(8)) else {
            return Seen::Foreign(format!("{} bytes that no producer made", payload.len()));
        };
        let (salt, at) = (u32::from_le_bytes(salt), MessageRef(u32::from_le_bytes(number)));
        if salt != self.salt || at.0 as usize >= self.messages.len() {
            return Seen::Foreign(format!("message {} of another run", at.0));
        }
        if frame.id() != self.message_id(at) || payload != self.payload(at) {
            return Seen::Foreign(format!("message {} with other bytes", at.0));
        }
        Seen::Known(at)
    }
}
