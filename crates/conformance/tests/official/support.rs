//! What every scenario needs: the shared server, clients, a fresh stream and topic, messages.

use borzoi_conformance::{ROOT_PASSWORD, ROOT_USERNAME, Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A server that ends with the last scenario that uses it, and its data directory.
pub struct SharedServer {
    server: Server,
    _folder: tempfile::TempDir,
}

impl SharedServer {
    pub fn address(&self) -> &str {
        self.server.address()
    }

    pub fn process_id(&self) -> u32 {
        self.server.process_id()
    }
}

/// One server for all scenarios that do not stop it and run at the same time.
pub fn shared() -> Arc<SharedServer> {
    static SERVER: Mutex<Weak<SharedServer>> = Mutex::new(Weak::new());
    let mut slot = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = slot.upgrade() {
        return server;
    }
    let (folder, data) = data_directory();
    let server = Server::start(&data, &ServerOptions::default());
    let shared = Arc::new(SharedServer { server, _folder: folder });
    *slot = Arc::downgrade(&shared);
    shared
}

pub fn unique(prefix: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}-{}", COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// A connected client that has not logged in.
pub async fn connected(address: &str) -> IggyClient {
    let client = IggyClient::builder()
        .with_tcp()
        .with_server_address(address.to_owned())
        .with_reconnection_max_retries(Some(3))
        .build()
        .expect("the client can be built");
    client.connect().await.expect("the server accepts connections");
    client
}

/// A client logged in as root.
pub async fn root(address: &str) -> IggyClient {
    let client = connected(address).await;
    client.login_user(ROOT_USERNAME, ROOT_PASSWORD).await.expect("root can log in");
    client
}

pub fn name(text: &str) -> Identifier {
    Identifier::named(text).expect("a valid name")
}

pub fn number(value: u32) -> Identifier {
    Identifier::numeric(value).expect("a valid number")
}

/// A logged-in client with a stream and a topic of its own.
pub struct Place {
    pub client: IggyClient,
    pub stream: Identifier,
    pub topic: Identifier,
    pub server: Option<Arc<SharedServer>>,
}

impl Place {
    pub async fn new(partitions: u32) -> Self {
        let server = shared();
        let mut place = Self::at(server.address(), partitions, Durability::Persisted).await;
        place.server = Some(server);
        place
    }

    /// The address of the shared server.
    pub fn address(&self) -> &str {
        self.server.as_ref().expect("this place is on the shared server").address()
    }

    pub async fn at(address: &str, partitions: u32, durability: Durability) -> Self {
        let client = root(address).await;
        let stream = name(&unique("stream"));
        let topic = name("events");
        client.create_stream(stream.as_string().as_str()).await.expect("the stream is new");
        let options = TopicCreateOptions {
            partitions_count: Some(partitions),
            durability,
            ..TopicCreateOptions::default()
        };
        client.create_topic(&stream, "events", &options).await.expect("the topic is new");
        Self { client, stream, topic, server: None }
    }

    pub async fn send(&self, partition: u32, texts: &[&str]) -> SendMessagesResponse {
        let mut messages = texts.iter().map(|text| message(text)).collect::<Vec<_>>();
        self.client
            .send_messages(
                &self.stream,
                &self.topic,
                &Partitioning::partition_id(partition),
                &mut messages,
            )
            .await
            .expect("the send is confirmed")
    }

    /// Sends `count` messages named m0, m1, ... one by one or as a batch.
    pub async fn fill(&self, partition: u32, count: u32) {
        let texts: Vec<String> = (0..count).map(|index| format!("m{index}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.send(partition, &texts).await;
    }

    pub async fn poll(
        &self,
        partition: u32,
        strategy: PollingStrategy,
        count: u32,
    ) -> Result<PolledMessages, IggyError> {
        let consumer = Consumer::new(number(1));
        self.client
            .poll_messages(
                &self.stream,
                &self.topic,
                Some(partition),
                &consumer,
                &strategy,
                count,
                false,
            )
            .await
    }

    pub async fn offsets(&self, partition: u32, strategy: PollingStrategy, count: u32) -> Vec<u64> {
        let polled = self.poll(partition, strategy, count).await.expect("the poll is answered");
        polled.messages.iter().map(|message| message.header.offset).collect()
    }
}

/// A user of its own on the shared server, and root's client that made it.
pub struct Account {
    pub owner: IggyClient,
    pub name: String,
    server: Arc<SharedServer>,
}

impl Account {
    pub const PASSWORD: &str = "secret-word";

    pub async fn new(permissions: Option<Permissions>) -> Self {
        let server = shared();
        let owner = root(server.address()).await;
        let name = unique("account");
        owner
            .create_user(&name, Self::PASSWORD, UserStatus::Active, permissions)
            .await
            .expect("the name is free");
        Self { owner, name, server }
    }

    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// A connection logged in as this user.
    pub async fn login(&self) -> IggyClient {
        let client = connected(self.address()).await;
        client.login_user(&self.name, Self::PASSWORD).await.expect("the user can log in");
        client
    }
}

pub fn message(text: &str) -> IggyMessage {
    IggyMessage::builder()
        .payload(bytes::Bytes::copy_from_slice(text.as_bytes()))
        .build()
        .expect("a valid message")
}

pub fn texts(polled: &PolledMessages) -> Vec<String> {
    polled
        .messages
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
        .collect()
}

/// The number of an error, as it travels.
pub fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    match result {
        Ok(value) => panic!("an error was expected, got {value:?}"),
        Err(error) => error.as_code(),
    }
}
