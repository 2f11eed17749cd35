//! What operations ask and answer, and what they tell about streams, topics, groups and users.

use super::{History, MessageRef, OpRef, Outcome, Seen};
use borzoi_types::Durability;
use borzoi_wire::{CommandCode, ErrorCode};

/// A stream incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StreamRef(pub u32);

/// A topic incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TopicRef(pub u32);

/// A consumer group incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupRef(pub u32);

/// What is known of a thing that clients create and delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its creation is under way.
    Coming,
    /// It is there.
    Live,
    /// Its deletion is under way.
    Going,
    /// It is not there any more, or never was.
    Gone,
    /// A creation or deletion of it got no answer: nobody uses it any more.
    Doubtful,
}

/// A stream incarnation.
#[derive(Clone, Debug)]
pub struct StreamRec {
    /// Its name; incarnations may share one.
    pub name: String,
    /// Its number once it is known.
    pub id: Option<u32>,
    /// What is known of it.
    pub state: State,
    /// Nothing in it is watched, so that renames and deletions do not disturb.
    pub scratch: bool,
    /// Deletions.
    pub deletes: Vec<OpRef>,
    /// Whether somebody is changing it.
    pub busy: bool,
}

/// Which partitions an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All of them.
    All,
    /// Those from this number up, at most.
    From(u32),
}

/// A topic incarnation.
#[derive(Clone, Debug)]
pub struct TopicRec {
    /// Its stream.
    pub stream: StreamRef,
    /// Its name; incarnations may share one.
    pub name: String,
    /// Its number once it is known.
    pub id: Option<u32>,
    /// What is known of it.
    pub state: State,
    /// Nothing in it is watched.
    pub scratch: bool,
    /// The level of its confirmations.
    pub level: Durability,
    /// Whether age or size removes messages.
    pub retention: bool,
    /// Partitions that are certainly there while it lives.
    pub partitions: u32,
    /// Whether `partitions` is exactly what there is.
    pub partitions_certain: bool,
    /// Its creation.
    pub create: OpRef,
    /// Deletions.
    pub deletes: Vec<OpRef>,
    /// Purges and deletions of partitions.
    pub endings: Vec<(OpRef, Scope)>,
    /// Deletions of segments.
    pub segment_deletes: Vec<OpRef>,
    /// Whether somebody is changing it.
    pub busy: bool,
}

/// A consumer group incarnation.
#[derive(Clone, Debug)]
pub struct GroupRec {
    /// Its topic.
    pub topic: TopicRef,
    /// Its name, never used again.
    pub name: String,
    /// What is known of it.
    pub state: State,
}

/// A user.
#[derive(Clone, Debug)]
pub struct UserRec {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
    /// What is known of it.
    pub state: State,
}

/// An access token of the root user.
#[derive(Clone, Debug)]
pub struct TokenRec {
    /// Its name.
    pub name: String,
    /// The token, once it was told.
    pub secret: Option<String>,
    /// What is known of it.
    pub state: State,
}

/// Whose offset an operation means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConsumerId {
    /// A consumer on its own, by number.
    Plain(u32),
    /// A group.
    Group(GroupRef),
}

/// How a send chooses its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendTo {
    /// By number.
    Partition(u32),
    /// By a key, which is this number in decimal.
    Key(u32),
    /// The server chooses.
    Balanced,
}

/// Where a poll starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// At an offset.
    Offset(u64),
    /// At a time, in microseconds.
    Timestamp(u64),
    /// At the first message.
    First,
    /// At the last messages.
    Last,
    /// After the stored offset.
    Next,
}

