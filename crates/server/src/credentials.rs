//! The root user's name and password at the first start of a data directory.
//!
//! They come from the environment; if it names neither, a password is generated and shown once.
//! What the environment says is checked at every start, also when it is not used any more, so
//! that a broken deployment is noticed before the day its volume is new.

use borzoi_shard::event::Secret;
use rand::Rng as _;
use std::collections::BTreeMap;

/// Name of the root user when none is given.
pub const DEFAULT_USERNAME: &str = "iggy";
/// Password with `--with-default-root-credentials`: known to everybody.
const DEFAULT_PASSWORD: &str = "iggy";
/// Bytes of a user name.
const USERNAME_BYTES: std::ops::RangeInclusive<usize> = 3..=50;
/// Bytes of a password.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;
/// Characters of a generated password: 142 bits.
const GENERATED_CHARACTERS: usize = 24;
/// Letters and digits that are not mistaken for each other.
const ALPHABET: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// The first user.
pub struct RootCredentials {
    /// Name.
    pub username: String,
    /// Password.
    pub password: Secret,
    /// Whether the password must be shown, because nobody knows it.
    pub is_generated: bool,
}

/// Why they cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialsError {
    /// One without the other.
    #[error("{present} is set and {missing} is not; set both or neither")]
    OnlyOne {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// A length that no client can send.
    #[error("{variable} has {bytes} bytes; allowed are {min} to {max}")]
    Length {
        /// The variable.
        variable: &'static str,
        /// Its length.
        bytes: usize,
        /// Fewest bytes.
        min: usize,
        /// Most bytes.
        max: usize,
    },
}

/// Reads the credentials from the environment. `use_default` fills in what is missing with the
/// pair that everybody knows.
///
/// # Errors
/// When the environment holds half of them or something that is not allowed.
pub fn root_credentials(
    environment: &BTreeMap<String, String>,
    use_default: bool,
) -> Result<RootCredentials, CredentialsError> {
    let [name_variable, password_variable] = variables(environment);
    let get = |variable| environment.get(variable).filter(|value| !value.is_empty()).cloned();
    let (name, password) = (get(name_variable), get(password_variable));
    let (present, missing) = match (&name, &password) {
        (Some(_), None) => (name_variable, password_variable),
        (None, Some(_)) => (password_variable, name_variable),
        _ => ("", ""),
    };
    if !present.is_empty() && !use_default {
        return Err(CredentialsError::OnlyOne { present, missing });
    }
    let is_generated = password.is_none() && !use_default;
    let username = name.unwrap_or_else(|| DEFAULT_USERNAME.to_owned());
    let password = match password {
        Some(password) => password,
        None if use_default => DEFAULT_PASSWORD.to_owned(),
        None => generate(),
    };
    check(name_variable, &username, &USERNAME_BYTES)?;
    check(password_variable, &password, &PASSWORD_BYTES)?;
    Ok(RootCredentials { username, password: Secret(password), is_generated })
}

/// Borzoi's own variables if one of them is set, else those of the reference system.
fn variables(environment: &BTreeMap<String, String>) -> [&'static str; 2] {
    let own = ["BORZOI_ROOT_USERNAME", "BORZOI_ROOT_PASSWORD"];
    let aliases = ["IGGY_ROOT_USERNAME", "IGGY_ROOT_PASSWORD"];
    let is_set = |variable: &&str| environment.get(*variable).is_some_and(|v| !v.is_empty());
    if own.iter().any(is_set) || !aliases.iter().any(is_set) { own } else { aliases }
}

fn check(
    variable: &'static str,
    value: &str,
    bytes: &std::ops::RangeInclusive<usize>,
) -> Result<(), CredentialsError> {
    if bytes.contains(&value.len()) {
        return Ok(());
    }
    let (min, max) = (*bytes.start(), *bytes.end());
    Err(CredentialsError::Length { variable, bytes: value.len(), min, max })
}

fn generate() -> String {
    let mut random = rand::rng();
    (0..GENERATED_CHARACTERS)
        .map(|_| char::from(ALPHABET[random.random_range(0..ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        variables: &[(&str, &str)],
        use_default: bool,
    ) -> Result<RootCredentials, CredentialsError> {
        let environment =
            variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        root_credentials(&environment, use_default)
    }

    #[test]
    fn without_variables_a_password_is_generated_and_the_known_pair_needs_a_flag() {
        let generated = read(&[], false).unwrap();
        assert!(generated.is_generated);
        assert_eq!(generated.username, "iggy");
        assert_eq!(generated.password.0.len(), GENERATED_CHARACTERS);
        assert_ne!(generated.password, read(&[], false).unwrap().password);
        let known = read(&[], true).unwrap();
        assert!(!known.is_generated);
        assert_eq!((known.username.as_str(), known.password.0.as_str()), ("iggy", "iggy"));
    }

    #[test]
    fn own_variables_win_over_those_of_the_reference_system() {
        let aliases = [("IGGY_ROOT_USERNAME", "ann"), ("IGGY_ROOT_PASSWORD", "secret1")];
        assert_eq!(read(&aliases, false).unwrap().username, "ann");
        let own = [("BORZOI_ROOT_USERNAME", "bob"), ("BORZOI_ROOT_PASSWORD", "secret2")];
        let both = read(&[aliases, own].concat(), false).unwrap();
        assert_eq!((both.username.as_str(), both.password.0.as_str()), ("bob", "secret2"));
        assert!(!both.is_generated);
    }

    #[test]
    fn half_of_them_and_impossible_lengths_refuse_the_start() {
        let only = read(&[("BORZOI_ROOT_PASSWORD", "secret")], false).err().unwrap();
        assert!(only.to_string().contains("BORZOI_ROOT_USERNAME is not"), "{only}");
        assert!(read(&[("BORZOI_ROOT_PASSWORD", "secret")], true).is_ok());
        let name = |name: &str| {
            read(&[("BORZOI_ROOT_USERNAME", name), ("BORZOI_ROOT_PASSWORD", "secret")], false)
        };
        assert!(name("ab").is_err() && name("abc").is_ok());
        assert!(name(&"x".repeat(50)).is_ok() && name(&"x".repeat(51)).is_err());
    }
}
