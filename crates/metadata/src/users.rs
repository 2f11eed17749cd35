//! Users and their access tokens.
//!
//! Invariants: names and visible numbers are unique; root has key 0 and number 0, is active and is
//! never deleted; keys are never reused; a token's hash is in the index exactly while its user and
//! name exist.

use crate::codec::{Codec, DecodeError, Input, codec_struct};
use crate::identity::{PasswordHash, TokenHash, UserKey};
use crate::permissions::Permissions;
use borzoi_types::{Micros, UserId};
use borzoi_wire::Name;
use borzoi_wire::body::UserStatus;
use std::collections::BTreeMap;

/// Creation time of root: a fixed value, the same on every replica.
pub const ROOT_CREATED: Micros = Micros(0);

impl Codec for UserStatus {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let byte = u8::get(input)?;
        let bad = DecodeError::Value { what: "user status", value: u64::from(byte) };
        Self::from_byte(byte).ok_or(bad)
    }
}

/// An access token; the token itself is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Hash of the token.
    pub hash: TokenHash,
    /// When it ends to be valid; never when absent.
    pub expires: Option<Micros>,
}

codec_struct!(Token { hash, expires });

impl Token {
    /// Whether it is no longer valid at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Micros) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// A user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its never-reused identity.
    pub key: UserKey,
    /// Its visible number.
    pub id: UserId,
    /// Its name.
    pub name: Name,
    /// Hash of its password.
    pub password: PasswordHash,
    /// Active or not.
    pub status: UserStatus,
    /// What it may do; nothing when absent. Root's are not looked at.
    pub permissions: Option<Permissions>,
    /// When it was created.
    pub created: Micros,
    /// Its tokens by name.
    pub tokens: BTreeMap<Name, Token>,
}

codec_struct!(User { key, id, name, password, status, permissions, created, tokens });

impl User {
    /// Whether this is root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.key == UserKey::ROOT
    }

    /// Whether the user may sign in and act.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.status == UserStatus::Active
    }
}
