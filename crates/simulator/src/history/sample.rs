//! Histories made by hand, for tests of the checkers: one stream, one topic, time that moves on by
//! itself.

use super::{
    ConsumerId, GroupRec, GroupRef, History, Intent, Message, MessageRef, OpRef, Outcome, Scope,
    Seen, SendTo, State, Strategy, StreamRec, StreamRef, TopicRec, TopicRef, Value,
};
use borzoi_types::{Durability, Mono};
use borzoi_wire::ErrorCode;

/// The topic of every sample.
pub const TOPIC: TopicRef = TopicRef(0);
/// A plain consumer.
pub const CONSUMER: ConsumerId = ConsumerId::Plain(1);

/// A history in the making.
pub struct Sample {
    /// What there is so far.
    pub history: History,
    /// Now, in nanoseconds.
    pub now: u64,
}

impl Sample {
    /// One topic with two partitions.
    pub fn new() -> Self {
        let mut sample = Self { history: History::default(), now: 0 };
        sample.history.streams.push(StreamRec {
            name: "s".to_owned(),
            id: Some(0),
            state: State::Live,
            scratch: false,
            deletes: Vec::new(),
            busy: false,
        });
        sample.topic("t");
        sample
    }

    /// Creates another topic.
    pub fn topic(&mut self, name: &str) -> TopicRef {
        let topic = TopicRef(u32::try_from(self.history.topics.len()).unwrap());
        self.history.topics.push(TopicRec {
            stream: StreamRef(0),
            name: name.to_owned(),
            id: None,
            state: State::Coming,
            scratch: false,
            level: Durability::Persisted,
            retention: false,
            partitions: 2,
            partitions_certain: true,
            create: OpRef(0),
            deletes: Vec::new(),
            endings: Vec::<(OpRef, Scope)>::new(),
            segment_deletes: Vec::new(),
            busy: false,
        });
        self.done(0, Intent::CreateTopic(topic), Value::Created(topic.0));
        topic
    }

    /// Makes the topic one of level `replicated`.
    pub fn replicated(mut self) -> Self {
        self.history.topics[0].level = Durability::Replicated;
        self
    }

    /// A moment later.
    pub fn tick(&mut self) -> Mono {
        self.now += 1_000;
        Mono(self.now)
    }

    /// Begins an operation.
    pub fn invoke(&mut self, client: usize, intent: Intent) -> OpRef {
        let now = self.tick();
        let op = self.history.invoke(client, intent, now);
        self.history.sent(op, true);
        self.history.exchange.answers += 1;
        op
    }

    /// Ends an operation.
    pub fn end(&mut self, op: OpRef, outcome: Outcome) {
        let now = self.tick();
        self.history.end(op, outcome, now);
    }

    /// An operation that is done.
    pub fn done(&mut self, client: usize, intent: Intent, value: Value) -> OpRef {
        let op = self.invoke(client, intent);
        self.end(op, Outcome::Done(value));
        op
    }

    /// An operation that is refused.
    pub fn refused(&mut self, client: usize, intent: Intent, code: ErrorCode) -> OpRef {
        let op = self.invoke(client, intent);
        self.end(op, Outcome::Refused(code));
        op
    }

    /// What a send of `count` new messages asks.
    pub fn send_intent(&mut self, client: usize, to: u32, count: u32) -> Intent {
        let send = OpRef(u32::try_from(self.history.ops.len()).unwrap());
        let first = u32::try_from(self.history.messages.len()).unwrap();
        for place in 0..count {
            let sequence = u64::from(first + place);
            let message = Message { send, topic: TOPIC, producer: client, sequence, bytes: 40 };
            self.history.new_message(message);
        }
        let to = SendTo::Partition(to);
        Intent::Send { topic: TOPIC, to, first: MessageRef(first), count }
    }

    /// Begins a send.
    pub fn begin_send(&mut self, client: usize, to: u32, count: u32) -> OpRef {
        let intent = self.send_intent(client, to, count);
        self.invoke(client, intent)
    }

    /// A confirmed send; gives its first message.
    pub fn send(&mut self, client: usize, to: u32, count: u32, base: u64) -> MessageRef {
        let first = MessageRef(u32::try_from(self.history.messages.len()).unwrap());
        let op = self.begin_send(client, to, count);
        self.end(op, Outcome::Done(Value::Sent { partition: to, base }));
        first
    }

    /// A poll of partition 0 that gets these.
    pub fn poll(&mut self, strategy: Strategy, messages: &[(u64, u32)]) -> OpRef {
        let current = messages.last().map_or(0, |(offset, _)| *offset);
        self.poll_of(TOPIC, strategy, current, messages)
    }

    /// A poll of partition 0 of a topic.
    pub fn poll_of(
        &mut self,
        topic: TopicRef,
        strategy: Strategy,
        current: u64,
        messages: &[(u64, u32)],
    ) -> OpRef {
        let intent = Intent::Poll {
            topic,
            partition: 0,
            consumer: CONSUMER,
            strategy,
            count: 100,
            auto_commit: false,
        };
        let messages = seen(messages);
        self.done(9, intent, Value::Polled { partition: 0, current, messages })
    }

    /// What the final reads of partition 0 gave at these nodes.
    pub fn finals(&mut self, nodes: &[&[(u64, u32)]]) {
        self.history.final_from = Some(self.tick());
        for (node, messages) in nodes.iter().enumerate() {
            let all = self.history.finals.entry((TOPIC, 0)).or_default();
            all.insert(node, seen(messages));
        }
    }

    /// A group that exists.
    pub fn group(&mut self) -> GroupRef {
        let name = "g".to_owned();
        self.history.groups.push(GroupRec { topic: TOPIC, name, state: State::Live });
        GroupRef(u32::try_from(self.history.groups.len() - 1).unwrap())
    }
}

/// Offsets and messages as polls give them.
pub fn seen(messages: &[(u64, u32)]) -> Vec<(u64, Seen)> {
    messages.iter().map(|&(offset, at)| (offset, Seen::Known(MessageRef(at)))).collect()
}
