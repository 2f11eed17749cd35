//! A server that reads frames, verifies every checksum, confirms, and stores nothing.
//!
//! It answers just what the bench and the official client need to run a load against it, and
//! bounds from above what any server can reach with the same client on the same machine. A poll
//! is answered with the newest batch of the partition, as often as it is asked for.

use borzoi_types::limits::FRAME_BYTES_MAX;
use borzoi_types::{Micros, Offset, Op, PartitionId, SessionId, StreamId, TopicId, UserId};
use borzoi_wire::batch::{BATCH_HEADER_BYTES, BatchHeader, stamp, verify_send};
use borzoi_wire::body::{
    ClusterMetadata, ClusterNode, Compression, Identity, MessageExpiry, NodeRole, NodeStatus,
    PartitionRecord, PollMessages, PollPrefix, SendConfirmation, SendMessages, SizeLimit,
    StreamRecord, TopicDetails, TopicHeader,
};
use borzoi_wire::frame::{FrameSize, HEADER_BYTES, RESULT_SUCCESS, ReplyHeader, RequestView};
use borzoi_wire::{
    CommandCode, ErrorCode, Name, Operation, Options, Partitioning, ProtocolVersion, Text, Wire,
};
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Partitions that every topic seems to have.
const PARTITIONS: u32 = 256;

/// The newest batch and the next offset of each partition.
#[derive(Debug, Default)]
struct Newest {
    partitions: BTreeMap<u32, (Bytes, u64)>,
}

type Shared = Rc<RefCell<Newest>>;

/// Serves until the process ends.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(listen: &str) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    crate::print(&format!("ceiling server on {}", listener.local_addr()?));
    let shared = Shared::default();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let shared = Rc::clone(&shared);
                // A connection that breaks ends its own task and nothing else.
                tokio::task::spawn_local(async move { connection(stream, shared).await });
            }
        })
        .await
}

async fn connection(mut stream: TcpStream, shared: Shared) -> io::Result<()> {
    let mut input = BytesMut::new();
    loop {
        fill(&mut stream, &mut input, HEADER_BYTES).await?;
        let header = input.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        let size = FrameSize::peek(header, FRAME_BYTES_MAX)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            .frame_bytes();
        fill(&mut stream, &mut input, size).await?;
        let parts = answer(input.split_to(size), &shared);
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            let written = stream.write_vectored(left).await?;
            IoSlice::advance_slices(&mut left, written);
        }
    }
}

