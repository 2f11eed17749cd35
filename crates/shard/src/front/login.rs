//! Login (wire protocol, sections 4.2 and 4.3; architecture, section 9).
//!
//! ```text
//! frame ─ version gate ─ credentials ─┬─ password: remembered, or verified off the loop ─┐
//!                                     └─ token: hash compared ───────────────────────────┤
//!        answer ─ connection bound ─ session in the metadata log ─ register ─────────────┘
//! ```
//!
//! An unknown user, an inactive one and a wrong password cost the same time and give the same
//! answer, after a delay that grows with the failures of the address. A failure is final only when
//! the primary's commit point has been applied: a user created on another node a moment ago can
//! log in here.

use super::admission::address_of;
use super::connection::{Binding, Place};
use super::feed::Applied;
use super::request::{Running, Step};
use super::timers::Timer;
use super::{Cx, Front, replies};
use crate::event::{ConnectionId, Effect, PasswordJob, PasswordOutcome, PasswordTicket, Secret};
use blake2::{Blake2s256, Digest};
use borzoi_metadata::{
    Change, Command, ConnectionStamp, Credential, Outcome, Register, Reply as Done, TokenHash,
    UserKey, check_password,
};
use borzoi_types::limits::FRAME_BYTES_MAX;
use borzoi_types::{ClientId, UserId};
use borzoi_wire::body::{Credentials, Identity, Login};
use borzoi_wire::frame::{EvictionReason, ReplyTo, RequestView};
use borzoi_wire::{ErrorCode, Identifier, Name, ProtocolVersion, Reply};

/// Text that is no stored form: verifying against it costs the usual time and never succeeds.
const NO_STORED_FORM: &str = "";

/// What waits for the password thread.
#[derive(Debug)]
pub(crate) enum PasswordWait {
    /// A login.
    Login(Box<LoginAttempt>),
    /// The password of a new user, or a change of one.
    User(Box<super::users::PasswordStep>),
}

/// A login whose password is being verified.
#[derive(Debug)]
pub(crate) struct LoginAttempt {
    running: Running,
    to: ReplyTo,
    /// The user, if there is one of that name.
    user: Option<UserKey>,
    password: Secret,
    /// What it is verified against.
    phc: String,
}

/// A login whose session is being registered.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) place: Place,
    pub(crate) to: ReplyTo,
    user: UserKey,
    with_token: bool,
}

/// The form in which a token is kept and looked up.
pub(crate) fn token_hash(token: &str) -> TokenHash {
    TokenHash(Blake2s256::digest(token.as_bytes()).into())
}

impl Front {
    pub(super) fn login(&mut self, running: Running, to: ReplyTo, cx: &mut Cx<'_>) -> Step {
        let body = RequestView::split(&running.frame).map_or(&[][..], |(_, body)| body);
        let login = match Login::decode(body) {
            Ok(login) => login,
            Err(error) => return self.react(running.place, &to, error.reaction()),
        };
        match login.credentials {
            Credentials::Password { user, password } => {
                self.login_with_password(running, to, user, password.reveal(), cx)
            }
            Credentials::Token { token } => self.login_with_token(running, to, token.reveal(), cx),
        }
    }

    fn login_with_password(
        &mut self,
        running: Running,
        to: ReplyTo,
        user: Name,
        password: &str,
        cx: &mut Cx<'_>,
    ) -> Step {
        let found = self.metadata.find_user(&Identifier::Name(user)).ok();
        let acceptable = check_password(password).is_ok();
        let (key, phc) = match found.filter(|user| user.is_active() && acceptable) {
            Some(user) => (Some(user.key), user.password.0.as_str()),
            None => (None, NO_STORED_FORM),
        };
        if let Some(key) = key
            && self.remembered.recognises(key, phc, password.as_bytes())
        {
            self.counters.logins_remembered += 1;
            return self.register(running.place, to, key, Credential::Password, cx);
        }
        // Run again after the commit point: the same comparison would fail the same way.
        if running.failed_against.as_deref() == Some(phc) {
            return self.login_failed(running.place, &to, EvictionReason::InvalidCredentials, cx);
        }
        let (phc, password) = (phc.to_owned(), Secret(password.to_owned()));
        let job = PasswordJob::Verify { password: password.clone(), phc: phc.clone() };
        let attempt = LoginAttempt { running, to, user: key, password, phc };
        self.start_password_job(job, PasswordWait::Login(Box::new(attempt)), cx);
        Step::Pending
    }

