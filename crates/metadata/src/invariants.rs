//! The rules that every state keeps, as one named check: run on every restored snapshot and after
//! every operation of the property tests.

use crate::identity::{PartitionPlace, UserKey};
use crate::state::Metadata;
use crate::streams::{Stream, Topic};
use borzoi_types::limits::{STREAMS_MAX, TOPICS_PER_STREAM_MAX, USERS_MAX};
use borzoi_types::{PartitionId, PartitionKey};

impl Metadata {
    /// The first rule that this state breaks, if any.
    #[must_use]
    pub fn broken_rule(&self) -> Option<&'static str> {
        self.broken_stream_rule()
            .or_else(|| self.broken_user_rule())
            .or_else(|| self.broken_lane_rule())
            .or_else(|| self.broken_session_rule())
    }

    fn broken_stream_rule(&self) -> Option<&'static str> {
        if self.streams.len() > STREAMS_MAX || self.stream_names.len() != self.streams.len() {
            return Some("stream names are unique and streams within their limit");
        }
        let (mut partitions, mut groups, mut handovers) = (0, 0, 0);
        for (id, stream) in &self.streams {
            if stream.id != *id || self.stream_names.get(&stream.name) != Some(id) {
                return Some("a stream is under its number and name");
            }
            if stream.topics.len() > TOPICS_PER_STREAM_MAX
                || stream.topic_names.len() != stream.topics.len()
            {
                return Some("topic names are unique in a stream and topics within their limit");
            }
            for (number, topic) in &stream.topics {
                if topic.id != *number || stream.topic_names.get(&topic.name) != Some(number) {
                    return Some("a topic is under its number and name");
                }
                if let Some(rule) = self.broken_topic_rule(stream, topic) {
                    return Some(rule);
                }
                partitions += topic.partitions.len();
                groups += topic.groups.len();
                handovers += topic.groups.values().map(|it| it.handovers().count()).sum::<usize>();
            }
        }
        let counts = (self.partitions.len(), self.groups.len(), self.handovers.len());
        if counts != (partitions, groups, handovers) {
            return Some("partitions, groups and hand-overs are those of the topics");
        }
        None
    }

    fn broken_topic_rule(&self, stream: &Stream, topic: &Topic) -> Option<&'static str> {
        for (key, number) in topic.partitions.iter().zip(0..) {
            let place = PartitionPlace {
                stream: stream.id,
                topic: topic.id,
                partition: PartitionId(number),
            };
            let record = self.partitions.get(*key);
            if record.is_none_or(|record| record.place != place || record.key != *key) {
                return Some("a partition is where its topic says");
            }
        }
        if topic.group_names.len() != topic.groups.len() {
            return Some("group names are unique in a topic");
        }
        for (id, group) in &topic.groups {
            if group.id != *id
                || topic.group_names.get(&group.name) != Some(id)
                || *id >= topic.next_group
                || group.key >= self.next_group
            {
                return Some("a group is under its number and name, below the counters");
            }
            if group.partition_count() != topic.partitions.len() {
                return Some("a group has the partitions of its topic");
            }
            for (_, client) in group.members() {
                let session = self.sessions.get(client);
                if session.is_none_or(|session| !session.groups.contains(&group.key)) {
                    return Some("a member has a session that knows the group");
                }
            }
            group.assert_invariants();
        }
        None
    }

    fn broken_user_rule(&self) -> Option<&'static str> {
        let Some(root) = self.users.get(&UserKey::ROOT) else { return Some("root exists") };
        if !root.is_active() || root.id.0 != 0 {
            return Some("root is active and has number 0");
        }
        let unique =
            (self.user_ids.len(), self.user_names.len()) == (self.users.len(), self.users.len());
        if !unique || self.users.len() > USERS_MAX {
            return Some("user numbers and names are unique and users within their limit");
        }
        for (key, user) in &self.users {
            if user.key != *key || *key >= self.next_user {
                return Some("a user is under its key, below the counter");
            }
            for token in user.tokens.values() {
                if self.find_token(&token.hash).is_none_or(|(owner, _)| owner.key != *key) {
                    return Some("a token is found by its hash");
                }
            }
        }
        let tokens: usize = self.users.values().map(|user| user.tokens.len()).sum();
        if self.tokens.values().map(Vec::len).sum::<usize>() != tokens {
            return Some("the token index holds the tokens of the users");
        }
        None
    }

    fn broken_lane_rule(&self) -> Option<&'static str> {
        for (lane, id) in self.lanes.iter().zip(1..) {
            for key in &lane.keys {
                let record = self.partitions.get(*key);
                if record.is_none_or(|record| record.lane.0 != id) {
                    return Some("a lane's keys are partitions assigned to it");
                }
            }
            let buried =
                |key: &PartitionKey| self.partitions.get(*key).is_none() && *key < self.next_key;
            if !lane.tombstones.keys().all(buried) {
                return Some("a tombstone is of a deleted key");
            }
            if !lane.wishes.keys().all(|(key, _)| lane.keys.contains(key)) {
                return Some("a wish is for a live partition");
            }
        }
        if self.lanes.iter().map(|lane| lane.keys.len()).sum::<usize>() != self.partitions.len() {
            return Some("every partition is in one lane");
        }
        let layout = &self.layout;
        let fits = self.streams.values().flat_map(|stream| stream.topics.values()).all(|topic| {
            topic.partitions.iter().all(|key| {
                let record = self.partitions.get(*key);
                let level = record.and_then(|record| layout.durability(record.lane));
                level == Some(topic.options.durability)
            })
        });
        if fits { None } else { Some("a partition's lane has its topic's level") }
    }

    fn broken_session_rule(&self) -> Option<&'static str> {
        for session in self.sessions.iter() {
            if !self.users.contains_key(&session.user) {
                return Some("a session's user exists");
            }
            if session.session.0 > self.applied.0 {
                return Some("a session number is an applied operation");
            }
            if session.connection.is_none() && !session.groups.is_empty() {
                return Some("memberships end with the connection");
            }
            for key in &session.groups {
                let group = self.group(*key);
                if group.is_none_or(|(_, group)| group.slot(session.client).is_none()) {
                    return Some("a session's groups have it as a member");
                }
            }
        }
        None
    }
}
