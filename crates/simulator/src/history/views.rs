//! The history as checkers read it: confirmed sends and polls, each with the life it met.

use super::{History, Intent, Life, MessageRef, Op, OpRef, Seen, Strategy, TopicRef, Value};
use borzoi_types::{Durability, Mono};

/// A confirmed send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confirmed {
    /// Which operation.
    pub op: OpRef,
    /// The life it met, if that is certain.
    pub life: Option<Life>,
    /// The topic.
    pub topic: TopicRef,
    /// The partition.
    pub partition: u32,
    /// Offset of its first message.
    pub base: u64,
    /// Its first message.
    pub first: MessageRef,
    /// How many messages.
    pub count: u32,
}

impl Confirmed {
    /// Offset and message of each.
    pub fn places(&self) -> impl Iterator<Item = (u64, MessageRef)> + use<> {
        let (base, first) = (self.base, self.first.0);
        (0..self.count).map(move |place| (base + u64::from(place), MessageRef(first + place)))
    }

    /// Offset behind its last message.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base + u64::from(self.count)
    }
}

/// A poll that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read<'a> {
    /// Which operation.
    pub op: OpRef,
    /// The life it met, if that is certain.
    pub life: Option<Life>,
    /// The topic.
    pub topic: TopicRef,
    /// The partition.
    pub partition: u32,
    /// Where it started.
    pub strategy: Strategy,
    /// How many messages it asked for.
    pub count: u32,
    /// The last offset there was.
    pub current: u64,
    /// What it got.
    pub messages: &'a [(u64, Seen)],
}

impl History {
    /// Confirmed sends in the order of their answers.
    #[must_use]
    pub fn confirmed(&self) -> Vec<Confirmed> {
        self.by_end().into_iter().filter_map(|at| self.as_confirmed(at)).collect()
    }

    fn as_confirmed(&self, at: OpRef) -> Option<Confirmed> {
        let op = self.op(at);
        match (&op.intent, op.value()) {
            (&Intent::Send { topic, first, count, .. }, Some(&Value::Sent { partition, base })) => {
                let life = self.life(at, topic, partition);
                Some(Confirmed { op: at, life, topic, partition, base, first, count })
            }
            _ => None,
        }
    }

    /// Polls in the order of their answers.
    #[must_use]
    pub fn reads(&self) -> Vec<Read<'_>> {
        self.by_end().into_iter().filter_map(|at| self.as_read(at)).collect()
    }

    fn as_read(&self, at: OpRef) -> Option<Read<'_>> {
        let op = self.op(at);
        let &Intent::Poll { topic, strategy, count, .. } = &op.intent else { return None };
        let Some(Value::Polled { partition, current, messages }) = op.value() else { return None };
        let (partition, current) = (*partition, *current);
        let life = self.life(at, topic, partition);
        Some(Read { op: at, life, topic, partition, strategy, count, current, messages })
    }

    /// Whether offsets of a topic may have been skipped before `until`: its level allows a loss, or
    /// the start could not tell whether there was one.
    #[must_use]
    pub fn may_jump(&self, topic: TopicRef, facts: &crate::facts::Facts, until: Mono) -> bool {
        self.topic(topic).level == Durability::Replicated
            && facts.unsynced_lost.iter().chain(&facts.unclean_ends).any(|&lost| lost <= until)
    }

    /// Whether what was confirmed or served at `at` may be lost since, by a loss that the level of
    /// its topic allows.
    #[must_use]
    pub fn may_be_lost(&self, topic: TopicRef, facts: &crate::facts::Facts, at: Mono) -> bool {
        self.topic(topic).level == Durability::Replicated && facts.replicated_may_be_lost(at)
    }

    /// The end of an operation that has ended.
    #[must_use]
    pub fn ended(&self, at: OpRef) -> Mono {
        Op::ended_or_never(self.op(at))
    }
}
