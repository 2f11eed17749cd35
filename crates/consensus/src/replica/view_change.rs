//! Entering a view, collecting logs, starting it, joining it.
//!
//! Crash arguments.
//! - The view record is durable before do-view-change is sent, so after a crash the replica does
//!   not acknowledge in a view it has promised to have left.
//! - The record with log_view and the adopted suffix is durable before start-view is sent (by the
//!   primary) and before anything of the new view is acknowledged (by a backup). A crash before it
//!   restarts in the older log with the promise kept; a crash after it restarts in the new log.
//! - The primary's first own operation is appended behind that record in the same journal: a crash
//!   between the two leaves the record, and the operation was sent to nobody.

use super::{Acknowledged, Replica, Status};
use crate::event::Effect;
use crate::log::Diverged;
use crate::merge::{Ballot, Decision, merge};
use crate::message::{DoViewChange, Message, StartView};
use crate::suffix::LogSuffix;
use borzoi_types::{Body, Duration, Mono, Op, ReplicaId, View};
use bytes::Bytes;

impl Replica {
    /// Enters `view` without its log.
    pub(super) fn enter_view(&mut self, now: Mono, view: View, effects: &mut Vec<Effect>) {
        assert!(view > self.view, "views rise");
        self.leave_for(now, view);
        if !self.try_start_view(now, effects) {
            self.persist(effects);
        }
    }

    /// What leaving for a higher view always does.
    fn leave_for(&mut self, now: Mono, view: View) {
        assert!(view > self.view, "views rise");
        assert!(self.log_view <= self.view, "the log stays that of an older view");
        self.view = view;
        self.status = Status::ViewChange;
        self.counters.view_changes += 1;
        self.suspecting = false;
        self.primary_gone = false;
        self.known_head = Op::ZERO;
        self.learn_goal = None;
        self.own_op = None;
        self.loss_body = None;
        self.announce_due = false;
        self.pending.clear();
        for peer in &mut self.peers {
            peer.support = None;
            peer.dvc = None;
            peer.hinted = None;
        }
        self.resume_view_change(now);
    }

    /// Starts the timers of a view whose log this replica does not have.
    pub(super) fn resume_view_change(&mut self, now: Mono) {
        assert_eq!(self.status, Status::ViewChange, "between views");
        let timeouts = self.options.timeouts;
        let doubled = timeouts.view_change.0 << self.attempts.min(3);
        self.attempts = self.attempts.saturating_add(1);
        let jitter = self.random.below(timeouts.jitter.0);
        self.entered_at = now;
        self.merge_due = true;
        self.announce_due |= self.is_durable();
        assert!(jitter < timeouts.jitter.0.max(1) && self.attempts > 0, "bounded and counted");
        self.timers.clear();
        self.timers.view_change = Some(now.plus(Duration(doubled + jitter)));
        self.timers.retry = Some(now.plus(timeouts.retry));
    }

    fn own_do_view_change(&self) -> DoViewChange {
        DoViewChange {
            view: self.view,
            log_view: self.log_view,
            commit: self.commit_max,
            released: self.log.base().op,
            suffix: self.log.suffix(self.commit_max, false),
            must_learn: self.must_learn,
            attachment: self.attachment.clone(),
        }
    }

    /// What durability makes sayable: once per view and log_view, later repeated by timers.
    pub(super) fn announce(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !self.announce_due || !self.is_durable() {
            return;
        }
        self.announce_due = false;
        if self.status == Status::ViewChange {
            self.repeat_view_change(now, effects);
        } else if self.is_primary() {
            assert_eq!(self.durable_log_view, self.view, "the log is on disk before it is sent");
            let start = self.start_view_message(0);
            self.broadcast(&start, effects);
            let mut op = self.own_op.unwrap_or_else(|| self.log.head_op().next());
            while let Some(prepare) = self.log.slot(op).and_then(|slot| slot.prepare.clone()) {
                let message = self.prepare_message(prepare);
                self.broadcast(&message, effects);
                op = op.next();
            }
        } else {
            self.acknowledged.due = true;
        }
    }

    /// Says again that this view was entered, and sends this replica's log to its primary.
    pub(super) fn repeat_view_change(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        assert_eq!(self.status, Status::ViewChange, "between views");
        if self.suspecting {
            self.ask_for_next_view(effects);
        }
        if self.log_view < self.view {
            let view = self.view;
            self.broadcast(&Message::StartViewChange { view, target: view }, effects);
            if !self.is_primary_of_view() {
                let dvc = Message::DoViewChange(Box::new(self.own_do_view_change()));
                self.send(self.view_primary(), dvc, effects);
            }
        }
        self.timers.retry = Some(now.plus(self.options.timeouts.retry));
    }

