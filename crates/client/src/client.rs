//! One connection with one request in flight, that survives the loss of its connection.

use crate::connection::{Answer, Connection};
use crate::error::Error;
use crate::message::{Polled, batch_of};
use crate::options::ClientOptions;
use borzoi_types::{ClientId, Durability, Offset, PartitionId, RequestNumber, SessionId};
use borzoi_wire::batch::BatchHeader;
use borzoi_wire::body::{
    self, ClientVersion, ClusterMetadata, ConsumerOffset, Credentials, Identity, Login, OffsetAck,
    PollMessages, SendConfirmation, SendMessages, Stats, StreamDetails, StreamRecord, TopicDetails,
};
use borzoi_wire::codec::ToEnd;
use borzoi_wire::frame::{RequestHeader, request_checksum};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{
    CommandCode, ConsumerKind, ConsumerRef, ErrorCode, Identifier, IdentifierRef, Name, NameRef,
    Operation, OptionalPartition, Options, Partitioning, PollingStrategy, ProtocolVersion, Secret,
    Text, Value, Wire,
};
use tokio::time::Instant;

/// A topic, and how its partition is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    stream: Identifier,
    topic: Identifier,
    partition: Option<PartitionId>,
}

impl Target {
    /// A topic by the names of its stream and itself; sends go to its partitions in turn.
    ///
    /// # Errors
    /// When a name is empty or has more than 255 bytes.
    pub fn new(stream: &str, topic: &str) -> Result<Self, Error> {
        Ok(Self { stream: named(stream)?, topic: named(topic)?, partition: None })
    }

    /// The same topic with a fixed partition.
    #[must_use]
    pub fn partition(&self, partition: u32) -> Self {
        Self { partition: Some(PartitionId(partition)), ..self.clone() }
    }
}

/// Where a batch was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The partition.
    pub partition: PartitionId,
    /// Offset of the batch's first message.
    pub base_offset: Offset,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    id: ClientId,
    session: SessionId,
    next_request: RequestNumber,
    connection: Option<Connection>,
    /// Why the newest attempt of the request under way failed.
    last_failure: Option<Error>,
}

