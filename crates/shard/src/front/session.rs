//! How sessions end: logout, lost connections, silence, time (wire protocol, sections 4.4 and 4.6).
//!
//! Invariants: the log hears of every connection that held a session and is gone, if need be after
//! several attempts; only members of consumer groups are evicted for silence; a session without
//! connection lives at least as long as metadata asks for.

use super::command::Waiting;
use super::connection::{Binding, Place};
use super::connections::login_deadline;
use super::feed::Applied;
use super::request::Step;
use super::timers::Timer;
use super::{Cx, Front, replies};
use crate::event::{CloseReason, ConnectionId, Effect};
use crate::lane::api::{LaneReply, LaneRequest, LaneRequestKind, Origin};
use borzoi_metadata::{
    Change, ClosedConnection, Command, CompletedHandover, GroupKey, HandoverCause, Outcome,
    SessionRef,
};
use borzoi_types::limits::{
    FRAME_BYTES_BEFORE_LOGIN_MAX, HANDOVER_SECONDS_MAX, HEARTBEAT_SECONDS_MAX,
    HOUSEKEEPING_ENTRIES_MAX, SESSION_AWAY_SECONDS_MIN,
};
use borzoi_types::{Duration, LogId, Micros, Op, PartitionKey};
use borzoi_wire::Reply;
use borzoi_wire::frame::{EvictionReason, ReplyTo};

