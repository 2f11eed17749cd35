//! Commands on users and access tokens.

use crate::access::Action;
use crate::apply::{Applied, Context};
use crate::command::CreateUser;
use crate::identity::{PasswordHash, TokenHash, UserKey};
use crate::outcome::{Notice, Reply};
use crate::permissions::Permissions;
use crate::state::Metadata;
use crate::streams::lowest_free;
use crate::users::{Token, User};
use crate::validate::{check_password_hash, check_permissions, check_token_name, check_user_name};
use borzoi_types::limits::{TOKENS_PER_USER_MAX, USERS_MAX};
use borzoi_types::{ClientId, Micros, UserId};
use borzoi_wire::body::UserStatus;
use borzoi_wire::{ErrorCode, Identifier, Name};
use std::collections::BTreeMap;

/// Users.
impl Metadata {
    fn user_mut(&mut self, key: UserKey) -> &mut User {
        self.users.get_mut(&key).expect("resolved by the caller")
    }

    pub(crate) fn create_user(&mut self, context: &Context, create: &CreateUser) -> Applied {
        self.require(context, Action::CreateUser)?;
        check_user_name(&create.name)?;
        check_password_hash(&create.password)?;
        check_permissions(create.permissions.as_ref())?;
        if self.user_names.contains_key(&create.name) {
            return Err(ErrorCode::UserAlreadyExists);
        }
        if self.users.len() >= USERS_MAX {
            return Err(ErrorCode::UsersLimitReached);
        }
        let key = self.next_user;
        self.next_user = UserKey(key.0 + 1);
        let user = User {
            key,
            id: UserId(lowest_free(&self.user_ids, |id| id.0)),
            name: create.name.clone(),
            password: create.password.clone(),
            status: create.status,
            permissions: create.permissions.clone(),
            created: context.now,
            tokens: BTreeMap::new(),
        };
        let reply = Reply::User {
            id: user.id,
            created: user.created,
            status: user.status,
            name: user.name.clone(),
            permissions: user.permissions.clone(),
        };
        self.user_ids.insert(user.id, key);
        self.user_names.insert(user.name.clone(), key);
        self.users.insert(key, user);
        Ok(reply)
    }

    pub(crate) fn update_user(
        &mut self,
        context: &Context,
        user: &Identifier,
        name: Option<&Name>,
        status: Option<UserStatus>,
    ) -> Applied {
        let found = self.find_user(user)?;
        let (key, is_root) = (found.key, found.is_root());
        self.require(context, Action::UpdateUser(key))?;
        if let Some(name) = name {
            check_user_name(name)?;
            if self.user_names.get(name).is_some_and(|holder| *holder != key) {
                return Err(ErrorCode::UserAlreadyExists);
            }
        }
        if is_root && status == Some(UserStatus::Inactive) {
            return Err(ErrorCode::InvalidUserStatus);
        }
        if let Some(name) = name {
            let old = core::mem::replace(&mut self.user_mut(key).name, name.clone());
            self.user_names.remove(&old);
            self.user_names.insert(name.clone(), key);
        }
        if let Some(status) = status {
            self.user_mut(key).status = status;
        }
        self.notices.push(Notice::UserChanged(key));
        Ok(Reply::Nothing)
    }

    pub(crate) fn delete_user(&mut self, context: &Context, user: &Identifier) -> Applied {
        let found = self.find_user(user)?;
        let (key, is_root) = (found.key, found.is_root());
        self.require(context, Action::DeleteUser(key))?;
        if is_root {
            return Err(ErrorCode::CannotDeleteUser);
        }
        let names: Vec<Name> = self.user_mut(key).tokens.keys().cloned().collect();
        for name in names {
            self.remove_token(key, &name);
        }
        let sessions = self.sessions.iter().filter(|session| session.user == key);
        let clients: Vec<ClientId> = sessions.map(|session| session.client).collect();
        self.end_sessions(&clients);
        let user = self.users.remove(&key).expect("found above");
        self.user_ids.remove(&user.id);
        self.user_names.remove(&user.name);
        self.notices.push(Notice::UserDeleted(key));
        Ok(Reply::Nothing)
    }

