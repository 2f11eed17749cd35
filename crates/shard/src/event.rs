//! What goes into a shard and what comes out: the whole border between the deterministic core and
//! the shell that owns sockets, files, clocks and threads.
//!
//! Invariants:
//! - Every effect with a ticket is answered by exactly one event with the same ticket.
//! - Effects are executed in the order they were emitted, per queue: replies per connection,
//!   messages per destination shard, disk requests per [`DiskQueue`].
//! - Nothing here holds a borrow: events and effects are owned values and may cross threads.

use crate::front::FrontMessage;
use crate::lane::api::{CountersReply, CountersRequest, LaneReply, LaneRequest, Ticket};
use crate::peer::PeerMessage;
use borzoi_storage::disk::{DiskError, DiskQueue, DiskRequest, DiskResult, DiskTicket};
use borzoi_types::{LogId, Op, PartitionKey, ReplicaId, SessionId, ShardId};
use borzoi_wire::body::{SnapshotCompression, SnapshotContent};
use bytes::{Bytes, BytesMut};
use core::fmt;

/// One client connection, numbered by the shell; never reused within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// One diagnostic archive, numbered by the shard that asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArchiveTicket(pub u64);

/// A diagnostic archive for the shell to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchiveJob {
    /// How it is compressed: not at all, or by deflate.
    pub compression: SnapshotCompression,
    /// Its sections, each once; never the one that stands for all.
    pub content: Vec<SnapshotContent>,
}

/// One password job, numbered by the shard that asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PasswordTicket(pub u64);

/// How a client reached the server. The numbers are the ones client records carry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Plain or encrypted TCP.
    Tcp = 1,
    /// QUIC.
    Quic = 2,
    /// HTTP, translated to the same operations.
    Http = 3,
    /// WebSocket.
    WebSocket = 4,
}

/// Figures of the machine and the process that only the shell can read. Percentages are
/// 0.0..=100.0 times the number of cores, sizes bytes, times microseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostStats {
    /// Operating system process id.
    pub process_id: u32,
    /// Processor time of this process, percent.
    pub cpu_usage: f32,
    /// Processor time of the machine, percent.
    pub total_cpu_usage: f32,
    /// Resident memory of this process.
    pub memory_usage: u64,
    /// Memory of the machine.
    pub total_memory: u64,
    /// Memory still available.
    pub available_memory: u64,
    /// Time since the process started.
    pub run_time_micros: u64,
    /// Wall-clock start of the process.
    pub start_time_micros: u64,
    /// Bytes this process has read from disks.
    pub read_bytes: u64,
    /// Bytes this process has written to disks.
    pub written_bytes: u64,
    /// Host name.
    pub hostname: String,
    /// Operating system name.
    pub os_name: String,
    /// Operating system version.
    pub os_version: String,
    /// Kernel version.
    pub kernel_version: String,
    /// Threads of this process.
    pub threads_count: u32,
    /// Free bytes of the file system that holds the data directory.
    pub free_disk_space: u64,
    /// Size of that file system.
    pub total_disk_space: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Their limit.
    pub open_files_limit: u64,
}

/// A password on its way to the hashing thread. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Work for the password hashing thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PasswordJob {
    /// Compare `password` with `phc`, a stored hash in PHC string form.
    Verify {
        /// What the client sent.
        password: Secret,
        /// What the user's record holds.
        phc: String,
    },
    /// Make the PHC string of `password` with the salt the shard drew.
    Hash {
        /// What the client sent.
        password: Secret,
        /// Random salt, from the injected randomness so that a seed reproduces.
        salt: [u8; 16],
    },
}

