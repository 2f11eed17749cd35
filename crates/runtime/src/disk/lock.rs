//! The data directory as a whole: whose it is, and that only one process uses it.
//!
//! Opening refuses, naming what is wrong, rather than guessing: a directory that holds somebody
//! else's files is left exactly as it was found.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process holds the lock.
    #[error(
        "data directory {path} is in use by another server (process {pid}); \
         stop it or choose another data directory"
    )]
    Locked {
        /// The directory.
        path: String,
        /// What the other process wrote into the lock file: its process id.
        pid: String,
    },
    /// The path exists and is something else.
    #[error("data directory {path} is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// The file system or the permissions forbid writing.
    #[error("data directory {path} is read-only or not writable by this user: {source}")]
    ReadOnly {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// There are files, but no Borzoi has ever run here.
    #[error(
        "directory {path} holds files that are not Borzoi's ({examples}); \
         choose an empty directory or one that Borzoi created"
    )]
    NotOurs {
        /// The directory.
        path: String,
        /// Up to three names.
        examples: String,
    },
    /// Anything else the system answered.
    #[error("data directory {path}: {source}")]
    Io {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// First line of the lock file: marks the directory as Borzoi's.
const MARK: &str = "borzoi data directory";

/// Holds the lock for as long as it lives.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    /// Names in the directory that Borzoi does not know; left alone and worth a warning.
    pub strays: Vec<String>,
}

impl Drop for DirectoryLock {
    /// Unlocks by name, not by closing: a child process that is being started holds a copy of the
    /// descriptor for a moment, and the lock with it.
    fn drop(&mut self) {
        // Without success the lock ends with the last copy of the descriptor.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Creates `directory` if it is missing, checks that it is usable and locks it.
/// `is_known` tells whether Borzoi uses a name at the top of a data directory.
///
/// # Errors
/// Each way in which the directory is unusable; nothing has been changed then.
pub fn lock(
    directory: &Path,
    lock_file: &Path,
    is_known: impl Fn(&str) -> bool,
) -> Result<DirectoryLock, DirectoryError> {
    let shown = || directory.display().to_string();
    if !directory.exists() {
        super::handles::create_directories(directory)
            .map_err(|error| classify(directory, error))?;
    }
    if !directory.is_dir() {
        return Err(DirectoryError::NotADirectory { path: shown() });
    }
    let strays = strays(directory, is_known).map_err(|error| classify(directory, error))?;
    let path = directory.join(lock_file);
    if !path.exists() && !strays.is_empty() {
        let examples = strays.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        return Err(DirectoryError::NotOurs { path: shown(), examples });
    }
    let file = open_lock_file(&path).map_err(|error| classify(directory, error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(DirectoryError::Locked { path: shown(), pid: holder(&path) });
        }
        Err(error) => return Err(classify(directory, error.into())),
    }
    write_holder(&file).map_err(|error| classify(directory, error))?;
    Ok(DirectoryLock { file, strays })
}

fn open_lock_file(path: &PathBuf) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?))
}

fn write_holder(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{MARK}\n{}", std::process::id())?;
    file.sync_all()
}

fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_string(&mut text));
    match (read, text.lines().nth(1)) {
        (Ok(_), Some(pid)) if !pid.trim().is_empty() => pid.trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn strays(directory: &Path, is_known: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut strays = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A fresh ext4 volume has this directory of its own.
        if name != "lost+found" && !is_known(&name) {
            strays.push(name);
        }
    }
    strays.sort();
    Ok(strays)
}

fn classify(directory: &Path, source: io::Error) -> DirectoryError {
    let path = directory.display().to_string();
    match source.kind() {
        io::ErrorKind::NotADirectory => DirectoryError::NotADirectory { path },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            DirectoryError::ReadOnly { path, source }
        }
        _ => DirectoryError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> bool {
        name == "lock" || name == "journal"
    }

    #[test]
    fn a_second_lock_names_the_process_that_holds_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("deep/data");
        let held = lock(&data, Path::new("lock"), known).unwrap();
        assert!(held.strays.is_empty());
        let error = lock(&data, Path::new("lock"), known).unwrap_err();
        let pid = std::process::id().to_string();
        assert!(error.to_string().contains(&pid), "{error}");
        drop(held);
        lock(&data, Path::new("lock"), known).unwrap();
    }

    #[test]
    fn files_of_another_program_are_refused_and_strays_beside_ours_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        std::fs::write(data.join("thesis.tex"), "mine").unwrap();
        let error = lock(data, Path::new("lock"), known).unwrap_err();
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert!(!data.join("lock").exists(), "left as it was found");
        std::fs::remove_file(data.join("thesis.tex")).unwrap();
        drop(lock(data, Path::new("lock"), known).unwrap());
        std::fs::write(data.join("thesis.tex"), "mine").unwrap();
        let held = lock(data, Path::new("lock"), known).unwrap();
        assert_eq!(held.strays, ["thesis.tex"]);
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let error = lock(&path, Path::new("lock"), known).unwrap_err();
        assert!(matches!(error, DirectoryError::NotADirectory { .. }), "{error}");
        let below = lock(&path.join("data"), Path::new("lock"), known).unwrap_err();
        assert!(matches!(below, DirectoryError::NotADirectory { .. }), "{below}");
    }
}
