//! Command codes (wire protocol, section 9.1). A code travels only with
//! [`Operation::NonReplicated`]; every other command has an operation of its own.

use crate::operation::Operation;

macro_rules! command_codes {
    ($( $(#[$meta:meta])* $name:ident = $code:literal, )+) => {
        /// What a client can ask for. The numbers are the protocol's and never change.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum CommandCode {
            $( $(#[$meta])* $name = $code, )+
        }

        impl CommandCode {
            /// Every command, in rising order of its code.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// The command with this code, if there is one.
            #[must_use]
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$name), )+
                    _ => None,
                }
            }
        }
    };
}

command_codes! {
    /// Is the server there.
    Ping = 1,
    /// Statistics.
    GetStats = 10,
    /// Diagnostic archive.
    GetSnapshot = 11,
    /// The nodes of the cluster.
    GetClusterMetadata = 12,
    /// Catalogue of option keys.
    DescribeOptions = 13,
    /// Lets a connection act for another session.
    AttachConsumerSession = 14,
    /// The own connection.
    GetMe = 20,
    /// One connection.
    GetClient = 21,
    /// All connections.
    GetClients = 22,
    /// One user.
    GetUser = 31,
    /// All users.
    GetUsers = 32,
    /// Creates a user.
    CreateUser = 33,
    /// Deletes a user.
    DeleteUser = 34,
    /// Renames, enables or disables a user.
    UpdateUser = 35,
    /// Replaces the permissions of a user.
    UpdatePermissions = 36,
    /// Changes a password.
    ChangePassword = 37,
    /// Password login of the legacy protocol.
    LegacyLogin = 38,
    /// End of a session.
    Logout = 39,
    /// Password login.
    Login = 40,
    /// Own access tokens.
    GetPersonalAccessTokens = 41,
    /// Creates an access token.
    CreatePersonalAccessToken = 42,
    /// Deletes an access token.
    DeletePersonalAccessToken = 43,
    /// Token login of the legacy protocol.
    LegacyTokenLogin = 44,
    /// Token login.
    TokenLogin = 45,
    /// Reads messages.
    PollMessages = 100,
    /// Appends a batch.
    SendMessages = 101,
    /// Asks for a flush.
    FlushUnsavedBuffer = 102,
    /// Where a poll should go.
    GetPollRouting = 103,
    /// Reads messages from the primary.
    PollOnPrimary = 104,
    /// A stored offset.
    GetConsumerOffset = 120,
    /// Stores an offset.
    StoreConsumerOffset = 121,
    /// Forgets a stored offset.
    DeleteConsumerOffset = 122,
    /// Where an offset write should go.
    GetOffsetRouting = 123,
    /// One stream.
    GetStream = 200,
    /// All streams.
    GetStreams = 201,
    /// Creates a stream.
    CreateStream = 202,
    /// Deletes a stream.
    DeleteStream = 203,
    /// Renames a stream.
    UpdateStream = 204,
    /// Deletes all messages of a stream.
    PurgeStream = 205,
    /// One topic.
    GetTopic = 300,
    /// All topics of a stream.
    GetTopics = 301,
    /// Creates a topic.
    CreateTopic = 302,
    /// Deletes a topic.
    DeleteTopic = 303,
    /// Changes a topic.
    UpdateTopic = 304,
    /// Deletes all messages of a topic.
    PurgeTopic = 305,
    /// Adds partitions.
    CreatePartitions = 402,
    /// Removes the highest partitions.
    DeletePartitions = 403,
    /// Removes the oldest closed segments.
    DeleteSegments = 503,
    /// One consumer group.
    GetConsumerGroup = 600,
    /// All consumer groups of a topic.
    GetConsumerGroups = 601,
    /// Creates a consumer group.
    CreateConsumerGroup = 602,
    /// Deletes a consumer group.
    DeleteConsumerGroup = 603,
    /// Joins a consumer group.
    JoinConsumerGroup = 604,
    /// Leaves a consumer group.
    LeaveConsumerGroup = 605,
    /// The partitions assigned to the caller.
    SyncConsumerGroup = 606,
}