    pub(crate) fn update_permissions(
        &mut self,
        context: &Context,
        user: &Identifier,
        permissions: Option<&Permissions>,
    ) -> Applied {
        let found = self.find_user(user)?;
        let (key, is_root) = (found.key, found.is_root());
        self.require(context, Action::UpdatePermissions(key))?;
        if is_root {
            return Err(ErrorCode::CannotChangePermissions);
        }
        check_permissions(permissions)?;
        self.user_mut(key).permissions = permissions.cloned();
        self.notices.push(Notice::UserChanged(key));
        Ok(Reply::Nothing)
    }

    pub(crate) fn change_password(
        &mut self,
        context: &Context,
        user: &Identifier,
        verified: &PasswordHash,
        password: &PasswordHash,
    ) -> Applied {
        let found = self.find_user(user)?;
        let (key, is_current) = (found.key, found.password == *verified);
        self.require(context, Action::ChangePassword(key))?;
        check_password_hash(password)?;
        if !is_current {
            return Err(ErrorCode::InvalidCredentials);
        }
        self.user_mut(key).password = password.clone();
        self.notices.push(Notice::UserChanged(key));
        Ok(Reply::Nothing)
    }
}

/// Access tokens.
impl Metadata {
    pub(crate) fn create_token(
        &mut self,
        context: &Context,
        name: &Name,
        hash: TokenHash,
        expires: Option<Micros>,
        tokens_max: u32,
    ) -> Applied {
        self.require(context, Action::CreateToken)?;
        let owner = context.user.ok_or(ErrorCode::Unauthenticated)?;
        check_token_name(name)?;
        let tokens = &self.user_mut(owner).tokens;
        let limit = usize::try_from(tokens_max.min(TOKENS_PER_USER_MAX)).unwrap_or(usize::MAX);
        if tokens.len() >= limit {
            return Err(ErrorCode::PersonalAccessTokensLimitReached);
        }
        if tokens.contains_key(name) || self.find_token(&hash).is_some() {
            return Err(ErrorCode::PersonalAccessTokenAlreadyExists);
        }
        if expires.is_some_and(|expires| expires <= context.now) {
            return Err(ErrorCode::InvalidPersonalAccessTokenExpiry);
        }
        self.tokens.entry(hash.prefix()).or_default().push((owner, name.clone()));
        self.user_mut(owner).tokens.insert(name.clone(), Token { hash, expires });
        Ok(Reply::Token)
    }

    pub(crate) fn delete_token(&mut self, context: &Context, name: &Name) -> Applied {
        self.require(context, Action::DeleteToken)?;
        let owner = context.user.ok_or(ErrorCode::Unauthenticated)?;
        if self.remove_token(owner, name) {
            Ok(Reply::Nothing)
        } else {
            Err(ErrorCode::ResourceNotFound)
        }
    }

    pub(crate) fn expire_tokens(&mut self, context: &Context) {
        let mut expired: Vec<(UserKey, Name)> = Vec::new();
        for user in self.users.values() {
            let tokens = user.tokens.iter().filter(|(_, token)| token.is_expired(context.now));
            expired.extend(tokens.map(|(name, _)| (user.key, name.clone())));
        }
        for (owner, name) in expired {
            self.remove_token(owner, &name);
        }
    }

    fn remove_token(&mut self, owner: UserKey, name: &Name) -> bool {
        let Some(token) = self.user_mut(owner).tokens.remove(name) else { return false };
        let prefix = token.hash.prefix();
        let places = self.tokens.get_mut(&prefix).expect("a token is in the index");
        places.retain(|place| *place != (owner, name.clone()));
        if places.is_empty() {
            self.tokens.remove(&prefix);
        }
        self.notices.push(Notice::TokenDeleted { user: owner, hash: token.hash });
        true
    }
}
