//! Diagnostic archives (wire protocol, code 11): asked for here, made by the shell off the loop.
//!
//! Invariant: at most [`ARCHIVES_IN_FLIGHT_MAX`] are being made for one shard; each request is
//! answered once, with the archive, a refusal, or 9000.

use super::reads::or_return;
use super::request::{Caller, Known, Step};
use super::{Cx, Front};
use crate::event::{ArchiveJob, ArchiveTicket, Effect};
use borzoi_metadata::Action;
use borzoi_types::limits::ARCHIVES_IN_FLIGHT_MAX;
use borzoi_wire::body::{Archive, GetSnapshot, SnapshotCompression, SnapshotContent};
use borzoi_wire::{ErrorCode, Reply};
use bytes::Bytes;

impl Front {
    pub(super) fn get_snapshot(
        &mut self,
        caller: &Caller,
        known: Known<'_>,
        request: &GetSnapshot,
        cx: &mut Cx<'_>,
    ) -> Step {
        or_return!(self.authorise(caller, known, Action::GetSnapshot));
        let job = match job_of(request) {
            Ok(job) => job,
            Err(code) => return self.deny(caller, code),
        };
        if self.archives.len() >= ARCHIVES_IN_FLIGHT_MAX {
            return self.transient(&caller.to, ErrorCode::TransientNotAccepted);
        }
        let ticket = ArchiveTicket(self.next_ticket().0);
        self.archives.insert(ticket, *caller);
        cx.effects.push(Effect::Archive { ticket, job });
        Step::Pending
    }

    /// The shell has made an archive, or could not.
    pub(super) fn archive_done(
        &mut self,
        ticket: ArchiveTicket,
        archive: Option<Bytes>,
        cx: &mut Cx<'_>,
    ) {
        let caller = self.archives.remove(&ticket).expect("asked for once, answered once");
        let step = match archive {
            Some(bytes) => self.read_reply(&caller, Reply::Archive(Archive(bytes.to_vec()))),
            None => self.deny(&caller, ErrorCode::SnapshotFileCompletionFailed),
        };
        self.finish_step(caller.place, step, cx);
    }
}

/// Which sections are wanted: everything stands alone, nothing is no wish.
fn job_of(request: &GetSnapshot) -> Result<ArchiveJob, ErrorCode> {
    let compression = match request.compression {
        known @ (SnapshotCompression::Stored | SnapshotCompression::Deflated) => known,
        SnapshotCompression::Bzip2
        | SnapshotCompression::Zstd
        | SnapshotCompression::Lzma
        | SnapshotCompression::Xz => return Err(ErrorCode::FeatureUnavailable),
    };
    let mut content = Vec::new();
    for section in &request.content {
        if !content.contains(section) {
            content.push(*section);
        }
    }
    match content.as_slice() {
        [] => Err(ErrorCode::InvalidCommand),
        [SnapshotContent::All] => {
            let content = SnapshotContent::ALL.iter().copied();
            let content = content.filter(|section| *section != SnapshotContent::All).collect();
            Ok(ArchiveJob { compression, content })
        }
        sections if sections.contains(&SnapshotContent::All) => Err(ErrorCode::InvalidCommand),
        _ => Ok(ArchiveJob { compression, content }),
    }
}
