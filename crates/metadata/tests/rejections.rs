//! Every refusal with its number, before the log and in it, in one table.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Change, Command, CreateTopic, CreateUser, Issuer, Outcome, PasswordHash, Permissions,
    TokenHash, TopicOptionsUpdate, UpdateTopic, UserStatus, check_password,
};
use borzoi_types::limits::{GROUPS_PER_TOPIC_MAX, PERMISSION_ENTRIES_MAX, TOPICS_PER_STREAM_MAX};
use borzoi_types::{ClientId, Durability, Micros, PartitionId, StreamId};
use borzoi_wire::ErrorCode;
use support::{World, group_name, hash, ident, name, options, topic_name};

/// A world with stream `s`, topics `t` (3 partitions) and `u`, groups `g` and `h` of `t`, users
/// `alice` and `bob`, client 1 of root, a token `one` of root.
fn world() -> (World, ClientId) {
    let mut world = World::default();
    world.create_stream("s");
    world.create_stream("other");
    world.create_topic("s", "t", 3);
    world.create_topic("s", "u", 1);
    world.create_group("s", "t", "g");
    world.create_group("s", "t", "h");
    world.create_user("alice", None);
    world.create_user("bob", None);
    let client = world.root(1);
    world.ask(client, token("one", 1));
    (world, client)
}

fn token(text: &str, byte: u8) -> Change {
    let hash = TokenHash([byte; 32]);
    Change::CreateToken { name: name(text), hash, expires: None, tokens_max: 100 }
}

fn topic(stream: &str, text: &str, partitions: u32) -> Change {
    let options = options(Durability::Persisted);
    Change::CreateTopic(CreateTopic {
        stream: ident(stream),
        name: name(text),
        partitions,
        options,
    })
}

fn update_topic(stream: &str, topic: &str, to: &str, size: Option<u64>) -> Change {
    let options = TopicOptionsUpdate { max_topic_size: size, ..Default::default() };
    Change::UpdateTopic(UpdateTopic {
        stream: ident(stream),
        topic: ident(topic),
        name: name(to),
        options,
    })
}

fn user(text: &str) -> Change {
    Change::CreateUser(CreateUser {
        name: name(text),
        password: hash(text),
        status: UserStatus::Active,
        permissions: None,
    })
}

fn segments(stream: &str, topic: &str, partition: u32) -> Change {
    let partition = PartitionId(partition);
    Change::DeleteSegments { topic: topic_name(stream, topic), partition, count: 1 }
}

fn table() -> Vec<(Change, u32)> {
    use Change::*;
    let stream = |text: &str| ident(text);
    let rename =
        |from: &str, to: &str| UpdateUser { user: ident(from), name: Some(name(to)), status: None };
    let partitions = |topic, count| CreatePartitions { topic, count };
    let fewer = |topic, count| DeletePartitions { topic, count };
    vec![
        (CreateStream { name: name("s") }, 1012),
        (UpdateStream { stream: stream("x"), name: name("y") }, 1009),
        (UpdateStream { stream: stream("s"), name: name("other") }, 1012),
        (DeleteStream { stream: stream("x") }, 1009),
        (DeleteStream { stream: stream("77") }, 1009),
        (PurgeStream { stream: stream("x") }, 1009),
        (topic("x", "t", 1), 1009),
        (topic("s", "t", 1), 2013),
        (topic("s", "v", 1_001), 2015),
        (update_topic("x", "t", "t", None), 1009),
        (update_topic("s", "x", "t", None), 2010),
        (update_topic("s", "t", "u", None), 2013),
        (update_topic("s", "t", "t", Some(1)), 1019),
        (DeleteTopic(topic_name("x", "t")), 1009),
        (DeleteTopic(topic_name("s", "x")), 2010),
        (PurgeTopic(topic_name("x", "t")), 1009),
        (PurgeTopic(topic_name("s", "x")), 2010),
        (partitions(topic_name("x", "t"), 1), 1009),
        (partitions(topic_name("s", "x"), 1), 2010),
        (partitions(topic_name("s", "t"), 0), 2015),
        (partitions(topic_name("s", "t"), 1_001), 2015),
        (fewer(topic_name("x", "t"), 1), 1009),
        (fewer(topic_name("s", "x"), 1), 2010),
        (fewer(topic_name("s", "t"), 0), 2015),
        (fewer(topic_name("s", "t"), 4), 2019),
        (segments("x", "t", 0), 1009),
        (segments("s", "x", 0), 2010),
        (segments("s", "t", 3), 3007),
        (CreateGroup { topic: topic_name("x", "t"), name: name("g") }, 1009),
        (CreateGroup { topic: topic_name("s", "x"), name: name("g") }, 2010),
        (CreateGroup { topic: topic_name("s", "t"), name: name("g") }, 5004),
        (DeleteGroup(group_name("x", "t", "g")), 1009),
        (DeleteGroup(group_name("s", "x", "g")), 2010),
        (DeleteGroup(group_name("s", "t", "x")), 5000),
        (JoinGroup(group_name("x", "t", "g")), 1009),
        (JoinGroup(group_name("s", "x", "g")), 2010),
        (JoinGroup(group_name("s", "t", "9")), 5000),
        (LeaveGroup(group_name("x", "t", "g")), 1009),
        (LeaveGroup(group_name("s", "x", "g")), 2010),
        (LeaveGroup(group_name("s", "t", "x")), 5000),
        (LeaveGroup(group_name("s", "t", "g")), 5006),
        (user("al"), 43),
        (user(&"a".repeat(51)), 43),
        (user("alice"), 46),
        (rename("nobody", "someone"), 20),
        (rename("alice", "al"), 43),
        (rename("alice", "bob"), 46),
        (DeleteUser { user: ident("nobody") }, 20),
        (DeleteUser { user: ident("0") }, 48),
        (UpdatePermissions { user: ident("nobody"), permissions: None }, 20),
        (UpdatePermissions { user: ident("0"), permissions: None }, 49),
        (password("nobody", "alice"), 20),
        (password("alice", "wrong"), 42),
        (token("one", 2), 51),
        (token("other", 1), 51),
        (token("ab", 3), 50),
        (token(&"a".repeat(31), 3), 50),
        (DeleteToken { name: name("none") }, 20),
    ]
}

