//! What the metadata log says: one [`Command`] per operation.
//!
//! A command carries everything that its effect depends on besides the state: names, hashes,
//! limits that were configured where it was admitted. With the operation number and the prepare's
//! timestamp, applying it gives the same result on every replica, today and in ten years.
//!
//! ```text
//! version u8 = 1 | issuer | change (one stable byte, then its fields)
//! ```
//!
//! Invariants: every decodable command applies to every state (to a rejection at worst); arbitrary
//! bytes never panic; kinds and layouts are never changed, only added to.

use crate::codec::{Codec, DecodeError, Input, codec_enum, codec_struct};
use crate::identity::{ConnectionStamp, GroupKey, PasswordHash, SessionRef, TokenHash, UserKey};
use crate::options::{TopicOptions, TopicOptionsUpdate};
use crate::permissions::Permissions;
use borzoi_types::{
    ClientId, LogId, Micros, Op, PartitionId, PartitionKey, ReplicaId, RequestNumber, SessionId,
};
use borzoi_wire::body::UserStatus;
use borzoi_wire::{Identifier, Name};

/// Version of the log form that this build writes.
pub const COMMAND_VERSION: u8 = 1;

/// One operation of the metadata log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// On whose behalf.
    pub issuer: Issuer,
    /// What is to change.
    pub change: Change,
}

/// On whose behalf a command is executed; decides authorisation and duplicate detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issuer {
    /// The server itself: always allowed, never a duplicate.
    System,
    /// A user without a session (HTTP): authorised, never a duplicate.
    User(UserKey),
    /// A client in its session: authorised as the session's user and executed at most once.
    Client(ClientRequest),
}

codec_enum!(Issuer { 1 => System, 2 => User(user), 3 => Client(request) });

/// One request of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRequest {
    /// The client's identity.
    pub client: ClientId,
    /// The session bound to the connection it came on.
    pub session: SessionId,
    /// The client's number for it.
    pub request: RequestNumber,
    /// The request checksum of the frame; 0 when the client sends none.
    pub checksum: u128,
}

codec_struct!(ClientRequest { client, session, request, checksum });

/// How the user of a registration proved who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credential {
    /// With the password, verified before the command was proposed.
    Password,
    /// With the access token of this hash; the session ends with the token.
    Token(TokenHash),
}

codec_enum!(Credential { 1 => Password, 2 => Token(hash) });

/// Gives a client a session, or a new number to the one it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register {
    /// The identity the client chose.
    pub client: ClientId,
    /// The user it proved to be.
    pub user: UserKey,
    /// How.
    pub credential: Credential,
    /// Where it is connected.
    pub connection: ConnectionStamp,
}

codec_struct!(Register { client, user, credential, connection });

/// A connection that held a session is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedConnection {
    /// The session's client.
    pub client: ClientId,
    /// The connection. Ignored if the session has moved to another one meanwhile.
    pub connection: ConnectionStamp,
}

codec_struct!(ClosedConnection { client, connection });

/// Creates a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateTopic {
    /// In this stream.
    pub stream: Identifier,
    /// With this name.
    pub name: Name,
    /// With this many partitions, 0 to 1,000.
    pub partitions: u32,
    /// With these options, defaults filled in.
    pub options: TopicOptions,
}

codec_struct!(CreateTopic { stream, name, partitions, options });

/// Renames a topic and changes its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateTopic {
    /// In this stream.
    pub stream: Identifier,
    /// This topic.
    pub topic: Identifier,
    /// The new name; may be the old one.
    pub name: Name,
    /// What changes besides.
    pub options: TopicOptionsUpdate,
}

codec_struct!(UpdateTopic { stream, topic, name, options });

/// A topic, as a request names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicName {
    /// The stream.
    pub stream: Identifier,
    /// The topic in it.
    pub topic: Identifier,
}

codec_struct!(TopicName { stream, topic });

/// A consumer group, as a request names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupName {
    /// The stream.
    pub stream: Identifier,
    /// The topic in it.
    pub topic: Identifier,
    /// The group in that.
    pub group: Identifier,
}

codec_struct!(GroupName { stream, topic, group });

