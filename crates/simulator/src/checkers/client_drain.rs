//! Checker 26: unseen messages drain to zero. A consumer that has seen nothing and polls the next
//! messages until none come has seen every message there is, once, in order.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Seen};

/// See the module.
#[derive(Debug, Default)]
pub struct Drain {
    looked: u64,
}

impl HistoryChecker for Drain {
    fn number(&self) -> u8 {
        26
    }

    fn name(&self) -> &'static str {
        "unseen messages drain to zero"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        let none: Vec<(u64, Seen)> = Vec::new();
        for (&(topic, partition), nodes) in &history.finals {
            let Some(expected) = nodes.values().next_back() else { continue };
            let drained = history.drains.get(&(topic, partition)).unwrap_or(&none);
            self.looked += 1;
            let from = drained.first().map_or(u64::MAX, |(offset, _)| *offset);
            let skips = history.may_shrink(topic);
            let skipped =
                if skips { expected.partition_point(|(offset, _)| *offset < from) } else { 0 };
            let expected = &expected[skipped..];
            if expected != drained.as_slice() {
                let (name, there, seen) =
                    (&history.topic(topic).name, expected.len(), drained.len());
                return Err(format!(
                    "partition {partition} of {name} has {there} messages, a consumer that polled \
                     to the end has seen {seen}"
                ));
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
        let mut checker = Drain::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sample(drained: &[(u64, u32)]) -> Sample {
        let mut sample = Sample::new();
        sample.finals(&[&[(0, 0), (1, 1)]]);
        sample.history.drains.insert((TOPIC, 0), seen(drained));
        sample
    }

    #[test]
    fn a_consumer_that_has_seen_everything_has_drained() {
        assert_eq!(check(&sample(&[(0, 0), (1, 1)])), Ok(()));
    }

    #[test]
    fn a_consumer_that_skipped_repeated_or_stopped_early_is_found() {
        let wrong: [&[(u64, u32)]; 4] = [&[], &[(0, 0)], &[(1, 1)], &[(0, 0), (0, 0), (1, 1)]];
        for drained in wrong {
            assert!(check(&sample(drained)).is_err(), "{drained:?}");
        }
    }
}
