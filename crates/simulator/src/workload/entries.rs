//! Every command that the server accepts is somebody's work: two exhaustive matches, so that a new
//! command without an entry here does not compile.

use super::cx::Cx;
use super::draft::Draft;
use super::{consuming, grouping, people, producing, resources, system};
use borzoi_wire::CommandCode;

/// Who issues a command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Job {
    /// Appends messages.
    Producer,
    /// Reads as a consumer on its own.
    Consumer,
    /// Reads as a member of consumer groups.
    Member,
    /// Creates, changes and deletes streams, topics, partitions and groups.
    Admin,
    /// Looks around, and cares for users and tokens.
    Visitor,
    /// The client library itself, around everything else.
    Library,
}

/// Who issues a command beside those who share it, and its name in reports.
const fn entry(command: CommandCode) -> (Job, &'static str) {
    use CommandCode as C;
    match command {
        C::Ping => (Job::Visitor, "ping"),
        C::GetStats => (Job::Visitor, "get stats"),
        C::GetSnapshot => (Job::Visitor, "get snapshot"),
        C::GetClusterMetadata => (Job::Visitor, "get cluster metadata"),
        C::DescribeOptions => (Job::Visitor, "describe options"),
        C::AttachConsumerSession => (Job::Consumer, "attach consumer session"),
        C::GetMe => (Job::Visitor, "get me"),
        C::GetClient => (Job::Visitor, "get client"),
        C::GetClients => (Job::Visitor, "get clients"),
        C::GetUser => (Job::Visitor, "get user"),
        C::GetUsers => (Job::Visitor, "get users"),
        C::CreateUser => (Job::Visitor, "create user"),
        C::DeleteUser => (Job::Visitor, "delete user"),
        C::UpdateUser => (Job::Visitor, "update user"),
        C::UpdatePermissions => (Job::Visitor, "update permissions"),
        C::ChangePassword => (Job::Visitor, "change password"),
        C::LegacyLogin => (Job::Visitor, "legacy login"),
        C::Logout => (Job::Visitor, "logout"),
        C::Login => (Job::Library, "login"),
        C::GetPersonalAccessTokens => (Job::Visitor, "get tokens"),
        C::CreatePersonalAccessToken => (Job::Visitor, "create token"),
        C::DeletePersonalAccessToken => (Job::Visitor, "delete token"),
        C::LegacyTokenLogin => (Job::Visitor, "legacy token login"),
        C::TokenLogin => (Job::Library, "token login"),
        C::PollMessages => (Job::Consumer, "poll messages"),
        C::SendMessages => (Job::Producer, "send messages"),
        C::FlushUnsavedBuffer => (Job::Visitor, "flush"),
        C::GetPollRouting => (Job::Consumer, "get poll routing"),
        C::PollOnPrimary => (Job::Consumer, "poll on primary"),
        C::GetConsumerOffset => (Job::Consumer, "get offset"),
        C::StoreConsumerOffset => (Job::Consumer, "store offset"),
        C::DeleteConsumerOffset => (Job::Consumer, "delete offset"),
        C::GetOffsetRouting => (Job::Consumer, "get offset routing"),
        C::GetStream => (Job::Visitor, "get stream"),
        C::GetStreams => (Job::Visitor, "get streams"),
        C::CreateStream => (Job::Admin, "create stream"),
        C::DeleteStream => (Job::Admin, "delete stream"),
        C::UpdateStream => (Job::Admin, "update stream"),
        C::PurgeStream => (Job::Admin, "purge stream"),
        C::GetTopic => (Job::Visitor, "get topic"),
        C::GetTopics => (Job::Visitor, "get topics"),
        C::CreateTopic => (Job::Admin, "create topic"),
        C::DeleteTopic => (Job::Admin, "delete topic"),
        C::UpdateTopic => (Job::Admin, "update topic"),
        C::PurgeTopic => (Job::Admin, "purge topic"),
        C::CreatePartitions => (Job::Admin, "create partitions"),
        C::DeletePartitions => (Job::Admin, "delete partitions"),
        C::DeleteSegments => (Job::Admin, "delete segments"),
        C::GetConsumerGroup => (Job::Member, "get group"),
        C::GetConsumerGroups => (Job::Member, "get groups"),
        C::CreateConsumerGroup => (Job::Admin, "create group"),
        C::DeleteConsumerGroup => (Job::Admin, "delete group"),
        C::JoinConsumerGroup => (Job::Member, "join group"),
        C::LeaveConsumerGroup => (Job::Member, "leave group"),
        C::SyncConsumerGroup => (Job::Member, "sync group"),
    }
}