/// What an operation asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Append a batch.
    Send {
        /// The topic.
        topic: TopicRef,
        /// Which partition.
        to: SendTo,
        /// Its first message; the others follow in number.
        first: MessageRef,
        /// How many messages.
        count: u32,
    },
    /// Read messages.
    Poll {
        /// The topic.
        topic: TopicRef,
        /// The partition.
        partition: u32,
        /// For whom.
        consumer: ConsumerId,
        /// Where to start.
        strategy: Strategy,
        /// How many at most.
        count: u32,
        /// Whether the last offset is stored.
        auto_commit: bool,
    },
    /// Store an offset.
    StoreOffset {
        /// The topic.
        topic: TopicRef,
        /// The partition.
        partition: u32,
        /// For whom.
        consumer: ConsumerId,
        /// The offset.
        offset: u64,
        /// Whether the answer waits for the log.
        quorum: bool,
    },
    /// Ask for a stored offset.
    GetOffset {
        /// The topic.
        topic: TopicRef,
        /// The partition.
        partition: u32,
        /// For whom.
        consumer: ConsumerId,
    },
    /// Forget a stored offset.
    DeleteOffset {
        /// The topic.
        topic: TopicRef,
        /// The partition.
        partition: u32,
        /// For whom.
        consumer: ConsumerId,
    },
    /// Create a stream.
    CreateStream(StreamRef),
    /// Delete a stream.
    DeleteStream(StreamRef),
    /// Purge a stream.
    PurgeStream(StreamRef),
    /// Rename a stream that is not watched.
    UpdateStream(StreamRef),
    /// Create a topic.
    CreateTopic(TopicRef),
    /// Delete a topic.
    DeleteTopic(TopicRef),
    /// Purge a topic.
    PurgeTopic(TopicRef),
    /// Change a topic.
    UpdateTopic(TopicRef),
    /// Add partitions.
    CreatePartitions(TopicRef, u32),
    /// Remove the last partitions.
    DeletePartitions(TopicRef, u32),
    /// Remove the oldest segments of a partition.
    DeleteSegments(TopicRef, u32),
    /// Create a group.
    CreateGroup(GroupRef),
    /// Delete a group.
    DeleteGroup(GroupRef),
    /// Join a group.
    JoinGroup(GroupRef),
    /// Leave a group.
    LeaveGroup(GroupRef),
    /// Ask for the assignment.
    SyncGroup(GroupRef),
    /// Create a user, by its place in the list.
    CreateUser(usize),
    /// Delete a user.
    DeleteUser(usize),
    /// Change the password of a user to this.
    ChangePassword(usize, String),
    /// Create an access token, by its place in the list.
    CreateToken(usize),
    /// Delete an access token.
    DeleteToken(usize),
    /// Sign in.
    Login,
    /// Anything that leaves no trace which is watched.
    Other(CommandCode),
    /// A frame that breaks a rule; the name of the rule.
    Malformed(&'static str),
}

/// What an operation was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Done, and nothing more to say.
    Nothing,
    /// A batch was appended.
    Sent {
        /// The partition.
        partition: u32,
        /// Offset of its first message.
        base: u64,
    },
    /// Messages.
    Polled {
        /// The partition.
        partition: u32,
        /// Offset of the last message there is.
        current: u64,
        /// Offset and message.
        messages: Vec<(u64, Seen)>,
    },
    /// A poll for a partition that the caller does not own.
    Resync,
    /// A stored offset, if there is one.
    Offset(Option<u64>),
    /// Generation and partitions, if the caller is a member.
    Assignment(Option<(u64, Vec<u32>)>),
    /// The number of what was created.
    Created(u32),
    /// A secret that is told once.
    Secret(String),
    /// The node that leads, if several were listed.
    Leader(Option<usize>),
}

impl History {
    /// The stream incarnation under a number.
    #[must_use]
    pub fn stream(&self, stream: StreamRef) -> &StreamRec {
        &self.streams[stream.0 as usize]
    }

    /// The topic incarnation under a number.
    #[must_use]
    pub fn topic(&self, topic: TopicRef) -> &TopicRec {
        &self.topics[topic.0 as usize]
    }

    /// The group incarnation under a number.
    #[must_use]
    pub fn group(&self, group: GroupRef) -> &GroupRec {
        &self.groups[group.0 as usize]
    }

    /// Topics that may be used, watched ones or the others.
    #[must_use]
    pub fn live_topics(&self, scratch: bool) -> Vec<TopicRef> {
        let usable = |topic: &TopicRec| {
            topic.state == State::Live
                && topic.scratch == scratch
                && self.stream(topic.stream).state == State::Live
        };
        (0u32..)
            .zip(&self.topics)
            .filter(|(_, topic)| usable(topic))
            .map(|(at, _)| TopicRef(at))
            .collect()
    }

    /// Streams that may be used.
    #[must_use]
    pub fn live_streams(&self, scratch: bool) -> Vec<StreamRef> {
        (0u32..)
            .zip(&self.streams)
            .filter(|(_, stream)| stream.state == State::Live && stream.scratch == scratch)
            .map(|(at, _)| StreamRef(at))
            .collect()
    }

    /// Groups that may be used.
    #[must_use]
    pub fn live_groups(&self) -> Vec<GroupRef> {
        let topics = self.live_topics(false);
        (0u32..)
            .zip(&self.groups)
            .filter(|(_, group)| group.state == State::Live && topics.contains(&group.topic))
            .map(|(at, _)| GroupRef(at))
            .collect()
    }

    /// Notes what an operation may do from now on.
    pub(super) fn began(&mut self, op: OpRef, intent: &Intent) {
        match *intent {
            Intent::DeleteStream(stream) => {
                let stream = &mut self.streams[stream.0 as usize];
                stream.deletes.push(op);
                stream.state = State::Going;
            }
            Intent::PurgeStream(stream) => {
                self.streams[stream.0 as usize].busy = true;
                for topic in self.topics.iter_mut().filter(|topic| topic.stream == stream) {
                    topic.endings.push((op, Scope::All));
                }
            }
            Intent::DeleteTopic(topic) => {
                let topic = &mut self.topics[topic.0 as usize];
                topic.deletes.push(op);
                topic.state = State::Going;
            }
            Intent::CreateTopic(topic) => self.topics[topic.0 as usize].create = op,
            Intent::PurgeTopic(topic) => self.change(topic).endings.push((op, Scope::All)),
            Intent::DeletePartitions(topic, count) => {
                let topic = self.change(topic);
                topic.partitions -= count;
                topic.endings.push((op, Scope::From(topic.partitions)));
            }
            Intent::DeleteSegments(topic, _) => self.change(topic).segment_deletes.push(op),
            Intent::CreatePartitions(topic, _) | Intent::UpdateTopic(topic) => {
                self.change(topic);
            }
            Intent::UpdateStream(stream) => self.streams[stream.0 as usize].busy = true,
            Intent::DeleteGroup(group) => self.groups[group.0 as usize].state = State::Going,
            Intent::DeleteUser(user) => self.users[user].state = State::Going,
            Intent::DeleteToken(token) => self.tokens[token].state = State::Going,
            _ => {}
        }
    }