impl CommandCode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The operation that carries this command; `None` for the two logins of the legacy protocol.
    #[must_use]
    pub const fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::CreateUser => Operation::CreateUser,
            Self::DeleteUser => Operation::DeleteUser,
            Self::UpdateUser => Operation::UpdateUser,
            Self::UpdatePermissions => Operation::UpdatePermissions,
            Self::ChangePassword => Operation::ChangePassword,
            Self::Logout => Operation::Logout,
            Self::CreatePersonalAccessToken => Operation::CreatePersonalAccessToken,
            Self::DeletePersonalAccessToken => Operation::DeletePersonalAccessToken,
            Self::SendMessages => Operation::SendMessages,
            Self::StoreConsumerOffset => Operation::StoreConsumerOffset,
            Self::DeleteConsumerOffset => Operation::DeleteConsumerOffset,
            Self::CreateStream => Operation::CreateStream,
            Self::DeleteStream => Operation::DeleteStream,
            Self::UpdateStream => Operation::UpdateStream,
            Self::PurgeStream => Operation::PurgeStream,
            Self::CreateTopic => Operation::CreateTopic,
            Self::DeleteTopic => Operation::DeleteTopic,
            Self::UpdateTopic => Operation::UpdateTopic,
            Self::PurgeTopic => Operation::PurgeTopic,
            Self::CreatePartitions => Operation::CreatePartitions,
            Self::DeletePartitions => Operation::DeletePartitions,
            Self::DeleteSegments => Operation::DeleteSegments,
            Self::CreateConsumerGroup => Operation::CreateConsumerGroup,
            Self::DeleteConsumerGroup => Operation::DeleteConsumerGroup,
            Self::JoinConsumerGroup => Operation::JoinConsumerGroup,
            Self::LeaveConsumerGroup => Operation::LeaveConsumerGroup,
            Self::Login | Self::TokenLogin => Operation::Register,
            Self::LegacyLogin | Self::LegacyTokenLogin => return None,
            _ => Operation::NonReplicated,
        })
    }

    /// The command that has `operation` to itself, [`CommandCode::Login`] for both logins; `None`
    /// for reads and for internal operations.
    #[must_use]
    pub const fn for_operation(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Register => Self::Login,
            Operation::CreateUser => Self::CreateUser,
            Operation::DeleteUser => Self::DeleteUser,
            Operation::UpdateUser => Self::UpdateUser,
            Operation::UpdatePermissions => Self::UpdatePermissions,
            Operation::ChangePassword => Self::ChangePassword,
            Operation::Logout => Self::Logout,
            Operation::CreatePersonalAccessToken => Self::CreatePersonalAccessToken,
            Operation::DeletePersonalAccessToken => Self::DeletePersonalAccessToken,
            Operation::SendMessages => Self::SendMessages,
            Operation::StoreConsumerOffset => Self::StoreConsumerOffset,
            Operation::DeleteConsumerOffset => Self::DeleteConsumerOffset,
            Operation::CreateStream => Self::CreateStream,
            Operation::DeleteStream => Self::DeleteStream,
            Operation::UpdateStream => Self::UpdateStream,
            Operation::PurgeStream => Self::PurgeStream,
            Operation::CreateTopic => Self::CreateTopic,
            Operation::DeleteTopic => Self::DeleteTopic,
            Operation::UpdateTopic => Self::UpdateTopic,
            Operation::PurgeTopic => Self::PurgeTopic,
            Operation::CreatePartitions => Self::CreatePartitions,
            Operation::DeletePartitions => Self::DeletePartitions,
            Operation::DeleteSegments => Self::DeleteSegments,
            Operation::CreateConsumerGroup => Self::CreateConsumerGroup,
            Operation::DeleteConsumerGroup => Self::DeleteConsumerGroup,
            Operation::JoinConsumerGroup => Self::JoinConsumerGroup,
            Operation::LeaveConsumerGroup => Self::LeaveConsumerGroup,
            Operation::NonReplicated
            | Operation::CreateTopicWithAssignments
            | Operation::CreatePartitionsWithAssignments
            | Operation::RemoveGroupMember
            | Operation::CompleteGroupHandover
            | Operation::TruncatePartition => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_stable_and_rising() {
        for pair in CommandCode::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
        }
        for &command in CommandCode::ALL {
            assert_eq!(CommandCode::from_code(command.code()), Some(command));
        }
        assert_eq!(CommandCode::from_code(0), None);
        assert_eq!(CommandCode::from_code(u32::MAX), None);
    }

    #[test]
    fn every_operation_a_client_may_send_has_a_command() {
        use crate::operation::OperationClass;
        for &operation in Operation::ALL {
            let reachable = CommandCode::ALL.iter().any(|c| c.operation() == Some(operation));
            assert_eq!(reachable, operation.class() != OperationClass::Internal, "{operation:?}");
        }
    }
}
