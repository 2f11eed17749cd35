//! Connections come, send frames, are answered in order, and go.
//!
//! Invariants: every frame gets exactly one answer or its connection is closed; nothing is started
//! for a connection that is closing; the answers of a connection leave in the order of its
//! requests.

use super::admission::{Refused, address_of};
use super::connection::{Connection, Leaving, Place};
use super::request::{Running, Step};
use super::timers::Timer;
use super::{Cx, Front};
use crate::event::{
    ClientTrouble, CloseReason, ConnectionId, Effect, LogEntry, LogLevel, LogRecord, Transport,
};
use borzoi_types::Mono;
use borzoi_types::limits::{
    FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_BYTES_MAX, LOGIN_DEADLINE_SECONDS,
    REQUESTS_PER_CONNECTION_MAX,
};
use borzoi_types::planted::{self, Bug};
use borzoi_wire::Operation;
use borzoi_wire::frame::RequestView;
use bytes::{Bytes, BytesMut};

/// How long requests wait for a node that has just started and knows of no metadata primary yet:
/// longer than an election takes.
const UNREADY_PATIENCE: borzoi_types::Duration = borzoi_types::Duration::from_secs(2);

/// Whether a frame is a send, by its header alone.
fn is_send(frame: &[u8]) -> bool {
    RequestView::split(frame)
        .is_some_and(|(view, _)| view.operation_byte() == Operation::SendMessages as u8)
}

impl Front {
    pub(super) fn connection_opened(
        &mut self,
        connection: ConnectionId,
        peer: &str,
        transport: Transport,
        cx: &mut Cx<'_>,
    ) {
        if self.stopping {
            return cx.close(connection, CloseReason::Stopping);
        }
        match self.admission.open(connection, address_of(peer)) {
            Ok(admitted) => {
                if let Some(displaced) = admitted.displaced {
                    self.close(displaced, CloseReason::Limit, cx);
                }
            }
            Err(refused) => {
                let trouble = match refused {
                    Refused::Total => ClientTrouble::Connections,
                    Refused::Address => ClientTrouble::ConnectionsOfAddress,
                };
                self.counters.connections_refused += 1;
                cx.log_client(LogLevel::Warn, peer, trouble);
                return cx.close(connection, CloseReason::Limit);
            }
        }
        let deadline = login_deadline(cx.now.mono);
        let state = Connection::new(peer, transport, cx.now.mono, deadline)
            .holding_at(self.options.output_hold_bytes);
        self.connections.insert(connection, state);
        self.timers.set(deadline, Timer::LoginDeadline(connection));
        cx.effects.push(Effect::SetFrameLimit { connection, bytes: FRAME_BYTES_BEFORE_LOGIN_MAX });
    }

