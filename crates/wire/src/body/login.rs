//! Login (sections 4.2 and 4.3).
//!
//! ```text
//! protocol_version u32 | SDK name | SDK version |
//!   password form: user name, password (u8 length), context (u32 length)
//!   token form:    token (u8 length), context (u32 length)
//! ```
//!
//! The form is not marked: the password form is tried first and must fill the body, then the
//! token form. The version is judged before the rest is looked at.

use crate::codec::{DecodeError, Reader, Wire, wire_record};
use crate::frame::{EvictionReason, Reaction};
use crate::name::{Name, Secret, Text};
use crate::version::ProtocolVersion;
use borzoi_types::{SessionId, UserId};
use thiserror::Error;

wire_record! {
    /// Start of every login body, the same in all profiles with headers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClientVersion {
        /// Protocol version.
        pub protocol: ProtocolVersion,
        /// Name of the client library.
        pub sdk_name: Name,
        /// Version of the client library.
        pub sdk_version: Name,
    }
}

/// What a login proves an identity with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// User and password.
    Password {
        /// User name.
        user: Name,
        /// Password.
        password: Secret,
    },
    /// Access token.
    Token {
        /// The token.
        token: Secret,
    },
}

/// A login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// What the client speaks.
    pub version: ClientVersion,
    /// Who it says it is.
    pub credentials: Credentials,
    /// Free text; published clients send none.
    pub context: Text,
}

/// Why a login body is refused before credentials are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LoginError {
    /// The version at its start does not decode.
    #[error("the version of the login does not decode: {0}")]
    Version(DecodeError),
    /// The version is not one that is served.
    #[error("protocol version {0} is not served")]
    Incompatible(ProtocolVersion),
    /// What follows the version is neither form.
    #[error("the login holds neither user and password nor a token")]
    Malformed,
}

impl LoginError {
    /// How to answer.
    #[must_use]
    pub const fn reaction(self) -> Reaction {
        Reaction::Evict(match self {
            Self::Version(_) | Self::Malformed => EvictionReason::MalformedLogin,
            Self::Incompatible(_) => EvictionReason::IncompatibleProtocol,
        })
    }
}

impl Login {
    /// Decodes the body of a profile A login. Bytes behind a complete login are accepted when
    /// no form fills the body exactly.
    ///
    /// # Errors
    /// When the version does not decode or is not one of profile A, or nothing fits behind it.
    pub fn decode(body: &[u8]) -> Result<Self, LoginError> {
        let mut reader = Reader::new(body);
        let version = ClientVersion::read(&mut reader).map_err(LoginError::Version)?;
        if crate::Profile::for_version(version.protocol).is_none() {
            return Err(LoginError::Incompatible(version.protocol));
        }
        let forms = [read_password, read_token];
        let mut accepted = None;
        for form in forms {
            let mut rest = reader.clone();
            match form(&mut rest) {
                Ok(login) if rest.is_empty() => {
                    accepted = Some(login);
                    break;
                }
                Ok(login) => accepted = accepted.or(Some(login)),
                Err(_) => {}
            }
        }
        let (credentials, context) = accepted.ok_or(LoginError::Malformed)?;
        Ok(Self { version, credentials, context })
    }

    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.version.write(out);
        match &self.credentials {
            Credentials::Password { user, password } => {
                user.write(out);
                password.write(out);
            }
            Credentials::Token { token } => token.write(out),
        }
        self.context.write(out);
    }
}

fn read_password(reader: &mut Reader<'_>) -> Result<(Credentials, Text), DecodeError> {
    let user = Name::read(reader)?;
    let password = Secret::read(reader)?;
    Ok((Credentials::Password { user, password }, Text::read(reader)?))
}

fn read_token(reader: &mut Reader<'_>) -> Result<(Credentials, Text), DecodeError> {
    let token = Secret::read(reader)?;
    Ok((Credentials::Token { token }, Text::read(reader)?))
}

wire_record! {
    /// Answer to a login, behind the result section.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Identity {
        /// The user.
        pub user: UserId,
        /// The session, above 0.
        pub session: SessionId,
        /// Version of the protocol that the server speaks; informative.
        pub protocol: ProtocolVersion,
        /// Version of the server as text.
        pub server_version: Name,
    }
}
