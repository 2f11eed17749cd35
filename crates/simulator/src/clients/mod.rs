//! The border between the world and its clients.
//!
//! The world delivers [`ClientInput`]s; a client answers with actions on its [`Port`]. A client is
//! a plain state machine on true simulated time: no clock, no randomness but the dice it was made
//! with. Bytes travel on simulated sockets: in order, with delays, until one side closes; a closed
//! socket may swallow what was on its way.

mod answer;
pub mod habits;
pub mod machine;
mod pending;
mod signing_in;

use crate::coverage::Coverage;
use crate::history::History;
use borzoi_types::Mono;
use bytes::Bytes;

/// One connection as its client sees it. Never reused within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SocketId(pub u64);

/// What is expected of clients now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Do the work of the run. Done when the client has done its share.
    Work,
    /// Begin nothing new; finish what is under way. Done when nothing is.
    Finish,
    /// All faults are over. Write once more, read everything there is from each of these nodes.
    /// Done when that has succeeded.
    Final {
        /// The nodes that must serve.
        nodes: Vec<usize>,
    },
}

/// Something that happened to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientInput {
    /// A connection that the client asked for is open.
    Connected(SocketId),
    /// One whole frame from the server.
    Frame {
        /// On which connection.
        socket: SocketId,
        /// Header and body.
        bytes: Bytes,
    },
    /// The connection is gone, or never came to be. Nothing more comes from it.
    Closed(SocketId),
    /// The client's own deadline has come. Spurious ticks do no harm.
    Tick,
    /// The run enters another phase. The first is [`Phase::Work`].
    Phase(Phase),
}

/// Something a client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientAction {
    /// Open a connection to a node.
    Connect {
        /// Its name from now on.
        socket: SocketId,
        /// Which node, below [`Port::nodes`].
        node: usize,
    },
    /// Send one whole frame.
    Send {
        /// On which connection.
        socket: SocketId,
        /// Header and body.
        bytes: Bytes,
    },
    /// Close the connection. Nothing comes from it any more.
    Close {
        /// Which one.
        socket: SocketId,
    },
}

/// A client's hands during one call of [`Client::handle`].
pub struct Port<'a> {
    /// True simulated time.
    pub now: Mono,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Where calls and answers are written down.
    pub history: &'a mut History,
    /// Where operations and rare branches are counted.
    pub coverage: &'a mut Coverage,
    pub(crate) actions: Vec<ClientAction>,
    pub(crate) next_socket: &'a mut u64,
}

impl Port<'_> {
    /// Opens a connection to `node`; [`ClientInput::Connected`] or [`ClientInput::Closed`] follows.
    pub fn connect(&mut self, node: usize) -> SocketId {
        assert!(node < self.nodes, "there is no node {node}");
        *self.next_socket += 1;
        let socket = SocketId(*self.next_socket);
        self.actions.push(ClientAction::Connect { socket, node });
        socket
    }

    /// Sends one whole frame.
    pub fn send(&mut self, socket: SocketId, bytes: Bytes) {
        self.actions.push(ClientAction::Send { socket, bytes });
    }

    /// Closes a connection.
    pub fn close(&mut self, socket: SocketId) {
        self.actions.push(ClientAction::Close { socket });
    }
}

/// One simulated client.
pub trait Client {
    /// Takes one input.
    fn handle(&mut self, input: ClientInput, port: &mut Port<'_>);

    /// When the next [`ClientInput::Tick`] is wanted.
    fn deadline(&self) -> Option<Mono>;

    /// Whether nothing is left to do in this phase.
    fn is_done(&self) -> bool;

    /// What it is doing, for the report of a failure.
    fn describe(&self) -> String;
}
