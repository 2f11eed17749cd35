//! The encryption keys of a data directory: what is configured must be what its data needs.
//!
//! `<data>/encryption` names every key that messages of the directory were ever encrypted with, and
//! a value by which each is recognised:
//!
//! ```text
//! borzoi encryption keys 1
//! 1 3fd0c2...   (number, check value in hexadecimal)
//! ```
//!
//! It is checked at every start, so that a missing or a wrong key is found then and not by the
//! first reader. A key is written down, durably, before anything is encrypted with it. The file
//! holds no secret. Losing it costs the check, not the data.

use crate::config::Settings;
use borzoi_storage::sealing::Keyring;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "encryption";
const FIRST_LINE: &str = "borzoi encryption keys 1";

/// Why the keys do not fit the data.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// Data needs a key that is not configured.
    #[error(
        "messages in this data directory are encrypted with key {number}, which is not given; \
         add it to encryption.keys or encryption.keys_file (or, if no data needs it any more, \
         remove its line from {file})"
    )]
    Missing {
        /// Its number.
        number: u32,
        /// The file that names it.
        file: String,
    },
    /// The configured key is not the one that was used.
    #[error(
        "key {number} of encryption.keys or encryption.keys_file is not the key with which \
         messages in this data directory are encrypted ({file}); give that one, and a new key a \
         new number"
    )]
    Wrong {
        /// Its number.
        number: u32,
        /// The file that names it.
        file: String,
    },
    /// The file is something else.
    #[error("{file}, line {line}: not a key and its check value; restore it or remove the file")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
    },
    /// The file cannot be read or written.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The keys of `settings`, after checking them against what the data directory needs and noting
/// the one that is used from now on.
///
/// # Errors
/// [`EncryptionError`]; nothing has been encrypted then.
pub fn keyring(settings: &Settings) -> Result<Keyring, EncryptionError> {
    let active = settings.encrypting_key();
    let keys = Keyring::new(settings.encryption_keys.0.clone(), active);
    let path = settings.data_directory.join(FILE_NAME);
    let file = path.display().to_string();
    let failed = |source| EncryptionError::Io { file: file.clone(), source };
    let mut known = read(&path)?;
    for (number, check) in &known {
        let (number, file) = (*number, file.clone());
        match keys.check_value(number).map(hexadecimal) {
            None => return Err(EncryptionError::Missing { number, file }),
            Some(value) if value != *check => return Err(EncryptionError::Wrong { number, file }),
            Some(_) => {}
        }
    }
    if let Some((number, check)) = active.and_then(|n| Some((n, keys.check_value(n)?)))
        && known.insert(number, hexadecimal(check)).is_none()
    {
        write(&path, &known).map_err(failed)?;
        tracing::info!(key = number, "messages are encrypted with a new key from now on");
    }
    Ok(keys)
}

/// Forgets which keys were used: the directory has just been emptied.
///
/// # Errors
/// Those of the file system.
pub fn forget(data_directory: &Path) -> io::Result<()> {
    match fs::remove_file(data_directory.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<BTreeMap<u32, String>, EncryptionError> {
    let file = || path.display().to_string();
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other.map_err(|source| EncryptionError::Io { file: file(), source })?,
    };
    let mut known = BTreeMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        let entry = content.split_once(' ').and_then(|(number, check)| {
            let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
            let valid = check.len() == 32 && check.bytes().all(|byte| byte.is_ascii_hexdigit());
            valid.then(|| (number, check.to_owned()))
        });
        match entry {
            Some((number, check)) if line > 1 => known.insert(number, check),
            None if line == 1 && content == FIRST_LINE => None,
            _ => return Err(EncryptionError::Line { file: file(), line }),
        };
    }
    Ok(known)
}

fn write(path: &Path, known: &BTreeMap<u32, String>) -> io::Result<()> {
    let mut text = format!("{FIRST_LINE}\n");
    for (number, check) in known {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number} {check}");
    }
    // Beside the other files of the runtime: the top of the data directory has known names only.
    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let beside: PathBuf = directory.join("runtime").join(format!("{FILE_NAME}.new"));
    fs::create_dir_all(directory.join("runtime"))?;
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory)?.sync_all()
}

fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for byte in bytes.as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EncryptionKeys, Sources};

    fn settings(directory: &Path, keys: &[(u32, u8)], enabled: bool) -> Settings {
        let (mut settings, _) = Settings::load(&Sources::default()).unwrap();
        settings.data_directory = directory.to_owned();
        settings.encryption_enabled = enabled;
        settings.encryption_keys =
            EncryptionKeys(keys.iter().map(|(number, byte)| (*number, [*byte; 32])).collect());
        settings
    }

    fn refused(settings: &Settings) -> String {
        keyring(settings).unwrap_err().to_string()
    }

    #[test]
    fn every_key_that_was_used_must_be_there_and_be_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(keyring(&settings(path, &[], false)).unwrap().active(), None);
        assert!(!path.join(FILE_NAME).exists(), "no trace where nothing is encrypted");
        assert_eq!(keyring(&settings(path, &[(1, 1)], true)).unwrap().active(), Some(1));
        let rotated = settings(path, &[(1, 1), (2, 2)], true);
        assert_eq!(keyring(&rotated).unwrap().active(), Some(2));
        let text = fs::read_to_string(path.join(FILE_NAME)).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(refused(&settings(path, &[(2, 2)], true)).contains("key 1, which is not given"));
        assert!(refused(&settings(path, &[], false)).contains("key 1"));
        let wrong = refused(&settings(path, &[(1, 1), (2, 9)], true));
        assert!(wrong.contains("key 2") && wrong.contains("is not the key"), "{wrong}");
        let off = keyring(&settings(path, &[(1, 1), (2, 2)], false)).unwrap();
        assert_eq!(off.active(), None);
        forget(path).unwrap();
        forget(path).unwrap();
        assert!(keyring(&settings(path, &[], false)).is_ok());
    }

    #[test]
    fn a_file_that_is_something_else_is_refused_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let check = "0".repeat(32);
        for (text, line) in [
            ("other\n".to_owned(), 1),
            (format!("1 {check}\n"), 1),
            (format!("{FIRST_LINE}\n0 {check}\n"), 2),
            (format!("{FIRST_LINE}\n1 {check}\n2 {}\n", &check[1..]), 3),
        ] {
            fs::write(directory.path().join(FILE_NAME), text).unwrap();
            let message = refused(&settings(directory.path(), &[(1, 1)], true));
            assert!(message.contains(&format!("line {line}")), "{message}");
        }
    }
}
