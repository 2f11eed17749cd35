//! From a data directory to running shards: straight-line code over a disk that answers at once.
//!
//! ```text
//! format if empty ─▶ recover ─▶ load checkpoints ─▶ settle every log ─▶ begin generation g + 1
//!                                                            (one durable switch) │
//!                  shards ◀─ set aside what nobody names ◀─ run until serving ◀─ start replicas
//! ```
//!
//! Every start takes this path, also with another number of shards, so it is as well tested as
//! anything. Nothing is answered, voted or deleted before the switch; a crash before it starts over
//! from the old generation, one after it from the new.
//!
//! Crash argument for reservations. A start that cannot trust its tail (on one node: every start
//! that no clean stop went before) owes every partition of a `replicated` lane a jump over what was
//! reserved. The debt itself is carried into the new
//! generation (`frontier` raised to the reservation), because the new generation is trusted by the
//! next start: a crash before the jump is in the log finds the debt, one after it finds the jump.
//! The record stands above the log's head, so that no checkpoint taken before the jump releases it.

mod error;
pub mod formation;
mod logs;
mod run;

pub use error::BootError;
pub use formation::{Beginning, Formation, FormationEvent, begin};

use crate::back::metadata_log::MetadataLog;
use crate::back::shared::Shared;
use crate::back::{Back, BackParts};
use crate::checkpointer::Checkpointer;
use crate::front::{Front, FrontOptions};
use crate::lane::{Lane, LaneBoot};
use crate::log_host::LogHost;
use crate::options::{Lanes, ShardOptions};
use crate::random::Random;
use crate::shard::Shard;
use borzoi_consensus::{Anchor, Options as ReplicaOptions, Timeouts};
use borzoi_metadata::{Genesis, Layout, Metadata, PasswordHash};
use borzoi_storage::cache::{CacheOptions, SegmentCache};
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_storage::generation::{FormatOptions, GenerationOptions, begin_generation, format};
use borzoi_storage::journal::{Journal, JournalOptions};
use borzoi_storage::recovery::{Finding, Recovered, RecoveryError, recover};
use borzoi_storage::sealing::Keyring;
use borzoi_storage::superblock::Superblock;
use borzoi_types::{ClusterId, Duration, LogId, Now, Op, ReplicaId, ShardId, View};
use borzoi_wire::Name;
use logs::{BootLog, clean_checkpoints, read_logs};
use std::collections::{BTreeMap, BTreeSet};

/// The user that a formatted cluster starts with.
#[derive(Clone, Debug)]
pub struct RootUser {
    /// Its name.
    pub name: Name,
    /// The hash of its password.
    pub password: PasswordHash,
}

/// What a node is told at boot.
#[derive(Clone, Debug)]
pub struct BootOptions {
    /// This node, when the directory is to be formatted.
    pub replica: ReplicaId,
    /// Nodes of the cluster, when the directory is to be formatted.
    pub replica_count: u8,
    /// Lanes of the cluster, when the directory is to be formatted.
    pub lanes: Lanes,
    /// What the nodes of the cluster have agreed on, when the directory is to be formatted. A solo
    /// node agrees with itself.
    pub formed: Option<Formed>,
    /// Shards of this start.
    pub shards: u16,
    /// Sizes of each shard's journal.
    pub journal: JournalOptions,
    /// Budgets of each shard's segment cache.
    pub cache: CacheOptions,
    /// See [`ShardOptions::offset_reservation_lease`].
    pub offset_reservation_lease: u64,
    /// See [`ShardOptions::checkpoint_interval`].
    pub checkpoint_interval: Duration,
    /// See [`ShardOptions::park_age_max`].
    pub park_age_max: Duration,
    /// See [`ShardOptions::retention_interval`].
    pub retention_interval: Option<Duration>,
    /// Keys for batches at rest.
    pub keys: Keyring,
    /// For the fronts; shard, shards, replica and generation are filled in.
    pub front: FrontOptions,
}

