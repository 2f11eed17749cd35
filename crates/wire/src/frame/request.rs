//! The header of a request.
//!
//! ```text
//! 128 client u128 | 144 request_checksum u128 | 160 timestamp u64 | 168 request u64
//! 176 operation u8 | 177 zero | 184 session u64 | 192 user_id u32 | 196 code u32
//! 200 partition_incarnation u64 | 208 owner_generation u64 | 216 minimum_metadata_op u64
//! 224 reserved, zero
//! ```

use super::{
    AT_CLUSTER, AT_COMMAND, AT_RELEASE, AT_REPLICA, AT_SIZE, AT_VIEW, FrameCommand, HEADER_BYTES,
    HeaderBytes, blank, get, header_fields, put, size_field,
};
use crate::error_code::ErrorCode;
use crate::frame::EvictionReason;
use crate::operation::{Operation, OperationClass};
use borzoi_types::{ClientId, Op, RequestNumber, SessionId, checksum::xxh3_64};
use thiserror::Error;

const AT_CLIENT: usize = 128;
const AT_REQUEST_CHECKSUM: usize = 144;
const AT_TIMESTAMP: usize = 160;
const AT_REQUEST: usize = 168;
const AT_OPERATION: usize = 176;
const AT_SESSION: usize = 184;
const AT_CODE: usize = 196;
const AT_INCARNATION: usize = 200;
const AT_OWNER_GENERATION: usize = 208;
const AT_MINIMUM_METADATA_OP: usize = 216;

/// The checksum that a profile A client may put into the header of a request: XXH3-64 of the body,
/// widened (section 3.6).
#[must_use]
pub fn request_checksum(body: &[u8]) -> u128 {
    u128::from(xxh3_64(body))
}

/// What a server should do about a request that breaks a rule. Never silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// Close the connection and put the reason into the log.
    Close,
    /// Answer with a reply of this status and an empty body.
    Deny(ErrorCode),
    /// Answer with an eviction frame.
    Evict(EvictionReason),
}

/// A rule of section 3.3 that a request breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RequestFault {
    /// The command byte is not that of a request.
    #[error("command byte {command} is not that of a request")]
    Command {
        /// The byte.
        command: u8,
    },
    /// The size field differs from the bytes that arrived.
    #[error("the header says {size} bytes, the frame has {actual}")]
    Size {
        /// The size field.
        size: u32,
        /// Bytes of the frame.
        actual: usize,
    },
    /// The client identity is zero.
    #[error("the client identity is zero")]
    NoClient,
    /// The operation byte is not one of the profile.
    #[error("operation {operation} is not known")]
    UnknownOperation {
        /// The byte.
        operation: u8,
    },
    /// An operation that only the server may write.
    #[error("operation {operation:?} is internal")]
    InternalOperation {
        /// The operation.
        operation: Operation,
    },
    /// A login with a session or request number.
    #[error("a login carries session {session} and request {request}, both must be zero")]
    NumberedLogin {
        /// The session number.
        session: SessionId,
        /// The request number.
        request: RequestNumber,
    },
    /// A replicated request outside of a session.
    #[error("operation {operation:?} without a session")]
    NoSession {
        /// The operation.
        operation: Operation,
    },
    /// A replicated request without a number.
    #[error("operation {operation:?} without a request number")]
    NoRequestNumber {
        /// The operation.
        operation: Operation,
    },
    /// The body does not match the request checksum.
    #[error("the body does not match the request checksum")]
    Checksum,
}

impl RequestFault {
    /// What a server should do. Where the reference system drops the frame and leaves the client
    /// waiting, this answers.
    #[must_use]
    pub const fn reaction(self) -> Reaction {
        match self {
            Self::Command { .. } | Self::Size { .. } | Self::NoClient => Reaction::Close,
            Self::UnknownOperation { .. }
            | Self::NumberedLogin { .. }
            | Self::NoRequestNumber { .. } => Reaction::Deny(ErrorCode::InvalidCommand),
            Self::InternalOperation { .. } => {
                Reaction::Evict(EvictionReason::InvalidRequestOperation)
            }
            Self::NoSession { .. } => Reaction::Evict(EvictionReason::NoSession),
            Self::Checksum => Reaction::Deny(ErrorCode::InvalidFormat),
        }
    }
}

