//! Commands on consumer groups.

use crate::access::Action;
use crate::apply::{Applied, Context};
use crate::command::{CompletedHandover, GroupName, TopicName};
use crate::groups::Group;
use crate::identity::{GroupKey, GroupPlace, SessionRef};
use crate::outcome::{Notice, Reply};
use crate::state::Metadata;
use borzoi_types::limits::{GROUPS_PER_SESSION_MAX, GROUPS_PER_TOPIC_MAX};
use borzoi_types::{ClientId, PartitionKey, StreamId, TopicId};
use borzoi_wire::{ErrorCode, Name};
use std::collections::{BTreeMap, BTreeSet};

impl Metadata {
    /// The place of the group that a request names.
    fn group_place(&self, group: &GroupName) -> Result<(GroupPlace, GroupKey), ErrorCode> {
        let (stream, topic, found) = self.find_group(&group.stream, &group.topic, &group.group)?;
        let place = GroupPlace { stream: stream.id, topic: topic.id, group: found.id };
        Ok((place, found.key))
    }

    fn group_mut(&mut self, place: GroupPlace) -> &mut Group {
        let topic = self.topic_mut(place.stream, place.topic);
        topic.groups.get_mut(&place.group).expect("resolved by the caller")
    }

    pub(crate) fn create_group(
        &mut self,
        context: &Context,
        topic: &TopicName,
        name: &Name,
    ) -> Applied {
        let (stream, topic) = self.place_of(topic)?;
        self.require(context, Action::CreateConsumerGroup(stream, topic))?;
        let key = self.next_group;
        let found = self.topic_mut(stream, topic);
        if found.group_names.contains_key(name) {
            return Err(ErrorCode::ConsumerGroupNameAlreadyExists);
        }
        if found.groups.len() >= GROUPS_PER_TOPIC_MAX || found.next_group.0 == u32::MAX {
            return Err(ErrorCode::TooManyConsumerGroups);
        }
        let id = found.next_group;
        found.next_group = id.next();
        found.group_names.insert(name.clone(), id);
        found.groups.insert(id, Group::new(key, id, name.clone(), found.partitions.len()));
        let partitions = found.partition_count();
        self.next_group = GroupKey(key.0 + 1);
        self.groups.insert(key, GroupPlace { stream, topic, group: id });
        Ok(Reply::Group { id, name: name.clone(), partitions })
    }

    pub(crate) fn delete_group(&mut self, context: &Context, group: &GroupName) -> Applied {
        let (place, _) = self.group_place(group)?;
        self.require(context, Action::DeleteConsumerGroup(place.stream, place.topic))?;
        let topic = self.topic_mut(place.stream, place.topic);
        let group = topic.groups.remove(&place.group).expect("found above");
        topic.group_names.remove(&group.name);
        let partitions = topic.partitions.clone();
        self.forget_group(&group, &partitions);
        self.touch_partitions(context.op, place.stream, place.topic);
        Ok(Reply::Nothing)
    }

    /// Ends what others remember of a group that was taken out of its topic.
    pub(crate) fn forget_group(&mut self, group: &Group, partitions: &[PartitionKey]) {
        self.groups.remove(&group.key);
        for (_, client) in group.members() {
            if let Some(groups) = self.sessions.groups_mut(client) {
                groups.remove(&group.key);
            }
        }
        for (partition, _) in group.handovers() {
            let index = usize::try_from(partition.0).expect("a usize holds a u32");
            let key = partitions.get(index).expect("a hand-over has a partition");
            self.handovers.remove(&(*key, group.key));
        }
        self.notices.push(Notice::GroupDeleted(group.key));
    }

    pub(crate) fn join_group(&mut self, context: &Context, group: &GroupName) -> Applied {
        let (place, key) = self.group_place(group)?;
        self.require(context, Action::JoinConsumerGroup(place.stream, place.topic))?;
        let client = context.client.ok_or(ErrorCode::FeatureUnavailable)?;
        // A join logged after the loss of its connection would leave a member that nobody is. The
        // client that comes back and asks again is to be heard, so nothing is remembered.
        if self.sessions.get(client).is_none_or(|session| session.connection.is_none()) {
            return Err(ErrorCode::TransientNotAccepted);
        }
        let joined = self.sessions.groups_mut(client).ok_or(ErrorCode::Unauthenticated)?;
        if joined.contains(&key) {
            return Ok(Reply::Nothing);
        }
        if joined.len() >= GROUPS_PER_SESSION_MAX {
            return Err(ErrorCode::TooManyConsumerGroups);
        }
        joined.insert(key);
        let (op, now) = (context.op, context.now);
        self.change_group(place, |group| group.join(client, op, now));
        Ok(Reply::Nothing)
    }

