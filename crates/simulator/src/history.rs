//! What clients asked and were told, with simulated time: the input of the client checkers, and
//! the common knowledge from which the workload draws.
//!
//! Invariants: an operation is invoked once and ends at most once; one without an answer stays
//! open in both directions (it may have happened, and may happen later), so nothing here ever
//! turns "no answer" into "no effect".

mod lives;
mod message;
mod model;
#[cfg(test)]
mod sample;
mod views;

pub use lives::Life;
pub use message::{Message, MessageRef, PAYLOAD_BYTES_MIN, Seen};
pub use model::{
    ConsumerId, GroupRec, GroupRef, Intent, Scope, SendTo, State, Strategy, StreamRec, StreamRef,
    TokenRec, TopicRec, TopicRef, UserRec, Value, is_missing,
};
#[cfg(test)]
pub(crate) use sample::{CONSUMER, Sample, TOPIC, seen};
pub use views::{Confirmed, Read};

use borzoi_types::Mono;
use borzoi_wire::ErrorCode;
use std::collections::BTreeMap;

/// One operation, numbered in the order of invocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OpRef(pub u32);

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No answer yet.
    Open,
    /// It was done.
    Done(Value),
    /// It was refused and certainly had no effect.
    Refused(ErrorCode),
    /// The client has given up: it may have happened, or happen later.
    Unknown,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which client.
    pub client: usize,
    /// What it asks.
    pub intent: Intent,
    /// When it was invoked.
    pub invoked: Mono,
    /// When the answer came or the client gave up.
    pub ended: Option<Mono>,
    /// What became of it.
    pub outcome: Outcome,
    /// Frames sent for it.
    pub attempts: u32,
    /// Every frame carried the same identity and number, within the life of one session: the
    /// server must execute it at most once.
    pub once: bool,
}

impl Op {
    /// The last moment at which it may take effect; none if it certainly has no effect.
    #[must_use]
    pub fn effect_until(&self) -> Option<Mono> {
        match self.outcome {
            Outcome::Refused(_) => None,
            Outcome::Done(_) => self.ended,
            Outcome::Open | Outcome::Unknown => Some(Mono(u64::MAX)),
        }
    }

    /// When the client stopped waiting for it; the end of time while it waits.
    #[must_use]
    pub fn ended_or_never(&self) -> Mono {
        self.ended.unwrap_or(Mono(u64::MAX))
    }

    /// What it was answered, if it was done.
    #[must_use]
    pub const fn value(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Done(value) => Some(value),
            _ => None,
        }
    }

    /// Whether it was done.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_))
    }
}

/// Frames on the wire as clients count them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exchange {
    /// Requests sent.
    pub requests: u64,
    /// Answers that belong to a request.
    pub answers: u64,
    /// Requests whose connection ended before the answer came.
    pub cut: u64,
    /// Requests that a healthy server left without an answer.
    pub unanswered: u64,
    /// Answers to nothing, answers out of order, answers that do not decode.
    pub faults: Vec<(Mono, String)>,
}

/// Offsets and messages of a partition.
pub type Contents = Vec<(u64, Seen)>;

/// Everything clients saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every operation in order of invocation.
    pub ops: Vec<Op>,
    /// Every message that was given to a send.
    pub messages: Vec<Message>,
    /// Streams that clients created or tried to.
    pub streams: Vec<StreamRec>,
    /// Topics that clients created or tried to.
    pub topics: Vec<TopicRec>,
    /// Consumer groups that clients created or tried to.
    pub groups: Vec<GroupRec>,
    /// Users that clients created or tried to.
    pub users: Vec<UserRec>,
    /// Access tokens of the root user.
    pub tokens: Vec<TokenRec>,
    /// Frames as clients count them.
    pub exchange: Exchange,
    /// Whole partitions as read from each node after the end of all faults.
    pub finals: BTreeMap<(TopicRef, u32), BTreeMap<usize, Contents>>,
    /// Whole partitions as a new consumer got them by polling the next messages until none came.
    pub drains: BTreeMap<(TopicRef, u32), Contents>,
    /// When the final reads began.
    pub final_from: Option<Mono>,
    /// Told apart from the messages of another run.
    pub salt: u32,
    /// Sends that were confirmed.
    pub confirmed_sends: u64,
    /// Names given so far, so that no two incarnations share one unless they should.
    pub names: u32,
    last: Mono,
}

impl History {
    /// The operation under a number.
    #[must_use]
    pub fn op(&self, op: OpRef) -> &Op {
        &self.ops[op.0 as usize]
    }

    /// Operations with their numbers, in order of invocation.
    pub fn numbered(&self) -> impl Iterator<Item = (OpRef, &Op)> {
        (0u32..).map(OpRef).zip(&self.ops)
    }

    /// Operations that ended, in the order in which they did.
    #[must_use]
    pub fn by_end(&self) -> Vec<OpRef> {
        let mut ended: Vec<OpRef> =
            self.numbered().filter(|(_, op)| op.ended.is_some()).map(|(at, _)| at).collect();
        ended.sort_by_key(|&at| (self.op(at).ended, at));
        ended
    }

    /// Writes down that `client` begins an operation.
    pub fn invoke(&mut self, client: usize, intent: Intent, now: Mono) -> OpRef {
        assert!(now >= self.last, "history is written in order of time");
        self.last = now;
        let op = OpRef(u32::try_from(self.ops.len()).expect("fewer than 2^32 operations"));
        self.began(op, &intent);
        let outcome = Outcome::Open;
        let (ended, attempts, once) = (None, 0, true);
        self.ops.push(Op { client, intent, invoked: now, ended, outcome, attempts, once });
        op
    }

    /// Writes down that a frame was sent for an operation. `same` says whether it carries the
    /// identity and number of the frames before, in a session that cannot have ended between.
    pub fn sent(&mut self, op: OpRef, same: bool) {
        self.exchange.requests += 1;
        let op = &mut self.ops[op.0 as usize];
        op.once &= op.attempts == 0 || same;
        op.attempts += 1;
    }

    /// Writes down how an operation ended.
    pub fn end(&mut self, op: OpRef, outcome: Outcome, now: Mono) {
        assert!(now >= self.last, "history is written in order of time");
        assert!(outcome != Outcome::Open, "an operation ends with a result");
        self.last = now;
        let index = op.0 as usize;
        assert!(self.ops[index].ended.is_none(), "an operation ends once");
        self.ops[index].ended = Some(now);
        self.ops[index].outcome = outcome;
        if matches!(self.ops[index].outcome, Outcome::Done(Value::Sent { .. })) {
            self.confirmed_sends += 1;
        }
        self.finished(op);
    }

    /// A number that no name has had yet.
    pub fn fresh_name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    /// One line about an operation, for a reader.
    #[must_use]
    pub fn line(&self, at: OpRef) -> String {
        let op = self.op(at);
        let until = op.ended.map_or_else(|| "...".to_owned(), |at| format!("{:?}", at));
        let tries = op.attempts;
        format!(
            "#{} client {} [{:?}, {until}] {:?} -> {} ({tries} sent)",
            at.0,
            op.client,
            op.invoked,
            op.intent,
            short(&op.outcome)
        )
    }
}

/// An outcome without the messages it carries.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(Value::Polled { partition, current, messages }) => {
            let offset = |at: Option<&(u64, Seen)>| at.map(|(offset, _)| *offset);
            let (first, last) = (offset(messages.first()), offset(messages.last()));
            format!("polled {partition}, current {current}, {first:?} to {last:?}")
        }
        other => format!("{other:?}"),
    }
}
