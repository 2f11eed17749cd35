//! Connections as clients see them (wire protocol, section 9.3).
//!
//! Each shard knows its own connections. A question about all of them asks the other shards of the
//! node and the other nodes, each of which asks its own shards, and is answered when everyone has
//! replied. A node that cannot be reached or takes too long is left out: its clients are missing
//! from the list, nothing else depends on it.
//!
//! Invariants: a question is answered once; whoever was asked is waited for once.

use super::command::Waiting;
use super::reads::or_return;
use super::request::{Caller, Known, Step};
use super::timers::Timer;
use super::{ClientSummary, Cx, Front, FrontMessage, replies};
use crate::event::{ConnectionId, Transport};
use crate::lane::api::Ticket;
use crate::peer::{Forwarded, Waiter};
use borzoi_metadata::Action;
use borzoi_types::{Duration, Mono, ReplicaId, ShardId};
use borzoi_wire::body::{
    self, ClientDetails, ClientGroup, ClientNumber, ClientRecord, SignedInUser,
};
use borzoi_wire::{Reply, Text};
use std::collections::BTreeSet;

/// How long other nodes may take to name their clients.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bits of a connection's number that name its node, in a cluster: rosters have up to 7 nodes.
const NODE_SHIFT: u32 = 28;

/// What is asked about connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// All of them.
    All,
    /// The one with this number.
    One(ClientNumber),
    /// Statistics, which count them; these counters were gathered before.
    Count(super::system::StatsSums),
}

/// Who asked.
#[derive(Clone, Copy, Debug)]
enum AskedBy {
    Client(Caller, Question),
    Peer(ReplicaId, Waiter),
}

/// Who was asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Asked {
    Shard(ShardId),
    Node(ReplicaId),
}

/// A question that waits for others.
#[derive(Debug)]
pub(crate) struct ClientsWait {
    by: AskedBy,
    outstanding: BTreeSet<Asked>,
    clients: Vec<ClientSummary>,
    due: Mono,
}

/// The number of a connection within its node: never 0, below `modulus + 1`.
fn number_within(connection: ConnectionId, modulus: u32) -> u32 {
    let number = connection.0 % u64::from(modulus);
    u32::try_from(number).expect("below a u32 by the modulo") + 1
}

const fn transport_to_wire(transport: Transport) -> body::Transport {
    match transport {
        Transport::Tcp => body::Transport::Tcp,
        Transport::Quic => body::Transport::Quic,
        Transport::Http => body::Transport::Http,
        Transport::WebSocket => body::Transport::WebSocket,
    }
}

impl Front {
    /// The connections of this shard.
    pub(super) fn client_summaries(&self) -> Vec<ClientSummary> {
        let open = self.connections.iter().filter(|(_, state)| !state.closing);
        open.map(|(connection, state)| ClientSummary {
            number: self.client_number(*connection),
            transport: state.transport,
            address: state.peer.clone(),
            signed_in: state.binding.map(|binding| (binding.client, binding.user)),
        })
        .collect()
    }

    /// The number of a connection that clients see: never 0, unique among live connections of the
    /// cluster.
    pub(super) fn client_number(&self, connection: ConnectionId) -> u32 {
        if self.options.replica_count == 1 {
            return number_within(connection, u32::MAX);
        }
        let of_node = u32::from(self.options.replica.get()) << NODE_SHIFT;
        of_node | number_within(connection, (1 << NODE_SHIFT) - 1)
    }

