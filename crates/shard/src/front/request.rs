//! One request from its frame to its first step (wire protocol, sections 3.3 and 4.4).
//!
//! A request is run to a [`Step`]. A step that needs something first (the commit point, newer
//! metadata, counters) keeps the frame and runs the request from the start when it has come, so
//! every check is made against the state that the answer comes from.

use super::command::LaneCall;
use super::connection::{Binding, Place};
use super::counters::Counts;
use super::{Cx, Front, replies};
use crate::event::{ClientTrouble, CloseReason, ConnectionId, LogLevel};
use borzoi_types::planted::{self, Bug};
use borzoi_types::{ClientId, LogId, Op, PartitionKey};
use borzoi_wire::frame::{EvictionReason, Reaction, ReplyTo, RequestFault, RequestView};
use borzoi_wire::{CommandCode, ErrorCode, Operation, Reply, Request};
use bytes::{Bytes, BytesMut};

/// What is to be done about a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// This is its answer.
    Answer(Vec<Bytes>),
    /// This is its answer, and the last one of its connection.
    AnswerAndClose(Vec<Bytes>, CloseReason),
    /// No answer makes sense: the connection ends.
    Close(CloseReason),
    /// It waits under a ticket.
    Pending,
    /// It goes to the lane of a partition.
    Lane(Box<LaneCall>),
    /// Something it names is not known here: it runs again when the metadata primary's commit
    /// point has been applied.
    AskCommit,
    /// It runs again when metadata is applied up to here.
    Await(Op),
    /// It runs again with the counters of these partitions.
    Counters(Vec<(LogId, PartitionKey)>),
}

/// A request that is being run.
#[derive(Debug)]
pub(crate) struct Running {
    /// Whose it is.
    pub(crate) place: Place,
    /// The whole frame; a send's batch is split off when it goes to its lane.
    pub(crate) frame: BytesMut,
    /// Whether "unknown" is final: the primary's commit point has been applied since it came.
    pub(crate) certain: bool,
    /// Whether its partition was found to be deleted while it was on its way, once.
    pub(crate) rerouted: bool,
    /// Counters that were gathered for it.
    pub(crate) counts: Option<Counts>,
    /// A login: the stored form that its password did not match.
    pub(crate) failed_against: Option<String>,
}

impl Running {
    /// A request that has just arrived.
    pub(crate) fn new(place: Place, frame: BytesMut) -> Self {
        let (certain, rerouted) = (false, false);
        Self { place, frame, certain, rerouted, counts: None, failed_against: None }
    }

    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new(self.place, BytesMut::new()))
    }
}

/// What the answer to a request of a bound connection needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Which request.
    pub(crate) place: Place,
    /// What its answer echoes.
    pub(crate) to: ReplyTo,
    /// Who asks.
    pub(crate) binding: Binding,
    /// For whom it does consumer work: the client itself, or the one its connection is attached to.
    pub(crate) consumer: ClientId,
}

/// How much is known while a request runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// See [`Running::certain`].
    pub(crate) certain: bool,
    /// See [`Running::counts`].
    pub(crate) counts: Option<&'a Counts>,
}

