//! Checker 28: every request got exactly one answer, in order, unless its connection ended first.
//! Malformed frames included: they are answered, or their connection is closed.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Outcome};

/// See the module.
#[derive(Debug, Default)]
pub struct Answers {
    looked: u64,
}

impl HistoryChecker for Answers {
    fn number(&self) -> u8 {
        28
    }

    fn name(&self) -> &'static str {
        "every request got exactly one answer"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        let exchange = &history.exchange;
        self.looked += exchange.requests;
        if let Some((at, fault)) = exchange.faults.first() {
            return Err(format!("at {at:?}: {fault}"));
        }
        let waiting = history.ops.iter().any(|op| op.outcome == Outcome::Open);
        let ended = exchange.answers + exchange.cut;
        if !waiting && ended != exchange.requests {
            let sent = exchange.requests;
            return Err(format!("{sent} requests, {ended} answered or cut off"));
        }
        if exchange.unanswered > 0 && !facts.faulty {
            let count = exchange.unanswered;
            return Err(format!("{count} time-outs although nothing was wrong"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Answers::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    #[test]
    fn one_answer_for_each_request_is_right() {
        let mut sample = Sample::new();
        sample.send(1, 0, 1, 0);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_second_answer_a_missing_one_and_a_broken_one_are_found() {
        let mut sample = Sample::new();
        sample.history.exchange.answers += 1;
        assert!(check(&sample).unwrap_err().contains("answered or cut off"));
        sample.history.exchange.answers -= 2;
        assert!(check(&sample).unwrap_err().contains("answered or cut off"));
        let now = sample.tick();
        sample.history.exchange.faults.push((now, "an answer to nothing".to_owned()));
        assert!(check(&sample).unwrap_err().contains("answer to nothing"));
    }

    #[test]
    fn a_time_out_is_excused_by_faults_only() {
        let mut sample = Sample::new();
        sample.history.exchange.unanswered = 1;
        assert!(check(&sample).unwrap_err().contains("time-outs"));
        let facts = Facts { faulty: true, ..Facts::default() };
        assert_eq!(Answers::default().check(&sample.history, &facts), Ok(()));
    }
}
