//! Normal operation: propose, prepare, acknowledge, commit, apply.
//!
//! Star: the primary sends each prepare to all backups beside its own journal append. A backup
//! acknowledges cumulatively what its journal holds without a gap. An operation commits when a
//! replication quorum has acknowledged it *in this view*; the primary counts itself only for what
//! its own journal holds, so a stuck disk costs it its vote and not the group's progress.

use super::{Replica, Status};
use crate::event::{Effect, Refusal};
use crate::header::{Anchor, Prepare, PrepareHeader, PrepareKind};
use crate::message::Message;
use crate::suffix::SUFFIX_OPS_MAX;
use borzoi_types::{Body, Micros, Mono, Op, ReplicaId, checksum, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prepares that wait for a gap to close: what a primary can have in flight.
const PENDING_OPS_MAX: usize = SUFFIX_OPS_MAX;
/// Their bytes: one pipeline.
const PENDING_BYTES_MAX: usize = limits::PIPELINE_BYTES_MAX;

/// Prepares of the current view that arrived ahead of the log's head.
#[derive(Debug, Default)]
pub(super) struct Pending {
    prepares: BTreeMap<Op, Arc<Prepare>>,
    bytes: usize,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.prepares.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.prepares.clear();
        self.bytes = 0;
    }

    /// Keeps the lowest: they are needed first. Returns whether `prepare` was kept.
    fn insert(&mut self, prepare: Arc<Prepare>) -> bool {
        let op = prepare.header.op;
        if self.prepares.contains_key(&op) {
            return true;
        }
        self.bytes += prepare.size();
        let before = self.prepares.insert(op, prepare);
        assert!(before.is_none(), "one prepare per op");
        let full = |pending: &Self| {
            pending.prepares.len() > PENDING_OPS_MAX || pending.bytes > PENDING_BYTES_MAX
        };
        while full(self) && self.prepares.len() > 1 {
            let (_, dropped) = self.prepares.pop_last().expect("more than one");
            self.bytes -= dropped.size();
        }
        assert!(!self.prepares.is_empty(), "one prepare always fits");
        self.prepares.contains_key(&op)
    }

    /// Bounded, counted, each at its op.
    pub(super) fn check(&self) {
        assert!(self.prepares.len() <= PENDING_OPS_MAX, "the buffer is bounded in operations");
        let fits = self.bytes <= PENDING_BYTES_MAX || self.prepares.len() == 1;
        assert!(fits, "the buffer is bounded in bytes");
        assert_eq!(self.prepares.is_empty(), self.bytes == 0, "bytes are counted in and out");
        if let Some((op, prepare)) = self.prepares.first_key_value() {
            assert_eq!(*op, prepare.header.op, "a prepare lies at its op");
        }
    }

    /// Takes the lowest if it is at or below `op`.
    fn take_up_to(&mut self, op: Op) -> Option<Arc<Prepare>> {
        let first = self.prepares.first_entry().filter(|entry| *entry.key() <= op)?;
        let prepare = first.remove();
        assert!(self.bytes >= prepare.size(), "bytes are counted in and out");
        self.bytes -= prepare.size();
        assert!(prepare.header.op <= op, "as asked");
        Some(prepare)
    }
}

/// What the primary of this view has been told, and what it is to be told.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    pub(super) due: bool,
    pub(super) held: Option<Op>,
    pub(super) round: u64,
}

