//! Checkpoints of the logs of one shard: begun, written, and what they allow to be released.
//!
//! Invariants: one at a time per log; nothing is released or removed before the checkpoint that
//! allows it is durable; a log whose state is being replaced takes none.

use super::Back;
use super::shared::TicketOwner;
use crate::checkpointer::{Choice, Durable};
use crate::event::{FatalError, LogEntry, LogLevel};
use crate::front::Front;
use crate::lane::operation::Entry;
use borzoi_consensus::Event as ReplicaEvent;
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::{DiskErrorKind, DiskQueue, DiskRequest, DiskResult, FileName};
use borzoi_storage::journal::Pressure;
use borzoi_types::{LogId, Now, SessionId};

impl Back {
    pub(super) fn drive_checkpoints(&mut self, now: Now, front: &Front) {
        if self.shared.fatal || self.shared.no_space.is_some() {
            return;
        }
        let active: Vec<LogId> = self.checkpointer.active_logs().collect();
        for log in active {
            let Some(lane) = self.lanes.get_mut(&log) else { continue };
            if lane.is_checkpoint_void() {
                lane.abandon_checkpoint();
                self.checkpointer.retake(log, lane.state().applied());
                lane.begin_checkpoint(&mut self.shared);
            }
            if let Some(checkpoint) = lane.checkpoint_to_write() {
                self.write_checkpoint(&checkpoint);
            }
        }
        let (wanted, full) = match self.shared.journal.pressure() {
            Pressure::Normal => (Vec::new(), false),
            Pressure::CheckpointWanted(logs) => (logs, false),
            Pressure::Full(logs) => (logs, true),
        };
        loop {
            // While its state is being replaced a log takes no checkpoint.
            let applied = |log| self.applied(log).filter(|_| !self.transfers.holds(log));
            match self.checkpointer.choose(now.mono, &wanted, applied) {
                None => {
                    // What is too large to be carried forward is released by another checkpoint.
                    let stuck = full.then(|| self.checkpointer.stuck(&wanted, applied)).flatten();
                    if let Some(log) = stuck {
                        self.nudge(now, log);
                    }
                    return;
                }
                Some(Choice::Nudge(log)) => return self.nudge(now, log),
                Some(Choice::Checkpoint(log)) => self.begin_checkpoint(log, front),
            }
        }
    }

    fn begin_checkpoint(&mut self, log: LogId, front: &Front) {
        if let Some(lane) = self.lanes.get_mut(&log) {
            self.checkpointer.begin(log, lane.state().applied());
            lane.begin_checkpoint(&mut self.shared);
            if let Some(checkpoint) = lane.checkpoint_to_write() {
                self.write_checkpoint(&checkpoint);
            }
            return;
        }
        let metadata = self.metadata.as_ref().expect("metadata lives on shard 0");
        let applied = metadata.applied();
        let (op, owner) = front.metadata_checkpoint();
        assert_eq!(op, applied.op, "the front has applied what it was handed");
        self.checkpointer.begin(log, op);
        let prepare_checksum = applied.checksum;
        let partitions = Vec::new();
        self.write_checkpoint(&Checkpoint { log, op, prepare_checksum, owner, partitions });
    }

    fn write_checkpoint(&mut self, checkpoint: &Checkpoint) {
        assert_eq!(self.checkpointer.active(checkpoint.log), Some(checkpoint.op));
        let ticket = self.shared.disk.submit(DiskQueue::Pool, checkpoint.request());
        let owner = TicketOwner::Checkpoint { log: checkpoint.log };
        self.shared.tickets.insert(ticket, owner);
    }

    pub(super) fn checkpoint_written(&mut self, now: Now, log: LogId, result: DiskResult) {
        let op = self.checkpointer.active(log).expect("it was under way");
        if let Err(error) = result {
            let retry = matches!(error.kind, DiskErrorKind::NoSpace | DiskErrorKind::TooManyOpen);
            if !retry {
                return self.shared.fail(FatalError::Disk(error));
            }
            self.shared.note_no_space(now.mono, error);
            self.checkpointer.abandon(log, now.mono);
            if let Some(lane) = self.lanes.get_mut(&log) {
                lane.abandon_checkpoint();
            }
            return;
        }
        let durable = self.checkpointer.durable(log);
        self.shared.log(LogLevel::Debug, LogEntry::Checkpoint { log, op });
        if let Some(lane) = self.lanes.get_mut(&log) {
            lane.checkpoint_durable(&mut self.shared);
        }
        self.checkpoint_allows(now, log, durable);
        self.shared.work.extend(self.lanes.keys().copied());
    }

    /// A checkpoint of `log` is durable: what it replaces goes.
    pub(super) fn checkpoint_allows(&mut self, now: Now, log: LogId, durable: Durable) {
        if let Some(through) = durable.release_through {
            self.shared.journal.release(log, through);
            self.replica_event(now, log, ReplicaEvent::Checkpointed { op: through });
        }
        if let Some(op) = durable.remove {
            let file = FileName::Checkpoint { log, op };
            let ticket = self.shared.disk.submit(DiskQueue::Pool, DiskRequest::Remove { file });
            self.shared.tickets.insert(ticket, TicketOwner::OldCheckpoint);
        }
    }

    /// Moves a log at rest on by one operation that changes nothing.
    fn nudge(&mut self, now: Now, log: LogId) {
        if let Some(lane) = self.lanes.get_mut(&log) {
            if lane.is_serving() && lane.is_at_rest() {
                lane.planned.push_back(Entry::SessionExpired { session: SessionId::ZERO });
                lane.form(now, &mut self.shared);
            }
        } else if let Some(metadata) = &mut self.metadata
            && metadata.is_serving()
            && metadata.is_idle()
        {
            metadata.nudge(now, &mut self.shared);
        }
    }

    pub(super) fn retry_after_no_space(&mut self, now: Now) {
        let Some(backoff) = self.shared.no_space else { return };
        if backoff.retry_at > now.mono {
            return;
        }
        // The attempt itself tells: a success clears the mark, a failure doubles the wait.
        self.shared.begin_retry();
        self.shared.journal.retry_spares();
        for lane in self.lanes.values_mut() {
            lane.retry_writes(&mut self.shared);
            self.shared.work.insert(lane.log());
        }
    }
}