impl BootOptions {
    /// A solo node with `shards` shards and defaults for the rest.
    #[must_use]
    pub fn solo(shards: u16) -> Self {
        Self {
            replica: ReplicaId(0),
            replica_count: 1,
            lanes: Lanes { persisted: 8, replicated: 8 },
            formed: None,
            shards,
            journal: JournalOptions::default(),
            cache: CacheOptions::default(),
            offset_reservation_lease: borzoi_types::limits::OFFSET_RESERVATION_LEASE_DEFAULT,
            checkpoint_interval: Duration::from_secs(60),
            park_age_max: Duration::from_secs(2),
            retention_interval: Some(Duration::from_secs(60)),
            keys: Keyring::default(),
            front: FrontOptions::default(),
        }
    }
}

/// What nodes agree on before one of them is formatted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Formed {
    /// The incarnation of the cluster.
    pub cluster: ClusterId,
    /// For a node that joins a cluster: the view of each log that it begins in.
    pub views: BTreeMap<LogId, View>,
}

impl Formed {
    /// Every node of the roster is new, and each will carry this incarnation.
    #[must_use]
    pub const fn founded(cluster: ClusterId) -> Self {
        Self { cluster, views: BTreeMap::new() }
    }
}

/// A node that has started.
pub struct NodeBoot {
    /// Its shards, by number. Their first effects leave with their first batch, which
    /// [`Shard::deadline`] asks for at once.
    pub shards: Vec<Shard>,
    /// Whether the directory was formatted by this start.
    pub formatted: bool,
    /// The generation that this start began.
    pub generation: u64,
    /// Whether the end of the previous life is known to be complete.
    pub trusted: bool,
    /// What an operator should know.
    pub findings: Vec<Finding>,
}

/// What boot needs from outside the core beside the disk.
pub trait BootSeams {
    /// The root user, asked for only when the directory is formatted.
    fn root_user(&mut self) -> RootUser;
    /// The randomness of one shard; also asked for a new cluster's identity.
    fn random(&mut self, shard: ShardId) -> Box<dyn Random>;
}

/// Opens or formats a data directory and starts its shards.
///
/// # Errors
/// [`BootError`], with nothing confirmed and, before the switch of generations, nothing changed.
pub fn boot(
    disk: &mut dyn Disk,
    options: &BootOptions,
    now: Now,
    seams: &mut dyn BootSeams,
) -> Result<NodeBoot, BootError> {
    assert!(options.shards > 0, "a node has at least one shard");
    let mut random = seams.random(ShardId(0));
    let (recovered, formatted) = open(disk, options, &mut *random)?;
    let superblock = &recovered.superblock;
    let lanes = Lanes {
        persisted: u32::from(superblock.lanes_persisted),
        replicated: u32::from(superblock.lanes_replicated),
    };
    if superblock.generation == 0 {
        write_genesis(disk, lanes, superblock.is_solo(), seams)?;
    }
    let mut logs = read_logs(disk, &recovered, lanes)?;
    if superblock.generation == 0
        && let Some(formed) = &options.formed
    {
        logs.values_mut().for_each(|log| log.join(&formed.views));
    }
    if superblock.generation == 0 {
        logs.values_mut().for_each(BootLog::note_first_life);
    }
    let carried = carry(&logs, options.shards);
    let solo = superblock.replica_count == 1;
    let generation = GenerationOptions {
        shards: options.shards,
        journal: options.journal,
        must_learn: if solo { BTreeSet::new() } else { must_learn(&logs) },
        salt_seed: random.next_u64(),
    };
    let journals = begin_generation(disk, &recovered, &generation, carried)?.journals;
    assert_eq!(journals.len(), usize::from(options.shards));
    let metadata = restore_metadata(&logs, lanes)?;
    let mut findings = recovered.findings.clone();
    findings.extend(clean_checkpoints(disk, &logs)?);
    let mut shards = Vec::with_capacity(journals.len());
    let mut started = Starting { options, recovered: &recovered, lanes, now, logs: &mut logs };
    for (journal, shard) in journals.into_iter().zip((0..).map(ShardId)) {
        let mut random = seams.random(shard);
        let mut back = started.back(shard, journal, &mut *random)?;
        back.run_to_serving(now, disk)?;
        let front = Front::new(started.front_options(shard), metadata.clone(), random);
        shards.push(Shard::new(front, back));
    }
    findings.extend(run::set_aside_unnamed(disk, &shards)?);
    Ok(NodeBoot {
        shards,
        formatted,
        generation: recovered.superblock.generation + 1,
        trusted: recovered.trusted,
        findings,
    })
}

