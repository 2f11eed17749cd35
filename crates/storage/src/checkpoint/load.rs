//! Checkpoints at boot: the newest intact one of a log, and which files nobody needs.

use super::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINTS_KEPT, Checkpoint, CheckpointError, decode_header,
};
use crate::disk::{Directory, Disk, DiskError, FileName};
use borzoi_types::limits::CHECKPOINT_BYTES_MAX;
use borzoi_types::{LogId, Op};
use std::collections::BTreeMap;

/// What was found of one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The newest intact checkpoint; none if there is no checkpoint at all, or none is intact.
    pub checkpoint: Option<Checkpoint>,
    /// The one before it, as its header says; its content has not been read.
    pub older: Option<OlderCheckpoint>,
    /// Files that are not intact, newest first, to be reported and set aside.
    pub damaged: Vec<(FileName, CheckpointError)>,
}

/// A checkpoint that stands behind the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OlderCheckpoint {
    /// The last operation it contains.
    pub op: Op,
    /// Header checksum of that operation's prepare; 0 for the root.
    pub prepare_checksum: u128,
}

/// Why a log's checkpoints cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The disk did not answer.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A checkpoint of another version: this build must not touch the directory.
    #[error("{file}: {error}")]
    Version {
        /// Which file.
        file: FileName,
        /// The version found.
        error: CheckpointError,
    },
}

/// Reads the newest intact checkpoint of `log` and the header of the one before it, and changes
/// nothing.
///
/// What a start is built on must not vanish: the names of the checkpoints are made durable before
/// ([`Disk::sync_names`]); their contents were before they got these names.
///
/// Falling back to an older one is safe: the journal reaches back to it, and files that it names
/// and that were removed since belong to segments that the journal's operations truncate again.
///
/// # Errors
/// See [`LoadError`]. Damage is no error: what it means depends on what the journal holds.
pub fn load_newest(disk: &mut dyn Disk, log: LogId) -> Result<Loaded, LoadError> {
    let mut ops = ops_of(log, &disk.list(Directory::Checkpoints)?.files);
    let mut loaded = Loaded { checkpoint: None, older: None, damaged: Vec::new() };
    while loaded.older.is_none()
        && let Some(op) = ops.pop()
    {
        let file = FileName::Checkpoint { log, op };
        let read = match loaded.checkpoint {
            None => read_whole(disk, &file)?.map(|checkpoint| {
                assert!(checkpoint.log == log && checkpoint.op == op);
                loaded.checkpoint = Some(checkpoint);
            }),
            Some(_) => read_header(disk, &file)?.map(|older| {
                assert_eq!(older.op, op, "a file is named for its operation");
                loaded.older = Some(older);
            }),
        };
        match read {
            Ok(()) => {}
            Err(error @ CheckpointError::Version { .. }) => {
                return Err(LoadError::Version { file, error });
            }
            Err(error) => loaded.damaged.push((file, error)),
        }
    }
    let newest = loaded.checkpoint.as_ref().map(|checkpoint| checkpoint.op);
    assert!(loaded.older.is_none_or(|older| Some(older.op) < newest), "in falling order");
    Ok(loaded)
}

fn read_whole(
    disk: &mut dyn Disk,
    file: &FileName,
) -> Result<Result<Checkpoint, CheckpointError>, DiskError> {
    let bytes = disk.len(file)?.unwrap_or(0).min(CHECKPOINT_BYTES_MAX);
    let content = disk.read(file, 0, bytes)?;
    assert!(content.len() as u64 <= bytes);
    Ok(Checkpoint::decode(&content).and_then(|checkpoint| {
        let (log, op) = (checkpoint.log, checkpoint.op);
        let right = checkpoint.file() == *file;
        if right { Ok(checkpoint) } else { Err(CheckpointError::Misplaced { log, op }) }
    }))
}

fn read_header(
    disk: &mut dyn Disk,
    file: &FileName,
) -> Result<Result<OlderCheckpoint, CheckpointError>, DiskError> {
    let header = disk.read(file, 0, CHECKPOINT_HEADER_BYTES as u64)?;
    let bytes = disk.len(file)?.unwrap_or(0);
    Ok(decode_header(&header).and_then(|header| {
        let named = FileName::Checkpoint { log: header.log, op: header.op } == *file;
        if !named {
            return Err(CheckpointError::Misplaced { log: header.log, op: header.op });
        }
        if header.body_bytes.checked_add(CHECKPOINT_HEADER_BYTES as u64) != Some(bytes) {
            return Err(CheckpointError::Length);
        }
        Ok(OlderCheckpoint { op: header.op, prepare_checksum: header.prepare_checksum })
    }))
}

/// Whether `op` of `log` is contained in the newest intact checkpoint. For recovery, which asks
/// only about records that it cannot read; what it has read is kept in `known`.
pub(crate) fn covers(
    disk: &mut dyn Disk,
    known: &mut BTreeMap<LogId, Option<Op>>,
    log: LogId,
    op: Op,
) -> Result<bool, DiskError> {
    if let Some(through) = known.get(&log) {
        return Ok(through.is_some_and(|through| op <= through));
    }
    let through = match load_newest(disk, log) {
        Ok(loaded) => loaded.checkpoint.map(|checkpoint| checkpoint.op),
        Err(LoadError::Disk(error)) => return Err(error),
        // The start will refuse for this reason; until then nothing counts as contained.
        Err(LoadError::Version { .. }) => None,
    };
    let before = known.insert(log, through);
    assert!(before.is_none(), "each log is asked for once");
    Ok(through.is_some_and(|through| op <= through))
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