impl Replica {
    /// Prepares one operation. `timestamp` is raised to its predecessor's if it lies below.
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
        self.can_propose(body.len())?;
        let before = self.log.head_op();
        let op = self.prepare(PrepareKind::Normal, timestamp, body, effects);
        assert!(op == before.next() && self.log.head_op() == op, "one op further");
        self.rearm(now);
        self.check();
        Ok(op)
    }

    /// Whether [`Self::propose`] would accept a body of `body_len` bytes now.
    ///
    /// # Errors
    /// The [`Refusal`] it would give.
    pub fn can_propose(&self, body_len: usize) -> Result<(), Refusal> {
        if body_len > limits::PREPARE_BODY_BYTES_MAX {
            return Err(Refusal::TooLarge { len: body_len });
        }
        if let Some(refusal) = self.role_refusal() {
            return Err(refusal);
        }
        // Own appends still on their way count too: a stuck journal fills the pipeline.
        let settled = self.log.applied().min(self.log.held_to());
        assert!(settled <= self.log.head_op(), "both lie in the log");
        let inflight = self.log.head_op().get() - settled.get();
        if inflight >= limits::PIPELINE_OPS_MAX as u64 {
            return Err(Refusal::PipelineFull);
        }
        if !self.log.reaches(self.log.head_op().next()) {
            return Err(Refusal::PipelineFull);
        }
        let bytes = self.inflight_bytes + body_len;
        if self.inflight_bytes > 0 && bytes > limits::PIPELINE_BYTES_MAX {
            return Err(Refusal::PipelineFull);
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        kind: PrepareKind,
        timestamp: Micros,
        body: Body,
        effects: &mut Vec<Effect>,
    ) -> Op {
        assert!(self.is_primary(), "only a primary prepares");
        let head = self.log.head();
        self.timestamp = self.timestamp.max(timestamp);
        assert!(head.op >= self.commit_max, "a primary has what is committed");
        assert!(self.fits_suffix(head.op.next()), "the uncommitted suffix is bounded");
        let header = PrepareHeader {
            checksum: 0,
            body_checksum: checksum::xxh3_128_body(&body),
            parent: head.checksum,
            cluster: self.options.cluster,
            log: self.options.log,
            view: self.view,
            op: head.op.next(),
            commit: self.commit_max,
            timestamp: self.timestamp,
            kind,
            body_len: u32::try_from(body.len()).expect("bodies are bounded below u32"),
            config_epoch: 0,
        }
        .sealed();
        let prepare = Arc::new(Prepare { header, body });
        assert!(header.follows(head), "the chain goes on");
        assert!(header.commit < header.op, "prepared, then committed");
        self.inflight_bytes += prepare.size();
        self.append(Arc::clone(&prepare), effects);
        let message = self.prepare_message(prepare);
        self.broadcast(&message, effects);
        header.op
    }

    pub(super) const fn prepare_message(&self, prepare: Arc<Prepare>) -> Message {
        Message::Prepare { view: self.view, commit: self.commit_max, round: self.round, prepare }
    }

    /// A new primary's first own operation, as soon as the suffix has room for it.
    pub(super) fn append_own_op(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_primary() || self.own_op.is_some() {
            return;
        }
        let uncommitted = self.log.head_op().get() - self.commit_max.min(self.log.head_op()).get();
        if uncommitted >= SUFFIX_OPS_MAX as u64 {
            return;
        }
        let (kind, body) = match self.loss_body.take() {
            Some(body) => (PrepareKind::LossEpoch, body),
            None => (PrepareKind::ViewStart, Body::empty()),
        };
        assert!(self.loss_body.is_none(), "a loss is declared once");
        let op = self.prepare(kind, self.timestamp, body, effects);
        assert_eq!(op, self.log.head_op(), "the view begins with its own operation");
        self.own_op = Some(op);
    }

    fn append(&mut self, prepare: Arc<Prepare>, effects: &mut Vec<Effect>) {
        self.timestamp = self.timestamp.max(prepare.header.timestamp);
        self.log.append(Arc::clone(&prepare));
        assert_eq!(self.log.head_op(), prepare.header.op, "appended at the head");
        effects.push(Effect::Append(prepare));
    }

    pub(super) fn is_foreign(&self, header: &PrepareHeader) -> bool {
        header.cluster != self.options.cluster || header.log != self.options.log
    }

    pub(super) fn on_prepare(
        &mut self,
        from: ReplicaId,
        commit: Op,
        round: u64,
        prepare: Arc<Prepare>,
        effects: &mut Vec<Effect>,
    ) {
        let header = prepare.header;
        let from_primary = from == self.view_primary();
        if self.is_foreign(&header) || header.view > self.view || !from_primary {
            self.counters.rejected += 1;
            return;
        }
        self.known_head = self.known_head.max(header.op);
        if self.status != Status::Normal {
            // The log of this view has not arrived yet; its first prepares have.
            self.buffer(prepare);
            return;
        }
        self.hear_primary(commit, round);
        let head = self.log.head();
        if header.op <= head.op {
            self.accept_known(&prepare, effects);
        } else if header.follows(head) && self.fits_suffix(header.op) {
            self.append(prepare, effects);
            self.drain_pending(effects);
        } else if header.op == head.op.next() {
            self.counters.rejected += 1;
        } else {
            self.buffer(prepare);
        }
    }

    /// A sign of life from the primary of this view, with its commit and read round.
    fn hear_primary(&mut self, commit: Op, round: u64) {
        assert!(self.is_backup(), "primaries speak to backups");
        self.suspecting &= self.primary_gone;
        assert_eq!(self.log_view, self.view, "in the log of its view");
        self.commit_max = self.commit_max.max(commit);
        self.acknowledged.round = self.acknowledged.round.max(round);
    }

    fn fits_suffix(&self, op: Op) -> bool {
        if !self.log.reaches(op) {
            return false;
        }
        op.get().saturating_sub(self.commit_max.get()) <= SUFFIX_OPS_MAX as u64
    }

    fn buffer(&mut self, prepare: Arc<Prepare>) {
        assert!(!self.is_primary(), "a primary prepares, it is not prepared to");
        self.counters.buffered += 1;
        self.pending.check();
        if !self.pending.insert(prepare) {
            self.counters.buffer_overflows += 1;
        }
    }

    fn accept_known(&mut self, prepare: &Arc<Prepare>, effects: &mut Vec<Effect>) {
        let anchor = prepare.header.anchor();
        if self.log.find(anchor).is_none() {
            // Released, or in a gap whose headers are still being learned.
            self.acknowledged.due = true;
            return;
        }
        if self.log.fill(prepare) {
            assert!(self.log.find(anchor).is_some_and(|slot| slot.writing), "on its way");
            effects.push(Effect::Append(Arc::clone(prepare)));
        }
        self.acknowledged.due = true;
    }

    /// Moves buffered prepares into the log as far as they fit.
    pub(super) fn drain_pending(&mut self, effects: &mut Vec<Effect>) {
        while let Some(prepare) = self.pending.take_up_to(self.log.head_op().next()) {
            assert!(prepare.header.op <= self.log.head_op().next(), "taken in order");
            assert!(!self.is_foreign(&prepare.header), "checked when it was buffered");
            if prepare.header.follows(self.log.head()) {
                if self.fits_suffix(prepare.header.op) {
                    self.append(prepare, effects);
                }
            } else if self.log.fill(&prepare) {
                effects.push(Effect::Append(prepare));
            }
        }
    }

    pub(super) fn on_commit(&mut self, from: ReplicaId, commit: Anchor, head: Op, round: u64) {
        if from != self.view_primary() || commit.op > head {
            self.counters.rejected += 1;
            return;
        }
        self.known_head = self.known_head.max(head);
        if !self.is_backup() {
            return;
        }
        let known = self.log.checksum_at(commit.op);
        if known.is_some_and(|checksum| checksum != commit.checksum) {
            self.counters.rejected += 1;
            return;
        }
        self.hear_primary(commit.op, round);
        self.acknowledged.due = true;
    }

    pub(super) fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        let held = self.log.held_to();
        let moved = self.acknowledged.held.is_none_or(|told| told < held);
        if !self.is_backup() || !self.is_durable() || !(moved || self.acknowledged.due) {
            return;
        }
        let checksum = self.log.checksum_at(held).expect("what is held is certain");
        assert_eq!(self.durable_log_view, self.view, "acknowledged in a log that is on disk");
        assert!(held <= self.log.head_op(), "held lies in the log");
        assert!(!self.is_primary() && held >= self.log.base().op, "a backup's own log");
        self.acknowledged.held = Some(held);
        self.acknowledged.due = false;
        let message = Message::PrepareOk {
            view: self.view,
            held: Anchor { op: held, checksum },
            commit: self.commit_max,
            round: self.acknowledged.round,
        };
        self.send(self.view_primary(), message, effects);
    }

    pub(super) fn on_prepare_ok(&mut self, from: ReplicaId, held: Anchor, commit: Op, round: u64) {
        if !self.is_primary() {
            return;
        }
        let known = self.log.checksum_at(held.op);
        let differs = known.is_some_and(|checksum| checksum != held.checksum);
        if differs || held.op > self.log.head_op() || commit > self.commit_max {
            self.counters.rejected += 1;
            return;
        }
        assert!(self.log_view == self.view, "acknowledgements count in this view only");
        let peer = self.peer_mut(from);
        peer.acked = peer.acked.max(held.op);
        peer.commit_echoed = peer.commit_echoed.max(commit);
        peer.round_echoed = peer.round_echoed.max(round);
    }

    /// As primary: raises the commit to what a replication quorum holds.
    pub(super) fn count_acknowledgements(&mut self) {
        if !self.is_primary() || !self.is_durable() {
            return;
        }
        // On the hot path: no allocation.
        let mut all = [Op::ZERO; limits::REPLICAS_MAX];
        let held = &mut all[..self.peers.len()];
        for (slot, peer) in held.iter_mut().zip(&self.peers) {
            *slot = peer.acked;
        }
        held[usize::from(self.options.replica.get())] = self.log.held_to();
        held.sort_unstable_by(|a, b| b.cmp(a));
        assert!(held.first() >= held.last(), "highest first");
        let by_quorum = held[usize::from(self.quorums.replication) - 1];
        assert!(by_quorum <= self.log.head_op(), "nobody holds what was not prepared");
        let holders = held.iter().filter(|op| **op >= by_quorum).count();
        assert!(holders >= usize::from(self.quorums.replication), "committed by a quorum");
        self.commit_max = self.commit_max.max(by_quorum);
    }

    pub(super) fn apply(&mut self, effects: &mut Vec<Effect>) {
        let before = self.log.applied();
        while let Some(prepare) = self.log.apply_next(self.commit_max) {
            self.inflight_bytes = self.inflight_bytes.saturating_sub(prepare.size());
            effects.push(Effect::Commit(prepare));
        }
        assert!(self.log.applied() >= before, "commit never goes back");
        assert!(self.log.applied() <= self.commit_max, "committed, then applied");
        self.log.trim(!self.is_solo());
    }

    /// What the link's heartbeat to `peer` should carry of this log; `None` when the peer has
    /// echoed everything. As primary: where the log stands. Otherwise: that this replica has
    /// moved on, to a peer that may still wait for it in an older view.
    #[must_use]
    pub fn heartbeat_for(&self, peer: ReplicaId) -> Option<Message> {
        assert!(peer.get() < self.options.replica_count, "a member of the group");
        if peer == self.options.replica || !self.is_durable() || self.status != Status::Normal {
            return None;
        }
        let state = self.peer(peer);
        if !self.is_primary() {
            let behind = state.view_seen.is_none_or(|seen| seen < self.view);
            let view = self.view;
            return behind.then_some(Message::StartViewChange { view, target: view });
        }
        let log = state.acked < self.log.head_op() || state.commit_echoed < self.commit_max;
        (log || state.round_echoed < self.round).then(|| self.commit_message())
    }

    pub(super) fn commit_message(&self) -> Message {
        let certain = self.log.checksum_at(self.commit_max);
        let applied = self.log.applied();
        let commit = match certain {
            Some(checksum) => Anchor { op: self.commit_max, checksum },
            None => Anchor {
                op: applied,
                checksum: self.log.checksum_at(applied).expect("applied operations are certain"),
            },
        };
        assert!(commit.op <= self.log.head_op(), "a primary commits what it has prepared");
        let head = self.log.head_op();
        Message::Commit { view: self.view, commit, head, round: self.round }
    }

    /// Begins a read round: reads that arrived before this call may be answered once
    /// [`Self::confirmed_round`] has reached the number returned (architecture, section 10).
    pub const fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// The highest round that a replication quorum has echoed since this replica began it, as
    /// primary of this view; `None` when it does not lead.
    #[must_use]
    pub fn confirmed_round(&self) -> Option<u64> {
        if !self.is_serving_primary() {
            return None;
        }
        let mut echoed: Vec<u64> = self.others().map(|peer| self.peer(peer).round_echoed).collect();
        echoed.push(self.round);
        assert_eq!(echoed.len(), self.peers.len(), "one of each member");
        echoed.sort_unstable_by(|a, b| b.cmp(a));
        echoed.get(usize::from(self.quorums.replication) - 1).copied()
    }
}
