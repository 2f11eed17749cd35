//! Checker 21: a stored consumer offset never goes back unless it was told to.
//!
//! What a read of a stored offset says was written by somebody: a store, a deletion, or a poll that
//! stores the last offset it returned. A store whose answer came before the read began, and after
//! every writer of another value had ended, hides them. Polls store only forward.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{ConsumerId, History, Intent, Life, Op, OpRef, Outcome, TopicRef, Value};
use borzoi_types::Mono;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Committed {
    looked: u64,
}

/// One write of a stored offset.
#[derive(Clone, Copy, Debug)]
struct Write {
    op: OpRef,
    /// What is stored; none for a deletion.
    value: Option<u64>,
    /// Told to, so that it may also go back.
    told: bool,
    /// A poll without an answer stores anything.
    anything: bool,
    /// Whether the answer proves that it is in the log.
    proves: bool,
    from: Mono,
    until: Mono,
}

impl Write {
    /// Whether it may have given `value` at or after `moment`, when a proven write of `over` had
    /// been answered.
    fn explains(&self, value: Option<u64>, moment: Mono, over: Option<u64>) -> bool {
        if self.anything {
            return value.is_some() && (value > over || self.until >= moment);
        }
        if self.value != value {
            return false;
        }
        if self.told { self.until >= moment } else { value > over || self.from >= moment }
    }
}

type Key = (Life, ConsumerId);

fn target(intent: &Intent) -> Option<(TopicRef, u32, ConsumerId)> {
    match *intent {
        Intent::Poll { topic, partition, consumer, .. }
        | Intent::StoreOffset { topic, partition, consumer, .. }
        | Intent::GetOffset { topic, partition, consumer }
        | Intent::DeleteOffset { topic, partition, consumer } => Some((topic, partition, consumer)),
        _ => None,
    }
}

fn write(at: OpRef, op: &Op) -> Option<Write> {
    let until = op.effect_until()?;
    let done = op.is_done();
    let (value, told, anything, proves) = match &op.intent {
        Intent::StoreOffset { offset, quorum, .. } => (Some(*offset), true, false, done && *quorum),
        Intent::DeleteOffset { .. } => (None, true, false, done),
        Intent::Poll { auto_commit: true, .. } => match op.value() {
            // An earlier frame of it may have returned, and stored, something else.
            Some(Value::Polled { messages, .. }) if op.attempts == 1 => {
                (Some(messages.last()?.0), false, false, false)
            }
            _ => (None, false, true, false),
        },
        _ => return None,
    };
    // A poll stores after it was answered, in its own time; so does a store that nobody waits for.
    let lasting = told && (proves || matches!(op.outcome, Outcome::Unknown | Outcome::Open));
    let until = if lasting { until } else { Mono(u64::MAX) };
    Some(Write { op: at, value, told, anything, proves, from: op.invoked, until })
}

impl HistoryChecker for Committed {
    fn number(&self) -> u8 {
        21
    }

    fn name(&self) -> &'static str {
        "a stored offset never goes back unless told to"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        let mut writes: BTreeMap<Key, Vec<Write>> = BTreeMap::new();
        let mut reads: BTreeMap<Key, Vec<(OpRef, Option<u64>)>> = BTreeMap::new();
        for (at, op) in history.numbered() {
            let Some((topic, partition, consumer)) = target(&op.intent) else { continue };
            // What overlaps a purge may count for either life: then nothing is said of them.
            let key = |life| (life, consumer);
            match (history.life(at, topic, partition), write(at, op)) {
                (Some(life), Some(write)) => writes.entry(key(life)).or_default().push(write),
                (Some(life), None) => {
                    if let (Intent::GetOffset { .. }, Some(Value::Offset(value))) =
                        (&op.intent, op.value())
                    {
                        reads.entry(key(life)).or_default().push((at, *value));
                    }
                }
                (None, Some(_)) => {
                    for life in lives(history, topic, partition) {
                        let anywhere = Write {
                            op: at,
                            value: None,
                            told: true,
                            anything: true,
                            proves: false,
                            from: Mono(0),
                            until: Mono(u64::MAX),
                        };
                        writes.entry(key(life)).or_default().push(anywhere);
                    }
                }
                (None, None) => {}
            }
        }
        for (key, reads) in &reads {
            let none = Vec::new();
            let writes = writes.get(key).unwrap_or(&none);
            for &(read, value) in reads {
                self.looked += 1;
                if history.may_be_lost(key.0.topic, facts, Mono(0)) {
                    continue;
                }
                if value.is_none() && group_may_be_gone(history, key.1, read) {
                    continue;
                }
                explain(history, writes, read, value)?;
            }
        }
        Ok(())
    }
}

