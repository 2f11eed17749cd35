//! Checker 23: read your writes, and everybody's: tail and reads of a partition are linearizable.
//!
//! Together with checker 17 (an offset names one message) it is enough to look at ends: what was
//! confirmed or served before an operation began bounds what that operation may see and where it
//! may append. And what certainly exists is never answered as missing.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{
    ConsumerId, History, Intent, Life, Op, OpRef, Outcome, Read, Scope, SendTo, Strategy, TopicRef,
    is_missing,
};
use borzoi_types::Mono;
use std::collections::BTreeMap;

/// Bytes of messages behind which a reply may end before what was asked for.
const REPLY_BYTES: usize = 4 * 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Reads {
    looked: u64,
}

/// The furthest end that was known in a life, by time.
#[derive(Debug, Default)]
struct Tail {
    known: Vec<(Mono, u64, OpRef)>,
}

impl Tail {
    /// What was known to exist when an operation began.
    fn before(&self, began: Mono) -> Option<(u64, OpRef)> {
        let count = self.known.partition_point(|(at, ..)| *at < began);
        let (_, end, op) = *count.checked_sub(1).and_then(|at| self.known.get(at))?;
        Some((end, op))
    }

    fn learn(&mut self, at: Mono, end: u64, op: OpRef) {
        let furthest = self.known.last().is_none_or(|(_, known, _)| end > *known);
        if furthest {
            self.known.push((at, end, op));
        }
    }
}

impl HistoryChecker for Reads {
    fn number(&self) -> u8 {
        23
    }

    fn name(&self) -> &'static str {
        "tail and reads are linearizable"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        let mut tails: BTreeMap<Life, Tail> = BTreeMap::new();
        let sends: BTreeMap<OpRef, _> =
            history.confirmed().into_iter().map(|it| (it.op, it)).collect();
        let reads: BTreeMap<OpRef, _> = history.reads().into_iter().map(|it| (it.op, it)).collect();
        for at in history.by_end() {
            let began = history.op(at).invoked;
            if let Some(sent) = sends.get(&at)
                && let Some(life) = sent.life
            {
                let tail = tails.entry(life).or_default();
                self.looked += 1;
                if let Some((end, by)) = tail.before(began)
                    && sent.base < end
                {
                    let (one, other) = (history.line(by), history.line(at));
                    return Err(format!("appended below offset {end}: {other}; but {one}"));
                }
                tail.learn(history.ended(at), sent.end(), at);
            } else if let Some(read) = reads.get(&at)
                && let Some(life) = read.life
            {
                let tail = tails.entry(life).or_default();
                self.looked += 1;
                if let Some((end, by)) = tail.before(began)
                    && !history.may_be_lost(read.topic, facts, history.ended(by))
                {
                    sees(history, facts, read, end).map_err(|fault| {
                        let (one, other) = (history.line(by), history.line(at));
                        format!("{fault}: {other}; but {one}")
                    })?;
                }
                if let Some((last, _)) = read.messages.last() {
                    tail.learn(history.ended(at), last + 1, at);
                }
            } else {
                self.not_missing(history, at)?;
            }
        }
        Ok(())
    }
}

/// Whether a read that began when everything below `end` was known to exist shows it.
fn sees(history: &History, facts: &Facts, read: &Read<'_>, end: u64) -> Result<(), String> {
    if read.current + 1 < end {
        return Err(format!("the current offset is {}, {end} messages were known", read.current));
    }
    let start = match read.strategy {
        Strategy::Offset(start) => start,
        Strategy::First => 0,
        _ => return Ok(()),
    };
    let moves = history.may_shrink(read.topic)
        || history.may_jump(read.topic, facts, history.ended(read.op));
    if moves || start >= end || read.count == 0 {
        return Ok(());
    }
    let wanted = end.min(start + u64::from(read.count));
    let got = read.messages.last().map_or(start, |(last, _)| last + 1);
    let bytes: usize = read.messages.iter().map(|(_, seen)| history.bytes(seen)).sum();
    if got < wanted && bytes < REPLY_BYTES {
        return Err(format!("it ends below {got}, {wanted} was known to exist"));
    }
    Ok(())
}

