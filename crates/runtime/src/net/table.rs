//! The connections of one shard.
//!
//! Invariant: every connection that was opened towards the core is closed towards it exactly
//! once, by its own task, whoever ended it.

use super::buffers::Buffers;
use super::connection::{Connection, EndReason};
use super::receive::Receiver;
use crate::budget::Budgets;
use crate::clock::Clock;
use crate::figures::{ShellCounters, count};
use crate::inbox::{Inbox, NewConnection};
use borzoi_shard::event::CloseReason;
use borzoi_shard::{ConnectionId, Event, Transport};
use borzoi_types::limits::{INGEST_BYTES_PER_SHARD_MAX, INGEST_SMALL_BYTES_PER_SHARD_MAX};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Time to send what is queued when the server closes a connection.
const FAREWELL: Duration = Duration::from_secs(2);
/// Time to let the peer read it, before the kernel may throw it away with the socket.
const LINGER: Duration = Duration::from_millis(500);

/// What the tasks of connections share with the loop.
pub struct Ports {
    /// Events for the loop, in order of arrival.
    pub events: RefCell<VecDeque<Event>>,
    /// The loop's bell.
    pub inbox: Arc<Inbox>,
    /// Bytes that may be accepted.
    pub ingest: Rc<Budgets>,
    /// What is counted here.
    pub counters: Arc<ShellCounters>,
    clock: Clock,
    buffers: RefCell<Buffers>,
    connections: RefCell<BTreeMap<ConnectionId, Rc<Connection>>>,
}

impl Ports {
    /// The connection of this number, while it lives.
    pub fn connection(&self, id: ConnectionId) -> Option<Rc<Connection>> {
        self.connections.borrow().get(&id).cloned()
    }

    /// Writes what the socket takes now; whether everything is written. Tells the core when the
    /// client has taken much.
    fn write(&self, connection: &Connection) -> io::Result<bool> {
        let mut output = connection.output.borrow_mut();
        let done = output.write(&connection.socket, self.clock.mono());
        count(&self.counters.bytes_sent, output.take_written());
        if output.is_taken() && connection.is_open.get() {
            self.deliver(Event::OutputTaken { connection: connection.id });
        }
        done
    }

    fn deliver(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.inbox.ring();
    }
}

/// The loop's side of the table.
pub struct Connections {
    ports: Rc<Ports>,
    /// Connections with replies of this turn.
    fresh: Vec<Rc<Connection>>,
}

impl Connections {
    /// No connections.
    #[must_use]
    pub fn new(inbox: Arc<Inbox>, clock: Clock, counters: Arc<ShellCounters>) -> Self {
        let ports = Ports {
            events: RefCell::default(),
            inbox,
            ingest: Budgets::new(INGEST_SMALL_BYTES_PER_SHARD_MAX, INGEST_BYTES_PER_SHARD_MAX),
            counters,
            clock,
            buffers: RefCell::default(),
            connections: RefCell::default(),
        };
        Self { ports: Rc::new(ports), fresh: Vec::new() }
    }

    /// What the loop shares with the tasks.
    #[must_use]
    pub fn ports(&self) -> &Rc<Ports> {
        &self.ports
    }

