//! Checker 24: operations without an answer stay open both ways. They may have happened or not, but
//! what was seen of them once stays; and when all faults are over nothing is left waiting.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Outcome, Seen, State};

/// See the module.
#[derive(Debug, Default)]
pub struct Open {
    looked: u64,
}

impl HistoryChecker for Open {
    fn number(&self) -> u8 {
        24
    }

    fn name(&self) -> &'static str {
        "what was seen of an unanswered operation stays"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        if history.final_from.is_none() || facts.safe_stop {
            return Ok(());
        }
        for (at, op) in history.numbered() {
            self.looked += 1;
            if op.outcome == Outcome::Open {
                return Err(format!("still waiting at the end: {}", history.line(at)));
            }
        }
        for read in history.reads() {
            let life = history.last_life(read.topic, read.partition);
            let lives = history.topic(read.topic).state == State::Live;
            if read.life.is_none() || life != read.life || !lives {
                continue;
            }
            if history.may_be_lost(read.topic, facts, history.ended(read.op)) {
                continue;
            }
            let Some(nodes) = history.finals.get(&(read.topic, read.partition)) else { continue };
            for (node, list) in nodes {
                let first = list.first().map_or(u64::MAX, |(offset, _)| *offset);
                let shrinks = history.may_shrink(read.topic);
                for (offset, seen) in read.messages {
                    self.looked += 1;
                    if (shrinks && *offset < first) || holds(list, *offset, seen) {
                        continue;
                    }
                    let line = history.line(read.op);
                    return Err(format!(
                        "offset {offset} was served and is gone on node {node}: {line}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn holds(list: &[(u64, Seen)], offset: u64, seen: &Seen) -> bool {
    let found = list.binary_search_by_key(&offset, |(at, _)| *at);
    found.is_ok_and(|at| list[at].1 == *seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Open::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sample(finals: &[(u64, u32)]) -> Sample {
        let mut sample = Sample::new();
        let send = sample.begin_send(1, 0, 1);
        sample.end(send, Outcome::Unknown);
        sample.poll(Strategy::First, &[(0, 0)]);
        sample.finals(&[finals]);
        sample
    }

    #[test]
    fn an_unanswered_send_that_was_seen_and_is_there_is_right_and_so_is_one_never_seen() {
        assert_eq!(check(&sample(&[(0, 0)])), Ok(()));
        let mut sample = Sample::new();
        let send = sample.begin_send(1, 0, 1);
        sample.end(send, Outcome::Unknown);
        sample.finals(&[&[]]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn an_unanswered_send_that_was_seen_and_is_gone_is_found() {
        assert!(check(&sample(&[])).unwrap_err().contains("was served and is gone"));
    }

    #[test]
    fn an_operation_that_waits_for_ever_is_found() {
        let mut sample = sample(&[(0, 0)]);
        sample.begin_send(1, 0, 1);
        assert!(check(&sample).unwrap_err().contains("still waiting"));
    }
}
