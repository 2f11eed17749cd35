//! Sessions and requests that execute at most once.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Admission, Change, ClientRequest, ClosedConnection, Command, Credential, Issuer, Metadata,
    Notice, Outcome, Register, Reply, SessionRef, TokenHash, UserKey, UserStatus,
};
use borzoi_types::limits::{SESSION_WINDOW_REQUESTS, SESSIONS_MAX};
use borzoi_types::{ClientId, Micros, Op, ReplicaId, RequestNumber, SessionId, UserId};
use borzoi_wire::ErrorCode;
use support::{World, ident, name, stamp};

const APPLIED: Outcome = Outcome::Applied(Reply::Nothing);

fn create(text: &str) -> Change {
    Change::CreateStream { name: name(text) }
}

fn numbered(world: &World, client: ClientId, request: u64) -> ClientRequest {
    let (session, _) = world.clients[&client];
    ClientRequest { client, session, request: RequestNumber(request), checksum: 0 }
}

fn close(client: ClientId, connection: u64) -> Change {
    Change::ConnectionsClosed(vec![ClosedConnection { client, connection: stamp(connection) }])
}

#[test]
fn a_login_repeated_on_its_connection_gives_the_same_session() {
    let mut world = World::default();
    let first = world.login(1, UserKey::ROOT, 1);
    let expected = Reply::Registered { user: UserId(0), session: SessionId(1) };
    assert_eq!(first, Outcome::Applied(expected));
    let before = world.metadata.encode_snapshot().len();
    assert_eq!(world.login(1, UserKey::ROOT, 1), first);
    assert_eq!(world.metadata.encode_snapshot().len(), before);
}

#[test]
fn the_same_identity_elsewhere_gets_a_larger_session_and_keeps_its_memory() {
    let mut world = World::default();
    let client = world.root(1);
    let request = world.request(client);
    let first = world.resend(request, create("s"));
    let stored_at = world.op();
    world.login(1, UserKey::ROOT, 2);
    let (session, _) = world.clients[&client];
    assert_eq!(session, SessionId(world.op().0));
    let notice = Notice::SessionStarted(SessionRef { client, session });
    assert_eq!(world.metadata.notices(), [notice]);
    // The older connection is refused, the newer one gets the stored reply.
    assert_eq!(world.admit(request), Admission::SessionTooLow);
    let again = ClientRequest { session, ..request };
    let Admission::Stored(stored) = world.admit(again) else { panic!() };
    assert_eq!((stored.op, &stored.outcome), (stored_at, &first));
    assert_eq!(world.resend(again, create("s")), first);
    let newer = ClientRequest { session: SessionId(session.0 + 1), ..request };
    assert_eq!(world.admit(newer), Admission::SessionTooHigh);
    assert_eq!(
        world.resend(newer, create("t")),
        Outcome::Rejected(ErrorCode::InvalidSession),
        "in the log too"
    );
}

#[test]
fn an_identity_belongs_to_one_user() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    world.root(1);
    let refused = world.login(1, alice, 2);
    assert_eq!(refused, Outcome::Rejected(ErrorCode::InvalidSession));
    assert_eq!(world.metadata.sessions().get(ClientId(1)).unwrap().user, UserKey::ROOT);
}

#[test]
fn requests_out_of_order_all_execute_once() {
    let mut world = World::default();
    let client = world.root(1);
    for number in [7, 5, 6] {
        let request = numbered(&world, client, number);
        let text = format!("s{number}");
        let first = world.resend(request, create(&text));
        assert!(matches!(first, Outcome::Applied(Reply::Stream { .. })));
        assert_eq!(world.resend(request, create(&text)), first, "request {number} again");
    }
    assert_eq!(world.metadata.totals().streams, 3);
}

#[test]
fn a_rejection_is_remembered_like_a_success() {
    let mut world = World::default();
    let client = world.root(1);
    world.create_stream("s");
    let request = world.request(client);
    let taken = Outcome::Rejected(ErrorCode::StreamNameAlreadyExists);
    assert_eq!(world.resend(request, create("s")), taken);
    world.system_ok(Change::DeleteStream { stream: ident("s") });
    assert_eq!(world.resend(request, create("s")), taken);
    assert_eq!(world.metadata.totals().streams, 0);
}

