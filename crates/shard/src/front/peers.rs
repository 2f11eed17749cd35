//! Other nodes, as the front sees them: who leads what, who can be reached, what they say.
//!
//! Invariant: what other nodes tell about leaders and links is a hint for where to ask; nothing is
//! answered from it.

use super::relay::Questioner;
use super::{Cx, Front};
use crate::event::{ClientTrouble, ConnectionId, LogLevel};
use crate::peer::Forwarded;
use borzoi_metadata::{Change, ClosedConnection};
use borzoi_types::limits::{HEARTBEAT_SECONDS_MAX, HOUSEKEEPING_ENTRIES_MAX};
use borzoi_types::{Duration, LogId, ReplicaId};
use borzoi_wire::frame::EvictionReason;

/// How long a node is out of reach before its clients count as gone: as long as a member of a group
/// may be silent.
const AWAY_AFTER: Duration = Duration::from_secs(HEARTBEAT_SECONDS_MAX);

impl Front {
    /// The other nodes of the cluster, in order.
    pub(super) fn peers(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let own = self.options.replica;
        (0..self.options.replica_count).map(ReplicaId).filter(move |peer| *peer != own)
    }

    /// The link with `peer` came up or went down.
    pub(super) fn peer_link(&mut self, peer: ReplicaId, up: bool, cx: &mut Cx<'_>) {
        if up {
            self.peers_up.insert(peer);
            self.away_since.remove(&peer);
        } else {
            self.peers_up.remove(&peer);
            self.away_since.entry(peer).or_insert(cx.now.mono);
            self.clients_of_peer_missing(peer, cx);
        }
        self.metadata_leader_changed(cx);
    }

    /// Somebody else leads a log.
    pub(super) fn leader_is(&mut self, log: LogId, leader: Option<ReplicaId>, cx: &mut Cx<'_>) {
        match leader {
            Some(leader) => self.leaders.insert(log, leader),
            None => self.leaders.remove(&log),
        };
        if log.is_metadata() {
            self.metadata_leader_changed(cx);
        }
    }

    /// Another node's front says something.
    pub(super) fn forwarded(&mut self, from: ReplicaId, message: Forwarded, cx: &mut Cx<'_>) {
        match message {
            Forwarded::Command { waiter, body } => self.command_arrived(from, waiter, body, cx),
            Forwarded::CommandRefused { waiter, certain } => {
                self.relayed_refused(waiter.ticket, certain, cx);
            }
            Forwarded::AskCommit { waiter } => {
                self.question(Questioner::Peer(from, waiter), cx);
            }
            Forwarded::CommitIs { waiter, op } => self.commit_told(from, waiter.ticket, op, cx),
            Forwarded::AskClients { waiter } => self.clients_asked(from, waiter, cx),
            Forwarded::Clients { waiter, clients } => {
                self.peer_clients_arrived(from, waiter.ticket, clients, cx);
            }
            Forwarded::Lane { .. }
            | Forwarded::LaneReply { .. }
            | Forwarded::AskFigures { .. }
            | Forwarded::Figures { .. } => panic!("the back deals with {message:?}"),
        }
    }

    /// The metadata primary: connections of nodes that have been away for too long are gone.
    pub(super) fn disconnect_away_nodes(&mut self, cx: &mut Cx<'_>) {
        for peer in self.peers() {
            if self.peers_up.contains(&peer) {
                continue;
            }
            let since = *self.away_since.entry(peer).or_insert(cx.now.mono);
            if cx.now.mono.since(since) < AWAY_AFTER {
                continue;
            }
            let held = self.metadata.sessions().iter().filter_map(|session| {
                let connection = session.connection.filter(|it| it.replica == peer)?;
                Some(ClosedConnection { client: session.client, connection })
            });
            let closed: Vec<ClosedConnection> = held.take(HOUSEKEEPING_ENTRIES_MAX).collect();
            if !closed.is_empty() {
                self.keep_house(Change::ConnectionsClosed(closed), cx);
            }
        }
    }

    /// The log says that connections are gone. Those that are still here belong to a node that was
    /// away for too long: this one. Their clients sign in anew.
    pub(super) fn close_written_off(&mut self, closed: &[ClosedConnection], cx: &mut Cx<'_>) {
        for ClosedConnection { client, connection } in closed {
            let id = ConnectionId(connection.number);
            if self.stamp(id) != *connection {
                continue;
            }
            let binding = self.connections.get(&id).and_then(|state| state.binding);
            if let Some(binding) = binding.filter(|binding| binding.client == *client) {
                let trouble = ClientTrouble::SessionEnded(binding.session);
                self.log_of(id, LogLevel::Info, trouble, cx);
                self.evict(id, binding, EvictionReason::NoSession, cx);
            }
        }
    }
}
