//! What a shard is told at boot and never changes while it runs.

use borzoi_storage::sealing::Keyring;
use borzoi_types::{ClusterId, Duration, LogId, ReplicaId, ShardId};

/// Lanes of the cluster, fixed when it was formatted: numbers 1..=persisted have level
/// `persisted`, the next `replicated` ones level `replicated`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lanes {
    /// How many lanes of level `persisted`.
    pub persisted: u32,
    /// How many of level `replicated`.
    pub replicated: u32,
}

impl Lanes {
    /// Both kinds together.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.persisted + self.replicated
    }

    /// The level of a log; metadata is always `persisted`.
    #[must_use]
    pub fn durability(&self, log: LogId) -> borzoi_types::Durability {
        assert!(log.0 <= self.count(), "log {log} does not exist");
        if log.0 <= self.persisted {
            borzoi_types::Durability::Persisted
        } else {
            borzoi_types::Durability::Replicated
        }
    }

    /// All logs, metadata first.
    pub fn logs(&self) -> impl Iterator<Item = LogId> + use<> {
        (0..=self.count()).map(LogId)
    }
}

/// Configuration of one shard.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Cluster incarnation from the superblock.
    pub cluster: ClusterId,
    /// This node.
    pub replica: ReplicaId,
    /// Nodes of the cluster.
    pub replica_count: u8,
    /// This shard.
    pub shard: ShardId,
    /// Shards of this node.
    pub shards: u16,
    /// Journal generation of this start: frames carry it, so that none of an earlier life counts.
    pub generation: u64,
    /// Lanes of the cluster.
    pub lanes: Lanes,
    /// Offsets that a `replicated` lane reserves ahead per partition, in
    /// 1..=[`borzoi_types::limits::OFFSET_RESERVATION_LEASE_MAX`].
    pub offset_reservation_lease: u64,
    /// Longest time between two checkpoints of a log that changed.
    pub checkpoint_interval: Duration,
    /// How long a request waits for its partition to be created before it is answered.
    pub park_age_max: Duration,
    /// Longest time from one removal of old segments to the next; none: nothing is removed by age
    /// and size.
    pub retention_interval: Option<Duration>,
    /// Keys for batches at rest.
    pub keys: Keyring,
}
