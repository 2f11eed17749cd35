//! What the fronts and lanes of two nodes ask each other, as bytes.
//!
//! ```text
//! version u8 = 1 | kind u8 | fields, little-endian | bulk to the end
//! ```
//!
//! The bulk is a batch, the batches of a poll or a command: it leaves by reference and is read
//! without a copy when nobody else holds the frame.
//!
//! Invariants: reading never panics and reserves nothing that the bytes at hand do not justify;
//! what was written is read as it was, except that the pieces of a poll's batches arrive as one.

use super::forward_codec::{Input, Output};
use super::{Destination, ForwardMessage, FrameFault};
use crate::front::ClientSummary;
use crate::lane::api::{LaneReply, LaneRequestKind, PartitionCounters, Ticket};
use borzoi_types::{LogId, Op, PartitionKey, ReplicaId, ShardId};
use bytes::Bytes;

/// Version of these bytes.
const VERSION: u8 = 1;

/// Who waits at the sender for the answer: echoed by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Waiter {
    /// The sender's shard.
    pub shard: ShardId,
    /// That shard's number for the question, never reused by that node.
    pub ticket: Ticket,
}

/// One message between the fronts or lanes of two nodes.
#[derive(PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Clone))]
pub enum Forwarded {
    /// A request for a lane that the receiver leads. Answered with [`Self::LaneReply`].
    Lane {
        /// Who waits.
        waiter: Waiter,
        /// The lane.
        lane: LogId,
        /// The partition.
        key: PartitionKey,
        /// What is wanted.
        kind: LaneRequestKind,
    },
    /// The answer of a lane.
    LaneReply {
        /// Who waits.
        waiter: Waiter,
        /// Who leads the lane, if the answer is that the sender does not and it knows.
        leader: Option<ReplicaId>,
        /// The answer.
        reply: LaneReply,
    },
    /// Figures of partitions of one lane are wanted. Answered with [`Self::Figures`].
    AskFigures {
        /// Who waits.
        waiter: Waiter,
        /// The lane.
        lane: LogId,
        /// Its partitions.
        keys: Vec<PartitionKey>,
    },
    /// Figures of partitions.
    Figures {
        /// Who waits.
        waiter: Waiter,
        /// What is known; none when the sender does not lead the lane.
        figures: Option<Vec<(PartitionKey, PartitionCounters)>>,
    },
    /// To the metadata primary: propose this command. The sender recognises it by its bytes when it
    /// commits; only a refusal is answered, with [`Self::CommandRefused`].
    Command {
        /// Who waits.
        waiter: Waiter,
        /// The encoded command.
        body: Bytes,
    },
    /// The command was not executed by the sender.
    CommandRefused {
        /// Who waits.
        waiter: Waiter,
        /// Whether it never will be. False: another primary may have committed it.
        certain: bool,
    },
    /// To the metadata primary: how far is metadata committed? Answered with [`Self::CommitIs`].
    AskCommit {
        /// Who waits.
        waiter: Waiter,
    },
    /// How far metadata was committed when the question came, or later.
    CommitIs {
        /// Who waits.
        waiter: Waiter,
        /// The commit position; none when the sender does not serve metadata.
        op: Option<Op>,
    },
    /// Which clients are connected to your node? Answered with [`Self::Clients`].
    AskClients {
        /// Who waits.
        waiter: Waiter,
    },
    /// The clients of the sender's node.
    Clients {
        /// Who waits.
        waiter: Waiter,
        /// Its connections.
        clients: Vec<ClientSummary>,
    },
}

impl Forwarded {
    /// Where the receiving node handles it.
    #[must_use]
    pub const fn destination(&self) -> Destination {
        match self {
            Self::Lane { lane, .. } | Self::AskFigures { lane, .. } => Destination::Log(*lane),
            Self::Command { .. } | Self::AskCommit { .. } => Destination::Log(LogId::METADATA),
            Self::AskClients { .. } => Destination::Link,
            Self::LaneReply { waiter, .. }
            | Self::Figures { waiter, .. }
            | Self::CommandRefused { waiter, .. }
            | Self::CommitIs { waiter, .. }
            | Self::Clients { waiter, .. } => Destination::Shard(waiter.shard),
        }
    }

