//! Suspecting a primary, and agreeing to leave its view.
//!
//! Probing. A replica that suspects the primary only *asks* for the next view; it stays in its own
//! view, keeps accepting and acknowledging prepares, and enters the next view when a view-change
//! quorum asks for it too. Others join a probe when they themselves have heard nothing of the
//! primary for a while. So a replica that is cut off, from one peer or from all, raises no view and
//! disturbs nobody, neither while it is cut off nor when it returns; and links that work one way
//! only cannot make two candidates depose each other for ever.
//!
//! A primary that gives up (no quorum heard, journal stuck, clean stop, restart) says so by asking
//! for the next view itself; that counts as a reason for every backup at once.

use super::{Peer, Replica, Status};
use crate::event::Effect;
use crate::message::Message;
use borzoi_types::{Mono, ReplicaId};

impl Replica {
    pub(super) fn on_peer_heard(&mut self, peer: ReplicaId, at: Mono) {
        assert!(peer.get() < self.options.replica_count, "a member of the group");
        if peer == self.options.replica {
            return;
        }
        let state = self.peer_mut(peer);
        state.heard = state.heard.max(at);
        let speaks = state.heard == at;
        if speaks && self.is_backup() && peer == self.view_primary() && !self.primary_gone {
            let since = self.timers.suspected_at;
            self.suspecting &= since.is_some_and(|suspected| at <= suspected);
        }
    }

    /// Begins to ask for the next view.
    pub(super) fn suspect(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        assert!(!self.is_solo(), "a solo replica suspects nobody");
        assert!(!self.is_primary(), "a primary abandons its view first");
        self.suspecting = true;
        self.timers.suspected_at = Some(now);
        self.ask_for_next_view(effects);
        self.timers.retry = Some(now.plus(self.options.timeouts.retry));
        self.enter_if_supported(now, effects);
    }

    pub(super) fn ask_for_next_view(&self, effects: &mut Vec<Effect>) {
        assert!(self.suspecting, "only a suspicion is a reason to ask");
        let message = Message::StartViewChange { view: self.view, target: self.view.next() };
        self.broadcast(&message, effects);
    }

    /// Gives up the lead of the current view for good: from now on this replica asks for the next.
    pub(super) fn abandon_view(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        assert!(self.is_primary_of_view() && !self.is_solo(), "only a lead can be given up");
        assert_eq!(self.log_view, self.view, "its log stays the log of the view");
        self.status = Status::ViewChange;
        self.own_op = None;
        self.loss_body = None;
        self.learn_goal = None;
        self.entered_at = now;
        self.announce_due = false;
        self.counters.step_downs += 1;
        self.timers.clear();
        assert!(!self.is_primary(), "it leads no more");
        self.suspect(now, effects);
    }

    pub(super) fn on_start_view_change(
        &mut self,
        now: Mono,
        from: ReplicaId,
        target: borzoi_types::View,
        effects: &mut Vec<Effect>,
    ) {
        if target == self.view {
            // The sender has entered this view and may still wait for its log.
            if self.status == Status::Normal {
                self.hint(now, from, effects);
            }
            return;
        }
        if target != self.view.next() {
            self.counters.rejected += u64::from(target > self.view);
            return;
        }
        assert!(target > self.view && from != self.options.replica, "a peer asks for the next");
        self.peer_mut(from).support = Some((target, now));
        if self.suspecting {
            self.enter_if_supported(now, effects);
        } else if self.has_reason_to_leave(now, from) {
            self.suspect(now, effects);
        } else {
            self.hint(now, from, effects);
        }
    }

    /// Whether this replica joins the probe of `from`.
    fn has_reason_to_leave(&mut self, now: Mono, from: ReplicaId) -> bool {
        let quiet = self.options.timeouts.quiet;
        if self.is_primary() {
            return false;
        }
        if self.status == Status::ViewChange {
            return now.since(self.entered_at) >= quiet;
        }
        if from == self.view_primary() {
            self.primary_gone = true;
            return true;
        }
        now.since(self.peer(self.view_primary()).heard) >= quiet
    }

    /// Enters the next view when a view-change quorum, this replica included, asks for it.
    fn enter_if_supported(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        assert!(self.suspecting, "only who asks for a view enters it by asking");
        let target = self.view.next();
        let recent = self.options.timeouts.election;
        let supports = |peer: &Peer| {
            peer.support.is_some_and(|(view, at)| view == target && now.since(at) <= recent)
        };
        let own = usize::from(self.options.replica.get());
        let others = self.peers.iter().enumerate().filter(|(index, _)| *index != own);
        let support = 1 + others.filter(|(_, peer)| supports(peer)).count();
        assert!(support <= self.peers.len(), "each member asks once");
        assert!(target > self.view, "one asks for a higher view");
        if support >= usize::from(self.quorums.view_change) {
            self.enter_view(now, target, effects);
        }
    }

    /// Tells a peer that is behind, or doubts, where this replica stands. At most one hint per
    /// peer and retry interval.
    pub(super) fn hint(&mut self, now: Mono, to: ReplicaId, effects: &mut Vec<Effect>) {
        let wait = self.options.timeouts.retry;
        if self.peer(to).hinted.is_some_and(|at| now.since(at) < wait) || !self.is_durable() {
            return;
        }
        assert!(self.is_durable(), "a hint is a message like any other");
        self.peer_mut(to).hinted = Some(now);
        let view = self.view;
        let message = match self.status {
            Status::Normal if to != self.view_primary() => self.start_view_message(0),
            _ => Message::StartViewChange { view, target: view },
        };
        self.send(to, message, effects);
    }

    /// Answers the first sign that `from` has reached this view, so that both know of each other.
    pub(super) fn echo_view(&self, from: ReplicaId, message: &Message, effects: &mut Vec<Effect>) {
        let view = self.view;
        let announced = Message::StartViewChange { view, target: view };
        if *message == announced {
            self.send(from, announced, effects);
        }
    }

    /// As primary: whether a replication quorum, this replica included, was heard lately.
    pub(super) fn hears_quorum(&self, now: Mono) -> bool {
        assert!(self.is_primary(), "a primary needs a quorum");
        let limit = self.options.timeouts.check_quorum;
        let heard = self.others().filter(|peer| now.since(self.peer(*peer).heard) <= limit);
        1 + heard.count() >= usize::from(self.quorums.replication)
    }
}