impl Front {
    /// Runs a request as far as it goes now.
    pub(super) fn run(&mut self, running: &mut Running, cx: &mut Cx<'_>) -> Step {
        let place = running.place;
        let Some(state) = self.connections.get(&place.connection) else { return Step::Pending };
        let (binding, attached, told) = (state.binding, state.attached, state.told);
        let caller = |to, binding: Binding| Caller {
            place,
            to,
            binding,
            consumer: attached.unwrap_or(binding.client),
        };
        let Some((view, body)) = RequestView::split(&running.frame) else {
            let fault = RequestFault::Size { size: 0, actual: running.frame.len() };
            return self.react_to_fault(place, &ReplyTo::default(), fault, cx);
        };
        let to = view.reply_to();
        let checked = view.check(binding.is_some());
        let operation = match checked.and_then(|it| view.check_body(body).map(|()| it)) {
            Ok(operation) => operation,
            Err(fault) => return self.react_to_fault(place, &to, fault, cx),
        };
        let refuses = self.stopping || !self.is_ready();
        if refuses && view.code() != CommandCode::Ping.code() {
            return self.transient(&to, ErrorCode::TransientNotAccepted);
        }
        if told > self.metadata.applied() {
            return Step::Await(told);
        }
        match (operation, binding) {
            (Operation::Register, _) => self.login(running.take(), to, cx),
            (Operation::Logout, _) => self.logout(place, to, cx),
            (Operation::NonReplicated, None) => self.read_before_login(place, view.code(), &to),
            (Operation::NonReplicated, Some(binding)) => {
                let caller = caller(to, binding);
                let code = view.code();
                self.run_read(code, &caller, running, cx)
            }
            (operation, Some(binding)) => {
                let caller = caller(to, binding);
                self.run_write(operation, &caller, running, cx)
            }
            // The check of the header has refused these already.
            (_, None) => self.react(place, &to, Reaction::Evict(EvictionReason::NoSession)),
        }
    }

    /// Before login only a ping is answered.
    fn read_before_login(&self, place: Place, code: u32, to: &ReplyTo) -> Step {
        match CommandCode::from_code(code) {
            Some(CommandCode::Ping) => {
                let (session, commit) = (borzoi_types::SessionId::ZERO, Op::ZERO);
                Step::Answer(replies::read(to, session, commit, Reply::Empty))
            }
            Some(CommandCode::LegacyLogin | CommandCode::LegacyTokenLogin) => {
                self.react(place, to, Reaction::Evict(EvictionReason::MalformedLogin))
            }
            _ => self.deny_to(place, to, ErrorCode::Unauthenticated),
        }
    }

    fn run_read(&mut self, code: u32, caller: &Caller, running: &Running, cx: &mut Cx<'_>) -> Step {
        if matches!(
            CommandCode::from_code(code),
            Some(CommandCode::Logout | CommandCode::Login | CommandCode::TokenLogin)
        ) {
            // Sent as reads they are an empty success that does nothing.
            return self.read_reply(caller, Reply::Empty);
        }
        self.run_request(Operation::NonReplicated, code, caller, running, cx)
    }

    /// Writes: the session must be the present one of its client.
    fn run_write(
        &mut self,
        operation: Operation,
        caller: &Caller,
        running: &mut Running,
        cx: &mut Cx<'_>,
    ) -> Step {
        let binding = &caller.binding;
        let current = self.metadata.sessions().get(binding.client).map(|it| it.session);
        let reason = match current {
            None => EvictionReason::NoSession,
            Some(current) if current > binding.session => EvictionReason::SessionTooLow,
            // Repeated changes are answered by the log, repeated sends by their lane.
            Some(_) => {
                return if operation == Operation::SendMessages {
                    self.send(caller, running, cx)
                } else {
                    self.run_request(operation, 0, caller, running, cx)
                };
            }
        };
        Step::Answer(replies::evict(binding.client, reason))
    }

    fn run_request(
        &mut self,
        operation: Operation,
        code: u32,
        caller: &Caller,
        running: &Running,
        cx: &mut Cx<'_>,
    ) -> Step {
        if let Err(code) = self.check_token(caller, cx) {
            return self.deny(caller, code);
        }
        let body = RequestView::split(&running.frame).map_or(&[][..], |(_, body)| body);
        match Request::decode(operation, code, body) {
            Ok(request) => {
                let known = Known { certain: running.certain, counts: running.counts.as_ref() };
                self.dispatch(caller, request, known, cx)
            }
            Err(error) => self.react(caller.place, &caller.to, error.reaction()),
        }
    }

    /// A session that signed in with a token ends with it.
    pub(super) fn check_token(&self, caller: &Caller, cx: &Cx<'_>) -> Result<(), ErrorCode> {
        self.token_in_force(&caller.binding, cx)
    }

