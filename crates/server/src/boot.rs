//! Recovery: from a data directory to shards that are ready to run.

use crate::config::Settings;
use crate::credentials::RootCredentials;
use borzoi_runtime::Clock;
use borzoi_runtime::disk::FileDisk;
use borzoi_shard::Shard;
use std::net::SocketAddr;

/// What recovery made.
pub struct Booted {
    /// The shards, by number.
    pub shards: Vec<Shard>,
    /// Whether the directory was formatted now.
    pub is_first_start: bool,
}

/// Why recovery refused.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Not connected to recovery yet.
    #[error("recovery is not connected yet")]
    Pending,
}

/// Formats the directory if it is empty, recovers what it holds, and makes the shards.
///
/// # Errors
/// [`BootError`].
pub fn boot(
    _settings: &Settings,
    _disk: &mut FileDisk,
    _clock: &Clock,
    _bound: SocketAddr,
    _root: &RootCredentials,
) -> Result<Booted, BootError> {
    Err(BootError::Pending)
}
