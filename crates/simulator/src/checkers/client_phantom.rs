//! Checker 16: no phantom. What a poll returns was sent, byte for byte, to this partition of this
//! incarnation, before the poll was answered, and was not refused.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{
    History, Intent, Message, Op, Outcome, Read, Scope, Seen, SendTo, TopicRef, Value,
};
use crate::workload::producing::partition_of_key;
use borzoi_types::Mono;

/// See the module.
#[derive(Debug, Default)]
pub struct Phantom {
    looked: u64,
}

impl HistoryChecker for Phantom {
    fn number(&self) -> u8 {
        16
    }

    fn name(&self) -> &'static str {
        "no message that nobody sent"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        for read in history.reads() {
            for (offset, seen) in read.messages {
                self.looked += 1;
                judge(history, &read, *offset, seen).map_err(|fault| {
                    let line = history.line(read.op);
                    format!("offset {offset} of partition {}: {fault}; {line}", read.partition)
                })?;
            }
        }
        Ok(())
    }
}

fn judge(history: &History, read: &Read<'_>, offset: u64, seen: &Seen) -> Result<(), String> {
    let at = match seen {
        Seen::Known(at) => *at,
        Seen::Foreign(what) => return Err(what.clone()),
    };
    let message = history.message(at);
    let send = history.op(message.send);
    let sent = || history.line(message.send);
    if send.invoked > history.ended(read.op) {
        return Err(format!("message {} before it was sent; {}", at.0, sent()));
    }
    if let Outcome::Refused(code) = send.outcome {
        return Err(format!("message {} was refused with {}; {}", at.0, code.number(), sent()));
    }
    if message.topic != read.topic {
        let astray = may_go_astray(history, message, send);
        return if astray { Ok(()) } else { Err(format!("of another topic; {}", sent())) };
    }
    if belongs_to_an_earlier_life(history, read, send) {
        return Err(format!("of an earlier life of the partition; {}", sent()));
    }
    in_its_place(history, read, offset, send, at.0).map_err(|fault| format!("{fault}; {}", sent()))
}

/// A send to a topic that was deleted meanwhile may reach another one under its name or number.
fn may_go_astray(history: &History, message: &Message, send: &Op) -> bool {
    let topic = history.topic(message.topic);
    let deletes = topic.deletes.iter().chain(&history.stream(topic.stream).deletes);
    let until = send.effect_until().unwrap_or(Mono(0));
    deletes.map(|&delete| history.op(delete)).any(|delete| delete.invoked <= until)
}

/// Whether a purge or deletion certainly came after the send and before the poll.
fn belongs_to_an_earlier_life(history: &History, read: &Read<'_>, send: &Op) -> bool {
    let until = send.effect_until().unwrap_or(Mono(0));
    let poll = history.op(read.op);
    history.topic(read.topic).endings.iter().any(|&(ending, scope)| {
        let concerns = match scope {
            Scope::All => true,
            Scope::From(lowest) => read.partition >= lowest,
        };
        let ending = history.op(ending);
        concerns
            && ending.is_done()
            && ending.invoked > until
            && ending.ended_or_never() < poll.invoked
    })
}

fn in_its_place(
    history: &History,
    read: &Read<'_>,
    offset: u64,
    send: &Op,
    message: u32,
) -> Result<(), String> {
    let Intent::Send { topic, to, first, .. } = send.intent else {
        return Err("it was not sent".to_owned());
    };
    match to {
        SendTo::Partition(meant) if meant != read.partition => {
            return Err(format!("it was sent to partition {meant}"));
        }
        SendTo::Key(key) if partitions_never_changed(history, topic) => {
            let meant = partition_of_key(key, history.topic(topic).partitions);
            if meant != Some(read.partition) {
                return Err(format!("its key belongs to partition {meant:?}"));
            }
        }
        _ => {}
    }
    if let Some(&Value::Sent { partition, base }) = send.value()
        && send.attempts == 1
    {
        let confirmed = base + u64::from(message - first.0);
        if (partition, confirmed) != (read.partition, offset) {
            return Err(format!("it was confirmed at {confirmed} of partition {partition}"));
        }
    }
    Ok(())
}

fn partitions_never_changed(history: &History, topic: TopicRef) -> bool {
    let changes = |op: &Op| match op.intent {
        Intent::CreatePartitions(of, _) | Intent::DeletePartitions(of, _) => of == topic,
        _ => false,
    };
    !history.ops.iter().any(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Phantom::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    #[test]
    fn messages_in_their_places_are_no_phantoms() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.begin_send(2, 0, 1);
        sample.poll(Strategy::First, &[(0, 0), (1, 1), (2, 2)]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_message_that_was_refused_or_comes_before_its_send_is_one() {
        let mut sample = Sample::new();
        let intent = sample.send_intent(1, 0, 1);
        sample.refused(1, intent, borzoi_wire::ErrorCode::InvalidBatchChecksum);
        sample.poll(Strategy::First, &[(0, 0)]);
        assert!(check(&sample).unwrap_err().contains("refused"));
        let mut sample = Sample::new();
        sample.poll(Strategy::First, &[(0, 0)]);
        sample.send(1, 0, 1, 0);
        assert!(check(&sample).unwrap_err().contains("before it was sent"));
    }

    #[test]
    fn bytes_that_nobody_made_are_one() {
        let mut sample = Sample::new();
        let op = sample.poll(Strategy::First, &[]);
        let messages = vec![(0, Seen::Foreign("other bytes".to_owned()))];
        sample.history.ops[op.0 as usize].outcome =
            Outcome::Done(Value::Polled { partition: 0, current: 0, messages });
        assert!(check(&sample).unwrap_err().contains("other bytes"));
    }

    #[test]
    fn a_message_of_another_place_partition_topic_or_life_is_one() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.poll(Strategy::First, &[(0, 1)]);
        assert!(check(&sample).unwrap_err().contains("confirmed at"));
        let mut sample = Sample::new();
        sample.begin_send(1, 1, 1);
        sample.poll(Strategy::First, &[(0, 0)]);
        assert!(check(&sample).unwrap_err().contains("sent to partition 1"));
        let mut sample = Sample::new();
        sample.send(1, 0, 1, 0);
        let other = sample.topic("u");
        sample.poll_of(other, Strategy::First, 0, &[(0, 0)]);
        assert!(check(&sample).unwrap_err().contains("another topic"));
        let mut sample = Sample::new();
        sample.send(1, 0, 1, 0);
        sample.done(0, Intent::PurgeTopic(TOPIC), Value::Nothing);
        sample.poll(Strategy::First, &[(0, 0)]);
        assert!(check(&sample).unwrap_err().contains("earlier life"));
    }

    #[test]
    fn a_send_that_overlaps_the_deletion_of_its_topic_may_reach_the_next_one() {
        let mut sample = Sample::new();
        let send = sample.begin_send(1, 0, 1);
        sample.done(0, Intent::DeleteTopic(TOPIC), Value::Nothing);
        let next = sample.topic("t");
        sample.end(send, Outcome::Unknown);
        sample.poll_of(next, Strategy::First, 0, &[(0, 0)]);
        assert_eq!(check(&sample), Ok(()));
    }
}