#[test]
fn both_edges_of_the_window_hold() {
    let mut world = World::default();
    let client = world.root(1);
    let window = u64::try_from(SESSION_WINDOW_REQUESTS).unwrap();
    let rename = |text: &str| Change::UpdateStream { stream: ident("0"), name: name(text) };
    world.create_stream("s");
    for number in 1..=window {
        assert_eq!(world.resend(numbered(&world, client, number * 2), rename("s")), APPLIED);
    }
    // The window is full; its oldest request is still known.
    let oldest = numbered(&world, client, 2);
    assert!(matches!(world.admit(oldest), Admission::Stored(_)));
    // A number below the highest and never seen executes, and pushes the oldest out.
    let unseen = numbered(&world, client, 3);
    assert_eq!(world.admit(unseen), Admission::Execute(UserKey::ROOT));
    assert_eq!(world.resend(unseen, rename("t")), APPLIED);
    assert_eq!(world.admit(oldest), Admission::AlreadyApplied);
    assert_eq!(world.admit(numbered(&world, client, 1)), Admission::AlreadyApplied);
    let gone = Outcome::Rejected(ErrorCode::RequestAlreadyApplied);
    assert_eq!(world.resend(oldest, rename("u")), gone);
    assert!(matches!(world.admit(unseen), Admission::Stored(_)));
    assert_eq!(world.admit(numbered(&world, client, 5)), Admission::Execute(UserKey::ROOT));
    assert_eq!(world.metadata.stream(borzoi_types::StreamId(0)).unwrap().name, name("t"));
}

#[test]
fn another_request_under_a_known_number_gets_no_reply_that_is_not_its_own() {
    let mut world = World::default();
    let client = world.root(1);
    let request = ClientRequest { checksum: 5, ..world.request(client) };
    world.resend(request, create("s"));
    assert!(matches!(world.admit(request), Admission::Stored(_)));
    let unsigned = ClientRequest { checksum: 0, ..request };
    assert!(matches!(world.admit(unsigned), Admission::Stored(_)));
    let other = ClientRequest { checksum: 6, ..request };
    assert_eq!(world.admit(other), Admission::AlreadyApplied);
}

#[test]
fn a_transient_refusal_may_simply_be_sent_again() {
    let mut world = World::default();
    let client = world.root(1);
    world.create_stream("s");
    world.create_topic("s", "t", 1);
    let wish = Change::DeleteSegments {
        topic: support::topic_name("s", "t"),
        partition: borzoi_types::PartitionId(0),
        count: 1,
    };
    for _ in 0..16 {
        world.system_ok(wish.clone());
    }
    let request = world.request(client);
    let busy = Outcome::Rejected(ErrorCode::TransientNotAccepted);
    assert_eq!(world.resend(request, wish.clone()), busy);
    let through = world.op();
    let lanes = (1..=6).map(|lane| (borzoi_types::LogId(lane), through));
    let lanes = lanes.collect();
    world.system_ok(Change::LanesConfirmed(lanes));
    assert_eq!(world.resend(request, wish), APPLIED);
}

#[test]
fn large_replies_are_given_up_oldest_first_and_then_answered_59() {
    let mut world = World::default();
    let client = world.root(1);
    let mut permissions = borzoi_metadata::Permissions::default();
    for stream in 0..1_000 {
        permissions.streams.insert(borzoi_types::StreamId(stream), Default::default());
    }
    let user = |text: String| {
        Change::CreateUser(borzoi_metadata::CreateUser {
            name: name(&text),
            password: support::hash(&text),
            status: UserStatus::Active,
            permissions: Some(permissions.clone()),
        })
    };
    for number in 1..=4 {
        let request = numbered(&world, client, number);
        let outcome = world.resend(request, user(format!("user{number}")));
        assert!(matches!(outcome, Outcome::Applied(Reply::User { .. })));
    }
    assert_eq!(world.admit(numbered(&world, client, 1)), Admission::AlreadyApplied);
    assert!(matches!(world.admit(numbered(&world, client, 4)), Admission::Stored(_)));
}

