//! Login, logout, identities, reconnects, tokens.

use crate::client::{Answer, Client, credentials_body, name};
use crate::world::World;
use borzoi_shard::event::CloseReason;
use borzoi_types::{Duration, SessionId, UserId};
use borzoi_wire::body::{
    ClientDetails, CreatePersonalAccessToken, Credentials, DeletePersonalAccessToken, Identity,
    TokenLifetime, TokenRecord,
};
use borzoi_wire::frame::EvictionReason;
use borzoi_wire::{ErrorCode, Operation, ProtocolVersion, Reader, Request, Secret, Wire};

fn evicted(reason: EvictionReason) -> Answer {
    Answer::Evicted(reason)
}

#[test]
fn a_login_is_answered_with_user_session_version_and_the_session_as_position() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::connect(&mut world, 1, 5);
        let answer = client.try_login(&mut world, "iggy", "iggy");
        let Answer::Done { operation, op, commit, .. } = answer.clone() else {
            panic!("{answer:?}");
        };
        let identity: Identity = answer.decode();
        assert_eq!(operation, Operation::Register as u8);
        assert_eq!(identity.user, UserId(0));
        assert!(identity.session > SessionId(0));
        assert_eq!(op.0, identity.session.0);
        assert!(commit >= op);
        assert!(!identity.server_version.as_str().is_empty());
    }
}

#[test]
fn wrong_password_unknown_user_and_bad_lengths_look_and_cost_the_same() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let attempts =
            [("iggy", "wrong"), ("nobody", "iggy"), ("iggy", "ab"), ("ab", "iggy"), ("iggy", "")];
        for (index, (user, password)) in attempts.into_iter().enumerate() {
            let mut client = Client::connect(&mut world, 1, 5 + index as u128 * 60_000);
            let jobs = world.password_jobs;
            let body = crate::client::login_body(user, password, ProtocolVersion::V0_11_0);
            let header = borzoi_wire::frame::RequestHeader {
                client: client.id,
                operation: Operation::Register as u8,
                ..Default::default()
            };
            world.deliver(client.connection, &Client::frame(header, &body));
            world.run();
            assert!(world.seen[&client.connection].frames.is_empty(), "the answer waits");
            assert_eq!(world.password_jobs, jobs + 1, "{user}: as much work as for any other");
            world.advance(Duration::from_secs(4));
            assert_eq!(client.take(&mut world), evicted(EvictionReason::InvalidCredentials));
            assert_eq!(client.closed(&world), None, "it may try again");
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_failed_login_waits_and_a_right_one_from_elsewhere_does_not() {
    let mut world = World::new(1);
    let mut guesser = Client::connect(&mut world, 0, 5);
    let body = crate::client::login_body("iggy", "wrong", ProtocolVersion::V0_11_0);
    let header = borzoi_wire::frame::RequestHeader {
        client: guesser.id,
        operation: Operation::Register as u8,
        ..Default::default()
    };
    world.deliver(guesser.connection, &Client::frame(header, &body));
    world.run();
    let mut right = Client::connect(&mut world, 0, 6);
    right.login(&mut world, "iggy", "iggy");
    world.advance(Duration::from_millis(99));
    assert!(world.seen[&guesser.connection].frames.is_empty());
    world.advance(Duration::from_millis(1));
    assert_eq!(guesser.take(&mut world), evicted(EvictionReason::InvalidCredentials));
}

#[test]
fn a_verified_password_is_remembered_and_a_changed_one_is_not() {
    let mut world = World::new(1);
    let mut first = Client::root(&mut world, 0, 5);
    assert_eq!(world.password_jobs, 1);
    Client::root(&mut world, 0, 6);
    assert_eq!(world.password_jobs, 1, "recognised without the password thread");
    let change = borzoi_wire::body::ChangePassword {
        user: crate::client::number(0),
        current: Secret::new("iggy").unwrap(),
        new: Secret::new("another").unwrap(),
    };
    first.call(&mut world, &Request::ChangePassword(change)).payload();
    let mut late = Client::connect(&mut world, 0, 7);
    late.login(&mut world, "iggy", "another");
    world.advance(Duration::ZERO);
    let mut old = Client::connect(&mut world, 0, 8);
    let body = crate::client::login_body("iggy", "iggy", ProtocolVersion::V0_11_0);
    let header = borzoi_wire::frame::RequestHeader {
        client: old.id,
        operation: Operation::Register as u8,
        ..Default::default()
    };
    world.deliver(old.connection, &Client::frame(header, &body));
    world.advance(Duration::from_secs(1));
    assert_eq!(old.take(&mut world), evicted(EvictionReason::InvalidCredentials));
}

#[test]
fn a_login_without_a_readable_form_is_evicted_with_15() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    for body in [&[][..], &[1, 2], &[0, 44, 0, 0, 1, b'a', 1, b'b'], &[0xff; 300]] {
        let answer = client.register(&mut world, body);
        assert_eq!(answer, evicted(EvictionReason::MalformedLogin), "{body:?}");
    }
    client.login(&mut world, "iggy", "iggy");
}

