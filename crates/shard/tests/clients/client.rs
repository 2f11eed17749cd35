//! A client of profile A: builds frames, reads answers.

use crate::world::{START, World};
use borzoi_shard::ConnectionId;
use borzoi_shard::event::CloseReason;
use borzoi_types::{
    ClientId, Offset, Op, PartitionId, RequestNumber, SessionId, StreamId, TopicId, UserId,
};
use borzoi_wire::batch::{Batches, MessageId, NewMessage, encode_batch};
use borzoi_wire::body::{self, Credentials, Login, PollMessages, PollPrefix, SendMessages};
use borzoi_wire::frame::{EvictionReason, EvictionView, RequestHeader, request_checksum};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::profile::profile_a::{ReplyOutcome, read_reply};
use borzoi_wire::{
    CommandCode, ConsumerKind, ConsumerRef, ErrorCode, Identifier, IdentifierRef, Name, NameRef,
    Operation, OptionalPartition, Partitioning, PollingStrategy, ProtocolVersion, Request, Secret,
    Text, Wire,
};

/// An answer, taken apart.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Done {
        operation: u8,
        op: Op,
        commit: Op,
        payload: Vec<u8>,
    },
    /// In the status field.
    Denied(ErrorCode),
    /// In the result section.
    Rejected(ErrorCode),
    Evicted(EvictionReason),
}

impl Answer {
    pub fn read(frame: &[u8]) -> Self {
        let code = |number| ErrorCode::from_number(number).expect("a known error number");
        match read_reply(frame).expect("a frame that clients understand") {
            ReplyOutcome::Success(view, payload) => Self::Done {
                operation: view.operation_byte(),
                op: view.op(),
                commit: view.commit(),
                payload: payload.to_vec(),
            },
            ReplyOutcome::Refused(view, number) if view.status() != 0 => {
                assert_eq!(frame.len(), 256, "a status goes with an empty body");
                Self::Denied(code(number))
            }
            ReplyOutcome::Refused(_, number) => Self::Rejected(code(number)),
            ReplyOutcome::Evicted(..) => {
                let view = EvictionView::new(frame.first_chunk().expect("256 bytes"));
                assert!(view.client() != ClientId(0), "an eviction names somebody");
                Self::Evicted(view.reason().expect("a known reason"))
            }
        }
    }

    pub fn payload(self) -> Vec<u8> {
        match self {
            Self::Done { payload, .. } => payload,
            other => panic!("expected success, got {other:?}"),
        }
    }

    pub fn decode<T: for<'a> Wire<'a>>(self) -> T {
        let payload = self.payload();
        T::decode_exact(&payload).expect("an exact payload")
    }