    pub(super) fn start_password_job(
        &mut self,
        job: PasswordJob,
        wait: PasswordWait,
        cx: &mut Cx<'_>,
    ) {
        let place = match &wait {
            PasswordWait::Login(attempt) => attempt.running.place,
            PasswordWait::User(step) => step.caller.place,
        };
        let ticket = PasswordTicket(self.next_ticket().0);
        self.passwords.insert(ticket, wait);
        let address = self.address(place.connection);
        cx.effects.push(Effect::Password { ticket, address, job });
    }

    pub(super) fn password_done(
        &mut self,
        ticket: PasswordTicket,
        outcome: PasswordOutcome,
        cx: &mut Cx<'_>,
    ) {
        match self.passwords.remove(&ticket) {
            Some(PasswordWait::Login(attempt)) => self.login_verified(*attempt, &outcome, cx),
            Some(PasswordWait::User(step)) => self.user_password_done(*step, outcome, cx),
            None => {}
        }
    }

    fn login_verified(
        &mut self,
        attempt: LoginAttempt,
        outcome: &PasswordOutcome,
        cx: &mut Cx<'_>,
    ) {
        let LoginAttempt { mut running, to, user, password, phc } = attempt;
        let place = running.place;
        if !self.connections.contains_key(&place.connection) {
            return;
        }
        let verified = match outcome {
            PasswordOutcome::Verified(verified) => *verified,
            PasswordOutcome::Hashed(_) | PasswordOutcome::Refused => {
                let step = self.transient(&to, ErrorCode::TransientNotAccepted);
                return self.finish_step(place, step, cx);
            }
        };
        // The user may have changed while the thread was busy; then this proves nothing.
        let proven = user.filter(|key| {
            let now = self.metadata.user(*key);
            verified && now.is_some_and(|user| user.is_active() && user.password.0 == phc)
        });
        let step = match proven {
            Some(key) => {
                self.remembered.remember(key, &phc, password.0.as_bytes());
                self.register(place, to, key, Credential::Password, cx)
            }
            None if self.may_be_behind(running.certain) => {
                running.failed_against = Some(phc);
                return self.ask_commit(running, cx);
            }
            None => self.login_failed(place, &to, EvictionReason::InvalidCredentials, cx),
        };
        self.finish_step(place, step, cx);
    }

    fn login_with_token(
        &mut self,
        running: Running,
        to: ReplyTo,
        token: &str,
        cx: &mut Cx<'_>,
    ) -> Step {
        let hash = token_hash(token);
        match self.metadata.token_owner(&hash, cx.now.wall) {
            Ok(owner) if owner.is_active() => {
                let user = owner.key;
                self.register(running.place, to, user, Credential::Token(hash), cx)
            }
            _ if self.may_be_behind(running.certain) => {
                self.ask_commit(running, cx);
                Step::Pending
            }
            Ok(_) => self.login_failed(running.place, &to, EvictionReason::UserInactive, cx),
            Err(_) => self.login_failed(running.place, &to, EvictionReason::InvalidToken, cx),
        }
    }

    /// The refusal waits; nothing else of the connection is started meanwhile.
    fn login_failed(
        &mut self,
        place: Place,
        to: &ReplyTo,
        reason: EvictionReason,
        cx: &mut Cx<'_>,
    ) -> Step {
        let address = self.address(place.connection);
        self.counters.logins_failed += 1;
        let due = self.failed_logins.failed(cx.now.mono, &address);
        self.delayed.insert(place, replies::evict(to.client, reason));
        self.timers.set(due, Timer::FailedLogin(place));
        Step::Pending
    }

    pub(super) fn failed_login_due(&mut self, place: Place, cx: &mut Cx<'_>) {
        if let Some(parts) = self.delayed.remove(&place) {
            self.complete(place, parts, cx);
        }
    }

