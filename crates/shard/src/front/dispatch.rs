//! Every request of a bound connection, to its handler.
//!
//! The match has no catch-all: a request that is added to the protocol does not compile until it
//! is dealt with here.

use super::request::{Caller, Known, Step};
use super::{Cx, Front};
use borzoi_metadata::{Action, Change, GroupName, TopicName, no_options};
use borzoi_wire::{ErrorCode, Reply, Request};

impl Front {
    /// Runs a decoded request.
    pub(super) fn dispatch(
        &mut self,
        caller: &Caller,
        request: Request<'_>,
        known: Known<'_>,
        cx: &mut Cx<'_>,
    ) -> Step {
        match request {
            Request::Ping => self.read_reply(caller, Reply::Empty),
            Request::GetStats => self.get_stats(caller, known, cx),
            Request::GetSnapshot(body) => self.get_snapshot(caller, known, &body, cx),
            Request::GetClusterMetadata => self.get_cluster_metadata(caller, known),
            Request::DescribeOptions(body) => self.describe_options(caller, known, body.scope),
            Request::GetMe => self.get_me(caller, known),
            Request::GetClient(body) => self.get_client(caller, known, body.client, cx),
            Request::GetClients => self.get_clients(caller, known, cx),
            Request::GetUser(body) => self.get_user(caller, known, &body.user),
            Request::GetUsers => self.get_users(caller, known),
            Request::GetPersonalAccessTokens => self.get_tokens(caller, known),
            Request::GetStream(body) => self.get_stream(caller, known, &body.stream),
            Request::GetStreams => self.get_streams(caller, known),
            Request::GetTopic(body) => self.get_topic(caller, known, &body.stream, &body.topic),
            Request::GetTopics(body) => self.get_topics(caller, known, &body.stream),
            Request::GetConsumerGroup(body) => {
                self.get_group(caller, known, &body.stream, &body.topic, &body.group)
            }
            Request::GetConsumerGroups(body) => {
                self.get_groups(caller, known, &body.stream, &body.topic)
            }
            Request::SyncConsumerGroup(body) => {
                self.sync_group(caller, known, &body.stream, &body.topic, &body.group)
            }
            Request::PollMessages(body) | Request::PollOnPrimary(body) => {
                self.poll(caller, known, &body)
            }
            Request::GetConsumerOffset(body) => self.get_offset(caller, known, &body),
            Request::StoreConsumerOffset(body) => self.store_offset(caller, known, &body),
            Request::DeleteConsumerOffset(body) => self.delete_offset(caller, known, &body),
            Request::CreateUser(body) => self.create_user(caller, body, cx),
            Request::ChangePassword(body) => self.change_password(caller, known, body, cx),
            Request::CreatePersonalAccessToken(body) => self.create_token(caller, body, cx),
            Request::DeletePersonalAccessToken(body) => {
                self.change(caller, Change::DeleteToken { name: body.name }, cx)
            }
            Request::UpdateUser(body) => self.update_user(caller, body, cx),
            Request::DeleteUser(body) => {
                self.change(caller, Change::DeleteUser { user: body.user }, cx)
            }
            Request::UpdatePermissions(body) => self.update_permissions(caller, body, cx),
            // Answered before a request is decoded as one of these.
            Request::Login(_) | Request::Logout | Request::SendMessages(_) => {
                self.deny(caller, ErrorCode::InvalidCommand)
            }
            Request::GetPollRouting(body) => self.poll_routing(caller, known, &body),
            Request::GetOffsetRouting(body) => self.offset_routing(caller, known, &body),
            Request::AttachConsumerSession(body) => self.attach(caller, known, &body),
            Request::FlushUnsavedBuffer(_) => self.deny(caller, ErrorCode::FeatureUnavailable),
            #[rustfmt::skip]
            Request::CreateStream(_) | Request::UpdateStream(_) | Request::DeleteStream(_)
            | Request::PurgeStream(_) | Request::CreateTopic(_) | Request::UpdateTopic(_)
            | Request::DeleteTopic(_) | Request::PurgeTopic(_) | Request::CreatePartitions(_)
            | Request::DeletePartitions(_) | Request::DeleteSegments(_)
            | Request::CreateConsumerGroup(_)
            | Request::DeleteConsumerGroup(_) | Request::JoinConsumerGroup(_)
            | Request::LeaveConsumerGroup(_) => self.dispatch_resource(caller, request, cx),
        }
    }

