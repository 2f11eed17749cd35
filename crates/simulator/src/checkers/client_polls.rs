//! Checker 19: polls are contiguous and monotonic. A reply holds rising offsets without gaps but
//! where a jump was made, starts where it was asked to, and has no more messages than were asked
//! for.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Read, Strategy};

/// See the module.
#[derive(Debug, Default)]
pub struct Polls {
    looked: u64,
}

impl HistoryChecker for Polls {
    fn number(&self) -> u8 {
        19
    }

    fn name(&self) -> &'static str {
        "polls are contiguous and monotonic"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        for read in history.reads() {
            self.looked += 1;
            inside(history, facts, &read)
                .and_then(|()| start(history, facts, &read))
                .map_err(|fault| format!("{fault}: {}", history.line(read.op)))?;
        }
        Ok(())
    }
}

fn inside(history: &History, facts: &Facts, read: &Read<'_>) -> Result<(), String> {
    let jumps = history.may_jump(read.topic, facts, history.ended(read.op));
    for pair in read.messages.windows(2) {
        let (before, after) = (pair[0].0, pair[1].0);
        if after <= before {
            return Err(format!("offset {after} follows {before}"));
        }
        if after != before + 1 && !jumps {
            return Err(format!("nothing between offsets {before} and {after}"));
        }
    }
    let asked = usize::try_from(read.count).unwrap_or(usize::MAX);
    if read.messages.len() > asked {
        return Err(format!("{} messages, {asked} were asked for", read.messages.len()));
    }
    match read.messages.last() {
        Some((last, _)) if *last > read.current => {
            Err(format!("offset {last} above the current one, {}", read.current))
        }
        _ => Ok(()),
    }
}

fn start(history: &History, facts: &Facts, read: &Read<'_>) -> Result<(), String> {
    let Some((first, _)) = read.messages.first() else { return Ok(()) };
    let jumps = history.may_jump(read.topic, facts, history.ended(read.op));
    let moves = jumps || history.may_shrink(read.topic);
    match read.strategy {
        Strategy::Offset(asked) if *first < asked => {
            Err(format!("it starts at {first}, below {asked}"))
        }
        Strategy::Offset(asked) if *first > asked && !moves => {
            Err(format!("it starts at {first}, not at {asked}"))
        }
        Strategy::First if *first > 0 && !moves => Err(format!("it starts at {first}, not at 0")),
        Strategy::Last => {
            let last = read.messages.last().map_or(0, |(last, _)| *last);
            let short = read.messages.len() < usize::try_from(read.count).unwrap_or(usize::MAX);
            // After a jump the current offset is what was reserved, until the next message.
            if last != read.current && !jumps {
                Err(format!("the last messages end at {last}, not at {}", read.current))
            } else if short && *first > 0 && !moves {
                Err(format!("the last {} messages start at {first}", read.count))
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Polls::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn poll(strategy: Strategy, messages: &[(u64, u32)]) -> Result<(), String> {
        let mut sample = Sample::new();
        sample.send(1, 0, 6, 0);
        sample.poll(strategy, messages);
        check(&sample)
    }

    #[test]
    fn a_poll_that_is_contiguous_and_starts_where_it_should_is_right() {
        assert_eq!(poll(Strategy::First, &[(0, 0), (1, 1)]), Ok(()));
        assert_eq!(poll(Strategy::Offset(2), &[(2, 2), (3, 3)]), Ok(()));
        assert_eq!(poll(Strategy::Next, &[]), Ok(()));
    }

    #[test]
    fn gaps_and_steps_back_are_found() {
        assert!(poll(Strategy::First, &[(0, 0), (2, 2)]).unwrap_err().contains("nothing between"));
        assert!(poll(Strategy::First, &[(0, 0), (0, 0)]).unwrap_err().contains("follows"));
    }

    #[test]
    fn a_wrong_start_is_found() {
        assert!(poll(Strategy::First, &[(1, 1)]).unwrap_err().contains("not at 0"));
        assert!(poll(Strategy::Offset(2), &[(1, 1)]).unwrap_err().contains("below"));
        assert!(poll(Strategy::Offset(2), &[(3, 3)]).unwrap_err().contains("not at 2"));
        assert!(poll(Strategy::Last, &[(3, 3)]).unwrap_err().contains("the last"));
    }

    #[test]
    fn a_gap_is_right_only_where_a_level_allows_a_jump() {
        let facts = Facts { unsynced_lost: vec![borzoi_types::Mono(1)], ..Facts::default() };
        let gap = |sample: Sample| Polls::default().check(&sample.history, &facts);
        let mut sample = Sample::new();
        sample.poll(Strategy::First, &[(0, 0), (9, 9)]);
        assert!(gap(sample).is_err());
        let mut sample = Sample::new().replicated();
        sample.poll(Strategy::First, &[(0, 0), (9, 9)]);
        assert_eq!(gap(sample), Ok(()));
    }

    #[test]
    fn more_messages_than_asked_for_are_found() {
        let mut sample = Sample::new();
        let op = sample.poll(Strategy::First, &[(0, 0), (1, 1)]);
        if let Intent::Poll { count, .. } = &mut sample.history.ops[op.0 as usize].intent {
            *count = 1;
        }
        assert!(check(&sample).unwrap_err().contains("asked for"));
    }
}