/// Recovers the directory, formatting it first if it is empty.
fn open(
    disk: &mut dyn Disk,
    options: &BootOptions,
    random: &mut dyn Random,
) -> Result<(Recovered, bool), BootError> {
    match recover(disk) {
        Err(RecoveryError::NotFormatted) => {}
        recovered => return Ok((recovered?, false)),
    }
    let lanes = |count: u32| u16::try_from(count).expect("limited to LANES_MAX");
    let minted = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let cluster = match &options.formed {
        Some(formed) => formed.cluster,
        None if options.replica_count == 1 => ClusterId(minted.max(1)),
        None => return Err(BootError::NotFormed { replica_count: options.replica_count }),
    };
    let wanted = FormatOptions {
        cluster,
        replica: options.replica,
        replica_count: options.replica_count,
        lanes_persisted: lanes(options.lanes.persisted),
        lanes_replicated: lanes(options.lanes.replicated),
        must_learn: BTreeSet::new(),
    };
    format(disk, &wanted)?;
    Ok((recover(disk)?, true))
}

/// The first checkpoint of the metadata log: the state that its first operation finds. Written
/// before the first generation begins, so that it never depends on later configuration.
fn write_genesis(
    disk: &mut dyn Disk,
    lanes: Lanes,
    solo: bool,
    seams: &mut dyn BootSeams,
) -> Result<(), BootError> {
    let checkpoints = disk.list(Directory::Checkpoints)?.files;
    let metadata =
        |file: &FileName| matches!(file, FileName::Checkpoint { log, .. } if log.is_metadata());
    if !solo && checkpoints.iter().any(metadata) {
        return Ok(()); // What the nodes agreed on.
    }
    // A start before this one may have died before the superblock's name was durable. Nothing may
    // outlive it: data without a superblock looks like one that was lost.
    disk.sync(&FileName::Superblock)?;
    let checkpoint = genesis(lanes, seams)?;
    let parts = checkpoint.encode();
    disk.durable_replace(&checkpoint.file(), parts.parts())?;
    Ok(())
}

/// The metadata that a cluster begins with.
fn genesis(lanes: Lanes, seams: &mut dyn BootSeams) -> Result<Checkpoint, BootError> {
    let root = seams.root_user();
    let layout = Layout { persisted: lanes.persisted, replicated: lanes.replicated };
    if !layout.is_valid() {
        return Err(BootError::Lanes { persisted: lanes.persisted, replicated: lanes.replicated });
    }
    let genesis = Genesis { layout, root_name: root.name, root_password: root.password };
    let metadata = Metadata::format(genesis);
    Ok(Checkpoint {
        log: LogId::METADATA,
        op: Op::ZERO,
        prepare_checksum: 0,
        owner: metadata.encode_snapshot().into(),
        partitions: Vec::new(),
    })
}

/// Per shard, what the new generation holds from the start.
fn carry(
    logs: &BTreeMap<LogId, BootLog>,
    shards: u16,
) -> Vec<Vec<borzoi_storage::journal::JournalRecord>> {
    let mut carried = vec![Vec::new(); usize::from(shards)];
    for (log, boot) in logs {
        boot.carry(&mut carried[usize::from(log.shard(shards).0)]);
    }
    carried
}

/// Logs whose acknowledged operations may be missing here: they learn from a peer before they vote.
/// Their first record in the new generation says so too; the record that a log writes once it has
/// learned is what clears the mark.
fn must_learn(logs: &BTreeMap<LogId, BootLog>) -> BTreeSet<LogId> {
    let marked = logs.iter().filter(|(_, boot)| boot.settled.view_state.must_learn);
    marked.map(|(log, _)| *log).collect()
}

fn restore_metadata(logs: &BTreeMap<LogId, BootLog>, lanes: Lanes) -> Result<Metadata, BootError> {
    let log = logs.get(&LogId::METADATA).expect("every log is read");
    let checkpoint = log.checkpoint.as_ref().expect("without one the log was refused");
    let metadata = Metadata::decode_snapshot(&checkpoint.owner.to_bytes())
        .map_err(|error| BootError::Metadata { reason: error.to_string() })?;
    let layout = Layout { persisted: lanes.persisted, replicated: lanes.replicated };
    if *metadata.layout() != layout || metadata.applied() != checkpoint.op {
        let reason = "it does not belong to this directory".to_owned();
        return Err(BootError::Metadata { reason });
    }
    Ok(metadata)
}

