//! Giving a peer what it lacks: chunks of checkpoints and segments, read from disk.
//!
//! Stateless: each question is answered for itself, from files that a checkpoint of this node
//! names. A file that goes away meanwhile is answered as gone, and the peer begins again.
//!
//! Invariant: only checkpoints and segments of the log that is asked for are read; reads under
//! way are bounded, and what is above the bound is not answered (the peer asks again).

use super::Back;
use super::shared::TicketOwner;
use crate::peer::PeerMessage;
use crate::peer::transfer::{TransferFile, TransferMessage, TransferStep};
use borzoi_storage::disk::{DiskOutcome, DiskQueue, DiskRequest, DiskResult};
use borzoi_types::limits::{TRANSFER_CHUNK_BYTES, TRANSFER_READS_MAX};
use borzoi_types::{LogId, Op, ReplicaId};

/// A chunk that is being read for a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedRead {
    to: ReplicaId,
    log: LogId,
    request: u64,
    file: TransferFile,
    offset: u64,
}

impl Back {
    pub(super) fn transfer_asked(&mut self, to: ReplicaId, log: LogId, request: u64, at_least: Op) {
        let newest = self.checkpointer.newest(log).filter(|op| *op >= at_least);
        let step = match newest {
            Some(op) => TransferStep::Offer { op },
            None => {
                // There is none yet that would do: the next one may.
                self.checkpointer.want(log);
                self.shared.work.insert(log);
                TransferStep::Gone
            }
        };
        self.shared.send_transfer(to, log, request, step);
    }

    pub(super) fn transfer_read(
        &mut self,
        to: ReplicaId,
        log: LogId,
        request: u64,
        file: TransferFile,
        offset: u64,
    ) {
        if !self.may_be_read(log, file) {
            return self.shared.send_transfer(to, log, request, TransferStep::Gone);
        }
        if self.shared.served_reads >= TRANSFER_READS_MAX {
            return;
        }
        self.shared.served_reads += 1;
        let bytes = TRANSFER_CHUNK_BYTES as u64;
        let read = DiskRequest::Read { file: file.name(log), offset, bytes };
        let ticket = self.shared.disk.submit(DiskQueue::Pool, read);
        let read = ServedRead { to, log, request, file, offset };
        self.shared.tickets.insert(ticket, TicketOwner::Serve(read));
    }

    fn may_be_read(&self, log: LogId, file: TransferFile) -> bool {
        match file {
            TransferFile::Checkpoint(op) => self.checkpointer.keeps(log, op),
            TransferFile::Segment { key, .. } => {
                let lane = self.lanes.get(&log);
                lane.is_some_and(|lane| lane.names_file(key, &file.name(log)))
            }
        }
    }

    pub(super) fn served(&mut self, read: ServedRead, result: DiskResult) {
        let ServedRead { to, log, request, file, offset } = read;
        assert!(self.shared.served_reads > 0, "counted when it was submitted");
        self.shared.served_reads -= 1;
        let step = match result {
            Ok(DiskOutcome::Data(bytes)) => TransferStep::Chunk { file, offset, bytes },
            Ok(DiskOutcome::Done) | Err(_) => TransferStep::Gone,
        };
        self.shared.send_transfer(to, log, request, step);
    }
}

impl super::shared::Shared {
    /// Sends one message of a transfer.
    pub fn send_transfer(&mut self, to: ReplicaId, log: LogId, request: u64, step: TransferStep) {
        let message = TransferMessage { log, request, step };
        self.send_peer(to, &PeerMessage::Transfer(message));
    }
}