/// The name of a command in reports.
#[must_use]
pub const fn name(command: CommandCode) -> &'static str {
    entry(command).1
}

/// Who issues a command.
#[must_use]
pub const fn job(command: CommandCode) -> Job {
    entry(command).0
}

/// Commands of a job: those of its own and those it shares.
#[must_use]
pub fn commands(job: Job) -> Vec<CommandCode> {
    let shared: &[CommandCode] = match job {
        Job::Member => &[
            CommandCode::PollMessages,
            CommandCode::StoreConsumerOffset,
            CommandCode::GetConsumerOffset,
        ],
        _ => &[],
    };
    let own = CommandCode::ALL.iter().copied().filter(|&command| self::job(command) == job);
    own.chain(shared.iter().copied()).collect()
}

/// How often a command is drawn within its job before the seed has its say.
#[must_use]
pub const fn usual_weight(command: CommandCode) -> u64 {
    use CommandCode as C;
    match command {
        C::SendMessages => 100,
        C::PollMessages => 60,
        C::PollOnPrimary | C::StoreConsumerOffset | C::GetConsumerOffset => 15,
        C::SyncConsumerGroup => 12,
        C::CreateTopic | C::CreateConsumerGroup => 8,
        C::CreateStream | C::UpdateTopic | C::UpdateStream => 4,
        C::DeleteStream | C::PurgeStream => 1,
        C::DeleteTopic | C::PurgeTopic | C::DeleteConsumerGroup | C::LeaveConsumerGroup => 3,
        _ => 4,
    }
}

/// Whether a job gets nowhere without a command.
#[must_use]
pub const fn is_essential(command: CommandCode) -> bool {
    matches!(
        command,
        CommandCode::CreateStream
            | CommandCode::CreateTopic
            | CommandCode::CreateConsumerGroup
            | CommandCode::SendMessages
            | CommandCode::PollMessages
            | CommandCode::JoinConsumerGroup
            | CommandCode::SyncConsumerGroup
    )
}

/// Makes a request of a command; none when there is nothing it could be about now.
pub(super) fn draft(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    use CommandCode as C;
    match command {
        C::Ping
        | C::GetStats
        | C::GetSnapshot
        | C::GetClusterMetadata
        | C::DescribeOptions
        | C::GetMe
        | C::GetClient
        | C::GetClients
        | C::FlushUnsavedBuffer => system::draft(command, cx),
        C::AttachConsumerSession | C::GetPollRouting | C::GetOffsetRouting => {
            system::routing(command, cx)
        }
        C::GetUser
        | C::GetUsers
        | C::CreateUser
        | C::DeleteUser
        | C::UpdateUser
        | C::UpdatePermissions
        | C::ChangePassword => people::users(command, cx),
        C::GetPersonalAccessTokens
        | C::CreatePersonalAccessToken
        | C::DeletePersonalAccessToken => people::tokens(command, cx),
        C::LegacyLogin | C::LegacyTokenLogin | C::Logout => people::sessions(command, cx),
        // Made by the client library when it connects.
        C::Login | C::TokenLogin => None,
        C::SendMessages => producing::send(cx),
        C::PollMessages | C::PollOnPrimary => match cx.memory.job {
            Job::Member => grouping::poll(cx),
            _ => consuming::poll(command, cx),
        },
        C::GetConsumerOffset => match cx.memory.job {
            Job::Member => grouping::get_offset(cx),
            _ => consuming::get_offset(cx),
        },
        C::StoreConsumerOffset => match cx.memory.job {
            Job::Member => grouping::store_offset(cx),
            _ => consuming::store_offset(cx),
        },
        C::DeleteConsumerOffset => consuming::delete_offset(cx),
        C::GetStream | C::GetStreams | C::GetTopic | C::GetTopics => resources::look(command, cx),
        C::CreateStream | C::DeleteStream | C::UpdateStream | C::PurgeStream => {
            resources::streams(command, cx)
        }
        C::CreateTopic | C::DeleteTopic | C::UpdateTopic | C::PurgeTopic => {
            resources::topics(command, cx)
        }
        C::CreatePartitions | C::DeletePartitions | C::DeleteSegments => {
            resources::partitions(command, cx)
        }
        C::CreateConsumerGroup | C::DeleteConsumerGroup => resources::groups(command, cx),
        C::GetConsumerGroup
        | C::GetConsumerGroups
        | C::JoinConsumerGroup
        | C::LeaveConsumerGroup
        | C::SyncConsumerGroup => grouping::draft(command, cx),
    }
}
