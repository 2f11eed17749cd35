//! Applying commands: admission, dispatch, what duplicates get.

use crate::access::Action;
use crate::command::{Change, ClientRequest, Command, Issuer};
use crate::identity::UserKey;
use crate::outcome::{Notice, Outcome, Reply, StoredReply};
use crate::sessions::Admission;
use crate::state::Metadata;
use borzoi_types::{ClientId, Micros, Op};
use borzoi_wire::ErrorCode;

/// Result of one change inside the state machine.
pub(crate) type Applied = Result<Reply, ErrorCode>;

/// What a change may depend on besides the state and itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The operation.
    pub op: Op,
    /// The prepare's timestamp.
    pub now: Micros,
    /// Who acts; none for the server itself.
    pub user: Option<UserKey>,
    /// The client that acts, when it acts in a session.
    pub client: Option<ClientId>,
}

impl Metadata {
    /// Applies the next operation of the metadata log.
    ///
    /// A client's request that was executed before changes nothing and gives its stored outcome;
    /// one without the session it names is rejected (40, 14001, 54 for a token that is gone).
    ///
    /// # Panics
    /// When `op` is not the one after [`Metadata::applied`].
    pub fn apply(&mut self, op: Op, now: Micros, command: &Command) -> Outcome {
        self.advance(op);
        let outcome = match self.context(op, now, &command.issuer) {
            Ok(context) => {
                let outcome = match self.dispatch(&context, &command.change) {
                    Ok(reply) => Outcome::Applied(reply),
                    Err(code) => Outcome::Rejected(code),
                };
                if let Issuer::Client(request) = &command.issuer {
                    self.remember(op, now, request, &outcome);
                }
                outcome
            }
            Err(outcome) => outcome,
        };
        let touched = core::mem::take(&mut self.touched);
        self.notices.extend(touched.into_iter().map(Notice::LaneChanged));
        outcome
    }

    /// Counts an operation that says nothing to metadata (the no-op of a new view).
    ///
    /// # Panics
    /// When `op` is not the one after [`Metadata::applied`].
    pub fn advance(&mut self, op: Op) {
        assert_eq!(op, self.applied.next(), "operations are applied in order, each once");
        self.applied = op;
        self.notices.clear();
        assert!(self.touched.is_empty(), "cleared by the operation before");
    }

    /// Who acts, or the outcome when that already decides.
    fn context(&self, op: Op, now: Micros, issuer: &Issuer) -> Result<Context, Outcome> {
        let (user, client) = match issuer {
            Issuer::System => (None, None),
            Issuer::User(user) => (Some(*user), None),
            Issuer::Client(request) => {
                (Some(self.admit_logged(now, request)?), Some(request.client))
            }
        };
        Ok(Context { op, now, user, client })
    }

    fn admit_logged(&self, now: Micros, request: &ClientRequest) -> Result<UserKey, Outcome> {
        let ClientRequest { client, session, request, checksum } = *request;
        match self.sessions.admit(client, session, request, checksum) {
            Admission::Stored(stored) => Err(stored.outcome),
            Admission::AlreadyApplied => Err(Outcome::Rejected(ErrorCode::RequestAlreadyApplied)),
            Admission::NoSession => Err(Outcome::Rejected(ErrorCode::Unauthenticated)),
            Admission::SessionTooLow | Admission::SessionTooHigh => {
                Err(Outcome::Rejected(ErrorCode::InvalidSession))
            }
            Admission::Execute(user) => {
                let live = self.session_user(client, session, now);
                live.map(|found| assert_eq!(found, user, "a session has one user"))
                    .map_err(Outcome::Rejected)?;
                Ok(user)
            }
        }
    }

    /// Keeps the outcome for duplicates. A request that may simply be sent again is not kept; a
    /// token's secret cannot be given twice, so its duplicate finds the name taken.
    fn remember(&mut self, op: Op, now: Micros, request: &ClientRequest, outcome: &Outcome) {
        let kept = match outcome {
            Outcome::Rejected(code) if code.is_transient() => return,
            Outcome::Applied(Reply::Token) => {
                Outcome::Rejected(ErrorCode::PersonalAccessTokenAlreadyExists)
            }
            other => other.clone(),
        };
        let stored = StoredReply { op, timestamp: now, outcome: kept };
        self.sessions.remember(request.client, request.request, request.checksum, &stored);
    }

