//! Checker 17: one offset, one message, for ever. Within one life of a partition an offset that was
//! confirmed or served once never names another message, at any level and after any crash.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Life, MessageRef, OpRef, Seen};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct OneMessage {
    looked: u64,
}

impl HistoryChecker for OneMessage {
    fn number(&self) -> u8 {
        17
    }

    fn name(&self) -> &'static str {
        "one offset, one message, for ever"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        let mut known: BTreeMap<(Life, u64), (MessageRef, OpRef)> = BTreeMap::new();
        let mut look = |life: Life, offset: u64, message: MessageRef, op: OpRef| {
            self.looked += 1;
            let (first, by) = *known.entry((life, offset)).or_insert((message, op));
            if first == message {
                return Ok(());
            }
            let (one, other) = (history.line(by), history.line(op));
            let (first, second) = (first.0, message.0);
            Err(format!(
                "offset {offset} of {life:?} named message {first}, then {second}: {one}; {other}"
            ))
        };
        for sent in history.confirmed() {
            let Some(life) = sent.life else { continue };
            for (offset, message) in sent.places() {
                look(life, offset, message, sent.op)?;
            }
        }
        for read in history.reads() {
            let Some(life) = read.life else { continue };
            for (offset, seen) in read.messages {
                if let Seen::Known(message) = seen {
                    look(life, *offset, *message, read.op)?;
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
    use borzoi_types::Mono;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = OneMessage::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    #[test]
    fn the_same_message_may_be_seen_again_and_a_new_life_starts_over() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.poll(Strategy::First, &[(0, 0), (1, 1)]);
        sample.done(0, Intent::PurgeTopic(TOPIC), Value::Nothing);
        sample.send(1, 0, 1, 0);
        sample.poll(Strategy::First, &[(0, 2)]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn an_offset_that_is_confirmed_twice_or_served_with_another_message_is_found() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.send(2, 0, 1, 1);
        assert!(check(&sample).unwrap_err().contains("offset 1"));
        let mut sample = Sample::new().replicated();
        sample.begin_send(1, 0, 1);
        sample.poll(Strategy::First, &[(0, 0)]);
        sample.send(2, 0, 1, 0);
        let facts = Facts { unsynced_lost: vec![Mono(1)], ..Facts::default() };
        let result = OneMessage::default().check(&sample.history, &facts);
        assert!(result.is_err(), "no loss excuses it");
    }
}
