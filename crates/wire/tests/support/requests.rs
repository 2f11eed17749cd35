//! A strategy for every request, owned, so that the borrowing ones can be made from it.

use super::values::{
    attach_record, identifier, micros, name, offset, partition, permissions, secret, text,
    trailing, user_status,
};
use borzoi_wire::body::*;
use borzoi_wire::{
    ConsumerKind, ConsumerRef, Identifier, MessagesKey, OptionalPartition, Partitioning,
    PollingStrategy, ProtocolVersion, Request,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// What the borrowing requests are made of.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: ConsumerKind,
    pub consumer: Identifier,
    pub stream: Identifier,
    pub topic: Identifier,
    pub partition: OptionalPartition,
    pub offset: borzoi_types::Offset,
    pub ack: OffsetAck,
    pub strategy: PollingStrategy,
    pub count: u32,
    pub flag: bool,
    pub key: Vec<u8>,
    pub batch: Vec<u8>,
}

impl Target {
    fn consumer_ref(&self) -> ConsumerRef<'_> {
        ConsumerRef { kind: self.kind, id: self.consumer.as_identifier_ref() }
    }

    pub fn poll(&self) -> PollMessages<'_> {
        PollMessages {
            consumer: self.consumer_ref(),
            stream: self.stream.as_identifier_ref(),
            topic: self.topic.as_identifier_ref(),
            partition: self.partition,
            strategy: self.strategy,
            count: self.count,
            auto_commit: self.flag,
        }
    }

    pub fn get_offset(&self) -> GetConsumerOffset<'_> {
        GetConsumerOffset {
            consumer: self.consumer_ref(),
            stream: self.stream.as_identifier_ref(),
            topic: self.topic.as_identifier_ref(),
            partition: self.partition,
        }
    }

    pub fn store_offset(&self) -> StoreConsumerOffset<'_> {
        let GetConsumerOffset { consumer, stream, topic, partition } = self.get_offset();
        let (offset, ack) = (self.offset, self.ack);
        StoreConsumerOffset { consumer, stream, topic, partition, offset, ack }
    }

    pub fn delete_offset(&self) -> DeleteConsumerOffset<'_> {
        let GetConsumerOffset { consumer, stream, topic, partition } = self.get_offset();
        DeleteConsumerOffset { consumer, stream, topic, partition, ack: self.ack }
    }

    pub fn send(&self) -> SendMessages<'_> {
        let partitioning = match (self.partition.0, MessagesKey::new(&self.key)) {
            (Some(partition), _) => Partitioning::Partition(partition),
            (None, Some(key)) => Partitioning::Key(key),
            (None, None) => Partitioning::Balanced,
        };
        SendMessages {
            stream: self.stream.as_identifier_ref(),
            topic: self.topic.as_identifier_ref(),
            partitioning,
            messages_count: self.count,
            batch: &self.batch,
        }
    }

    /// Every request that borrows, made of this.
    pub fn requests(&self) -> Vec<Request<'_>> {
        vec![
            Request::SendMessages(self.send()),
            Request::PollMessages(self.poll()),
            Request::GetPollRouting(self.poll()),
            Request::PollOnPrimary(self.poll()),
            Request::GetConsumerOffset(self.get_offset()),
            Request::GetOffsetRouting(self.get_offset()),
            Request::StoreConsumerOffset(self.store_offset()),
            Request::DeleteConsumerOffset(self.delete_offset()),
        ]
    }
}

fn strategy() -> impl Strategy<Value = PollingStrategy> {
    prop_oneof![
        offset().prop_map(PollingStrategy::Offset),
        micros().prop_map(PollingStrategy::Timestamp),
        Just(PollingStrategy::First),
        Just(PollingStrategy::Last),
        Just(PollingStrategy::Next),
    ]
}

pub fn target() -> impl Strategy<Value = Target> {
    let names = (select(ConsumerKind::ALL), identifier(), identifier(), identifier());
    let place = (prop::option::of(partition()), offset(), select(OffsetAck::ALL), strategy());
    let rest = (any::<u32>(), any::<bool>(), vec(any::<u8>(), 0..=255), vec(any::<u8>(), 0..600));
    (names, place, rest).prop_map(|(names, place, rest)| Target {
        kind: names.0,
        consumer: names.1,
        stream: names.2,
        topic: names.3,
        partition: OptionalPartition(place.0),
        offset: place.1,
        ack: place.2,
        strategy: place.3,
        count: rest.0,
        flag: rest.1,
        key: rest.2,
        batch: rest.3,
    })
}

pub fn login() -> impl Strategy<Value = Login> {
    let version = (0..1024u32, name(), name()).prop_map(|(patch, sdk_name, sdk_version)| {
        ClientVersion { protocol: ProtocolVersion::new(0, 11, patch), sdk_name, sdk_version }
    });
    // With an empty context, as published clients send it, the two forms cannot be confused.
    let credentials = prop_oneof![
        (name(), secret()).prop_map(|(user, password)| Credentials::Password { user, password }),
        secret().prop_map(|token| Credentials::Token { token }),
    ];
    (version, credentials).prop_map(|(version, credentials)| Login {
        version,
        credentials,
        context: "".into(),
    })
}

