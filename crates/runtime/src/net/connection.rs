//! One client connection as its shard's thread sees it.

use super::output::Output;
use super::pass::Pass;
use crate::budget::Budgets;
use borzoi_shard::ConnectionId;
use borzoi_shard::event::CloseReason;
use borzoi_types::limits::{
    FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_SECONDS_MAX, LARGE_FRAME_CONTENDED_SECONDS_MAX,
    LOGIN_SECONDS_MAX, OUTPUT_STALL_SECONDS_MAX, RECEIVE_BYTES_PER_SECOND_MIN,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
};
use borzoi_types::{Duration, Mono};
use borzoi_wire::frame::FrameSizeFault;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Why a connection ended; logged once.
#[derive(Debug, thiserror::Error)]
pub enum EndReason {
    /// The peer closed between frames.
    #[error("closed by the client")]
    Peer,
    /// The peer closed within a frame.
    #[error("closed by the client within a frame, {received} bytes of it received")]
    PeerWithinFrame {
        /// Bytes of the frame that had come.
        received: usize,
    },
    /// A size that no frame may have.
    #[error("{0}")]
    Frame(#[from] FrameSizeFault),
    /// The frame trickles.
    #[error("a frame arrives too slowly, its next {bytes} bytes are late")]
    FrameTooSlow {
        /// Size of the piece that is late; that of a header while the size is not known.
        bytes: usize,
    },
    /// No login, and no whole frame for too long.
    #[error("no login and no frame for {LOGIN_SECONDS_MAX} s")]
    NotLoggedIn,
    /// The peer takes nothing.
    #[error("the client has not read for {OUTPUT_STALL_SECONDS_MAX} s, {bytes} bytes wait")]
    OutputStalled {
        /// Bytes that wait.
        bytes: usize,
    },
    /// The peer is too far behind.
    #[error("the client does not read, {bytes} bytes wait")]
    OutputTooLarge {
        /// Bytes that wait.
        bytes: usize,
    },
    /// The core decided.
    #[error("closed by the server: {0}")]
    Core(CloseReason),
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

impl EndReason {
    /// Whether the end is part of ordinary life.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        match self {
            Self::Peer | Self::Core(CloseReason::Stopping) => true,
            Self::Socket(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionAborted
            ),
            _ => false,
        }
    }
}

/// Where the reader stands, for the time limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiving {
    /// Between frames since then.
    Idle(Mono),
    /// The budget or an earlier request holds the reader up; no limit runs.
    HeldUp,
    /// Within a piece of a frame, of so many bytes, since then.
    Frame(Mono, usize),
    /// The same of a frame that takes room which other large frames may wait for.
    Large(Mono, usize),
}

/// A connection.
pub struct Connection {
    /// Its number.
    pub id: ConnectionId,
    /// The other end.
    pub peer: SocketAddr,
    /// The socket; read by its task, written by whoever has a reply.
    pub socket: TcpStream,
    pass: Pass,
    frame_limit: Cell<usize>,
    /// Bytes charged per frame that awaits its answer, oldest first.
    charges: RefCell<VecDeque<usize>>,
    answered: Notify,
    receiving: Cell<Receiving>,
    ended: RefCell<Option<EndReason>>,
    ending: Notify,
    /// Whether the core has not been told yet that it is closed.
    pub is_open: Cell<bool>,
    /// Replies that wait.
    pub output: RefCell<Output>,
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(
        id: ConnectionId,
        peer: SocketAddr,
        socket: TcpStream,
        pass: Pass,
        now: Mono,
    ) -> Rc<Self> {
        Rc::new(Self {
            id,
            peer,
            socket,
            pass,
            frame_limit: Cell::new(FRAME_BYTES_BEFORE_LOGIN_MAX),
            charges: RefCell::default(),
            answered: Notify::new(),
            receiving: Cell::new(Receiving::Idle(now)),
            ended: RefCell::default(),
            ending: Notify::new(),
            is_open: Cell::new(true),
            output: RefCell::default(),
        })
    }

    /// Largest frame it may send now.
    #[must_use]
    pub fn frame_limit(&self) -> usize {
        self.frame_limit.get()
    }

    /// Sets that limit. One above the limit before login means that it has logged in.
    pub fn set_frame_limit(&self, bytes: usize) {
        self.frame_limit.set(bytes);
        if bytes > FRAME_BYTES_BEFORE_LOGIN_MAX {
            self.pass.logged_in();
            self.answered.notify_one();
        }
    }

    /// Notes where the reader stands.
    pub fn receiving(&self, state: Receiving) {
        self.receiving.set(state);
    }

    /// Waits until one more request may be in flight: one before login, because the limits change
    /// with its answer, several after it.
    pub async fn slot(&self) {
        loop {
            let before_login = self.frame_limit.get() <= FRAME_BYTES_BEFORE_LOGIN_MAX;
            let slots = if before_login { 1 } else { REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX };
            if self.charges.borrow().len() < slots {
                return;
            }
            self.receiving(Receiving::HeldUp);
            self.answered.notified().await;
        }
    }

    /// Notes that `bytes` were charged for a frame.
    pub fn charged(&self, bytes: usize) {
        self.charges.borrow_mut().push_back(bytes);
    }

    /// Gives back the charge of the oldest frame, which has its answer.
    pub fn answered(&self, ingest: &Budgets) {
        let charge = self.charges.borrow_mut().pop_front();
        if let Some(bytes) = charge {
            ingest.of(bytes).release(bytes);
            self.answered.notify_one();
        }
    }

    /// Gives back all charges.
    pub fn forget_charges(&self, ingest: &Budgets) {
        for bytes in self.charges.borrow_mut().drain(..) {
            ingest.of(bytes).release(bytes);
        }
    }

    /// Ends the connection for `reason`, unless it is ending already.
    pub fn end(&self, reason: EndReason) {
        self.ended.borrow_mut().get_or_insert(reason);
        self.ending.notify_one();
    }

    /// Waits for [`Connection::end`].
    pub async fn ended(&self) -> EndReason {
        loop {
            if let Some(reason) = self.ended.borrow_mut().take() {
                return reason;
            }
            self.ending.notified().await;
        }
    }

    /// The time limit that the peer has broken, if any. `contended` says that large frames of
    /// others wait for room.
    #[must_use]
    pub fn overdue(&self, now: Mono, contended: bool) -> Option<EndReason> {
        let output = self.output.borrow();
        let stalled = |since| now.since(since) > Duration::from_secs(OUTPUT_STALL_SECONDS_MAX);
        if output.waiting_since.is_some_and(stalled) {
            return Some(EndReason::OutputStalled { bytes: output.bytes() });
        }
        match self.receiving.get() {
            Receiving::Large(since, bytes)
                if contended
                    && now.since(since)
                        > Duration::from_secs(LARGE_FRAME_CONTENDED_SECONDS_MAX) =>
            {
                Some(EndReason::FrameTooSlow { bytes })
            }
            Receiving::Frame(since, bytes) | Receiving::Large(since, bytes) => {
                let seconds = FRAME_SECONDS_MAX + bytes as u64 / RECEIVE_BYTES_PER_SECOND_MIN;
                let late = now.since(since) > Duration::from_secs(seconds);
                late.then_some(EndReason::FrameTooSlow { bytes })
            }
            Receiving::Idle(since) if !self.pass.is_logged_in() => {
                let late = now.since(since) > Duration::from_secs(LOGIN_SECONDS_MAX);
                late.then_some(EndReason::NotLoggedIn)
            }
            Receiving::Idle(_) | Receiving::HeldUp => None,
        }
    }
}
