//! Connections whose right to be there has ended: their token was deleted or has expired, their
//! user was disabled or deleted.
//!
//! Each gets an eviction notice, which answers whatever it still waits for, and is closed. Every
//! shard does so for its own connections when it applies the operation; a token that expires is
//! noticed by a timer, whichever shard removes it from the metadata later.
//!
//! Invariant: nobody keeps a connection longer than the right it was opened with; requests that
//! come before the close are refused by the checks of every request.

use super::connection::Binding;
use super::timers::Timer;
use super::{Cx, Front, replies};
use crate::event::{ClientTrouble, CloseReason, ConnectionId, Effect, LogLevel};
use borzoi_metadata::{SessionRef, TokenHash, UserKey};
use borzoi_types::Duration;
use borzoi_wire::frame::EvictionReason;

/// Longest wait for the expiry of a token: an hour.
const LOOK_AGAIN_MICROS: u64 = 3_600_000_000;

impl Front {
    /// A session is over: a connection that still holds it is closed.
    pub(super) fn session_ended(&mut self, session: SessionRef, cx: &mut Cx<'_>) {
        let holder = self.bound.get(&session.client).copied();
        let held = |it: &Binding| it.client == session.client && it.session == session.session;
        let binding = holder.and_then(|it| self.connections.get(&it)?.binding.filter(held));
        if let (Some(connection), Some(binding)) = (holder, binding) {
            let trouble = ClientTrouble::SessionEnded(session.session);
            self.log_of(connection, LogLevel::Info, trouble, cx);
            self.evict(connection, binding, EvictionReason::NoSession, cx);
        }
    }

    /// A token is gone: connections that logged in with it end.
    pub(super) fn token_deleted(&mut self, hash: TokenHash, cx: &mut Cx<'_>) {
        let sessions = self.metadata.sessions();
        let with_it = |binding: &Binding| {
            let session = sessions.get(binding.client).filter(|it| it.session == binding.session);
            binding.with_token && session.is_some_and(|session| session.token == Some(hash))
        };
        let held = self.held_by(with_it);
        self.evict_all(held, EvictionReason::InvalidToken, cx);
    }

    /// A user was changed: one that is disabled loses its connections.
    pub(super) fn user_changed(&mut self, user: UserKey, cx: &mut Cx<'_>) {
        if self.metadata.user(user).is_some_and(|user| !user.is_active()) {
            let held = self.held_by(|binding| binding.user == user);
            self.evict_all(held, EvictionReason::UserInactive, cx);
        }
    }

    /// A user is gone, and its connections with it.
    pub(super) fn user_deleted(&mut self, user: UserKey, cx: &mut Cx<'_>) {
        let held = self.held_by(|binding| binding.user == user);
        self.evict_all(held, EvictionReason::NoSession, cx);
    }

    /// A connection that logged in with a token ends when the token expires.
    pub(super) fn watch_token(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let binding = self.connections.get(&connection).and_then(|state| state.binding);
        let Some(binding) = binding.filter(|binding| binding.with_token) else { return };
        let token = self.metadata.sessions().get(binding.client).and_then(|it| it.token);
        let expires = token.and_then(|hash| self.metadata.token_expiry(&hash));
        let Some(expires) = expires else { return };
        // One far away is looked at again on the way, which also keeps step with the wall clock.
        let left = expires.0.saturating_sub(cx.now.wall.0).min(LOOK_AGAIN_MICROS);
        let due = cx.now.mono.plus(Duration::from_micros(left));
        self.timers.set(due, Timer::TokenExpiry(connection));
    }

    /// The token of a connection should have expired; the wall clock has the last word.
    pub(super) fn token_expiry_due(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let binding = self.connections.get(&connection).and_then(|state| state.binding);
        let Some(binding) = binding.filter(|binding| binding.with_token) else { return };
        if self.token_in_force(&binding, cx).is_err() {
            self.evict(connection, binding, EvictionReason::InvalidToken, cx);
        } else {
            self.watch_token(connection, cx);
        }
    }

    fn held_by(&self, holds: impl Fn(&Binding) -> bool) -> Vec<(ConnectionId, Binding)> {
        let bound = self.connections.iter().filter_map(|(id, state)| Some((*id, state.binding?)));
        bound.filter(|(_, binding)| holds(binding)).collect()
    }

    fn evict_all(
        &mut self,
        held: Vec<(ConnectionId, Binding)>,
        reason: EvictionReason,
        cx: &mut Cx<'_>,
    ) {
        for (connection, binding) in held {
            self.evict(connection, binding, reason, cx);
        }
    }

    /// Tells a client that it is signed out, and closes its connection.
    pub(super) fn evict(
        &mut self,
        connection: ConnectionId,
        binding: Binding,
        reason: EvictionReason,
        cx: &mut Cx<'_>,
    ) {
        if self.connections.get(&connection).is_none_or(|state| state.closing) {
            return;
        }
        let parts = replies::evict(binding.client, reason);
        cx.effects.push(Effect::Reply { connection, parts });
        self.close(connection, CloseReason::Evicted, cx);
    }
}
