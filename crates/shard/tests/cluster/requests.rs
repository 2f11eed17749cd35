//! What the clients of a world ask its nodes.

use crate::support::{OUTSIDE, Place, STREAM, model};
use crate::world::World;
use borzoi_metadata::{Change, Command};
use borzoi_shard::front::FrontMessage;
use borzoi_shard::lane::api::{
    ConsumerKey, LaneReply, LaneRequest, LaneRequestKind, Origin, PollStart, Refusal, Ticket,
};
use borzoi_shard::{Event, ShardMessage};
use borzoi_types::{Duration, LogId, Offset, PartitionId, ReplicaId, ShardId};
use borzoi_wire::{Identifier, Name};

impl World {
    /// Proposes a metadata command at the leader and waits until every running node has it.
    pub fn command(&mut self, change: Change) {
        let leader = self.leader(LogId::METADATA).expect("somebody leads metadata");
        let ticket = self.ticket();
        let body = Command::system(change).encode().into();
        let message = ShardMessage::Front(FrontMessage::Command { ticket, body });
        let event = Event::FromShard { from: OUTSIDE, message };
        let before = self.node(leader).shards[0].front().metadata().applied();
        self.inbox.push_back((leader, ShardId(0), event));
        let applied = |world: &Self| {
            let running = world.nodes.iter().filter(|node| node.running);
            running.flat_map(|node| &node.shards).all(|s| s.front().metadata().applied() > before)
        };
        assert!(self.until(Duration::from_secs(2), applied), "a command is applied everywhere");
        // Another operation may have come before it.
        self.pass(Duration::from_millis(100));
    }

    /// Where a partition of a topic lives, as the leader of metadata knows.
    pub fn place(&self, topic: &str, partition: u32) -> Place {
        let leader = self.leader(LogId::METADATA).expect("somebody leads metadata");
        let metadata = self.node(leader).shards[0].front().metadata();
        let stream = Identifier::Name(Name::new(STREAM).unwrap());
        let topic = Identifier::Name(Name::new(topic).unwrap());
        let found = metadata.resolve(&stream, &topic, PartitionId(partition)).expect("it exists");
        Place { key: found.key, lane: found.lane }
    }

    /// Submits a request to a node.
    pub fn submit(&mut self, node: ReplicaId, place: Place, kind: LaneRequestKind) -> Ticket {
        let ticket = self.ticket();
        let origin = Origin::here(OUTSIDE, ticket);
        let request = LaneRequest { origin, key: place.key, lane: place.lane, kind };
        let shard = place.lane.shard(self.node(node).options.shards);
        let message = ShardMessage::Lane(Box::new(request));
        self.inbox.push_back((node, shard, Event::FromShard { from: OUTSIDE, message }));
        ticket
    }

    /// Submits a request to the lane's leader and waits for the answer.
    pub fn ask(&mut self, place: Place, kind: LaneRequestKind) -> LaneReply {
        // A lead may be on its way to its preferred node.
        let led = |world: &Self| world.leader(place.lane).is_some();
        self.until(Duration::from_secs(5), led);
        let leader = self.leader(place.lane).expect("somebody leads the lane");
        let ticket = self.submit(leader, place, kind);
        self.until(Duration::from_secs(5), |world| world.replies.contains_key(&ticket));
        self.replies.remove(&ticket).expect("answered in time")
    }

    /// Submits a send of `count` new messages to the lane's leader.
    pub fn submit_send(&mut self, place: Place, count: usize, payload_bytes: usize) -> Ticket {
        self.submit_send_ids(place, count, payload_bytes).0
    }

    /// As [`Self::submit_send`], with the ids of the messages.
    pub fn submit_send_ids(
        &mut self,
        place: Place,
        count: usize,
        payload_bytes: usize,
    ) -> (Ticket, Vec<u128>) {
        let leader = self.leader(place.lane).expect("somebody leads the lane");
        let ids: Vec<u128> = (0..count as u128).map(|index| self.ids + 1 + index).collect();
        self.ids += count as u128;
        let batch = model::batch(&ids, payload_bytes);
        let count = u32::try_from(count).unwrap();
        let kind = LaneRequestKind::Send { batch, count, identity: None };
        (self.submit(leader, place, kind), ids)
    }

    /// Sends `count` new messages to the lane's leader; the offset of the first one.
    pub fn send(&mut self, place: Place, count: usize, payload_bytes: usize) -> Offset {
        let ticket = self.submit_send(place, count, payload_bytes);
        self.until(Duration::from_secs(5), |world| world.replies.contains_key(&ticket));
        match self.replies.remove(&ticket).expect("answered in time") {
            LaneReply::Sent { base_offset, .. } => base_offset,
            other => panic!("a send was answered {other:?}"),
        }
    }

    /// Everything the leader serves of a partition, as bytes.
    pub fn poll_all(&mut self, place: Place) -> (u32, Vec<u8>) {
        let consumer = ConsumerKey::Consumer(1);
        let (start, count, auto_commit) = (PollStart::First, 1_000_000, false);
        let generation = 0;
        for _ in 0..10 {
            let kind = LaneRequestKind::Poll { start, count, consumer, auto_commit, generation };
            match self.ask(place, kind) {
                LaneReply::Polled { count, batches, .. } => return (count, batches.concat()),
                LaneReply::Refused(Refusal::NotServing) => {} // The lead moved meanwhile.
                other => panic!("a poll was answered {other:?}"),
            }
        }
        panic!("nobody keeps the lead of {}", place.lane)
    }
}