/// A group that is deleted takes its offsets with it.
fn group_may_be_gone(history: &History, consumer: ConsumerId, read: OpRef) -> bool {
    let ConsumerId::Group(group) = consumer else { return false };
    let answered = history.ended(read);
    let deletes = history.ops.iter().filter(|op| op.intent == Intent::DeleteGroup(group));
    deletes.filter(|op| op.effect_until().is_some()).any(|op| op.invoked <= answered)
}

/// Every life that a partition can have had.
fn lives(history: &History, topic: TopicRef, partition: u32) -> Vec<Life> {
    let count = history.topic(topic).endings.len() + 1;
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    (0..count).map(|at| Life { topic, partition, number: number(at) }).collect()
}

fn explain(
    history: &History,
    writes: &[Write],
    read: OpRef,
    value: Option<u64>,
) -> Result<(), String> {
    let (asked, answered) = (history.op(read).invoked, history.ended(read));
    // The last proven write that was answered before the read began, by its beginning.
    let proven = writes.iter().filter(|it| it.proves && it.until < asked).max_by_key(|it| it.from);
    let (moment, over) = proven.map_or((Mono(0), None), |it| (it.from, it.value));
    let explained =
        writes.iter().filter(|it| it.from <= answered).any(|it| it.explains(value, moment, over))
            || (value.is_none() && proven.is_none());
    if explained {
        return Ok(());
    }
    let hides = proven.map_or_else(String::new, |it| format!(" although {}", history.line(it.op)));
    Err(format!("nobody stored {value:?}{hides}: {}", history.line(read)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Committed::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn store(sample: &mut Sample, offset: u64) {
        let intent = store_intent(offset);
        sample.done(1, intent, Value::Nothing);
    }

    fn store_intent(offset: u64) -> Intent {
        let (topic, partition, consumer) = (TOPIC, 0, CONSUMER);
        Intent::StoreOffset { topic, partition, consumer, offset, quorum: true }
    }

    fn get(sample: &mut Sample, value: Option<u64>) {
        let intent = Intent::GetOffset { topic: TOPIC, partition: 0, consumer: CONSUMER };
        sample.done(1, intent, Value::Offset(value));
    }

    fn auto_commit(sample: &mut Sample, last: u64) {
        let op = sample.poll(Strategy::Next, &[(last, 0)]);
        if let Intent::Poll { auto_commit, .. } = &mut sample.history.ops[op.0 as usize].intent {
            *auto_commit = true;
        }
    }

    #[test]
    fn what_was_stored_last_is_read() {
        let mut sample = Sample::new();
        get(&mut sample, None);
        store(&mut sample, 5);
        get(&mut sample, Some(5));
        store(&mut sample, 3);
        get(&mut sample, Some(3));
        auto_commit(&mut sample, 9);
        get(&mut sample, Some(3));
        get(&mut sample, Some(9));
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn an_older_value_a_lost_one_and_an_invented_one_are_found() {
        let mut sample = Sample::new();
        store(&mut sample, 5);
        store(&mut sample, 7);
        get(&mut sample, Some(5));
        assert!(check(&sample).unwrap_err().contains("nobody stored Some(5)"));
        let mut sample = Sample::new();
        store(&mut sample, 5);
        get(&mut sample, None);
        assert!(check(&sample).is_err());
        let mut sample = Sample::new();
        store(&mut sample, 5);
        get(&mut sample, Some(6));
        assert!(check(&sample).is_err());
    }

    #[test]
    fn a_poll_never_takes_a_stored_offset_back() {
        let mut sample = Sample::new();
        auto_commit(&mut sample, 2);
        store(&mut sample, 5);
        get(&mut sample, Some(2));
        assert!(check(&sample).is_err());
    }

    #[test]
    fn a_store_without_an_answer_may_be_read_or_not() {
        let mut sample = Sample::new();
        store(&mut sample, 5);
        let open = sample.invoke(1, store_intent(3));
        sample.end(open, Outcome::Unknown);
        get(&mut sample, Some(5));
        get(&mut sample, Some(3));
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_purge_forgets_what_was_stored() {
        let mut sample = Sample::new();
        store(&mut sample, 5);
        sample.done(0, Intent::PurgeTopic(TOPIC), Value::Nothing);
        get(&mut sample, None);
        assert_eq!(check(&sample), Ok(()));
        get(&mut sample, Some(5));
        assert!(check(&sample).is_err());
    }
}
