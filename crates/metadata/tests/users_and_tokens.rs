//! Users and access tokens.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Action, Change, CreateUser, GlobalFlags, Notice, Outcome, PasswordHash, Permissions,
    ROOT_CREATED, Reply, TokenHash, UserKey, UserStatus,
};
use borzoi_types::{Micros, UserId};
use borzoi_wire::ErrorCode;
use support::{World, hash, ident, name};

const APPLIED: Outcome = Outcome::Applied(Reply::Nothing);

fn token(text: &str, byte: u8) -> Change {
    let hash = TokenHash([byte; 32]);
    Change::CreateToken { name: name(text), hash, expires: None, tokens_max: 2 }
}

#[test]
fn root_is_there_from_formatting() {
    let world = World::default();
    let root = world.metadata.user(UserKey::ROOT).unwrap();
    assert_eq!((root.id, root.name.as_str()), (UserId(0), "iggy"));
    assert_eq!((root.created, &root.password), (ROOT_CREATED, &hash("iggy")));
    assert_eq!(world.metadata.users().count(), 1);
    assert_eq!(world.metadata.authorise(UserKey::ROOT, Action::CreateUser), Ok(()));
}

#[test]
fn root_can_be_renamed_but_not_deleted_disabled_or_given_permissions() {
    let mut world = World::default();
    let update = |text: Option<&str>, status| Change::UpdateUser {
        user: ident("0"),
        name: text.map(name),
        status,
    };
    world.system_ok(update(Some("admin"), Some(UserStatus::Active)));
    assert_eq!(world.metadata.find_user(&ident("admin")).unwrap().key, UserKey::ROOT);
    assert_eq!(world.metadata.find_user(&ident("iggy")).unwrap_err(), ErrorCode::ResourceNotFound);
    let disabled = world.rejection(update(None, Some(UserStatus::Inactive)));
    assert_eq!(disabled, ErrorCode::InvalidUserStatus);
    let deleted = world.rejection(Change::DeleteUser { user: ident("admin") });
    assert_eq!(deleted, ErrorCode::CannotDeleteUser);
    let permissions = Change::UpdatePermissions { user: ident("0"), permissions: None };
    assert_eq!(world.rejection(permissions), ErrorCode::CannotChangePermissions);
}

#[test]
fn user_numbers_come_back_but_identities_do_not() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    world.create_user("bob", None);
    assert_eq!(world.metadata.user(alice).unwrap().id, UserId(1));
    world.system_ok(Change::DeleteUser { user: ident("1") });
    assert_eq!(world.metadata.notices(), [Notice::UserDeleted(alice)]);
    let carol = world.create_user("carol", None);
    assert_eq!(world.metadata.user(carol).unwrap().id, UserId(1));
    assert!(carol > alice);
    let asked = world.metadata.authorise(alice, Action::GetMe);
    assert_eq!(asked, Err(ErrorCode::Unauthenticated));
    let listed: Vec<&str> = world.metadata.users().map(|user| user.name.as_str()).collect();
    assert_eq!(listed, ["iggy", "carol", "bob"]);
}

#[test]
fn what_a_user_may_do_changes_with_its_very_next_request() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let allowed = |world: &World| world.metadata.authorise(alice, Action::GetStreams);
    assert_eq!(allowed(&world), Err(ErrorCode::Unauthorized));
    let global = GlobalFlags { read_streams: true, ..Default::default() };
    let permissions = Some(Permissions { global, ..Default::default() });
    world.system_ok(Change::UpdatePermissions { user: ident("alice"), permissions });
    assert_eq!(world.metadata.notices(), [Notice::UserChanged(alice)]);
    assert_eq!(allowed(&world), Ok(()));
    let status =
        |status| Change::UpdateUser { user: ident("alice"), name: None, status: Some(status) };
    world.system_ok(status(UserStatus::Inactive));
    assert_eq!(allowed(&world), Err(ErrorCode::Unauthorized));
    world.system_ok(status(UserStatus::Active));
    assert_eq!(allowed(&world), Ok(()));
}

#[test]
fn a_password_changes_only_from_the_one_that_was_verified() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let bob = world.create_user("bob", None);
    let change = |from: &str, to: &str| Change::ChangePassword {
        user: ident("alice"),
        verified: hash(from),
        password: hash(to),
    };
    assert_eq!(world.as_user(alice, change("alice", "new")), APPLIED);
    // Verified against a hash that another change has replaced meanwhile.
    let stale = world.as_user(UserKey::ROOT, change("alice", "other"));
    assert_eq!(stale, Outcome::Rejected(ErrorCode::InvalidCredentials));
    let denied = world.as_user(bob, change("new", "other"));
    assert_eq!(denied, Outcome::Rejected(ErrorCode::Unauthorized));
    assert_eq!(world.as_user(UserKey::ROOT, change("new", "other")), APPLIED);
    assert_eq!(world.metadata.user(alice).unwrap().password, hash("other"));
}

