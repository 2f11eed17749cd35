//! Every answer decodes to the last byte: one exhaustive match from command to the type of its
//! answer.

use crate::history::Value;
use borzoi_wire::body::{
    Assignment, ClientDetails, ClientRecord, ClusterMetadata, ConsumerOffset, GroupDetails,
    GroupRecord, Identity, NodeRole, NodeStatus, OptionDescription, PollReply, Routing,
    SendConfirmation, Stats, StreamDetails, StreamRecord, TokenRecord, TopicDetails, TopicHeader,
    UserDetails, UserRecord,
};
use borzoi_wire::codec::{Empty, ToEnd};
use borzoi_wire::{CommandCode, DecodeError, Secret, Wire};

/// Whether a payload is one `T` and nothing else.
fn exact<T: for<'a> Wire<'a>>(payload: &[u8]) -> Result<Value, DecodeError> {
    T::decode_exact(payload).map(|_| Value::Nothing)
}

/// Reads the payload of a success.
///
/// # Errors
/// When it is not what the command is answered with.
pub fn read(command: CommandCode, payload: &[u8]) -> Result<Value, DecodeError> {
    use CommandCode as C;
    match command {
        C::GetStats => exact::<Stats>(payload),
        // The archive is its bytes, whatever they are.
        C::GetSnapshot => Ok(Value::Nothing),
        C::GetClusterMetadata => ClusterMetadata::decode_exact(payload).map(|it| leader(&it)),
        C::DescribeOptions => exact::<Vec<OptionDescription>>(payload),
        C::GetMe => exact::<ClientDetails>(payload),
        C::GetClient => exact::<Option<ClientDetails>>(payload),
        C::GetClients => exact::<ToEnd<ClientRecord>>(payload),
        C::GetUser => exact::<Option<UserDetails>>(payload),
        C::GetUsers => exact::<ToEnd<UserRecord>>(payload),
        C::CreateUser => exact::<UserDetails>(payload),
        C::Login | C::TokenLogin | C::LegacyLogin | C::LegacyTokenLogin => {
            exact::<Identity>(payload)
        }
        C::GetPersonalAccessTokens => exact::<ToEnd<TokenRecord>>(payload),
        C::CreatePersonalAccessToken => {
            Secret::decode_exact(payload).map(|secret| Value::Secret(secret.reveal().to_owned()))
        }
        C::PollMessages | C::PollOnPrimary => {
            PollReply::decode_exact(payload).map(|_| Value::Nothing)
        }
        C::SendMessages => exact::<Vec<SendConfirmation>>(payload),
        C::GetPollRouting | C::GetOffsetRouting => exact::<Routing>(payload),
        C::GetConsumerOffset => Option::<ConsumerOffset>::decode_exact(payload)
            .map(|found| Value::Offset(found.map(|it| it.stored_offset.0))),
        C::GetStream => exact::<Option<StreamDetails>>(payload),
        C::GetStreams => exact::<ToEnd<StreamRecord>>(payload),
        C::CreateStream => {
            StreamDetails::decode_exact(payload).map(|it| Value::Created(it.stream.id.0))
        }
        C::GetTopic => exact::<Option<TopicDetails>>(payload),
        C::GetTopics => exact::<Vec<TopicHeader>>(payload),
        C::CreateTopic => {
            TopicDetails::decode_exact(payload).map(|it| Value::Created(it.topic.id.0))
        }
        C::GetConsumerGroup => exact::<Option<GroupDetails>>(payload),
        C::GetConsumerGroups => exact::<ToEnd<GroupRecord>>(payload),
        C::CreateConsumerGroup => {
            GroupRecord::decode_exact(payload).map(|it| Value::Created(it.id.0))
        }
        C::SyncConsumerGroup => assignment(payload),
        C::Ping
        | C::Logout
        | C::AttachConsumerSession
        | C::FlushUnsavedBuffer
        | C::DeleteUser
        | C::UpdateUser
        | C::UpdatePermissions
        | C::ChangePassword
        | C::DeletePersonalAccessToken
        | C::StoreConsumerOffset
        | C::DeleteConsumerOffset
        | C::DeleteStream
        | C::UpdateStream
        | C::PurgeStream
        | C::DeleteTopic
        | C::UpdateTopic
        | C::PurgeTopic
        | C::CreatePartitions
        | C::DeletePartitions
        | C::DeleteSegments
        | C::DeleteConsumerGroup
        | C::JoinConsumerGroup
        | C::LeaveConsumerGroup => exact::<Empty>(payload),
    }
}

/// Generation and partitions of a member, if the caller is one.
fn assignment(payload: &[u8]) -> Result<Value, DecodeError> {
    let found = Option::<Assignment>::decode_exact(payload)?;
    let list = |it: &Assignment| it.partitions.iter().map(|it| it.0).collect();
    Ok(Value::Assignment(found.map(|it| (it.generation.0, list(&it)))))
}

/// The node that leads, if there is more than one and a healthy one says so.
fn leader(cluster: &ClusterMetadata) -> Value {
    let leads = |node: &borzoi_wire::body::ClusterNode| {
        node.role == NodeRole::Leader && node.status == NodeStatus::Healthy
    };
    let several = cluster.nodes.len() > 1;
    Value::Leader(cluster.nodes.iter().position(leads).filter(|_| several))
}
