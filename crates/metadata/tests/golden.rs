//! Bytes that released builds wrote: every later build reads them and writes the same.
//!
//! After adding a change (never after altering one) write the files anew:
//! `cargo test -p borzoi-metadata --test golden -- --ignored`.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Change, ClientRequest, ClosedConnection, Command, CompletedHandover, CreateTopic, CreateUser,
    Credential, GlobalFlags, GroupKey, HandoverCause, Issuer, Metadata, Permissions, Register,
    SessionRef, StreamFlags, StreamPermissions, TokenHash, TopicFlags, TopicOptionsUpdate,
    UpdateTopic, UserKey, UserStatus,
};
use borzoi_types::{
    ClientId, Durability, LogId, Micros, Op, PartitionId, PartitionKey, ReplicaId, RequestNumber,
    SessionId, StreamId, TopicId,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use support::{World, group_name, hash, ident, name, options, stamp, topic_name};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A number per change. A new one does not compile here until it is in the list below.
fn number(change: &Change) -> usize {
    match change {
        Change::Register(_) => 0,
        Change::Logout(_) => 1,
        Change::ConnectionsClosed(_) => 2,
        Change::NodeStarted { .. } => 3,
        Change::ExpireSessions(_) => 4,
        Change::CreateStream { .. } => 5,
        Change::UpdateStream { .. } => 6,
        Change::DeleteStream { .. } => 7,
        Change::PurgeStream { .. } => 8,
        Change::CreateTopic(_) => 9,
        Change::UpdateTopic(_) => 10,
        Change::DeleteTopic(_) => 11,
        Change::PurgeTopic(_) => 12,
        Change::CreatePartitions { .. } => 13,
        Change::DeletePartitions { .. } => 14,
        Change::DeleteSegments { .. } => 15,
        Change::CreateGroup { .. } => 16,
        Change::DeleteGroup(_) => 17,
        Change::JoinGroup(_) => 18,
        Change::LeaveGroup(_) => 19,
        Change::CompleteHandovers(_) => 20,
        Change::RemoveMembers(_) => 21,
        Change::CreateUser(_) => 22,
        Change::UpdateUser { .. } => 23,
        Change::DeleteUser { .. } => 24,
        Change::UpdatePermissions { .. } => 25,
        Change::ChangePassword { .. } => 26,
        Change::CreateToken { .. } => 27,
        Change::DeleteToken { .. } => 28,
        Change::ExpireTokens => 29,
        Change::LanesConfirmed(_) => 30,
    }
}

const CHANGES: usize = 31;

fn permissions() -> Permissions {
    let mut permissions = Permissions::default();
    permissions.global = GlobalFlags { read_servers: true, ..permissions.global };
    let topic = TopicFlags { send_messages: true, ..Default::default() };
    let flags = StreamFlags { poll_messages: true, ..Default::default() };
    let grants = StreamPermissions { flags, topics: [(TopicId(2), topic)].into() };
    permissions.streams.insert(StreamId(1), grants);
    permissions
}

fn sessions_and_groups() -> Vec<Change> {
    let session = SessionRef { client: ClientId(0x0123_4567_89ab_cdef), session: SessionId(17) };
    let (client, connection) = (session.client, stamp(3));
    let (user, credential) = (UserKey(2), Credential::Token(TokenHash([9; 32])));
    let ended = CompletedHandover {
        group: GroupKey(4),
        partition: PartitionKey(5),
        started: Op(6),
        cause: HandoverCause::TimedOut,
    };
    vec![
        Change::Register(Register { client, user, credential, connection }),
        Change::Logout(session),
        Change::ConnectionsClosed(vec![ClosedConnection { client, connection }]),
        Change::NodeStarted { replica: ReplicaId(1), generation: 8 },
        Change::ExpireSessions(vec![session]),
        Change::RemoveMembers(vec![session]),
        Change::CreateGroup { topic: topic_name("orders", "0"), name: name("billing") },
        Change::DeleteGroup(group_name("orders", "events", "billing")),
        Change::JoinGroup(group_name("orders", "events", "0")),
        Change::LeaveGroup(group_name("0", "0", "0")),
        Change::CompleteHandovers(vec![ended]),
        Change::LanesConfirmed(vec![(LogId(1), Op(20))]),
    ]
}

fn structure() -> Vec<Change> {
    let topic = topic_name("orders", "events");
    let update = TopicOptionsUpdate { max_topic_size: Some(1 << 40), ..Default::default() };
    vec![
        Change::CreateStream { name: name("orders") },
        Change::UpdateStream { stream: ident("0"), name: name("orders") },
        Change::DeleteStream { stream: ident("orders") },
        Change::PurgeStream { stream: ident("orders") },
        Change::CreateTopic(CreateTopic {
            stream: ident("orders"),
            name: name("events"),
            partitions: 2,
            options: options(Durability::Replicated),
        }),
        Change::UpdateTopic(UpdateTopic {
            stream: ident("orders"),
            topic: ident("events"),
            name: name("events"),
            options: update,
        }),
        Change::DeleteTopic(topic.clone()),
        Change::PurgeTopic(topic.clone()),
        Change::CreatePartitions { topic: topic.clone(), count: 3 },
        Change::DeletePartitions { topic: topic.clone(), count: 1 },
        Change::DeleteSegments { topic, partition: PartitionId(1), count: 4 },
    ]
}

fn accounts() -> Vec<Change> {
    vec![
        Change::CreateUser(CreateUser {
            name: name("alice"),
            password: hash("alice"),
            status: UserStatus::Inactive,
            permissions: Some(permissions()),
        }),
        Change::UpdateUser {
            user: ident("alice"),
            name: Some(name("alicia")),
            status: Some(UserStatus::Active),
        },
        Change::DeleteUser { user: ident("1") },
        Change::UpdatePermissions { user: ident("alice"), permissions: None },
        Change::ChangePassword {
            user: ident("alice"),
            verified: hash("alice"),
            password: hash("new"),
        },
        Change::CreateToken {
            name: name("nightly"),
            hash: TokenHash([7; 32]),
            expires: Some(Micros(1_767_225_600_000_000)),
            tokens_max: 100,
        },
        Change::DeleteToken { name: name("nightly") },
        Change::ExpireTokens,
    ]
}

fn commands() -> Vec<Command> {
    let client = Issuer::Client(ClientRequest {
        client: ClientId(1),
        session: SessionId(2),
        request: RequestNumber(3),
        checksum: 4,
    });
    let issuers = [Issuer::System, Issuer::User(UserKey(5)), client].into_iter().cycle();
    let changes = [sessions_and_groups(), structure(), accounts()].concat();
    changes.into_iter().zip(issuers).map(|(change, issuer)| Command { issuer, change }).collect()
}

/// Commands one after the other, each after its length as a u32.
fn command_bytes() -> Vec<u8> {
    let mut all = Vec::new();
    for command in commands() {
        let bytes = command.encode();
        all.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
        all.extend_from_slice(&bytes);
    }
    all
}

/// A state with something of everything.
fn full_world() -> World {
    let mut world = World::default();
    world.create_stream("orders");
    world.create_topic("orders", "events", 3);
    world.create_topic_at("orders", "clicks", 2, Durability::Replicated);
    world.create_group("orders", "events", "billing");
    world.create_user("alice", Some(permissions()));
    let (one, two) = (world.root(1), world.root(2));
    world.join(one, "orders", "events", "billing");
    world.join(two, "orders", "events", "billing");
    for change in [structure(), accounts()].concat() {
        let deletes = matches!(
            change,
            Change::DeleteStream { .. } | Change::DeleteTopic(_) | Change::DeleteUser { .. }
        );
        if !deletes && !matches!(change, Change::DeleteToken { .. } | Change::ExpireTokens) {
            world.ask(one, change);
        }
    }
    let connection = stamp(2);
    let closed = vec![ClosedConnection { client: two, connection }];
    world.system_ok(Change::ConnectionsClosed(closed));
    let three = world.root(3);
    world.join(three, "orders", "events", "billing");
    assert!(world.metadata.handovers().count() > 0);
    world
}

#[test]
fn the_list_has_every_change() {
    let numbers: BTreeSet<usize> = commands().iter().map(|it| number(&it.change)).collect();
    assert_eq!(numbers, (0..CHANGES).collect());
}

#[test]
fn commands_of_version_1_are_read_and_written_the_same() {
    let golden = std::fs::read(file("commands_v1.bin")).unwrap();
    assert_eq!(golden, command_bytes());
    let mut left = golden.as_slice();
    for command in commands() {
        let (len, rest) = left.split_first_chunk::<4>().unwrap();
        let (bytes, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        assert_eq!(Command::decode(bytes), Ok(command));
        left = rest;
    }
    assert!(left.is_empty());
}

#[test]
fn a_snapshot_of_version_1_is_read_and_written_the_same() {
    let golden = std::fs::read(file("snapshot_v1.bin")).unwrap();
    let restored = Metadata::decode_snapshot(&golden).unwrap();
    assert_eq!(restored.encode_snapshot(), golden);
    assert_eq!(restored.broken_rule(), None);
    assert_eq!(full_world().metadata.encode_snapshot(), golden);
}

#[test]
#[ignore = "writes the golden files; see the top of this file"]
fn write_the_golden_files() {
    std::fs::write(file("commands_v1.bin"), command_bytes()).unwrap();
    std::fs::write(file("snapshot_v1.bin"), full_world().metadata.encode_snapshot()).unwrap();
}
