//! Every request as one enumeration, so that a server dispatches with one exhaustive match, and
//! the tie between a request, its command and its answer for clients.

use crate::body::{
    Archive, Assignment, AttachRecord, ChangePassword, ClientDetails, ClientRecord,
    ClusterMetadata, ConsumerOffset, CreateConsumerGroup, CreatePartitions,
    CreatePersonalAccessToken, CreateStream, CreateTopic, CreateUser, DeleteConsumerGroup,
    DeleteConsumerOffset, DeletePartitions, DeletePersonalAccessToken, DeleteSegments,
    DeleteStream, DeleteTopic, DeleteUser, DescribeOptions, FlushUnsavedBuffer, GetClient,
    GetConsumerGroup, GetConsumerGroups, GetConsumerOffset, GetSnapshot, GetStream, GetTopic,
    GetTopics, GetUser, GroupDetails, GroupRecord, JoinConsumerGroup, LeaveConsumerGroup, Login,
    LoginError, OptionDescription, PollMessages, PollReply, PurgeStream, PurgeTopic,
    SendConfirmation, SendError, SendMessages, Stats, StoreConsumerOffset, StreamDetails,
    StreamRecord, SyncConsumerGroup, TokenRecord, TopicDetails, TopicHeader, UpdatePermissions,
    UpdateStream, UpdateTopic, UpdateUser, UserDetails, UserRecord,
};
use crate::codec::{DecodeError, Empty, ToEnd, Wire};
use crate::command::CommandCode;
use crate::error_code::ErrorCode;
use crate::frame::{EvictionReason, Reaction};
use crate::name::Secret;
use crate::operation::Operation;
use thiserror::Error;

/// Why a request is refused before it is dispatched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// A read with a command code that is not one of the profile.
    #[error("command code {code} is not known")]
    UnknownCode {
        /// The code.
        code: u32,
    },
    /// A command that has an operation of its own, sent as a read.
    #[error("command {command:?} is not a read")]
    NotARead {
        /// The command.
        command: CommandCode,
    },
    /// A login of the legacy protocol inside of a frame with a header.
    #[error("command {command:?} belongs to the legacy protocol")]
    LegacyLogin {
        /// The command.
        command: CommandCode,
    },
    /// An operation that only the server may write.
    #[error("operation {operation:?} is internal")]
    Internal {
        /// The operation.
        operation: Operation,
    },
    /// A body that does not decode.
    #[error("the body of {command:?} does not decode: {error}")]
    Body {
        /// The command.
        command: CommandCode,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A login that is refused.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// A send that is refused.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl RequestError {
    /// How to answer (sections 6.4 and 9.1). Where the reference system takes a body into its log
    /// undecoded, stays silent, or answers an empty success, this denies.
    #[must_use]
    pub const fn reaction(self) -> Reaction {
        match self {
            Self::UnknownCode { .. } => Reaction::Deny(ErrorCode::InvalidCommand),
            Self::NotARead { .. } => Reaction::Deny(ErrorCode::FeatureUnavailable),
            Self::LegacyLogin { .. } => Reaction::Evict(EvictionReason::MalformedLogin),
            Self::Internal { .. } => Reaction::Evict(EvictionReason::InvalidRequestOperation),
            Self::Body { command, error } => Reaction::Deny(deny_body(command, error)),
            Self::Login(error) => error.reaction(),
            Self::Send(error) => Reaction::Deny(error.deny()),
        }
    }
}

const fn deny_body(command: CommandCode, error: DecodeError) -> ErrorCode {
    match (command, error) {
        // What published clients see from the reference system for these two.
        (CommandCode::StoreConsumerOffset | CommandCode::DeleteConsumerOffset, _) => {
            ErrorCode::ResourceNotFound
        }
        (_, DecodeError::TooLarge { .. }) => ErrorCode::OptionsBlockTooLarge,
        _ => ErrorCode::InvalidCommand,
    }
}

/// A request whose command and answer are known by its type: what a client sends.
pub trait Call<'a>: Wire<'a> {
    /// The command.
    const COMMAND: CommandCode;
    /// What a success is answered with, behind the result section if there is one.
    type Reply<'r>: Wire<'r>;
}

