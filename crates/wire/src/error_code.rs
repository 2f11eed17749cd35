//! Every error number of the protocol (wire protocol, section 12.1).
//!
//! The numbers and names are the protocol's: clients of all generations decide by them, so they
//! never change and are never reused. The messages are Borzoi's and say what to do.

use thiserror::Error;

macro_rules! error_codes {
    ($( $number:literal $name:ident $snake:literal $message:literal )+) => {
        /// An error that a client may see.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Error)]
        #[repr(u32)]
        pub enum ErrorCode {
            $(
                #[doc = concat!($number, ": ", $message, ".")]
                #[error($message)]
                $name = $number,
            )+
        }

        impl ErrorCode {
            /// Every error, in rising order of its number.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// The error with this number, if it is assigned.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$name), )+
                    _ => None,
                }
            }

            /// The name in snake case, as HTTP answers carry it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$name => $snake, )+
                }
            }

            /// What is wrong and what to do about it, in one line without a full stop.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self {
                    $( Self::$name => $message, )+
                }
            }
        }
    };
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The error a client shows for `number`: [`ErrorCode::Error`] when it does not know it.
    #[must_use]
    pub const fn from_wire(number: u32) -> Self {
        match Self::from_number(number) {
            Some(code) => code,
            None => Self::Error,
        }
    }

    /// Whether the same request may simply be sent again (section 4.7).
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::TransientNotCommitted | Self::TransientNotAccepted)
    }
}

