//! What the front asks of a lane and what a lane answers.
//!
//! A request names a partition by its never-reused key and the lane recorded with it, both resolved
//! by the front against committed metadata. The shard that hosts the lane answers it exactly once,
//! to the shard and ticket in [`Origin`]; requests of the own shard take the same path without a
//! message. Requests of one origin for one partition are executed in the order they were submitted.
//!
//! Invariants:
//! - Every request gets exactly one reply, also across parking, refusal and stop.
//! - A reply of kind [`LaneReply::Refused`] means that nothing was executed, except for
//!   [`Refusal::Unknown`]: the lead was lost while the request was on its way.

use borzoi_storage::sealing::OpenError;
use borzoi_types::{
    GroupId, LogId, Micros, Offset, Op, PartitionKey, ReplicaId, RequestNumber, SessionId, ShardId,
};
use bytes::{Bytes, BytesMut};

/// A waiting request at its origin; the origin chooses the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Who waits for the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The node that sent the request, if it is not this one.
    pub peer: Option<ReplicaId>,
    /// The shard of that node that waits.
    pub shard: ShardId,
    /// That shard's number for it.
    pub ticket: Ticket,
}

impl Origin {
    /// A shard of this node.
    #[must_use]
    pub const fn here(shard: ShardId, ticket: Ticket) -> Self {
        Self { peer: None, shard, ticket }
    }
}

/// One request to one partition.
#[derive(Debug)]
pub struct LaneRequest {
    /// Who waits.
    pub origin: Origin,
    /// The partition, resolved at admission.
    pub key: PartitionKey,
    /// The lane recorded with the partition in metadata.
    pub lane: LogId,
    /// What is wanted.
    pub kind: LaneRequestKind,
}

/// Whose offset: stored per partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConsumerKey {
    /// A plain consumer: its number, or XXH32 of its name.
    Consumer(u32),
    /// A consumer group.
    Group(GroupId),
}

/// Identity of a send, for exactly-once (architecture, section 9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SendIdentity {
    /// The first session number of the client that sends: the same after each reconnect.
    pub session: SessionId,
    /// The client's request number.
    pub request: RequestNumber,
    /// Hash of the batch as the client sent it (its batch checksum before stamping).
    pub hash: u64,
}

/// Where a poll starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollStart {
    /// At this offset, or the next existing one.
    Offset(Offset),
    /// At the first batch appended at or after this time.
    Timestamp(Micros),
    /// At the earliest existing message.
    First,
    /// The last `count` messages.
    Last,
    /// After the stored offset of the request's consumer.
    Next,
}

/// What a lane can be asked.
#[derive(PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(Clone))]
pub enum LaneRequestKind {
    /// Append a batch. Answered with [`LaneReply::Sent`].
    Send {
        /// One whole wire batch (header and frames), verified by the front and not yet stamped.
        /// Must be uniquely owned by this value: the lane stamps it in place.
        batch: BytesMut,
        /// Messages in it, at least 1.
        count: u32,
        /// For exactly-once; none for senders without a session, whose resends are new sends.
        identity: Option<SendIdentity>,
    },
    /// Read messages. Answered with [`LaneReply::Polled`].
    Poll {
        /// Where to start.
        start: PollStart,
        /// How many messages at most.
        count: u32,
        /// Who reads: for [`PollStart::Next`] and auto-commit.
        consumer: ConsumerKey,
        /// Whether the last delivered offset becomes the stored one.
        auto_commit: bool,
        /// Generation of the group when this was admitted; 0 for a plain consumer. A lower one
        /// than was seen before is refused with [`Refusal::NotOwner`].
        generation: u64,
    },
    /// Store a consumer's offset. Answered with [`LaneReply::Stored`], or refused with 4100 when
    /// the partition is empty or the offset is beyond its last message.
    StoreOffset {
        /// Whose.
        consumer: ConsumerKey,
        /// Offset of the last message processed.
        offset: Offset,
        /// False: answer after the local update only (wire acknowledgement 0).
        wait: bool,
        /// See [`LaneRequestKind::Poll`].
        generation: u64,
        /// Whether it is to be flushed before it is answered, whatever the lane's level.
        persisted: bool,
    },
    /// Forget a consumer's offset. Answered with [`LaneReply::Stored`], or refused with 3021.
    DeleteOffset {
        /// Whose.
        consumer: ConsumerKey,
        /// See [`LaneRequestKind::Poll`].
        generation: u64,
    },
    /// Read a consumer's committed offset. Answered with [`LaneReply::Offset`].
    GetOffset {
        /// Whose.
        consumer: ConsumerKey,
    },
    /// Answer [`LaneReply::KeyDeleted`] as soon as the lane has committed the deletion of the key;
    /// for deletes and purges, which are confirmed only then.
    AwaitDeleted,
    /// Answer [`LaneReply::Drained`] as soon as a consumer group has committed all it was given of
    /// the partition; for hand-overs between its members.
    AwaitDrained {
        /// Which group.
        group: GroupId,
    },
    /// Answer [`LaneReply::Confirmed`] as soon as the lane has committed all that metadata wanted
    /// of it up to `through`. About the lane, not about the partition named.
    AwaitConfirmed {
        /// A metadata operation.
        through: Op,
    },
    /// Answer [`LaneReply::Created`] as soon as the lane has committed the creation of the key.
    AwaitCreated,
}