macro_rules! requests {
    (
        empty { $( $(#[$empty_meta:meta])* $empty:ident -> $empty_reply:ty; )+ }
        body { $( $(#[$meta:meta])* $name:ident($body:ty); )+ }
        borrowed { $( $(#[$ref_meta:meta])* $ref_name:ident($ref_body:ident); )+ }
    ) => {
        /// A decoded request. Requests on the hot path borrow from the frame.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Request<'a> {
            /// Login with password or token.
            Login(Login),
            /// Send messages.
            SendMessages(SendMessages<'a>),
            $( $(#[$empty_meta])* $empty, )+
            $( $(#[$meta])* $name($body), )+
            $( $(#[$ref_meta])* $ref_name($ref_body<'a>), )+
        }

        impl<'a> Request<'a> {
            /// The command this is.
            #[must_use]
            pub const fn command(&self) -> CommandCode {
                match self {
                    Self::Login(Login { credentials, .. }) => match credentials {
                        crate::body::Credentials::Password { .. } => CommandCode::Login,
                        crate::body::Credentials::Token { .. } => CommandCode::TokenLogin,
                    },
                    Self::SendMessages(_) => CommandCode::SendMessages,
                    $( Self::$empty => CommandCode::$empty, )+
                    $( Self::$name(_) => CommandCode::$name, )+
                    $( Self::$ref_name(_) => CommandCode::$ref_name, )+
                }
            }

            /// Appends the body.
            pub fn write_body(&self, out: &mut Vec<u8>) {
                match self {
                    Self::Login(login) => login.write(out),
                    Self::SendMessages(send) => send.write(out),
                    $( Self::$empty => {} )+
                    $( Self::$name(body) => body.write(out), )+
                    $( Self::$ref_name(body) => body.write(out), )+
                }
            }

            fn decode_command(command: CommandCode, body: &'a [u8]) -> Result<Self, RequestError> {
                let wrong = |error| RequestError::Body { command, error };
                match command {
                    CommandCode::Login | CommandCode::TokenLogin => {
                        Ok(Self::Login(Login::decode(body)?))
                    }
                    CommandCode::SendMessages => {
                        Ok(Self::SendMessages(SendMessages::decode(body)?))
                    }
                    CommandCode::LegacyLogin | CommandCode::LegacyTokenLogin => {
                        Err(RequestError::LegacyLogin { command })
                    }
                    $( CommandCode::$empty => Ok(Self::$empty), )+
                    $( CommandCode::$name => {
                        <$body>::decode(body).map(Self::$name).map_err(wrong)
                    } )+
                    $( CommandCode::$ref_name => {
                        $ref_body::decode(body).map(Self::$ref_name).map_err(wrong)
                    } )+
                }
            }
        }

        /// Requests that have no body, as types for [`Call`].
        pub mod empty_requests {
            use super::*;
            $(
                $(#[$empty_meta])*
                #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
                pub struct $empty;

                impl Wire<'_> for $empty {
                    const BYTES_MIN: usize = 0;
                    fn read(_: &mut crate::codec::Reader<'_>) -> Result<Self, DecodeError> {
                        Ok(Self)
                    }
                    fn write(&self, _: &mut Vec<u8>) {}
                }

                impl Call<'_> for $empty {
                    const COMMAND: CommandCode = CommandCode::$empty;
                    type Reply<'r> = $empty_reply;
                }
            )+
        }
    };
}

macro_rules! calls {
    ($( $body:ty => $command:ident -> $reply:ty; )+) => {$(
        impl<'a> Call<'a> for $body {
            const COMMAND: CommandCode = CommandCode::$command;
            type Reply<'r> = $reply;
        }
    )+};
}

requests! {
    empty {
        /// Is the server there.
        Ping -> Empty;
        /// Statistics.
        GetStats -> Stats;
        /// The nodes of the cluster.
        GetClusterMetadata -> ClusterMetadata;
        /// The own connection.
        GetMe -> ClientDetails;
        /// All connections.
        GetClients -> ToEnd<ClientRecord>;
        /// All users.
        GetUsers -> ToEnd<UserRecord>;
        /// End of the session.
        Logout -> Empty;
        /// Own access tokens.
        GetPersonalAccessTokens -> ToEnd<TokenRecord>;
        /// All streams.
        GetStreams -> ToEnd<StreamRecord>;
    }
    body {
        /// Diagnostic archive.
        GetSnapshot(GetSnapshot);
        /// Catalogue of options.
        DescribeOptions(DescribeOptions);
        /// Act for another session.
        AttachConsumerSession(AttachRecord);
        /// One connection.
        GetClient(GetClient);
        /// One user.
        GetUser(GetUser);
        /// Create a user.
        CreateUser(CreateUser);
        /// Delete a user.
        DeleteUser(DeleteUser);
        /// Rename, enable or disable a user.
        UpdateUser(UpdateUser);
        /// Replace the permissions of a user.
        UpdatePermissions(UpdatePermissions);
        /// Change a password.
        ChangePassword(ChangePassword);
        /// Create an access token.
        CreatePersonalAccessToken(CreatePersonalAccessToken);
        /// Delete an access token.
        DeletePersonalAccessToken(DeletePersonalAccessToken);
        /// Ask for a flush.
        FlushUnsavedBuffer(FlushUnsavedBuffer);
        /// One stream.
        GetStream(GetStream);
        /// Create a stream.
        CreateStream(CreateStream);
        /// Delete a stream.
        DeleteStream(DeleteStream);
        /// Rename a stream.
        UpdateStream(UpdateStream);
        /// Delete the messages of a stream.
        PurgeStream(PurgeStream);
        /// One topic.
        GetTopic(GetTopic);
        /// All topics of a stream.
        GetTopics(GetTopics);
        /// Create a topic.
        CreateTopic(CreateTopic);
        /// Delete a topic.
        DeleteTopic(DeleteTopic);
        /// Change a topic.
        UpdateTopic(UpdateTopic);
        /// Delete the messages of a topic.
        PurgeTopic(PurgeTopic);
        /// Add partitions.
        CreatePartitions(CreatePartitions);
        /// Remove the highest partitions.
        DeletePartitions(DeletePartitions);
        /// Remove the oldest closed segments.
        DeleteSegments(DeleteSegments);
        /// One group.
        GetConsumerGroup(GetConsumerGroup);
        /// All groups of a topic.
        GetConsumerGroups(GetConsumerGroups);
        /// Create a group.
        CreateConsumerGroup(CreateConsumerGroup);
        /// Delete a group.
        DeleteConsumerGroup(DeleteConsumerGroup);
        /// Join a group.
        JoinConsumerGroup(JoinConsumerGroup);
        /// Leave a group.
        LeaveConsumerGroup(LeaveConsumerGroup);
        /// The partitions assigned to the caller.
        SyncConsumerGroup(SyncConsumerGroup);
    }
    borrowed {
        /// Read messages.
        PollMessages(PollMessages);
        /// Where a poll should go.
        GetPollRouting(PollMessages);
        /// Read messages from the primary.
        PollOnPrimary(PollMessages);
        /// A stored offset.
        GetConsumerOffset(GetConsumerOffset);
        /// Where an offset write should go.
        GetOffsetRouting(GetConsumerOffset);
        /// Store an offset.
        StoreConsumerOffset(StoreConsumerOffset);
        /// Forget a stored offset.
        DeleteConsumerOffset(DeleteConsumerOffset);
    }
}

calls! {
    GetSnapshot => GetSnapshot -> Archive;
    DescribeOptions => DescribeOptions -> Vec<OptionDescription>;
    AttachRecord => AttachConsumerSession -> Empty;
    GetClient => GetClient -> Option<ClientDetails>;
    GetUser => GetUser -> Option<UserDetails>;
    CreateUser => CreateUser -> UserDetails;
    DeleteUser => DeleteUser -> Empty;
    UpdateUser => UpdateUser -> Empty;
    UpdatePermissions => UpdatePermissions -> Empty;
    ChangePassword => ChangePassword -> Empty;
    CreatePersonalAccessToken => CreatePersonalAccessToken -> Secret;
    DeletePersonalAccessToken => DeletePersonalAccessToken -> Empty;
    FlushUnsavedBuffer => FlushUnsavedBuffer -> Empty;
    GetStream => GetStream -> Option<StreamDetails>;
    CreateStream => CreateStream -> StreamDetails;
    DeleteStream => DeleteStream -> Empty;
    UpdateStream => UpdateStream -> Empty;
    PurgeStream => PurgeStream -> Empty;
    GetTopic => GetTopic -> Option<TopicDetails>;
    GetTopics => GetTopics -> Vec<TopicHeader>;
    CreateTopic => CreateTopic -> TopicDetails;
    DeleteTopic => DeleteTopic -> Empty;
    UpdateTopic => UpdateTopic -> Empty;
    PurgeTopic => PurgeTopic -> Empty;
    CreatePartitions => CreatePartitions -> Empty;
    DeletePartitions => DeletePartitions -> Empty;
    DeleteSegments => DeleteSegments -> Empty;
    GetConsumerGroup => GetConsumerGroup -> Option<GroupDetails>;
    GetConsumerGroups => GetConsumerGroups -> ToEnd<GroupRecord>;
    CreateConsumerGroup => CreateConsumerGroup -> GroupRecord;
    DeleteConsumerGroup => DeleteConsumerGroup -> Empty;
    JoinConsumerGroup => JoinConsumerGroup -> Empty;
    LeaveConsumerGroup => LeaveConsumerGroup -> Empty;
    SyncConsumerGroup => SyncConsumerGroup -> Option<Assignment>;
    PollMessages<'a> => PollMessages -> PollReply<'r>;
    GetConsumerOffset<'a> => GetConsumerOffset -> Option<ConsumerOffset>;
    StoreConsumerOffset<'a> => StoreConsumerOffset -> Empty;
    DeleteConsumerOffset<'a> => DeleteConsumerOffset -> Empty;
}

/// The answer of a send has one entry for each partition, in practice one.
pub type SendReply = Vec<SendConfirmation>;

impl<'a> Request<'a> {
    /// Decodes the body of a request with this operation; `code` is that of the header and counts
    /// with [`Operation::NonReplicated`] only.
    ///
    /// # Errors
    /// When code or operation are not a client's, or the body does not decode.
    /// [`RequestError::reaction`] says how to answer.
    pub fn decode(operation: Operation, code: u32, body: &'a [u8]) -> Result<Self, RequestError> {
        if operation == Operation::NonReplicated {
            let command = CommandCode::from_code(code).ok_or(RequestError::UnknownCode { code })?;
            return match command.operation() {
                None => Err(RequestError::LegacyLogin { command }),
                Some(Operation::NonReplicated) => Self::decode_command(command, body),
                Some(_) => Err(RequestError::NotARead { command }),
            };
        }
        let command =
            CommandCode::for_operation(operation).ok_or(RequestError::Internal { operation })?;
        Self::decode_command(command, body)
    }
}
