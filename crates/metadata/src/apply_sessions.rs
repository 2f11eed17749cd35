//! Commands on sessions.

use crate::apply::{Applied, Context};
use crate::command::{ClosedConnection, Credential, Register};
use crate::identity::{SessionRef, TokenHash};
use crate::outcome::{Notice, Reply};
use crate::sessions::{Session, Window};
use crate::state::Metadata;
use crate::users::User;
use borzoi_types::limits::SESSION_AWAY_SECONDS_MIN;
use borzoi_types::{ClientId, Micros, ReplicaId, SessionId};
use borzoi_wire::ErrorCode;
use std::collections::BTreeSet;

impl Metadata {
    /// The user that a registration proved, checked against the state at this operation.
    fn registering_user(&self, now: Micros, register: &Register) -> Result<&User, ErrorCode> {
        let user = self.users.get(&register.user).ok_or(ErrorCode::InvalidCredentials)?;
        if !user.is_active() {
            return Err(ErrorCode::UserInactive);
        }
        if let Credential::Token(hash) = register.credential
            && self.token_owner(&hash, now)?.key != user.key
        {
            return Err(ErrorCode::InvalidPersonalAccessToken);
        }
        Ok(user)
    }

    /// The same identity on the same connection keeps its session, so a repeated login is
    /// harmless; on another one it gets a larger number and keeps its memory and memberships.
    pub(crate) fn register(&mut self, context: &Context, register: &Register) -> Applied {
        let user = self.registering_user(context.now, register)?.id;
        let token: Option<TokenHash> = match register.credential {
            Credential::Password => None,
            Credential::Token(hash) => Some(hash),
        };
        let known = self.sessions.get(register.client);
        let session = SessionId(context.op.0);
        let (first, groups, window) = match known {
            Some(known) if known.user != register.user => return Err(ErrorCode::InvalidSession),
            Some(known) if known.connection == Some(register.connection) => {
                return Ok(Reply::Registered { user, session: known.session });
            }
            Some(known) => (known.first, known.groups.clone(), known.window.clone()),
            None if self.sessions.is_full() => return Err(ErrorCode::TransientNotAccepted),
            None => (session, BTreeSet::new(), Window::default()),
        };
        let session = Session {
            client: register.client,
            session,
            first,
            user: register.user,
            token,
            connection: Some(register.connection),
            since: context.now,
            groups,
            window,
        };
        self.notices.push(Notice::SessionStarted(session.reference()));
        let reply = Reply::Registered { user, session: session.session };
        self.sessions.store(session);
        Ok(reply)
    }

    fn is_current(&self, reference: &SessionRef) -> bool {
        let session = self.sessions.get(reference.client);
        session.is_some_and(|session| session.session == reference.session)
    }

    pub(crate) fn logout(&mut self, _context: &Context, session: SessionRef) {
        if self.is_current(&session) {
            self.end_sessions(&[session.client]);
        }
    }

    pub(crate) fn connections_closed(&mut self, context: &Context, closed: &[ClosedConnection]) {
        let current = closed.iter().filter(|closed| {
            let session = self.sessions.get(closed.client);
            session.is_some_and(|session| session.connection == Some(closed.connection))
        });
        let clients: BTreeSet<ClientId> = current.map(|closed| closed.client).collect();
        self.disconnect(context, &clients.into_iter().collect::<Vec<_>>());
    }

    pub(crate) fn node_started(&mut self, context: &Context, replica: ReplicaId, generation: u64) {
        let lost = self.sessions.iter().filter(|session| {
            let connection = session.connection.as_ref();
            connection.is_some_and(|it| it.replica == replica && it.generation < generation)
        });
        let clients: Vec<ClientId> = lost.map(|session| session.client).collect();
        self.disconnect(context, &clients);
    }

    /// Memberships end with the connection; the session waits for its client.
    fn disconnect(&mut self, context: &Context, clients: &[ClientId]) {
        self.leave_all(clients);
        for client in clients {
            self.sessions.disconnect(*client, context.now);
        }
    }

    /// Ends sessions whose client has really been away that long, whatever was proposed.
    pub(crate) fn expire_sessions(&mut self, context: &Context, sessions: &[SessionRef]) {
        let latest = context.now.0.saturating_sub(SESSION_AWAY_SECONDS_MIN * 1_000_000);
        let expired = sessions.iter().filter(|reference| {
            let session = self.sessions.get(reference.client);
            let away = session.filter(|session| session.connection.is_none());
            self.is_current(reference) && away.is_some_and(|session| session.since.0 <= latest)
        });
        let clients: BTreeSet<ClientId> = expired.map(|reference| reference.client).collect();
        self.end_sessions(&clients.into_iter().collect::<Vec<_>>());
    }

    /// Forgets sessions with memberships and memory.
    pub(crate) fn end_sessions(&mut self, clients: &[ClientId]) {
        self.leave_all(clients);
        for client in clients {
            let session = self.sessions.remove(*client).expect("chosen among the living");
            let (session, first) = (session.reference(), session.first);
            self.notices.push(Notice::SessionEnded { session, first });
        }
    }
}