#[test]
fn a_repeated_login_on_one_connection_keeps_the_session_and_another_identity_gets_its_own() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let first = client.session;
    client.login(&mut world, "iggy", "iggy");
    assert_eq!(client.session, first);
    client.create_stream(&mut world, "one").payload();
    client.id = borzoi_types::ClientId(6);
    client.login(&mut world, "iggy", "iggy");
    assert!(client.session > first);
    client.request = 1;
    let created = client.create_stream(&mut world, "two");
    assert!(matches!(created, Answer::Done { .. }), "numbers start anew: {created:?}");
    // The old identity's session is without a connection now and ends in time.
    let sessions = world.shards[0].front().metadata().sessions();
    let old = sessions.get(borzoi_types::ClientId(5)).expect("not yet expired");
    assert_eq!(old.connection, None);
}

#[test]
fn a_failed_login_on_a_bound_connection_leaves_it_bound() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let body = crate::client::login_body("iggy", "wrong", ProtocolVersion::V0_11_0);
    let header = borzoi_wire::frame::RequestHeader {
        client: client.id,
        operation: Operation::Register as u8,
        ..Default::default()
    };
    world.deliver(client.connection, &Client::frame(header, &body));
    world.advance(Duration::from_secs(1));
    assert_eq!(client.take(&mut world), evicted(EvictionReason::InvalidCredentials));
    client.create_stream(&mut world, "stream").payload();
}

#[test]
fn an_identity_of_another_user_is_refused_with_12() {
    let mut world = World::new(1);
    let mut root = Client::root(&mut world, 0, 5);
    crate::users::create_user(&mut root, &mut world, "alice", None).payload();
    let mut thief = Client::connect(&mut world, 0, 5);
    let answer = thief.try_login(&mut world, "alice", "password");
    assert_eq!(answer, evicted(EvictionReason::SessionError));
}

#[test]
fn the_same_identity_on_a_newer_connection_gets_a_larger_session_and_the_older_may_only_read() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut old = Client::root(&mut world, 0, 5);
        old.prepare(&mut world, 1);
        let mut new = Client::connect(&mut world, 1, 5);
        new.login(&mut world, "iggy", "iggy");
        new.request = old.request;
        assert!(new.session > old.session);
        let refused = old.create_stream(&mut world, "late");
        assert_eq!(refused, evicted(EvictionReason::SessionTooLow));
        let to = borzoi_wire::Partitioning::Balanced;
        let refused = old.send_to(&mut world, to, &[b"late"]);
        assert_eq!(refused, evicted(EvictionReason::SessionTooLow));
        old.call(&mut world, &Request::GetStreams).payload();
        new.send(&mut world, 0, &[b"on time"]);
        new.create_stream(&mut world, "on time").payload();
        // The end of the older connection does not touch the session of the newer.
        world.hang_up(old.connection);
        new.send(&mut world, 0, &[b"still here"]);
    }
}

#[test]
fn logout_ends_the_session_and_the_connection_can_log_in_again() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let answer = client.call(&mut world, &Request::Logout);
        let Answer::Done { operation, payload, .. } = &answer else { panic!("{answer:?}") };
        assert_eq!((*operation, payload.len()), (Operation::Logout as u8, 0));
        let denied = client.read(&mut world, 20, &[]);
        assert_eq!(denied, Answer::Denied(ErrorCode::Unauthenticated));
        assert_eq!(world.shards[0].front().metadata().sessions().len(), 0);
        client.id = borzoi_types::ClientId(9);
        client.login(&mut world, "iggy", "iggy");
        client.call(&mut world, &Request::GetMe).payload();
    }
}

#[test]
fn a_lost_connection_is_logged_and_its_session_expires_a_minute_later() {
    let mut world = World::new(2);
    let client = Client::root(&mut world, 1, 5);
    world.hang_up(client.connection);
    let session = |world: &World| {
        world.shards[0].front().metadata().sessions().get(client.id).map(|it| it.connection)
    };
    assert_eq!(session(&world), Some(None), "the log knows that the connection is gone");
    world.advance(Duration::from_secs(58));
    assert_eq!(session(&world), Some(None));
    world.advance(Duration::from_secs(5));
    assert_eq!(session(&world), None);
}

