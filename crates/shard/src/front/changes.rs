//! Changes of metadata: from a request to its command, from its outcome to the answer.

use super::command::Change as Waiting;
use super::feed::Applied;
use super::request::{Caller, Step};
use super::{Cx, Front, records, replies};
use borzoi_metadata::{
    Change, ClientRequest, Command, CreateTopic, Issuer, Outcome, Reply as Done, TopicDefaults,
    TopicOptions, TopicOptionsUpdate, UpdateTopic,
};
use borzoi_types::Duration;
use borzoi_types::limits::PARTITIONS_PER_REQUEST_MAX;
use borzoi_wire::{ErrorCode, Reply, Secret, body};
use bytes::Bytes;

/// How long a delete or purge waits for its lanes before the client is told to ask again: well
/// below the 30 s that published clients wait for an answer.
pub(super) const LANES_PATIENCE: Duration = Duration::from_secs(10);

impl Front {
    /// Sends a client's change to the metadata log.
    pub(super) fn change(&mut self, caller: &Caller, change: Change, cx: &mut Cx<'_>) -> Step {
        self.change_with_token(caller, change, None, cx)
    }

    /// The same, with the clear token that only the answer will carry.
    pub(super) fn change_with_token(
        &mut self,
        caller: &Caller,
        change: Change,
        token: Option<Secret>,
        cx: &mut Cx<'_>,
    ) -> Step {
        let waiting = Waiting {
            place: caller.place,
            to: caller.to,
            waits_for_lanes: change.waits_for_lanes(),
            joins: matches!(change, Change::JoinGroup(_)),
            token,
        };
        let request = ClientRequest {
            client: caller.binding.client,
            session: caller.binding.session,
            request: caller.to.request,
            checksum: caller.to.request_checksum,
        };
        let command = Command { issuer: Issuer::Client(request), change };
        self.submit_change(&command, waiting, cx)
    }

    /// The answer to an applied change.
    pub(super) fn change_reply(&self, change: &Waiting, applied: &Applied) -> Vec<Bytes> {
        let (to, at) = (&change.to, applied.at);
        match &applied.outcome {
            Outcome::Rejected(code) if code.is_transient() => {
                replies::transient(to, self.metadata.applied(), *code)
            }
            Outcome::Rejected(code) => replies::rejected(to, at, *code),
            Outcome::Applied(done) => match done_reply(done, change.token.as_ref()) {
                Some(reply) => replies::committed(to, at, reply),
                None => {
                    let code = ErrorCode::PersonalAccessTokenAlreadyExists;
                    replies::rejected(to, at, code)
                }
            },
        }
    }
}

/// What a success answers; none for a token whose secret is not known here.
fn done_reply(done: &Done, token: Option<&Secret>) -> Option<Reply> {
    Some(match done {
        Done::Nothing | Done::Registered { .. } => Reply::Empty,
        Done::Stream { id, created, name } => {
            Reply::Stream(records::new_stream(*id, *created, name.clone()))
        }
        Done::Topic { stream: _, id, created, name, partitions, options } => {
            Reply::Topic(records::new_topic(*id, *created, name.clone(), *partitions, options))
        }
        Done::Group { id, name, partitions } => Reply::GroupCreated(body::GroupRecord {
            id: *id,
            partitions_count: *partitions,
            members_count: 0,
            name: name.clone(),
        }),
        Done::User { id, created, status, name, permissions } => Reply::User(body::UserDetails {
            user: records::user_record(*id, *created, *status, name.clone()),
            permissions: permissions.as_ref().map(Into::into),
        }),
        Done::Token => Reply::Token(token?.clone()),
    })
}

/// A count of partitions that one request may name.
pub(super) fn partitions_in_range(count: u32, min: u32) -> Result<u32, ErrorCode> {
    if (min..=PARTITIONS_PER_REQUEST_MAX).contains(&count) {
        Ok(count)
    } else {
        Err(ErrorCode::TooManyPartitions)
    }
}

pub(super) fn create_topic(
    request: body::CreateTopic,
    defaults: &TopicDefaults,
) -> Result<Change, ErrorCode> {
    let partitions = partitions_in_range(request.partitions_count, 0)?;
    let options = TopicOptions::parse(&request.options.0, partitions, defaults)?;
    let (stream, name) = (request.stream, request.name);
    Ok(Change::CreateTopic(CreateTopic { stream, name, partitions, options }))
}

pub(super) fn update_topic(request: body::UpdateTopic) -> Result<Change, ErrorCode> {
    let options = TopicOptionsUpdate::parse(&request.options.0)?;
    let (stream, topic) = (request.stream, request.topic);
    Ok(Change::UpdateTopic(UpdateTopic { stream, topic, name: request.name, options }))
}
