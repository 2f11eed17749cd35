//! Timers: which are armed in which state, and what happens when they fire.
//!
//! | timer | armed | fires |
//! |---|---|---|
//! | suspect | backup | probe for the next view if the primary was silent for `election` |
//! | view_change | between views | probe for the next view |
//! | retry | between views, or while probing | say it again |
//! | check_quorum | primary | step down without a replication quorum |
//! | prepare_retry | primary with uncommitted operations | tell backups where the log stands |
//! | stuck | primary with an append under way | step down |
//! | serve | primary not yet serving | step down |
//! | repair | while something is missing | ask the next peer |
//!
//! A solo replica arms none of them.

use super::{Replica, Status};
use crate::event::Effect;
use borzoi_types::{Duration, Mono};

/// A primary that cannot commit its inherited suffix within this many view-change times gives up:
/// what it lacks is evidently not to be had from those it can reach.
const SERVE_FACTOR: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) suspect: Option<Mono>,
    pub(super) view_change: Option<Mono>,
    pub(super) retry: Option<Mono>,
    pub(super) check_quorum: Option<Mono>,
    pub(super) prepare_retry: Option<Mono>,
    pub(super) stuck: Option<Mono>,
    pub(super) serve: Option<Mono>,
    /// Not a deadline: when the current suspicion began.
    pub(super) suspected_at: Option<Mono>,
}

impl Timers {
    pub(super) fn clear(&mut self) {
        *self = Self { suspected_at: self.suspected_at, ..Self::default() };
    }

    fn next(&self) -> Option<Mono> {
        let all = [
            self.suspect,
            self.view_change,
            self.retry,
            self.check_quorum,
            self.prepare_retry,
            self.stuck,
            self.serve,
        ];
        all.into_iter().flatten().min()
    }
}

fn arm(timer: &mut Option<Mono>, wanted: bool, at: impl FnOnce() -> Mono) {
    if !wanted {
        *timer = None;
    } else if timer.is_none() {
        *timer = Some(at());
    }
}

/// Takes the timer if it is due.
fn due(timer: &mut Option<Mono>, now: Mono) -> bool {
    timer.take_if(|at| *at <= now).is_some()
}

impl Replica {
    /// When [`crate::Event::Tick`] is wanted; a solo replica at rest wants none.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        [self.timers.next(), self.repair.deadline()].into_iter().flatten().min()
    }

    /// Arms what the state needs and disarms what it does not.
    pub(super) fn rearm(&mut self, now: Mono) {
        if self.is_solo() || self.diverged {
            self.timers.clear();
            return;
        }
        let timeouts = self.options.timeouts;
        let jitter = Duration(self.random.below(timeouts.jitter.0));
        let primary = self.is_primary();
        let backup = self.is_backup();
        let between = self.status == Status::ViewChange;
        let writing = self.log.slot(self.log.held_to().next()).is_some_and(|slot| slot.writing);
        let uncommitted = self.commit_max < self.log.head_op();
        let serving = self.own_op.is_some_and(|op| op <= self.log.applied());
        let suspect = backup && !self.suspecting;
        let timers = &mut self.timers;
        arm(&mut timers.suspect, suspect, || now.plus(timeouts.election).plus(jitter));
        arm(&mut timers.retry, between || self.suspecting, || now.plus(timeouts.retry));
        let half = Duration(timeouts.check_quorum.0 / 2);
        arm(&mut timers.check_quorum, primary, || now.plus(half));
        arm(&mut timers.prepare_retry, primary && uncommitted, || now.plus(timeouts.prepare_retry));
        arm(&mut timers.stuck, primary && writing, || now.plus(timeouts.journal_stuck));
        let patience = Duration(timeouts.view_change.0 * SERVE_FACTOR);
        arm(&mut timers.serve, primary && !serving, || now.plus(patience));
        assert!(!(primary && backup), "one part at a time");
        assert!(!between || !(primary || backup), "between views there is no part");
        self.check_timers();
    }

    /// Timers run only in the states that the module's table names.
    fn check_timers(&self) {
        let timers = &self.timers;
        let primary = self.is_primary();
        assert!(timers.suspect.is_none() || self.is_backup(), "suspect: backups");
        assert!(timers.view_change.is_none() || self.status == Status::ViewChange);
        assert!(timers.check_quorum.is_some() == primary, "check_quorum: primaries");
        assert!(timers.prepare_retry.is_none() || primary, "prepare_retry: primaries");
        assert!(timers.stuck.is_none() || primary, "stuck: primaries");
        assert!(timers.serve.is_none() || primary, "serve: primaries");
        assert!(timers.retry.is_some() || self.status == Status::Normal, "something goes on");
        assert!(self.deadline().is_some(), "a member of a group always waits for something");
    }

    pub(super) fn on_tick(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.diverged || self.is_solo() {
            return;
        }
        if due(&mut self.timers.suspect, now) {
            self.on_suspect_due(now, effects);
        }
        if due(&mut self.timers.view_change, now) {
            assert_eq!(self.status, Status::ViewChange, "armed between views only");
            self.suspect(now, effects);
        }
        if due(&mut self.timers.retry, now) {
            self.on_retry_due(now, effects);
        }
        if due(&mut self.timers.prepare_retry, now) && self.is_primary() {
            for peer in self.others() {
                if let Some(message) = self.heartbeat_for(peer) {
                    self.send(peer, message, effects);
                }
            }
        }
        let lonely = due(&mut self.timers.check_quorum, now) && !self.hears_quorum_or_left(now);
        let stuck = due(&mut self.timers.stuck, now);
        let barren = due(&mut self.timers.serve, now);
        if self.is_primary() && (lonely || stuck || barren) {
            self.abandon_view(now, effects);
        }
    }

    fn hears_quorum_or_left(&self, now: Mono) -> bool {
        !self.is_primary() || self.hears_quorum(now)
    }

    fn on_suspect_due(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        assert!(self.is_backup(), "armed for backups only");
        let heard = self.peer(self.view_primary()).heard;
        let timeouts = self.options.timeouts;
        if now.since(heard) >= timeouts.election {
            self.suspect(now, effects);
        } else {
            let jitter = Duration(self.random.below(timeouts.jitter.0));
            self.timers.suspect = Some(heard.plus(timeouts.election).plus(jitter));
        }
    }

    fn on_retry_due(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.status == Status::ViewChange {
            self.repeat_view_change(now, effects);
        } else if self.suspecting {
            self.ask_for_next_view(effects);
            self.timers.retry = Some(now.plus(self.options.timeouts.retry));
        }
        assert!(self.status == Status::Normal || self.timers.retry.is_some(), "goes on");
    }
}
