//! Identities and secrets that metadata gives or keeps.

use crate::codec::{codec_number, codec_struct};
use borzoi_types::{ClientId, GroupId, PartitionId, ReplicaId, SessionId, StreamId, TopicId};
use core::fmt;

/// Identity of one incarnation of a user: minted in rising order, never reused, unlike the visible
/// user number. Sessions and tokens are bound to it, so nothing that was given to a deleted user
/// works for the next one under the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct UserKey(pub u64);

impl UserKey {
    /// The root user, there from formatting.
    pub const ROOT: Self = Self(0);
}

/// Identity of one consumer group: minted in rising order, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct GroupKey(pub u64);

/// A member's place in its group, 0-based, the lowest free one when it joins. This is the member
/// id that clients see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MemberSlot(pub u32);

codec_number!(UserKey, GroupKey, MemberSlot);

/// One connection of one life of one node. Tells a repeated login on the same connection from a
/// login on a newer one, and a late "connection closed" from a current one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ConnectionStamp {
    /// The node that accepted the connection.
    pub replica: ReplicaId,
    /// That node's journal generation: rises at every start.
    pub generation: u64,
    /// The connection within that life of the node.
    pub number: u64,
}

codec_struct!(ConnectionStamp { replica, generation, number });

/// A session as the connection that holds it knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionRef {
    /// The client's identity.
    pub client: ClientId,
    /// The session number given at login.
    pub session: SessionId,
}

codec_struct!(SessionRef { client, session });

/// Where a partition is in the clients' world. True while its key lives; the numbers are reused
/// afterwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionPlace {
    /// Stream number.
    pub stream: StreamId,
    /// Topic number within the stream.
    pub topic: TopicId,
    /// Partition number within the topic.
    pub partition: PartitionId,
}

codec_struct!(PartitionPlace { stream, topic, partition });

/// Where a consumer group is in the clients' world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupPlace {
    /// Stream number.
    pub stream: StreamId,
    /// Topic number within the stream.
    pub topic: TopicId,
    /// Group number within the topic.
    pub group: GroupId,
}

codec_struct!(GroupPlace { stream, topic, group });

/// A password as an Argon2 PHC string, opaque here. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(pub String);

codec_number!(PasswordHash);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// A 256-bit hash of an access token. Never shown by `Debug`, compared in constant time.
#[derive(Clone, Copy)]
pub struct TokenHash(pub [u8; 32]);

codec_number!(TokenHash);

impl TokenHash {
    /// The first bytes as a number, for the index. Says nothing about the token: a hash cannot be
    /// steered.
    #[must_use]
    pub(crate) const fn prefix(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        // Touches every byte whatever they are, so the time tells nothing.
        let pairs = self.0.iter().zip(other.0.iter());
        core::hint::black_box(pairs.fold(0u8, |seen, (a, b)| seen | (a ^ b))) == 0
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}
