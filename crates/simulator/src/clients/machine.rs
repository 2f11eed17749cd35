//! One client's connection, session and requests: what every published client library does.
//!
//! ```text
//! down ─ connect ─▶ opening ─ opened ─▶ signing in ─ session ─▶ up ─▶ requests, in order
//!   ▲                 │ closed, too slow   │ refused             │ closed, too slow, evicted
//!   └─────────────────┴────────────────────┴─────────────────────┘
//! ```
//!
//! Invariants: answers come in the order of the requests of a connection; a request ends once; a
//! request one of whose frames may have been taken ends as refused only by an answer that a
//! repeated request would get, else as unknown.

use super::answer::{self, Answer};
use super::habits::Habits;
use super::pending::Pending;
use super::{Port, SocketId};
use crate::history::{Intent, OpRef, Outcome, Value};
use crate::random::Dice;
use crate::workload::draft::Draft;
use crate::workload::entries;
use borzoi_types::{ClientId, Duration, Mono, SessionId};
use borzoi_wire::frame::{EvictionReason, EvictionView, FrameCommand, ReplyView};
use borzoi_wire::{CommandCode, ErrorCode, Operation, OperationClass};
use bytes::Bytes;
use std::collections::VecDeque;

/// Redirects to another node in a row.
const REDIRECTS_MAX: u8 = 3;

/// Where the connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// There is none; the next attempt comes then.
    Down { again: Mono },
    /// Asked for.
    Opening { socket: SocketId, since: Mono },
    /// The login is under way.
    SigningIn { socket: SocketId, since: Mono, op: OpRef },
    /// Signed in.
    Up { socket: SocketId },
}

/// See the module.
pub struct Machine {
    /// The client's number.
    pub index: usize,
    /// How it behaves.
    pub habits: Habits,
    /// The node it talks to, or will.
    pub node: usize,
    /// Never leaves its node.
    pub stays: bool,
    /// Successful logins so far: memberships of groups end with each of them.
    pub bindings: u64,
    pub(super) dice: Dice,
    pub(super) identity: ClientId,
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) link: Link,
    pub(super) queue: VecDeque<Pending>,
    pub(super) flight: VecDeque<Pending>,
    ended: Vec<OpRef>,
    pub(super) lost_at: Option<Mono>,
    pub(super) busy_at: Mono,
    redirects: u8,
    pub(super) credentials: Option<(String, String)>,
    pub(super) root: (&'static str, &'static str),
    pub(super) with_token: Option<usize>,
    pub(super) fresh_at_login: bool,
}

impl Machine {
    /// A client that is not connected yet.
    #[must_use]
    pub fn new(
        index: usize,
        habits: Habits,
        root: (&'static str, &'static str),
        mut dice: Dice,
    ) -> Self {
        let identity = ClientId(u128::from(dice.bits()) << 64 | u128::from(dice.bits()) | 1);
        let link = Link::Down { again: Mono(0) };
        Self {
            index,
            habits,
            node: 0,
            stays: false,
            bindings: 0,
            dice,
            identity,
            session: SessionId(0),
            number: 1,
            epoch: 0,
            link,
            queue: VecDeque::new(),
            flight: VecDeque::new(),
            ended: Vec::new(),
            lost_at: None,
            busy_at: Mono(0),
            redirects: 0,
            credentials: None,
            root,
            with_token: None,
            fresh_at_login: false,
        }
    }

