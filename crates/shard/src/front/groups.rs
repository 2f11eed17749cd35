//! Consumer groups, read from this shard's copy of metadata (wire protocol, section 9.9).

use super::Front;
use super::reads::or_return;
use super::request::{Caller, Known, Step};
use borzoi_metadata::{Action, Group, Topic};
use borzoi_wire::body::{Assignment, GroupDetails, GroupGeneration, GroupMember, GroupRecord};
use borzoi_wire::{ErrorCode, Identifier, Reply};

impl Front {
    pub(super) fn get_group(
        &self,
        caller: &Caller,
        known: Known<'_>,
        stream: &Identifier,
        topic: &Identifier,
        group: &Identifier,
    ) -> Step {
        let (stream, topic, group) = match self.metadata.find_group(stream, topic, group) {
            Ok(found) => found,
            Err(ErrorCode::ConsumerGroupIdNotFound) => return self.not_found(caller, known),
            Err(code) => return self.refuse(caller, known, code),
        };
        let action = Action::GetConsumerGroup(stream.id, topic.id);
        or_return!(self.authorise(caller, known, action));
        let members = group.assignments().into_iter();
        let members: Vec<GroupMember> =
            members.map(|(slot, partitions)| GroupMember { id: slot.0, partitions }).collect();
        let details = GroupDetails { group: record(topic, group), members };
        self.read_reply(caller, Reply::Group(details))
    }

    pub(super) fn get_groups(
        &self,
        caller: &Caller,
        known: Known<'_>,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Step {
        let (stream, topic) = match self.metadata.find_topic(stream, topic) {
            Ok(found) => found,
            Err(code) => return self.refuse(caller, known, code),
        };
        let action = Action::GetConsumerGroups(stream.id, topic.id);
        or_return!(self.authorise(caller, known, action));
        let list = topic.groups.values().map(|group| record(topic, group)).collect();
        self.read_reply(caller, Reply::Groups(list))
    }

    /// What is assigned to the caller; empty when it is no member or anything is unknown.
    pub(super) fn sync_group(
        &self,
        caller: &Caller,
        known: Known<'_>,
        stream: &Identifier,
        topic: &Identifier,
        group: &Identifier,
    ) -> Step {
        or_return!(self.authorise(caller, known, Action::SyncConsumerGroup));
        let Ok((_, _, group)) = self.metadata.find_group(stream, topic, group) else {
            return self.not_found(caller, known);
        };
        let Some(partitions) = group.poll_list(caller.consumer) else {
            return self.not_found(caller, known);
        };
        let generation = GroupGeneration(group.generation);
        self.read_reply(caller, Reply::Assignment(Assignment { generation, partitions }))
    }
}

fn record(topic: &Topic, group: &Group) -> GroupRecord {
    GroupRecord {
        id: group.id,
        partitions_count: topic.partition_count(),
        members_count: u32::try_from(group.members().len()).unwrap_or(u32::MAX),
        name: group.name.clone(),
    }
}