error_codes! {
    1 Error "error"
        "the request failed for a reason unknown by number; the server's log says more"
    2 InvalidConfiguration "invalid_configuration"
        "a configuration value is not usable; the message that names it says what is allowed"
    3 InvalidCommand "invalid_command"
        "the server does not understand the request: unknown command or a body of the wrong shape"
    4 InvalidFormat "invalid_format"
        "the bytes of the request do not match its checksum or format; send it again"
    5 FeatureUnavailable "feature_unavailable"
        "this server knows the command but does not offer it; its status page says what it does"
    6 InvalidIdentifier "invalid_identifier"
        "an identifier is a number (kind 1, four bytes) or a name of 1 to 255 bytes (kind 2)"
    7 InvalidVersion "invalid_version" "a version text has the form major.minor.patch"
    8 Disconnected "disconnected"
        "the connection was lost; reconnect, sign in and repeat the request if that is safe"
    9 CannotEstablishConnection "cannot_establish_connection"
        "no connection could be made; check that the server runs and that its address is right"
    10 CannotCreateBaseDirectory "cannot_create_base_directory"
        "the server could not create its data directory; check its path and permissions"
    11 CannotCreateRuntimeDirectory "cannot_create_runtime_directory"
        "the server could not create its runtime directory; check its path and permissions"
    12 CannotRemoveRuntimeDirectory "cannot_remove_runtime_directory"
        "the server could not remove its runtime directory; check its permissions"
    13 CannotCreateStateDirectory "cannot_create_state_directory"
        "the server could not create its state directory; check its path and permissions"
    14 StateFileNotFound "state_file_not_found"
        "the server did not find its state file; check that the data directory is the right one"
    15 StateFileCorrupted "state_file_corrupted"
        "the state file of the server is damaged; inspect the data directory before starting again"
    16 InvalidStateEntryChecksum "invalid_state_entry_checksum"
        "an entry of the server's state does not match its checksum; inspect the data directory"
    19 CannotOpenDatabase "cannot_open_database"
        "the server could not open its data; another process may hold it, or the path is wrong"
    20 ResourceNotFound "resource_not_found"
        "there is no such resource; check stream, topic, partition, user or token"
    21 CannotCloseWebSocketConnection "cannot_close_web_socket_connection"
        "the WebSocket connection could not be closed in order; it is gone either way"
    30 StaleClient "stale_client"
        "the server dropped this client because no heartbeat came; reconnect and sign in again"
    31 TcpError "tcp_error" "the TCP connection failed; reconnect"
    32 QuicError "quic_error" "the QUIC connection failed; reconnect"
    33 InvalidServerAddress "invalid_server_address" "a server address has the form host:port"
    34 InvalidClientAddress "invalid_client_address" "a client address has the form host:port"
    35 InvalidIpAddress "invalid_ip_address" "the text is not an IP address"
    36 HttpError "http_error" "the HTTP request failed before an answer came"
    37 InvalidApiUrl "invalid_api_url" "the base address for HTTP is not a valid URL"
    40 Unauthenticated "unauthenticated" "nobody is signed in on this connection; sign in first"
    41 Unauthorized "unauthorized"
        "the signed-in user lacks the permission; ask an administrator to grant it"
    42 InvalidCredentials "invalid_credentials" "the user name or the password is wrong"
    43 InvalidUsername "invalid_username" "a user name has 3 to 50 bytes"
    44 InvalidPassword "invalid_password" "a password has 3 to 100 bytes"
    45 InvalidUserStatus "invalid_user_status" "a user is active (1) or inactive (2)"
    46 UserAlreadyExists "user_already_exists" "the user name is taken; choose another one"
    47 UserInactive "user_inactive" "the user is disabled; ask an administrator to enable it"
    48 CannotDeleteUser "cannot_delete_user" "this user cannot be deleted: it is the root user"
    49 CannotChangePermissions "cannot_change_permissions"
        "the permissions of this user cannot be changed: it is the root user"
    50 InvalidPersonalAccessTokenName "invalid_personal_access_token_name"
        "the name of an access token has 3 to 30 bytes"
    51 PersonalAccessTokenAlreadyExists "personal_access_token_already_exists"
        "this user has an access token of that name; delete it or choose another name"
    52 PersonalAccessTokensLimitReached "personal_access_tokens_limit_reached"
        "this user has as many access tokens as allowed; delete one first"
    53 InvalidPersonalAccessToken "invalid_personal_access_token"
        "the access token is unknown; it may have been deleted"
    54 PersonalAccessTokenExpired "personal_access_token_expired"
        "the access token is past its lifetime; create a new one"
    55 UsersLimitReached "users_limit_reached"
        "there are as many users as allowed; delete one first"
    56 InvalidPersonalAccessTokenExpiry "invalid_personal_access_token_expiry"
        "the lifetime of the access token ends in the past; give a longer one, or none"
    57 TransientNotCommitted "transient_not_committed"
        "the outcome is not known yet; send the same request again to the same server"
    58 TransientNotAccepted "transient_not_accepted"
        "the server did not take the request; send it again, to any node of the cluster"
    59 RequestAlreadyApplied "request_already_applied"
        "this request was executed before and its answer is no longer kept; do not send it again"
    61 NotConnected "not_connected" "the client is not connected; connect first"
    63 ClientShutdown "client_shutdown" "the client was shut down; make a new one"
    64 InvalidTlsDomain "invalid_tls_domain" "the server name for TLS is not valid"
    65 InvalidTlsCertificatePath "invalid_tls_certificate_path"
        "the TLS certificate is not found at its path"
    66 InvalidTlsCertificate "invalid_tls_certificate" "the TLS certificate is not valid"
    67 FailedToAddCertificate "failed_to_add_certificate"
        "the TLS certificate could not be installed"
    70 InvalidEncryptionKey "invalid_encryption_key" "an encryption key is 32 bytes in base64"
    71 CannotEncryptData "cannot_encrypt_data" "the data could not be encrypted"
    72 CannotDecryptData "cannot_decrypt_data"
        "the data could not be decrypted; the key may be another one"
    73 InvalidJwtAlgorithm "invalid_jwt_algorithm"
        "the signature algorithm for web tokens is not known"
    74 InvalidJwtSecret "invalid_jwt_secret" "the secret for web tokens is not valid"
    75 JwtMissing "jwt_missing" "the request carries no web token; sign in over HTTP first"
    76 CannotGenerateJwt "cannot_generate_jwt"
        "no web token could be made; the server's log says why"
    77 AccessTokenMissing "access_token_missing" "the request carries no access token"
    78 InvalidAccessToken "invalid_access_token"
        "the access token of the request is not valid; sign in again"
    79 CannotFetchJwks "cannot_fetch_jwks"
        "the key set for web tokens could not be fetched; check its address"
    80 InvalidSizeBytes "invalid_size_bytes"
        "a size is a number of bytes, optionally with a unit such as MiB"
    81 InvalidUtf8 "invalid_utf8" "the text is not UTF-8"
    82 InvalidNumberEncoding "invalid_number_encoding" "a number has the wrong width for its kind"
    83 InvalidBooleanValue "invalid_boolean_value" "a yes-or-no value is true or false"
    84 InvalidNumberValue "invalid_number_value" "the text is not a number, or it is out of range"
    85 RequestTooOld "request_too_old"
        "the request number is far behind what the server remembers; start a new session"
    87 HistoryUnavailable "history_unavailable"
        "the partition was deleted or created anew since its route was looked up; look it up again"
    88 LifecycleBusy "lifecycle_busy"
        "another change of this resource is under way; repeat as a new request"
    89 NotPrimary "not_primary"
        "this node does not lead the partition; look up the route and ask there"
    90 DeferredPollCapacityExceeded "deferred_poll_capacity_exceeded"
        "too many polls are waiting; poll again later"
    91 ProducerIdsExhausted "producer_ids_exhausted" "no producer ids are left"
    92 ProducerSequenceOutOfOrder "producer_sequence_out_of_order"
        "the sequence of the idempotent producer has a gap; an earlier batch is missing"
    93 ProducerEpochFenced "producer_epoch_fenced"
        "a newer instance of this idempotent producer has taken over; stop this one"
    94 ProducerUnknown "producer_unknown"
        "the partition does not know this idempotent producer; start a new one"
    95 ProducerPartitionRequired "producer_partition_required"
        "an idempotent producer must name the partition"
    100 ClientNotFound "client_not_found" "there is no such client connection"
    101 InvalidClientId "invalid_client_id" "the id of a client connection is not valid"
    206 ConnectionClosed "connection_closed" "the connection was closed"
    209 CannotParseHeaderKind "cannot_parse_header_kind" "the text is not the name of a header kind"
    300 HttpResponseError "http_response_error" "the HTTP status was not the expected one"
    301 InvalidHttpRequest "invalid_http_request" "the HTTP request is not valid"
    302 InvalidJsonResponse "invalid_json_response"
        "the HTTP answer is not the JSON that was expected"
    303 InvalidBytesResponse "invalid_bytes_response"
        "the HTTP answer has not the bytes that were expected"
    304 EmptyResponse "empty_response" "the answer ended before its header was complete; reconnect"
    305 CannotCreateEndpoint "cannot_create_endpoint"
        "no local endpoint could be made; check the client's local address"
    306 CannotParseUrl "cannot_parse_url" "the text is not a URL"
    400 WebSocketError "web_socket_error" "the WebSocket connection failed; reconnect"
    401 WebSocketConnectionError "web_socket_connection_error"
        "no WebSocket connection could be made; check the address"
    402 WebSocketCloseError "web_socket_close_error"
        "the WebSocket connection could not be closed in order"
    403 WebSocketReceiveError "web_socket_receive_error"
        "nothing could be received over the WebSocket connection; reconnect"
    404 WebSocketSendError "web_socket_send_error"
        "nothing could be sent over the WebSocket connection; reconnect"
    1000 CannotCreateStreamsDirectory "cannot_create_streams_directory"
        "the server could not create the directory for streams; its log names the path"
    1001 CannotCreateStreamDirectory "cannot_create_stream_directory"
        "the server could not create the directory of a stream; its log names the path"
    1002 CannotCreateStreamInfo "cannot_create_stream_info"
        "the server could not create the description of a stream; its log names the path"
    1003 CannotUpdateStreamInfo "cannot_update_stream_info"
        "the server could not update the description of a stream; its log names the path"
    1004 CannotOpenStreamInfo "cannot_open_stream_info"
        "the server could not open the description of a stream; its log names the path"
    1005 CannotReadStreamInfo "cannot_read_stream_info"
        "the server could not read the description of a stream; its log names the path"
    1006 CannotCreateStream "cannot_create_stream"
        "the server could not create the stream; its log says why"
    1007 CannotDeleteStream "cannot_delete_stream"
        "the server could not delete the stream; its log says why"
    1008 CannotDeleteStreamDirectory "cannot_delete_stream_directory"
        "the server could not delete the directory of a stream; its log names the path"
    1009 StreamIdNotFound "stream_id_not_found"
        "there is no such stream; list the streams to see their names and ids"
    1010 StreamNameNotFound "stream_name_not_found"
        "there is no stream of that name; list the streams to see their names"
    1011 StreamDirectoryNotFound "stream_directory_not_found"
        "the server does not find the directory of a stream; its log names the path"
    1012 StreamNameAlreadyExists "stream_name_already_exists"
        "the stream name is taken; use that stream or choose another name"
    1013 InvalidStreamName "invalid_stream_name" "a stream name has 1 to 255 bytes of UTF-8"
    1014 InvalidStreamId "invalid_stream_id" "the id of a stream is not valid"
    1015 CannotReadStreams "cannot_read_streams"
        "the server could not read its streams; its log says why"
    1019 InvalidTopicSize "invalid_topic_size"
        "the size limit of a topic must be at least its segment size"
    1020 TooManyStreams "too_many_streams" "there are as many streams as allowed; delete one first"
    2000 CannotCreateTopicsDirectory "cannot_create_topics_directory"
        "the server could not create the directory for topics; its log names the path"
    2001 CannotCreateTopicDirectory "cannot_create_topic_directory"
        "the server could not create the directory of a topic; its log names the path"
    2002 CannotCreateTopicInfo "cannot_create_topic_info"
        "the server could not create the description of a topic; its log names the path"
    2003 CannotUpdateTopicInfo "cannot_update_topic_info"
        "the server could not update the description of a topic; its log names the path"
    2004 CannotOpenTopicInfo "cannot_open_topic_info"
        "the server could not open the description of a topic; its log names the path"
    2005 CannotReadTopicInfo "cannot_read_topic_info"
        "the server could not read the description of a topic; its log names the path"
    2006 CannotCreateTopic "cannot_create_topic"
        "the server could not create the topic; its log says why"
    2007 CannotDeleteTopic "cannot_delete_topic"
        "the server could not delete the topic; its log says why"
    2008 CannotDeleteTopicDirectory "cannot_delete_topic_directory"
        "the server could not delete the directory of a topic; its log names the path"
    2009 CannotPollTopic "cannot_poll_topic" "the topic cannot be polled; the server's log says why"
    2010 TopicIdNotFound "topic_id_not_found"
        "there is no such topic in the stream; list the topics to see their names and ids"
    2011 TopicNameNotFound "topic_name_not_found"
        "there is no topic of that name in the stream; list the topics to see their names"
    2013 TopicNameAlreadyExists "topic_name_already_exists"
        "the topic name is taken in this stream; use that topic or choose another name"
    2014 InvalidTopicName "invalid_topic_name" "a topic name has 1 to 255 bytes of UTF-8"
    2015 TooManyPartitions "too_many_partitions"
        "one request may create or delete 1 to 1000 partitions (0 to 1000 with a new topic)"
    2016 InvalidTopicId "invalid_topic_id" "the id of a topic is not valid"
    2017 CannotReadTopics "cannot_read_topics"
        "the server could not read its topics; its log says why"
    2018 InvalidReplicationFactor "invalid_replication_factor"
        "the replication factor is not possible in this cluster"
    2019 InvalidPartitionsCount "invalid_partitions_count"
        "the number of partitions cannot be applied: more than exist, or more than a topic may have"
    2020 TopicDirectoryNotFound "topic_directory_not_found"
        "the server does not find the directory of a topic; its log names the path"
    2021 TooManyTopics "too_many_topics"
        "the stream has as many topics as allowed; delete one or use another stream"
    2022 PartitionsLimitReached "partitions_limit_reached"
        "the cluster has as many partitions as allowed; delete some first"
    2023 PartitionResizeDisabled "partition_resize_disabled"
        "the number of partitions of this topic was fixed at its creation"
    3000 CannotCreatePartition "cannot_create_partition"
        "the server could not create the partition; its log says why"
    3001 CannotCreatePartitionsDirectory "cannot_create_partitions_directory"
        "the server could not create the directory for partitions; its log names the path"
    3002 CannotCreatePartitionDirectory "cannot_create_partition_directory"
        "the server could not create the directory of a partition; its log names the path"
    3003 CannotOpenPartitionLogFile "cannot_open_partition_log_file"
        "the server could not open a log file of the partition; its log names the path"
    3004 CannotReadPartitions "cannot_read_partitions"
        "the server could not read its partitions; its log says why"
    3005 CannotDeletePartition "cannot_delete_partition"
        "the server could not delete the partition; its log says why"
    3006 CannotDeletePartitionDirectory "cannot_delete_partition_directory"
        "the server could not delete the directory of a partition; its log names the path"
    3007 PartitionNotFound "partition_not_found"
        "the topic has no such partition; they are numbered from 0"
    3008 NoPartitions "no_partitions" "the topic has no partitions; create some first"
    3009 TopicFull "topic_full"
        "the topic has reached its size limit; raise it, purge, or shorten the retention"
    3010 CannotDeleteConsumerOffsetsDirectory "cannot_delete_consumer_offsets_directory"
        "the server could not delete the directory for offsets; its log names the path"
    3011 CannotDeleteConsumerOffsetFile "cannot_delete_consumer_offset_file"
        "the server could not delete an offset file; its log names the path"
    3012 CannotCreateConsumerOffsetsDirectory "cannot_create_consumer_offsets_directory"
        "the server could not create the directory for offsets; its log names the path"
    3013 PartitionIdSpaceExhausted "partition_id_space_exhausted"
        "the topic has used up its partition ids; create another topic"
    3014 PartitionHistoryChanged "partition_history_changed"
        "the partition was created anew since the caller learned about it; look it up again"
    3020 CannotReadConsumerOffsets "cannot_read_consumer_offsets"
        "the server could not read the stored offsets; its log says why"
    3021 ConsumerOffsetNotFound "consumer_offset_not_found"
        "nothing is stored for this consumer or group in this partition"
    3022 NotResolvedConsumer "not_resolved_consumer"
        "the consumer cannot be resolved; check its kind and id"
    3023 CannotOpenConsumerOffsetsFile "cannot_open_consumer_offsets_file"
        "the server could not open the file of the stored offsets; its log names the path"
    3024 TooManyConsumerOffsets "too_many_consumer_offsets"
        "the partition stores as many offsets as allowed; delete those of consumers that are gone"
    4000 SegmentNotFound "segment_not_found"
        "the server does not find a segment; its log names partition and offset"
    4001 SegmentClosed "segment_closed" "the segment is closed and takes no more messages"
    4002 InvalidSegmentSize "invalid_segment_size"
        "a segment has between 1 MiB and 1 GiB, a multiple of 512 bytes"
    4003 CannotCreateSegmentLogFile "cannot_create_segment_log_file"
        "the server could not create a segment file; its log names the path"
    4004 CannotCreateSegmentIndexFile "cannot_create_segment_index_file"
        "the server could not create an index file; its log names the path"
    4005 CannotCreateSegmentTimeIndexFile "cannot_create_segment_time_index_file"
        "the server could not create a time index file; its log names the path"
    4006 CannotSaveMessagesToSegment "cannot_save_messages_to_segment"
        "the server could not write messages to a segment; its log says why"
    4007 CannotSaveIndexToSegment "cannot_save_index_to_segment"
        "the server could not write the index of a segment; its log says why"
    4008 CannotSaveTimeIndexToSegment "cannot_save_time_index_to_segment"
        "the server could not write the time index of a segment; its log says why"
    4009 InvalidMessagesCount "invalid_messages_count"
        "the number of messages differs from the number that was announced, or is 0"
    4010 CannotAppendMessage "cannot_append_message"
        "a message could not be appended; the server's log says why"
    4011 CannotReadMessage "cannot_read_message"
        "a message could not be read; the server's log names partition and offset"
    4012 CannotReadMessageId "cannot_read_message_id" "the id of a message could not be read"
    4013 CannotReadMessageState "cannot_read_message_state"
        "the state of a message could not be read"
    4014 CannotReadMessageTimestamp "cannot_read_message_timestamp"
        "the timestamp of a message could not be read"
    4015 CannotReadHeadersLength "cannot_read_headers_length"
        "the length of the user headers could not be read"
    4016 CannotReadHeadersPayload "cannot_read_headers_payload" "the user headers could not be read"
    4017 TooBigUserHeaders "too_big_user_headers"
        "the user headers of one message have at most 100,000 bytes"
    4018 InvalidHeaderKey "invalid_header_key" "a header key has 1 to 255 bytes"
    4019 InvalidHeaderValue "invalid_header_value"
        "a header value has 1 to 255 bytes, and as many as its kind needs"
    4020 CannotReadMessageLength "cannot_read_message_length"
        "the length of a message could not be read"
    4021 CannotReadMessagePayload "cannot_read_message_payload"
        "the payload of a message could not be read"
    4022 TooBigMessagePayload "too_big_message_payload"
        "a payload has at most 64,000,000 bytes; split it or store it elsewhere"
    4023 TooManyMessages "too_many_messages"
        "too many messages in one request; send smaller batches"
    4024 EmptyMessagePayload "empty_message_payload" "a message must have a payload"
    4025 InvalidMessagePayloadLength "invalid_message_payload_length"
        "the frames of the messages do not fit the batch: a length is wrong"
    4026 CannotReadMessageChecksum "cannot_read_message_checksum"
        "the checksum of a message could not be read"
    4027 InvalidMessageChecksum "invalid_message_checksum"
        "a message does not match its checksum; it was damaged on its way, send it again"
    4028 InvalidKeyValueLength "invalid_key_value_length"
        "a key or value has 1 to 255 bytes, and as many as its kind needs"
    4029 CommandLengthError "command_length_error"
        "the body has not the length that its command needs"
    4030 InvalidSegmentsCount "invalid_segments_count" "the number of segments is not possible"
    4031 NonZeroOffset "non_zero_offset" "only the server fills in offsets; send 0"
    4032 NonZeroTimestamp "non_zero_timestamp"
        "only the server fills in the time of appending; send 0"
    4033 MissingIndex "missing_index" "an index entry is missing"
    4034 InvalidIndexesByteSize "invalid_indexes_byte_size" "the size of the index is wrong"
    4035 InvalidIndexesCount "invalid_indexes_count" "the number of index entries is wrong"
    4036 InvalidMessagesSize "invalid_messages_size" "the size of the messages is wrong"
    4037 TooSmallMessage "too_small_message" "a message is smaller than its header"
    4038 InvalidMessageTimestampDelta "invalid_message_timestamp_delta"
        "the messages of one batch may be at most 71 minutes apart; send smaller batches"
    4039 InvalidBatchChecksum "invalid_batch_checksum"
        "the batch does not match its checksum; it was damaged on its way, send it again"
    4040 InvalidHeaderKind "invalid_header_kind" "the kind of a header is between 1 and 15"
    4041 UnsupportedOptionKey "unsupported_option_key"
        "the option is not known for this kind of resource; describe options lists those that are"
    4042 InvalidOptionValue "invalid_option_value"
        "the value of an option is not allowed; describe options says what is"
    4043 OptionsBlockTooLarge "options_block_too_large"
        "the options of one request have at most 100,000 bytes and 1,024 entries"
    4050 CannotSendMessagesDueToClientDisconnection
        "cannot_send_messages_due_to_client_disconnection"
        "messages in the background could not be sent: the client is disconnected"
    4051 BackgroundSendError "background_send_error" "messages in the background could not be sent"
    4052 BackgroundSendTimeout "background_send_timeout"
        "messages in the background were not sent in time"
    4053 BackgroundSendBufferFull "background_send_buffer_full"
        "the buffer of the background producer is full; wait or enlarge it"
    4054 BackgroundWorkerDisconnected "background_worker_disconnected"
        "the background producer has stopped; make a new one"
    4055 BackgroundSendBufferOverflow "background_send_buffer_overflow"
        "the messages do not fit in the buffer of the background producer; enlarge it"
    4056 ProducerSendFailed "producer_send_failed"
        "some of the messages were not sent; the error carries them"
    4057 ProducerClosed "producer_closed" "the producer is closed; make a new one"
    4100 InvalidOffset "invalid_offset" "the offset is beyond the last message of the partition"
    4101 InvalidReservedField "invalid_reserved_field"
        "a reserved field is not zero; it belongs to a later version of the protocol"
    4102 SegmentSizeMismatchAtOpen "segment_size_mismatch_at_open"
        "a segment file has not the size that was recorded for it; the server's log names it"
    4103 OptionNotUpdatable "option_not_updatable"
        "this option can only be set when the resource is created"
    4104 OptionNotResettable "option_not_resettable" "this option has no default to return to"
    4105 ReadOnlyOption "read_only_option" "this option is computed by the server and cannot be set"
    4106 StreamEncryptionUnavailable "stream_encryption_unavailable"
        "encryption of the stream was asked for and the server has no key"
    4107 UnsupportedCriticalOption "unsupported_critical_option"
        "the resource has an option that this server must know and does not; upgrade the server"
    4108 CannotModifyRootUser "cannot_modify_root_user"
        "the root user cannot be changed in this way"
    5000 ConsumerGroupIdNotFound "consumer_group_id_not_found"
        "the topic has no such consumer group; create it first"
    5002 InvalidConsumerGroupId "invalid_consumer_group_id"
        "the id of a consumer group is not valid"
    5003 ConsumerGroupNameNotFound "consumer_group_name_not_found"
        "the topic has no consumer group of that name; create it first"
    5004 ConsumerGroupNameAlreadyExists "consumer_group_name_already_exists"
        "the name of the consumer group is taken in this topic; join that group"
    5005 InvalidConsumerGroupName "invalid_consumer_group_name"
        "a consumer group name has 1 to 255 bytes of UTF-8"
    5006 ConsumerGroupMemberNotFound "consumer_group_member_not_found"
        "the caller is not a member of the consumer group; join it first"
    5007 CannotCreateConsumerGroupInfo "cannot_create_consumer_group_info"
        "the server could not create the description of a consumer group; its log says why"
    5008 CannotDeleteConsumerGroupInfo "cannot_delete_consumer_group_info"
        "the server could not delete the description of a consumer group; its log says why"
    5009 ConsumerGroupPartitionNotOwned "consumer_group_partition_not_owned"
        "the partition is not assigned to this group member; sync the group"
    5010 TooManyConsumerGroups "too_many_consumer_groups"
        "the topic has as many consumer groups as allowed; delete one first"
    6000 MissingBaseOffsetRetainedMessageBatch "missing_base_offset_retained_message_batch"
        "a stored batch lacks its base offset"
    6001 MissingLastOffsetDeltaRetainedMessageBatch
        "missing_last_offset_delta_retained_message_batch"
        "a stored batch lacks its last offset"
    6002 MissingMaxTimestampRetainedMessageBatch "missing_max_timestamp_retained_message_batch"
        "a stored batch lacks its timestamp"
    6003 MissingLengthRetainedMessageBatch "missing_length_retained_message_batch"
        "a stored batch lacks its length"
    6004 MissingPayloadRetainedMessageBatch "missing_payload_retained_message_batch"
        "a stored batch lacks its payload"
    7000 CannotReadBatchBaseOffset "cannot_read_batch_base_offset"
        "the base offset of a stored batch could not be read"
    7001 CannotReadBatchLength "cannot_read_batch_length"
        "the length of a stored batch could not be read"
    7002 CannotReadLastOffsetDelta "cannot_read_last_offset_delta"
        "the last offset of a stored batch could not be read"
    7003 CannotReadMaxTimestamp "cannot_read_max_timestamp"
        "the timestamp of a stored batch could not be read"
    7004 CannotReadBatchPayload "cannot_read_batch_payload"
        "the payload of a stored batch could not be read"
    8000 InvalidConnectionString "invalid_connection_string" "the connection string is not valid"
    9000 SnapshotFileCompletionFailed "snapshot_file_completion_failed"
        "the diagnostic archive could not be made; the server's log says why"
    10000 CannotSerializeResource "cannot_serialize_resource"
        "a resource could not be encoded for storage"
    10001 CannotDeserializeResource "cannot_deserialize_resource"
        "a resource could not be decoded from storage"
    10002 CannotReadFile "cannot_read_file" "a file could not be read; the server's log names it"
    10003 CannotReadFileMetadata "cannot_read_file_metadata"
        "the metadata of a file could not be read; the server's log names it"
    10004 CannotSeekFile "cannot_seek_file"
        "the position in a file could not be set; the server's log names it"
    10005 CannotAppendToFile "cannot_append_to_file"
        "nothing could be appended to a file; the server's log names it"
    10006 CannotWriteToFile "cannot_write_to_file"
        "a file could not be written; the server's log names it and says whether the disk is full"
    10007 CannotOverwriteFile "cannot_overwrite_file"
        "a file could not be replaced; the server's log names it"
    10008 CannotDeleteFile "cannot_delete_file"
        "a file could not be deleted; the server's log names it"
    10009 CannotSyncFile "cannot_sync_file"
        "a file could not be flushed to the disk; the server's log names it"
    10010 CannotReadIndexOffset "cannot_read_index_offset"
        "the offset of an index entry could not be read"
    10011 CannotReadIndexPosition "cannot_read_index_position"
        "the position of an index entry could not be read"
    10012 CannotReadIndexTimestamp "cannot_read_index_timestamp"
        "the timestamp of an index entry could not be read"
    10013 TimestampOutOfRange "timestamp_out_of_range"
        "the time is outside of what can be represented"
    11000 ShardNotFound "shard_not_found"
        "the server does not find one of its shards; report this with its log"
    11001 ShardCommunicationError "shard_communication_error"
        "the shards of the server could not exchange a message; report this with its log"
    12000 CannotBindToSocket "cannot_bind_to_socket"
        "a listener could not be opened; its address may be in use"
    12001 TaskTimeout "task_timeout" "a task of the server took too long; its log says which"
    13000 IoError "io_error" "reading or writing failed; the server's log says where"
    14000 AlreadyAuthenticated "already_authenticated"
        "somebody is signed in on this connection; sign out first"
    14001 InvalidSession "invalid_session" "the session is zero or not usable; sign in again"
    14003 IncompatibleProtocolVersion "incompatible_protocol_version"
        "client and server have no protocol version in common; upgrade the older one"
    14004 SessionMismatch "session_mismatch"
        "the connection is bound to another session than expected; sign in again"
    14005 RequestIdExhausted "request_id_exhausted"
        "the request numbers of the session are used up; start a new session"
    14006 OperationUncertain "operation_uncertain"
        "a write was sent and its outcome is unknown; check before writing again"
    14007 LaneBlocked "lane_blocked" "an earlier write of unknown outcome blocks this one"
    14008 OperationNotRetained "operation_not_retained"
        "the outcome of the operation is no longer kept"
    14009 PartitionLaneBlocked "partition_lane_blocked"
        "an earlier write of unknown outcome blocks this partition"
    14010 FetchProgressUncertain "fetch_progress_uncertain"
        "a fetch that stores offsets ended with unknown outcome; read the stored offset first"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_rising_and_lead_back_to_their_error() {
        for pair in ErrorCode::ALL.windows(2) {
            assert!(pair[0].number() < pair[1].number());
        }
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
            assert_eq!(ErrorCode::from_wire(code.number()), code);
        }
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(ErrorCode::from_wire(86), ErrorCode::Error);
        assert_eq!(ErrorCode::ALL.len(), 267);
    }

    #[test]
    fn names_are_the_variants_in_snake_case_and_messages_say_something() {
        for &code in ErrorCode::ALL {
            let mut snake = String::new();
            for (at, letter) in format!("{code:?}").char_indices() {
                if letter.is_ascii_uppercase() && at > 0 {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            assert_eq!(snake, code.name());
            assert!(code.message().len() > 15, "{code:?}");
            assert!(!code.message().ends_with('.'), "{code:?}");
            assert_eq!(code.to_string(), code.message());
        }
    }

    #[test]
    fn numbers_that_clients_act_upon_are_exact() {
        let pairs = [
            (ErrorCode::Unauthenticated, 40),
            (ErrorCode::InvalidCredentials, 42),
            (ErrorCode::TransientNotCommitted, 57),
            (ErrorCode::StreamNameAlreadyExists, 1012),
            (ErrorCode::TopicNameAlreadyExists, 2013),
            (ErrorCode::ConsumerGroupIdNotFound, 5000),
            (ErrorCode::ConsumerGroupNameAlreadyExists, 5004),
            (ErrorCode::IncompatibleProtocolVersion, 14003),
        ];
        for (code, number) in pairs {
            assert_eq!(code.number(), number);
        }
    }
}
