//! When which log takes a checkpoint, and what is released when it is durable.
//!
//! One checkpoint at a time per log, and [`CHECKPOINTS_IN_FLIGHT_MAX`] per shard: each waits for
//! the device several times, and the journal fills meanwhile. A log is chosen when the journal
//! wants its oldest records released, or when the interval has passed since it first changed. Two
//! checkpoints are kept per log and the journal is released up to the older, so a damaged newest
//! one costs nothing but replay.
//!
//! Invariants:
//! - released <= older checkpoint <= newest checkpoint <= applied, per log;
//! - nothing is released, and no file removed, before the checkpoint that allows it is durable.

use borzoi_types::limits::CHECKPOINTS_IN_FLIGHT_MAX;
use borzoi_types::{Duration, LogId, Mono, Op};
use std::collections::{BTreeMap, BTreeSet};

/// The durable checkpoints of one log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Kept {
    older: Option<Op>,
    newest: Option<Op>,
    /// When the log first changed after its newest checkpoint.
    changed: Option<Mono>,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Take a checkpoint of this log.
    Checkpoint(LogId),
    /// Prepare an operation that changes nothing, so that a second checkpoint of a log at rest can
    /// be taken and the journal released up to its present one.
    Nudge(LogId),
}

/// What a durable checkpoint allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// The journal may be released up to here.
    pub release_through: Option<Op>,
    /// A checkpoint that is no longer kept.
    pub remove: Option<Op>,
}

/// What the checkpointer has done since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckpointCounters {
    /// Checkpoints that became durable.
    pub durable: u64,
    /// Checkpoints given up for lack of space.
    pub abandoned: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Checkpointer {
    interval: Duration,
    kept: BTreeMap<LogId, Kept>,
    active: BTreeMap<LogId, Op>,
    /// Logs of which a peer wants a newer one.
    wanted: BTreeSet<LogId>,
    counters: CheckpointCounters,
}

impl Checkpointer {
    /// Nothing under way. `durable` are the checkpoints found at boot, per log in rising order.
    #[must_use]
    pub fn new(interval: Duration, durable: &[(LogId, Op)]) -> Self {
        let mut kept: BTreeMap<LogId, Kept> = BTreeMap::new();
        for (log, op) in durable {
            let entry = kept.entry(*log).or_default();
            assert!(entry.newest.is_none_or(|newest| newest < *op), "in rising order");
            entry.older = entry.newest;
            entry.newest = Some(*op);
        }
        let (active, wanted) = (BTreeMap::new(), BTreeSet::new());
        Self { interval, kept, active, wanted, counters: CheckpointCounters::default() }
    }

    /// The operation at which a checkpoint of `log` is under way.
    #[must_use]
    pub fn active(&self, log: LogId) -> Option<Op> {
        self.active.get(&log).copied()
    }

    /// The logs whose checkpoints are under way, in order.
    pub fn active_logs(&self) -> impl ExactSizeIterator<Item = LogId> {
        self.active.keys().copied()
    }

    /// Whether another checkpoint may begin.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.active.len() < CHECKPOINTS_IN_FLIGHT_MAX
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> CheckpointCounters {
        self.counters
    }

    /// The newest durable checkpoint of a log.
    #[must_use]
    pub fn newest(&self, log: LogId) -> Option<Op> {
        self.kept.get(&log).and_then(|kept| kept.newest)
    }

    /// Whether the checkpoint of `log` at `op` is one of those that are kept.
    #[must_use]
    pub fn keeps(&self, log: LogId, op: Op) -> bool {
        self.kept.get(&log).is_some_and(|kept| [kept.older, kept.newest].contains(&Some(op)))
    }

    /// A peer could use a newer checkpoint of `log` than there is: the next one is taken soon.
    pub fn want(&mut self, log: LogId) {
        self.wanted.insert(log);
    }

    /// A peer's checkpoint was made durable here and is the newest one.
    pub fn installed(&mut self, log: LogId, op: Op) -> Durable {
        assert!(!self.active.contains_key(&log), "none is under way");
        let kept = self.kept.entry(log).or_default();
        let remove = kept.older.filter(|_| kept.newest.is_some());
        kept.older = kept.newest;
        kept.newest = Some(op);
        kept.changed = None;
        assert!(kept.older < kept.newest, "checkpoints go forward");
        Durable { release_through: kept.older, remove }
    }

    /// A log stands at `applied`: whether it has changed since its newest checkpoint, one under way
    /// included, is noted.
    pub fn note_changed_if_new(&mut self, log: LogId, applied: Option<Op>, now: Mono) {
        let covered = self.active(log).or_else(|| self.newest(log)).unwrap_or(Op::ZERO);
        if applied.is_some_and(|applied| applied > covered) {
            self.note_changed(log, now);
        }
    }

