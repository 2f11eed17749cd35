//! The last steps of a start: replicas run until they serve; files that nobody names are set aside.

use super::BootError;
use crate::back::Back;
use crate::shard::Shard;
use borzoi_storage::disk::{Directory, Disk, FileName, execute};
use borzoi_storage::recovery::Finding;
use borzoi_types::{LogId, Now, PartitionKey};

impl Back {
    /// Runs the shard's logs on a disk that answers at once, until all of them serve (a solo node)
    /// or nothing more can happen without peers. Everything but the journal's own requests is left
    /// for the shell.
    pub(super) fn run_to_serving(
        &mut self,
        now: Now,
        disk: &mut dyn Disk,
    ) -> Result<(), BootError> {
        self.start_logs(now);
        loop {
            let journal = self.boot_submissions();
            if journal.is_empty() {
                break;
            }
            for submission in journal {
                let result = execute(disk, &submission.request);
                if let Err(error) = &result {
                    return Err(BootError::Disk(error.clone()));
                }
                self.boot_disk(now, submission.ticket, result);
            }
        }
        if self.options().replica_count > 1 {
            return Ok(());
        }
        match self.first_not_serving() {
            Some(log) => Err(BootError::NotServing { log }),
            None => Ok(()),
        }
    }

    fn first_not_serving(&self) -> Option<LogId> {
        let metadata_missing = self.hosts_metadata() && !self.serves_metadata();
        let metadata = metadata_missing.then_some(LogId::METADATA);
        metadata
            .or_else(|| self.lanes().find(|lane| !lane.is_serving()).map(crate::lane::Lane::log))
    }
}

/// Moves segment files that no partition names out of the way: kept for a human, never deleted.
/// Returns what an operator should know.
pub(super) fn set_aside_unnamed(
    disk: &mut dyn Disk,
    shards: &[Shard],
) -> Result<Vec<Finding>, BootError> {
    let listing = disk.list(Directory::Segments)?;
    let mut findings = Vec::new();
    if !listing.strays.is_empty() {
        findings.push(Finding::Strays(listing.strays));
    }
    for file in listing.files {
        let key = match &file {
            FileName::Segment { key, .. } | FileName::SegmentIndex { key, .. } => *key,
            FileName::Unfinished(_) => {
                disk.remove(&file)?;
                continue;
            }
            _ => continue,
        };
        if !shards.iter().any(|shard| names(shard, key, &file)) {
            disk.set_aside(&file)?;
        }
    }
    Ok(findings)
}

fn names(shard: &Shard, key: PartitionKey, file: &FileName) -> bool {
    shard.back().lanes().any(|lane| lane.names_file(key, file))
}
