//! The client of scenarios: does one thing after the other, resends under the same number until it
//! is answered, and remembers what was confirmed.

use crate::clients::{Client, ClientInput, Port, SocketId};
use crate::world::ROOT;
use borzoi_types::{
    ClientId, Duration, Micros, Mono, Offset, PartitionId, RequestNumber, SessionId,
};
use borzoi_wire::batch::{Batches, MessageId, NewMessage, encode_batch};
use borzoi_wire::body::{self, Credentials, Login, PollMessages, PollPrefix, SendMessages};
use borzoi_wire::frame::{RequestHeader, request_checksum};
use borzoi_wire::options::{TrailingOptions, keys};
use borzoi_wire::profile::profile_a::{ReplyOutcome, read_reply};
use borzoi_wire::{
    ConsumerKind, ConsumerRef, ErrorCode, Identifier, IdentifierRef, Name, NameRef, Operation,
    OptionalPartition, Options, Partitioning, PollingStrategy, ProtocolVersion, Request, Secret,
    Text, Value, Wire,
};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The stream of every scenario.
const STREAM: &str = "scenario";

/// How long it waits for an answer before it connects again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Job {
    /// Create the stream of the scenario, unless it is there.
    CreateStream,
    /// Create a topic.
    CreateTopic {
        /// Its name.
        name: String,
        /// Its level: `persisted` or `replicated`.
        level: String,
        /// Its partitions.
        partitions: u32,
    },
    /// Delete a topic.
    DeleteTopic(String),
    /// Send one batch to partition 0.
    Send {
        /// To which topic.
        topic: String,
        /// One message each.
        payloads: Vec<Vec<u8>>,
    },
    /// Read everything from partition 0.
    Read(String),
}

/// What the hand has to do and has seen; shared with the scenario.
#[derive(Debug, Default)]
pub struct Desk {
    /// What is left to do.
    pub jobs: VecDeque<Job>,
    /// By topic: offset and payload of every confirmed message, in order of confirmation.
    pub confirmed: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    /// By topic: what the last reading found.
    pub found: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    /// The last answer that was not a success.
    pub trouble: String,
    /// The node to talk to.
    pub node: usize,
    /// Whether another node is tried after a failure.
    pub roams: bool,
    /// Sends begun so far: makes payloads unique.
    pub sends: u64,
}

struct Flight {
    job: Job,
    number: u64,
    operation: u8,
    code: u32,
    body: Vec<u8>,
    waiting: bool,
}

enum Link {
    Down,
    Opening(SocketId),
    SigningIn(SocketId),
    Up(SocketId),
}

/// See the module.
pub struct Hand {
    desk: Rc<RefCell<Desk>>,
    link: Link,
    identity: u128,
    session: SessionId,
    number: u64,
    flight: Option<Flight>,
    read_from: u64,
    deadline: Option<Mono>,
}

impl Hand {
    /// A hand at a desk.
    #[must_use]
    pub fn new(desk: Rc<RefCell<Desk>>) -> Self {
        Self {
            desk,
            link: Link::Down,
            identity: 0x5ce_7a21,
            session: SessionId(0),
            number: 1,
            flight: None,
            read_from: 0,
            deadline: Some(Mono(0)),
        }
    }

    fn connect(&mut self, port: &mut Port<'_>) {
        let node = self.desk.borrow().node % port.nodes;
        self.link = Link::Opening(port.connect(node));
        self.deadline = Some(port.now.plus(PATIENCE));
    }

    fn drop_link(&mut self, port: &mut Port<'_>) {
        if let Link::Opening(socket) | Link::SigningIn(socket) | Link::Up(socket) = self.link {
            port.close(socket);
        }
        self.lost(port);
    }

    fn lost(&mut self, port: &Port<'_>) {
        self.link = Link::Down;
        self.deadline = Some(port.now.plus(PAUSE));
        if let Some(flight) = &mut self.flight {
            flight.waiting = false;
        }
        let mut desk = self.desk.borrow_mut();
        if desk.roams {
            desk.node = (desk.node + 1) % port.nodes;
        }
    }

    fn sign_in(&mut self, socket: SocketId, port: &mut Port<'_>) {
        let name = |text| Name::new(text).expect("a valid name");
        let version = body::ClientVersion {
            protocol: ProtocolVersion::V0_11_0,
            sdk_name: name("scenario"),
            sdk_version: name("1.0.0"),
        };
        let password = Secret::new(ROOT.1).expect("a valid password");
        let credentials = Credentials::Password { user: name(ROOT.0), password };
        let mut body = Vec::new();
        Login { version, credentials, context: Text::default() }.write(&mut body);
        let header = RequestHeader {
            client: ClientId(self.identity),
            operation: Operation::Register as u8,
            request_checksum: request_checksum(&body),
            ..RequestHeader::default()
        };
        port.send(socket, frame(header, &body));
        self.link = Link::SigningIn(socket);
        self.deadline = Some(port.now.plus(PATIENCE));
    }