/// What the password hashing thread found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PasswordOutcome {
    /// The comparison ended; whether they match.
    Verified(bool),
    /// The new PHC string.
    Hashed(String),
    /// The queue was full or the hash could not be computed; retriable.
    Refused,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A client connected.
    ConnectionOpened {
        /// Its number from now on.
        connection: ConnectionId,
        /// Remote address as text, for client records and limits per address.
        peer: String,
        /// How it connected.
        transport: Transport,
    },
    /// A whole client frame arrived.
    Frame {
        /// From where.
        connection: ConnectionId,
        /// 256-byte header and body, in the buffer it was received into.
        frame: BytesMut,
    },
    /// The client has taken most of what was sent to it, after
    /// [`OUTPUT_HOLD_BYTES`](borzoi_types::limits::OUTPUT_HOLD_BYTES) or more.
    OutputTaken {
        /// Which one.
        connection: ConnectionId,
    },
    /// The connection ended, by either side. Nothing more comes from it.
    ConnectionClosed {
        /// Which one.
        connection: ConnectionId,
    },
    /// A disk request ended.
    Disk {
        /// Ticket of the effect.
        ticket: DiskTicket,
        /// What became of it.
        result: DiskResult,
    },
    /// Another shard of this node sent something.
    FromShard {
        /// Who.
        from: ShardId,
        /// What.
        message: ShardMessage,
    },
    /// A frame arrived on this shard's link with another node.
    Peer {
        /// The node at the other end, as the link has authenticated it.
        from: ReplicaId,
        /// Header and body.
        frame: Bytes,
    },
    /// This shard's link with another node is up: frames may leave.
    PeerUp {
        /// Which node.
        peer: ReplicaId,
    },
    /// This shard's link with another node is down: frames for it are lost.
    PeerDown {
        /// Which node.
        peer: ReplicaId,
    },
    /// A password job ended.
    Password {
        /// Ticket of the effect.
        ticket: PasswordTicket,
        /// What it found.
        outcome: PasswordOutcome,
    },
    /// A diagnostic archive is made.
    Archive {
        /// Ticket of the effect.
        ticket: ArchiveTicket,
        /// Its bytes; none when it could not be made.
        archive: Option<Bytes>,
    },
    /// Fresh figures of machine and process.
    Host(Box<HostStats>),
    /// The deadline that [`crate::Shard::deadline`] named has come. Spurious ticks do no harm.
    Tick,
    /// Finish cleanly: flush, collapse reservations, checkpoint, then [`Effect::Stopped`].
    Stop,
}

/// Between the shards of one node: owned values through bounded queues.
#[derive(Debug)]
pub enum ShardMessage {
    /// A request for a lane that the receiver hosts.
    Lane(Box<LaneRequest>),
    /// The answer to a request of the receiver.
    LaneReply {
        /// The receiver's ticket.
        ticket: Ticket,
        /// The answer.
        reply: LaneReply,
    },
    /// Counters of partitions that the receiver hosts are wanted.
    Counters(CountersRequest),
    /// The answer.
    CountersReply(CountersReply),
    /// Between the fronts: metadata requests, committed metadata, client records.
    Front(FrontMessage),
    /// A message of another node that arrived on the sender's link and is for the receiver.
    Peer {
        /// The node that sent it.
        from: ReplicaId,
        /// What it says.
        message: Box<PeerMessage>,
    },
    /// A log of the sender has another leader.
    Leader {
        /// Which log.
        log: LogId,
        /// Who leads it now, if known: a hint.
        leader: Option<ReplicaId>,
    },
    /// A shard has handed everything in before a stop: shard 0 stops last, because the others
    /// need its metadata.
    Stopping,
}

/// Why the server closes a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CloseReason {
    /// The client broke the protocol.
    Protocol,
    /// The session was evicted; a notice was sent first.
    Evicted,
    /// Silent for too long.
    Idle,
    /// Not logged in in time.
    LoginTimeout,
    /// Too many connections, or another limit.
    Limit,
    /// The server is stopping.
    Stopping,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "it broke the protocol",
            Self::Evicted => "its session was ended",
            Self::Idle => "it was silent for too long",
            Self::LoginTimeout => "it did not log in in time",
            Self::Limit => "it reached a limit",
            Self::Stopping => "the server is stopping",
        })
    }
}