fn named(name: &str) -> Result<Identifier, Error> {
    Ok(Identifier::Name(Name::new(name)?))
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the server cannot be reached within the request time-out or refuses the credentials.
    pub async fn connect(options: ClientOptions) -> Result<Self, Error> {
        let mut client = Self {
            options,
            id: ClientId(rand::random::<u128>().max(1)),
            session: SessionId::ZERO,
            next_request: RequestNumber(1),
            connection: None,
            last_failure: None,
        };
        let deadline = client.deadline();
        client.timed(deadline, async |client: &mut Self| client.sign_in().await).await?;
        Ok(client)
    }

    /// The identity under which the server knows this client, over all its connections.
    #[must_use]
    pub const fn id(&self) -> ClientId {
        self.id
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.options.request_timeout
    }

    async fn timed<T>(
        &mut self,
        deadline: Instant,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.last_failure = None;
        let outcome = tokio::time::timeout_at(deadline, work(self)).await;
        outcome.unwrap_or_else(|_| {
            // An answer that comes late would be taken for the answer to the next request.
            self.connection = None;
            Err(Error::TimedOut {
                address: self.options.address.clone(),
                seconds: self.options.request_timeout.as_secs(),
                last: self.last_failure.take().map(Box::new),
            })
        })
    }

    async fn sign_in(&mut self) -> Result<(), Error> {
        let mut connection = Connection::open(&self.options.address).await?;
        let login = Login {
            version: ClientVersion {
                protocol: ProtocolVersion::V0_11_0,
                sdk_name: Name::new("borzoi-rust")?,
                sdk_version: Name::new(env!("CARGO_PKG_VERSION"))?,
            },
            credentials: Credentials::Password {
                user: Name::new(self.options.username.as_str())?,
                password: Secret::new(self.options.password.as_str())?,
            },
            context: Text(String::new()),
        };
        let mut body = Vec::new();
        login.write(&mut body);
        let header = RequestHeader {
            client: self.id,
            request_checksum: request_checksum(&body),
            operation: Operation::Register as u8,
            ..RequestHeader::default()
        };
        let frame = header.encode(body.len());
        let answer = loop {
            match connection.exchange(&[&frame, &body]).await {
                Err(error @ Error::Refused(code)) if code.is_transient() => {
                    self.last_failure = Some(error);
                    tokio::time::sleep(self.options.retry_pause).await;
                }
                other => break other?,
            }
        };
        self.session = Identity::decode(&answer.payload)?.session;
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends a request until it is answered: again on the same connection when it was not taken,
    /// again on a new connection with the same identity and number when the connection broke.
    async fn request(
        &mut self,
        operation: Operation,
        code: u32,
        head: &[u8],
        tail: &[u8],
    ) -> Result<Answer, Error> {
        let number = self.next_request;
        if operation != Operation::NonReplicated {
            self.next_request = number.next();
        }
        let checksum = match operation {
            Operation::NonReplicated
            | Operation::SendMessages
            | Operation::StoreConsumerOffset
            | Operation::DeleteConsumerOffset => 0,
            _ => request_checksum(head),
        };
        let header = RequestHeader {
            client: self.id,
            request_checksum: checksum,
            request: number,
            operation: operation as u8,
            code,
            ..RequestHeader::default()
        };
        let deadline = self.deadline();
        self.timed(deadline, async move |client: &mut Self| client.repeat(header, head, tail).await)
            .await
    }

    async fn repeat(
        &mut self,
        mut header: RequestHeader,
        head: &[u8],
        tail: &[u8],
    ) -> Result<Answer, Error> {
        loop {
            let outcome = match self.connection.as_mut() {
                Some(connection) => {
                    header.session = self.session;
                    let frame = header.encode(head.len() + tail.len());
                    connection.exchange(&[&frame, head, tail]).await
                }
                None => match self.sign_in().await {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Err(error @ Error::Refused(code)) if code.is_transient() => {
                    self.last_failure = Some(error);
                }
                Err(error) if error.is_connection() => {
                    self.connection = None;
                    self.last_failure = Some(error);
                }
                Err(error @ (Error::Protocol(_) | Error::Evicted(_))) => {
                    self.connection = None;
                    return Err(error);
                }
                other => return other,
            }
            tokio::time::sleep(self.options.retry_pause).await;
        }
    }

    async fn read(&mut self, code: CommandCode, body: &[u8]) -> Result<Answer, Error> {
        self.request(Operation::NonReplicated, code.code(), body, &[]).await
    }

    async fn write(&mut self, operation: Operation, body: &[u8]) -> Result<Answer, Error> {
        self.request(operation, 0, body, &[]).await
    }

    /// Asks whether the server is there.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.read(CommandCode::Ping, &[]).await.map(|_| ())
    }

    /// Figures of the server.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn stats(&mut self) -> Result<Stats, Error> {
        let answer = self.read(CommandCode::GetStats, &[]).await?;
        Ok(Stats::decode(&answer.payload)?)
    }

    /// The nodes of the cluster.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn cluster(&mut self) -> Result<ClusterMetadata, Error> {
        let answer = self.read(CommandCode::GetClusterMetadata, &[]).await?;
        Ok(ClusterMetadata::decode(&answer.payload)?)
    }

    /// All streams in order of their numbers.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn streams(&mut self) -> Result<Vec<StreamRecord>, Error> {
        let answer = self.read(CommandCode::GetStreams, &[]).await?;
        Ok(ToEnd::<StreamRecord>::decode(&answer.payload)?.0)
    }

    /// A stream and its topics, or nothing.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn stream(&mut self, stream: &str) -> Result<Option<StreamDetails>, Error> {
        let body = body::GetStream { stream: named(stream)? }.encode();
        let answer = self.read(CommandCode::GetStream, &body).await?;
        optional(&answer)
    }

    /// A topic and its partitions, or nothing.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn topic(
        &mut self,
        stream: &str,
        topic: &str,
    ) -> Result<Option<TopicDetails>, Error> {
        let body = body::GetTopic { stream: named(stream)?, topic: named(topic)? }.encode();
        let answer = self.read(CommandCode::GetTopic, &body).await?;
        optional(&answer)
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// `StreamNameAlreadyExists` among others: see [`Error`].
    pub async fn create_stream(&mut self, name: &str) -> Result<(), Error> {
        let options = TrailingOptions(Options::default());
        let body = body::CreateStream { name: Name::new(name)?, options }.encode();
        self.write(Operation::CreateStream, &body).await.map(|_| ())
    }

    /// Deletes a stream with all its topics.
    ///
    /// # Errors
    /// `StreamIdNotFound` among others: see [`Error`].
    pub async fn delete_stream(&mut self, name: &str) -> Result<(), Error> {
        let body = body::DeleteStream { stream: named(name)? }.encode();
        self.write(Operation::DeleteStream, &body).await.map(|_| ())
    }

    /// Creates a topic; without a `level` the server's default applies.
    ///
    /// # Errors
    /// `TopicNameAlreadyExists` among others: see [`Error`].
    pub async fn create_topic(
        &mut self,
        stream: &str,
        name: &str,
        partitions: u32,
        level: Option<Durability>,
    ) -> Result<(), Error> {
        let mut options = Options::default();
        if let Some(level) = level {
            let text = match level {
                Durability::Persisted => "persisted",
                Durability::Replicated => "replicated",
            };
            let value = Value::text(text).ok_or(Error::Protocol("an empty option value"))?;
            options.set("durability", value)?;
        }
        let body = body::CreateTopic {
            stream: named(stream)?,
            partitions_count: partitions,
            name: Name::new(name)?,
            options: TrailingOptions(options),
        };
        self.write(Operation::CreateTopic, &body.encode()).await.map(|_| ())
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// `TopicIdNotFound` among others: see [`Error`].
    pub async fn delete_topic(&mut self, stream: &str, topic: &str) -> Result<(), Error> {
        let body = body::DeleteTopic { stream: named(stream)?, topic: named(topic)? }.encode();
        self.write(Operation::DeleteTopic, &body).await.map(|_| ())
    }

    /// Sends payloads as one batch and waits for its confirmation.
    ///
    /// # Errors
    /// `ResourceNotFound` when the target does not exist, among others: see [`Error`].
    pub async fn send<P: AsRef<[u8]>>(
        &mut self,
        target: &Target,
        payloads: &[P],
    ) -> Result<Sent, Error> {
        let batch = batch_of(payloads)?;
        self.send_batch(target, &batch).await
    }

    /// Sends one encoded batch (see [`batch_of`]) and waits for its confirmation.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_batch(&mut self, target: &Target, batch: &[u8]) -> Result<Sent, Error> {
        let header = BatchHeader::decode(batch)?;
        let partitioning = target.partition.map_or(Partitioning::Balanced, Partitioning::Partition);
        let send = SendMessages {
            stream: target.stream.as_identifier_ref(),
            topic: target.topic.as_identifier_ref(),
            partitioning,
            messages_count: header.message_count,
            batch,
        };
        let mut head = Vec::with_capacity(64);
        send.write_head(&mut head);
        let answer = self.request(Operation::SendMessages, 0, &head, batch).await?;
        let mut reader = borzoi_wire::Reader::new(&answer.payload);
        let count = reader.u32("confirmations")?;
        let confirmations = reader.list::<SendConfirmation>("confirmations", count)?;
        let confirmation =
            confirmations.first().ok_or(Error::Refused(ErrorCode::ResourceNotFound))?;
        Ok(Sent { partition: confirmation.partition, base_offset: confirmation.base_offset })
    }

    /// Reads messages of one partition (0 when the target names none) for a plain consumer.
    ///
    /// # Errors
    /// `PartitionNotFound` among others: see [`Error`].
    pub async fn poll(
        &mut self,
        target: &Target,
        consumer: &str,
        strategy: PollingStrategy,
        count: u32,
        auto_commit: bool,
    ) -> Result<Polled, Error> {
        let poll = PollMessages {
            consumer: plain(consumer)?,
            stream: target.stream.as_identifier_ref(),
            topic: target.topic.as_identifier_ref(),
            partition: OptionalPartition(target.partition),
            strategy,
            count,
            auto_commit,
        };
        let answer = self.read(CommandCode::PollMessages, &poll.encode()).await?;
        Polled::new(&answer.payload)
    }

    /// Stores how far a consumer has read.
    ///
    /// # Errors
    /// `InvalidOffset` when there is no such message, among others: see [`Error`].
    pub async fn store_offset(
        &mut self,
        target: &Target,
        consumer: &str,
        offset: Offset,
    ) -> Result<(), Error> {
        let store = body::StoreConsumerOffset {
            consumer: plain(consumer)?,
            stream: target.stream.as_identifier_ref(),
            topic: target.topic.as_identifier_ref(),
            partition: OptionalPartition(Some(target.partition.unwrap_or_default())),
            offset,
            ack: OffsetAck::Quorum,
        };
        self.write(Operation::StoreConsumerOffset, &store.encode()).await.map(|_| ())
    }

    /// How far a consumer has read, if it has stored that.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn offset(
        &mut self,
        target: &Target,
        consumer: &str,
    ) -> Result<Option<Offset>, Error> {
        let get = body::GetConsumerOffset {
            consumer: plain(consumer)?,
            stream: target.stream.as_identifier_ref(),
            topic: target.topic.as_identifier_ref(),
            partition: OptionalPartition(target.partition),
        };
        let answer = self.read(CommandCode::GetConsumerOffset, &get.encode()).await?;
        let stored: Option<ConsumerOffset> = optional(&answer)?;
        Ok(stored.map(|stored| stored.stored_offset))
    }

    /// Ends the session; the server forgets what it keeps for it.
    ///
    /// # Errors
    /// As every request: see [`Error`].
    pub async fn logout(mut self) -> Result<(), Error> {
        self.write(Operation::Logout, &[]).await.map(|_| ())
    }
}

fn plain(consumer: &str) -> Result<ConsumerRef<'_>, Error> {
    Ok(ConsumerRef {
        kind: ConsumerKind::Consumer,
        id: IdentifierRef::Name(NameRef::new(consumer)?),
    })
}

/// A single object; an empty body means there is none.
fn optional<T: for<'a> Wire<'a>>(answer: &Answer) -> Result<Option<T>, Error> {
    if answer.payload.is_empty() {
        return Ok(None);
    }
    Ok(Some(T::decode(&answer.payload)?))
}
