//! What applying a command comes to.

use crate::codec::{Codec, DecodeError, Input, codec_enum, codec_struct};
use crate::identity::{GroupKey, SessionRef, TokenHash, UserKey};
use crate::options::TopicOptions;
use crate::permissions::Permissions;
use borzoi_types::{
    GroupId, LogId, Micros, Op, PartitionKey, SessionId, StreamId, TopicId, UserId,
};
use borzoi_wire::body::UserStatus;
use borzoi_wire::{ErrorCode, Name};

/// Result of one command. The same on every replica, kept for duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It has changed what it was meant to change.
    Applied(Reply),
    /// It has changed nothing; the number goes into the result section.
    Rejected(ErrorCode),
}

codec_enum!(Outcome { 1 => Applied(reply), 2 => Rejected(code) });

impl Codec for ErrorCode {
    fn put(&self, out: &mut Vec<u8>) {
        self.number().put(out);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let number = u32::get(input)?;
        let bad = DecodeError::Value { what: "error number", value: u64::from(number) };
        Self::from_number(number).ok_or(bad)
    }
}

/// What a successful command answers, independent of any client's encoding. Objects are shown as
/// they were when the command was applied; counters of a new object are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Success and nothing else.
    Nothing,
    /// A login.
    Registered {
        /// The user's visible number.
        user: UserId,
        /// The session.
        session: SessionId,
    },
    /// A new stream.
    Stream {
        /// Its number.
        id: StreamId,
        /// When it was created.
        created: Micros,
        /// Its name.
        name: Name,
    },
    /// A new topic.
    Topic {
        /// Stream number.
        stream: StreamId,
        /// Its number.
        id: TopicId,
        /// When it and its partitions were created.
        created: Micros,
        /// Its name.
        name: Name,
        /// Its partitions are numbered from 0 to below this.
        partitions: u32,
        /// Its options.
        options: TopicOptions,
    },
    /// A new consumer group, without members.
    Group {
        /// Its number.
        id: GroupId,
        /// Its name.
        name: Name,
        /// Partitions of the topic.
        partitions: u32,
    },
    /// A new user.
    User {
        /// Its number.
        id: UserId,
        /// When it was created.
        created: Micros,
        /// Its status.
        status: UserStatus,
        /// Its name.
        name: Name,
        /// What it may do.
        permissions: Option<Permissions>,
    },
    /// A new token. The clear token is known only to the node that admitted the request, which
    /// appends it; a duplicate is therefore answered with 51.
    Token,
}

codec_enum!(Reply {
    1 => Nothing,
    2 => Registered { user, session },
    3 => Stream { id, created, name },
    4 => Topic { stream, id, created, name, partitions, options },
    5 => Group { id, name, partitions },
    6 => User { id, created, status, name, permissions },
    7 => Token,
});

/// A finished request of a client, kept for duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReply {
    /// The operation that executed it.
    pub op: Op,
    /// That operation's timestamp.
    pub timestamp: Micros,
    /// What it came to.
    pub outcome: Outcome,
}

codec_struct!(StoredReply { op, timestamp, outcome });

/// Something that applying a command changed and that others on this node act upon. Not part of
/// the state: a copy restored from a snapshot has none and its users look at everything once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Metadata wants something new of this lane; see [`crate::Metadata::lane_changes`].
    LaneChanged(LogId),
    /// A client has a new session number; requests under older ones are refused.
    SessionStarted(SessionRef),
    /// A session is over; lanes may forget its entries, its connection is closed.
    SessionEnded {
        /// The session.
        session: SessionRef,
        /// The first number that its client had, which lanes remember its sends under.
        first: SessionId,
    },
    /// Status, permissions, name or password of a user changed.
    UserChanged(UserKey),
    /// A user is gone: its connections end.
    UserDeleted(UserKey),
    /// A token is gone: connections that used it end.
    TokenDeleted {
        /// Its owner.
        user: UserKey,
        /// Its hash.
        hash: TokenHash,
    },
    /// Members, owners or generation of a group changed.
    GroupChanged(GroupKey),
    /// A group is gone.
    GroupDeleted(GroupKey),
    /// A hand-over has begun: the lane's primary stops giving new messages to the old owner and
    /// reports when it has drained; see [`crate::Metadata::handovers`].
    HandoverStarted {
        /// Of this group.
        group: GroupKey,
        /// Of this partition.
        partition: PartitionKey,
    },
}