    /// Sends what is under way, or begins the next thing.
    fn go_on(&mut self, port: &mut Port<'_>) {
        let Link::Up(socket) = self.link else { return };
        if self.flight.is_none() {
            let job = self.desk.borrow_mut().jobs.pop_front();
            let Some(job) = job else {
                self.deadline = None;
                return;
            };
            self.read_from = 0;
            self.flight = Some(self.prepare(job));
        }
        let Some(flight) = &mut self.flight else { return };
        if flight.waiting {
            return;
        }
        flight.waiting = true;
        let is_read = flight.operation == Operation::NonReplicated as u8;
        let header = RequestHeader {
            client: ClientId(self.identity),
            operation: flight.operation,
            session: self.session,
            request: RequestNumber(flight.number),
            code: flight.code,
            request_checksum: if is_read { 0 } else { request_checksum(&flight.body) },
            ..RequestHeader::default()
        };
        port.send(socket, frame(header, &flight.body));
        self.deadline = Some(port.now.plus(PATIENCE));
    }

    fn prepare(&mut self, job: Job) -> Flight {
        let mut body = Vec::new();
        let request_of = |request: Request<'_>, out: &mut Vec<u8>| {
            request.write_body(out);
            request.command()
        };
        let named = |name: &str| Identifier::Name(Name::new(name).expect("a valid name"));
        let command = match &job {
            Job::CreateStream => {
                let name = Name::new(STREAM).expect("a valid name");
                let options = TrailingOptions::default();
                request_of(Request::CreateStream(body::CreateStream { name, options }), &mut body)
            }
            Job::CreateTopic { name, level, partitions } => {
                let request = Request::CreateTopic(body::CreateTopic {
                    stream: named(STREAM),
                    partitions_count: *partitions,
                    name: Name::new(name.as_str()).expect("a valid name"),
                    options: TrailingOptions(topic_options(level)),
                });
                request_of(request, &mut body)
            }
            Job::DeleteTopic(name) => {
                let (stream, topic) = (named(STREAM), named(name));
                request_of(Request::DeleteTopic(body::DeleteTopic { stream, topic }), &mut body)
            }
            Job::Send { topic, payloads } => {
                let batch = batch_of(payloads);
                let request = Request::SendMessages(SendMessages {
                    stream: reference(STREAM),
                    topic: reference(topic),
                    partitioning: Partitioning::Partition(PartitionId(0)),
                    messages_count: u32::try_from(payloads.len()).expect("small batches"),
                    batch: &batch,
                });
                request_of(request, &mut body)
            }
            Job::Read(topic) => {
                let request = Request::PollMessages(PollMessages {
                    consumer: ConsumerRef {
                        kind: ConsumerKind::Consumer,
                        id: IdentifierRef::Numeric(1),
                    },
                    stream: reference(STREAM),
                    topic: reference(topic),
                    partition: OptionalPartition(Some(PartitionId(0))),
                    strategy: PollingStrategy::Offset(Offset(self.read_from)),
                    count: 1_000,
                    auto_commit: false,
                });
                request_of(request, &mut body)
            }
        };
        let operation = command.operation().expect("an operation of the profile");
        let is_read = operation == Operation::NonReplicated;
        let number = self.number;
        if !is_read {
            self.number += 1;
        }
        let code = if is_read { command.code() } else { 0 };
        Flight { job, number, operation: operation as u8, code, body, waiting: false }
    }

    fn answered(&mut self, bytes: &[u8], port: &mut Port<'_>) {
        match read_reply(bytes).expect("a frame that clients understand") {
            ReplyOutcome::Success(_, payload) => {
                let payload = payload.to_vec();
                self.succeeded(&payload, port);
            }
            ReplyOutcome::Refused(_, number) => self.refused(number, port),
            ReplyOutcome::Evicted(code, _) => {
                self.desk.borrow_mut().trouble = format!("evicted: {code:?}");
                self.session = SessionId(0);
                self.drop_link(port);
            }
        }
    }

    fn succeeded(&mut self, payload: &[u8], port: &mut Port<'_>) {
        if let Link::SigningIn(socket) = self.link {
            let identity =
                body::Identity::decode_exact(payload).expect("an exact answer to a login");
            self.session = identity.session;
            self.link = Link::Up(socket);
            return self.go_on(port);
        }
        let Some(mut flight) = self.flight.take() else { return };
        match &flight.job {
            Job::Send { topic, payloads } => {
                let confirmed = body::SendConfirmation::decode_exact(&payload[4..])
                    .expect("an exact confirmation");
                port.history.confirmed_sends += 1;
                let mut desk = self.desk.borrow_mut();
                let known = desk.confirmed.entry(topic.clone()).or_default();
                for (offset, payload) in (confirmed.base_offset.0..).zip(payloads) {
                    known.push((offset, payload.clone()));
                }
            }
            Job::Read(topic) => {
                let found = polled(payload);
                let more = found.last().map(|(offset, _)| offset + 1);
                let mut desk = self.desk.borrow_mut();
                let known = desk.found.entry(topic.clone()).or_default();
                if self.read_from == 0 {
                    known.clear();
                }
                known.extend(found);
                drop(desk);
                if let Some(more) = more {
                    self.read_from = more;
                    flight = self.prepare(flight.job);
                    self.flight = Some(flight);
                }
            }
            Job::CreateStream | Job::CreateTopic { .. } | Job::DeleteTopic(_) => {}
        }
        self.go_on(port);
    }

    fn refused(&mut self, number: u32, port: &mut Port<'_>) {
        let code = ErrorCode::from_number(number);
        self.desk.borrow_mut().trouble = format!("refused: {code:?}");
        if matches!(self.link, Link::SigningIn(_)) {
            return self.drop_link(port);
        }
        let done = self.flight.as_ref().is_some_and(|flight| match flight.job {
            Job::CreateStream => code == Some(ErrorCode::StreamNameAlreadyExists),
            _ => false,
        });
        if done {
            self.flight = None;
            return self.go_on(port);
        }
        if let Some(flight) = &mut self.flight {
            flight.waiting = false;
        }
        self.deadline = Some(port.now.plus(PAUSE));
    }
}

