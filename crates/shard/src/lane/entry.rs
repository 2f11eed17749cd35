//! What a lane's operations say: one [`Entry`] per thing that happens to a partition.
//!
//! Invariants: an entry carries everything that its effect depends on beside the lane's own state;
//! every entry applies to every state, to nothing at worst.

use crate::lane::api::{ConsumerKey, SendIdentity};
use borzoi_metadata::EXPIRY_NEVER;
use borzoi_types::{GroupId, Micros, Offset, Op, PartitionId, PartitionKey, SessionId};
use bytes::Bytes;

/// When closed segments of a partition go away by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Age of its newest message at which a segment goes, in microseconds; the largest number for
    /// never.
    pub message_expiry: Micros,
    /// Bytes of closed segments above which the oldest goes; the largest number for no limit.
    pub bytes_max: u64,
}

impl Retention {
    /// Nothing goes by itself.
    pub const NONE: Self = Self { message_expiry: EXPIRY_NEVER, bytes_max: u64::MAX };
}

/// What apply needs to know of a partition: fixed when it is created, but for its retention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionOptions {
    /// A segment is closed when it holds this many bytes.
    pub segment_bytes: u64,
    /// The client-visible number, stamped into every batch.
    pub partition: PartitionId,
    /// When its segments go away.
    pub retention: Retention,
    /// The metadata operation in hand when the retention was compared with the topic's options.
    pub options_op: Op,
}

/// One entry of a lane operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The partition exists from here on.
    Create {
        /// Its key.
        key: PartitionKey,
        /// Everything that apply will read.
        options: PartitionOptions,
        /// Metadata operation in hand when this was prepared.
        by: Op,
    },
    /// Messages.
    Batch {
        /// To which partition.
        key: PartitionKey,
        /// Offset of the first message.
        base_offset: Offset,
        /// Messages in the batch.
        count: u32,
        /// For exactly-once.
        identity: Option<SendIdentity>,
        /// The stamped wire batch.
        batch: Bytes,
    },
    /// A consumer's offset.
    StoreOffset {
        /// In which partition.
        key: PartitionKey,
        /// Whose.
        consumer: ConsumerKey,
        /// Last processed message.
        offset: Offset,
        /// Made by a poll: only moves forward.
        auto_commit: bool,
        /// Generation of the group when this was admitted; 0 for a plain consumer.
        generation: u64,
        /// To be flushed before it counts as held, whatever the lane's level.
        persisted: bool,
    },
    /// A consumer's offset is forgotten.
    DeleteOffset {
        /// In which partition.
        key: PartitionKey,
        /// Whose.
        consumer: ConsumerKey,
        /// Generation of the group when this was admitted; 0 for a plain consumer.
        generation: u64,
    },
    /// Whole segments below `first` go away, as far as all consumers have passed them.
    Truncate {
        /// Of which partition.
        key: PartitionKey,
        /// First offset that stays.
        first: Offset,
    },
    /// The partition continues empty under another key.
    Purge {
        /// The key that ends.
        key: PartitionKey,
        /// The key that takes its place.
        new_key: PartitionKey,
        /// Metadata operation that purged.
        by: Op,
    },
    /// The partition is gone.
    Delete {
        /// Which one.
        key: PartitionKey,
        /// A metadata operation at or after the one that deleted it.
        by: Op,
    },
    /// Offsets up to `to` may have been handed out and lost; go on from there.
    OffsetJump {
        /// In which partition.
        key: PartitionKey,
        /// Next offset.
        to: Offset,
    },
    /// A session has ended; its exactly-once window goes away.
    SessionExpired {
        /// Which one.
        session: SessionId,
    },
    /// The topic's options have changed.
    Options {
        /// In which partition.
        key: PartitionKey,
        /// From here on.
        retention: Retention,
        /// The metadata operation in hand when this was prepared; an older one than the last
        /// changes nothing.
        by: Op,
    },
    /// A client wants the oldest closed segments away: those that consumers still need go when
    /// they have passed them.
    DeleteSegments {
        /// Of which partition.
        key: PartitionKey,
        /// How many.
        count: u32,
        /// The metadata operation that wished it; each is applied once, in order.
        by: Op,
    },
    /// A consumer group has a new owner for the partition: operations of older generations are
    /// refused from here on.
    Generation {
        /// Of which partition.
        key: PartitionKey,
        /// Of which group.
        group: GroupId,
        /// The lowest generation that is still accepted.
        generation: u64,
    },
    /// A consumer group is gone, with its offset.
    GroupDeleted {
        /// In which partition.
        key: PartitionKey,
        /// Which group.
        group: GroupId,
    },
}

impl Entry {
    /// The partition it is about; the zero key, which no partition has, for a session's end.
    #[must_use]
    pub const fn key(&self) -> PartitionKey {
        match self {
            Self::Create { key, .. }
            | Self::Batch { key, .. }
            | Self::StoreOffset { key, .. }
            | Self::DeleteOffset { key, .. }
            | Self::Truncate { key, .. }
            | Self::Purge { key, .. }
            | Self::Delete { key, .. }
            | Self::OffsetJump { key, .. }
            | Self::Options { key, .. }
            | Self::DeleteSegments { key, .. }
            | Self::Generation { key, .. }
            | Self::GroupDeleted { key, .. } => *key,
            Self::SessionExpired { .. } => PartitionKey::ZERO,
        }
    }
}
