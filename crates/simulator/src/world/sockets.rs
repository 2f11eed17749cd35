//! Connections between clients and nodes: in order, late, and gone with their process.

use crate::clients::{ClientAction, ClientInput, Port, SocketId};
use crate::world::World;
use crate::world::queue::{Happening, Place};
use borzoi_shard::event::CloseReason;
use borzoi_shard::{ConnectionId, Event, Transport};
use borzoi_types::{Duration, Mono};
use bytes::{Bytes, BytesMut};

/// One connection. Its number at the server is its number here.
#[derive(Debug)]
pub(crate) struct Socket {
    client: usize,
    node: usize,
    /// Where it ends, once it is accepted.
    place: Option<Place>,
    /// The last byte to the client arrives then.
    to_client: Mono,
    /// The last byte to the server arrives then.
    to_server: Mono,
    server_closed: bool,
    client_closed: bool,
}

impl World {
    /// Hands an input to a client and executes what it does.
    pub(crate) fn client_input(&mut self, client: usize, input: ClientInput) {
        let mut port = Port {
            now: self.now,
            nodes: self.nodes.len(),
            history: &mut self.history,
            coverage: &mut self.coverage,
            actions: Vec::new(),
            next_socket: &mut self.next_socket,
        };
        self.clients[client].handle(input, &mut port);
        for action in port.actions {
            self.client_action(client, action);
        }
        let deadline = self.clients[client].deadline();
        if deadline != self.client_ticks[client] {
            self.client_ticks[client] = deadline;
            if let Some(at) = deadline {
                let at = at.max(self.now.plus(Duration(1)));
                self.queue.at(at, Happening::ClientTick(client, at));
                self.client_ticks[client] = Some(at);
            }
        }
    }

    pub(crate) fn client_tick(&mut self, client: usize, at: Mono) {
        if self.client_ticks[client] == Some(at) {
            self.client_ticks[client] = None;
            self.client_input(client, ClientInput::Tick);
        }
    }

    fn client_action(&mut self, client: usize, action: ClientAction) {
        match action {
            ClientAction::Connect { socket, node } => {
                let (to_client, to_server) = (self.now, self.now);
                let fresh = Socket {
                    client,
                    node,
                    place: None,
                    to_client,
                    to_server,
                    server_closed: false,
                    client_closed: false,
                };
                self.sockets.insert(socket, fresh);
                self.towards_server(socket, Happening::Connect(socket));
            }
            ClientAction::Send { socket, bytes } => {
                self.towards_server(socket, Happening::ToServer(socket, bytes));
            }
            ClientAction::Close { socket } => {
                if let Some(known) = self.sockets.get_mut(&socket) {
                    known.client_closed = true;
                    self.towards_server(socket, Happening::CloseServer(socket));
                }
            }
        }
    }

    fn towards_server(&mut self, socket: SocketId, happening: Happening) {
        let delay = self.profile.client_delay.draw(&mut self.dice);
        let Some(known) = self.sockets.get_mut(&socket) else { return };
        let at = known.to_server.max(self.now.plus(Duration::from_micros(delay)));
        known.to_server = at;
        self.queue.at(at, happening);
    }

    fn towards_client(&mut self, socket: SocketId, happening: Happening) {
        let delay = self.profile.client_delay.draw(&mut self.dice);
        let Some(known) = self.sockets.get_mut(&socket) else { return };
        let at = known.to_client.max(self.now.plus(Duration::from_micros(delay)));
        known.to_client = at;
        self.queue.at(at, happening);
    }

