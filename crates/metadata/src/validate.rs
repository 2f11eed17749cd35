//! What is refused before the log: shapes and limits that no state could make right. The answer is
//! a deny, not a rejection (wire protocol, section 9.1).

use crate::apply_topics::check_partition_count;
use crate::command::{Change, Command, Issuer};
use crate::identity::PasswordHash;
use crate::permissions::Permissions;
use crate::state::Metadata;
use borzoi_types::limits::{
    PARTITIONS_PER_REQUEST_MAX, PASSWORD_BYTES_MAX, PASSWORD_BYTES_MIN, PASSWORD_HASH_BYTES_MAX,
    PERMISSION_ENTRIES_MAX, TOKEN_NAME_BYTES_MAX, TOKEN_NAME_BYTES_MIN, USER_NAME_BYTES_MAX,
    USER_NAME_BYTES_MIN,
};
use borzoi_wire::{ErrorCode, Name};

impl Metadata {
    /// Checks a command before it is proposed. What passes applies on every replica, to a
    /// rejection at worst; a command that was not checked does too, only its refusal comes later.
    ///
    /// # Errors
    /// 2015, 4042, 43, 50, 52, 4, or 1019 for an update whose topic is known.
    pub fn validate(&self, command: &Command) -> Result<(), ErrorCode> {
        match &command.change {
            Change::CreateTopic(create) => {
                if create.partitions > PARTITIONS_PER_REQUEST_MAX {
                    return Err(ErrorCode::TooManyPartitions);
                }
                let fits = create.options.preallocation_fits(create.partitions);
                if fits { Ok(()) } else { Err(ErrorCode::InvalidOptionValue) }
            }
            Change::UpdateTopic(update) => match self.find_topic(&update.stream, &update.topic) {
                Ok((_, topic)) => topic.options.updated(&update.options).map(drop),
                Err(_) => Ok(()),
            },
            Change::CreatePartitions { count, .. } | Change::DeletePartitions { count, .. } => {
                check_partition_count(*count)
            }
            Change::CreateUser(create) => {
                check_user_name(&create.name)?;
                check_password_hash(&create.password)?;
                check_permissions(create.permissions.as_ref())
            }
            Change::UpdateUser { name, .. } => name.as_ref().map_or(Ok(()), check_user_name),
            Change::UpdatePermissions { permissions, .. } => {
                check_permissions(permissions.as_ref())
            }
            Change::ChangePassword { password, .. } => check_password_hash(password),
            Change::CreateToken { name, tokens_max, .. } => {
                check_token_name(name)?;
                self.check_token_room(&command.issuer, *tokens_max)
            }
            _ => Ok(()),
        }
    }

    fn check_token_room(&self, issuer: &Issuer, tokens_max: u32) -> Result<(), ErrorCode> {
        let user = match issuer {
            Issuer::System => None,
            Issuer::User(user) => Some(*user),
            Issuer::Client(request) => {
                self.sessions().get(request.client).map(|session| session.user)
            }
        };
        let held = user.and_then(|user| self.user(user)).map_or(0, |user| user.tokens.len());
        let limit = usize::try_from(tokens_max).unwrap_or(usize::MAX);
        if held >= limit { Err(ErrorCode::PersonalAccessTokensLimitReached) } else { Ok(()) }
    }
}

/// 43 unless a user name has 3 to 50 bytes.
pub(crate) fn check_user_name(name: &Name) -> Result<(), ErrorCode> {
    let fits = (USER_NAME_BYTES_MIN..=USER_NAME_BYTES_MAX).contains(&name.as_str().len());
    if fits { Ok(()) } else { Err(ErrorCode::InvalidUsername) }
}

/// 50 unless the name of a token has 3 to 30 bytes.
pub(crate) fn check_token_name(name: &Name) -> Result<(), ErrorCode> {
    let fits = (TOKEN_NAME_BYTES_MIN..=TOKEN_NAME_BYTES_MAX).contains(&name.as_str().len());
    if fits { Ok(()) } else { Err(ErrorCode::InvalidPersonalAccessTokenName) }
}

/// 4 for permissions that name too many streams and topics.
pub(crate) fn check_permissions(permissions: Option<&Permissions>) -> Result<(), ErrorCode> {
    let entries = permissions.map_or(0, Permissions::entries);
    if entries <= PERMISSION_ENTRIES_MAX { Ok(()) } else { Err(ErrorCode::InvalidFormat) }
}

/// 44 for a hash that no password could have.
pub(crate) const fn check_password_hash(hash: &PasswordHash) -> Result<(), ErrorCode> {
    if hash.0.is_empty() || hash.0.len() > PASSWORD_HASH_BYTES_MAX {
        return Err(ErrorCode::InvalidPassword);
    }
    Ok(())
}

/// Checks a clear password before it is hashed.
///
/// # Errors
/// 44 unless it has 3 to 100 bytes.
pub fn check_password(password: &str) -> Result<(), ErrorCode> {
    let fits = (PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.len());
    if fits { Ok(()) } else { Err(ErrorCode::InvalidPassword) }
}