fn users() -> impl Strategy<Value = Request<'static>> {
    let maybe = || prop::option::of(permissions());
    prop_oneof![
        login().prop_map(Request::Login),
        identifier().prop_map(|user| Request::GetUser(GetUser { user })),
        identifier().prop_map(|user| Request::DeleteUser(DeleteUser { user })),
        (name(), secret(), user_status(), maybe(), trailing()).prop_map(
            |(name, password, status, permissions, options)| Request::CreateUser(CreateUser {
                name,
                password,
                status,
                permissions,
                options
            })
        ),
        (identifier(), prop::option::of(name()), prop::option::of(user_status()), trailing())
            .prop_map(|(user, name, status, options)| Request::UpdateUser(UpdateUser {
                user,
                name,
                status,
                options
            })),
        (identifier(), maybe()).prop_map(|(user, permissions)| Request::UpdatePermissions(
            UpdatePermissions { user, permissions }
        )),
        (identifier(), secret(), secret()).prop_map(|(user, current, new)| {
            Request::ChangePassword(ChangePassword { user, current, new })
        }),
        (name(), any::<u64>()).prop_map(|(name, lifetime)| {
            let lifetime = TokenLifetime(lifetime);
            Request::CreatePersonalAccessToken(CreatePersonalAccessToken { name, lifetime })
        }),
        name().prop_map(|name| {
            Request::DeletePersonalAccessToken(DeletePersonalAccessToken { name })
        }),
    ]
}

fn streams() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![
        identifier().prop_map(|stream| Request::GetStream(GetStream { stream })),
        identifier().prop_map(|stream| Request::DeleteStream(DeleteStream { stream })),
        identifier().prop_map(|stream| Request::PurgeStream(PurgeStream { stream })),
        identifier().prop_map(|stream| Request::GetTopics(GetTopics { stream })),
        (name(), trailing())
            .prop_map(|(name, options)| { Request::CreateStream(CreateStream { name, options }) }),
        (identifier(), name(), trailing()).prop_map(|(stream, name, options)| {
            Request::UpdateStream(UpdateStream { stream, name, options })
        }),
    ]
}

fn topics() -> impl Strategy<Value = Request<'static>> {
    let both = || (identifier(), identifier());
    prop_oneof![
        both().prop_map(|(stream, topic)| Request::GetTopic(GetTopic { stream, topic })),
        both().prop_map(|(stream, topic)| Request::DeleteTopic(DeleteTopic { stream, topic })),
        both().prop_map(|(stream, topic)| Request::PurgeTopic(PurgeTopic { stream, topic })),
        (identifier(), any::<u32>(), name(), trailing()).prop_map(
            |(stream, partitions_count, name, options)| {
                Request::CreateTopic(CreateTopic { stream, partitions_count, name, options })
            }
        ),
        (both(), name(), trailing()).prop_map(|((stream, topic), name, options)| {
            Request::UpdateTopic(UpdateTopic { stream, topic, name, options })
        }),
        (both(), any::<u32>()).prop_map(|((stream, topic), partitions_count)| {
            Request::CreatePartitions(CreatePartitions { stream, topic, partitions_count })
        }),
        (both(), any::<u32>()).prop_map(|((stream, topic), partitions_count)| {
            Request::DeletePartitions(DeletePartitions { stream, topic, partitions_count })
        }),
        (both(), partition(), any::<u32>()).prop_map(|((stream, topic), partition, count)| {
            let segments_count = count;
            Request::DeleteSegments(DeleteSegments { stream, topic, partition, segments_count })
        }),
        (both(), partition(), any::<bool>()).prop_map(|((stream, topic), partition, fsync)| {
            Request::FlushUnsavedBuffer(FlushUnsavedBuffer { stream, topic, partition, fsync })
        }),
    ]
}

fn groups() -> impl Strategy<Value = Request<'static>> {
    let all = || (identifier(), identifier(), identifier());
    prop_oneof![
        all().prop_map(|(stream, topic, group)| {
            Request::GetConsumerGroup(GetConsumerGroup { stream, topic, group })
        }),
        all().prop_map(|(stream, topic, group)| {
            Request::DeleteConsumerGroup(DeleteConsumerGroup { stream, topic, group })
        }),
        all().prop_map(|(stream, topic, group)| {
            Request::JoinConsumerGroup(JoinConsumerGroup { stream, topic, group })
        }),
        all().prop_map(|(stream, topic, group)| {
            Request::LeaveConsumerGroup(LeaveConsumerGroup { stream, topic, group })
        }),
        all().prop_map(|(stream, topic, group)| {
            Request::SyncConsumerGroup(SyncConsumerGroup { stream, topic, group })
        }),
        (identifier(), identifier()).prop_map(|(stream, topic)| {
            Request::GetConsumerGroups(GetConsumerGroups { stream, topic })
        }),
        (identifier(), identifier(), name()).prop_map(|(stream, topic, name)| {
            Request::CreateConsumerGroup(CreateConsumerGroup { stream, topic, name })
        }),
    ]
}

fn system() -> impl Strategy<Value = Request<'static>> {
    let content = vec(select(SnapshotContent::ALL), 0..=255);
    prop_oneof![
        select(vec![
            Request::Ping,
            Request::GetStats,
            Request::GetClusterMetadata,
            Request::GetMe,
            Request::GetClients,
            Request::GetUsers,
            Request::Logout,
            Request::GetPersonalAccessTokens,
            Request::GetStreams,
        ]),
        (select(SnapshotCompression::ALL), content).prop_map(|(compression, content)| {
            Request::GetSnapshot(GetSnapshot { compression, content })
        }),
        select(OptionsScope::ALL)
            .prop_map(|scope| Request::DescribeOptions(DescribeOptions { scope })),
        attach_record().prop_map(Request::AttachConsumerSession),
        any::<u32>()
            .prop_map(|client| Request::GetClient(GetClient { client: ClientNumber(client) })),
    ]
}

/// Every request that owns its parts.
pub fn owned_request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![users(), streams(), topics(), groups(), system()]
}

/// A login with a context, which only its round trip of bytes can be asked of.
pub fn login_with_context() -> impl Strategy<Value = Login> {
    (login(), text()).prop_map(|(login, context)| Login { context, ..login })
}
