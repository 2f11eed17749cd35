//! A small cluster-less world for the tests: one state, its clients and its clock.

#![allow(dead_code)] // Each test file uses its own part.
#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

use borzoi_metadata::{
    Admission, Change, ClientRequest, Command, ConnectionStamp, CreateTopic, CreateUser,
    Credential, Genesis, Group, GroupName, Issuer, Layout, Metadata, Outcome, PasswordHash,
    Permissions, Register, Reply, TopicDefaults, TopicName, TopicOptions, UserKey, UserStatus,
};
use borzoi_types::{
    ClientId, Durability, Micros, Op, PartitionId, PartitionKey, ReplicaId, RequestNumber,
    SessionId, StreamId, TopicId,
};
use borzoi_wire::{ErrorCode, Identifier, Name};
use std::collections::BTreeMap;

/// Lanes of the world: 1 to 4 persisted, 5 to 6 replicated.
pub const LAYOUT: Layout = Layout { persisted: 4, replicated: 2 };

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A text that is a number names by number, as in the clients.
pub fn ident(text: &str) -> Identifier {
    text.parse().map_or_else(|_| Identifier::Name(name(text)), Identifier::Numeric)
}

pub fn topic_name(stream: &str, topic: &str) -> TopicName {
    TopicName { stream: ident(stream), topic: ident(topic) }
}

pub fn group_name(stream: &str, topic: &str, group: &str) -> GroupName {
    GroupName { stream: ident(stream), topic: ident(topic), group: ident(group) }
}

pub fn hash(text: &str) -> PasswordHash {
    PasswordHash(format!("$argon2id$test${text}"))
}

pub fn stamp(number: u64) -> ConnectionStamp {
    ConnectionStamp { replica: ReplicaId(0), generation: 1, number }
}

pub fn genesis() -> Genesis {
    Genesis { layout: LAYOUT, root_name: name("iggy"), root_password: hash("iggy") }
}

pub fn options(level: Durability) -> TopicOptions {
    TopicOptions::defaults(&TopicDefaults { durability: level })
}

/// One state with its clients.
pub struct World {
    pub metadata: Metadata,
    pub now: Micros,
    /// Present session and next request number of each client.
    pub clients: BTreeMap<ClientId, (SessionId, u64)>,
    /// All commands so far.
    pub log: Vec<(Micros, Command)>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            metadata: Metadata::format(genesis()),
            now: Micros(1_000_000_000),
            clients: BTreeMap::new(),
            log: Vec::new(),
        }
    }
}