/// Something the shell must do.
#[derive(Debug)]
pub enum Effect {
    /// Send bytes to a client: the parts are gathered, not joined.
    Reply {
        /// To whom.
        connection: ConnectionId,
        /// Header and body in pieces, in order.
        parts: Vec<Bytes>,
    },
    /// From now on accept frames up to `bytes` from this connection.
    SetFrameLimit {
        /// Which connection.
        connection: ConnectionId,
        /// Largest frame in bytes, header included.
        bytes: usize,
    },
    /// Close a connection after sending what was queued for it.
    Close {
        /// Which connection.
        connection: ConnectionId,
        /// For the log and the counters.
        reason: CloseReason,
    },
    /// Execute a disk request; [`Event::Disk`] follows with the ticket.
    Disk {
        /// Which queue orders it.
        queue: DiskQueue,
        /// Comes back with the result.
        ticket: DiskTicket,
        /// What to do.
        request: DiskRequest,
    },
    /// Hand a message to another shard of this node.
    ToShard {
        /// To whom.
        to: ShardId,
        /// What.
        message: ShardMessage,
    },
    /// Send a frame to another node over this shard's link. Shard `s` of one node is linked with
    /// shard `s % n` of a node that has `n`. May be lost, delayed, repeated and reordered, never
    /// altered without notice; frames for a link that is down are lost.
    ToPeer {
        /// To which node.
        to: ReplicaId,
        /// Header and body in pieces, in order: gathered, not joined.
        parts: Vec<Bytes>,
    },
    /// Run a password job off the loop; [`Event::Password`] follows.
    Password {
        /// Comes back with the outcome.
        ticket: PasswordTicket,
        /// Who causes the work, without port: addresses take turns in the pool.
        address: String,
        /// What to do.
        job: PasswordJob,
    },
    /// Make a diagnostic archive off the loop; [`Event::Archive`] follows.
    Archive {
        /// Comes back with the bytes.
        ticket: ArchiveTicket,
        /// What to put in.
        job: ArchiveJob,
    },
    /// Something a human may want to read.
    Log(LogRecord),
    /// The node cannot go on: log it and exit with a failure. No acknowledgement follows.
    Fatal(FatalError),
    /// The clean stop is complete; the process may end.
    Stopped,
}

/// How much a log record matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// A human must look.
    Error,
    /// Something failed and was handled.
    Warn,
    /// A step in the life of the server.
    Info,
    /// Detail for debugging.
    Debug,
}

/// A typed log record: a level and what happened, as fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// How much it matters.
    pub level: LogLevel,
    /// What happened.
    pub entry: LogEntry,
}

/// What a log record can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogEntry {
    /// A log's primary has committed its inherited suffix and serves.
    LogServing {
        /// Which log.
        log: LogId,
        /// Its commit point.
        commit: Op,
    },
    /// What the shard's journal did since the start; said at a clean stop.
    JournalUsed {
        /// Records written.
        records: u64,
        /// Groups written, empty ones included.
        groups: u64,
        /// Flushes completed.
        flushes: u64,
        /// Flushes that covered at least one record.
        flushes_with_records: u64,
        /// Bytes written, padding and trailers included.
        bytes: u64,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// Which log.
        log: LogId,
        /// The operation it stands at.
        op: Op,
    },
    /// A disk request failed in a way that does not stop the node.
    DiskTrouble {
        /// What failed.
        error: DiskError,
    },
    /// A read from disk found bytes that are not what was written.
    Damage {
        /// Whose data.
        key: PartitionKey,
        /// Relative path of the file.
        file: String,
        /// Where in it.
        position: u64,
    },
    /// Offsets were skipped because a reservation stood above what the log proves.
    OffsetJump {
        /// Which lane.
        log: LogId,
        /// Partitions that jumped.
        partitions: u64,
    },
    /// Something about one client.
    Client {
        /// Its address.
        peer: String,
        /// What it did, or what happened to it.
        trouble: ClientTrouble,
    },
    /// Anything else, as a sentence. Rare: prefer a variant.
    Text(String),
}

/// What a log record tells about one client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientTrouble {
    /// The node has as many connections as it takes.
    #[error("too many connections")]
    Connections,
    /// The address has as many connections as it may.
    #[error("too many connections of one address")]
    ConnectionsOfAddress,
    /// A frame above the limit in force.
    #[error("a frame of {0} bytes is above the limit")]
    FrameBytes(usize),
    /// Too many requests without an answer.
    #[error("too many requests at once")]
    Requests,
    /// A request that breaks a rule of the protocol.
    #[error("{0}")]
    Request(borzoi_wire::frame::RequestFault),
    /// Its session has ended: its user or token is gone, or its time was over.
    #[error("session {0} has ended")]
    SessionEnded(SessionId),
}

/// Why a node cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FatalError {
    /// A write or flush of the journal failed: nothing can be acknowledged any more, and pages of
    /// a failed flush must not be trusted or retried.
    #[error("the journal cannot be written: {0}")]
    Journal(DiskError),
    /// Another node has seen a later life of this one: the data directory is an old copy. What was
    /// acknowledged since is not in it, so it must not take part.
    #[error(
        "node {node} has seen a later state of this node: the data directory was restored from a \
         copy; move it away and start empty, so that the node joins the cluster anew"
    )]
    Outdated {
        /// Who has seen it.
        node: ReplicaId,
    },
    /// A checkpoint, segment or removal failed for a reason other than a full disk.
    #[error("the data directory cannot be written: {0}")]
    Disk(DiskError),
}
