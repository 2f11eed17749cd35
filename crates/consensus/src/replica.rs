//! The replica.

use crate::event::{Effect, Event, Refusal, Role};
use crate::message::Message;
use crate::options::Options;
use crate::settle::Settled;
use borzoi_types::{Body, Micros, Mono, Op, ReplicaId, View};
use bytes::Bytes;

/// What a replica counts, for metrics and tests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Views entered.
    pub view_changes: u64,
    /// Messages dropped because they contradict what is known or belong to another log.
    pub rejected: u64,
}

/// One replica of one log.
#[derive(Debug)]
pub struct Replica {
    options: Options,
    role: Role,
}

impl Replica {
    /// Starts from what was recovered. Effects wanted at once are appended to `effects`.
    pub fn start(
        options: Options,
        recovered: Settled,
        now: Mono,
        random_seed: u64,
        effects: &mut Vec<Effect>,
    ) -> Self {
        options.check();
        let _ = (now, random_seed, effects);
        let view = recovered.view_state.view;
        Self { options, role: Role::ViewChange { view } }
    }

    /// Takes one event.
    pub fn handle(&mut self, now: Mono, event: Event, effects: &mut Vec<Effect>) {
        let _ = (now, event, effects);
    }

    /// Prepares one operation.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn propose(
        &mut self,
        now: Mono,
        timestamp: Micros,
        body: Body,
        effects: &mut Vec<Effect>,
    ) -> Result<Op, Refusal> {
        let _ = (now, timestamp, effects);
        self.can_propose(body.len())?;
        Ok(Op::ZERO)
    }

    /// Whether [`Self::propose`] would accept a body of `body_len` bytes now.
    ///
    /// # Errors
    /// The [`Refusal`] it would give.
    pub fn can_propose(&self, body_len: usize) -> Result<(), Refusal> {
        let _ = body_len;
        Err(Refusal::NotServing)
    }

    /// When [`Event::Tick`] is wanted; a solo replica at rest wants none.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        None
    }

    /// What the link's heartbeat to `peer` should carry of this log; `None` when the peer has
    /// echoed everything.
    #[must_use]
    pub fn heartbeat_for(&self, peer: ReplicaId) -> Option<Message> {
        let _ = peer;
        None
    }

    /// Opaque bytes for this replica's next do-view-change; a loss epoch's body collects them.
    pub fn set_attachment(&mut self, attachment: Bytes) {
        let _ = attachment;
    }

    /// The part this replica plays.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The highest view entered.
    #[must_use]
    pub const fn view(&self) -> View {
        View::ZERO
    }

    /// The last operation given to [`Effect::Commit`], or the checkpoint.
    #[must_use]
    pub const fn commit(&self) -> Op {
        Op::ZERO
    }

    /// The last operation of the log.
    #[must_use]
    pub const fn head(&self) -> Op {
        Op::ZERO
    }

    /// Whether this replica is the primary and admits operations.
    #[must_use]
    pub const fn is_serving_primary(&self) -> bool {
        matches!(self.role, Role::Primary { may_serve: true, .. })
    }

    /// The primary, if one is known.
    #[must_use]
    pub fn primary(&self) -> Option<ReplicaId> {
        match self.role {
            Role::Primary { .. } => Some(self.options.replica),
            Role::Backup { primary, .. } => Some(primary),
            Role::ViewChange { .. } => None,
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
