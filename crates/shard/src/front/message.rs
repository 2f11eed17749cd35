//! What the fronts of one node tell each other.
//!
//! Messages between two shards arrive in the order they were sent. So whoever hears from shard 0
//! that something is committed has applied it: the feed came before on the same way.

use crate::event::Transport;
use crate::lane::api::Ticket;
use borzoi_metadata::UserKey;
use borzoi_types::{ClientId, Micros, Op};
use bytes::Bytes;

/// Between the fronts of one node.
#[derive(Debug)]
pub enum FrontMessage {
    /// From shard 0: the whole metadata state. The first message of the feed.
    Snapshot {
        /// Encoded as in a checkpoint.
        state: Bytes,
    },
    /// From shard 0: the next committed metadata operation, in commit order.
    Committed {
        /// Its position.
        op: Op,
        /// Its commit time.
        timestamp: Micros,
        /// The encoded command; empty for an operation that only moves the position.
        body: Bytes,
        /// The receiver's number for it, if the receiver asked for it.
        ticket: Option<Ticket>,
    },
    /// To shard 0: propose this command for a request of the sender. Answered by the operation
    /// itself in the feed, or by [`FrontMessage::CommandRefused`].
    Command {
        /// The sender's number for it.
        ticket: Ticket,
        /// The encoded command.
        body: Bytes,
    },
    /// From shard 0: the command was not executed here.
    CommandRefused {
        /// The receiver's number for it.
        ticket: Ticket,
        /// Whether it never will be. False: another primary may have committed it.
        certain: bool,
    },
    /// From shard 0: whether its metadata log serves. What it had committed came before.
    Serving(bool),
    /// To shard 0: how far is metadata committed?
    AskCommit,
    /// From shard 0: metadata is committed up to here; the feed has delivered all of it before.
    CommitIs {
        /// The commit position; none while shard 0 does not serve metadata.
        op: Option<Op>,
    },
    /// Which clients are connected to you? Answered with [`FrontMessage::Clients`].
    AskClients {
        /// The sender's number for the question.
        ticket: Ticket,
    },
    /// The client records of one shard.
    Clients {
        /// The receiver's number for the question.
        ticket: Ticket,
        /// Its connections.
        clients: Vec<ClientSummary>,
    },
}

/// One connection, as its shard describes it to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientSummary {
    /// Its number among the connections of the node.
    pub number: u32,
    /// How it is connected.
    pub transport: Transport,
    /// Address of the peer.
    pub address: String,
    /// Who is signed in: identity and user.
    pub signed_in: Option<(ClientId, UserKey)>,
}