/// Creates a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateUser {
    /// User name, 3 to 50 bytes.
    pub name: Name,
    /// Hash of the password.
    pub password: PasswordHash,
    /// Active or not.
    pub status: UserStatus,
    /// What the user may do; nothing when absent.
    pub permissions: Option<Permissions>,
}

codec_struct!(CreateUser { name, password, status, permissions });

/// A hand-over that has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletedHandover {
    /// Of this group.
    pub group: GroupKey,
    /// Of this partition.
    pub partition: PartitionKey,
    /// The operation that started it. Ignored when another one has replaced it.
    pub started: Op,
    /// Why.
    pub cause: HandoverCause,
}

codec_struct!(CompletedHandover { group, partition, started, cause });

/// Why a hand-over ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HandoverCause {
    /// The old owner has committed all it polled, or had polled nothing.
    Drained,
    /// The old owner was given long enough.
    TimedOut,
}

codec_enum!(HandoverCause { 1 => Drained, 2 => TimedOut });

/// What a command changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Login. Rejected with 58 when the session table is full, 14001 when the identity belongs to
    /// another user, 42, 47 or 53 when the user or token went away meanwhile.
    Register(Register),
    /// The client ends its session; memberships and stored replies go with it.
    Logout(SessionRef),
    /// Connections were lost: memberships end, sessions wait for their client or their expiry.
    ConnectionsClosed(Vec<ClosedConnection>),
    /// All connections of earlier lives of a node are lost.
    NodeStarted {
        /// The node.
        replica: ReplicaId,
        /// Its present generation; connections of lower ones are gone.
        generation: u64,
    },
    /// Ends sessions whose client has been away long enough.
    ExpireSessions(Vec<SessionRef>),
    /// Creates a stream: 1012, 1020.
    CreateStream {
        /// Its name.
        name: Name,
    },
    /// Renames a stream: 1009, 1012.
    UpdateStream {
        /// Which.
        stream: Identifier,
        /// The new name.
        name: Name,
    },
    /// Deletes a stream with all it holds: 1009.
    DeleteStream {
        /// Which.
        stream: Identifier,
    },
    /// Deletes all messages of a stream: 1009.
    PurgeStream {
        /// Which.
        stream: Identifier,
    },
    /// Creates a topic: 1009, 2013, 2015, 2021, 2022, 4042.
    CreateTopic(CreateTopic),
    /// Renames a topic and changes options: 1009, 2010, 2013, 1019.
    UpdateTopic(UpdateTopic),
    /// Deletes a topic: 1009, 2010.
    DeleteTopic(TopicName),
    /// Deletes all messages of a topic: 1009, 2010.
    PurgeTopic(TopicName),
    /// Adds partitions: 1009, 2010, 2015, 2022, 3013.
    CreatePartitions {
        /// To this topic.
        topic: TopicName,
        /// So many, 1 to 1,000.
        count: u32,
    },
    /// Removes the highest partitions: 1009, 2010, 2015, 2019.
    DeletePartitions {
        /// Of this topic.
        topic: TopicName,
        /// So many, 1 to 1,000.
        count: u32,
    },
    /// Wishes the oldest closed segments away: 1009, 2010, 3007; 58 when too many wishes wait.
    DeleteSegments {
        /// Of this topic.
        topic: TopicName,
        /// Of this partition.
        partition: PartitionId,
        /// So many.
        count: u32,
    },
    /// Creates a consumer group: 1009, 2010, 5004, 5010.
    CreateGroup {
        /// Of this topic.
        topic: TopicName,
        /// Its name.
        name: Name,
    },
    /// Deletes a consumer group with its offsets: 1009, 2010, 5000.
    DeleteGroup(GroupName),
    /// The issuing client joins: 1009, 2010, 5000, 5010; 5 without a session, 58 when its
    /// connection was lost meanwhile.
    JoinGroup(GroupName),
    /// The issuing client leaves: 1009, 2010, 5000, 5006.
    LeaveGroup(GroupName),
    /// Hand-overs that have ended.
    CompleteHandovers(Vec<CompletedHandover>),
    /// Clients that were silent for too long leave all their groups.
    RemoveMembers(Vec<SessionRef>),
    /// Creates a user: 43, 46, 55.
    CreateUser(CreateUser),
    /// Renames, enables or disables a user: 20, 43, 45, 46.
    UpdateUser {
        /// Which.
        user: Identifier,
        /// The new name, if it changes.
        name: Option<Name>,
        /// The new status, if it changes.
        status: Option<UserStatus>,
    },
    /// Deletes a user with its tokens and sessions: 20, 48.
    DeleteUser {
        /// Which.
        user: Identifier,
    },
    /// Replaces all permissions of a user: 20, 49.
    UpdatePermissions {
        /// Whose.
        user: Identifier,
        /// The new ones; none at all when absent.
        permissions: Option<Permissions>,
    },
    /// Replaces a password: 20, 42.
    ChangePassword {
        /// Whose.
        user: Identifier,
        /// The hash that the current password was verified against. Rejected with 42 when it is
        /// not the user's hash any more.
        verified: PasswordHash,
        /// The hash of the new password.
        password: PasswordHash,
    },
    /// Creates an access token of the issuer: 50, 51, 52, 56.
    CreateToken {
        /// Its name, 3 to 30 bytes.
        name: Name,
        /// Its hash.
        hash: TokenHash,
        /// When it ends to be valid; never when absent.
        expires: Option<Micros>,
        /// How many tokens a user may have, as configured where the command was admitted.
        tokens_max: u32,
    },
    /// Deletes an access token of the issuer: 20.
    DeleteToken {
        /// Its name.
        name: Name,
    },
    /// Removes all tokens that have expired by the operation's timestamp.
    ExpireTokens,
    /// Lanes have committed all that metadata wanted of them up to an operation.
    LanesConfirmed(Vec<(LogId, Op)>),
}

