//! Recovery: from a data directory to shards that are ready to run.

use crate::config::Settings;
use crate::credentials::RootCredentials;
use crate::random::SystemRandom;
use borzoi_metadata::{PasswordHash, TopicDefaults};
use borzoi_runtime::disk::FileDisk;
use borzoi_runtime::{Clock, password};
use borzoi_shard::boot::{BootOptions, BootSeams, NodeBoot, RootUser, boot as boot_node};
use borzoi_shard::front::{AdvertisedNode, FrontOptions};
use borzoi_shard::{Lanes, Random};
use borzoi_storage::cache::CacheOptions;
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sealing::Keyring;
use borzoi_types::limits::OUTPUT_HOLD_BYTES;
use borzoi_types::{Duration, ReplicaId, ShardId};
use borzoi_wire::Name;
use std::net::SocketAddr;

/// How long a request waits for its partition: shorter than any client's time-out.
const PARK_AGE_MAX: Duration = Duration::from_secs(2);

/// Why recovery refused.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The root user's password could not be hashed, or its name is not valid.
    #[error("the credentials of the root user cannot be used: {0}")]
    Root(String),
    /// See [`borzoi_shard::boot::BootError`].
    #[error("cannot start from the data directory: {0}")]
    Node(#[from] borzoi_shard::boot::BootError),
}

/// Formats the directory if it is empty, recovers what it holds, and makes the shards.
///
/// # Errors
/// [`BootError`]; nothing has been confirmed then.
pub fn boot(
    settings: &Settings,
    disk: &mut FileDisk,
    clock: &Clock,
    bound: SocketAddr,
    root: &RootCredentials,
    keys: Keyring,
) -> Result<NodeBoot, BootError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards = settings.shard_count(cores);
    let options = BootOptions { keys, ..options(settings, shards, bound) };
    let name = Name::new(root.username.as_str()).map_err(|e| BootError::Root(e.to_string()))?;
    let mut seams = Seams { name, password: root.password.0.clone() };
    let booted = boot_node(disk, &options, clock.now(), &mut seams)?;
    for finding in &booted.findings {
        tracing::warn!("found at recovery: {finding}");
    }
    let (generation, trusted) = (booted.generation, booted.trusted);
    tracing::info!(generation, trusted, formatted = booted.formatted, "recovered");
    Ok(booted)
}

fn options(settings: &Settings, shards: u16, bound: SocketAddr) -> BootOptions {
    BootOptions {
        replica: ReplicaId(0),
        replica_count: 1,
        formed: None,
        lanes: Lanes {
            persisted: u32::from(settings.lanes_persisted),
            replicated: u32::from(settings.lanes_replicated),
        },
        shards,
        journal: JournalOptions {
            file_bytes: settings.journal_file_bytes,
            files_max: settings.journal_files_max,
        },
        cache: CacheOptions {
            chunk_bytes_max: usize::try_from(settings.cache_bytes_per_shard).unwrap_or(usize::MAX),
            ..CacheOptions::default()
        },
        offset_reservation_lease: settings.offset_reservation_lease,
        checkpoint_interval: nanos(settings.checkpoint_interval),
        park_age_max: PARK_AGE_MAX,
        retention_interval: settings.retention_enabled.then(|| nanos(settings.retention_interval)),
        keys: Keyring::default(),
        front: front(settings, bound),
    }
}

fn nanos(span: std::time::Duration) -> Duration {
    Duration(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn front(settings: &Settings, bound: SocketAddr) -> FrontOptions {
    let advertised = match settings.tcp_advertised_address.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().unwrap_or(bound.port())),
        None => (reachable(bound), bound.port()),
    };
    let defaults = FrontOptions::default();
    FrontOptions {
        cluster_name: settings.cluster_name.clone(),
        node: AdvertisedNode { address: advertised.0, tcp: advertised.1, ..defaults.node.clone() },
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        topic_defaults: TopicDefaults { durability: settings.durability },
        output_hold_bytes: OUTPUT_HOLD_BYTES,
        ..defaults
    }
}

/// The bound address as clients can use it. One that means "all of them" is none.
fn reachable(bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() { "127.0.0.1".to_owned() } else { bound.ip().to_string() }
}

struct Seams {
    name: Name,
    password: String,
}

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        let mut salt = [0; 16];
        SystemRandom::new().fill(&mut salt);
        let hash = password::hash(self.password.as_bytes(), &salt)
            .expect("the password was checked to be within Argon2's limits");
        RootUser { name: self.name.clone(), password: PasswordHash(hash) }
    }

    fn random(&mut self, _shard: ShardId) -> Box<dyn Random> {
        Box::new(SystemRandom::new())
    }
}