impl World {
    pub fn apply(&mut self, command: Command) -> Outcome {
        self.now.0 += 1_000;
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes).as_ref(), Ok(&command));
        let op = self.metadata.applied().next();
        let outcome = self.metadata.apply(op, self.now, &command);
        self.log.push((self.now, command));
        assert_eq!(self.metadata.broken_rule(), None);
        outcome
    }

    pub fn system(&mut self, change: Change) -> Outcome {
        self.apply(Command::system(change))
    }

    pub fn system_ok(&mut self, change: Change) -> Reply {
        match self.system(change) {
            Outcome::Applied(reply) => reply,
            Outcome::Rejected(code) => panic!("rejected with {}", code.number()),
        }
    }

    pub fn rejection(&mut self, change: Change) -> ErrorCode {
        match self.system(change) {
            Outcome::Rejected(code) => code,
            Outcome::Applied(reply) => panic!("applied: {reply:?}"),
        }
    }

    pub fn as_user(&mut self, user: UserKey, change: Change) -> Outcome {
        self.apply(Command { issuer: Issuer::User(user), change })
    }

    pub fn seconds(&mut self, seconds: u64) {
        self.now.0 += seconds * 1_000_000;
    }

    /// Logs a client in as `user`, on connection `connection`.
    pub fn login(&mut self, client: u128, user: UserKey, connection: u64) -> Outcome {
        let client = ClientId(client);
        let outcome = self.system(Change::Register(Register {
            client,
            user,
            credential: Credential::Password,
            connection: stamp(connection),
        }));
        if let Outcome::Applied(Reply::Registered { session, .. }) = outcome {
            self.clients.entry(client).or_insert((session, 1)).0 = session;
        }
        outcome
    }

    /// Logs a client in as root, on a connection of its own number.
    pub fn root(&mut self, client: u128) -> ClientId {
        let outcome = self.login(client, UserKey::ROOT, u64::try_from(client).unwrap());
        assert!(matches!(outcome, Outcome::Applied(Reply::Registered { .. })), "{outcome:?}");
        ClientId(client)
    }

    /// A new request of a client.
    pub fn request(&mut self, client: ClientId) -> ClientRequest {
        let (session, next) = self.clients.get_mut(&client).unwrap();
        let request = RequestNumber(*next);
        *next += 1;
        ClientRequest { client, session: *session, request, checksum: 0 }
    }

    /// A client asks for something, under a new request number.
    pub fn ask(&mut self, client: ClientId, change: Change) -> Outcome {
        let request = self.request(client);
        self.resend(request, change)
    }

    /// A client asks for something under a given request number.
    pub fn resend(&mut self, request: ClientRequest, change: Change) -> Outcome {
        self.apply(Command { issuer: Issuer::Client(request), change })
    }

    pub fn admit(&self, request: ClientRequest) -> Admission {
        let ClientRequest { client, session, request, checksum } = request;
        self.metadata.sessions().admit(client, session, request, checksum)
    }

    pub fn create_stream(&mut self, text: &str) -> StreamId {
        match self.system_ok(Change::CreateStream { name: name(text) }) {
            Reply::Stream { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    pub fn create_topic(&mut self, stream: &str, topic: &str, partitions: u32) -> TopicId {
        self.create_topic_at(stream, topic, partitions, Durability::Persisted)
    }

    pub fn create_topic_at(
        &mut self,
        stream: &str,
        topic: &str,
        partitions: u32,
        level: Durability,
    ) -> TopicId {
        let create = CreateTopic {
            stream: ident(stream),
            name: name(topic),
            partitions,
            options: options(level),
        };
        match self.system_ok(Change::CreateTopic(create)) {
            Reply::Topic { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    pub fn create_user(&mut self, text: &str, permissions: Option<Permissions>) -> UserKey {
        let create = CreateUser {
            name: name(text),
            password: hash(text),
            status: UserStatus::Active,
            permissions,
        };
        self.system_ok(Change::CreateUser(create));
        self.metadata.find_user(&ident(text)).unwrap().key
    }

    pub fn create_group(&mut self, stream: &str, topic: &str, group: &str) {
        let topic = topic_name(stream, topic);
        self.system_ok(Change::CreateGroup { topic, name: name(group) });
    }

    pub fn join(&mut self, client: ClientId, stream: &str, topic: &str, group: &str) -> Outcome {
        self.ask(client, Change::JoinGroup(group_name(stream, topic, group)))
    }

    pub fn leave(&mut self, client: ClientId, stream: &str, topic: &str, group: &str) -> Outcome {
        self.ask(client, Change::LeaveGroup(group_name(stream, topic, group)))
    }

    pub fn group(&self, stream: &str, topic: &str, group: &str) -> &Group {
        self.metadata.find_group(&ident(stream), &ident(topic), &ident(group)).unwrap().2
    }

    /// Partition numbers per member, in the order of their places.
    pub fn shares(&self, stream: &str, topic: &str, group: &str) -> Vec<Vec<u32>> {
        let assignments = self.group(stream, topic, group).assignments();
        let numbers = |list: Vec<PartitionId>| list.into_iter().map(|it| it.0).collect();
        assignments.into_values().map(numbers).collect()
    }

    pub fn key(&self, stream: &str, topic: &str, partition: u32) -> PartitionKey {
        let partition = PartitionId(partition);
        self.metadata.resolve(&ident(stream), &ident(topic), partition).unwrap().key
    }

    /// Ends all hand-overs, as if nobody had polled anything.
    pub fn drain_all(&mut self) {
        use borzoi_metadata::{CompletedHandover, HandoverCause};
        let pending: Vec<_> = self.metadata.handovers().collect();
        let ended = pending.iter().map(|it| CompletedHandover {
            group: it.group,
            partition: it.partition.key,
            started: it.handover.started,
            cause: HandoverCause::Drained,
        });
        let ended = ended.collect();
        self.system_ok(Change::CompleteHandovers(ended));
        assert_eq!(self.metadata.handovers().count(), 0);
    }

    pub fn op(&self) -> Op {
        self.metadata.applied()
    }
}