#[test]
fn logging_out_forgets_the_session() {
    let mut world = World::default();
    let client = world.root(1);
    let request = world.request(client);
    world.resend(request, create("s"));
    let session = SessionRef { client, session: request.session };
    world.system_ok(Change::Logout(SessionRef { session: SessionId(99), ..session }));
    assert!(world.metadata.sessions().get(client).is_some(), "another session is not ended");
    world.system_ok(Change::Logout(session));
    let ended = Notice::SessionEnded { session, first: session.session };
    assert_eq!(world.metadata.notices(), [ended]);
    assert_eq!(world.admit(request), Admission::NoSession);
    let refused = Outcome::Rejected(ErrorCode::Unauthenticated);
    assert_eq!(world.resend(request, create("t")), refused);
}

#[test]
fn a_session_waits_a_minute_for_its_client_and_not_less() {
    let mut world = World::default();
    let client = world.root(1);
    let request = world.request(client);
    world.resend(request, create("s"));
    let reference = SessionRef { client, session: request.session };
    let expire = Change::ExpireSessions(vec![reference]);
    world.system_ok(expire.clone());
    world.seconds(3_600);
    world.system_ok(expire.clone());
    assert!(world.metadata.sessions().get(client).is_some(), "a connected client is not evicted");

    world.system_ok(close(client, 1));
    let closed_at = world.now;
    world.seconds(59);
    world.system_ok(expire.clone());
    assert!(matches!(world.admit(request), Admission::Stored(_)));
    let away = |world: &World, seconds: u64| {
        let before = Micros(closed_at.0 + seconds * 1_000_000);
        world.metadata.sessions().away_since(before).count()
    };
    assert_eq!(away(&world, 0), 1);
    // It comes back in time, and its memory is there.
    world.login(1, UserKey::ROOT, 2);
    assert_eq!(away(&world, 3_600), 0);
    world.seconds(3_600);
    world.system_ok(expire);
    let (session, _) = world.clients[&client];
    assert!(matches!(world.admit(ClientRequest { session, ..request }), Admission::Stored(_)));

    world.system_ok(close(client, 2));
    world.seconds(60);
    world.system_ok(Change::ExpireSessions(vec![SessionRef { client, session }]));
    assert!(world.metadata.sessions().is_empty());
}

#[test]
fn connections_of_earlier_lives_of_a_node_are_lost() {
    let mut world = World::default();
    world.root(1);
    world.root(2);
    let started =
        |replica, generation| Change::NodeStarted { replica: ReplicaId(replica), generation };
    world.system_ok(started(0, 1));
    world.system_ok(started(1, 9));
    assert!(world.metadata.sessions().iter().all(|session| session.connection.is_some()));
    world.system_ok(started(0, 2));
    assert!(world.metadata.sessions().iter().all(|session| session.connection.is_none()));
    assert_eq!(world.metadata.sessions().len(), 2);
}

#[test]
fn a_full_table_refuses_logins_and_forgets_nobody() {
    let mut metadata = Metadata::format(support::genesis());
    let register = |client: u128| {
        Command::system(Change::Register(Register {
            client: ClientId(client),
            user: UserKey::ROOT,
            credential: Credential::Password,
            connection: stamp(u64::try_from(client).unwrap()),
        }))
    };
    let full = u128::try_from(SESSIONS_MAX).unwrap();
    for client in 1..=full {
        let op = metadata.applied().next();
        let outcome = metadata.apply(op, Micros(1), &register(client));
        assert!(matches!(outcome, Outcome::Applied(_)));
    }
    assert!(metadata.sessions().is_full());
    let op = metadata.applied().next();
    let refused = metadata.apply(op, Micros(1), &register(full + 1));
    assert_eq!(refused, Outcome::Rejected(ErrorCode::TransientNotAccepted));
    // A known client still gets a newer session.
    let mut again = register(1);
    if let Change::Register(register) = &mut again.change {
        register.connection = stamp(1_000_000);
    }
    let op = metadata.applied().next();
    assert!(matches!(metadata.apply(op, Micros(1), &again), Outcome::Applied(_)));
    assert_eq!(metadata.sessions().len(), SESSIONS_MAX);
    assert_eq!(metadata.broken_rule(), None);
}

