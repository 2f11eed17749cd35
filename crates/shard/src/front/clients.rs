//! Connections as clients see them (wire protocol, section 9.3).
//!
//! Each shard knows its own connections. A question about all of them asks the other shards and is
//! answered when every one has replied.

use super::command::Waiting;
use super::reads::or_return;
use super::request::{Caller, Known, Step};
use super::{ClientSummary, Cx, Front, FrontMessage, replies};
use crate::event::{ConnectionId, Transport};
use crate::lane::api::Ticket;
use borzoi_metadata::Action;
use borzoi_types::ShardId;
use borzoi_wire::body::{
    self, ClientDetails, ClientGroup, ClientNumber, ClientRecord, SignedInUser,
};
use borzoi_wire::{Reply, Text};

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

/// A question that waits for the other shards.
#[derive(Debug)]
pub(crate) struct ClientsWait {
    caller: Caller,
    question: Question,
    outstanding: usize,
    clients: Vec<ClientSummary>,
}

/// The number of a connection that clients see: never 0, unique among live connections.
pub(crate) fn client_number(connection: ConnectionId) -> u32 {
    let number = connection.0 % u64::from(u32::MAX);
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
            number: client_number(*connection),
            transport: state.transport,
            address: state.peer.clone(),
            signed_in: state.binding.map(|binding| (binding.client, binding.user)),
        })
        .collect()
    }

    pub(super) fn get_me(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetMe));
        let number = client_number(caller.place.connection);
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

    /// Asks all other shards for their connections.
    pub(super) fn ask_clients(
        &mut self,
        caller: &Caller,
        question: Question,
        cx: &mut Cx<'_>,
    ) -> Step {
        let own = self.options.shard;
        let others: Vec<ShardId> =
            (0..self.options.shards).map(ShardId).filter(|shard| *shard != own).collect();
        let clients = self.client_summaries();
        let wait = ClientsWait { caller: *caller, question, outstanding: others.len(), clients };
        if others.is_empty() {
            return self.answer_clients(&wait);
        }
        let ticket = self.next_ticket();
        self.waiting.insert(ticket, Waiting::Clients(wait));
        for shard in others {
            cx.send_to(shard, FrontMessage::AskClients { ticket });
        }
        Step::Pending
    }

    pub(super) fn clients_arrived(
        &mut self,
        ticket: Ticket,
        clients: Vec<ClientSummary>,
        cx: &mut Cx<'_>,
    ) {
        let Some(Waiting::Clients(wait)) = self.waiting.get_mut(&ticket) else { return };
        wait.clients.extend(clients);
        wait.outstanding -= 1;
        if wait.outstanding > 0 {
            return;
        }
        if let Some(Waiting::Clients(wait)) = self.waiting.remove(&ticket) {
            let step = self.answer_clients(&wait);
            self.finish_step(wait.caller.place, step, cx);
        }
    }

    fn answer_clients(&self, wait: &ClientsWait) -> Step {
        let mut clients: Vec<&ClientSummary> = wait.clients.iter().collect();
        clients.sort_by_key(|client| client.number);
        let reply = match wait.question {
            Question::All => {
                Reply::Clients(clients.iter().map(|it| self.client_record(it)).collect())
            }
            Question::One(number) => {
                let found = clients.iter().find(|client| client.number == number.0);
                found.map_or(Reply::NotFound, |it| Reply::Client(self.client_details(it)))
            }
            Question::Count(sums) => self.stats(sums, clients.len()),
        };
        let (session, commit) = (wait.caller.binding.session, self.metadata.applied());
        Step::Answer(replies::read(&wait.caller.to, session, commit, reply))
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
        assert_eq!(client_number(ConnectionId(0)), 1);
        assert_eq!(client_number(ConnectionId(1)), 2);
        assert_eq!(client_number(ConnectionId(u64::from(u32::MAX) - 1)), u32::MAX);
        assert_eq!(client_number(ConnectionId(u64::from(u32::MAX))), 1);
        assert_ne!(client_number(ConnectionId(u64::MAX)), 0);
    }
}
