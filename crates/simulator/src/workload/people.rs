//! Users, permissions, passwords, access tokens, ends of sessions.

use super::cx::{Cx, name, named};
use super::draft::Draft;
use crate::history::{Intent, State, TokenRec, UserRec};
use borzoi_wire::body::{
    ChangePassword, CreatePersonalAccessToken, CreateUser, DeletePersonalAccessToken, DeleteUser,
    GetUser, GlobalPermissions, Permissions, TokenLifetime, UpdatePermissions, UpdateUser,
    UserStatus,
};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{CommandCode, Request, Secret};

/// Users and tokens that there may be at once.
const PEOPLE_MAX: usize = 6;

fn password(text: &str) -> Secret {
    Secret::new(text).expect("a short password")
}

/// A user who may do everything but care for users.
fn permissions() -> Permissions {
    let global = GlobalPermissions {
        manage_servers: true,
        read_servers: true,
        manage_users: false,
        read_users: true,
        manage_streams: true,
        read_streams: true,
        manage_topics: true,
        read_topics: true,
        poll_messages: true,
        send_messages: true,
    };
    Permissions { global, streams: Vec::new() }
}

fn live_user(cx: &mut Cx<'_>) -> Option<usize> {
    let users = cx.history.users.iter().enumerate();
    let live: Vec<usize> =
        users.filter(|(_, user)| user.state == State::Live).map(|(at, _)| at).collect();
    if live.is_empty() { None } else { Some(*cx.dice.pick(&live)) }
}

/// Everything about users.
pub(super) fn users(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    match command {
        CommandCode::GetUsers => return Some(Draft::other(&Request::GetUsers)),
        CommandCode::CreateUser => return create_user(cx),
        _ => {}
    }
    let Some(at) = live_user(cx) else {
        let get = GetUser { user: named("iggy") };
        return (command == CommandCode::GetUser).then(|| Draft::other(&Request::GetUser(get)));
    };
    let user = named(&cx.history.users[at].name.clone());
    Some(match command {
        CommandCode::GetUser => Draft::other(&Request::GetUser(GetUser { user })),
        CommandCode::DeleteUser => {
            Draft::new(Intent::DeleteUser(at), &Request::DeleteUser(DeleteUser { user }))
        }
        CommandCode::UpdateUser => {
            let status = Some(UserStatus::Active);
            let options = TrailingOptions::default();
            let body = UpdateUser { user, name: None, status, options };
            Draft::other(&Request::UpdateUser(body))
        }
        CommandCode::UpdatePermissions => {
            let body = UpdatePermissions { user, permissions: Some(permissions()) };
            Draft::other(&Request::UpdatePermissions(body))
        }
        _ => {
            let new = format!("password-{}", cx.history.fresh_name());
            let current = password(&cx.history.users[at].password.clone());
            let body = ChangePassword { user, current, new: password(&new) };
            Draft::new(Intent::ChangePassword(at, new), &Request::ChangePassword(body))
        }
    })
}

fn create_user(cx: &mut Cx<'_>) -> Option<Draft> {
    let there = |user: &&UserRec| user.state != State::Gone;
    if cx.history.users.iter().filter(there).count() >= PEOPLE_MAX {
        return None;
    }
    let number = cx.history.fresh_name();
    let (user, secret) = (format!("user-{number}"), format!("password-{number}"));
    let body = CreateUser {
        name: name(&user),
        password: password(&secret),
        status: UserStatus::Active,
        permissions: Some(permissions()),
        options: TrailingOptions::default(),
    };
    let at = cx.history.users.len();
    cx.history.users.push(UserRec { name: user, password: secret, state: State::Coming });
    Some(Draft::new(Intent::CreateUser(at), &Request::CreateUser(body)))
}

/// Everything about access tokens. All are the caller's, so only workers that sign in as root
/// do this.
pub(super) fn tokens(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    match command {
        CommandCode::GetPersonalAccessTokens => {
            Some(Draft::other(&Request::GetPersonalAccessTokens))
        }
        CommandCode::CreatePersonalAccessToken => {
            let there = |token: &&TokenRec| token.state != State::Gone;
            if cx.history.tokens.iter().filter(there).count() >= PEOPLE_MAX {
                return None;
            }
            let text = format!("token-{}", cx.history.fresh_name());
            let at = cx.history.tokens.len();
            let (name, lifetime) = (name(&text), TokenLifetime::NEVER);
            cx.history.tokens.push(TokenRec { name: text, secret: None, state: State::Coming });
            let body = CreatePersonalAccessToken { name, lifetime };
            Some(Draft::new(Intent::CreateToken(at), &Request::CreatePersonalAccessToken(body)))
        }
        _ => {
            let live = |(at, token): (usize, &TokenRec)| (token.state == State::Live).then_some(at);
            let live: Vec<usize> = cx.history.tokens.iter().enumerate().filter_map(live).collect();
            if live.is_empty() {
                return None;
            }
            let at = *cx.dice.pick(&live);
            let name = name(&cx.history.tokens[at].name.clone());
            let body = DeletePersonalAccessToken { name };
            Some(Draft::new(Intent::DeleteToken(at), &Request::DeletePersonalAccessToken(body)))
        }
    }
}

/// Ends of sessions, and logins of the old protocol, which are refused.
pub(super) fn sessions(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    Some(match command {
        CommandCode::Logout => Draft::other(&Request::Logout),
        _ => super::malformed::legacy_login(command, cx),
    })
}
