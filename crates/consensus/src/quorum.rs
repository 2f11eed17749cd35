//! Sizes of the quorums, for groups of one to seven.
//!
//! Invariants, proved exhaustively in `tests/quorums_intersect_for_every_group_size.rs`:
//! every replication quorum meets every view-change quorum (a new primary sees each committed
//! operation), every replication quorum meets every nack quorum (what is discarded was not
//! committed), and what remains outside a view-change quorum cannot commit in the old view.

/// Quorum sizes of one group (architecture, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quorums {
    /// Replicas that hold an operation before it commits.
    pub replication: u8,
    /// Replicas whose logs a new primary has seen.
    pub view_change: u8,
    /// Replicas that never acknowledged an operation before it may be discarded.
    pub nack: u8,
}

impl Quorums {
    /// The quorums of a group of `replica_count` members.
    ///
    /// Replication is `min(ceil(n / 2), 3)`; view change and nack are `n - q + 1`. A pair
    /// replicates to both, because one acknowledgement would survive nothing; then one nack
    /// suffices, and both take part in a view change.
    #[must_use]
    pub const fn of(replica_count: u8) -> Self {
        assert!(replica_count >= 1 && replica_count <= 7, "groups have one to seven members");
        if replica_count == 2 {
            return Self { replication: 2, view_change: 2, nack: 1 };
        }
        let half = replica_count.div_ceil(2);
        let replication = if half > 3 { 3 } else { half };
        let others = replica_count - replication + 1;
        assert!(replication + others > replica_count, "quorums meet");
        Self { replication, view_change: others, nack: others }
    }
}
