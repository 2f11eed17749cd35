//! Checker 27: retention removes only whole prefixes. The earliest offset never falls, never rises
//! where nothing removes messages, and never passes the newest message.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Life, OpRef, State, Strategy};
use borzoi_types::Mono;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Retention {
    looked: u64,
}

impl HistoryChecker for Retention {
    fn number(&self) -> u8 {
        27
    }

    fn name(&self) -> &'static str {
        "retention removes only whole prefixes"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        let mut earliest: BTreeMap<Life, Vec<(Mono, u64, OpRef)>> = BTreeMap::new();
        for read in history.reads() {
            let Some(life) = read.life else { continue };
            let from_start = matches!(read.strategy, Strategy::First | Strategy::Offset(0));
            let Some(&(first, _)) = read.messages.first().filter(|_| from_start) else { continue };
            self.looked += 1;
            let moves = history.may_shrink(read.topic)
                || history.may_jump(read.topic, facts, history.ended(read.op));
            if first > 0 && !moves {
                let line = history.line(read.op);
                return Err(format!("nothing may have removed what is below {first}: {line}"));
            }
            let known = earliest.entry(life).or_default();
            let began = history.op(read.op).invoked;
            let before = known.partition_point(|(at, ..)| *at < began);
            if let Some((_, highest, by)) = before.checked_sub(1).and_then(|at| known.get(at))
                && first < *highest
            {
                let (one, other) = (history.line(*by), history.line(read.op));
                return Err(format!("messages came back: {other}; but {one}"));
            }
            if known.last().is_none_or(|(_, highest, _)| first > *highest) {
                known.push((history.ended(read.op), first, read.op));
            }
        }
        self.newest_stays(history, facts)
    }
}

impl Retention {
    /// The segment that is being written is never removed, so the newest message is there.
    fn newest_stays(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        for sent in history.confirmed() {
            let place = (sent.topic, sent.partition);
            let life = history.last_life(sent.topic, sent.partition);
            let lives = history.topic(sent.topic).state == State::Live;
            if life.is_none() || life != sent.life || !lives {
                continue;
            }
            if history.may_be_lost(sent.topic, facts, history.ended(sent.op)) {
                continue;
            }
            let Some(nodes) = history.finals.get(&place) else { continue };
            for (node, list) in nodes {
                self.looked += 1;
                if list.last().is_none_or(|(last, _)| *last + 1 < sent.end()) {
                    let line = history.line(sent.op);
                    return Err(format!("the newest message is gone on node {node}: {line}"));
                }
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
        let mut checker = Retention::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sample() -> Sample {
        let mut sample = Sample::new();
        sample.history.topics[0].retention = true;
        sample.send(1, 0, 4, 0);
        sample
    }

    #[test]
    fn a_prefix_that_goes_for_good_is_right() {
        let mut sample = sample();
        sample.poll(Strategy::First, &[(0, 0)]);
        sample.poll(Strategy::First, &[(2, 2)]);
        sample.poll(Strategy::First, &[(2, 2)]);
        sample.finals(&[&[(2, 2), (3, 3)]]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_prefix_that_comes_back_is_found() {
        let mut sample = sample();
        sample.poll(Strategy::First, &[(2, 2)]);
        sample.poll(Strategy::First, &[(1, 1)]);
        assert!(check(&sample).unwrap_err().contains("came back"));
    }

    #[test]
    fn a_prefix_that_goes_without_retention_and_a_newest_message_that_goes_with_it_are_found() {
        let mut kept = sample();
        kept.history.topics[0].retention = false;
        kept.poll(Strategy::First, &[(1, 1)]);
        assert!(check(&kept).unwrap_err().contains("nothing may have removed"));
        let mut empty = sample();
        empty.finals(&[&[]]);
        assert!(check(&empty).unwrap_err().contains("newest message"));
    }
}
