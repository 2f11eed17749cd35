//! Identifiers and positions. See `docs/glossary.md` for the words.

use core::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// The smallest value.
            pub const ZERO: Self = Self(0);
            /// The largest value.
            pub const MAX: Self = Self(<$inner>::MAX);

            /// The plain number, for encoding.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The value after this one. Panics on overflow: none of these can wrap in practice,
            /// and wrapping silently would break every invariant built on order.
            #[must_use]
            pub const fn next(self) -> Self {
                match self.0.checked_add(1) {
                    Some(value) => Self(value),
                    None => panic!(concat!(stringify!($name), " overflow")),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number!(
    /// Position in one replicated log (metadata or a lane). The first operation is 1; 0 is the
    /// root that every log starts from.
    Op(u64)
);
number!(
    /// View number of Viewstamped Replication; the primary of a view follows from it.
    View(u32)
);
number!(
    /// Which replicated log: 0 is metadata, 1.. are the lanes.
    LogId(u32)
);
number!(
    /// A core's server within one node.
    ShardId(u16)
);
number!(
    /// A node within the cluster's roster, 0-based.
    ReplicaId(u8)
);
number!(
    /// Identity of one incarnation of a partition: minted in rising order by metadata, never
    /// reused. Log records, segment files and parked requests carry it.
    PartitionKey(u64)
);
number!(
    /// Position of a message in a partition, 0-based.
    Offset(u64)
);
number!(
    /// Identity a client chose for itself (a version 4 UUID on the wire).
    ClientId(u128)
);
number!(
    /// Session number: the metadata operation that registered the client.
    SessionId(u64)
);
number!(
    /// A client's own counter of its requests.
    RequestNumber(u64)
);
number!(
    /// Which cluster incarnation: minted when it is formatted, carried by every frame and record.
    ClusterId(u128)
);
number!(
    /// Client-visible stream number, 0-based, reused after deletion.
    StreamId(u32)
);
number!(
    /// Client-visible topic number within its stream, 0-based, reused after deletion.
    TopicId(u32)
);
number!(
    /// Client-visible partition number within its topic, dense from 0.
    PartitionId(u32)
);
number!(
    /// User number; 0 is root.
    UserId(u32)
);
number!(
    /// Consumer group number within its topic, never reused.
    GroupId(u32)
);

impl LogId {
    /// The log that decides what should exist.
    pub const METADATA: Self = Self(0);

    /// Whether this is the metadata log.
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        self.0 == 0
    }

    /// The shard of a node with `shards` shards that hosts this log: metadata on shard 0, lane
    /// n on shard (n - 1) mod shards.
    #[must_use]
    pub fn shard(self, shards: u16) -> ShardId {
        assert!(shards > 0, "a node has at least one shard");
        if self.is_metadata() {
            return ShardId(0);
        }
        let index = (self.0 - 1) % u32::from(shards);
        ShardId(u16::try_from(index).expect("below a u16 by the modulo"))
    }
}

/// When a replica may acknowledge an operation (architecture, section 6.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Durability {
    /// The journal record has been handed to the kernel.
    Replicated = 1,
    /// The journal record has completed its flush. The default.
    Persisted = 2,
}

impl Durability {
    /// The level stored under `byte`, if it is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Replicated),
            2 => Some(Self::Persisted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_spread_over_shards_and_metadata_stays_on_shard_zero() {
        assert_eq!(LogId::METADATA.shard(4), ShardId(0));
        let shards: Vec<u16> = (1..=5).map(|lane| LogId(lane).shard(2).0).collect();
        assert_eq!(shards, [0, 1, 0, 1, 0]);
    }

    #[test]
    fn durability_round_trips_and_refuses_other_bytes() {
        for byte in 0..=u8::MAX {
            if let Some(level) = Durability::from_byte(byte) {
                assert_eq!(level as u8, byte);
            } else {
                assert!(byte == 0 || byte > 2);
            }
        }
    }
}
