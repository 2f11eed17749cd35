//! Sending and polling (wire protocol, sections 9.10 and 9.11): the hot path.
//!
//! A send is verified where its connection lives, on the shard that has the bytes in its cache; the
//! lane stamps and logs it. Nothing is copied: the batch is split off the frame it arrived in.

use super::command::LaneCall;
use super::connection::balanced;
use super::reads::or_return;
use super::request::{Caller, Known, Running, Step};
use super::{Cx, Front, replies};
use crate::lane::api::{ConsumerKey, LaneRequestKind, PollStart, SendIdentity};
use borzoi_metadata::{Action, Ownership, Resolved, Topic};
use borzoi_types::limits::BALANCED_TOPICS_MAX;
use borzoi_types::{Offset, PartitionId, StreamId, TopicId};
use borzoi_wire::batch::{BatchView, verify_send};
use borzoi_wire::body::{PollMessages, PollPrefix, SendMessages};
use borzoi_wire::frame::{HEADER_BYTES, Reaction, RequestView};
use borzoi_wire::{ConsumerKind, ErrorCode, Partitioning, PollingStrategy};

/// A send that passed every check: where it goes and where its batch begins.
struct CheckedSend {
    partition: Resolved,
    count: u32,
    hash: u64,
    batch_at: usize,
}

impl Front {
    pub(super) fn send(&mut self, caller: &Caller, running: &mut Running, cx: &mut Cx<'_>) -> Step {
        if let Err(code) = self.check_token(caller, cx) {
            return self.deny(caller, code);
        }
        let body = RequestView::split(&running.frame).map_or(&[][..], |(_, body)| body);
        let send = match SendMessages::decode(body) {
            Ok(send) => send,
            Err(error) => {
                return self.react(caller.place, &caller.to, Reaction::Deny(error.deny()));
            }
        };
        let known = Known { certain: running.certain, counts: None };
        let checked = or_return!(self.check_send(caller, known, &send, body.len()));
        let batch = running.frame.split_off(HEADER_BYTES + checked.batch_at);
        let (request, hash) = (caller.to.request, checked.hash);
        let session = self.metadata.sessions().get(caller.binding.client);
        let identity =
            session.map(|session| SendIdentity { session: session.first, request, hash });
        let kind = LaneRequestKind::Send { batch, count: checked.count, identity };
        Step::Lane(Box::new(LaneCall { caller: *caller, partition: checked.partition, kind }))
    }

    /// Target first, then permission, then the batch: the order in which clients see refusals.
    fn check_send(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        send: &SendMessages<'_>,
        body_bytes: usize,
    ) -> Result<CheckedSend, Step> {
        let missing = |front: &Self| front.refuse(caller, known, ErrorCode::ResourceNotFound);
        let (stream, topic) = (send.stream.to_identifier(), send.topic.to_identifier());
        let Ok((stream, topic)) = self.metadata.find_topic(&stream, &topic) else {
            return Err(missing(self));
        };
        let (stream, topic_id, partitions) = (stream.id, topic.id, topic.partition_count());
        self.authorise(caller, known, Action::SendMessages(stream, topic_id))?;
        let partition = match send.partitioning {
            Partitioning::Partition(partition) => Some(partition),
            Partitioning::Key(key) => key.partition(partitions),
            Partitioning::Balanced => {
                self.next_balanced(caller, send, (stream, topic_id), partitions)
            }
        };
        let topic = self.metadata.topic(stream, topic_id);
        let resolved = topic
            .zip(partition)
            .and_then(|(topic, partition)| self.metadata.resolve_in(stream, topic, partition).ok());
        let Some(partition) = resolved else { return Err(missing(self)) };
        match verify_send(send.batch, send.messages_count) {
            Ok(header) => Ok(CheckedSend {
                partition,
                count: header.message_count,
                hash: header.batch_checksum,
                batch_at: send.batch_range(body_bytes).start,
            }),
            Err(fault) => Err(self.deny(caller, fault.deny())),
        }
    }

