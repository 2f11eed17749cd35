//! Who may do what: one function, default deny (wire protocol, section 8.2; behaviour, section 5).
//!
//! Every operation that a client can ask for is an [`Action`]. [`Permissions::allow`] matches them
//! without a catch-all, so a new operation without a rule does not compile.

use crate::identity::UserKey;
use crate::permissions::Permissions;
use borzoi_types::{StreamId, TopicId};

/// What a user wants to do, on which objects. Objects are resolved first: a missing one is
/// reported as missing, whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Code 1.
    Ping,
    /// Code 10.
    GetStats,
    /// Code 11.
    GetSnapshot,
    /// Code 12.
    GetClusterMetadata,
    /// Code 13.
    DescribeOptions,
    /// Code 14.
    AttachConsumerSession,
    /// Code 20.
    GetMe,
    /// Code 21.
    GetClient,
    /// Code 22.
    GetClients,
    /// Scrape of metrics.
    GetMetrics,
    /// Code 31, of this user.
    GetUser(UserKey),
    /// Code 32.
    GetUsers,
    /// Code 33.
    CreateUser,
    /// Code 34.
    DeleteUser(UserKey),
    /// Code 35.
    UpdateUser(UserKey),
    /// Code 36.
    UpdatePermissions(UserKey),
    /// Code 37, of this user.
    ChangePassword(UserKey),
    /// Code 39.
    Logout,
    /// Code 41.
    GetTokens,
    /// Code 42.
    CreateToken,
    /// Code 43.
    DeleteToken,
    /// Code 200.
    GetStream(StreamId),
    /// Code 201.
    GetStreams,
    /// Code 202.
    CreateStream,
    /// Code 203.
    DeleteStream(StreamId),
    /// Code 204.
    UpdateStream(StreamId),
    /// Code 205.
    PurgeStream(StreamId),
    /// Code 300.
    GetTopic(StreamId, TopicId),
    /// Code 301.
    GetTopics(StreamId),
    /// Code 302.
    CreateTopic(StreamId),
    /// Code 303.
    DeleteTopic(StreamId, TopicId),
    /// Code 304.
    UpdateTopic(StreamId, TopicId),
    /// Code 305.
    PurgeTopic(StreamId, TopicId),
    /// Code 402.
    CreatePartitions(StreamId, TopicId),
    /// Code 403.
    DeletePartitions(StreamId, TopicId),
    /// Code 503.
    DeleteSegments(StreamId, TopicId),
    /// Code 600.
    GetConsumerGroup(StreamId, TopicId),
    /// Code 601.
    GetConsumerGroups(StreamId, TopicId),
    /// Code 602.
    CreateConsumerGroup(StreamId, TopicId),
    /// Code 603.
    DeleteConsumerGroup(StreamId, TopicId),
    /// Code 604.
    JoinConsumerGroup(StreamId, TopicId),
    /// Code 605.
    LeaveConsumerGroup(StreamId, TopicId),
    /// Code 606.
    SyncConsumerGroup,
    /// Codes 100 and 104.
    PollMessages(StreamId, TopicId),
    /// Code 103.
    GetPollRouting(StreamId, TopicId),
    /// Code 101.
    SendMessages(StreamId, TopicId),
    /// Code 102.
    FlushUnsavedBuffer(StreamId, TopicId),
    /// Code 120.
    GetConsumerOffset(StreamId, TopicId),
    /// Code 121.
    StoreConsumerOffset(StreamId, TopicId),
    /// Code 122.
    DeleteConsumerOffset(StreamId, TopicId),
    /// Code 123.
    GetOffsetRouting(StreamId, TopicId),
}

