//! The cluster as clients see it, and where their consumers should go (wire protocol, sections 4.8,
//! 4.9 and 9.4).
//!
//! A client that wants to poll where a partition is led asks for the route, opens a second
//! connection there, attaches it to its session and polls on it. A route is a hint: a poll at the
//! wrong node is forwarded like any other request.

use super::reads::or_return;
use super::request::{Caller, Known, Step};
use super::{AdvertisedNode, Front};
use borzoi_metadata::{Action, Resolved};
use borzoi_types::{LogId, PartitionId, ReplicaId};
use borzoi_wire::body::{
    AttachRecord, ClusterMetadata, ClusterNode, GetConsumerOffset, NodeRole, NodeStatus,
    PollMessages, Routing,
};
use borzoi_wire::{ErrorCode, Reply, Text};

impl Front {
    pub(super) fn get_cluster_metadata(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetClusterMetadata));
        let name = Text(self.options.cluster_name.clone());
        let nodes = match self.options.roster.as_slice() {
            [] => vec![self.node_record(self.options.replica, &self.options.node)],
            roster => {
                let all = (0..).map(ReplicaId).zip(roster);
                all.map(|(replica, node)| self.node_record(replica, node)).collect()
            }
        };
        self.read_reply(caller, Reply::ClusterMetadata(ClusterMetadata { name, nodes }))
    }

    fn node_record(&self, replica: ReplicaId, node: &AdvertisedNode) -> ClusterNode {
        let own = replica == self.options.replica;
        let alone = self.options.replica_count == 1;
        let leads = alone || self.leaders.get(&LogId::METADATA) == Some(&replica);
        let status = if own && self.stopping {
            NodeStatus::Stopping
        } else if own || self.peers_up.contains(&replica) {
            NodeStatus::Healthy
        } else {
            NodeStatus::Unreachable
        };
        ClusterNode {
            name: Text(node.name.clone()),
            address: Text(node.address.clone()),
            tcp: node.tcp,
            quic: node.quic,
            http: node.http,
            websocket: node.websocket,
            role: if leads { NodeRole::Leader } else { NodeRole::Follower },
            status,
        }
    }

    /// Where to poll a partition.
    pub(super) fn poll_routing(
        &self,
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
        let partition = poll.partition.0.unwrap_or(PartitionId(0));
        match self.metadata.resolve_in(stream.id, topic, partition) {
            Ok(partition) => self.route_to(caller, &partition),
            Err(code) => self.refuse(caller, known, code),
        }
    }

    /// Where to read and write the offsets of a partition.
    pub(super) fn offset_routing(
        &self,
        caller: &Caller,
        known: Known<'_>,
        request: &GetConsumerOffset<'_>,
    ) -> Step {
        let (stream, topic) = (request.stream.to_identifier(), request.topic.to_identifier());
        let (stream, topic) = match self.metadata.find_topic(&stream, &topic) {
            Ok(found) => found,
            Err(code) => return self.refuse(caller, known, code),
        };
        or_return!(self.authorise(caller, known, Action::GetConsumerOffset(stream.id, topic.id)));
        let partition = request.partition.0.unwrap_or(PartitionId(0));
        match self.metadata.resolve_in(stream.id, topic, partition) {
            Ok(partition) => self.route_to(caller, &partition),
            Err(code) => self.refuse(caller, known, code),
        }
    }

    fn route_to(&self, caller: &Caller, partition: &Resolved) -> Step {
        let alone = self.options.replica_count == 1;
        let leader = if alone {
            Some(self.options.replica)
        } else {
            self.leaders.get(&partition.lane).copied()
        };
        let Some(leader) = leader else {
            // Between two leaders: the client asks again in a moment.
            return self.transient(&caller.to, ErrorCode::TransientNotAccepted);
        };
        let node = self.options.roster.get(usize::from(leader.get()));
        let node = node.unwrap_or(&self.options.node);
        let attach = AttachRecord {
            client: caller.binding.client,
            session: caller.binding.session,
            metadata_watermark: self.metadata.applied(),
        };
        let node = self.node_record(leader, node);
        self.read_reply(caller, Reply::Routing(Routing { attach, node }))
    }

    /// From now on the consumer work of this connection is that of another session of its user.
    pub(super) fn attach(&mut self, caller: &Caller, known: Known<'_>, to: &AttachRecord) -> Step {
        if to.metadata_watermark > self.metadata.applied() {
            return Step::Await(to.metadata_watermark);
        }
        let session = self.metadata.sessions().get(to.client);
        let held = session.is_some_and(|session| {
            session.session == to.session && session.user == caller.binding.user
        });
        if !held {
            return self.refuse(caller, known, ErrorCode::InvalidSession);
        }
        if let Some(state) = self.connections.get_mut(&caller.place.connection) {
            state.attached = Some(to.client);
        }
        self.read_reply(caller, Reply::Empty)
    }
}