    /// Whether another request may be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue.len() + self.flight.len() < self.habits.generation.depth()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flight.is_empty()
    }

    /// From now on signs in as this user, until that is refused.
    pub fn sign_in_as(&mut self, user: String, password: String) {
        self.credentials = Some((user, password));
        // An identity belongs to the user who registered it.
        self.fresh_at_login = true;
    }

    /// Begins an operation.
    pub fn submit(&mut self, draft: Draft, port: &mut Port<'_>) -> OpRef {
        let op = port.history.invoke(self.index, draft.intent.clone(), port.now);
        let give_up = port.now.plus(self.habits.budget);
        let pending = Pending {
            op,
            draft,
            number: None,
            not_before: port.now,
            sent_at: port.now,
            unsure: false,
            give_up,
        };
        self.queue.push_back(pending);
        op
    }

    /// The connection is open: sign in.
    pub fn connected(&mut self, socket: SocketId, port: &mut Port<'_>) {
        if let Link::Opening { socket: opening, .. } = self.link
            && opening == socket
        {
            self.sign_in(socket, port);
        }
    }

    /// The connection is gone.
    pub fn closed(&mut self, socket: SocketId, port: &mut Port<'_>) {
        let current = match self.link {
            Link::Down { .. } => return,
            Link::Opening { socket, .. } | Link::SigningIn { socket, .. } | Link::Up { socket } => {
                socket
            }
        };
        if current == socket {
            self.lose(port);
        }
    }

    /// Ends the connection on purpose.
    pub fn hang_up(&mut self, port: &mut Port<'_>) {
        match self.link {
            Link::Down { .. } => {}
            Link::Opening { socket, .. } | Link::SigningIn { socket, .. } | Link::Up { socket } => {
                port.close(socket);
                self.lose(port);
            }
        }
    }

    /// A frame has come.
    pub fn frame(&mut self, socket: SocketId, frame: &[u8], port: &mut Port<'_>) {
        match self.link {
            Link::SigningIn { socket: current, op, .. } if current == socket => {
                self.login_answered(op, frame, port);
            }
            Link::Up { socket: current } if current == socket => self.answered(frame, port),
            _ => {}
        }
    }

    /// What is due now, and everything that may be sent. Gives the operations that have ended.
    pub fn turn(&mut self, port: &mut Port<'_>) -> Vec<OpRef> {
        match self.link {
            Link::Down { again } => {
                if again <= port.now && !self.is_idle() {
                    self.connect(port);
                }
            }
            Link::Opening { since, .. } | Link::SigningIn { since, .. } => {
                if since.plus(self.habits.patience) <= port.now {
                    self.hang_up(port);
                }
            }
            Link::Up { .. } => {
                let oldest = self.flight.iter().map(|it| it.sent_at).min();
                if oldest.is_some_and(|at| at.plus(self.habits.patience) <= port.now) {
                    port.coverage.branch("client: response time-out");
                    port.history.exchange.unanswered += 1;
                    self.hang_up(port);
                }
            }
        }
        self.give_up(port);
        self.pump(port);
        core::mem::take(&mut self.ended)
    }

    /// When [`Self::turn`] has something to do without input.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let give_up = self.queue.iter().map(|it| it.give_up).min();
        let link = match self.link {
            Link::Down { again } => (!self.is_idle()).then_some(again),
            Link::Opening { since, .. } | Link::SigningIn { since, .. } => {
                Some(since.plus(self.habits.patience))
            }
            Link::Up { .. } => {
                let oldest = self.flight.iter().map(|it| it.sent_at).min();
                let silent = oldest.map(|at| at.plus(self.habits.patience));
                let room = self.flight.len() < self.habits.generation.depth();
                let next = self.queue.front().map(|it| it.not_before).filter(|_| room);
                silent.into_iter().chain(next).min()
            }
        };
        link.into_iter().chain(give_up).min()
    }

    /// When a ping is due, if the connection is up and nothing happens.
    #[must_use]
    pub fn ping_due(&self) -> Option<Mono> {
        let up = matches!(self.link, Link::Up { .. });
        (up && self.is_idle()).then(|| self.busy_at.plus(self.habits.ping_every))
    }

    /// What it is doing.
    #[must_use]
    pub fn describe(&self) -> String {
        let (waiting, under_way) = (self.queue.len(), self.flight.len());
        let (index, node, generation) = (self.index, self.node, self.habits.generation);
        let link = self.link;
        format!("client {index} ({generation:?}) node {node} {link:?}: {waiting}+{under_way}")
    }

    fn connect(&mut self, port: &mut Port<'_>) {
        let socket = port.connect(self.node);
        self.link = Link::Opening { socket, since: port.now };
    }

    /// The connection has ended, by either side.
    pub(super) fn lose(&mut self, port: &mut Port<'_>) {
        match self.link {
            Link::Up { .. } => self.lost_at = Some(port.now),
            Link::SigningIn { op, .. } if port.history.op(op).ended.is_none() => {
                port.history.exchange.cut += 1;
                port.history.end(op, Outcome::Unknown, port.now);
                // The login may have been taken: the time without a connection begins now.
                self.lost_at = self.lost_at.or(Some(port.now));
            }
            _ => {}
        }
        let (short, long) = self.habits.reconnect;
        let pause = Duration(self.dice.between(short.0, long.0.max(short.0)));
        self.link = Link::Down { again: port.now.plus(pause) };
        if !self.stays && port.nodes > 1 && self.dice.chance(self.habits.roams) {
            self.node = self.dice.index(port.nodes);
        }
        let keeps = self.habits.generation.keeps_identity();
        while let Some(mut pending) = self.flight.pop_back() {
            port.history.exchange.cut += 1;
            pending.unsure = true;
            let malformed = matches!(pending.draft.intent, Intent::Malformed(_));
            if malformed {
                // Closing the connection is one way of answering.
                self.end(pending.op, Outcome::Done(Value::Nothing), port);
            } else if keeps
                || pending.is_read()
                || (pending.is_repeatable() && self.dice.chance(50))
            {
                self.queue.push_front(pending);
            } else {
                self.end(pending.op, Outcome::Unknown, port);
            }
        }
    }

    /// A frame that no client library would accept.
    pub(super) fn fault(&mut self, fault: &str, port: &mut Port<'_>) {
        let text = format!("client {}: {fault}", self.index);
        port.history.exchange.faults.push((port.now, text));
        self.hang_up(port);
    }

    fn answered(&mut self, frame: &[u8], port: &mut Port<'_>) {
        let Some(pending) = self.flight.pop_front() else { return self.unasked(frame, port) };
        let answer = match answer::read(port.history, pending.op, frame) {
            Ok(answer) => answer,
            Err(fault) => {
                let line = port.history.line(pending.op);
                self.flight.push_front(pending);
                return self.fault(&format!("{fault}; asked was {line}"), port);
            }
        };
        if let Err(fault) = self.check_echo(&pending, &answer, frame) {
            self.flight.push_front(pending);
            return self.fault(&fault, port);
        }
        self.busy_at = port.now;
        let malformed = matches!(pending.draft.intent, Intent::Malformed(_));
        if malformed || !matches!(answer, Answer::Evicted(_)) {
            port.history.exchange.answers += 1;
        }
        match answer {
            _ if malformed => {
                if pending.draft.command != CommandCode::Ping {
                    port.coverage.operation(entries::name(pending.draft.command));
                }
                self.end(pending.op, Outcome::Done(Value::Nothing), port);
            }
            Answer::Ended(outcome) => self.settle(&pending, outcome, port),
            Answer::Again { sure } => self.again(pending, sure, port),
            Answer::Evicted(reason) => self.evicted(pending, reason, port),
            Answer::SignedIn(_) => self.fault("a login's answer to something else", port),
        }
    }

    /// An eviction may come unasked; nothing else may.
    fn unasked(&mut self, frame: &[u8], port: &mut Port<'_>) {
        let reason =
            frame.first_chunk().filter(|header| header[60] == FrameCommand::Eviction as u8);
        match reason.and_then(|header| EvictionView::new(header).reason()) {
            Some(reason) => self.notice(reason, port),
            None => self.fault("an answer to nothing", port),
        }
    }

    fn check_echo(&self, pending: &Pending, answer: &Answer, frame: &[u8]) -> Result<(), String> {
        if pending.draft.raw.is_some() || matches!(answer, Answer::Evicted(_)) {
            return Ok(());
        }
        let (view, _) = ReplyView::split(frame).ok_or("a frame shorter than its header")?;
        let number = pending.number.map_or(0, |(number, _)| number);
        if view.request().0 != number || view.client() != self.identity {
            let (other, client) = (view.request(), view.client());
            return Err(format!("request {number} was answered as {other} of {client:?}"));
        }
        Ok(())
    }

    fn settle(&mut self, pending: &Pending, outcome: Outcome, port: &mut Port<'_>) {
        port.coverage.operation(entries::name(pending.draft.command));
        let once = port.history.op(pending.op).once;
        let redirect = match &outcome {
            Outcome::Done(Value::Leader(Some(leader))) => Some(*leader),
            _ => None,
        };
        let locked_out = matches!(
            outcome,
            Outcome::Refused(
                ErrorCode::Unauthenticated
                    | ErrorCode::Unauthorized
                    | ErrorCode::PersonalAccessTokenExpired
            )
        );
        let logged_out = pending.draft.command == CommandCode::Logout && !locked_out;
        self.end(pending.op, judge(pending, once, outcome), port);
        if locked_out {
            // The user or token is gone: go on as root, who stays.
            self.credentials = None;
            self.habits.tokens = 0;
            self.fresh_at_login = true;
            return self.hang_up(port);
        }
        if logged_out {
            self.epoch += 1;
            return self.hang_up(port);
        }
        match redirect {
            Some(leader) if leader != self.node && leader < port.nodes && !self.stays => {
                if self.redirects < REDIRECTS_MAX {
                    self.redirects += 1;
                    port.coverage.branch("client: redirected to the leader");
                    self.hang_up(port);
                    self.node = leader;
                }
            }
            _ => self.redirects = 0,
        }
    }

    fn again(&mut self, mut pending: Pending, sure: bool, port: &mut Port<'_>) {
        let branch = if sure { "client: answered 58" } else { "client: answered 57" };
        port.coverage.branch(branch);
        pending.unsure |= !sure;
        pending.not_before = port.now.plus(self.habits.retry_after);
        self.queue.push_front(pending);
    }

    /// A refusal of the session answers the request. Everything else is a notice that comes when it
    /// comes: what is under way may be taken or not.
    fn evicted(&mut self, pending: Pending, reason: EvictionReason, port: &mut Port<'_>) {
        match reason {
            EvictionReason::NoSession | EvictionReason::SessionTooLow => {
                port.coverage.branch("client: session lost");
                port.history.exchange.answers += 1;
                self.queue.push_front(pending);
            }
            _ => self.flight.push_front(pending),
        }
        if reason == EvictionReason::NoSession {
            // What the server knew of this identity is gone.
            self.epoch += 1;
        }
        self.notice(reason, port);
    }

    /// The server ends the session.
    fn notice(&mut self, reason: EvictionReason, port: &mut Port<'_>) {
        match reason {
            EvictionReason::StaleClient => port.coverage.branch("client: evicted as stale"),
            EvictionReason::NoSession | EvictionReason::SessionTooLow => {}
            _ => {
                // The user or token is gone: go on as root, who stays.
                port.coverage.branch("client: evicted with its user or token");
                self.credentials = None;
                self.habits.tokens = 0;
                self.fresh_at_login = true;
            }
        }
        self.hang_up(port);
    }

    fn give_up(&mut self, port: &mut Port<'_>) {
        let due = |it: &Pending| it.give_up <= port.now;
        if !self.queue.iter().any(due) {
            return;
        }
        let (over, left): (VecDeque<_>, VecDeque<_>) = self.queue.drain(..).partition(due);
        self.queue = left;
        for pending in over {
            port.coverage.branch("client: gave up");
            let outcome = if pending.unsure {
                Outcome::Unknown
            } else {
                Outcome::Refused(ErrorCode::TransientNotAccepted)
            };
            self.end(pending.op, outcome, port);
        }
    }

    fn end(&mut self, op: OpRef, outcome: Outcome, port: &mut Port<'_>) {
        port.history.end(op, outcome, port.now);
        self.ended.push(op);
    }

    fn pump(&mut self, port: &mut Port<'_>) {
        let Link::Up { socket } = self.link else { return };
        while self.flight.len() < self.habits.generation.depth() {
            match self.queue.front() {
                Some(pending) if pending.not_before <= port.now => {}
                _ => return,
            }
            let Some(mut pending) = self.queue.pop_front() else { return };
            let frame = self.number(&mut pending, port);
            pending.sent_at = port.now;
            self.busy_at = port.now;
            port.send(socket, frame);
            self.flight.push_back(pending);
        }
    }

    /// Gives a request its number and writes down that it was sent.
    fn number(&mut self, pending: &mut Pending, port: &mut Port<'_>) -> Bytes {
        let same = pending.number.is_some_and(|(_, epoch)| epoch == self.epoch);
        port.history.sent(pending.op, same);
        let number = match pending.number {
            Some((number, _)) => number,
            None => self.next_number(pending),
        };
        let epoch = pending.number.map_or(self.epoch, |(_, epoch)| epoch);
        pending.number = Some((number, epoch));
        pending.frame(self.identity, self.session, number)
    }

    fn next_number(&mut self, pending: &Pending) -> u64 {
        let number = self.number;
        let operation = pending.operation();
        let partition = matches!(operation as u8, 160..=169);
        let plain = self.habits.generation == super::habits::Generation::Plain;
        let stays = pending.is_read() || operation == Operation::Logout || (partition && plain);
        if !stays {
            self.number += 1;
        }
        number
    }
}

/// What an answer says about an operation of which earlier frames may have been taken. A refusal
/// answers the last frame only, unless the log answers it and remembers the first.
fn judge(pending: &Pending, once: bool, outcome: Outcome) -> Outcome {
    let Outcome::Refused(code) = outcome else { return outcome };
    if code == ErrorCode::RequestAlreadyApplied {
        return Outcome::Unknown;
    }
    let by_the_log = once
        && pending.operation().class() == OperationClass::Metadata
        // A secret is told once, so a repeated creation is refused.
        && !matches!(pending.draft.intent, Intent::CreateToken(_))
        && !matches!(
            code,
            ErrorCode::Unauthenticated
                | ErrorCode::Unauthorized
                | ErrorCode::PersonalAccessTokenExpired
                | ErrorCode::FeatureUnavailable
                | ErrorCode::InvalidCommand
        );
    if pending.unsure && !by_the_log { Outcome::Unknown } else { Outcome::Refused(code) }
}