/// Why a lane did not execute a request. The front turns it into the client's error number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A queue is full or the partition does not exist yet: try again (58).
    #[error("not accepted now, try again")]
    Busy,
    /// The request waited for its partition until its time was up, or the limits for waiting
    /// requests were reached: try again (58).
    #[error("the partition is not ready, try again")]
    NotMaterialised,
    /// This replica does not lead the lane or cannot serve it yet: try again (58).
    #[error("this replica does not serve the lane now")]
    NotServing,
    /// The request may have been executed or not: the same request again finds out (57).
    #[error("the outcome is not known, ask again")]
    Unknown,
    /// The node is stopping: try again elsewhere or later (58).
    #[error("the node is stopping")]
    Stopping,
    /// The disk is full: reads go on, writes resume when space returns (4010 for a send, 10006 for
    /// an offset).
    #[error("no space left for writes")]
    NoSpace,
    /// An offset store names a message that does not exist (4100).
    #[error("the offset is beyond the last message")]
    InvalidOffset,
    /// No offset is stored for the consumer (3021).
    #[error("no offset is stored for the consumer")]
    OffsetNotFound,
    /// The consumer group has given the partition to another member (5009; a poll: sync again).
    #[error("another member of the group owns the partition")]
    NotOwner,
    /// The request number is older than what the lane remembers (59).
    #[error("the request is older than the exactly-once window")]
    RequestTooOld,
    /// The bytes of a send are not one batch of the announced count (3).
    #[error("the bytes sent are not a batch")]
    InvalidBatch,
    /// The stored bytes are damaged; the rest of the partition is served.
    #[error("damaged data in {file} at {position}")]
    Damaged {
        /// Relative path of the file.
        file: String,
        /// Where in it.
        position: u64,
    },
    /// The disk refused a read.
    #[error("the disk could not be read")]
    ReadFailed,
    /// The stored bytes are encrypted and cannot be opened (72).
    #[error(transparent)]
    Sealed(OpenError),
}

impl Refusal {
    /// Whether the same request may succeed later without anyone changing anything.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match self {
            Self::Busy
            | Self::NotMaterialised
            | Self::NotServing
            | Self::Unknown
            | Self::Stopping => true,
            Self::NoSpace
            | Self::InvalidOffset
            | Self::OffsetNotFound
            | Self::NotOwner
            | Self::RequestTooOld
            | Self::InvalidBatch
            | Self::Damaged { .. }
            | Self::ReadFailed
            | Self::Sealed(_) => false,
        }
    }
}

/// A lane's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LaneReply {
    /// The batch is committed at the lane's level.
    Sent {
        /// Offset of its first message.
        base_offset: Offset,
        /// Lane operation that carries it.
        op: Op,
    },
    /// Messages, possibly none.
    Polled {
        /// Offset of the last committed message; 0 for a partition that never had one.
        current_offset: Offset,
        /// Messages in `batches`.
        count: u32,
        /// Wire batches back to back, in pieces, first and last sliced to what was asked.
        batches: Vec<Bytes>,
    },
    /// The offset is stored, or deleted.
    Stored,
    /// A consumer's committed offset.
    Offset {
        /// Offset of the last committed message; 0 for a partition that never had one.
        current_offset: Offset,
        /// What is stored; none when nothing is.
        stored_offset: Option<Offset>,
    },
    /// The partition exists in the lane.
    Created,
    /// The group has committed all it was given.
    Drained,
    /// All that metadata wanted up to the operation asked for is committed.
    Confirmed,
    /// Nothing was executed; the refusal says why and whether to retry.
    Refused(Refusal),
    /// The key is gone for ever: apply metadata up to `by` and resolve again, once.
    KeyDeleted {
        /// A metadata operation at or after the one that deleted it.
        by: Op,
    },
}

/// Figures of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartitionCounters {
    /// Committed messages that exist.
    pub messages: u64,
    /// Their bytes as wire batches.
    pub bytes: u64,
    /// Segments, at least 1 once anything was flushed.
    pub segments: u32,
    /// Offset of the last committed message; none if the partition never had one.
    pub current_offset: Option<Offset>,
}

/// Counters of partitions of one shard are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountersRequest {
    /// Who waits.
    pub origin: Origin,
    /// Which partitions, with their lanes; all must be hosted by the asked shard.
    pub keys: Vec<(LogId, PartitionKey)>,
}

/// Counters of partitions of one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountersReply {
    /// The origin's ticket.
    pub ticket: Ticket,
    /// In the order asked; zeros for a partition that the lane does not (or no longer) know.
    pub counters: Vec<(PartitionKey, PartitionCounters)>,
}
