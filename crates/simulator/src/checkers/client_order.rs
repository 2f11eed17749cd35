//! Checker 20: the order of one producer. A send that was begun after another one of the same
//! producer was confirmed stands behind it.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{Confirmed, History, Life};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Order {
    looked: u64,
}

impl HistoryChecker for Order {
    fn number(&self) -> u8 {
        20
    }

    fn name(&self) -> &'static str {
        "messages of one producer keep their order"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        let mut lanes: BTreeMap<(Life, usize), Vec<Confirmed>> = BTreeMap::new();
        for sent in history.confirmed() {
            let Some(life) = sent.life else { continue };
            let producer = history.op(sent.op).client;
            lanes.entry((life, producer)).or_default().push(sent);
        }
        for sends in lanes.values() {
            // By answer, with the furthest end so far: what was answered before an invocation is
            // a prefix of the list.
            let mut furthest: Vec<Confirmed> = Vec::new();
            for sent in sends {
                let begun = history.op(sent.op).invoked;
                let before = furthest.partition_point(|it| history.ended(it.op) < begun);
                if let Some(it) = before.checked_sub(1).and_then(|at| furthest.get(at)) {
                    self.looked += 1;
                    if it.end() > sent.base {
                        let (one, other) = (history.line(it.op), history.line(sent.op));
                        return Err(format!("{other} stands before {one}"));
                    }
                }
                // The list keeps the answer's time of each and the furthest end so far.
                let ahead = furthest.last().is_some_and(|last| last.end() > sent.end());
                let mut entry = *sent;
                if ahead && let Some(last) = furthest.last() {
                    (entry.base, entry.count) = (last.base, last.count);
                }
                furthest.push(entry);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Order::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    #[test]
    fn sends_in_turn_stand_in_turn_and_concurrent_ones_as_they_like() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.send(1, 0, 1, 2);
        let one = sample.begin_send(1, 0, 1);
        let two = sample.begin_send(1, 0, 1);
        sample.end(one, Outcome::Done(Value::Sent { partition: 0, base: 4 }));
        sample.end(two, Outcome::Done(Value::Sent { partition: 0, base: 3 }));
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_later_send_in_front_of_an_earlier_one_is_found() {
        let mut sample = Sample::new();
        sample.send(1, 0, 1, 5);
        sample.send(1, 0, 1, 6);
        sample.send(1, 0, 1, 2);
        assert!(check(&sample).unwrap_err().contains("stands before"));
    }

    #[test]
    fn producers_are_not_compared_with_each_other() {
        let mut sample = Sample::new();
        sample.send(1, 0, 1, 1);
        sample.send(2, 0, 1, 0);
        sample.send(1, 0, 1, 2);
        assert_eq!(check(&sample), Ok(()));
    }
}