fn password(whose: &str, verified: &str) -> Change {
    let (verified, password) = (hash(verified), hash("new"));
    Change::ChangePassword { user: ident(whose), verified, password }
}

#[test]
fn every_rejection_carries_its_number_and_changes_nothing() {
    for (change, number) in table() {
        let (mut world, client) = world();
        let before = world.metadata.clone();
        let outcome = world.ask(client, change.clone());
        let Outcome::Rejected(code) = outcome else { panic!("{change:?} was applied") };
        assert_eq!(code.number(), number, "{change:?}");
        assert_eq!(before.streams().count(), world.metadata.streams().count());
        assert_eq!(before.next_key(), world.metadata.next_key());
        assert_eq!(before.totals(), world.metadata.totals());
    }
}

#[test]
fn whoever_has_no_rights_is_told_so_only_about_what_exists() {
    for (change, number) in table() {
        let (mut world, _) = world();
        let alice = world.metadata.find_user(&ident("alice")).unwrap().key;
        let own_or_missing = matches!(number, 1009 | 2010 | 5000 | 20)
            || matches!(change, Change::CreateToken { .. })
            || matches!(&change, Change::ChangePassword { .. });
        let outcome = world.as_user(alice, change.clone());
        let Outcome::Rejected(code) = outcome else {
            assert!(own_or_missing, "{change:?} was applied");
            continue;
        };
        if !own_or_missing {
            assert_eq!(code, ErrorCode::Unauthorized, "{change:?}");
        }
    }
}

#[test]
fn what_can_be_refused_before_the_log_is() {
    let before_the_log = [43, 50, 1019, 2015];
    for (change, number) in table() {
        let (world, _) = world();
        let command = Command { issuer: Issuer::System, change };
        let refused = world.metadata.validate(&command).err().map(ErrorCode::number);
        let expected = before_the_log.contains(&number).then_some(number);
        assert_eq!(refused, expected, "{command:?}");
    }
}

#[test]
fn permissions_and_hashes_out_of_proportion_are_refused() {
    let (mut world, client) = world();
    let mut permissions = Permissions::default();
    for stream in 0..=PERMISSION_ENTRIES_MAX {
        let stream = StreamId(u32::try_from(stream).unwrap());
        permissions.streams.insert(stream, Default::default());
    }
    let too_many = Some(permissions);
    let changes = [
        Change::UpdatePermissions { user: ident("alice"), permissions: too_many.clone() },
        Change::CreateUser(CreateUser {
            name: name("carol"),
            password: hash("carol"),
            status: UserStatus::Active,
            permissions: too_many,
        }),
    ];
    for change in changes {
        let command = Command::system(change.clone());
        assert_eq!(world.metadata.validate(&command), Err(ErrorCode::InvalidFormat));
        assert_eq!(world.ask(client, change), Outcome::Rejected(ErrorCode::InvalidFormat));
    }
    for text in [String::new(), "x".repeat(1_025)] {
        let change = Change::ChangePassword {
            user: ident("alice"),
            verified: hash("alice"),
            password: PasswordHash(text),
        };
        assert_eq!(world.ask(client, change), Outcome::Rejected(ErrorCode::InvalidPassword));
    }
}

#[test]
fn passwords_have_three_to_a_hundred_bytes() {
    let cases = [(2, false), (3, true), (100, true), (101, false)];
    for (len, fits) in cases {
        assert_eq!(check_password(&"p".repeat(len)).is_ok(), fits, "{len}");
    }
    assert_eq!(check_password(""), Err(ErrorCode::InvalidPassword));
}