/// The header of a request, read in place.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a>(&'a HeaderBytes);

impl<'a> RequestView<'a> {
    /// Looks at a header.
    #[must_use]
    pub const fn new(header: &'a HeaderBytes) -> Self {
        Self(header)
    }

    /// Looks at the header of a frame and takes its body; `None` when the frame is shorter than
    /// a header.
    #[must_use]
    pub fn split(frame: &'a [u8]) -> Option<(Self, &'a [u8])> {
        frame.split_first_chunk::<HEADER_BYTES>().map(|(header, body)| (Self(header), body))
    }

    header_fields! {
        /// Cluster, zero from clients.
        cluster: u128 @ AT_CLUSTER;
        /// Size of the frame in bytes.
        size: u32 @ AT_SIZE;
        /// View, zero from clients.
        view: u32 @ AT_VIEW;
        /// Release, zero.
        release: u32 @ AT_RELEASE;
        /// Command byte, 5 for a request.
        command: u8 @ AT_COMMAND;
        /// Replica, zero from clients.
        replica: u8 @ AT_REPLICA;
        /// Checksum of the body (profile A) or identity of the request (profile B); may be 0.
        request_checksum: u128 @ AT_REQUEST_CHECKSUM;
        /// Time, zero from clients.
        timestamp: u64 @ AT_TIMESTAMP;
        /// Operation byte.
        operation_byte: u8 @ AT_OPERATION;
        /// Command code, meant only with [`Operation::NonReplicated`].
        code: u32 @ AT_CODE;
        /// Incarnation of the partition route (profile B), else 0.
        partition_incarnation: u64 @ AT_INCARNATION;
        /// Generation of the group assignment (profile B), else 0.
        owner_generation: u64 @ AT_OWNER_GENERATION;
    }

    /// Identity of the client.
    #[must_use]
    pub fn client(self) -> ClientId {
        ClientId(u128::from_le_bytes(get(self.0, AT_CLIENT)))
    }

    /// Request number.
    #[must_use]
    pub fn request(self) -> RequestNumber {
        RequestNumber(u64::from_le_bytes(get(self.0, AT_REQUEST)))
    }

    /// Session number, 0 before login.
    #[must_use]
    pub fn session(self) -> SessionId {
        SessionId(u64::from_le_bytes(get(self.0, AT_SESSION)))
    }

    /// Newest metadata position the client has seen (profile B), else 0.
    #[must_use]
    pub fn minimum_metadata_op(self) -> Op {
        Op(u64::from_le_bytes(get(self.0, AT_MINIMUM_METADATA_OP)))
    }

    /// Checks the rules of section 3.3 and gives the operation. The size was checked by
    /// [`super::FrameSize::peek`] when the frame arrived, the checksum is left to
    /// [`Self::check_body`].
    ///
    /// `bound` says whether the connection is signed in: then the numbers bound to it count, not
    /// those of the header (section 4.4).
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(self, bound: bool) -> Result<Operation, RequestFault> {
        if self.command() != FrameCommand::Request as u8 {
            return Err(RequestFault::Command { command: self.command() });
        }
        if self.client() == ClientId::ZERO {
            return Err(RequestFault::NoClient);
        }
        let byte = self.operation_byte();
        let operation =
            Operation::from_byte(byte).ok_or(RequestFault::UnknownOperation { operation: byte })?;
        match operation.class() {
            OperationClass::Internal => Err(RequestFault::InternalOperation { operation }),
            OperationClass::Read => Ok(operation),
            OperationClass::Session => self.check_session_operation(operation),
            OperationClass::Metadata | OperationClass::Partition => {
                if !bound {
                    return Err(RequestFault::NoSession { operation });
                }
                if self.request() == RequestNumber::ZERO {
                    return Err(RequestFault::NoRequestNumber { operation });
                }
                Ok(operation)
            }
        }
    }