impl Client for Hand {
    fn handle(&mut self, input: ClientInput, port: &mut Port<'_>) {
        match input {
            ClientInput::Connected(socket) => self.sign_in(socket, port),
            ClientInput::Frame { bytes, .. } => self.answered(&bytes, port),
            ClientInput::Closed(_) => self.lost(port),
            ClientInput::Tick | ClientInput::Phase(_) => match self.link {
                Link::Down => self.connect(port),
                Link::Up(_) if self.flight.as_ref().is_none_or(|flight| !flight.waiting) => {
                    self.go_on(port);
                }
                _ if self.deadline.is_some_and(|deadline| deadline <= port.now) => {
                    self.drop_link(port);
                }
                _ => {}
            },
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    fn is_done(&self) -> bool {
        self.flight.is_none() && self.desk.borrow().jobs.is_empty()
    }

    fn describe(&self) -> String {
        let desk = self.desk.borrow();
        let now = self.flight.as_ref().map(|flight| format!("{:.120?}", flight.job));
        format!("{now:?}, {} to do, last trouble: {}", desk.jobs.len(), desk.trouble)
    }
}

fn frame(header: RequestHeader, body: &[u8]) -> Bytes {
    let mut frame = header.encode(body.len()).to_vec();
    frame.extend_from_slice(body);
    Bytes::from(frame)
}

fn reference(name: &str) -> IdentifierRef<'_> {
    IdentifierRef::Name(NameRef::new(name).expect("a valid name"))
}

fn topic_options(level: &str) -> Options {
    let mut options = Options::none();
    let level = Value::text(level.to_owned()).expect("a level's name");
    options.set(keys::DURABILITY, level).expect("a valid key");
    options.set(keys::SEGMENT_SIZE, Value::U64(1024 * 1024)).expect("a valid key");
    options
}

fn batch_of(payloads: &[Vec<u8>]) -> Vec<u8> {
    let messages: Vec<NewMessage<'_>> = (1..)
        .zip(payloads)
        .map(|(id, payload)| NewMessage {
            id: MessageId(id),
            payload,
            origin_timestamp: Micros(1),
            user_headers: &[],
        })
        .collect();
    let mut out = Vec::new();
    encode_batch(&messages, &mut out).expect("a valid batch");
    out
}

fn polled(payload: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut messages = Vec::new();
    for batch in Batches::new(&payload[PollPrefix::BYTES..]) {
        let batch = batch.expect("whole batches");
        for frame in batch.frames() {
            let frame = frame.expect("whole frames");
            let offset = batch.header().base_offset.0 + u64::from(frame.offset_delta());
            messages.push((offset, frame.payload().to_vec()));
        }
    }
    messages
}
