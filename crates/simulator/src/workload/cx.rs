//! What making a request may look at, and what a worker remembers.

use super::Setting;
use super::entries::Job;
use crate::history::{GroupRef, History, TopicRef};
use crate::random::Dice;
use borzoi_types::Mono;
use borzoi_wire::{Identifier, Name};
use std::collections::BTreeMap;

/// Microseconds of wall clock at the start of every run, as producers see it.
pub const WALL_START_MICROS: u64 = 1_790_000_000_000_000;

/// What a worker remembers between requests.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The client's number.
    pub client: usize,
    /// What it does.
    pub job: Job,
    /// Messages made so far.
    pub sequence: u64,
    /// The topic it stays with for a while.
    pub topic: Option<TopicRef>,
    /// Newest offsets it has heard of.
    pub current: BTreeMap<(TopicRef, u32), u64>,
    /// Next offsets of a reader that goes from start to end.
    pub positions: BTreeMap<(TopicRef, u32), u64>,
    /// Logins so far; memberships end with each.
    pub bindings: u64,
    /// The group it is a member of.
    pub member: Option<Membership>,
    /// Percent of messages that are small.
    pub small_percent: u64,
    /// Largest payload it makes.
    pub payload_bytes_max: u64,
    /// Most messages it puts into a batch.
    pub batch_max: u64,
    /// Topics it wants there to be.
    pub topics_wanted: usize,
    /// Partitions a topic starts with, at most.
    pub partitions_max: u64,
}

/// A membership in a consumer group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// Which group.
    pub group: GroupRef,
    /// Under which login it joined.
    pub binding: u64,
    /// Whether the join was answered.
    pub joined: bool,
    /// Partitions assigned to it.
    pub partitions: Vec<u32>,
    /// Whose turn it is.
    pub turn: usize,
    /// Last offset polled and not stored, by partition.
    pub polled: BTreeMap<u32, u64>,
}

/// What making a request may look at.
pub struct Cx<'a> {
    /// Everything that happened, and what there is.
    pub history: &'a mut History,
    /// Chance.
    pub dice: &'a mut Dice,
    /// What the worker remembers.
    pub memory: &'a mut Memory,
    /// The world.
    pub setting: &'a Setting,
    /// Now.
    pub now: Mono,
}

impl Cx<'_> {
    /// A topic that is watched and may be used; the worker stays with one for a while.
    pub fn topic(&mut self) -> Option<TopicRef> {
        let live = self.history.live_topics(false);
        if let Some(topic) = self.memory.topic
            && live.contains(&topic)
            && !self.dice.chance(20)
        {
            return Some(topic);
        }
        self.memory.topic = if live.is_empty() { None } else { Some(*self.dice.pick(&live)) };
        self.memory.topic
    }

    /// One of the partitions that a topic certainly has.
    pub fn partition(&mut self, topic: TopicRef) -> Option<u32> {
        let count = self.history.topic(topic).partitions;
        (count > 0).then(|| u32::try_from(self.dice.below(u64::from(count))).unwrap_or(0))
    }

    /// Stream and topic as a request names them: by name or by number.
    pub fn names(&mut self, topic: TopicRef) -> (Identifier, Identifier) {
        let record = self.history.topic(topic);
        let stream = self.history.stream(record.stream);
        let by_name = self.dice.bits();
        let pick = |bit: u64, name: &str, id: Option<u32>| match id {
            Some(id) if by_name & bit == 0 => Identifier::Numeric(id),
            _ => named(name),
        };
        (pick(1, &stream.name, stream.id), pick(2, &record.name, record.id))
    }

    /// The number under which this worker keeps its own offsets.
    #[must_use]
    pub fn consumer_number(&self) -> u32 {
        1_000 + u32::try_from(self.memory.client).unwrap_or(0)
    }

    /// A producer's time for a message.
    #[must_use]
    pub fn origin(&self) -> borzoi_types::Micros {
        borzoi_types::Micros(WALL_START_MICROS + self.now.0 / 1_000)
    }
}

/// An identifier by name.
#[must_use]
pub fn named(text: &str) -> Identifier {
    Identifier::Name(name(text))
}

/// A name made by this crate.
#[must_use]
pub fn name(text: &str) -> Name {
    Name::new(text).expect("names made here have 1 to 255 bytes")
}