    fn register(
        &mut self,
        place: Place,
        to: ReplyTo,
        user: UserKey,
        credential: Credential,
        cx: &mut Cx<'_>,
    ) -> Step {
        let connection = self.stamp(place.connection);
        let register = Register { client: to.client, user, credential, connection };
        let with_token = matches!(credential, Credential::Token(_));
        let registration = Registration { place, to, user, with_token };
        let command = Command::system(Change::Register(register));
        self.submit(&command, super::command::Waiting::Register(registration), cx);
        Step::Pending
    }

    /// The log has decided about a registration.
    pub(super) fn registered(
        &mut self,
        registration: Registration,
        applied: Applied,
        cx: &mut Cx<'_>,
    ) {
        let Registration { place, to, user: key, with_token } = registration;
        let (user, session) = match applied.outcome {
            Outcome::Applied(Done::Registered { user, session }) => (user, session),
            Outcome::Applied(other) => panic!("a registration was answered with {other:?}"),
            Outcome::Rejected(code) => {
                let parts = refusal(&to, applied.at, code, with_token);
                return self.complete(place, parts, cx);
            }
        };
        let binding = Binding { client: to.client, session, user: key, with_token };
        if !self.connections.contains_key(&place.connection) {
            return self.session_lost(place.connection, binding);
        }
        self.bind(place.connection, binding, cx);
        self.tell(place, applied.at.op);
        let identity = self.identity(user, binding);
        let parts = replies::registered(&to, session, applied.at, Reply::Identity(identity));
        self.complete(place, parts, cx);
    }

    fn bind(&mut self, connection: ConnectionId, binding: Binding, cx: &mut Cx<'_>) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let before = state.binding.replace(binding);
        state.attached = None;
        if let Some(deadline) = state.login_deadline.take() {
            self.timers.cancel(deadline, Timer::LoginDeadline(connection));
        }
        if let Some(before) = before.filter(|before| before.client != binding.client) {
            self.session_lost(connection, before);
        }
        self.bound.insert(binding.client, connection);
        self.admission.logged_in(connection);
        cx.effects.push(Effect::SetFrameLimit { connection, bytes: FRAME_BYTES_MAX });
        self.watch_member(connection, cx);
        self.watch_token(connection, cx);
    }

    fn identity(&self, user: UserId, binding: Binding) -> Identity {
        let version = Name::new(self.options.server_version.as_str());
        Identity {
            user,
            session: binding.session,
            protocol: ProtocolVersion::V0_11_0,
            server_version: version.expect("checked when the front was made"),
        }
    }

    /// This connection for the log: unique over nodes and their lives.
    pub(super) fn stamp(&self, connection: ConnectionId) -> ConnectionStamp {
        let (replica, generation) = (self.options.replica, self.options.generation);
        ConnectionStamp { replica, generation, number: connection.0 }
    }

    pub(super) fn address(&self, connection: ConnectionId) -> String {
        let state = self.connections.get(&connection);
        state.map_or_else(String::new, |state| address_of(&state.peer).to_owned())
    }

    /// What stands for the client of a connection without session; never 0.
    pub(super) fn connection_identity(&self, connection: ConnectionId) -> ClientId {
        ClientId(u128::from(self.client_number(connection)))
    }
}

/// The answer to a registration that the log refused.
fn refusal(
    to: &ReplyTo,
    at: replies::CommittedAt,
    code: ErrorCode,
    with_token: bool,
) -> Vec<bytes::Bytes> {
    let reason = match (code, with_token) {
        (code, _) if code.is_transient() => return replies::transient(to, at.op, code),
        (ErrorCode::InvalidCredentials | ErrorCode::UserInactive, false) => {
            EvictionReason::InvalidCredentials
        }
        (ErrorCode::UserInactive, true) => EvictionReason::UserInactive,
        (ErrorCode::InvalidPersonalAccessToken, true) => EvictionReason::InvalidToken,
        _ => EvictionReason::SessionError,
    };
    replies::evict(to.client, reason)
}
