//! Every answer as one enumeration. What stands in a body is the same for all profiles; how it is
//! laid out is the codec's business ([`crate::Profile`]).

use crate::body::{
    Archive, Assignment, ClientDetails, ClientRecord, ClusterMetadata, ConsumerOffset,
    GroupDetails, GroupRecord, Identity, OptionDescription, PollPrefix, Routing, SendConfirmation,
    Stats, StreamDetails, StreamRecord, TokenRecord, TopicDetails, TopicHeader, UserDetails,
    UserRecord,
};
use crate::error_code::ErrorCode;
use crate::frame::EvictionReason;
use crate::name::Secret;
use borzoi_types::{Micros, Op};

/// The payload of a success.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// Nothing to say.
    Empty,
    /// There is no such object: an empty body, not an error.
    NotFound,
    /// Login succeeded.
    Identity(Identity),
    /// Statistics.
    Stats(Box<Stats>),
    /// Diagnostic archive.
    Archive(Archive),
    /// The nodes of the cluster.
    ClusterMetadata(ClusterMetadata),
    /// Catalogue of options.
    OptionDescriptions(Vec<OptionDescription>),
    /// One connection.
    Client(ClientDetails),
    /// All connections.
    Clients(Vec<ClientRecord>),
    /// One user, also one just created.
    User(UserDetails),
    /// All users.
    Users(Vec<UserRecord>),
    /// Own access tokens.
    Tokens(Vec<TokenRecord>),
    /// The access token just created; shown once.
    Token(Secret),
    /// One stream, also one just created.
    Stream(StreamDetails),
    /// All streams.
    Streams(Vec<StreamRecord>),
    /// One topic, also one just created.
    Topic(TopicDetails),
    /// All topics of a stream.
    Topics(Vec<TopicHeader>),
    /// One group.
    Group(GroupDetails),
    /// A group just created.
    GroupCreated(GroupRecord),
    /// All groups of a topic.
    Groups(Vec<GroupRecord>),
    /// Partitions assigned to the caller.
    Assignment(Assignment),
    /// Where batches were appended.
    Sent(Vec<SendConfirmation>),
    /// A poll that found nothing, or whose batches the caller sends behind this prefix.
    Polled(PollPrefix),
    /// A stored offset.
    ConsumerOffset(ConsumerOffset),
    /// Where to send consumer work.
    Routing(Routing),
}

/// Positions that a reply carries (section 3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyPosition {
    /// Log position of the command; of a read the session number, informative.
    pub op: Op,
    /// Commit position; must not fall over time.
    pub commit: Op,
    /// Time of the commit; `None` echoes the request.
    pub timestamp: Option<Micros>,
}

/// How a request is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// It was done; of a logged command at this position.
    Done(Reply),
    /// It was refused before the log, or is a read that failed: the error is the status.
    Denied(ErrorCode),
    /// The command was refused, in the log or transiently: the error stands in a result section
    /// where the operation has one, else it is the status.
    Rejected(ErrorCode),
    /// The session, login or request is refused with an eviction frame.
    Evicted(EvictionReason),
}