    pub(crate) fn leave_group(&mut self, context: &Context, group: &GroupName) -> Applied {
        let (place, key) = self.group_place(group)?;
        self.require(context, Action::LeaveConsumerGroup(place.stream, place.topic))?;
        let client = context.client.ok_or(ErrorCode::FeatureUnavailable)?;
        let joined = self.sessions.groups_mut(client);
        if !joined.is_some_and(|joined| joined.remove(&key)) {
            return Err(ErrorCode::ConsumerGroupMemberNotFound);
        }
        self.change_group(place, |group| group.remove(&[client]));
        Ok(Reply::Nothing)
    }

    /// Ends all memberships of some clients, each group dealt out once.
    pub(crate) fn leave_all(&mut self, clients: &[ClientId]) {
        let mut leaving: BTreeMap<GroupKey, Vec<ClientId>> = BTreeMap::new();
        for client in clients {
            if let Some(joined) = self.sessions.groups_mut(*client) {
                for group in core::mem::take(joined) {
                    leaving.entry(group).or_default().push(*client);
                }
            }
        }
        for (group, clients) in leaving {
            let place = *self.groups.get(&group).expect("members of a group know a live one");
            let changed = self.change_group(place, |group| group.remove(&clients));
            assert!(changed, "a session's groups have it as a member");
        }
    }

    pub(crate) fn remove_members(&mut self, _context: &Context, members: &[SessionRef]) {
        let current = members.iter().filter(|member| {
            let session = self.sessions.get(member.client);
            session.is_some_and(|session| session.session == member.session)
        });
        let clients: BTreeSet<ClientId> = current.map(|member| member.client).collect();
        self.leave_all(&clients.into_iter().collect::<Vec<_>>());
    }

    pub(crate) fn complete_handovers(&mut self, handovers: &[CompletedHandover]) {
        for ended in handovers {
            let place = self.groups.get(&ended.group).copied();
            let record = self.partitions.get(ended.partition).copied();
            let (Some(place), Some(record)) = (place, record) else { continue };
            let of_topic = (record.place.stream, record.place.topic);
            if of_topic == (place.stream, place.topic) {
                let partition = record.place.partition;
                self.change_group(place, |group| group.complete(partition, ended.started));
            }
        }
    }

    /// The topic has gained or lost partitions.
    pub(crate) fn resize_groups(&mut self, stream: StreamId, topic: TopicId) {
        for place in self.groups_of(stream, topic) {
            let partitions = self.topic_mut(stream, topic).partitions.len();
            self.change_group(place, |group| {
                group.resize(partitions);
                true
            });
        }
    }

    /// Ends all hand-overs of a topic: what they wait for goes away.
    pub(crate) fn end_handovers(&mut self, stream: StreamId, topic: TopicId) {
        for place in self.groups_of(stream, topic) {
            self.change_group(place, |group| {
                let before = group.generation;
                group.complete_all();
                group.generation != before
            });
        }
    }

    fn groups_of(&mut self, stream: StreamId, topic: TopicId) -> Vec<GroupPlace> {
        let groups = self.topic_mut(stream, topic).groups.keys();
        groups.map(|group| GroupPlace { stream, topic, group: *group }).collect()
    }

    /// Changes a group and keeps the index of hand-overs with it. `change` says whether it did
    /// anything.
    fn change_group(&mut self, place: GroupPlace, change: impl FnOnce(&mut Group) -> bool) -> bool {
        let before = self.handover_keys(place);
        let group = self.group_mut(place);
        let key = group.key;
        if !change(group) {
            return false;
        }
        let after = self.handover_keys(place);
        for partition in before.difference(&after) {
            self.handovers.remove(&(*partition, key));
        }
        for partition in after.difference(&before) {
            self.handovers.insert((*partition, key));
            self.notices.push(Notice::HandoverStarted { group: key, partition: *partition });
        }
        self.notices.push(Notice::GroupChanged(key));
        true
    }

    /// Keys of the partitions that a group is handing over.
    fn handover_keys(&mut self, place: GroupPlace) -> BTreeSet<PartitionKey> {
        let topic = self.topic_mut(place.stream, place.topic);
        let group = topic.groups.get(&place.group).expect("resolved by the caller");
        let keys = group.handovers().filter_map(|(partition, _)| topic.partition(partition));
        keys.collect()
    }
}
