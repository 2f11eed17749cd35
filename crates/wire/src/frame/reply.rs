//! The header of a reply.
//!
//! ```text
//! 128 request_checksum u128 | 144 context u128, zero | 160 client u128 | 176 op u64
//! 184 commit u64 | 192 timestamp u64 | 200 request u64 | 208 operation u8 | 209 zero
//! 216 status u32 | 220 committed marker u8 | 221 zero | 224 partition_incarnation u64
//! 232 reserved, zero
//! ```

use super::{
    AT_CLUSTER, AT_COMMAND, AT_REPLICA, AT_SIZE, AT_VIEW, FrameCommand, HEADER_BYTES, HeaderBytes,
    ReplyTo, blank, get, header_fields, put, size_field,
};
use crate::operation::Operation;
use borzoi_types::{ClientId, Micros, Op, RequestNumber};

const AT_REQUEST_CHECKSUM: usize = 128;
const AT_CLIENT: usize = 160;
const AT_OP: usize = 176;
const AT_COMMIT: usize = 184;
const AT_TIMESTAMP: usize = 192;
const AT_REQUEST: usize = 200;
const AT_OPERATION: usize = 208;
const AT_STATUS: usize = 216;
const AT_COMMITTED: usize = 220;
const AT_INCARNATION: usize = 224;

/// The header of a reply, read in place.
#[derive(Clone, Copy, Debug)]
pub struct ReplyView<'a>(&'a HeaderBytes);

impl<'a> ReplyView<'a> {
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
        /// Cluster of the server, or an echo.
        cluster: u128 @ AT_CLUSTER;
        /// Size of the frame in bytes.
        size: u32 @ AT_SIZE;
        /// View number, or an echo.
        view: u32 @ AT_VIEW;
        /// Command byte, 8 for a reply.
        command: u8 @ AT_COMMAND;
        /// Replica number, or an echo.
        replica: u8 @ AT_REPLICA;
        /// Echo of the request.
        request_checksum: u128 @ AT_REQUEST_CHECKSUM;
        /// Operation byte: decides how the body is read.
        operation_byte: u8 @ AT_OPERATION;
        /// 0, or the number of an error; then the body is empty.
        status: u32 @ AT_STATUS;
        /// 1 when the reply proves a committed result (profile B).
        committed_marker: u8 @ AT_COMMITTED;
        /// Incarnation of the partition that was served (profile B).
        partition_incarnation: u64 @ AT_INCARNATION;
    }

    /// Identity of the client.
    #[must_use]
    pub fn client(self) -> ClientId {
        ClientId(u128::from_le_bytes(get(self.0, AT_CLIENT)))
    }

    /// Log position of the command (section 3.8).
    #[must_use]
    pub fn op(self) -> Op {
        Op(u64::from_le_bytes(get(self.0, AT_OP)))
    }

    /// Commit position (section 3.8).
    #[must_use]
    pub fn commit(self) -> Op {
        Op(u64::from_le_bytes(get(self.0, AT_COMMIT)))
    }

    /// Time of the commit, or an echo.
    #[must_use]
    pub fn timestamp(self) -> Micros {
        Micros(u64::from_le_bytes(get(self.0, AT_TIMESTAMP)))
    }

    /// Request number this answers.
    #[must_use]
    pub fn request(self) -> RequestNumber {
        RequestNumber(u64::from_le_bytes(get(self.0, AT_REQUEST)))
    }

    /// The operation; `None` when it is not one of the profile.
    #[must_use]
    pub fn operation(self) -> Option<Operation> {
        Operation::from_byte(self.operation_byte())
    }

    /// The fields as a builder, for tools and tests.
    #[must_use]
    pub fn to_header(self) -> ReplyHeader {
        ReplyHeader {
            cluster: self.cluster(),
            view: self.view(),
            replica: self.replica(),
            request_checksum: self.request_checksum(),
            client: self.client(),
            op: self.op(),
            commit: self.commit(),
            timestamp: self.timestamp(),
            request: self.request(),
            operation: self.operation_byte(),
            status: self.status(),
            committed: self.committed_marker() == 1,
            partition_incarnation: self.partition_incarnation(),
        }
    }
}

/// The header of a reply, to be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyHeader {
    /// Cluster of the server, or an echo.
    pub cluster: u128,
    /// View number, or 0.
    pub view: u32,
    /// Replica number, or 0.
    pub replica: u8,
    /// Echo of the request.
    pub request_checksum: u128,
    /// Identity of the client.
    pub client: ClientId,
    /// Log position of the command.
    pub op: Op,
    /// Commit position.
    pub commit: Op,
    /// Time of the commit, or an echo.
    pub timestamp: Micros,
    /// Echo of the request number.
    pub request: RequestNumber,
    /// Operation byte.
    pub operation: u8,
    /// 0, or the number of an error.
    pub status: u32,
    /// Whether the reply proves a committed result (profile B).
    pub committed: bool,
    /// Incarnation of the partition that was served (profile B).
    pub partition_incarnation: u64,
}

impl ReplyHeader {
    /// A header that echoes what a reply to `to` must echo; positions and status are 0.
    #[must_use]
    pub const fn answering(to: &ReplyTo) -> Self {
        Self {
            cluster: to.cluster,
            view: 0,
            replica: 0,
            request_checksum: to.request_checksum,
            client: to.client,
            op: Op::ZERO,
            commit: Op::ZERO,
            timestamp: Micros(to.timestamp),
            request: to.request,
            operation: to.operation,
            status: 0,
            committed: false,
            partition_incarnation: to.partition_incarnation,
        }
    }

    /// The 256 bytes in front of a body of `body_bytes` bytes.
    #[must_use]
    pub fn encode(&self, body_bytes: usize) -> HeaderBytes {
        let mut header = blank(FrameCommand::Reply, size_field(body_bytes));
        put(&mut header, AT_CLUSTER, self.cluster.to_le_bytes());
        put(&mut header, AT_VIEW, self.view.to_le_bytes());
        header[AT_REPLICA] = self.replica;
        put(&mut header, AT_REQUEST_CHECKSUM, self.request_checksum.to_le_bytes());
        put(&mut header, AT_CLIENT, self.client.0.to_le_bytes());
        put(&mut header, AT_OP, self.op.0.to_le_bytes());
        put(&mut header, AT_COMMIT, self.commit.0.to_le_bytes());
        put(&mut header, AT_TIMESTAMP, self.timestamp.0.to_le_bytes());
        put(&mut header, AT_REQUEST, self.request.0.to_le_bytes());
        header[AT_OPERATION] = self.operation;
        put(&mut header, AT_STATUS, self.status.to_le_bytes());
        header[AT_COMMITTED] = u8::from(self.committed);
        put(&mut header, AT_INCARNATION, self.partition_incarnation.to_le_bytes());
        header
    }
}