    /// Whether the acting user may do this; the server itself may do everything.
    pub(crate) fn require(&self, context: &Context, action: Action) -> Result<(), ErrorCode> {
        context.user.map_or(Ok(()), |user| self.authorise(user, action))
    }

    /// Changes that only the server itself may issue.
    fn require_system(context: &Context) -> Result<(), ErrorCode> {
        if context.user.is_none() { Ok(()) } else { Err(ErrorCode::Unauthorized) }
    }

    fn dispatch(&mut self, context: &Context, change: &Change) -> Applied {
        match change {
            Change::CreateStream { name } => self.create_stream(context, name),
            Change::UpdateStream { stream, name } => self.update_stream(context, stream, name),
            Change::DeleteStream { stream } => self.delete_stream(context, stream),
            Change::PurgeStream { stream } => self.purge_stream(context, stream),
            Change::CreateTopic(topic) => self.create_topic(context, topic),
            Change::UpdateTopic(topic) => self.update_topic(context, topic),
            Change::DeleteTopic(topic) => self.delete_topic(context, topic),
            Change::PurgeTopic(topic) => self.purge_topic(context, topic),
            Change::CreatePartitions { topic, count } => {
                self.create_partitions(context, topic, *count)
            }
            Change::DeletePartitions { topic, count } => {
                self.delete_partitions(context, topic, *count)
            }
            Change::DeleteSegments { topic, partition, count } => {
                self.delete_segments(context, topic, *partition, *count)
            }
            Change::CreateGroup { topic, name } => self.create_group(context, topic, name),
            Change::DeleteGroup(group) => self.delete_group(context, group),
            Change::JoinGroup(group) => self.join_group(context, group),
            Change::LeaveGroup(group) => self.leave_group(context, group),
            Change::CreateUser(user) => self.create_user(context, user),
            Change::UpdateUser { user, name, status } => {
                self.update_user(context, user, name.as_ref(), *status)
            }
            Change::DeleteUser { user } => self.delete_user(context, user),
            Change::UpdatePermissions { user, permissions } => {
                self.update_permissions(context, user, permissions.as_ref())
            }
            Change::ChangePassword { user, verified, password } => {
                self.change_password(context, user, verified, password)
            }
            Change::CreateToken { name, hash, expires, tokens_max } => {
                self.create_token(context, name, *hash, *expires, *tokens_max)
            }
            Change::DeleteToken { name } => self.delete_token(context, name),
            Change::Register(_)
            | Change::Logout(_)
            | Change::ConnectionsClosed(_)
            | Change::NodeStarted { .. }
            | Change::ExpireSessions(_)
            | Change::CompleteHandovers(_)
            | Change::RemoveMembers(_)
            | Change::ExpireTokens
            | Change::LanesConfirmed(_) => {
                Self::require_system(context)?;
                self.dispatch_system(context, change)
            }
        }
    }

    fn dispatch_system(&mut self, context: &Context, change: &Change) -> Applied {
        match change {
            Change::Register(register) => return self.register(context, register),
            Change::Logout(session) => self.logout(context, *session),
            Change::ConnectionsClosed(closed) => self.connections_closed(context, closed),
            Change::NodeStarted { replica, generation } => {
                self.node_started(context, *replica, *generation);
            }
            Change::ExpireSessions(sessions) => self.expire_sessions(context, sessions),
            Change::CompleteHandovers(handovers) => self.complete_handovers(handovers),
            Change::RemoveMembers(members) => self.remove_members(context, members),
            Change::ExpireTokens => self.expire_tokens(context),
            Change::LanesConfirmed(lanes) => self.lanes_confirmed(context, lanes),
            other => unreachable!("{other:?} is dispatched by its issuer's rights"),
        }
        Ok(Reply::Nothing)
    }
}
