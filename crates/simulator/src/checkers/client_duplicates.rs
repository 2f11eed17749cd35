//! Checker 18: no duplicate where the client numbers its requests. A message whose every frame
//! carried the same identity and number is stored once; others at most as often as they were sent.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Intent, Life, MessageRef, Op, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct Duplicates {
    looked: u64,
}

impl HistoryChecker for Duplicates {
    fn number(&self) -> u8 {
        18
    }

    fn name(&self) -> &'static str {
        "no duplicate of a numbered request"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        let mut places: BTreeMap<MessageRef, BTreeSet<(Life, u64)>> = BTreeMap::new();
        for read in history.reads() {
            let Some(life) = read.life else { continue };
            for (offset, seen) in read.messages {
                if let Seen::Known(message) = seen
                    && history.message(*message).topic == read.topic
                {
                    places.entry(*message).or_default().insert((life, *offset));
                }
            }
        }
        for (message, places) in places {
            self.looked += 1;
            let at = history.message(message).send;
            let send = history.op(at);
            let once = send.once && !moved_meanwhile(history, send);
            let allowed = if once { 1 } else { send.attempts.max(1) as usize };
            if places.len() > allowed {
                let (line, count) = (history.line(at), places.len());
                let message = message.0;
                return Err(format!(
                    "message {message} is stored {count} times {places:?}: {line}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether the partition of a key, or the partitions to choose from, may have changed between the
/// frames of a send: it may then have reached two lanes, which do not know of each other.
fn moved_meanwhile(history: &History, send: &Op) -> bool {
    let Intent::Send { topic, to, .. } = send.intent else { return false };
    if matches!(to, crate::history::SendTo::Partition(_)) {
        return false;
    }
    history.ops.iter().any(|op| {
        let changes = match op.intent {
            Intent::CreatePartitions(of, _) | Intent::DeletePartitions(of, _) => of == topic,
            _ => false,
        };
        let until = op.effect_until();
        changes
            && op.invoked <= send.ended_or_never()
            && until.is_some_and(|until| until >= send.invoked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Duplicates::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sample(attempts: u32, same: bool, messages: &[(u64, u32)]) -> Sample {
        let mut sample = Sample::new();
        let send = sample.begin_send(1, 0, 1);
        for _ in 1..attempts {
            sample.history.sent(send, same);
        }
        sample.end(send, Outcome::Done(Value::Sent { partition: 0, base: 0 }));
        sample.poll(Strategy::First, messages);
        sample
    }

    #[test]
    fn a_message_that_was_sent_anew_may_be_stored_as_often_as_it_was_sent() {
        assert_eq!(check(&sample(1, true, &[(0, 0)])), Ok(()));
        assert_eq!(check(&sample(2, false, &[(0, 0), (1, 0)])), Ok(()));
        assert!(check(&sample(2, false, &[(0, 0), (1, 0), (2, 0)])).is_err());
    }

    #[test]
    fn a_message_resent_under_its_number_is_stored_once() {
        assert_eq!(check(&sample(3, true, &[(0, 0)])), Ok(()));
        let fault = check(&sample(2, true, &[(0, 0), (1, 0)])).unwrap_err();
        assert!(fault.contains("stored 2 times"));
    }

    #[test]
    fn seeing_a_message_twice_at_one_offset_is_no_duplicate() {
        let mut sample = sample(1, true, &[(0, 0)]);
        sample.tick();
        sample.poll(Strategy::Last, &[(0, 0)]);
        assert_eq!(check(&sample), Ok(()));
    }
}