codec_enum!(Change {
    1 => Register(register),
    2 => Logout(session),
    3 => ConnectionsClosed(connections),
    4 => NodeStarted { replica, generation },
    5 => ExpireSessions(sessions),
    10 => CreateStream { name },
    11 => UpdateStream { stream, name },
    12 => DeleteStream { stream },
    13 => PurgeStream { stream },
    20 => CreateTopic(topic),
    21 => UpdateTopic(topic),
    22 => DeleteTopic(topic),
    23 => PurgeTopic(topic),
    30 => CreatePartitions { topic, count },
    31 => DeletePartitions { topic, count },
    32 => DeleteSegments { topic, partition, count },
    40 => CreateGroup { topic, name },
    41 => DeleteGroup(group),
    42 => JoinGroup(group),
    43 => LeaveGroup(group),
    44 => CompleteHandovers(handovers),
    45 => RemoveMembers(members),
    50 => CreateUser(user),
    51 => UpdateUser { user, name, status },
    52 => DeleteUser { user },
    53 => UpdatePermissions { user, permissions },
    54 => ChangePassword { user, verified, password },
    60 => CreateToken { name, hash, expires, tokens_max },
    61 => DeleteToken { name },
    62 => ExpireTokens,
    70 => LanesConfirmed(lanes),
});

impl Command {
    /// A command of the server itself.
    #[must_use]
    pub const fn system(change: Change) -> Self {
        Self { issuer: Issuer::System, change }
    }

    /// The log form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![COMMAND_VERSION];
        self.issuer.put(&mut out);
        self.change.put(&mut out);
        out
    }

    /// Reads the log form.
    ///
    /// # Errors
    /// What is wrong with the bytes first, an unknown version included.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(bytes);
        let version = u8::get(&mut input)?;
        if version != COMMAND_VERSION {
            let value = u64::from(version);
            return Err(DecodeError::Value { what: "command version", value });
        }
        let issuer = Issuer::get(&mut input)?;
        let change = Change::get(&mut input)?;
        input.end()?;
        Ok(Self { issuer, change })
    }
}

impl Change {
    /// Whether the client is answered only when the lanes named by the notices have committed
    /// their part (architecture, section 8).
    #[must_use]
    pub const fn waits_for_lanes(&self) -> bool {
        matches!(
            self,
            Self::DeleteStream { .. }
                | Self::PurgeStream { .. }
                | Self::DeleteTopic(_)
                | Self::PurgeTopic(_)
                | Self::DeletePartitions { .. }
                | Self::DeleteSegments { .. }
                | Self::DeleteGroup(_)
        )
    }
}