#[test]
fn a_session_of_a_token_ends_to_work_with_the_token() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let hash = TokenHash([7; 32]);
    let expires = Micros(world.now.0 + 60_000_000);
    let token =
        |expires| Change::CreateToken { name: name("ci-token"), hash, expires, tokens_max: 100 };
    assert_eq!(world.as_user(alice, token(Some(expires))), Outcome::Applied(Reply::Token));
    let register = Change::Register(Register {
        client: ClientId(1),
        user: alice,
        credential: Credential::Token(hash),
        connection: stamp(1),
    });
    let Reply::Registered { session, .. } = world.system_ok(register.clone()) else { panic!() };
    let user = |world: &World| world.metadata.session_user(ClientId(1), session, world.now);
    assert_eq!(user(&world), Ok(alice));
    world.seconds(60);
    assert_eq!(user(&world), Err(ErrorCode::PersonalAccessTokenExpired));
    let issuer = Issuer::Client(ClientRequest {
        client: ClientId(1),
        session,
        request: RequestNumber(1),
        checksum: 0,
    });
    let delete = Change::DeleteToken { name: name("ci-token") };
    let outcome = world.apply(Command { issuer, change: delete.clone() });
    assert_eq!(outcome, Outcome::Rejected(ErrorCode::PersonalAccessTokenExpired));
    assert_eq!(world.rejection(register.clone()), ErrorCode::InvalidPersonalAccessToken);

    assert!(world.metadata.has_expired_tokens(world.now));
    world.system_ok(Change::ExpireTokens);
    assert_eq!(world.metadata.notices(), [Notice::TokenDeleted { user: alice, hash }]);
    assert!(!world.metadata.has_expired_tokens(world.now));
    // A token under the same hash again, then revoked.
    assert_eq!(world.as_user(alice, token(None)), Outcome::Applied(Reply::Token));
    assert_eq!(user(&world), Ok(alice));
    assert_eq!(world.as_user(alice, delete), APPLIED);
    assert_eq!(user(&world), Err(ErrorCode::PersonalAccessTokenExpired));
}

#[test]
fn registrations_are_checked_against_the_user_as_it_is_now() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let status =
        |status| Change::UpdateUser { user: ident("alice"), name: None, status: Some(status) };
    world.system_ok(status(UserStatus::Inactive));
    assert_eq!(world.login(1, alice, 1), Outcome::Rejected(ErrorCode::UserInactive));
    world.system_ok(status(UserStatus::Active));
    assert!(matches!(world.login(1, alice, 1), Outcome::Applied(_)));
    world.system_ok(Change::DeleteUser { user: ident("alice") });
    assert!(world.metadata.sessions().is_empty(), "sessions end with their user");
    assert_eq!(world.login(1, alice, 1), Outcome::Rejected(ErrorCode::InvalidCredentials));
    // The next user under the same number is another one.
    let bob = world.create_user("bob", None);
    assert_eq!(world.metadata.user(bob).unwrap().id, UserId(1));
    assert_ne!(alice, bob);
    assert_eq!(world.login(1, alice, 1), Outcome::Rejected(ErrorCode::InvalidCredentials));
}

#[test]
fn clients_cannot_issue_what_only_the_server_may() {
    let mut world = World::default();
    let client = world.root(1);
    for change in [
        Change::ExpireTokens,
        Change::LanesConfirmed(vec![]),
        Change::NodeStarted { replica: ReplicaId(0), generation: 5 },
        Change::CompleteHandovers(vec![]),
        Change::ExpireSessions(vec![]),
    ] {
        let outcome = world.ask(client, change);
        assert_eq!(outcome, Outcome::Rejected(ErrorCode::Unauthorized));
    }
    assert_eq!(world.op(), Op(6));
}