    fn check_session_operation(self, operation: Operation) -> Result<Operation, RequestFault> {
        let (session, request) = (self.session(), self.request());
        let numbered = session != SessionId::ZERO || request != RequestNumber::ZERO;
        if operation == Operation::Register && numbered {
            return Err(RequestFault::NumberedLogin { session, request });
        }
        Ok(operation)
    }

    /// Checks size and request checksum against the body: in profile A the checksum is either
    /// zero or that of the body, and only of the operations that carry one (section 3.6).
    ///
    /// # Errors
    /// [`RequestFault::Size`] or [`RequestFault::Checksum`].
    pub fn check_body(self, body: &[u8]) -> Result<(), RequestFault> {
        let actual = HEADER_BYTES + body.len();
        if crate::codec::usize_from(self.size()) != actual {
            return Err(RequestFault::Size { size: self.size(), actual });
        }
        let announced = self.request_checksum();
        if announced == 0 || announced == request_checksum(body) {
            Ok(())
        } else {
            Err(RequestFault::Checksum)
        }
    }

    /// What an answer needs to know of this request.
    #[must_use]
    pub fn reply_to(self) -> ReplyTo {
        ReplyTo {
            cluster: self.cluster(),
            client: self.client(),
            request_checksum: self.request_checksum(),
            timestamp: self.timestamp(),
            request: self.request(),
            operation: self.operation_byte(),
            partition_incarnation: self.partition_incarnation(),
        }
    }

    /// The fields as a builder, for tools and tests.
    #[must_use]
    pub fn to_header(self) -> RequestHeader {
        RequestHeader {
            client: self.client(),
            request_checksum: self.request_checksum(),
            request: self.request(),
            operation: self.operation_byte(),
            session: self.session(),
            code: self.code(),
            partition_incarnation: self.partition_incarnation(),
            owner_generation: self.owner_generation(),
            minimum_metadata_op: self.minimum_metadata_op(),
        }
    }
}

/// What an answer echoes of its request: small, kept while the request is worked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyTo {
    /// Cluster field.
    pub cluster: u128,
    /// Identity of the client.
    pub client: ClientId,
    /// Checksum or identity of the request.
    pub request_checksum: u128,
    /// Time field.
    pub timestamp: u64,
    /// Request number.
    pub request: RequestNumber,
    /// Operation byte, known or not.
    pub operation: u8,
    /// Incarnation of the partition route.
    pub partition_incarnation: u64,
}

/// The header of a request, to be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestHeader {
    /// Identity of the client, not zero.
    pub client: ClientId,
    /// [`request_checksum`] of the body, or 0.
    pub request_checksum: u128,
    /// Request number.
    pub request: RequestNumber,
    /// Operation byte.
    pub operation: u8,
    /// Session number, 0 before login.
    pub session: SessionId,
    /// Command code of a [`Operation::NonReplicated`] request, else 0.
    pub code: u32,
    /// Incarnation of the partition route (profile B), else 0.
    pub partition_incarnation: u64,
    /// Generation of the group assignment (profile B), else 0.
    pub owner_generation: u64,
    /// Newest metadata position seen (profile B), else 0.
    pub minimum_metadata_op: Op,
}

impl RequestHeader {
    /// The 256 bytes in front of a body of `body_bytes` bytes.
    #[must_use]
    pub fn encode(&self, body_bytes: usize) -> HeaderBytes {
        let mut header = blank(FrameCommand::Request, size_field(body_bytes));
        put(&mut header, AT_CLIENT, self.client.0.to_le_bytes());
        put(&mut header, AT_REQUEST_CHECKSUM, self.request_checksum.to_le_bytes());
        put(&mut header, AT_REQUEST, self.request.0.to_le_bytes());
        header[AT_OPERATION] = self.operation;
        put(&mut header, AT_SESSION, self.session.0.to_le_bytes());
        put(&mut header, AT_CODE, self.code.to_le_bytes());
        put(&mut header, AT_INCARNATION, self.partition_incarnation.to_le_bytes());
        put(&mut header, AT_OWNER_GENERATION, self.owner_generation.to_le_bytes());
        put(&mut header, AT_MINIMUM_METADATA_OP, self.minimum_metadata_op.0.to_le_bytes());
        header
    }
}
