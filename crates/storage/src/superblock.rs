//! The superblock: who this node is and which journal generation is live.
//!
//! Four copies, each in its own sector, written one after the other with a sync between the first
//! and the second half; see `docs/internals/data-files.md`.

use borzoi_types::{ClusterId, LogId, ReplicaId};
use std::collections::BTreeSet;

/// Content of the superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Rises with every write.
    pub sequence: u64,
    /// Which cluster incarnation this node belongs to.
    pub cluster: ClusterId,
    /// Which node of the roster this is.
    pub replica: ReplicaId,
    /// Size of the roster; 1 for a solo node.
    pub replica_count: u8,
    /// Lanes 1..=P have level `persisted`.
    pub lanes_persisted: u16,
    /// The following R lanes have level `replicated`.
    pub lanes_replicated: u16,
    /// The live journal generation; 0 before the first start.
    pub generation: u64,
    /// Shards that wrote the live generation.
    pub shards: u16,
    /// Boot in which the live generation began.
    pub boot_id: Option<[u8; 16]>,
    /// Device of the data directory when the live generation began.
    pub device: u64,
    /// Inode of the data directory when the live generation began.
    pub inode: u64,
    /// Whether a write or flush failed in the live generation: its unsynced tail is not trusted.
    pub write_failed: bool,
    /// Logs that must learn from a peer before they may vote with what they hold.
    pub must_learn: BTreeSet<LogId>,
}
