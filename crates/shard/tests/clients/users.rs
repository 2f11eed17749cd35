//! Users and permissions.

use crate::client::{Answer, Client, name, named, number};
use crate::world::World;
use borzoi_shard::event::CloseReason;
use borzoi_types::{StreamId, UserId};
use borzoi_wire::body::{
    CreateUser, DeleteUser, GetUser, GlobalPermissions, Permissions, StreamPermissions,
    UpdatePermissions, UpdateUser, UserDetails, UserStatus,
};
use borzoi_wire::frame::EvictionReason;
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{ErrorCode, Partitioning, PollingStrategy, Request, Secret};

pub fn create_user(
    client: &mut Client,
    world: &mut World,
    user: &str,
    permissions: Option<Permissions>,
) -> Answer {
    let body = CreateUser {
        name: name(user),
        password: Secret::new("password").unwrap(),
        status: UserStatus::Active,
        permissions,
        options: TrailingOptions::default(),
    };
    client.call(world, &Request::CreateUser(body))
}

#[test]
fn a_created_user_is_answered_in_full_logs_in_everywhere_at_once_and_may_read_itself() {
    let mut world = World::new(2);
    let mut root = Client::root(&mut world, 0, 5);
    let created: UserDetails = create_user(&mut root, &mut world, "alice", None).decode();
    assert_eq!((created.user.id, created.permissions), (UserId(1), None));
    let mut alice = Client::connect(&mut world, 1, 6);
    assert_eq!(alice.login(&mut world, "alice", "password"), UserId(1));
    let itself = Request::GetUser(GetUser { user: named("alice") });
    assert_eq!(alice.call(&mut world, &itself).decode::<UserDetails>().user.id, UserId(1));
    let root_user = Request::GetUser(GetUser { user: number(0) });
    assert_eq!(alice.call(&mut world, &root_user), Answer::Denied(ErrorCode::Unauthorized));
    let nobody = Request::GetUser(GetUser { user: number(77) });
    assert!(alice.call(&mut world, &nobody).payload().is_empty());
}

#[test]
fn names_and_passwords_outside_of_their_lengths_are_refused_with_43_and_44() {
    let mut world = World::new(1);
    let mut root = Client::root(&mut world, 0, 5);
    assert_eq!(create_user(&mut root, &mut world, "ab", None).error(), ErrorCode::InvalidUsername);
    for password in ["", "ab", &"x".repeat(101)] {
        let body = CreateUser {
            name: name("alice"),
            password: Secret::new(password).unwrap(),
            status: UserStatus::Active,
            permissions: None,
            options: TrailingOptions::default(),
        };
        let answer = root.call(&mut world, &Request::CreateUser(body));
        assert_eq!(answer.error(), ErrorCode::InvalidPassword);
    }
    create_user(&mut root, &mut world, "alice", None).payload();
    let again = create_user(&mut root, &mut world, "alice", None);
    assert_eq!(again, Answer::Rejected(ErrorCode::UserAlreadyExists));
}

#[test]
fn permissions_decide_and_a_change_counts_from_the_next_request() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut root = Client::root(&mut world, 0, 5);
        root.prepare(&mut world, 1);
        create_user(&mut root, &mut world, "alice", None).payload();
        let mut alice = Client::connect(&mut world, 1, 6);
        alice.login(&mut world, "alice", "password");
        let unauthorised = Answer::Denied(ErrorCode::Unauthorized);
        assert_eq!(alice.send_to(&mut world, Partitioning::Balanced, &[b"no"]), unauthorised);
        let poll = Client::poll_request(Some(0), PollingStrategy::First, 1, false);
        assert_eq!(alice.call(&mut world, &Request::PollMessages(poll)), unauthorised);
        let rejected = alice.create_stream(&mut world, "mine");
        assert_eq!(rejected, Answer::Rejected(ErrorCode::Unauthorized));

        let streams = vec![StreamPermissions {
            stream: StreamId(0),
            send_messages: true,
            ..StreamPermissions::default()
        }];
        let permissions = Some(Permissions { global: GlobalPermissions::default(), streams });
        let update = UpdatePermissions { user: named("alice"), permissions };
        root.call(&mut world, &Request::UpdatePermissions(update)).payload();
        alice.send(&mut world, 0, &[b"yes"]);
        assert_eq!(alice.call(&mut world, &Request::PollMessages(poll)), unauthorised);
    }
}