    fn change(&mut self, topic: TopicRef) -> &mut TopicRec {
        let topic = &mut self.topics[topic.0 as usize];
        topic.busy = true;
        topic
    }

    /// Notes what an operation has done, or has not.
    pub(super) fn finished(&mut self, op: OpRef) {
        let record = &self.ops[op.0 as usize];
        let (intent, outcome) = (record.intent.clone(), record.outcome.clone());
        let created = |outcome: &Outcome| match outcome {
            Outcome::Done(_) => State::Live,
            Outcome::Refused(_) => State::Gone,
            Outcome::Open | Outcome::Unknown => State::Doubtful,
        };
        let number = match outcome {
            Outcome::Done(Value::Created(number)) => Some(number),
            _ => None,
        };
        match intent {
            Intent::CreateStream(stream) => {
                let stream = &mut self.streams[stream.0 as usize];
                (stream.state, stream.id) = (created(&outcome), number);
            }
            Intent::CreateTopic(topic) => {
                let topic = &mut self.topics[topic.0 as usize];
                (topic.state, topic.id) = (created(&outcome), number);
            }
            Intent::CreateGroup(group) => {
                self.groups[group.0 as usize].state = created(&outcome);
            }
            Intent::CreateUser(user) => self.users[user].state = created(&outcome),
            Intent::CreateToken(token) => {
                self.tokens[token].state = created(&outcome);
                if let Outcome::Done(Value::Secret(secret)) = outcome {
                    self.tokens[token].secret = Some(secret);
                }
            }
            Intent::DeleteStream(stream) => {
                self.streams[stream.0 as usize].state = deleted(&outcome);
            }
            Intent::DeleteTopic(topic) => self.topics[topic.0 as usize].state = deleted(&outcome),
            Intent::DeleteGroup(group) => self.groups[group.0 as usize].state = deleted(&outcome),
            Intent::DeleteUser(user) => self.users[user].state = deleted(&outcome),
            Intent::DeleteToken(token) => self.tokens[token].state = deleted(&outcome),
            Intent::PurgeStream(stream) | Intent::UpdateStream(stream) => {
                let stream = &mut self.streams[stream.0 as usize];
                stream.busy = false;
                if outcome == Outcome::Unknown {
                    stream.state = State::Doubtful;
                }
            }
            Intent::ChangePassword(user, password) => match outcome {
                Outcome::Done(_) => self.users[user].password = password,
                Outcome::Refused(_) => {}
                Outcome::Open | Outcome::Unknown => self.users[user].state = State::Doubtful,
            },
            Intent::CreatePartitions(topic, count) => {
                self.partitions_changed(topic, &outcome, count, true);
            }
            Intent::DeletePartitions(topic, count) => {
                self.partitions_changed(topic, &outcome, count, false);
            }
            Intent::PurgeTopic(topic)
            | Intent::UpdateTopic(topic)
            | Intent::DeleteSegments(topic, _) => {
                self.topics[topic.0 as usize].busy = false;
            }
            _ => {}
        }
    }

    fn partitions_changed(&mut self, topic: TopicRef, outcome: &Outcome, by: u32, up: bool) {
        let topic = &mut self.topics[topic.0 as usize];
        topic.busy = false;
        match (outcome, up) {
            (Outcome::Done(_), true) | (Outcome::Refused(_), false) => topic.partitions += by,
            (Outcome::Open | Outcome::Unknown, _) => topic.partitions_certain = false,
            (Outcome::Done(_), false) | (Outcome::Refused(_), true) => {}
        }
    }
}

/// A thing after the end of its deletion. A refusal as missing means that it went otherwise.
fn deleted(outcome: &Outcome) -> State {
    match outcome {
        Outcome::Done(_) => State::Gone,
        Outcome::Refused(code) if is_missing(*code) => State::Gone,
        Outcome::Refused(_) => State::Live,
        Outcome::Open | Outcome::Unknown => State::Doubtful,
    }
}

/// Whether an error says that something is not there.
#[must_use]
pub const fn is_missing(code: ErrorCode) -> bool {
    matches!(code.number(), 20 | 1009 | 1010 | 2010 | 2011 | 3007 | 5000 | 5003)
}
