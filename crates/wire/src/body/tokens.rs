//! Personal access tokens (section 9.5).

use crate::codec::{number_newtypes, wire_record};
use crate::name::Name;
use borzoi_types::Micros;

/// How long a token is valid, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TokenLifetime(pub u64);
number_newtypes!(TokenLifetime(u64));

impl TokenLifetime {
    /// For ever.
    pub const NEVER: Self = Self(u64::MAX);

    /// The lifetime in microseconds; `None` when the token never expires (0 or all ones).
    #[must_use]
    pub const fn micros(self) -> Option<u64> {
        match self.0 {
            0 | u64::MAX => None,
            micros => Some(micros),
        }
    }
}

wire_record! {
    /// Creates an access token of the caller.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct CreatePersonalAccessToken {
        /// Name of the token; 3 to 30 bytes are allowed.
        pub name: Name,
        /// How long it is valid.
        pub lifetime: TokenLifetime,
    }
}

wire_record! {
    /// Deletes an access token of the caller.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeletePersonalAccessToken {
        /// Name of the token.
        pub name: Name,
    }
}

wire_record! {
    /// An access token, without its secret.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct TokenRecord {
        /// Name.
        pub name: Name,
        /// When it ends to be valid; 0 when never.
        pub expiry: Micros,
    }
}
