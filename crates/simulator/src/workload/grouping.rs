//! A member of consumer groups: joins, syncs, polls its partitions in turn, commits, leaves.

use super::consuming::strategy;
use super::cx::{Cx, Membership, named};
use super::draft::Draft;
use crate::history::{ConsumerId, GroupRef, Intent, Strategy};
use borzoi_types::{Offset, PartitionId};
use borzoi_wire::body::{
    GetConsumerGroup, GetConsumerGroups, GetConsumerOffset, JoinConsumerGroup, LeaveConsumerGroup,
    OffsetAck, PollMessages, StoreConsumerOffset, SyncConsumerGroup,
};
use borzoi_wire::{CommandCode, ConsumerKind, ConsumerRef, OptionalPartition, Request};
use std::collections::BTreeMap;

/// The membership, if it is still one.
fn membership<'a>(cx: &'a mut Cx<'_>) -> Option<&'a mut Membership> {
    let bindings = cx.memory.bindings;
    let live = cx.history.live_groups();
    let gone = |it: &Membership| it.binding != bindings || !live.contains(&it.group);
    if cx.memory.member.as_ref().is_some_and(gone) {
        cx.memory.member = None;
    }
    cx.memory.member.as_mut()
}

fn any_group(cx: &mut Cx<'_>) -> Option<GroupRef> {
    let live = cx.history.live_groups();
    if live.is_empty() { None } else { Some(*cx.dice.pick(&live)) }
}

/// Reads of groups, and memberships.
pub(super) fn draft(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    let current = membership(cx).map(|it| it.group);
    let group = match (command, current) {
        // One group at a time: join when in none, leave and sync when in one.
        (CommandCode::JoinConsumerGroup, Some(group)) if !cx.dice.chance(10) => {
            let _ = group;
            return None;
        }
        (CommandCode::LeaveConsumerGroup | CommandCode::SyncConsumerGroup, None) => return None,
        (_, Some(group)) => group,
        (_, None) => any_group(cx)?,
    };
    let topic = cx.history.group(group).topic;
    let id = named(&cx.history.group(group).name.clone());
    let (stream, topic) = cx.names(topic);
    Some(match command {
        CommandCode::GetConsumerGroups => {
            Draft::other(&Request::GetConsumerGroups(GetConsumerGroups { stream, topic }))
        }
        CommandCode::JoinConsumerGroup => {
            let binding = cx.memory.bindings;
            cx.memory.member = Some(Membership {
                group,
                binding,
                joined: false,
                partitions: Vec::new(),
                turn: 0,
                polled: BTreeMap::new(),
            });
            let body = JoinConsumerGroup { stream, topic, group: id };
            Draft::new(Intent::JoinGroup(group), &Request::JoinConsumerGroup(body))
        }
        CommandCode::LeaveConsumerGroup => {
            cx.memory.member = None;
            let body = LeaveConsumerGroup { stream, topic, group: id };
            Draft::new(Intent::LeaveGroup(group), &Request::LeaveConsumerGroup(body))
        }
        CommandCode::SyncConsumerGroup => {
            let body = SyncConsumerGroup { stream, topic, group: id };
            Draft::new(Intent::SyncGroup(group), &Request::SyncConsumerGroup(body))
        }
        _ => {
            let body = GetConsumerGroup { stream, topic, group: id };
            Draft::other(&Request::GetConsumerGroup(body))
        }
    })
}

/// Polls the next of its partitions.
pub(super) fn poll(cx: &mut Cx<'_>) -> Option<Draft> {
    let member = membership(cx)?;
    if !member.joined || member.partitions.is_empty() {
        return None;
    }
    member.turn = (member.turn + 1) % member.partitions.len();
    let (group, partition) = (member.group, member.partitions[member.turn]);
    let count = u32::try_from(cx.dice.between(1, 50)).unwrap_or(1);
    let auto_commit = cx.dice.chance(50);
    let topic = cx.history.group(group).topic;
    let id = named(&cx.history.group(group).name.clone());
    let (stream, name) = cx.names(topic);
    let body = PollMessages {
        consumer: ConsumerRef { kind: ConsumerKind::Group, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
        strategy: strategy(Strategy::Next),
        count,
        auto_commit,
    };
    let consumer = ConsumerId::Group(group);
    let strategy = Strategy::Next;
    let intent = Intent::Poll { topic, partition, consumer, strategy, count, auto_commit };
    Some(Draft::new(intent, &Request::PollMessages(body)))
}

/// Commits what it polled.
pub(super) fn store_offset(cx: &mut Cx<'_>) -> Option<Draft> {
    let member = membership(cx)?;
    let (partition, offset) = member.polled.pop_first()?;
    let group = member.group;
    let topic = cx.history.group(group).topic;
    let id = named(&cx.history.group(group).name.clone());
    let (stream, name) = cx.names(topic);
    let body = StoreConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Group, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
        offset: Offset(offset),
        ack: OffsetAck::Quorum,
    };
    let consumer = ConsumerId::Group(group);
    let intent = Intent::StoreOffset { topic, partition, consumer, offset, quorum: true };
    Some(Draft::new(intent, &Request::StoreConsumerOffset(body)))
}

/// Asks for the offset of a group.
pub(super) fn get_offset(cx: &mut Cx<'_>) -> Option<Draft> {
    let group = any_group(cx)?;
    let topic = cx.history.group(group).topic;
    let partition = cx.partition(topic)?;
    let id = named(&cx.history.group(group).name.clone());
    let (stream, name) = cx.names(topic);
    let body = GetConsumerOffset {
        consumer: ConsumerRef { kind: ConsumerKind::Group, id: id.as_identifier_ref() },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
    };
    let intent = Intent::GetOffset { topic, partition, consumer: ConsumerId::Group(group) };
    Some(Draft::new(intent, &Request::GetConsumerOffset(body)))
}
