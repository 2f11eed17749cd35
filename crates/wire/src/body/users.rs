//! Users (section 9.5).

use super::permissions::{self, Permissions};
use crate::codec::{DecodeError, Reader, Wire, wire_enum, wire_record};
use crate::identifier::Identifier;
use crate::name::{Name, Secret};
use crate::options::{Options, TrailingOptions};
use borzoi_types::{Micros, UserId};

wire_enum! {
    /// Whether a user may sign in.
    pub enum UserStatus("user status") {
        /// It may.
        Active = 1,
        /// It may not.
        Inactive = 2,
    }
}

wire_record! {
    /// Asks for a user and its permissions.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GetUser {
        /// The user.
        pub user: Identifier,
    }
}

/// Creates a user.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateUser {
    /// User name; 3 to 50 bytes are allowed.
    pub name: Name,
    /// Password; 3 to 100 bytes are allowed.
    pub password: Secret,
    /// Whether it may sign in. Unknown bytes count as active.
    pub status: UserStatus,
    /// Its permissions.
    pub permissions: Option<Permissions>,
    /// Options; profile A knows none for users.
    pub options: TrailingOptions,
}

impl Wire<'_> for CreateUser {
    const BYTES_MIN: usize = 5;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: Wire::read(reader)?,
            password: Wire::read(reader)?,
            status: UserStatus::from_byte(reader.u8("user status")?).unwrap_or(UserStatus::Active),
            permissions: permissions::read_optional(reader)?,
            options: Wire::read(reader)?,
        })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.name.write(out);
        self.password.write(out);
        self.status.write(out);
        permissions::write_optional(self.permissions.as_ref(), out);
        self.options.write(out);
    }
}

wire_record! {
    /// Deletes a user.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeleteUser {
        /// The user.
        pub user: Identifier,
    }
}

/// Renames, enables or disables a user.
#[derive(Clone, PartialEq, Debug)]
pub struct UpdateUser {
    /// The user.
    pub user: Identifier,
    /// New name, if it changes.
    pub name: Option<Name>,
    /// New status, if it changes.
    pub status: Option<UserStatus>,
    /// Options; profile A knows none for users.
    pub options: TrailingOptions,
}

impl Wire<'_> for UpdateUser {
    const BYTES_MIN: usize = Identifier::BYTES_MIN + 2;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            user: Wire::read(reader)?,
            name: read_flagged(reader, "has name")?,
            status: read_flagged(reader, "has status")?,
            options: Wire::read(reader)?,
        })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.user.write(out);
        write_flagged(self.name.as_ref(), out);
        write_flagged(self.status.as_ref(), out);
        self.options.write(out);
    }
}

fn read_flagged<'a, T: Wire<'a>>(
    reader: &mut Reader<'a>,
    what: &'static str,
) -> Result<Option<T>, DecodeError> {
    if reader.flag(what)? { T::read(reader).map(Some) } else { Ok(None) }
}

fn write_flagged<'a, T: Wire<'a>>(value: Option<&T>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        value.write(out);
    }
}

/// Replaces the permissions of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdatePermissions {
    /// The user.
    pub user: Identifier,
    /// Its new permissions; none takes them all away.
    pub permissions: Option<Permissions>,
}

impl Wire<'_> for UpdatePermissions {
    const BYTES_MIN: usize = Identifier::BYTES_MIN + 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let user = Wire::read(reader)?;
        Ok(Self { user, permissions: permissions::read_optional(reader)? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.user.write(out);
        permissions::write_optional(self.permissions.as_ref(), out);
    }
}

wire_record! {
    /// Changes a password.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ChangePassword {
        /// The user.
        pub user: Identifier,
        /// Password as it is.
        pub current: Secret,
        /// Password as it will be; 3 to 100 bytes are allowed.
        pub new: Secret,
    }
}

wire_record! {
    /// A user without its permissions.
    #[derive(Clone, PartialEq, Debug)]
    pub struct UserRecord {
        /// Number; 0 is root.
        pub id: UserId,
        /// Time of creation.
        pub created: Micros,
        /// Whether it may sign in.
        pub status: UserStatus,
        /// User name.
        pub name: Name,
        /// Options.
        pub options: Options,
    }
}

/// A user with its permissions.
#[derive(Clone, PartialEq, Debug)]
pub struct UserDetails {
    /// The user.
    pub user: UserRecord,
    /// Its permissions.
    pub permissions: Option<Permissions>,
}

impl Wire<'_> for UserDetails {
    const BYTES_MIN: usize = UserRecord::BYTES_MIN + 4;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let user = UserRecord::read(reader)?;
        Ok(Self { user, permissions: permissions::read_in_reply(reader)? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.user.write(out);
        permissions::write_in_reply(self.permissions.as_ref(), out);
    }
}
