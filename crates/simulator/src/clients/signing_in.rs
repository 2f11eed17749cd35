//! The login of a client: which identity, which credentials, what its answer means.

use super::answer::{self, Answer};
use super::machine::{Link, Machine};
use super::pending::join;
use super::{Port, SocketId};
use crate::history::{Intent, OpRef, Outcome, State, TokenRec, Value};
use crate::workload::draft::Draft;
use crate::workload::entries;
use borzoi_types::{ClientId, Duration, SessionId};
use borzoi_wire::body::{ClientVersion, Credentials, Login};
use borzoi_wire::frame::{EvictionReason, RequestHeader, request_checksum};
use borzoi_wire::{
    CommandCode, ErrorCode, Name, Operation, ProtocolVersion, Request, Secret, Text,
};

/// A session without a connection for longer than this may have ended, whatever clocks say: well
/// below the minute that the server promises, for clocks that run fast.
const SESSION_SURE: Duration = Duration::from_secs(45);

impl Machine {
    pub(super) fn sign_in(&mut self, socket: SocketId, port: &mut Port<'_>) {
        let changes = !self.habits.generation.keeps_identity() && self.bindings > 0;
        if changes || core::mem::take(&mut self.fresh_at_login) {
            self.fresh_identity();
        }
        let gap = self.lost_at.map_or(Duration::ZERO, |lost| port.now.since(lost));
        if gap > SESSION_SURE {
            self.epoch += 1;
        }
        let credentials = self.choose_credentials(port);
        let login = Login { version: version(), credentials, context: Text::default() };
        let request = Request::Login(login);
        let draft = Draft::new(Intent::Login, &request);
        let op = port.history.invoke(self.index, Intent::Login, port.now);
        port.history.sent(op, true);
        let header = RequestHeader {
            client: self.identity,
            operation: Operation::Register as u8,
            request_checksum: request_checksum(&draft.body),
            ..RequestHeader::default()
        };
        port.send(socket, join(header, &draft.body));
        self.link = Link::SigningIn { socket, since: port.now, op };
    }

    fn choose_credentials(&mut self, port: &Port<'_>) -> Credentials {
        self.with_token = None;
        if let Some((user, password)) = self.credentials.clone() {
            return password_of(&user, &password);
        }
        let history = &port.history;
        let usable = |(at, token): (usize, &TokenRec)| {
            (token.state == State::Live && token.secret.is_some()).then_some(at)
        };
        let tokens: Vec<usize> = history.tokens.iter().enumerate().filter_map(usable).collect();
        if !tokens.is_empty() && self.dice.chance(self.habits.tokens) {
            let at = *self.dice.pick(&tokens);
            if let Some(token) =
                history.tokens[at].secret.clone().and_then(|it| Secret::new(it).ok())
            {
                self.with_token = Some(at);
                return Credentials::Token { token };
            }
        }
        password_of(self.root.0, self.root.1)
    }

    /// Everything that was numbered is numbered anew.
    pub(super) fn fresh_identity(&mut self) {
        let bits = u128::from(self.dice.bits()) << 64 | u128::from(self.dice.bits()) | 1;
        self.identity = ClientId(bits);
        self.session = SessionId(0);
        self.number = 1;
        self.epoch += 1;
        for pending in self.queue.iter_mut().chain(&mut self.flight) {
            pending.number = None;
        }
    }

    pub(super) fn login_answered(&mut self, op: OpRef, frame: &[u8], port: &mut Port<'_>) {
        let Link::SigningIn { socket, .. } = self.link else { return };
        let answer = match answer::read(port.history, op, frame) {
            Ok(answer) => answer,
            Err(fault) => return self.fault(&fault, port),
        };
        port.history.exchange.answers += 1;
        let command =
            if self.with_token.is_some() { CommandCode::TokenLogin } else { CommandCode::Login };
        port.coverage.operation(entries::name(command));
        match answer {
            Answer::SignedIn(session) => {
                port.history.end(op, Outcome::Done(Value::Nothing), port.now);
                self.session = SessionId(session);
                self.bindings += 1;
                self.busy_at = port.now;
                self.link = Link::Up { socket };
                self.look_for_leader(port);
            }
            Answer::Evicted(reason) => {
                port.history.end(op, Outcome::Refused(reason.error()), port.now);
                self.login_refused(reason);
                port.close(socket);
                self.lose(port);
            }
            Answer::Again { .. } | Answer::Ended(_) => {
                port.history.end(op, Outcome::Refused(ErrorCode::TransientNotAccepted), port.now);
                port.close(socket);
                self.lose(port);
            }
        }
    }

    /// Published clients ask for the nodes of the cluster after every login.
    fn look_for_leader(&mut self, port: &mut Port<'_>) {
        if self.stays || !self.dice.chance(50) {
            return;
        }
        self.submit(Draft::other(&Request::GetClusterMetadata), port);
        if let Some(question) = self.queue.pop_back() {
            self.queue.push_front(question);
        }
    }

    fn login_refused(&mut self, reason: EvictionReason) {
        self.credentials = None;
        if self.with_token.is_some() {
            self.habits.tokens = 0;
        }
        if reason == EvictionReason::SessionError || self.with_token.is_some() {
            self.fresh_identity();
        }
    }
}

fn version() -> ClientVersion {
    let name = |text: &str| Name::new(text).expect("a short text");
    ClientVersion {
        protocol: ProtocolVersion::V0_11_0,
        sdk_name: name("simulated"),
        sdk_version: name("1.0.0"),
    }
}

fn password_of(user: &str, password: &str) -> Credentials {
    Credentials::Password {
        user: Name::new(user).expect("users have short names"),
        password: Secret::new(password).expect("passwords are short"),
    }
}
