//! Everything that shards of different nodes say to each other.

use super::forward::ForwardMessage;
use super::frame::{Destination, FrameFault, FrameKind, PeerHeader};
use super::join::JoinMessage;
use super::transfer::TransferMessage;
use borzoi_consensus::Message;
use borzoi_types::limits::LANES_MAX;
use borzoi_types::{Body, LogId};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// One message between two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// Between the replicas of one log.
    Log {
        /// Which log.
        log: LogId,
        /// What its replica says.
        message: Message,
    },
    /// The link's sign of life.
    Heartbeat(Heartbeat),
    /// Between the fronts.
    Forward(ForwardMessage),
    /// State transfer of one log.
    Transfer(TransferMessage),
    /// With a node that has no state yet.
    Join(JoinMessage),
}

/// What a link carries at least once per interval: that the sender lives, and what its logs have
/// to say to this peer. Empty when all of them are at rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heartbeat {
    /// In order of the logs, each at most once.
    pub logs: Vec<(LogId, Message)>,
}

/// Entries of one heartbeat: every log once.
const HEARTBEAT_LOGS_MAX: usize = LANES_MAX as usize + 1;
const ENTRY_BYTES: usize = 8;

impl PeerMessage {
    /// The kind of its frame.
    #[must_use]
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Log { .. } => FrameKind::Log,
            Self::Heartbeat(_) => FrameKind::Heartbeat,
            Self::Forward(_) => FrameKind::Forward,
            Self::Transfer(_) => FrameKind::Transfer,
            Self::Join(_) => FrameKind::Join,
        }
    }

    /// Whom it is for.
    #[must_use]
    pub const fn destination(&self) -> Destination {
        match self {
            Self::Log { log, .. } => Destination::Log(*log),
            Self::Heartbeat(_) | Self::Join(_) => Destination::Link,
            Self::Forward(message) => message.destination(),
            Self::Transfer(message) => Destination::Log(message.log),
        }
    }

    /// The body of its frame, large parts by reference.
    #[must_use]
    pub fn encode(&self) -> Body {
        match self {
            Self::Log { message, .. } => message.encode(),
            Self::Heartbeat(heartbeat) => heartbeat.encode(),
            Self::Forward(message) => message.encode(),
            Self::Transfer(message) => message.encode(),
            Self::Join(message) => message.encode(),
        }
    }

    /// Reads the body of a checked frame.
    ///
    /// # Errors
    /// [`FrameFault::Malformed`] when the body is not what the header says.
    pub fn decode(header: &PeerHeader, body: Bytes) -> Result<Self, FrameFault> {
        match (header.kind, header.destination) {
            (FrameKind::Log, Destination::Log(log)) => {
                let message = Message::decode(&body).map_err(|_| FrameFault::Malformed)?;
                Ok(Self::Log { log, message })
            }
            (FrameKind::Heartbeat, Destination::Link) => {
                Ok(Self::Heartbeat(Heartbeat::decode(body)?))
            }
            (FrameKind::Forward, to) => Ok(Self::Forward(ForwardMessage::decode(to, body)?)),
            (FrameKind::Transfer, Destination::Log(log)) => {
                Ok(Self::Transfer(TransferMessage::decode(log, body)?))
            }
            (FrameKind::Join, Destination::Link) => Ok(Self::Join(JoinMessage::decode(body)?)),
            _ => Err(FrameFault::Malformed),
        }
    }
}

impl Heartbeat {
    fn encode(&self) -> Body {
        assert!(self.logs.len() <= HEARTBEAT_LOGS_MAX, "every log once");
        let mut bytes = BytesMut::new();
        for (log, message) in &self.logs {
            let message = message.encode();
            bytes.put_u32_le(log.get());
            bytes.put_u32_le(u32::try_from(message.len()).expect("control messages are small"));
            for part in message.parts() {
                bytes.extend_from_slice(part);
            }
        }
        Body::from(bytes.freeze())
    }

    fn decode(mut body: Bytes) -> Result<Self, FrameFault> {
        let mut logs: Vec<(LogId, Message)> = Vec::new();
        while body.has_remaining() {
            if body.remaining() < ENTRY_BYTES || logs.len() >= HEARTBEAT_LOGS_MAX {
                return Err(FrameFault::Malformed);
            }
            let log = LogId(body.get_u32_le());
            let len = body.get_u32_le() as usize;
            if body.remaining() < len || logs.last().is_some_and(|(last, _)| *last >= log) {
                return Err(FrameFault::Malformed);
            }
            let message = Message::decode(&body.split_to(len));
            logs.push((log, message.map_err(|_| FrameFault::Malformed)?));
        }
        Ok(Self { logs })
    }
}
