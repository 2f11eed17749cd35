//! Why a node does not start.

use crate::lane::checkpoint::LaneRestoreError;
use crate::lane::operation::OperationError;
use crate::lane::reservation::ReservationError;
use borzoi_consensus::{DecodeError, SettleError};
use borzoi_storage::checkpoint::LoadError;
use borzoi_storage::disk::DiskError;
use borzoi_storage::generation::{FormatError, GenerationError};
use borzoi_storage::recovery::RecoveryError;
use borzoi_types::{LogId, Op};

/// See the module. Every variant names what a human has to look at.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BootError {
    /// The directory could not be formatted.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The directory could not be read back.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The checkpoints of a log are not usable.
    #[error(transparent)]
    Checkpoint(#[from] LoadError),
    /// A log cannot start from what was found.
    #[error(transparent)]
    Settle(#[from] SettleError),
    /// The next generation could not begin.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The numbers of lanes are outside their limits.
    #[error("{persisted} persisted and {replicated} replicated lanes are not possible")]
    Lanes {
        /// Lanes of level persisted.
        persisted: u32,
        /// Lanes of level replicated.
        replicated: u32,
    },
    /// The metadata log has no checkpoint to start from.
    #[error(
        "no checkpoint of the metadata log is usable; damaged: [{damaged}]; nothing was changed: \
         put one of these files back from a backup of this directory, or move the directory away \
         to start empty"
    )]
    NoMetadata {
        /// The files that are damaged; none if there is none at all.
        damaged: String,
    },
    /// A log cannot start without checkpoints that are damaged.
    #[error(
        "{damaged} cannot be read, and what is left does not suffice: {reason}; nothing was \
         changed: put the file back from a backup of this directory, or restore all of it"
    )]
    CheckpointsDamaged {
        /// Which log.
        log: LogId,
        /// The files that are damaged, and how.
        damaged: String,
        /// What the log lacks without them.
        reason: String,
    },
    /// The metadata checkpoint, though intact, cannot be used.
    #[error("the metadata checkpoint cannot be used: {reason}")]
    Metadata {
        /// Why.
        reason: String,
    },
    /// A lane's checkpoint, though intact, cannot be used.
    #[error("the checkpoint of log {log} cannot be used: {error}")]
    Lane {
        /// Which lane.
        log: LogId,
        /// Why.
        error: LaneRestoreError,
    },
    /// A consensus record cannot be read: written by another build.
    #[error("a record of log {log} at operation {op} cannot be read: {error}")]
    Record {
        /// Which log.
        log: LogId,
        /// Which operation.
        op: Op,
        /// Why.
        error: DecodeError,
    },
    /// An operation of a lane cannot be read: written by another build.
    #[error("operation {op} of log {log} cannot be read: {error}")]
    Operation {
        /// Which log.
        log: LogId,
        /// Which operation.
        op: Op,
        /// Why.
        error: OperationError,
    },
    /// A reservation cannot be read: going on without it could hand offsets out twice.
    #[error("a reservation of log {log} cannot be read: {error}")]
    Reservation {
        /// Which log.
        log: LogId,
        /// Why.
        error: ReservationError,
    },
    /// An empty directory of a node that is not alone: the other nodes have to be asked first.
    #[error("an empty directory in a cluster of {replica_count}: its nodes have not formed yet")]
    NotFormed {
        /// Nodes of the cluster.
        replica_count: u8,
    },
    /// A log refused to serve although it has no peers.
    #[error("log {log} does not come to serve; please report this with the log")]
    NotServing {
        /// Which log.
        log: LogId,
    },
}