    pub(super) fn get_me(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetMe));
        let number = self.client_number(caller.place.connection);
        let summary = self.client_summaries().into_iter().find(|it| it.number == number);
        let details = summary.map(|summary| self.client_details(&summary));
        self.read_reply(caller, details.map_or(Reply::NotFound, Reply::Client))
    }

    pub(super) fn get_client(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        client: ClientNumber,
        cx: &mut Cx<'_>,
    ) -> Step {
        or_return!(self.authorise(caller, known, Action::GetClient));
        self.ask_clients(caller, Question::One(client), cx)
    }

    pub(super) fn get_clients(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        cx: &mut Cx<'_>,
    ) -> Step {
        or_return!(self.authorise(caller, known, Action::GetClients));
        self.ask_clients(caller, Question::All, cx)
    }

    /// Asks everyone else for their connections.
    pub(super) fn ask_clients(
        &mut self,
        caller: &Caller,
        question: Question,
        cx: &mut Cx<'_>,
    ) -> Step {
        let by = AskedBy::Client(*caller, question);
        match self.gather_clients(by, true, cx) {
            Some(wait) => self.clients_step(&wait, *caller, question),
            None => Step::Pending,
        }
    }

    /// Another node asks for the clients of this one.
    pub(super) fn clients_asked(&mut self, from: ReplicaId, waiter: Waiter, cx: &mut Cx<'_>) {
        if let Some(wait) = self.gather_clients(AskedBy::Peer(from, waiter), false, cx) {
            self.answer_clients(wait, cx);
        }
    }

    /// Asks everyone else; the answer at once if there is nobody.
    fn gather_clients(&mut self, by: AskedBy, nodes: bool, cx: &mut Cx<'_>) -> Option<ClientsWait> {
        let own = self.options.shard;
        let shards = (0..self.options.shards).map(ShardId).filter(|shard| *shard != own);
        let peers = self.peers().filter(|peer| nodes && self.peers_up.contains(peer));
        let outstanding: BTreeSet<Asked> =
            shards.map(Asked::Shard).chain(peers.map(Asked::Node)).collect();
        let clients = self.client_summaries();
        let due = cx.now.mono.plus(PATIENCE);
        let wait = ClientsWait { by, outstanding, clients, due };
        if wait.outstanding.is_empty() {
            return Some(wait);
        }
        let ticket = self.next_ticket();
        for asked in &wait.outstanding {
            match asked {
                Asked::Shard(shard) => cx.send_to(*shard, FrontMessage::AskClients { ticket }),
                Asked::Node(node) => {
                    let waiter = Waiter { shard: own, ticket };
                    cx.behind.forward(*node, Forwarded::AskClients { waiter }, cx.effects);
                    self.timers.set(due, Timer::Clients(ticket));
                }
            }
        }
        self.waiting.insert(ticket, Waiting::Clients(wait));
        None
    }

    pub(super) fn clients_arrived(
        &mut self,
        from: ShardId,
        ticket: Ticket,
        clients: Vec<ClientSummary>,
        cx: &mut Cx<'_>,
    ) {
        self.clients_named(Asked::Shard(from), ticket, clients, cx);
    }

    pub(super) fn peer_clients_arrived(
        &mut self,
        from: ReplicaId,
        ticket: Ticket,
        clients: Vec<ClientSummary>,
        cx: &mut Cx<'_>,
    ) {
        self.clients_named(Asked::Node(from), ticket, clients, cx);
    }

    fn clients_named(
        &mut self,
        by: Asked,
        ticket: Ticket,
        clients: Vec<ClientSummary>,
        cx: &mut Cx<'_>,
    ) {
        let Some(Waiting::Clients(wait)) = self.waiting.get_mut(&ticket) else { return };
        if !wait.outstanding.remove(&by) {
            return;
        }
        wait.clients.extend(clients);
        if wait.outstanding.is_empty() {
            self.end_clients(ticket, cx);
        }
    }

    /// Other nodes took too long: their clients are left out. The own shards always answer.
    pub(super) fn clients_due(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        self.clients_missing(ticket, |asked| matches!(asked, Asked::Node(_)), cx);
    }

    /// A node cannot be reached any more.
    pub(super) fn clients_of_peer_missing(&mut self, peer: ReplicaId, cx: &mut Cx<'_>) {
        let asked = self.waiting.iter().filter(|(_, waiting)| match waiting {
            Waiting::Clients(wait) => wait.outstanding.contains(&Asked::Node(peer)),
            _ => false,
        });
        let asked: Vec<Ticket> = asked.map(|(ticket, _)| *ticket).collect();
        for ticket in asked {
            self.clients_missing(ticket, |asked| asked == Asked::Node(peer), cx);
        }
    }

    fn clients_missing(&mut self, ticket: Ticket, gone: impl Fn(Asked) -> bool, cx: &mut Cx<'_>) {
        let Some(Waiting::Clients(wait)) = self.waiting.get_mut(&ticket) else { return };
        wait.outstanding.retain(|asked| !gone(*asked));
        if wait.outstanding.is_empty() {
            self.end_clients(ticket, cx);
        }
    }

    fn end_clients(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        if let Some(Waiting::Clients(wait)) = self.waiting.remove(&ticket) {
            self.timers.cancel(wait.due, Timer::Clients(ticket));
            self.answer_clients(wait, cx);
        }
    }

    fn answer_clients(&mut self, wait: ClientsWait, cx: &mut Cx<'_>) {
        match wait.by {
            AskedBy::Client(caller, question) => {
                let step = self.clients_step(&wait, caller, question);
                self.finish_step(caller.place, step, cx);
            }
            AskedBy::Peer(peer, waiter) => {
                let answer = Forwarded::Clients { waiter, clients: wait.clients };
                cx.behind.forward(peer, answer, cx.effects);
            }
        }
    }

    fn clients_step(&self, wait: &ClientsWait, caller: Caller, question: Question) -> Step {
        let mut clients: Vec<&ClientSummary> = wait.clients.iter().collect();
        clients.sort_by_key(|client| client.number);
        let reply = match question {
            Question::All => {
                Reply::Clients(clients.iter().map(|it| self.client_record(it)).collect())
            }
            Question::One(number) => {
                let found = clients.iter().find(|client| client.number == number.0);
                found.map_or(Reply::NotFound, |it| Reply::Client(self.client_details(it)))
            }
            Question::Count(sums) => self.stats(sums, clients.len()),
        };
        let (session, commit) = (caller.binding.session, self.metadata.applied());
        Step::Answer(replies::read(&caller.to, session, commit, reply))
    }

    fn client_record(&self, client: &ClientSummary) -> ClientRecord {
        let user = client.signed_in.and_then(|(_, user)| self.metadata.user(user));
        ClientRecord {
            client: ClientNumber(client.number),
            user: SignedInUser(user.map(|user| user.id)),
            transport: transport_to_wire(client.transport),
            address: Text(client.address.clone()),
            groups_count: u32::try_from(self.client_groups(client).len()).unwrap_or(u32::MAX),
        }
    }

    fn client_details(&self, client: &ClientSummary) -> ClientDetails {
        ClientDetails { client: self.client_record(client), groups: self.client_groups(client) }
    }

    fn client_groups(&self, client: &ClientSummary) -> Vec<ClientGroup> {
        let session = client.signed_in.and_then(|(id, _)| self.metadata.sessions().get(id));
        let keys = session.into_iter().flat_map(|session| &session.groups);
        let places = keys.filter_map(|key| self.metadata.group(*key).map(|(place, _)| place));
        places
            .map(|place| ClientGroup {
                stream: place.stream,
                topic: place.topic,
                group: place.group,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_numbers_are_never_zero() {
        let number = |connection| number_within(ConnectionId(connection), u32::MAX);
        assert_eq!(number(0), 1);
        assert_eq!(number(1), 2);
        assert_eq!(number(u64::from(u32::MAX) - 1), u32::MAX);
        assert_eq!(number(u64::from(u32::MAX)), 1);
        assert_ne!(number(u64::MAX), 0);
    }

    #[test]
    fn client_numbers_of_two_nodes_never_meet() {
        let below = 1 << NODE_SHIFT;
        for connection in [0, 1, u64::from(below) - 2, u64::from(below) - 1, u64::MAX] {
            let number = number_within(ConnectionId(connection), below - 1);
            assert!(number > 0 && number < below, "{connection}");
        }
    }
}