#[test]
fn token_limit_and_expiry_are_checked_at_the_limit() {
    let (mut world, client) = world();
    let with = |text: &str, expires, tokens_max| Change::CreateToken {
        name: name(text),
        hash: TokenHash([9; 32]),
        expires,
        tokens_max,
    };
    let limited = with("two", None, 1);
    let command =
        Command { issuer: Issuer::Client(world.request(client)), change: limited.clone() };
    let full = ErrorCode::PersonalAccessTokensLimitReached;
    assert_eq!(world.metadata.validate(&command), Err(full));
    assert_eq!(world.ask(client, limited), Outcome::Rejected(full));
    let now = world.now.0 + 1_000;
    let past = with("two", Some(Micros(now)), 2);
    let expired = Outcome::Rejected(ErrorCode::InvalidPersonalAccessTokenExpiry);
    assert_eq!(world.ask(client, past), expired);
    let later = with("two", Some(Micros(now + 1_001)), 2);
    assert!(matches!(world.ask(client, later), Outcome::Applied(_)));
}

#[test]
fn a_stream_holds_so_many_topics_and_a_topic_so_many_groups() {
    let mut world = borzoi_metadata::Metadata::format(support::genesis());
    let mut apply = |change: Change| {
        let op = world.applied().next();
        world.apply(op, Micros(op.0), &Command::system(change))
    };
    apply(Change::CreateStream { name: name("s") });
    for number in 0..TOPICS_PER_STREAM_MAX {
        let outcome = apply(topic("s", &format!("t{number}"), 0));
        assert!(matches!(outcome, Outcome::Applied(_)));
    }
    let full = apply(topic("s", "one-more", 0));
    assert_eq!(full, Outcome::Rejected(ErrorCode::TooManyTopics));
    for number in 0..GROUPS_PER_TOPIC_MAX {
        let group = name(&format!("g{number}"));
        let outcome = apply(Change::CreateGroup { topic: topic_name("s", "t0"), name: group });
        assert!(matches!(outcome, Outcome::Applied(_)));
    }
    let group = Change::CreateGroup { topic: topic_name("s", "t0"), name: name("one-more") };
    assert_eq!(apply(group), Outcome::Rejected(ErrorCode::TooManyConsumerGroups));
}

#[test]
fn partition_numbers_of_a_topic_run_out_at_a_million() {
    let mut world = borzoi_metadata::Metadata::format(support::genesis());
    let mut apply = |change: Change| {
        let op = world.applied().next();
        world.apply(op, Micros(op.0), &Command::system(change))
    };
    apply(Change::CreateStream { name: name("s") });
    let partitions =
        |topic: &str, count| Change::CreatePartitions { topic: topic_name("s", topic), count };
    apply(topic("s", "t", 999));
    for _ in 0..999 {
        assert!(matches!(apply(partitions("t", 1_000)), Outcome::Applied(_)));
    }
    let exhausted = Outcome::Rejected(ErrorCode::PartitionIdSpaceExhausted);
    assert_eq!(apply(partitions("t", 2)), exhausted);
    assert!(matches!(apply(partitions("t", 1)), Outcome::Applied(_)));
    assert_eq!(apply(partitions("t", 1)), exhausted);
    // A second million fills the cluster.
    apply(topic("s", "u", 1_000));
    for _ in 0..999 {
        apply(partitions("u", 1_000));
    }
    let full = Outcome::Rejected(ErrorCode::PartitionsLimitReached);
    assert_eq!(apply(topic("s", "v", 1)), full);
    assert!(matches!(apply(topic("s", "v", 0)), Outcome::Applied(_)));
    assert_eq!(apply(partitions("v", 1)), full);
}

#[test]
fn joining_needs_a_session() {
    let (mut world, _) = world();
    let root = borzoi_metadata::UserKey::ROOT;
    for change in [
        Change::JoinGroup(group_name("s", "t", "g")),
        Change::LeaveGroup(group_name("s", "t", "g")),
    ] {
        let outcome = world.as_user(root, change);
        assert_eq!(outcome, Outcome::Rejected(ErrorCode::FeatureUnavailable));
    }
}

#[test]
fn streams_and_users_are_limited_too() {
    let mut world = borzoi_metadata::Metadata::format(support::genesis());
    let mut apply = |change: Change| {
        let op = world.applied().next();
        world.apply(op, Micros(op.0), &Command::system(change))
    };
    for number in 0..borzoi_types::limits::STREAMS_MAX {
        let outcome = apply(Change::CreateStream { name: name(&number.to_string()) });
        assert!(matches!(outcome, Outcome::Applied(_)));
    }
    let full = Outcome::Rejected(ErrorCode::TooManyStreams);
    assert_eq!(apply(Change::CreateStream { name: name("one-more") }), full);
    for number in 1..borzoi_types::limits::USERS_MAX {
        assert!(matches!(apply(user(&format!("user{number}"))), Outcome::Applied(_)));
    }
    let full = Outcome::Rejected(ErrorCode::UsersLimitReached);
    assert_eq!(apply(user("one-more")), full);
}