    /// The message that carries it, its bulk by reference.
    #[must_use]
    pub fn into_message(self) -> ForwardMessage {
        let to = self.destination();
        let mut out = Output::new(VERSION);
        match self {
            Self::Lane { waiter, lane, key, kind } => {
                out.u8(KIND_LANE).waiter(waiter).u32(lane.0).u64(key.0).lane_request(kind);
            }
            Self::LaneReply { waiter, leader, reply } => {
                out.u8(KIND_LANE_REPLY).waiter(waiter).replica(leader).lane_reply(reply);
            }
            Self::AskFigures { waiter, lane, keys } => {
                out.u8(KIND_ASK_FIGURES).waiter(waiter).u32(lane.0).keys(&keys);
            }
            Self::Figures { waiter, figures } => {
                out.u8(KIND_FIGURES).waiter(waiter).figures(figures.as_deref());
            }
            Self::Command { waiter, body } => {
                out.u8(KIND_COMMAND).waiter(waiter).bulk(body);
            }
            Self::CommandRefused { waiter, certain } => {
                out.u8(KIND_COMMAND_REFUSED).waiter(waiter).u8(u8::from(certain));
            }
            Self::AskCommit { waiter } => {
                out.u8(KIND_ASK_COMMIT).waiter(waiter);
            }
            Self::CommitIs { waiter, op } => {
                out.u8(KIND_COMMIT_IS).waiter(waiter).optional_u64(op.map(|op| op.0));
            }
            Self::AskClients { waiter } => {
                out.u8(KIND_ASK_CLIENTS).waiter(waiter);
            }
            Self::Clients { waiter, clients } => {
                out.u8(KIND_CLIENTS).waiter(waiter).clients(&clients);
            }
        }
        ForwardMessage { to, body: out.finish() }
    }

    /// Reads what [`Self::into_message`] wrote.
    ///
    /// # Errors
    /// [`FrameFault::Malformed`], also when the bytes are not for this destination.
    pub fn from_message(message: ForwardMessage) -> Result<Self, FrameFault> {
        let ForwardMessage { to, body } = message;
        let mut input = Input::new(body.to_bytes());
        drop(body);
        if input.u8()? != VERSION {
            return Err(FrameFault::Malformed);
        }
        let kind = input.u8()?;
        let waiter = input.waiter()?;
        let forwarded = match kind {
            KIND_LANE => Self::Lane {
                waiter,
                lane: LogId(input.u32()?),
                key: PartitionKey(input.u64()?),
                kind: input.lane_request()?,
            },
            KIND_LANE_REPLY => {
                let leader = input.replica()?;
                Self::LaneReply { waiter, leader, reply: input.lane_reply()? }
            }
            KIND_ASK_FIGURES => {
                Self::AskFigures { waiter, lane: LogId(input.u32()?), keys: input.keys()? }
            }
            KIND_FIGURES => Self::Figures { waiter, figures: input.figures()? },
            KIND_COMMAND => Self::Command { waiter, body: input.bulk() },
            KIND_COMMAND_REFUSED => Self::CommandRefused { waiter, certain: input.bool()? },
            KIND_ASK_COMMIT => Self::AskCommit { waiter },
            KIND_COMMIT_IS => Self::CommitIs { waiter, op: input.optional_u64()?.map(Op) },
            KIND_ASK_CLIENTS => Self::AskClients { waiter },
            KIND_CLIENTS => Self::Clients { waiter, clients: input.clients()? },
            _ => return Err(FrameFault::Malformed),
        };
        input.end()?;
        // A frame for one shard must not reach the table of another.
        if forwarded.destination() == to { Ok(forwarded) } else { Err(FrameFault::Malformed) }
    }
}

const KIND_LANE: u8 = 1;
const KIND_LANE_REPLY: u8 = 2;
const KIND_ASK_FIGURES: u8 = 3;
const KIND_FIGURES: u8 = 4;
const KIND_COMMAND: u8 = 5;
const KIND_COMMAND_REFUSED: u8 = 6;
const KIND_ASK_COMMIT: u8 = 7;
const KIND_COMMIT_IS: u8 = 8;
const KIND_ASK_CLIENTS: u8 = 9;
const KIND_CLIENTS: u8 = 10;

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