#[test]
fn a_client_that_hangs_up_during_its_login_leaves_no_session_behind() {
    let mut world = World::new(1);
    world.hold_passwords = true;
    let client = Client::connect(&mut world, 0, 5);
    let body = crate::client::login_body("iggy", "iggy", ProtocolVersion::V0_11_0);
    let header = borzoi_wire::frame::RequestHeader {
        client: client.id,
        operation: Operation::Register as u8,
        ..Default::default()
    };
    world.deliver(client.connection, &Client::frame(header, &body));
    world.run();
    world.hang_up(client.connection);
    world.hold_passwords = false;
    world.run();
    assert_eq!(world.shards[0].front().metadata().sessions().len(), 0);
    world.assert_at_rest();
}

#[test]
fn sessions_of_an_earlier_life_are_without_connection_after_a_restart() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let before = client.session;
    let mut world = world.restart(2);
    let session = world.shards[0].front().metadata().sessions().get(client.id).unwrap();
    assert_eq!((session.session, session.connection), (before, None));
    client = Client::connect(&mut world, 1, 5);
    client.login(&mut world, "iggy", "iggy");
    assert!(client.session > before);
}

#[test]
fn a_token_logs_in_until_it_is_deleted_or_expires_and_its_session_ends_with_it() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut owner = Client::root(&mut world, 0, 5);
        let lifetime = TokenLifetime(60_000_000);
        let create = CreatePersonalAccessToken { name: name("token"), lifetime };
        let token: Secret =
            owner.call(&mut world, &Request::CreatePersonalAccessToken(create)).decode();
        assert_eq!(token.reveal().len(), 68);
        let login = |token: &str| {
            let token = Secret::new(token).unwrap();
            credentials_body(Credentials::Token { token }, ProtocolVersion::V0_11_0)
        };
        let mut robot = Client::connect(&mut world, 1, 6);
        let identity: Identity = robot.register(&mut world, &login(token.reveal())).decode();
        robot.session = identity.session;
        robot.call(&mut world, &Request::GetMe).decode::<ClientDetails>();
        let tokens = owner.call(&mut world, &Request::GetPersonalAccessTokens).payload();
        let listed = TokenRecord::read(&mut Reader::new(&tokens)).unwrap();
        assert_eq!(listed.name, name("token"));

        let delete = DeletePersonalAccessToken { name: name("token") };
        owner.call(&mut world, &Request::DeletePersonalAccessToken(delete)).payload();
        assert_eq!(robot.take(&mut world), evicted(EvictionReason::InvalidToken));
        assert_eq!(robot.closed(&world), Some(CloseReason::Evicted));
        assert_eq!(owner.closed(&world), None, "signed in with a password");

        let mut late = Client::connect(&mut world, 1, 7);
        let header = borzoi_wire::frame::RequestHeader {
            client: late.id,
            operation: Operation::Register as u8,
            ..Default::default()
        };
        world.deliver(late.connection, &Client::frame(header, &login(token.reveal())));
        world.advance(Duration::from_secs(1));
        assert_eq!(late.take(&mut world), evicted(EvictionReason::InvalidToken));
    }
}

#[test]
fn an_expired_token_stops_a_live_connection() {
    let mut world = World::new(1);
    let mut owner = Client::root(&mut world, 0, 5);
    let create =
        CreatePersonalAccessToken { name: name("token"), lifetime: TokenLifetime(2_000_000) };
    let token: Secret =
        owner.call(&mut world, &Request::CreatePersonalAccessToken(create)).decode();
    let mut robot = Client::connect(&mut world, 0, 6);
    let body = credentials_body(Credentials::Token { token }, ProtocolVersion::V0_11_0);
    let identity: Identity = robot.register(&mut world, &body).decode();
    robot.session = identity.session;
    robot.call(&mut world, &Request::GetStreams).payload();
    world.advance(Duration::from_millis(1_950));
    robot.call(&mut world, &Request::GetStreams).payload();
    world.advance(Duration::from_millis(50));
    assert_eq!(robot.take(&mut world), evicted(EvictionReason::InvalidToken));
    assert_eq!(robot.closed(&world), Some(CloseReason::Evicted));
}

#[test]
fn a_client_that_deletes_its_own_token_is_answered_before_it_is_signed_out() {
    let mut world = World::new(2);
    let mut owner = Client::root(&mut world, 0, 5);
    let create = CreatePersonalAccessToken { name: name("token"), lifetime: TokenLifetime(0) };
    let token: Secret =
        owner.call(&mut world, &Request::CreatePersonalAccessToken(create)).decode();
    let mut robot = Client::connect(&mut world, 1, 6);
    let body = credentials_body(Credentials::Token { token }, ProtocolVersion::V0_11_0);
    let identity: Identity = robot.register(&mut world, &body).decode();
    robot.session = identity.session;
    let delete = DeletePersonalAccessToken { name: name("token") };
    robot.call(&mut world, &Request::DeletePersonalAccessToken(delete)).payload();
    assert_eq!(robot.take(&mut world), evicted(EvictionReason::InvalidToken));
    assert_eq!(robot.closed(&world), Some(CloseReason::Evicted));
}
