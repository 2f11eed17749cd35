//! Every action × every single grant, compared with the table of the specification.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Action, GlobalFlags, Permissions, StreamFlags, StreamPermissions, TopicFlags, UserKey,
};
use borzoi_types::{StreamId, TopicId};
use borzoi_wire::ErrorCode;
use std::collections::BTreeSet;
use support::World;

const STREAM: StreamId = StreamId(3);
const TOPIC: TopicId = TopicId(5);
const OTHER_STREAM: StreamId = StreamId(4);
const OTHER_TOPIC: TopicId = TopicId(6);
const OTHER_USER: UserKey = UserKey(77);

/// The rights that each row of the table accepts: `g` global, `s` of the stream, `t` of the topic.
const SIGNED_IN: &str = "*";
const SERVERS: &str = "g.manage_servers g.read_servers";
const READ_USERS: &str = "g.manage_users g.read_users";
const MANAGE_USERS: &str = "g.manage_users";
const LIST_STREAMS: &str = "g.manage_streams g.read_streams";
const GET_STREAM: &str = "g.manage_streams g.read_streams s.manage_stream s.read_stream";
const CREATE_STREAM: &str = "g.manage_streams";
const MANAGE_STREAM: &str = "g.manage_streams s.manage_stream";
const LIST_TOPICS: &str = "g.manage_streams g.read_streams g.manage_topics g.read_topics \
    s.manage_stream s.read_stream s.manage_topics s.read_topics";
const GET_TOPIC: &str = "g.manage_streams g.read_streams g.manage_topics g.read_topics \
    s.manage_stream s.read_stream s.manage_topics s.read_topics t.manage_topic t.read_topic";
const CREATE_TOPIC: &str = "g.manage_streams g.manage_topics s.manage_stream s.manage_topics";
const MANAGE_TOPIC: &str =
    "g.manage_streams g.manage_topics s.manage_stream s.manage_topics t.manage_topic";
const POLL: &str = "g.poll_messages g.manage_streams g.read_streams g.manage_topics g.read_topics \
    s.poll_messages s.manage_stream s.read_stream s.manage_topics s.read_topics \
    t.poll_messages t.manage_topic t.read_topic";
const SEND: &str = "g.send_messages g.manage_streams g.manage_topics \
    s.send_messages s.manage_stream s.manage_topics t.send_messages t.manage_topic";

/// The table. `own` is the asking user.
fn table(own: UserKey) -> Vec<(Action, &'static str)> {
    use Action::*;
    vec![
        (Ping, SIGNED_IN),
        (GetStats, SERVERS),
        (GetSnapshot, SERVERS),
        (GetClusterMetadata, SIGNED_IN),
        (DescribeOptions, SIGNED_IN),
        (AttachConsumerSession, SIGNED_IN),
        (GetMe, SIGNED_IN),
        (GetClient, SERVERS),
        (GetClients, SERVERS),
        (GetMetrics, SIGNED_IN),
        (GetUser(own), SIGNED_IN),
        (GetUser(OTHER_USER), READ_USERS),
        (GetUsers, READ_USERS),
        (CreateUser, MANAGE_USERS),
        (DeleteUser(OTHER_USER), MANAGE_USERS),
        (DeleteUser(own), MANAGE_USERS),
        (UpdateUser(OTHER_USER), MANAGE_USERS),
        (UpdateUser(own), MANAGE_USERS),
        (UpdatePermissions(OTHER_USER), MANAGE_USERS),
        (UpdatePermissions(own), MANAGE_USERS),
        (ChangePassword(own), SIGNED_IN),
        (ChangePassword(OTHER_USER), MANAGE_USERS),
        (Logout, SIGNED_IN),
        (GetTokens, SIGNED_IN),
        (CreateToken, SIGNED_IN),
        (DeleteToken, SIGNED_IN),
        (GetStream(STREAM), GET_STREAM),
        (GetStreams, LIST_STREAMS),
        (CreateStream, CREATE_STREAM),
        (DeleteStream(STREAM), MANAGE_STREAM),
        (UpdateStream(STREAM), MANAGE_STREAM),
        (PurgeStream(STREAM), MANAGE_STREAM),
        (GetTopic(STREAM, TOPIC), GET_TOPIC),
        (GetTopics(STREAM), LIST_TOPICS),
        (CreateTopic(STREAM), CREATE_TOPIC),
        (DeleteTopic(STREAM, TOPIC), MANAGE_TOPIC),
        (UpdateTopic(STREAM, TOPIC), MANAGE_TOPIC),
        (PurgeTopic(STREAM, TOPIC), MANAGE_TOPIC),
        (CreatePartitions(STREAM, TOPIC), MANAGE_TOPIC),
        (DeletePartitions(STREAM, TOPIC), MANAGE_TOPIC),
        (DeleteSegments(STREAM, TOPIC), MANAGE_TOPIC),
        (GetConsumerGroup(STREAM, TOPIC), GET_TOPIC),
        (GetConsumerGroups(STREAM, TOPIC), GET_TOPIC),
        (CreateConsumerGroup(STREAM, TOPIC), GET_TOPIC),
        (DeleteConsumerGroup(STREAM, TOPIC), GET_TOPIC),
        (JoinConsumerGroup(STREAM, TOPIC), GET_TOPIC),
        (LeaveConsumerGroup(STREAM, TOPIC), GET_TOPIC),
        (SyncConsumerGroup, SIGNED_IN),
        (PollMessages(STREAM, TOPIC), POLL),
        (GetPollRouting(STREAM, TOPIC), POLL),
        (SendMessages(STREAM, TOPIC), SEND),
        (FlushUnsavedBuffer(STREAM, TOPIC), MANAGE_TOPIC),
        (GetConsumerOffset(STREAM, TOPIC), POLL),
        (StoreConsumerOffset(STREAM, TOPIC), POLL),
        (DeleteConsumerOffset(STREAM, TOPIC), POLL),
        (GetOffsetRouting(STREAM, TOPIC), POLL),
    ]
}