    /// The error, wherever it stands.
    pub fn error(self) -> ErrorCode {
        match self {
            Self::Denied(code) | Self::Rejected(code) => code,
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// Messages of a poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Polled {
    pub partition: PartitionId,
    pub current: Offset,
    pub messages: Vec<(u64, Vec<u8>)>,
}

pub struct Client {
    pub connection: ConnectionId,
    pub id: ClientId,
    pub session: SessionId,
    pub request: u64,
}

pub fn number(number: u32) -> Identifier {
    Identifier::Numeric(number)
}

pub fn named(name: &str) -> Identifier {
    Identifier::Name(Name::new(name).unwrap())
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn login_body(user: &str, password: &str, version: ProtocolVersion) -> Vec<u8> {
    let credentials =
        Credentials::Password { user: name(user), password: Secret::new(password).unwrap() };
    credentials_body(credentials, version)
}

pub fn credentials_body(credentials: Credentials, protocol: ProtocolVersion) -> Vec<u8> {
    let version =
        body::ClientVersion { protocol, sdk_name: name("test-sdk"), sdk_version: name("1.0.0") };
    let mut out = Vec::new();
    Login { version, credentials, context: Text::default() }.write(&mut out);
    out
}

pub fn batch_of(payloads: &[&[u8]]) -> Vec<u8> {
    let messages: Vec<NewMessage<'_>> = payloads
        .iter()
        .enumerate()
        .map(|(index, payload)| NewMessage {
            id: MessageId(index as u128 + 1),
            payload,
            origin_timestamp: START,
            user_headers: &[],
        })
        .collect();
    let mut out = Vec::new();
    encode_batch(&messages, &mut out).expect("a valid batch");
    out
}

impl Client {
    pub fn connect(world: &mut World, shard: u16, id: u128) -> Self {
        let connection = world.open(shard, &format!("10.0.0.1:{}", 1_000 + id % 60_000));
        Self { connection, id: ClientId(id), session: SessionId(0), request: 1 }
    }

    /// Connects and logs in as root.
    pub fn root(world: &mut World, shard: u16, id: u128) -> Self {
        let mut client = Self::connect(world, shard, id);
        client.login(world, "iggy", "iggy");
        client
    }

    pub fn login(&mut self, world: &mut World, user: &str, password: &str) -> UserId {
        let identity: body::Identity = self.try_login(world, user, password).decode();
        self.session = identity.session;
        identity.user
    }

    pub fn try_login(&mut self, world: &mut World, user: &str, password: &str) -> Answer {
        let body = login_body(user, password, ProtocolVersion::V0_11_0);
        self.register(world, &body)
    }

    pub fn register(&mut self, world: &mut World, body: &[u8]) -> Answer {
        let header = RequestHeader {
            client: self.id,
            operation: Operation::Register as u8,
            request_checksum: request_checksum(body),
            ..RequestHeader::default()
        };
        self.exchange(world, header, body)
    }

    pub fn frame(header: RequestHeader, body: &[u8]) -> Vec<u8> {
        let mut frame = header.encode(body.len()).to_vec();
        frame.extend_from_slice(body);
        frame
    }

    /// Sends a frame and takes the one answer to it.
    pub fn exchange(&mut self, world: &mut World, header: RequestHeader, body: &[u8]) -> Answer {
        self.exchange_raw(world, &Self::frame(header, body))
    }

    pub fn exchange_raw(&mut self, world: &mut World, frame: &[u8]) -> Answer {
        world.deliver(self.connection, frame);
        world.run();
        self.take(world)
    }

    /// The next answer.
    pub fn take(&mut self, world: &mut World) -> Answer {
        Answer::read(&self.take_frame(world))
    }

    pub fn take_frame(&mut self, world: &mut World) -> Vec<u8> {
        let seen = world.seen.get_mut(&self.connection).unwrap();
        seen.frames.pop_front().unwrap_or_else(|| panic!("no answer; closed: {:?}", seen.closed))
    }

    pub fn closed(&self, world: &World) -> Option<CloseReason> {
        world.seen[&self.connection].closed
    }

    /// The header that this client sends with a request now, numbered like stable clients do.
    pub fn header(&mut self, request: &Request<'_>, body: &[u8]) -> RequestHeader {
        let command = request.command();
        let operation = command.operation().expect("no legacy login");
        let is_read = operation == Operation::NonReplicated;
        let header = RequestHeader {
            client: self.id,
            operation: operation as u8,
            session: self.session,
            request: RequestNumber(self.request),
            code: if is_read { command.code() } else { 0 },
            request_checksum: if is_read { 0 } else { request_checksum(body) },
            ..RequestHeader::default()
        };
        if !is_read && operation != Operation::Logout {
            self.request += 1;
        }
        header
    }

    pub fn request_frame(&mut self, request: &Request<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        request.write_body(&mut body);
        let header = self.header(request, &body);
        Self::frame(header, &body)
    }

    pub fn call(&mut self, world: &mut World, request: &Request<'_>) -> Answer {
        let frame = self.request_frame(request);
        self.exchange_raw(world, &frame)
    }

    pub fn read(&mut self, world: &mut World, code: u32, body: &[u8]) -> Answer {
        let header = RequestHeader {
            client: self.id,
            operation: Operation::NonReplicated as u8,
            session: self.session,
            request: RequestNumber(self.request),
            code,
            ..RequestHeader::default()
        };
        self.exchange(world, header, body)
    }

    pub fn ping(&mut self, world: &mut World) -> Answer {
        self.read(world, CommandCode::Ping.code(), &[])
    }

    pub fn create_stream(&mut self, world: &mut World, stream: &str) -> Answer {
        let options = TrailingOptions::default();
        let body = body::CreateStream { name: name(stream), options };
        self.call(world, &Request::CreateStream(body))
    }

    pub fn create_topic(&mut self, world: &mut World, topic: &str, partitions: u32) -> Answer {
        let body = body::CreateTopic {
            stream: number(0),
            partitions_count: partitions,
            name: name(topic),
            options: TrailingOptions::default(),
        };
        self.call(world, &Request::CreateTopic(body))
    }

    /// Stream 0 and topic 0 with this many partitions.
    pub fn prepare(&mut self, world: &mut World, partitions: u32) {
        self.create_stream(world, "stream").payload();
        self.create_topic(world, "topic", partitions).payload();
    }

    pub fn send_frame(&mut self, to: Partitioning<'_>, payloads: &[&[u8]]) -> Vec<u8> {
        let batch = batch_of(payloads);
        let send = SendMessages {
            stream: IdentifierRef::Numeric(0),
            topic: IdentifierRef::Numeric(0),
            partitioning: to,
            messages_count: u32::try_from(payloads.len()).unwrap(),
            batch: &batch,
        };
        self.request_frame(&Request::SendMessages(send))
    }

    pub fn send_to(
        &mut self,
        world: &mut World,
        to: Partitioning<'_>,
        payloads: &[&[u8]],
    ) -> Answer {
        let frame = self.send_frame(to, payloads);
        self.exchange_raw(world, &frame)
    }

    /// Sends to a partition and gives the confirmed base offset.
    pub fn send(&mut self, world: &mut World, partition: u32, payloads: &[&[u8]]) -> u64 {
        let to = Partitioning::Partition(PartitionId(partition));
        let confirmed = confirmation(&self.send_to(world, to, payloads));
        assert_eq!((confirmed.stream, confirmed.topic), (StreamId(0), TopicId(0)));
        assert_eq!(confirmed.partition, PartitionId(partition));
        confirmed.base_offset.0
    }

    pub fn poll_request(
        partition: Option<u32>,
        strategy: PollingStrategy,
        count: u32,
        auto_commit: bool,
    ) -> PollMessages<'static> {
        PollMessages {
            consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(1) },
            stream: IdentifierRef::Numeric(0),
            topic: IdentifierRef::Numeric(0),
            partition: OptionalPartition(partition.map(PartitionId)),
            strategy,
            count,
            auto_commit,
        }
    }

    pub fn poll(
        &mut self,
        world: &mut World,
        partition: u32,
        strategy: PollingStrategy,
        count: u32,
    ) -> Polled {
        let request = Self::poll_request(Some(partition), strategy, count, false);
        polled(self.call(world, &Request::PollMessages(request)))
    }
}

pub fn group_consumer(group: &str) -> ConsumerRef<'_> {
    let id = IdentifierRef::Name(NameRef::new(group).unwrap());
    ConsumerRef { kind: ConsumerKind::Group, id }
}

pub fn confirmation(answer: &Answer) -> body::SendConfirmation {
    let payload = answer.clone().payload();
    assert_eq!(payload.len(), 24, "count and one entry of 20 bytes");
    assert_eq!(payload[..4], [1, 0, 0, 0]);
    body::SendConfirmation::decode_exact(&payload[4..]).unwrap()
}

pub fn polled(answer: Answer) -> Polled {
    let payload = answer.payload();
    let prefix = PollPrefix::decode(&payload).unwrap();
    let mut messages = Vec::new();
    for batch in Batches::new(&payload[PollPrefix::BYTES..]) {
        let batch = batch.expect("whole batches");
        for frame in batch.frames() {
            let frame = frame.expect("whole frames");
            let offset = batch.header().base_offset.0 + u64::from(frame.offset_delta());
            messages.push((offset, frame.payload().to_vec()));
        }
    }
    assert_eq!(messages.len(), usize::try_from(prefix.messages_count).unwrap());
    Polled { partition: prefix.partition, current: prefix.current_offset, messages }
}