    /// The partition of a balanced send.
    fn next_balanced(
        &mut self,
        caller: &Caller,
        send: &SendMessages<'_>,
        topic: (StreamId, TopicId),
        partitions: u32,
    ) -> Option<PartitionId> {
        let state = self.connections.get_mut(&caller.place.connection)?;
        // A batch that is no batch is refused behind this.
        let hash = BatchView::take(send.batch).map_or(0, |(view, _)| view.header().batch_checksum);
        let turns = &mut self.balance;
        let of_topic = || {
            if turns.len() >= BALANCED_TOPICS_MAX && !turns.contains_key(&topic) {
                // Forgetting where a topic was only makes it start over.
                turns.pop_first();
            }
            let turn = turns.entry(topic).or_default();
            *turn = turn.wrapping_add(1);
            u64::from(*turn)
        };
        let next = balanced::next(state.balanced, caller.to.request, hash, of_topic);
        state.balanced = Some(next);
        next.partition(caller.binding.client, partitions)
    }

    pub(super) fn poll(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        poll: &PollMessages<'_>,
    ) -> Step {
        let (stream, topic) = (poll.stream.to_identifier(), poll.topic.to_identifier());
        let (stream, topic) = match self.metadata.find_topic(&stream, &topic) {
            Ok(found) => found,
            Err(code) => return self.refuse(caller, known, code),
        };
        or_return!(self.authorise(caller, known, Action::PollMessages(stream.id, topic.id)));
        let partition = poll.partition.0;
        let (consumer, generation) = match poll.consumer.kind {
            ConsumerKind::Consumer => {
                (ConsumerKey::Consumer(poll.consumer.plain_number().unwrap_or(0)), 0)
            }
            ConsumerKind::Group => {
                or_return!(self.group_reader(caller, known, topic, poll, partition))
            }
        };
        let partition = partition.unwrap_or(PartitionId(0));
        let partition = match self.metadata.resolve_in(stream.id, topic, partition) {
            Ok(partition) => partition,
            Err(code) => return self.refuse(caller, known, code),
        };
        let start = match poll.strategy {
            PollingStrategy::Offset(offset) => PollStart::Offset(offset),
            PollingStrategy::Timestamp(time) => PollStart::Timestamp(time),
            PollingStrategy::First => PollStart::First,
            PollingStrategy::Last => PollStart::Last,
            PollingStrategy::Next => PollStart::Next,
        };
        let (count, auto_commit) = (poll.count, poll.auto_commit);
        let kind = LaneRequestKind::Poll { start, count, consumer, auto_commit, generation };
        Step::Lane(Box::new(LaneCall { caller: *caller, partition, kind }))
    }

    /// Whether the caller may read a partition for a group, and under which generation; if not, the
    /// answer that makes it ask for its assignment again.
    fn group_reader(
        &self,
        caller: &Caller,
        known: Known<'_>,
        topic: &Topic,
        poll: &PollMessages<'_>,
        partition: Option<PartitionId>,
    ) -> Result<(ConsumerKey, u64), Step> {
        let Some(group) = topic.find_group(&poll.consumer.id.to_identifier()) else {
            return Err(self.refuse(caller, known, ErrorCode::ConsumerGroupIdNotFound));
        };
        let Some(partition) = partition else {
            let (partition, current_offset) = (PartitionId(0), Offset::ZERO);
            let prefix = PollPrefix { partition, current_offset, messages_count: 0 };
            return Err(self.polled_nothing(caller, prefix));
        };
        match group.ownership(caller.consumer, partition) {
            Ownership::Owner => Ok((ConsumerKey::Group(group.id), group.generation)),
            _ if self.may_be_behind(known.certain) => Err(Step::AskCommit),
            Ownership::HandingOver | Ownership::NotOwner | Ownership::NotMember => {
                Err(self.polled_nothing(caller, PollPrefix::resync()))
            }
        }
    }

    fn polled_nothing(&self, caller: &Caller, prefix: PollPrefix) -> Step {
        let (session, commit) = (caller.binding.session, self.metadata.applied());
        Step::Answer(replies::polled(&caller.to, session, commit, prefix, Vec::new()))
    }
}