#[test]
fn a_disabled_user_is_denied_and_a_deleted_one_disconnected() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut root = Client::root(&mut world, 0, 5);
        let all = Permissions {
            global: GlobalPermissions { read_streams: true, ..GlobalPermissions::default() },
            streams: Vec::new(),
        };
        create_user(&mut root, &mut world, "alice", Some(all)).payload();
        let mut alice = Client::connect(&mut world, 1, 6);
        alice.login(&mut world, "alice", "password");
        alice.call(&mut world, &Request::GetStreams).payload();
        let update = UpdateUser {
            user: named("alice"),
            name: None,
            status: Some(UserStatus::Inactive),
            options: TrailingOptions::default(),
        };
        root.call(&mut world, &Request::UpdateUser(update)).payload();
        assert_eq!(alice.take(&mut world), Answer::Evicted(EvictionReason::UserInactive));
        assert_eq!(alice.closed(&world), Some(CloseReason::Evicted));

        create_user(&mut root, &mut world, "bob", None).payload();
        let mut bobs: Vec<Client> =
            (0..3).map(|id| Client::connect(&mut world, 1, 10 + id)).collect();
        for bob in &mut bobs {
            bob.login(&mut world, "bob", "password");
        }
        let delete = DeleteUser { user: named("bob") };
        root.call(&mut world, &Request::DeleteUser(delete)).payload();
        for bob in &mut bobs {
            assert_eq!(bob.take(&mut world), Answer::Evicted(EvictionReason::NoSession));
            assert_eq!(bob.closed(&world), Some(CloseReason::Evicted));
        }
        root.ping(&mut world).payload();
        world.assert_at_rest();
    }
}

#[test]
fn a_request_under_way_when_its_user_is_deleted_is_answered_by_the_eviction() {
    let mut world = World::new(2);
    let mut root = Client::root(&mut world, 0, 5);
    root.prepare(&mut world, 1);
    let all = GlobalPermissions { manage_streams: true, ..GlobalPermissions::default() };
    let permissions = Some(Permissions { global: all, streams: Vec::new() });
    create_user(&mut root, &mut world, "alice", permissions).payload();
    let mut alice = Client::connect(&mut world, 1, 6);
    alice.login(&mut world, "alice", "password");
    // The send waits for the disk while the user is deleted.
    world.hold_disk = true;
    let frame = alice.send_frame(Partitioning::Balanced, &[b"under way"]);
    world.deliver(alice.connection, &frame);
    let delete = root.request_frame(&Request::DeleteUser(DeleteUser { user: named("alice") }));
    world.deliver(root.connection, &delete);
    world.run();
    world.hold_disk = false;
    world.run();
    root.take(&mut world).payload();
    let answers: Vec<Answer> = core::iter::from_fn(|| {
        let waiting = !world.seen[&alice.connection].frames.is_empty();
        waiting.then(|| alice.take(&mut world))
    })
    .collect();
    assert_eq!(answers.last(), Some(&Answer::Evicted(EvictionReason::NoSession)));
    assert!(answers.len() <= 2, "one answer to the send at most: {answers:?}");
    assert_eq!(alice.closed(&world), Some(CloseReason::Evicted));
}

#[test]
fn root_cannot_be_deleted_or_re_permissioned() {
    let mut world = World::new(1);
    let mut root = Client::root(&mut world, 0, 5);
    let delete = root.call(&mut world, &Request::DeleteUser(DeleteUser { user: number(0) }));
    assert_eq!(delete, Answer::Rejected(ErrorCode::CannotDeleteUser));
    let update = UpdatePermissions { user: number(0), permissions: None };
    let update = root.call(&mut world, &Request::UpdatePermissions(update));
    assert_eq!(update, Answer::Rejected(ErrorCode::CannotChangePermissions));
}