#[test]
fn tokens_belong_to_their_user_and_are_found_by_hash() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let bob = world.create_user("bob", None);
    for (user, change) in [(alice, token("one", 1)), (bob, token("one", 2))] {
        assert_eq!(world.as_user(user, change), Outcome::Applied(Reply::Token));
    }
    let owner = |world: &World, byte| {
        world.metadata.token_owner(&TokenHash([byte; 32]), world.now).map(|user| user.key)
    };
    assert_eq!((owner(&world, 1), owner(&world, 2)), (Ok(alice), Ok(bob)));
    assert_eq!(owner(&world, 3), Err(ErrorCode::InvalidPersonalAccessToken));
    let mut near = [1; 32];
    near[31] = 0;
    let near = world.metadata.token_owner(&TokenHash(near), world.now).map(|user| user.key);
    assert_eq!(near, Err(ErrorCode::InvalidPersonalAccessToken));
    assert_eq!(world.as_user(alice, Change::DeleteToken { name: name("one") }), APPLIED);
    assert_eq!(owner(&world, 1), Err(ErrorCode::InvalidPersonalAccessToken));
    assert_eq!(owner(&world, 2), Ok(bob));
    world.system_ok(Change::DeleteUser { user: ident("bob") });
    assert_eq!(owner(&world, 2), Err(ErrorCode::InvalidPersonalAccessToken));
}

#[test]
fn two_tokens_whose_hashes_begin_alike_are_told_apart() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let mut other = [1; 32];
    other[20] = 2;
    let with = |text: &str, bytes| Change::CreateToken {
        name: name(text),
        hash: TokenHash(bytes),
        expires: None,
        tokens_max: 100,
    };
    world.as_user(alice, with("one", [1; 32]));
    world.as_user(UserKey::ROOT, with("two", other));
    let owner = |world: &World, bytes| {
        world.metadata.token_owner(&TokenHash(bytes), world.now).map(|user| user.key)
    };
    assert_eq!(owner(&world, [1; 32]), Ok(alice));
    assert_eq!(owner(&world, other), Ok(UserKey::ROOT));
    world.as_user(alice, Change::DeleteToken { name: name("one") });
    assert_eq!(owner(&world, [1; 32]), Err(ErrorCode::InvalidPersonalAccessToken));
    assert_eq!(owner(&world, other), Ok(UserKey::ROOT));
}

#[test]
fn the_limit_of_tokens_comes_before_the_name() {
    let mut world = World::default();
    let alice = world.create_user("alice", None);
    let code = |outcome| match outcome {
        Outcome::Rejected(code) => code,
        Outcome::Applied(reply) => panic!("{reply:?}"),
    };
    world.as_user(alice, token("one", 1));
    let taken = code(world.as_user(alice, token("one", 2)));
    assert_eq!(taken, ErrorCode::PersonalAccessTokenAlreadyExists);
    world.as_user(alice, token("two", 2));
    let full = code(world.as_user(alice, token("one", 3)));
    assert_eq!(full, ErrorCode::PersonalAccessTokensLimitReached);
    let past = Change::CreateToken {
        name: name("past"),
        hash: TokenHash([9; 32]),
        expires: Some(Micros(world.now.0)),
        tokens_max: 100,
    };
    let past = code(world.as_user(alice, past));
    assert_eq!(past, ErrorCode::InvalidPersonalAccessTokenExpiry);
}

#[test]
fn a_token_is_given_once_and_its_duplicate_finds_the_name_taken() {
    let mut world = World::default();
    let client = world.root(1);
    let request = world.request(client);
    assert_eq!(world.resend(request, token("one", 1)), Outcome::Applied(Reply::Token));
    let again = world.resend(request, token("one", 2));
    assert_eq!(again, Outcome::Rejected(ErrorCode::PersonalAccessTokenAlreadyExists));
    assert_eq!(world.metadata.user(UserKey::ROOT).unwrap().tokens.len(), 1);
}

#[test]
fn creating_a_user_answers_with_what_was_given() {
    let mut world = World::default();
    let permissions = Some(Permissions::default());
    let create = CreateUser {
        name: name("alice"),
        password: hash("alice"),
        status: UserStatus::Inactive,
        permissions: permissions.clone(),
    };
    let reply = world.system_ok(Change::CreateUser(create));
    let expected = Reply::User {
        id: UserId(1),
        created: world.now,
        status: UserStatus::Inactive,
        name: name("alice"),
        permissions,
    };
    assert_eq!(reply, expected);
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?} {:?}", PasswordHash("geheim".to_owned()), TokenHash([0x5a; 32]));
    assert!(!shown.contains("geheim") && !shown.contains("90") && !shown.contains("5a"));
}