    pub(super) fn on_do_view_change(
        &mut self,
        now: Mono,
        from: ReplicaId,
        dvc: Box<DoViewChange>,
        effects: &mut Vec<Effect>,
    ) {
        assert_eq!(dvc.view, self.view, "other views were dealt with before");
        let foreign = dvc.suffix.headers.iter().any(|header| self.is_foreign(header));
        if !self.is_primary_of_view() || foreign {
            self.counters.rejected += 1;
            return;
        }
        if self.status == Status::Normal {
            self.hint(now, from, effects);
            return;
        }
        if self.log_view == self.view {
            return; // This replica led this view before and gave it up.
        }
        assert!(dvc.log_view <= dvc.view, "decoding guarantees it");
        assert!(dvc.suffix.is_chained(), "decoding guarantees it");
        assert!(from != self.options.replica && self.log_view < self.view, "a peer's ballot");
        self.peer_mut(from).dvc = Some(dvc);
        self.merge_due = true;
    }

    /// As primary of a view without log: starts it when the ballots decide one.
    pub(super) fn try_start_view(&mut self, now: Mono, effects: &mut Vec<Effect>) -> bool {
        // An untrusted replica may have started the view it woke up in and forgotten its log.
        let candidate = self.status == Status::ViewChange
            && self.is_primary_of_view()
            && self.log_view < self.view
            && (self.view > self.boot_view || !self.must_learn);
        if !candidate || !std::mem::take(&mut self.merge_due) {
            return false;
        }
        assert!(self.own_op.is_none(), "a view that is not in force has no operation");
        let own = self.own_do_view_change();
        assert_eq!(own.view, self.view, "one's own ballot is for this view");
        let mut ballots = vec![Ballot { replica: self.options.replica, dvc: &own }];
        ballots.extend(self.others().filter_map(|replica| {
            let dvc = self.peer(replica).dvc.as_deref()?;
            Some(Ballot { replica, dvc })
        }));
        let count = self.options.replica_count;
        let decision = merge(&ballots, count, self.quorums, self.options.accept_loss);
        let Decision::Start { suffix, commit, source, discarded, loss } = decision else {
            return false;
        };
        assert!(ballots.len() <= self.peers.len(), "one ballot each");
        let loss_body = loss.then(|| loss_body(&ballots));
        self.start_view(now, &suffix, commit, source, effects);
        if self.status == Status::Normal {
            self.loss_body = loss_body;
            self.counters.loss_epochs += u64::from(loss);
            self.counters.discarded += discarded;
        }
        self.status == Status::Normal
    }

    fn start_view(
        &mut self,
        now: Mono,
        suffix: &LogSuffix,
        commit: Op,
        source: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        if !self.within_reach(suffix, source, effects) {
            return;
        }
        match self.log.adopt(suffix) {
            Ok(true) => {}
            Ok(false) => return,
            Err(Diverged) => return self.on_diverged(source, effects),
        }
        self.take_log_of_view(now, commit);
        self.counters.views_started += 1;
        assert_eq!(self.log.head(), suffix.head, "the log is the one decided");
        assert!(self.commit_max >= commit, "what is committed stays so");
        for peer in &mut self.peers {
            peer.acked = Op::ZERO;
            peer.commit_echoed = Op::ZERO;
            peer.round_echoed = 0;
            peer.dvc = None;
            // Others are given the time to notice this primary.
            peer.heard = peer.heard.max(now);
        }
        self.inflight_bytes = 0;
        self.learn_goal = self.must_learn.then(|| self.log.head_op());
        self.repair.prefer(source);
        assert!(self.is_primary() && self.own_op.is_none(), "a fresh primary");
        self.persist(effects);
    }

    /// What adopting the log of `self.view` always does.
    fn take_log_of_view(&mut self, now: Mono, commit: Op) {
        assert!(self.log_view < self.view, "a log is adopted once per view");
        self.log_view = self.view;
        self.status = Status::Normal;
        self.commit_max = self.commit_max.max(commit);
        self.suspecting = false;
        self.attempts = 0;
        self.acknowledged = Acknowledged::default();
        self.timers.clear();
        self.repair.look(now);
        assert!(self.commit_max >= self.log.applied(), "committed, then applied");
    }

    pub(super) fn start_view_message(&self, nonce: u64) -> Message {
        assert_eq!(self.status, Status::Normal, "only a view in force has a log");
        Message::StartView(Box::new(StartView {
            view: self.view,
            nonce,
            commit: self.commit_max,
            released: self.log.base().op,
            suffix: self.log.suffix(self.commit_max, false),
        }))
    }

    pub(super) fn on_request_start_view(
        &self,
        from: ReplicaId,
        nonce: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.status == Status::Normal && from != self.view_primary() {
            self.send(from, self.start_view_message(nonce), effects);
        }
    }