    /// A log has changed.
    pub fn note_changed(&mut self, log: LogId, now: Mono) {
        let kept = self.kept.entry(log).or_default();
        kept.changed = kept.changed.or(Some(now));
    }

    /// When the interval of some log passes.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        if !self.has_room() {
            return None;
        }
        let resting = self.kept.iter().filter(|(log, _)| !self.active.contains_key(log));
        let changed = resting.filter_map(|(_, kept)| kept.changed);
        changed.min().map(|changed| changed.plus(self.interval))
    }

    /// What to do now, if another checkpoint may begin. `wanted` are the logs whose records the
    /// journal wants released, `applied` tells the last operation applied to a log.
    #[must_use]
    pub fn choose(
        &self,
        now: Mono,
        wanted: &[LogId],
        applied: impl Fn(LogId) -> Option<Op>,
    ) -> Option<Choice> {
        if !self.has_room() {
            return None;
        }
        let mut nudge = None;
        let asked = wanted.iter().chain(&self.wanted);
        for log in asked.filter(|log| !self.active.contains_key(log)) {
            let Some(applied) = applied(*log) else { continue };
            let kept = self.kept.get(log).copied().unwrap_or_default();
            if applied > kept.newest.unwrap_or(Op::ZERO) {
                return Some(Choice::Checkpoint(*log));
            }
            // The newest one stands at the end of the log. If much lies between it and the older
            // one, another one right behind it allows all of that to be released.
            let span = kept.newest.map_or(0, |newest| newest.0 - kept.older.map_or(0, |op| op.0));
            if span > 1 {
                nudge = nudge.or(Some(Choice::Nudge(*log)));
            }
        }
        if nudge.is_some() {
            return nudge;
        }
        let due = self.kept.iter().find(|(log, kept)| {
            let passed = kept.changed.is_some_and(|changed| changed.plus(self.interval) <= now);
            !self.active.contains_key(log)
                && passed
                && applied(**log).is_some_and(|op| op > kept.newest.unwrap_or(Op::ZERO))
        });
        due.map(|(log, _)| Choice::Checkpoint(*log))
    }

    /// The first of `wanted`, the logs that a full journal waits for, that stands still at its
    /// newest checkpoint: only another operation can release what is there, also when that is one.
    #[must_use]
    pub fn stuck(&self, wanted: &[LogId], applied: impl Fn(LogId) -> Option<Op>) -> Option<LogId> {
        let stands = |log: &&LogId| {
            let newest = self.newest(**log);
            !self.active.contains_key(log) && newest.is_some() && applied(**log) == newest
        };
        wanted.iter().find(stands).copied()
    }

    /// A checkpoint of `log` at `op` is being taken.
    pub fn begin(&mut self, log: LogId, op: Op) {
        assert!(self.has_room(), "the caller has asked");
        let kept = self.kept.entry(log).or_default();
        assert!(kept.newest.is_none_or(|newest| newest < op), "checkpoints go forward");
        kept.changed = None;
        self.wanted.remove(&log);
        let before = self.active.insert(log, op);
        assert!(before.is_none(), "one at a time per log");
    }

    /// The checkpoint of `log` can never be written as it was captured; it is taken again, after a
    /// later operation.
    pub fn retake(&mut self, log: LogId, op: Op) {
        let before = self.active.insert(log, op).expect("one was under way");
        assert!(before < op, "what made it void is an operation");
    }

    /// The checkpoint of `log` that is under way is durable.
    pub fn durable(&mut self, log: LogId) -> Durable {
        let op = self.active.remove(&log).expect("one was under way");
        let kept = self.kept.get_mut(&log).expect("begun");
        let remove = kept.older;
        kept.older = kept.newest;
        kept.newest = Some(op);
        self.counters.durable += 1;
        assert!(kept.older < kept.newest);
        Durable { release_through: kept.older, remove }
    }

    /// The checkpoint of `log` could not be written; it is still to be taken.
    pub fn abandon(&mut self, log: LogId, now: Mono) {
        self.active.remove(&log).expect("one was under way");
        self.counters.abandoned += 1;
        self.note_changed(log, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LogId = LogId(1);

    fn applied(op: u64) -> impl Fn(LogId) -> Option<Op> {
        move |_| Some(Op(op))
    }

    #[test]
    fn the_journal_is_released_up_to_the_older_of_two_checkpoints() {
        let mut checkpointer = Checkpointer::new(Duration::from_secs(60), &[]);
        checkpointer.begin(LANE, Op(10));
        let first = checkpointer.durable(LANE);
        assert_eq!(first, Durable { release_through: None, remove: None });
        checkpointer.begin(LANE, Op(20));
        let second = checkpointer.durable(LANE);
        assert_eq!(second, Durable { release_through: Some(Op(10)), remove: None });
        checkpointer.begin(LANE, Op(30));
        let third = checkpointer.durable(LANE);
        assert_eq!(third, Durable { release_through: Some(Op(20)), remove: Some(Op(10)) });
    }

    #[test]
    fn a_log_that_stands_at_its_checkpoint_is_what_a_full_journal_is_stuck_on() {
        let mut checkpointer = Checkpointer::new(Duration::from_secs(60), &[(LANE, Op(1))]);
        assert_eq!(checkpointer.stuck(&[LANE], applied(1)), Some(LANE));
        assert_eq!(checkpointer.stuck(&[LANE], applied(2)), None, "it can be checkpointed");
        assert_eq!(checkpointer.stuck(&[], applied(1)), None);
        checkpointer.begin(LANE, Op(2));
        assert_eq!(checkpointer.stuck(&[LANE], applied(1)), None, "one is under way");
    }

    #[test]
    fn a_changed_log_is_checkpointed_when_its_interval_has_passed() {
        let mut checkpointer = Checkpointer::new(Duration(100), &[]);
        assert_eq!(checkpointer.deadline(), None);
        checkpointer.note_changed(LANE, Mono(5));
        checkpointer.note_changed(LANE, Mono(50));
        assert_eq!(checkpointer.deadline(), Some(Mono(105)));
        assert_eq!(checkpointer.choose(Mono(104), &[], applied(1)), None);
        let choice = checkpointer.choose(Mono(105), &[], applied(1));
        assert_eq!(choice, Some(Choice::Checkpoint(LANE)));
    }

    #[test]
    fn a_checkpoint_under_way_is_not_a_change_of_its_log() {
        let mut checkpointer = Checkpointer::new(Duration(100), &[]);
        checkpointer.note_changed(LANE, Mono(0));
        checkpointer.begin(LANE, Op(10));
        checkpointer.note_changed_if_new(LANE, Some(Op(10)), Mono(5));
        let _ = checkpointer.durable(LANE);
        assert_eq!(checkpointer.deadline(), None, "nothing has changed since");
        checkpointer.begin(LANE, Op(20));
        checkpointer.note_changed_if_new(LANE, Some(Op(21)), Mono(7));
        let _ = checkpointer.durable(LANE);
        assert_eq!(checkpointer.deadline(), Some(Mono(107)));
    }

    #[test]
    fn several_logs_are_checkpointed_side_by_side_up_to_the_limit() {
        let mut checkpointer = Checkpointer::new(Duration(100), &[]);
        let logs: Vec<LogId> = (1..=CHECKPOINTS_IN_FLIGHT_MAX as u32 + 1).map(LogId).collect();
        for log in &logs[..CHECKPOINTS_IN_FLIGHT_MAX] {
            let choice = checkpointer.choose(Mono(0), &logs, applied(5));
            assert_eq!(choice, Some(Choice::Checkpoint(*log)));
            checkpointer.begin(*log, Op(5));
        }
        assert_eq!(checkpointer.choose(Mono(0), &logs, applied(5)), None);
        let _ = checkpointer.durable(logs[1]);
        let last = logs[CHECKPOINTS_IN_FLIGHT_MAX];
        let choice = checkpointer.choose(Mono(0), &logs, applied(5));
        assert_eq!(choice, Some(Choice::Checkpoint(last)));
    }

    #[test]
    fn a_log_at_rest_that_fills_the_journal_is_nudged_once() {
        let kept = [(LANE, Op(5)), (LANE, Op(90))];
        let mut checkpointer = Checkpointer::new(Duration(100), &kept);
        let choice = checkpointer.choose(Mono(0), &[LANE], applied(90));
        assert_eq!(choice, Some(Choice::Nudge(LANE)));
        // A log that has something to checkpoint goes first.
        let other = |log| Some(Op(if log == LANE { 90 } else { 1 }));
        let choice = checkpointer.choose(Mono(0), &[LANE, LogId(2)], other);
        assert_eq!(choice, Some(Choice::Checkpoint(LogId(2))));
        let choice = checkpointer.choose(Mono(0), &[LANE], applied(91));
        assert_eq!(choice, Some(Choice::Checkpoint(LANE)));
        checkpointer.begin(LANE, Op(91));
        assert_eq!(checkpointer.durable(LANE).release_through, Some(Op(90)));
        assert_eq!(checkpointer.choose(Mono(0), &[LANE], applied(91)), None);
    }
}