    /// Changes of streams, topics, partitions and groups.
    fn dispatch_resource(
        &mut self,
        caller: &Caller,
        request: Request<'_>,
        cx: &mut Cx<'_>,
    ) -> Step {
        match resource_change(request, &self.options.topic_defaults) {
            Ok(change) => self.change(caller, change, cx),
            Err(code) => self.deny(caller, code),
        }
    }

    /// Whether the caller may do something; if not, how that is answered.
    pub(super) fn authorise(
        &self,
        caller: &Caller,
        known: Known<'_>,
        action: Action,
    ) -> Result<(), Step> {
        let allowed = self.metadata.authorise(caller.binding.user, action);
        allowed.map_err(|code| self.refuse(caller, known, code))
    }
}

fn resource_change(
    request: Request<'_>,
    defaults: &borzoi_metadata::TopicDefaults,
) -> Result<Change, ErrorCode> {
    use super::changes::{create_topic, partitions_in_range, update_topic};
    Ok(match request {
        Request::CreateStream(body) => {
            no_options(&body.options.0)?;
            Change::CreateStream { name: body.name }
        }
        Request::UpdateStream(body) => {
            no_options(&body.options.0)?;
            Change::UpdateStream { stream: body.stream, name: body.name }
        }
        Request::DeleteStream(body) => Change::DeleteStream { stream: body.stream },
        Request::PurgeStream(body) => Change::PurgeStream { stream: body.stream },
        Request::CreateTopic(body) => create_topic(body, defaults)?,
        Request::UpdateTopic(body) => update_topic(body)?,
        Request::DeleteTopic(body) => Change::DeleteTopic(topic_name(body.stream, body.topic)),
        Request::PurgeTopic(body) => Change::PurgeTopic(topic_name(body.stream, body.topic)),
        Request::CreatePartitions(body) => Change::CreatePartitions {
            topic: topic_name(body.stream, body.topic),
            count: partitions_in_range(body.partitions_count, 1)?,
        },
        Request::DeletePartitions(body) => Change::DeletePartitions {
            topic: topic_name(body.stream, body.topic),
            count: partitions_in_range(body.partitions_count, 1)?,
        },
        Request::DeleteSegments(body) => Change::DeleteSegments {
            topic: topic_name(body.stream, body.topic),
            partition: body.partition,
            count: body.segments_count,
        },
        Request::CreateConsumerGroup(body) => {
            Change::CreateGroup { topic: topic_name(body.stream, body.topic), name: body.name }
        }
        Request::DeleteConsumerGroup(body) => {
            Change::DeleteGroup(group_name(body.stream, body.topic, body.group))
        }
        Request::JoinConsumerGroup(body) => {
            Change::JoinGroup(group_name(body.stream, body.topic, body.group))
        }
        Request::LeaveConsumerGroup(body) => {
            Change::LeaveGroup(group_name(body.stream, body.topic, body.group))
        }
        _ => return Err(ErrorCode::InvalidCommand),
    })
}

fn topic_name(stream: borzoi_wire::Identifier, topic: borzoi_wire::Identifier) -> TopicName {
    TopicName { stream, topic }
}

fn group_name(
    stream: borzoi_wire::Identifier,
    topic: borzoi_wire::Identifier,
    group: borzoi_wire::Identifier,
) -> GroupName {
    GroupName { stream, topic, group }
}