    /// Whether the token that a session signed in with, if it did, is there and valid.
    pub(super) fn token_in_force(&self, binding: &Binding, cx: &Cx<'_>) -> Result<(), ErrorCode> {
        if !binding.with_token {
            return Ok(());
        }
        let (client, session) = (binding.client, binding.session);
        match self.metadata.session_user(client, session, cx.now.wall) {
            Err(code @ ErrorCode::PersonalAccessTokenExpired) => Err(code),
            _ => Ok(()),
        }
    }

    fn react_to_fault(
        &self,
        place: Place,
        to: &ReplyTo,
        fault: RequestFault,
        cx: &mut Cx<'_>,
    ) -> Step {
        let reaction = fault.reaction();
        let level = match reaction {
            Reaction::Close => LogLevel::Info,
            Reaction::Deny(_) | Reaction::Evict(_) => LogLevel::Debug,
        };
        self.log_of(place.connection, level, ClientTrouble::Request(fault), cx);
        self.react(place, to, reaction)
    }

    /// Logs something about a connection.
    pub(super) fn log_of(
        &self,
        connection: ConnectionId,
        level: LogLevel,
        trouble: ClientTrouble,
        cx: &mut Cx<'_>,
    ) {
        if let Some(state) = self.connections.get(&connection) {
            cx.log_client(level, &state.peer, trouble);
        }
    }

    /// The step that a reaction of the protocol stands for.
    pub(super) fn react(&self, place: Place, to: &ReplyTo, reaction: Reaction) -> Step {
        match reaction {
            Reaction::Close => Step::Close(CloseReason::Protocol),
            Reaction::Deny(code) => self.deny_to(place, to, code),
            // No identity is known: the connection's number stands for it.
            Reaction::Evict(reason @ EvictionReason::NoSession) => {
                Step::Answer(replies::evict(self.connection_identity(place.connection), reason))
            }
            Reaction::Evict(reason @ EvictionReason::InvalidRequestOperation) => {
                let notice = replies::evict(to.client, reason);
                Step::AnswerAndClose(notice, CloseReason::Evicted)
            }
            Reaction::Evict(reason) => Step::Answer(replies::evict(to.client, reason)),
        }
    }

    /// A denial; the commit position is told to signed-in clients only.
    fn deny_to(&self, place: Place, to: &ReplyTo, code: ErrorCode) -> Step {
        let bound = self.connections.get(&place.connection).is_some_and(|it| it.binding.is_some());
        let commit = if bound { self.metadata.applied() } else { Op::ZERO };
        Step::Answer(replies::deny(to, commit, code))
    }

    pub(super) fn deny(&self, caller: &Caller, code: ErrorCode) -> Step {
        Step::Answer(replies::deny(&caller.to, self.metadata.applied(), code))
    }

    pub(super) fn transient(&self, to: &ReplyTo, code: ErrorCode) -> Step {
        Step::Answer(replies::transient(to, self.metadata.applied(), code))
    }

    /// The answer to a read.
    pub(super) fn read_reply(&self, caller: &Caller, reply: Reply) -> Step {
        let (session, commit) = (caller.binding.session, self.metadata.applied());
        Step::Answer(replies::read(&caller.to, session, commit, reply))
    }

    /// "No" to a request, unless this copy may be behind: then the primary is asked first.
    pub(super) fn refuse(&self, caller: &Caller, known: Known<'_>, code: ErrorCode) -> Step {
        if self.may_be_behind(known.certain) {
            return Step::AskCommit;
        }
        self.deny(caller, code)
    }

    /// "There is no such object", unless this copy may be behind.
    pub(super) fn not_found(&self, caller: &Caller, known: Known<'_>) -> Step {
        if self.may_be_behind(known.certain) {
            return Step::AskCommit;
        }
        self.read_reply(caller, Reply::NotFound)
    }

    /// Whether "unknown" may only mean "not yet known here".
    pub(super) fn may_be_behind(&self, certain: bool) -> bool {
        let copy = self.host.is_none() || self.options.replica_count > 1;
        !certain && copy && !planted::is(Bug::NoFromACopy)
    }
}