impl Permissions {
    /// Whether these permissions let `user`, whose they are, do this. Root is asked nothing and
    /// does not come here.
    #[must_use]
    pub fn allow(&self, user: UserKey, action: Action) -> bool {
        match action {
            Action::Ping
            | Action::GetClusterMetadata
            | Action::DescribeOptions
            | Action::AttachConsumerSession
            | Action::GetMe
            | Action::GetMetrics
            | Action::Logout
            | Action::GetTokens
            | Action::CreateToken
            | Action::DeleteToken
            | Action::SyncConsumerGroup => true,

            Action::GetStats | Action::GetSnapshot | Action::GetClient | Action::GetClients => {
                self.global.manage_servers || self.global.read_servers
            }

            Action::GetUser(target) => target == user || self.reads_users(),
            Action::GetUsers => self.reads_users(),
            Action::ChangePassword(target) => target == user || self.global.manage_users,
            Action::CreateUser
            | Action::DeleteUser(_)
            | Action::UpdateUser(_)
            | Action::UpdatePermissions(_) => self.global.manage_users,

            Action::GetStreams => self.reads_streams(),
            Action::GetStream(stream) => self.reads_stream(stream),
            Action::CreateStream => self.global.manage_streams,
            Action::DeleteStream(stream)
            | Action::UpdateStream(stream)
            | Action::PurgeStream(stream) => {
                self.global.manage_streams || self.stream(stream).manage_stream
            }

            Action::GetTopics(stream) => self.reads_topics(stream),
            Action::CreateTopic(stream) => self.manages_topics(stream),
            Action::DeleteTopic(stream, topic)
            | Action::UpdateTopic(stream, topic)
            | Action::PurgeTopic(stream, topic)
            | Action::CreatePartitions(stream, topic)
            | Action::DeletePartitions(stream, topic)
            | Action::DeleteSegments(stream, topic)
            | Action::FlushUnsavedBuffer(stream, topic) => self.manages_topic(stream, topic),
            Action::GetTopic(stream, topic)
            | Action::GetConsumerGroup(stream, topic)
            | Action::GetConsumerGroups(stream, topic)
            | Action::CreateConsumerGroup(stream, topic)
            | Action::DeleteConsumerGroup(stream, topic)
            | Action::JoinConsumerGroup(stream, topic)
            | Action::LeaveConsumerGroup(stream, topic) => self.reads_topic(stream, topic),

            Action::PollMessages(stream, topic)
            | Action::GetPollRouting(stream, topic)
            | Action::GetConsumerOffset(stream, topic)
            | Action::StoreConsumerOffset(stream, topic)
            | Action::DeleteConsumerOffset(stream, topic)
            | Action::GetOffsetRouting(stream, topic) => self.polls(stream, topic),
            Action::SendMessages(stream, topic) => self.sends(stream, topic),
        }
    }

    const fn reads_users(&self) -> bool {
        self.global.manage_users || self.global.read_users
    }

    const fn reads_streams(&self) -> bool {
        self.global.manage_streams || self.global.read_streams
    }

    fn reads_stream(&self, stream: StreamId) -> bool {
        let flags = self.stream(stream);
        self.reads_streams() || flags.manage_stream || flags.read_stream
    }

    fn reads_topics(&self, stream: StreamId) -> bool {
        let flags = self.stream(stream);
        self.reads_stream(stream)
            || self.global.manage_topics
            || self.global.read_topics
            || flags.manage_topics
            || flags.read_topics
    }

    fn reads_topic(&self, stream: StreamId, topic: TopicId) -> bool {
        let flags = self.topic(stream, topic);
        self.reads_topics(stream) || flags.manage_topic || flags.read_topic
    }

    fn manages_topics(&self, stream: StreamId) -> bool {
        let flags = self.stream(stream);
        self.global.manage_streams
            || self.global.manage_topics
            || flags.manage_stream
            || flags.manage_topics
    }

    fn manages_topic(&self, stream: StreamId, topic: TopicId) -> bool {
        self.manages_topics(stream) || self.topic(stream, topic).manage_topic
    }

    fn polls(&self, stream: StreamId, topic: TopicId) -> bool {
        self.reads_topic(stream, topic)
            || self.global.poll_messages
            || self.stream(stream).poll_messages
            || self.topic(stream, topic).poll_messages
    }

    fn sends(&self, stream: StreamId, topic: TopicId) -> bool {
        self.manages_topic(stream, topic)
            || self.global.send_messages
            || self.stream(stream).send_messages
            || self.topic(stream, topic).send_messages
    }
}
