//! What a replica can be asked. Nothing here changes it.

use super::{Counters, Replica};
use crate::event::Role;
use borzoi_types::{Op, ReplicaId, View};

impl Replica {
    /// Members of the group.
    #[must_use]
    pub const fn replica_count(&self) -> u8 {
        self.options.replica_count
    }

    /// The replica that leads view 0.
    #[must_use]
    pub const fn preferred_primary(&self) -> ReplicaId {
        self.options.preferred_primary
    }

    /// Whether `peer` holds everything this primary has prepared and knows what is committed.
    #[must_use]
    pub fn has_caught_up(&self, peer: ReplicaId) -> bool {
        let state = self.peer(peer);
        let all = state.acked == self.head() && state.commit_echoed == self.commit_known();
        self.is_serving_primary() && all
    }

    /// The part this replica plays.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The highest view entered.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// The view whose log this replica has.
    #[must_use]
    pub const fn log_view(&self) -> View {
        self.log_view
    }

    /// The last operation given to [`Effect::Commit`], or the checkpoint.
    #[must_use]
    pub const fn commit(&self) -> Op {
        self.log.applied()
    }

    /// The highest operation known to be committed; above [`Self::commit`] when bodies are missing.
    #[must_use]
    pub const fn commit_known(&self) -> Op {
        self.commit_max
    }

    /// The last operation of the log.
    #[must_use]
    pub fn head(&self) -> Op {
        self.log.head_op()
    }

    /// Every operation up to this one is held at the log's level.
    #[must_use]
    pub const fn held(&self) -> Op {
        self.log.held_to()
    }

    /// Operations up to this one are in the checkpoint only.
    #[must_use]
    pub const fn released(&self) -> Op {
        self.log.base().op
    }

    /// The identity of `op`, as far as it is certain here.
    #[must_use]
    pub fn checksum_at(&self, op: Op) -> Option<u128> {
        self.log.checksum_at(op)
    }

    /// Whether this replica may have lost what it acknowledged and has not learned it again.
    #[must_use]
    pub const fn must_learn(&self) -> bool {
        self.must_learn
    }

    /// Whether this replica is the primary and admits operations.
    #[must_use]
    pub const fn is_serving_primary(&self) -> bool {
        matches!(self.role, Role::Primary { may_serve: true, .. })
    }

    /// The primary, if one is known.
    #[must_use]
    pub const fn primary(&self) -> Option<ReplicaId> {
        match self.role {
            Role::Primary { .. } => Some(self.options.replica),
            Role::Backup { primary, .. } => Some(primary),
            Role::ViewChange { .. } => None,
        }
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }
}
