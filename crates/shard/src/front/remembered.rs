//! Verified passwords, remembered as keyed hashes.
//!
//! Argon2 takes tens of milliseconds of a core; a storm of reconnecting clients would wait for
//! minutes. A password that was verified once is recognised by a keyed hash over the stored form
//! and the password: a changed password changes the stored form, so nothing needs to be
//! invalidated. The key is drawn at start and never leaves memory.
//!
//! Invariants: only successes are remembered; one entry per user; bounded by
//! [`REMEMBERED_PASSWORDS_MAX`]; comparison takes the same time wherever the bytes differ.

use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use borzoi_metadata::UserKey;
use borzoi_types::limits::REMEMBERED_PASSWORDS_MAX;
use std::collections::BTreeMap;

/// What was verified, per user. No `Debug`: it must not appear in a log.
pub(crate) struct RememberedPasswords {
    key: [u8; 32],
    by_user: BTreeMap<UserKey, Blake2sMac256>,
}

impl RememberedPasswords {
    /// Nothing remembered; `key` comes from the injected randomness.
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self { key, by_user: BTreeMap::new() }
    }

    /// Remembers that `password` was verified against `phc`, the stored form of `user`.
    pub(crate) fn remember(&mut self, user: UserKey, phc: &str, password: &[u8]) {
        if !self.by_user.contains_key(&user) && self.by_user.len() >= REMEMBERED_PASSWORDS_MAX {
            self.by_user.pop_first();
        }
        let mac = self.mac(phc, password);
        self.by_user.insert(user, mac);
    }

    /// Whether this very password was verified against this very stored form before.
    pub(crate) fn recognises(&self, user: UserKey, phc: &str, password: &[u8]) -> bool {
        let Some(known) = self.by_user.get(&user) else { return false };
        let known = known.clone().finalize().into_bytes();
        self.mac(phc, password).verify_slice(&known).is_ok()
    }

    fn mac(&self, phc: &str, password: &[u8]) -> Blake2sMac256 {
        let mut mac = <Blake2sMac256 as KeyInit>::new(&self.key.into());
        mac.update(&(phc.len() as u64).to_le_bytes());
        mac.update(phc.as_bytes());
        mac.update(password);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_password_for_the_same_stored_form_is_recognised() {
        let mut remembered = RememberedPasswords::new([7; 32]);
        assert!(!remembered.recognises(UserKey(1), "phc", b"secret"));
        remembered.remember(UserKey(1), "phc", b"secret");
        assert!(remembered.recognises(UserKey(1), "phc", b"secret"));
        assert!(!remembered.recognises(UserKey(1), "phc", b"Secret"));
        assert!(!remembered.recognises(UserKey(1), "phc2", b"secret"));
        assert!(!remembered.recognises(UserKey(2), "phc", b"secret"));
        assert!(!remembered.recognises(UserKey(1), "phcs", b"ecret"));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut remembered = RememberedPasswords::new([7; 32]);
        for user in 0..=REMEMBERED_PASSWORDS_MAX {
            remembered.remember(UserKey(user as u64), "phc", b"secret");
        }
        assert_eq!(remembered.by_user.len(), REMEMBERED_PASSWORDS_MAX);
    }
}
