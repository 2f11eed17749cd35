//! What can go wrong with a disk, as data.

use super::FileName;
use core::fmt;

/// The operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskOperation {
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making bytes durable.
    Sync,
    /// Creating a file.
    Create,
    /// Replacing a file whole.
    Replace,
    /// Unlinking a file.
    Remove,
    /// Moving a file to the set-aside directory.
    SetAside,
    /// Reading a directory.
    List,
    /// Asking for length, identity or free space.
    Inspect,
    /// Opening or locking the data directory.
    Open,
}

/// Why it failed, as far as callers decide by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DiskErrorKind {
    /// No space, no quota, or no inode left. Writing may work again later.
    NoSpace,
    /// The device or file system reported an error.
    Io,
    /// There is no such file.
    NotFound,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The process may not do this.
    PermissionDenied,
    /// Another process holds the lock of the data directory.
    Locked,
    /// Too many open files. Passes.
    TooManyOpen,
    /// The simulated machine has crashed: nothing works until a new disk is made of the image.
    Crashed,
}

/// One failed operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskError {
    /// What was attempted.
    pub operation: DiskOperation,
    /// On which file; `None` for the data directory itself.
    pub file: Option<FileName>,
    /// Why it failed.
    pub kind: DiskErrorKind,
    /// The system's own words, for the log.
    pub detail: String,
}

impl DiskError {
    /// An error about `file`.
    #[must_use]
    pub fn new(
        operation: DiskOperation,
        file: &FileName,
        kind: DiskErrorKind,
        detail: impl Into<String>,
    ) -> Self {
        Self { operation, file: Some(file.clone()), kind, detail: detail.into() }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.operation {
            DiskOperation::Read => "reading",
            DiskOperation::Write => "writing",
            DiskOperation::Sync => "syncing",
            DiskOperation::Create => "creating",
            DiskOperation::Replace => "replacing",
            DiskOperation::Remove => "removing",
            DiskOperation::SetAside => "setting aside",
            DiskOperation::List => "listing",
            DiskOperation::Inspect => "inspecting",
            DiskOperation::Open => "opening",
        };
        let reason = match self.kind {
            DiskErrorKind::NoSpace => "no space left",
            DiskErrorKind::Io => "input/output error",
            DiskErrorKind::NotFound => "not found",
            DiskErrorKind::ReadOnly => "read-only file system",
            DiskErrorKind::PermissionDenied => "permission denied",
            DiskErrorKind::Locked => "locked by another process",
            DiskErrorKind::TooManyOpen => "too many open files",
            DiskErrorKind::Crashed => "the simulated machine has crashed",
        };
        match &self.file {
            Some(file) => write!(f, "{verb} {file}: {reason}")?,
            None => write!(f, "{verb} the data directory: {reason}")?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl std::error::Error for DiskError {}
