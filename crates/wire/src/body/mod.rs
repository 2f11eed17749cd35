//! Bodies of requests and replies, by group of commands (wire protocol, section 9).
//!
//! Requests that come often (send, poll, offsets) borrow from the frame; the others own their
//! parts.

pub mod cluster;
pub mod groups;
pub mod login;
pub mod messages;
pub mod offsets;
pub mod permissions;
pub mod streams;
pub mod system;
pub mod tokens;
pub mod topics;
pub mod users;

pub use cluster::{AttachRecord, ClusterMetadata, ClusterNode, NodeRole, NodeStatus, Routing};
pub use groups::{
    Assignment, CreateConsumerGroup, DeleteConsumerGroup, GetConsumerGroup, GetConsumerGroups,
    GroupDetails, GroupGeneration, GroupMember, GroupRecord, JoinConsumerGroup, LeaveConsumerGroup,
    SyncConsumerGroup,
};
pub use login::{ClientVersion, Credentials, Identity, Login, LoginError};
pub use messages::{
    FlushUnsavedBuffer, PARTITION_RESYNC, PollMessages, PollPrefix, PollReply, SendConfirmation,
    SendError, SendMessages,
};
pub use offsets::{
    ConsumerOffset, DeleteConsumerOffset, GetConsumerOffset, OffsetAck, StoreConsumerOffset,
};
pub use permissions::{GlobalPermissions, Permissions, StreamPermissions, TopicPermissions};
pub use streams::{
    CreateStream, DeleteStream, GetStream, PurgeStream, StreamDetails, StreamRecord, UpdateStream,
};
pub use system::{
    Archive, CacheStats, ClientDetails, ClientGroup, ClientNumber, ClientRecord, DescribeOptions,
    GetClient, GetSnapshot, OptionDescription, OptionsScope, SignedInUser, SnapshotCompression,
    SnapshotContent, Stats, Transport,
};
pub use tokens::{
    CreatePersonalAccessToken, DeletePersonalAccessToken, TokenLifetime, TokenRecord,
};
pub use topics::{
    Compression, CreatePartitions, CreateTopic, DeletePartitions, DeleteSegments, DeleteTopic,
    GetTopic, GetTopics, MessageExpiry, PartitionRecord, PurgeTopic, SizeLimit, TopicDetails,
    TopicHeader, UpdateTopic,
};
pub use users::{
    ChangePassword, CreateUser, DeleteUser, GetUser, UpdatePermissions, UpdateUser, UserDetails,
    UserRecord, UserStatus,
};