/// How often shard 0 looks for sessions, tokens and hand-overs whose time is up.
pub(super) const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(1);
/// Time until a refused report of lost connections is repeated.
const REPORT_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Front {
    pub(super) fn logout(&mut self, place: Place, to: ReplyTo, cx: &mut Cx<'_>) -> Step {
        let state = self.connections.get(&place.connection);
        let Some(binding) = state.and_then(|state| state.binding) else {
            let (op, commit) = (borzoi_types::SessionId::ZERO, borzoi_types::Op::ZERO);
            return Step::Answer(replies::read(&to, op, commit, Reply::Empty));
        };
        let session = SessionRef { client: binding.client, session: binding.session };
        let command = Command::system(Change::Logout(session));
        self.submit(&command, Waiting::Logout { place, to }, cx);
        Step::Pending
    }

    pub(super) fn logged_out(
        &mut self,
        place: Place,
        to: &ReplyTo,
        applied: &Applied,
        cx: &mut Cx<'_>,
    ) {
        assert!(matches!(applied.outcome, Outcome::Applied(_)), "a logout always applies");
        let connection = place.connection;
        let binding = self.connections.get_mut(&connection).and_then(|it| it.binding.take());
        if let Some(binding) = binding {
            self.unbind(connection, binding);
        }
        if let Some(state) = self.connections.get_mut(&connection) {
            let deadline = login_deadline(cx.now.mono);
            state.login_deadline = Some(deadline);
            self.timers.set(deadline, Timer::LoginDeadline(connection));
            self.admission.logged_out(connection, super::admission::address_of(&state.peer));
            let bytes = FRAME_BYTES_BEFORE_LOGIN_MAX;
            cx.effects.push(Effect::SetFrameLimit { connection, bytes });
        }
        self.complete(place, replies::committed(to, applied.at, Reply::Empty), cx);
    }

    /// A connection that held a session is gone, or holds another one now.
    pub(super) fn session_lost(&mut self, connection: ConnectionId, binding: Binding) {
        self.unbind(connection, binding);
        let connection = self.stamp(connection);
        self.lost.push(ClosedConnection { client: binding.client, connection });
    }

    fn unbind(&mut self, connection: ConnectionId, binding: Binding) {
        if self.bound.get(&binding.client) == Some(&connection) {
            self.bound.remove(&binding.client);
        }
    }

    /// Tells the log of lost connections, many with one command.
    ///
    /// Not while stopping: a refusal would come straight back and be tried again for ever. The next
    /// start finds the connections gone and says so.
    pub(super) fn report_lost_sessions(&mut self, cx: &mut Cx<'_>) {
        while !self.lost.is_empty() && !self.lost_paused && self.ready && !self.stopping {
            let count = self.lost.len().min(HOUSEKEEPING_ENTRIES_MAX);
            let sessions: Vec<ClosedConnection> = self.lost.drain(..count).collect();
            let command = Command::system(Change::ConnectionsClosed(sessions.clone()));
            self.submit(&command, Waiting::Lost(sessions), cx);
        }
    }

    pub(super) fn lost_again(&mut self, sessions: Vec<ClosedConnection>, cx: &mut Cx<'_>) {
        self.lost.extend(sessions);
        self.report_again(cx);
    }

    /// What the log did not take is told again in a moment.
    pub(super) fn report_again(&mut self, cx: &mut Cx<'_>) {
        if !self.lost_paused {
            self.lost_paused = true;
            self.timers.set(cx.now.mono.plus(REPORT_AGAIN_AFTER), Timer::Retry);
        }
    }

    pub(super) fn retry_lost(&mut self, cx: &mut Cx<'_>) {
        self.lost_paused = false;
        if self.host.is_some() && self.is_unannounced() && !self.stopping {
            self.serve_clients(cx);
        }
    }

    /// Starts to expect signs of life, if the connection's client is a member of a group.
    pub(super) fn watch_member(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        if self.is_member(connection) {
            let due = cx.now.mono.plus(Duration::from_secs(HEARTBEAT_SECONDS_MAX));
            self.timers.set(due, Timer::Heartbeat(connection));
        }
    }

    fn is_member(&self, connection: ConnectionId) -> bool {
        let binding = self.connections.get(&connection).and_then(|state| state.binding);
        let session = binding.and_then(|binding| self.metadata.sessions().get(binding.client));
        session.is_some_and(|session| !session.groups.is_empty())
    }

    pub(super) fn heartbeat_due(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        if !self.is_member(connection) {
            return;
        }
        let Some(state) = self.connections.get(&connection) else { return };
        let due = state.heard.plus(Duration::from_secs(HEARTBEAT_SECONDS_MAX));
        if due > cx.now.mono || state.in_flight() > 0 {
            let next = due.max(cx.now.mono.plus(HOUSEKEEPING_EVERY));
            self.timers.set(next, Timer::Heartbeat(connection));
            return;
        }
        if let Some(binding) = state.binding {
            let parts = replies::evict(binding.client, EvictionReason::StaleClient);
            cx.effects.push(Effect::Reply { connection, parts });
        }
        self.close(connection, CloseReason::Idle, cx);
    }

    /// A partition is to move to another member. The shard that its old owner is connected to asks
    /// the lane when the owner has committed what it was given: its polls went the same way before.
    pub(super) fn handover_started(
        &mut self,
        group: GroupKey,
        partition: PartitionKey,
        cx: &mut Cx<'_>,
    ) {
        let Some(pending) = self.metadata.pending_handover(partition, group) else { return };
        if !self.bound.contains_key(&pending.from) {
            return;
        }
        let ticket = self.next_ticket();
        let started = pending.handover.started;
        let handover =
            CompletedHandover { group, partition, started, cause: HandoverCause::Drained };
        self.waiting.insert(ticket, Waiting::Draining(handover));
        let origin = Origin::here(self.options.shard, ticket);
        let kind = LaneRequestKind::AwaitDrained { group: pending.group_place.group };
        let lane = pending.partition.lane;
        cx.behind.submit(cx.now, LaneRequest { origin, key: partition, lane, kind }, cx.effects);
    }

    /// A lane has answered. Anything but "drained" leaves the hand-over to its time-out.
    pub(super) fn drained(
        &mut self,
        handover: CompletedHandover,
        reply: &LaneReply,
        cx: &mut Cx<'_>,
    ) {
        if matches!(reply, LaneReply::Drained) {
            self.keep_house(Change::CompleteHandovers(vec![handover]), cx);
        }
    }

    /// Shard 0: proposes the end of what has outlived its time.
    pub(super) fn housekeeping(&mut self, cx: &mut Cx<'_>) {
        if self.stopping || !self.serves_metadata() {
            return;
        }
        self.timers.set(cx.now.mono.plus(HOUSEKEEPING_EVERY), Timer::Housekeeping);
        let before = |seconds: u64| Micros(cx.now.wall.0.saturating_sub(seconds * 1_000_000));
        let away = self.metadata.sessions().away_since(before(SESSION_AWAY_SECONDS_MIN));
        let expired: Vec<SessionRef> =
            away.take(HOUSEKEEPING_ENTRIES_MAX).map(|session| session.reference()).collect();
        let latest = before(HANDOVER_SECONDS_MAX);
        let overdue = self.metadata.handovers().filter(|it| it.handover.since <= latest);
        let overdue: Vec<CompletedHandover> = overdue
            .take(HOUSEKEEPING_ENTRIES_MAX)
            .map(|it| CompletedHandover {
                group: it.group,
                partition: it.partition.key,
                started: it.handover.started,
                cause: HandoverCause::TimedOut,
            })
            .collect();
        self.disconnect_away_nodes(cx);
        if !expired.is_empty() {
            self.keep_house(Change::ExpireSessions(expired), cx);
        }
        if !overdue.is_empty() {
            self.keep_house(Change::CompleteHandovers(overdue), cx);
        }
        if self.metadata.has_expired_tokens(cx.now.wall) {
            self.keep_house(Change::ExpireTokens, cx);
        }
    }

    /// Tells metadata what lanes led here have committed. Refused while metadata is not served, and
    /// then told again.
    pub(super) fn lanes_confirmed(&mut self, lanes: Vec<(LogId, Op)>, cx: &mut Cx<'_>) {
        if self.ready && !self.stopping {
            self.keep_house(Change::LanesConfirmed(lanes), cx);
        }
    }

    pub(super) fn keep_house(&mut self, change: Change, cx: &mut Cx<'_>) {
        self.submit(&Command::system(change), Waiting::Housekeeping, cx);
    }
}