async fn fill(stream: &mut TcpStream, input: &mut BytesMut, bytes: usize) -> io::Result<()> {
    while input.len() < bytes {
        input.reserve(bytes - input.len());
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Body of a reply, or the error to answer.
type Outcome = Result<(Operation, Vec<Bytes>), ErrorCode>;

fn answer(mut frame: BytesMut, shared: &Shared) -> Vec<Bytes> {
    let body = frame.split_off(HEADER_BYTES);
    let header: &[u8; HEADER_BYTES] = frame.first_chunk().expect("the frame has a header");
    let view = RequestView::new(header);
    let operation = view.operation_byte();
    let outcome = match Operation::from_byte(operation) {
        Some(Operation::SendMessages) => confirm(body, shared),
        Some(Operation::NonReplicated) => read(view.code(), &body, shared),
        Some(operation) => change(operation),
        None => Err(ErrorCode::InvalidCommand),
    };
    let mut reply = ReplyHeader::answering(&view.reply_to());
    let (status, parts) = match outcome {
        Ok((operation, parts)) => {
            reply.operation = operation as u8;
            reply.op = Op(1);
            reply.commit = Op(1);
            (0, parts)
        }
        Err(code) => (code.number(), Vec::new()),
    };
    reply.status = status;
    let length = parts.iter().map(Bytes::len).sum();
    let mut all = Vec::with_capacity(parts.len() + 1);
    all.push(Bytes::copy_from_slice(&reply.encode(length)));
    all.extend(parts);
    all
}

fn confirm(mut body: BytesMut, shared: &Shared) -> Outcome {
    let length = body.len();
    let (partition, count, range) = {
        let send = SendMessages::decode(&body).map_err(|error| error.deny())?;
        verify_send(send.batch, send.messages_count).map_err(|fault| fault.deny())?;
        let partition = match send.partitioning {
            Partitioning::Partition(partition) => partition,
            Partitioning::Balanced => PartitionId(0),
            Partitioning::Key(key) => key.partition(PARTITIONS).unwrap_or_default(),
        };
        (partition, send.messages_count, send.batch_range(length))
    };
    let mut newest = shared.borrow_mut();
    let slot = newest.partitions.entry(partition.0).or_default();
    let base = slot.1;
    stamp(&mut body[range.clone()], partition, Offset(base), Micros(1))
        .map_err(|fault| fault.deny())?;
    *slot = (body.freeze().slice(range), base + u64::from(count));
    let confirmation = SendConfirmation {
        stream: StreamId(0),
        topic: TopicId(0),
        partition,
        base_offset: Offset(base),
    };
    let mut out = 1_u32.to_le_bytes().to_vec();
    confirmation.write(&mut out);
    Ok((Operation::SendMessages, vec![Bytes::from(out)]))
}

fn poll(body: &[u8], shared: &Shared) -> Outcome {
    let poll = PollMessages::decode(body).map_err(|_| ErrorCode::InvalidCommand)?;
    let partition = poll.partition.0.unwrap_or_default();
    let newest = shared.borrow();
    let found = newest.partitions.get(&partition.0);
    let (batch, next) = found.cloned().unwrap_or_default();
    let count = match batch.get(..BATCH_HEADER_BYTES) {
        Some(header) => BatchHeader::decode(header).map_err(|fault| fault.deny())?.message_count,
        None => 0,
    };
    let prefix = PollPrefix {
        partition,
        current_offset: Offset(next.saturating_sub(1)),
        messages_count: count,
    };
    Ok((Operation::NonReplicated, vec![Bytes::from(prefix.encode()), batch]))
}

fn read(code: u32, body: &[u8], shared: &Shared) -> Outcome {
    let payload = match CommandCode::from_code(code) {
        Some(CommandCode::Ping) => Vec::new(),
        Some(CommandCode::PollMessages) => return poll(body, shared),
        Some(CommandCode::GetClusterMetadata) => cluster().encode(),
        Some(CommandCode::GetTopic) => topic().encode(),
        Some(CommandCode::GetStream) => stream().encode(),
        _ => return Err(ErrorCode::FeatureUnavailable),
    };
    Ok((Operation::NonReplicated, vec![Bytes::from(payload)]))
}

fn change(operation: Operation) -> Outcome {
    let mut body = RESULT_SUCCESS.to_vec();
    let mut answered = operation;
    match operation {
        Operation::Register => Identity {
            user: UserId(0),
            session: SessionId(1),
            protocol: ProtocolVersion::V0_11_0,
            server_version: name("ceiling"),
        }
        .write(&mut body),
        Operation::Logout => body.clear(),
        Operation::CreateStream => stream().write(&mut body),
        Operation::CreateTopic => {
            answered = Operation::CreateTopicWithAssignments;
            topic().write(&mut body);
        }
        Operation::DeleteTopic | Operation::DeleteStream => {}
        _ => return Err(ErrorCode::FeatureUnavailable),
    }
    Ok((answered, vec![Bytes::from(body)]))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a constant of the right length")
}

fn cluster() -> ClusterMetadata {
    let node = ClusterNode {
        name: Text("ceiling".to_owned()),
        address: Text("127.0.0.1".to_owned()),
        tcp: 0,
        quic: 0,
        http: 0,
        websocket: 0,
        role: NodeRole::Leader,
        status: NodeStatus::Healthy,
    };
    ClusterMetadata { name: Text("ceiling".to_owned()), nodes: vec![node] }
}

fn stream() -> StreamRecord {
    StreamRecord {
        id: StreamId(0),
        created: Micros(1),
        topics_count: 0,
        size_bytes: 0,
        messages: 0,
        name: name("ceiling"),
        options: Options::default(),
    }
}

fn topic() -> TopicDetails {
    let partition = |id| PartitionRecord {
        id: PartitionId(id),
        created: Micros(1),
        segments: 0,
        current_offset: Offset(0),
        size_bytes: 0,
        messages: 0,
    };
    TopicDetails {
        topic: TopicHeader {
            id: TopicId(0),
            created: Micros(1),
            partitions_count: PARTITIONS,
            message_expiry: MessageExpiry(u64::MAX),
            compression: Compression::None,
            max_topic_size: SizeLimit(u64::MAX),
            size_bytes: 0,
            messages: 0,
            name: name("ceiling"),
            explicit: Options::default(),
            derived: Options::default(),
        },
        partitions: (0..PARTITIONS).map(partition).collect(),
    }
}