/// What starting one shard after the other needs.
struct Starting<'a> {
    options: &'a BootOptions,
    recovered: &'a Recovered,
    lanes: Lanes,
    now: Now,
    logs: &'a mut BTreeMap<LogId, BootLog>,
}

impl Starting<'_> {
    fn shard_options(&self, shard: ShardId) -> ShardOptions {
        let superblock = &self.recovered.superblock;
        ShardOptions {
            cluster: superblock.cluster,
            replica: superblock.replica,
            replica_count: superblock.replica_count,
            shard,
            shards: self.options.shards,
            generation: life_of(superblock),
            lanes: self.lanes,
            offset_reservation_lease: self.options.offset_reservation_lease,
            checkpoint_interval: self.options.checkpoint_interval,
            park_age_max: self.options.park_age_max,
            retention_interval: self.options.retention_interval,
            keys: self.options.keys.clone(),
        }
    }

    fn front_options(&self, shard: ShardId) -> FrontOptions {
        let superblock = &self.recovered.superblock;
        FrontOptions {
            shard,
            shards: self.options.shards,
            replica: superblock.replica,
            replica_count: superblock.replica_count,
            generation: life_of(superblock),
            ..self.options.front.clone()
        }
    }

    fn back(
        &mut self,
        shard: ShardId,
        journal: Journal,
        random: &mut dyn Random,
    ) -> Result<Back, BootError> {
        let options = self.shard_options(shard);
        let mut lanes = BTreeMap::new();
        let mut metadata = None;
        let mut durable = Vec::new();
        let hosted: Vec<LogId> =
            self.lanes.logs().filter(|log| log.shard(options.shards) == shard).collect();
        for log in hosted {
            let boot = self.logs.remove(&log).expect("every log is read, and started once");
            durable.extend(boot.kept.iter().map(|op| (log, *op)));
            if log.is_metadata() {
                let (host, applied) = self.host(&options, log, boot, random).0;
                metadata = Some(MetadataLog::new(host, applied));
                continue;
            }
            let ((host, applied), rest) = self.host(&options, log, boot, random);
            lanes.insert(
                log,
                Lane::new(LaneBoot {
                    level: self.lanes.durability(log),
                    lease: options.offset_reservation_lease,
                    host,
                    state: rest.state,
                    applied,
                    reservations: rest.reservations,
                }),
            );
        }
        let checkpointer = Checkpointer::new(options.checkpoint_interval, &durable);
        let shared = Shared::new(options, journal, SegmentCache::new(self.options.cache));
        Ok(Back::new(BackParts { shared, lanes, metadata, checkpointer }))
    }

    fn host(
        &self,
        options: &ShardOptions,
        log: LogId,
        boot: BootLog,
        random: &mut dyn Random,
    ) -> ((LogHost, Anchor), logs::LaneRest) {
        let replica = ReplicaOptions {
            cluster: options.cluster,
            log,
            replica: options.replica,
            replica_count: options.replica_count,
            preferred_primary: preferred_primary(log, options.replica_count),
            timeouts: Timeouts::standard(),
            accept_loss: false,
        };
        let level = self.lanes.durability(log);
        let applied = boot.settled.base;
        let seed = random.next_u64();
        let mut host = LogHost::start(replica, level, boot.settled, self.now.mono, seed);
        host.note_timestamp(boot.rest.timestamp);
        ((host, applied), boot.rest)
    }
}

/// The number of this life of the node, in the order of its lives: the epoch above the generation.
fn life_of(superblock: &Superblock) -> u64 {
    u64::from(superblock.epoch) << 32 | (superblock.generation + 1)
}

/// Lanes spread over the nodes by their numbers, so that every node leads its share.
fn preferred_primary(log: LogId, replica_count: u8) -> ReplicaId {
    assert!(replica_count > 0);
    let index = log.0 % u32::from(replica_count);
    ReplicaId(u8::try_from(index).expect("below a u8 by the modulo"))
}