    pub(crate) fn connect_arrives(&mut self, socket: SocketId) {
        let Some(known) = self.sockets.get(&socket) else { return };
        let (node, client) = (known.node, known.client);
        let life = self.nodes[node].life;
        let Some(process) = self.nodes[node].process.as_ref().filter(|p| !p.stopping) else {
            return self.towards_client(socket, Happening::CloseClient(socket));
        };
        let shard = self.dice.index(process.cores.len());
        let place = Place { node, life, shard };
        self.sockets.get_mut(&socket).expect("just seen").place = Some(place);
        let connection = ConnectionId(socket.0);
        let peer =
            format!("10.0.{}.{}:{}", client / 200, 1 + client % 200, 1_024 + socket.0 % 60_000);
        self.push(place, Event::ConnectionOpened { connection, peer, transport: Transport::Tcp });
        self.towards_client(socket, Happening::Connected(socket));
    }

    pub(crate) fn bytes_arrive(&mut self, socket: SocketId, bytes: &Bytes) {
        let Some(known) = self.sockets.get(&socket).filter(|known| !known.server_closed) else {
            return;
        };
        let Some(place) = known.place else { return };
        let (connection, frame) = (ConnectionId(socket.0), BytesMut::from(&bytes[..]));
        self.push(place, Event::Frame { connection, frame });
    }

    pub(crate) fn close_arrives(&mut self, socket: SocketId) {
        let Some(known) = self.sockets.remove(&socket) else { return };
        if let Some(place) = known.place.filter(|_| !known.server_closed) {
            self.push(place, Event::ConnectionClosed { connection: ConnectionId(socket.0) });
        }
    }

    /// The server sends a frame.
    pub(crate) fn reply(&mut self, connection: ConnectionId, parts: &[Bytes]) {
        let socket = SocketId(connection.0);
        let open = self.sockets.get(&socket).is_some_and(|known| !known.server_closed);
        if open {
            let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
            parts.iter().for_each(|part| all.extend_from_slice(part));
            self.towards_client(socket, Happening::ToClient(socket, all.freeze()));
        }
    }

    /// The server closes a connection.
    pub(crate) fn server_closes(&mut self, connection: ConnectionId, _reason: CloseReason) {
        let socket = SocketId(connection.0);
        let Some(known) = self.sockets.get_mut(&socket).filter(|known| !known.server_closed) else {
            return;
        };
        known.server_closed = true;
        if let Some(place) = known.place {
            self.push(place, Event::ConnectionClosed { connection });
        }
        self.towards_client(socket, Happening::CloseClient(socket));
    }

    /// The process of `node` is gone, and its connections with it. After a power cut nobody says
    /// so for a while.
    pub(crate) fn cut_sockets(&mut self, node: usize, silent: bool) {
        let here: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, known)| known.place.is_some_and(|place| place.node == node))
            .map(|(socket, _)| *socket)
            .collect();
        for socket in here {
            let known = self.sockets.get_mut(&socket).expect("just listed");
            known.server_closed = true;
            if silent {
                let silence = Duration::from_millis(self.dice.below(2_000));
                known.to_client = known.to_client.max(self.now.plus(silence));
            }
            self.towards_client(socket, Happening::CloseClient(socket));
        }
    }

    /// Every connection of one client breaks; both sides learn it.
    pub(crate) fn cut_client(&mut self, client: usize) {
        let here: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, known)| known.client == client && !known.server_closed)
            .map(|(socket, _)| *socket)
            .collect();
        for socket in here {
            let known = self.sockets.get_mut(&socket).expect("just listed");
            known.server_closed = true;
            let place = known.place;
            if let Some(place) = place {
                self.push(place, Event::ConnectionClosed { connection: ConnectionId(socket.0) });
            }
            self.towards_client(socket, Happening::CloseClient(socket));
        }
    }

    pub(crate) fn deliver_to_client(&mut self, socket: SocketId, happening: Happening) {
        let Some(known) = self.sockets.get(&socket) else { return };
        let (client, closed) = (known.client, known.client_closed);
        let input = match happening {
            Happening::Connected(socket) => ClientInput::Connected(socket),
            Happening::ToClient(socket, bytes) => ClientInput::Frame { socket, bytes },
            _ => {
                self.sockets.remove(&socket);
                ClientInput::Closed(socket)
            }
        };
        if !closed {
            self.client_input(client, input);
        }
    }
}