impl Reads {
    /// A partition that certainly exists is never answered as missing.
    fn not_missing(&mut self, history: &History, at: OpRef) -> Result<(), String> {
        let op = history.op(at);
        let Some((topic, partition)) = plain_target(op) else { return Ok(()) };
        let Outcome::Refused(code) = op.outcome else { return Ok(()) };
        self.looked += 1;
        let removed = |&(_, scope): &(OpRef, Scope)| match scope {
            Scope::All => false,
            Scope::From(lowest) => partition >= lowest,
        };
        if history.topic(topic).endings.iter().any(removed) {
            // Partitions that were removed may be there again or not.
            return Ok(());
        }
        if is_missing(code) && history.life(at, topic, partition).is_some() {
            return Err(format!("{} was there: {}", history.topic(topic).name, history.line(at)));
        }
        Ok(())
    }
}

fn plain_target(op: &Op) -> Option<(TopicRef, u32)> {
    match op.intent {
        Intent::Send { topic, to: SendTo::Partition(partition), .. }
        | Intent::Poll { topic, partition, consumer: ConsumerId::Plain(_), .. }
        | Intent::StoreOffset { topic, partition, consumer: ConsumerId::Plain(_), .. }
        | Intent::GetOffset { topic, partition, consumer: ConsumerId::Plain(_) } => {
            Some((topic, partition))
        }
        Intent::Send { topic, .. } => Some((topic, 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Reads::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn poll(sample: &mut Sample, strategy: Strategy, current: u64, messages: &[(u64, u32)]) {
        sample.poll_of(TOPIC, strategy, current, messages);
    }

    #[test]
    fn a_poll_that_shows_what_was_confirmed_is_right() {
        let mut sample = Sample::new();
        sample.send(1, 0, 3, 0);
        poll(&mut sample, Strategy::Offset(1), 2, &[(1, 1), (2, 2)]);
        sample.send(1, 0, 1, 3);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_stale_poll_is_found() {
        let mut sample = Sample::new();
        sample.send(1, 0, 3, 0);
        poll(&mut sample, Strategy::First, 1, &[(0, 0), (1, 1)]);
        assert!(check(&sample).unwrap_err().contains("the current offset is 1"));
        let mut sample = Sample::new();
        sample.send(1, 0, 3, 0);
        poll(&mut sample, Strategy::First, 2, &[(0, 0), (1, 1)]);
        assert!(check(&sample).unwrap_err().contains("ends below 2"));
    }

    #[test]
    fn what_one_poll_has_shown_another_must_show_and_no_send_may_take() {
        let mut sample = Sample::new();
        sample.begin_send(1, 0, 2);
        poll(&mut sample, Strategy::First, 1, &[(0, 0), (1, 1)]);
        poll(&mut sample, Strategy::First, 0, &[(0, 0)]);
        assert!(check(&sample).is_err());
        let mut sample = Sample::new();
        sample.begin_send(1, 0, 2);
        poll(&mut sample, Strategy::First, 1, &[(0, 0), (1, 1)]);
        sample.send(2, 0, 1, 1);
        assert!(check(&sample).unwrap_err().contains("appended below"));
    }

    #[test]
    fn what_is_there_is_not_missing_and_what_is_being_deleted_may_be() {
        let missing = borzoi_wire::ErrorCode::ResourceNotFound;
        let mut sample = Sample::new();
        let intent = sample.send_intent(1, 0, 1);
        sample.refused(1, intent, missing);
        assert!(check(&sample).unwrap_err().contains("was there"));
        let mut sample = Sample::new();
        sample.invoke(0, Intent::DeleteTopic(TOPIC));
        let intent = sample.send_intent(1, 0, 1);
        sample.refused(1, intent, missing);
        assert_eq!(check(&sample), Ok(()));
    }
}
