//! Lives: one incarnation of one partition, as clients can tell it.
//!
//! A topic or partition that is deleted, created again or purged starts a new life in which
//! offsets begin again. Clients know only intervals: a delete took effect somewhere between its
//! invocation and its answer. An operation is attributed to a life only when no such interval
//! overlaps it; otherwise it may belong to either, and the checkers leave it alone.

use super::{History, Op, OpRef, Scope, TopicRef};
use borzoi_types::Mono;

/// One incarnation of one partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Life {
    /// The topic incarnation.
    pub topic: TopicRef,
    /// The partition.
    pub partition: u32,
    /// How many purges and deletions it had behind it.
    pub number: u32,
}

/// How an ending lies to an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    Before,
    Over,
    After,
}

fn lies(ending: &Op, from: Mono, to: Mono) -> Option<Lies> {
    let until = ending.effect_until()?;
    Some(if until < from {
        Lies::Before
    } else if ending.invoked > to {
        Lies::After
    } else {
        Lies::Over
    })
}

impl History {
    /// The life that an operation on this partition has certainly met.
    #[must_use]
    pub fn life(&self, op: OpRef, topic: TopicRef, partition: u32) -> Option<Life> {
        let op = self.op(op);
        self.life_between(topic, partition, op.invoked, op.ended_or_never())
    }

    /// The life that a partition has had from `from` to `to`, if it certainly was one.
    #[must_use]
    pub fn life_between(
        &self,
        topic: TopicRef,
        partition: u32,
        from: Mono,
        to: Mono,
    ) -> Option<Life> {
        let record = self.topic(topic);
        if !self.op(record.create).is_done() {
            return None;
        }
        let deletes = record.deletes.iter().chain(&self.stream(record.stream).deletes);
        for &delete in deletes {
            if matches!(lies(self.op(delete), from, to), Some(Lies::Before | Lies::Over)) {
                return None;
            }
        }
        let mut number = 0;
        for &(ending, scope) in &record.endings {
            let concerns = match scope {
                Scope::All => true,
                Scope::From(lowest) => partition >= lowest,
            };
            if !concerns {
                continue;
            }
            match lies(self.op(ending), from, to) {
                Some(Lies::Before) => number += 1,
                Some(Lies::Over) => return None,
                Some(Lies::After) | None => {}
            }
        }
        Some(Life { topic, partition, number })
    }

    /// The life of a partition when everything had ended.
    #[must_use]
    pub fn last_life(&self, topic: TopicRef, partition: u32) -> Option<Life> {
        let end = Mono(u64::MAX - 1);
        self.life_between(topic, partition, end, end)
    }

    /// Whether messages of a topic may go away without a purge: by age, size or deletion of
    /// segments.
    #[must_use]
    pub fn may_shrink(&self, topic: TopicRef) -> bool {
        let record = self.topic(topic);
        record.retention || record.segment_deletes.iter().any(|&op| self.op(op).attempts > 0)
    }
}
