//! Checkpoints at boot: the newest intact one of a log, and which files nobody needs.

use super::{CHECKPOINTS_KEPT, Checkpoint, CheckpointError};
use crate::disk::{Directory, Disk, DiskError, FileName};
use borzoi_types::limits::CHECKPOINT_BYTES_MAX;
use borzoi_types::{LogId, Op};

/// What was found of one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The newest intact checkpoint; none if there is no checkpoint at all.
    pub checkpoint: Option<Checkpoint>,
    /// Newer files that are not intact, to be reported and set aside.
    pub damaged: Vec<(FileName, CheckpointError)>,
}

/// Why a log's checkpoints cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The disk did not answer.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There are checkpoints, and none is intact: the log's state is not known.
    #[error("no checkpoint of log {log} is intact; the newest is {file}: {error}")]
    NoneIntact {
        /// Which log.
        log: LogId,
        /// The newest file.
        file: FileName,
        /// What is wrong with it.
        error: CheckpointError,
    },
    /// A checkpoint of another version: this build must not touch the directory.
    #[error("{file}: {error}")]
    Version {
        /// Which file.
        file: FileName,
        /// The version found.
        error: CheckpointError,
    },
}

/// Reads the newest intact checkpoint of `log` and makes sure that it is durable.
///
/// Falling back to an older one is safe: the journal reaches back to it, and files that it names
/// and that were removed since belong to segments that the journal's operations truncate again.
///
/// # Errors
/// See [`LoadError`].
pub fn load_newest(disk: &mut dyn Disk, log: LogId) -> Result<Loaded, LoadError> {
    let mut ops = ops_of(log, &disk.list(Directory::Checkpoints)?.files);
    let mut damaged = Vec::new();
    ops.reverse();
    for op in ops {
        let file = FileName::Checkpoint { log, op };
        let bytes = disk.len(&file)?.unwrap_or(0).min(CHECKPOINT_BYTES_MAX);
        let content = disk.read(&file, 0, bytes)?;
        assert!(content.len() as u64 <= bytes);
        let decoded = Checkpoint::decode(&content).and_then(|checkpoint| {
            let (log, op) = (checkpoint.log, checkpoint.op);
            let right = checkpoint.file() == file;
            if right { Ok(checkpoint) } else { Err(CheckpointError::Misplaced { log, op }) }
        });
        match decoded {
            Ok(checkpoint) => {
                assert!(checkpoint.log == log && checkpoint.op == op);
                // A process that was killed between renaming and syncing the directory left a name
                // that a power loss can take back. What the start is built on must not vanish.
                disk.sync(&file)?;
                return Ok(Loaded { checkpoint: Some(checkpoint), damaged });
            }
            Err(error @ CheckpointError::Version { .. }) => {
                return Err(LoadError::Version { file, error });
            }
            Err(error) => damaged.push((file, error)),
        }
    }
    match damaged.into_iter().next() {
        None => Ok(Loaded { checkpoint: None, damaged: Vec::new() }),
        Some((file, error)) => Err(LoadError::NoneIntact { log, file, error }),
    }
}

/// Which of `files` are checkpoints of `log` that go once the one at `newest` is durable: all but
/// the newest two up to it.
#[must_use]
pub fn obsolete(log: LogId, newest: Op, files: &[FileName]) -> Vec<FileName> {
    let mut ops = ops_of(log, files);
    ops.retain(|op| *op <= newest);
    assert!(ops.is_sorted());
    let kept_from = ops.len().saturating_sub(CHECKPOINTS_KEPT);
    ops.truncate(kept_from);
    assert!(!ops.contains(&newest), "the newest is never among them");
    ops.into_iter().map(|op| FileName::Checkpoint { log, op }).collect()
}

/// Operations of the checkpoints of `log`, rising.
fn ops_of(log: LogId, files: &[FileName]) -> Vec<Op> {
    let mut ops: Vec<Op> = files
        .iter()
        .filter_map(|file| match file {
            FileName::Checkpoint { log: of, op } if *of == log => Some(*op),
            _ => None,
        })
        .collect();
    ops.sort_unstable();
    assert!(ops.windows(2).all(|pair| pair[0] < pair[1]), "names are unique");
    ops
}