    pub(super) fn on_start_view(
        &mut self,
        now: Mono,
        from: ReplicaId,
        start: &StartView,
        effects: &mut Vec<Effect>,
    ) {
        assert!(start.view >= self.view, "older views were dealt with before");
        let foreign = start
            .suffix
            .headers
            .iter()
            .any(|header| self.is_foreign(header) || header.view > start.view);
        let primary = self.options.primary_of(start.view);
        if foreign || primary == self.options.replica {
            self.counters.rejected += 1;
            return;
        }
        if start.view > self.view {
            self.leave_for(now, start.view);
            if !self.join_view(now, from, start, effects) && !self.diverged {
                self.persist(effects);
            }
        } else if self.status == Status::Normal {
            self.extend_view(now, from, start, effects);
        } else if self.log_view < self.view {
            self.join_view(now, from, start, effects);
        }
    }

    /// Takes the log of a view that this replica has entered without one.
    fn join_view(
        &mut self,
        now: Mono,
        from: ReplicaId,
        start: &StartView,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if !self.within_reach(&start.suffix, from, effects) {
            return false;
        }
        match self.log.adopt(&start.suffix) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(Diverged) => {
                self.on_diverged(from, effects);
                return false;
            }
        }
        self.take_log_of_view(now, start.commit);
        let primary = self.view_primary();
        self.peer_mut(primary).heard = now;
        self.repair.prefer(from);
        self.note_learning(from, start);
        assert_eq!(self.log.head(), start.suffix.head, "the log is the one sent");
        assert_eq!(self.log_view, start.view, "of the view that was sent");
        self.persist(effects);
        self.drain_pending(effects);
        assert!(self.is_backup(), "a primary starts its view itself");
        true
    }

    /// Whether this log can be extended to `suffix`; a replica that is too far behind takes a
    /// checkpoint first.
    fn within_reach(
        &mut self,
        suffix: &LogSuffix,
        from: ReplicaId,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let reaches = self.log.reaches(suffix.head.op);
        if !reaches {
            self.ask_for_transfer(from, self.log.applied().next(), effects);
        }
        reaches
    }

    /// The same view's log, as far as the sender has it: logs of one view only grow.
    fn extend_view(
        &mut self,
        now: Mono,
        from: ReplicaId,
        start: &StartView,
        effects: &mut Vec<Effect>,
    ) {
        assert!(self.is_backup(), "a primary asks nobody for its log");
        if !self.within_reach(&start.suffix, from, effects) {
            return;
        }
        if start.suffix.head.op > self.log.head_op() {
            match self.log.adopt(&start.suffix) {
                Ok(extended) => assert!(extended, "a longer log is not old"),
                Err(Diverged) => return self.on_diverged(from, effects),
            }
            self.repair.prefer(from);
            self.repair.look(now);
        }
        self.commit_max = self.commit_max.max(start.commit);
        self.note_learning(from, start);
        self.drain_pending(effects);
        if from == self.view_primary() {
            self.suspecting &= self.primary_gone;
            self.known_head = self.known_head.max(start.suffix.head.op);
            self.acknowledged.due = true;
        }
    }

    /// An untrusted replica learns from the primary of its view: from an answer to a question it
    /// asked in this life, or from a view that began after it had acknowledged anything. An older
    /// answer might lack what it acknowledged and lost.
    fn note_learning(&mut self, from: ReplicaId, start: &StartView) {
        let fresh = start.nonce == self.nonce || start.view > self.boot_view;
        if self.must_learn && from == self.view_primary() && fresh && self.learn_goal.is_none() {
            self.learn_goal = Some(start.suffix.head.op);
        }
    }

    /// Clears must-learn once everything up to the goal is held.
    pub(super) fn finish_learning(&mut self, effects: &mut Vec<Effect>) {
        let Some(goal) = self.learn_goal else { return };
        let held = self.log.is_connected() && goal <= self.log.held_to();
        if !self.must_learn || self.status != Status::Normal || !held || !self.is_durable() {
            return;
        }
        assert!(self.view >= self.boot_view, "learned from a view that is not older");
        assert!(self.log.held_to() >= goal, "learned means held");
        assert!(self.log.is_connected(), "and without a gap");
        self.must_learn = false;
        self.learn_goal = None;
        self.persist(effects);
    }

    /// This replica has applied what the group's log does not contain.
    pub(super) fn on_diverged(&mut self, from: ReplicaId, effects: &mut Vec<Effect>) {
        assert!(!self.is_solo(), "a solo replica has nobody to differ from");
        self.diverged = true;
        self.status = Status::ViewChange;
        self.must_learn = true;
        self.own_op = None;
        self.timers.clear();
        self.ask_for_transfer(from, self.log.applied(), effects);
    }
}

/// Body of a loss epoch: count u8, then per replica its id u8, length u32 and attachment.
fn loss_body(ballots: &[Ballot<'_>]) -> Body {
    let mut bytes = vec![u8::try_from(ballots.len()).expect("at most seven")];
    for ballot in ballots {
        let attachment: &Bytes = &ballot.dvc.attachment;
        let len = u32::try_from(attachment.len()).expect("attachments are bounded");
        bytes.push(ballot.replica.get());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(attachment);
    }
    assert!(!bytes.is_empty(), "the count is always there");
    Body::from(bytes)
}