    pub(super) fn frame_arrived(
        &mut self,
        connection: ConnectionId,
        frame: BytesMut,
        cx: &mut Cx<'_>,
    ) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if state.closing {
            return;
        }
        let limit =
            if state.binding.is_some() { FRAME_BYTES_MAX } else { FRAME_BYTES_BEFORE_LOGIN_MAX };
        state.heard = cx.now.mono;
        let trouble = if frame.len() > limit {
            Some(ClientTrouble::FrameBytes(frame.len()))
        } else if state.in_flight() >= REQUESTS_PER_CONNECTION_MAX {
            Some(ClientTrouble::Requests)
        } else {
            None
        };
        if let Some(trouble) = trouble {
            cx.log_client(LogLevel::Warn, &state.peer, trouble);
            self.counters.closed_by_limit += 1;
            return self.close(connection, CloseReason::Limit, cx);
        }
        state.queue(frame);
        if !self.ready && !self.impatient {
            self.timers.set(cx.now.mono.plus(UNREADY_PATIENCE), Timer::Unready);
        }
        self.pump(connection, cx);
    }

    /// The node is not ready for requests and they have waited long enough: they are answered "not
    /// now", until it is.
    pub(super) fn unready_for_long(&mut self, cx: &mut Cx<'_>) {
        if self.ready {
            return;
        }
        self.impatient = true;
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            self.pump(connection, cx);
        }
    }

    pub(super) fn connection_closed(&mut self, connection: ConnectionId) {
        let Some(state) = self.connections.remove(&connection) else { return };
        self.admission.close(connection, address_of(&state.peer));
        if let Some(deadline) = state.login_deadline {
            self.timers.cancel(deadline, Timer::LoginDeadline(connection));
        }
        if let Some(binding) = state.binding {
            self.session_lost(connection, binding);
        }
    }

    /// Starts what may start, then sends the answers that may leave.
    pub(super) fn pump(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        while self.is_ready() || self.impatient {
            let Some(state) = self.connections.get_mut(&connection) else { return };
            let Some(start) = state.start_next(is_send) else { break };
            let place = Place { connection, slot: start.slot };
            self.start(Running::new(place, start.frame), cx);
        }
        self.flush(connection, cx);
        self.close_if_stopping(connection, cx);
    }

    /// Runs a request and keeps its answer, if it has one already. The caller pumps or flushes.
    pub(super) fn start(&mut self, mut running: Running, cx: &mut Cx<'_>) {
        let place = running.place;
        match self.run(&mut running, cx) {
            Step::Answer(parts) => self.keep_answer(place, parts),
            Step::AnswerAndClose(parts, reason) => {
                self.keep_answer(place, parts);
                self.flush(place.connection, cx);
                self.close(place.connection, reason, cx);
            }
            Step::Close(reason) => self.close(place.connection, reason, cx),
            Step::Pending => {}
            Step::Lane(call) => self.call_lane(*call, running, cx),
            Step::AskCommit => self.ask_commit(running, cx),
            Step::Await(op) => self.await_metadata(op, running, cx),
            Step::Counters(keys) => self.want_counters(keys, running),
        }
    }

    /// Answers a request that was waiting for something, and starts what waited for it.
    pub(super) fn complete(&mut self, place: Place, parts: Vec<Bytes>, cx: &mut Cx<'_>) {
        self.keep_answer(place, parts);
        self.pump(place.connection, cx);
    }

    /// Deals with the step that a request came to while it was waiting.
    pub(super) fn finish_step(&mut self, place: Place, step: Step, cx: &mut Cx<'_>) {
        match step {
            Step::Answer(parts) => self.complete(place, parts, cx),
            Step::Pending => {}
            other => panic!("a request that waited cannot come to {other:?}"),
        }
    }

    /// Runs a request again, after what it needed has come, and goes on with its connection.
    pub(super) fn resume(&mut self, running: Running, cx: &mut Cx<'_>) {
        let connection = running.place.connection;
        if !self.connections.contains_key(&connection) {
            return;
        }
        self.start(running, cx);
        self.pump(connection, cx);
    }

    fn keep_answer(&mut self, place: Place, parts: Vec<Bytes>) {
        if let Some(state) = self.connections.get_mut(&place.connection) {
            state.answer(place.slot, parts);
        }
    }

    fn flush(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if state.closing {
            return;
        }
        while let Some(Leaving { parts, command, since }) = state.take_leaving() {
            let result = self.counters.count_answer(&parts);
            self.tally.count(command, result, cx.now.mono.since(since));
            if planted::is(Bug::ReplyTwice) {
                cx.effects.push(Effect::Reply { connection, parts: parts.clone() });
            }
            cx.effects.push(Effect::Reply { connection, parts });
        }
    }

    /// The client has taken what was sent: requests that were held back go on.
    pub(super) fn output_taken(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if state.taken() {
            self.pump(connection, cx);
        }
    }

    /// Asks the shell to close a connection; its end is worked off when the shell confirms it.
    pub(super) fn close(&mut self, connection: ConnectionId, reason: CloseReason, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        if state.closing {
            return;
        }
        state.closing = true;
        cx.close(connection, reason);
    }

    pub(super) fn login_deadline_passed(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let due = state.login_deadline.is_some_and(|deadline| deadline <= cx.now.mono);
        if due && state.binding.is_none() {
            state.login_deadline = None;
            self.close(connection, CloseReason::LoginTimeout, cx);
        }
    }
}

/// When a connection that is not logged in now has to be.
pub(super) fn login_deadline(now: Mono) -> Mono {
    now.plus(borzoi_types::Duration::from_secs(LOGIN_DEADLINE_SECONDS))
}

impl Cx<'_> {
    pub(super) fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.effects.push(Effect::Close { connection, reason });
    }

    pub(super) fn log_client(&mut self, level: LogLevel, peer: &str, trouble: ClientTrouble) {
        let entry = LogEntry::Client { peer: peer.to_owned(), trouble };
        self.effects.push(Effect::Log(LogRecord { level, entry }));
    }
}

impl Front {
    /// Nothing more is admitted; connections end when what is under way has been answered.
    pub(super) fn stop(&mut self, cx: &mut Cx<'_>) {
        self.stopping = true;
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            self.pump(connection, cx);
        }
    }

    fn close_if_stopping(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get(&connection) else { return };
        if self.stopping && state.in_flight() == 0 {
            self.close(connection, CloseReason::Stopping, cx);
        }
    }
}