/// A role: permissions with one single grant, under the name the table uses for it.
fn roles() -> Vec<(String, Permissions)> {
    let mut roles = vec![("nothing".to_owned(), Permissions::default())];
    for flag in GlobalFlags::NAMES {
        let mut permissions = Permissions::default();
        assert!(permissions.global.set(flag));
        roles.push((format!("g.{flag}"), permissions));
    }
    for (stream, scope) in [(STREAM, "s"), (OTHER_STREAM, "other stream")] {
        for flag in StreamFlags::NAMES {
            let mut flags = StreamFlags::default();
            assert!(flags.set(flag));
            let grants = StreamPermissions { flags, ..Default::default() };
            let streams = [(stream, grants)].into();
            let permissions = Permissions { streams, ..Default::default() };
            roles.push((format!("{scope}.{flag}"), permissions));
        }
    }
    let places =
        [(STREAM, TOPIC, "t"), (STREAM, OTHER_TOPIC, "other"), (OTHER_STREAM, TOPIC, "other")];
    for (stream, topic, scope) in places {
        for flag in TopicFlags::NAMES {
            let mut flags = TopicFlags::default();
            assert!(flags.set(flag));
            let grants =
                StreamPermissions { topics: [(topic, flags)].into(), ..Default::default() };
            let streams = [(stream, grants)].into();
            let permissions = Permissions { streams, ..Default::default() };
            roles.push((format!("{scope}.{flag}"), permissions));
        }
    }
    roles
}

#[test]
fn every_action_is_allowed_by_exactly_the_grants_of_the_table() {
    let mut checked = 0;
    for (number, (role, permissions)) in roles().into_iter().enumerate() {
        let mut world = World::default();
        let own = world.create_user(&format!("user-{number}"), Some(permissions));
        for (action, grants) in table(own) {
            let accepted: BTreeSet<&str> = grants.split_whitespace().collect();
            let expected = accepted.contains(SIGNED_IN) || accepted.contains(role.as_str());
            let found = world.metadata.authorise(own, action);
            let expected = if expected { Ok(()) } else { Err(ErrorCode::Unauthorized) };
            assert_eq!(found, expected, "{action:?} with {role}");
            checked += 1;
        }
    }
    assert_eq!(checked, 35 * 56);
}

#[test]
fn a_user_without_permissions_may_only_help_itself() {
    let mut world = World::default();
    let own = world.create_user("alice", None);
    for (action, grants) in table(own) {
        assert_eq!(
            world.metadata.authorise(own, action).is_ok(),
            grants == SIGNED_IN,
            "{action:?}"
        );
    }
}

#[test]
fn root_may_do_everything_and_who_does_not_exist_nothing() {
    let world = World::default();
    for (action, _) in table(UserKey(9)) {
        assert_eq!(world.metadata.authorise(UserKey::ROOT, action), Ok(()));
        let harmless = matches!(action, Action::Ping | Action::Logout);
        assert_eq!(world.metadata.authorise(UserKey(9), action).is_ok(), harmless, "{action:?}");
    }
}

#[test]
fn grants_add_up_and_a_lower_level_takes_nothing_away() {
    let mut world = World::default();
    let global = GlobalFlags { read_streams: true, ..Default::default() };
    let grants = StreamPermissions::default();
    let permissions = Permissions { global, streams: [(STREAM, grants)].into() };
    let own = world.create_user("alice", Some(permissions));
    assert_eq!(world.metadata.authorise(own, Action::GetTopic(STREAM, TOPIC)), Ok(()));
    assert_eq!(world.metadata.authorise(own, Action::PollMessages(STREAM, TOPIC)), Ok(()));
    let send = world.metadata.authorise(own, Action::SendMessages(STREAM, TOPIC));
    assert_eq!(send, Err(ErrorCode::Unauthorized));
}

#[test]
fn permissions_survive_the_way_to_the_wire_and_back() {
    for (_, permissions) in roles() {
        let wire = borzoi_wire::body::Permissions::from(&permissions);
        assert_eq!(Permissions::from(&wire), permissions);
    }
    let mut twice = borzoi_wire::body::Permissions::default();
    for read_stream in [true, false] {
        let stream = STREAM;
        let grant =
            borzoi_wire::body::StreamPermissions { stream, read_stream, ..Default::default() };
        twice.streams.push(grant);
    }
    let permissions = Permissions::from(&twice);
    assert!(!permissions.stream(STREAM).read_stream, "the later grant counts");
}