    /// Takes over an accepted connection: from now on its frames arrive as events.
    pub fn open(&mut self, new: NewConnection) {
        let socket = match TcpStream::from_std(new.socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(peer = %new.peer, %error, "connection lost before it began");
                return;
            }
        };
        let (id, now) = (ConnectionId(new.number), self.ports.clock.mono());
        let connection = Connection::new(id, new.peer, socket, new.pass, now);
        let before = self.ports.connections.borrow_mut().insert(id, connection.clone());
        assert!(before.is_none(), "connection numbers are never reused");
        tracing::debug!(connection = id.0, peer = %new.peer, "connected");
        let peer = new.peer.to_string();
        count(&self.ports.counters.connections_opened, 1);
        self.ports.deliver(Event::ConnectionOpened {
            connection: id,
            peer,
            transport: Transport::Tcp,
        });
        tokio::task::spawn_local(serve(connection, self.ports.clone()));
    }

    /// Queues a reply; it leaves with [`Connections::flush`]. Gives the request's charge back.
    pub fn reply(&mut self, id: ConnectionId, parts: Vec<Bytes>) {
        let Some(connection) = self.ports.connection(id) else {
            return; // It ended while the request was on its way.
        };
        connection.answered(&self.ports.ingest);
        let mut output = connection.output.borrow_mut();
        if !output.push(parts) {
            connection.end(EndReason::OutputTooLarge { bytes: output.bytes() });
        }
        drop(output);
        self.fresh.push(connection);
    }

    /// Sets the largest frame a connection may send.
    pub fn set_frame_limit(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.ports.connection(id) {
            connection.set_frame_limit(bytes);
        }
    }

    /// Ends a connection after what is queued for it.
    pub fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        if let Some(connection) = self.ports.connection(id) {
            connection.end(EndReason::Core(reason));
        }
    }

    /// Writes the replies of this turn as far as the sockets take them.
    pub fn flush(&mut self) {
        for connection in self.fresh.drain(..) {
            match self.ports.write(&connection) {
                Ok(true) => {}
                Ok(false) => {
                    let mut output = connection.output.borrow_mut();
                    if !std::mem::replace(&mut output.has_writer, true) {
                        drop(output);
                        tokio::task::spawn_local(write(connection, self.ports.clone()));
                    }
                }
                Err(error) => connection.end(error.into()),
            }
        }
    }

    /// Ends the connections that broke a time limit.
    pub fn sweep(ports: &Ports) {
        let (now, contended) = (ports.clock.mono(), ports.ingest.is_contended());
        for connection in ports.connections.borrow().values() {
            if let Some(reason) = connection.overdue(now, contended) {
                connection.end(reason);
            }
        }
    }

    /// Waits until everything queued has been written, or `limit` has passed.
    pub async fn drain(&mut self, limit: Duration) {
        self.flush();
        let connections: Vec<Rc<Connection>> =
            self.ports.connections.borrow().values().cloned().collect();
        let all = async {
            for connection in connections {
                let _ = written(&connection, &self.ports).await;
            }
        };
        let _ = tokio::time::timeout(limit, all).await;
    }
}

/// The life of one connection.
async fn serve(connection: Rc<Connection>, ports: Rc<Ports>) {
    let id = connection.id;
    let reason = {
        let receive = async {
            let mut receiver = Receiver::default();
            loop {
                let next = receiver.next(&connection, &ports.clock, &ports.ingest, &ports.buffers);
                match next.await {
                    Ok(frame) => {
                        count(&ports.counters.frames_received, 1);
                        count(&ports.counters.bytes_received, frame.len());
                        ports.deliver(Event::Frame { connection: id, frame });
                    }
                    Err(reason) => return reason,
                }
            }
        };
        tokio::select! {
            biased;
            reason = connection.ended() => reason,
            reason = receive => reason,
        }
    };
    if reason.is_ordinary() {
        tracing::debug!(connection = id.0, peer = %connection.peer, %reason, "disconnected");
    } else {
        count(&ports.counters.connections_cut, 1);
        tracing::warn!(connection = id.0, peer = %connection.peer, %reason, "disconnected");
    }
    connection.forget_charges(&ports.ingest);
    count(&ports.counters.connections_closed, 1);
    connection.is_open.set(false);
    ports.deliver(Event::ConnectionClosed { connection: id });
    if matches!(reason, EndReason::Core(_)) {
        // The answer to a frame that is still on its way must not cost the notice.
        let _ = tokio::time::timeout(FAREWELL, farewell(&connection, &ports)).await;
    }
    // A task that waits for this socket to take more output ends with an error now.
    let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
    ports.connections.borrow_mut().remove(&id);
}

/// Writes what is queued, whenever the socket takes more.
async fn write(connection: Rc<Connection>, ports: Rc<Ports>) {
    if let Err(error) = written(&connection, &ports).await {
        connection.end(error.into());
    }
    connection.output.borrow_mut().has_writer = false;
}

async fn written(connection: &Connection, ports: &Ports) -> io::Result<()> {
    loop {
        if ports.write(connection)? {
            return Ok(());
        }
        connection.socket.writable().await?;
    }
}

/// Sends what is queued, says that nothing follows, and lets the peer read it: a socket that is
/// closed with unread bytes would reset the connection and take the last reply along.
async fn farewell(connection: &Connection, ports: &Ports) -> io::Result<()> {
    written(connection, ports).await?;
    rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Write)?;
    let mut scrap = vec![0; 16 * 1024];
    let read = async {
        loop {
            match connection.socket.try_read(&mut scrap) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.socket.readable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    };
    tokio::time::timeout(LINGER, read).await.unwrap_or(Ok(()))
}
