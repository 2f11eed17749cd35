//! Taking over a peer's state: the receiving side of a state transfer.
//!
//! ```text
//! asked ─offer▶ checkpoint ─last chunk▶ segments ─all written▶ resting ─quiet▶ syncing
//!                                                                               │ all synced
//!           done ◀─ the replica goes on from there ◀─ installed ◀─durable─ writing the checkpoint
//! ```
//!
//! One transfer at a time per shard; other logs wait their turn. Only segment files that differ
//! from what this node holds are copied. An answer that is overdue is asked for again; a transfer
//! that does not move at all is given up, and the replica asks again, elsewhere.
//!
//! Crash argument. Files of segments are written under their final names: until the checkpoint is
//! durable nobody names the new ones, and a start sets them aside; those that are there already
//! have the same content, because it follows from the same log. The checkpoint is written when
//! everything it names is synced, and is the newest one as soon as it is durable. A crash before
//! that finds the old state, one after it the new one; the journal's records above it chain to it,
//! those below it are void.

use super::Back;
use super::shared::TicketOwner;
use crate::event::{LogEntry, LogLevel};
use crate::lane::Lane;
use crate::peer::transfer::{TransferFile, TransferMessage, TransferStep};
use borzoi_consensus::{Anchor, Event as ReplicaEvent};
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::{DiskQueue, DiskRequest, DiskResult, FileName};
use borzoi_types::limits::{
    CHECKPOINT_BYTES_MAX, TRANSFER_CHUNK_BYTES, TRANSFER_CHUNKS_IN_FLIGHT_MAX,
};
use borzoi_types::{Duration, LogId, Mono, Now, Op, ReplicaId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a replica asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) from: ReplicaId,
    pub(crate) at_least: Op,
    pub(crate) diverged: bool,
}

/// An answer that has not come after this long is asked for again.
const PATIENCE: Duration = Duration::from_millis(300);
/// Times that is done before the transfer is given up.
const TRIES_MAX: u32 = 10;

#[derive(Debug)]
enum Stage {
    Asked,
    Checkpoint {
        op: Op,
        content: Vec<Bytes>,
        offset: u64,
    },
    Segments(Box<Copying>),
    /// Everything is written; the lane's own writing and checkpoint come to an end.
    Resting(Box<Copying>),
    Syncing {
        copied: Box<Copying>,
        left: usize,
    },
    Writing(Box<Copying>),
}

/// The copying of segment files.
#[derive(Debug)]
struct Copying {
    checkpoint: Checkpoint,
    content: Bytes,
    /// Chunks not asked for yet: file, offset, length.
    wanted: VecDeque<(TransferFile, u64, usize)>,
    /// Chunks asked for.
    asked: BTreeMap<(TransferFile, u64), usize>,
    /// Writes under way.
    writing: usize,
    /// Files to be synced.
    files: BTreeSet<FileName>,
}

#[derive(Debug)]
struct Incoming {
    log: LogId,
    wish: Wish,
    request: u64,
    stage: Stage,
    deadline: Mono,
    tries: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    current: Option<Incoming>,
    waiting: BTreeMap<LogId, Wish>,
    request: u64,
    pub(crate) completed: u64,
    pub(crate) chunks: u64,
}

impl Transfers {
    /// Whether the state of `log` is being replaced: it takes no checkpoint meanwhile.
    pub(crate) fn holds(&self, log: LogId) -> bool {
        self.current.as_ref().is_some_and(|current| current.log == log)
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        match &self.current {
            Some(current) => Some(current.deadline),
            None => (!self.waiting.is_empty()).then_some(Mono(0)),
        }
    }

    pub(crate) fn wish(&mut self, log: LogId, wish: Wish) {
        self.waiting.insert(log, wish);
    }
}

impl Back {
    /// Begins, repeats and gives up what is due.
    pub(super) fn drive_transfers(&mut self, now: Now) {
        if self.shared.fatal {
            return;
        }
        for (log, wish) in core::mem::take(&mut self.shared.transfers_wanted) {
            self.transfers.wish(log, wish);
        }
        if let Some(current) = &mut self.transfers.current
            && current.deadline <= now.mono
        {
            current.deadline = now.mono.plus(PATIENCE);
            let own = matches!(current.stage, Stage::Resting(_) | Stage::Syncing { .. })
                || matches!(current.stage, Stage::Writing(_));
            current.tries += u32::from(!own);
            if current.tries > TRIES_MAX {
                return self.transfer_failed(now, "no answer");
            }
            self.ask_again();
        }
        if self.transfers.current.is_none()
            && let Some((log, wish)) = self.transfers.waiting.pop_first()
        {
            self.begin_transfer(now, log, wish);
        }
        self.advance_transfer(now);
    }

    fn begin_transfer(&mut self, now: Now, log: LogId, mut wish: Wish) {
        if wish.diverged {
            // A start takes the newest checkpoint: this node's own must not be newer.
            let newest = self.checkpointer.newest(log).unwrap_or(Op::ZERO);
            wish.at_least = newest.next();
        }
        self.transfers.request += 1;
        // Numbers of an earlier life must not be taken for this one's.
        let request = self.shared.options.generation << 32 | self.transfers.request;
        let deadline = now.mono.plus(PATIENCE);
        let stage = Stage::Asked;
        self.transfers.current = Some(Incoming { log, wish, request, stage, deadline, tries: 0 });
        let text = format!("log {log}: copying the state of node {}", wish.from);
        self.shared.log(LogLevel::Info, LogEntry::Text(text));
        self.ask_again();
    }

    /// Sends every question that is open.
    fn ask_again(&mut self) {
        let Some(current) = &self.transfers.current else { return };
        let (log, request, from) = (current.log, current.request, current.wish.from);
        let mut steps = Vec::new();
        match &current.stage {
            Stage::Asked => steps.push(TransferStep::Ask { at_least: current.wish.at_least }),
            Stage::Checkpoint { op, offset, .. } => {
                steps.push(TransferStep::Read {
                    file: TransferFile::Checkpoint(*op),
                    offset: *offset,
                });
            }
            Stage::Segments(copying) => {
                let open = copying.asked.keys();
                let reads = open.map(|(file, offset)| (*file, *offset));
                steps.extend(reads.map(|(file, offset)| TransferStep::Read { file, offset }));
            }
            Stage::Resting(_) | Stage::Syncing { .. } | Stage::Writing(_) => {}
        }
        for step in steps {
            self.shared.send_transfer(from, log, request, step);
        }
    }

    /// An answer of the peer.
    pub(super) fn transfer_message(&mut self, now: Now, from: ReplicaId, message: TransferMessage) {
        let TransferMessage { log, request, step } = message;
        match step {
            TransferStep::Ask { at_least } => {
                return self.transfer_asked(from, log, request, at_least);
            }
            TransferStep::Read { file, offset } => {
                return self.transfer_read(from, log, request, file, offset);
            }
            TransferStep::Offer { .. } | TransferStep::Chunk { .. } | TransferStep::Gone => {}
        }
        let Some(current) = &mut self.transfers.current else { return };
        if (current.log, current.request, current.wish.from) != (log, request, from) {
            return; // Of a transfer that was given up.
        }
        current.tries = 0;
        current.deadline = now.mono.plus(PATIENCE);
        match (step, &mut current.stage) {
            (TransferStep::Offer { op }, Stage::Asked) => {
                current.stage = Stage::Checkpoint { op, content: Vec::new(), offset: 0 };
                self.ask_again();
            }
            (TransferStep::Chunk { file, offset, bytes }, Stage::Checkpoint { .. }) => {
                self.checkpoint_chunk(now, file, offset, bytes);
            }
            (TransferStep::Chunk { file, offset, bytes }, Stage::Segments(_)) => {
                self.segment_chunk(now, file, offset, bytes);
            }
            (TransferStep::Gone, Stage::Asked | Stage::Checkpoint { .. } | Stage::Segments(_)) => {
                self.transfer_failed(now, "the peer no longer has it");
            }
            _ => {} // Repeated.
        }
        self.advance_transfer(now);
    }

    fn checkpoint_chunk(&mut self, now: Now, file: TransferFile, at: u64, bytes: Bytes) {
        let Some(current) = &mut self.transfers.current else { return };
        let Stage::Checkpoint { op, content, offset } = &mut current.stage else { return };
        if file != TransferFile::Checkpoint(*op) || at != *offset {
            return;
        }
        self.transfers.chunks += 1;
        let last = bytes.len() < TRANSFER_CHUNK_BYTES;
        *offset += bytes.len() as u64;
        content.push(bytes);
        if *offset > CHECKPOINT_BYTES_MAX {
            return self.transfer_failed(now, "the checkpoint is larger than any may be");
        }
        if !last {
            return self.ask_again();
        }
        let (log, op, content) = (current.log, *op, Bytes::from(content.concat()));
        match Checkpoint::decode(&content) {
            Ok(checkpoint) if checkpoint.log == log && checkpoint.op == op => {
                self.plan_segments(checkpoint, content);
            }
            Ok(_) => self.transfer_failed(now, "the checkpoint is another one"),
            Err(error) => self.transfer_failed(now, &error.to_string()),
        }
    }

    /// What has to be copied: whatever the checkpoint names and this node does not hold.
    fn plan_segments(&mut self, checkpoint: Checkpoint, content: Bytes) {
        let Some(current) = &mut self.transfers.current else { return };
        let lane = self.lanes.get(&current.log);
        let trusted = !current.wish.diverged;
        let mut wanted = VecDeque::new();
        let mut files = BTreeSet::new();
        for section in &checkpoint.partitions {
            let state = &section.state;
            for segment in state.closed.iter().chain([&state.active]) {
                let held = lane.filter(|_| trusted).map_or(0, |lane| {
                    lane.durable_bytes_of(state.key, segment.base).min(segment.file_bytes)
                });
                let chunk = TRANSFER_CHUNK_BYTES as u64;
                let mut offset = held - held % chunk;
                let file = TransferFile::Segment { key: state.key, base: segment.base };
                if offset < segment.file_bytes && held < segment.file_bytes {
                    files.insert(file.name(current.log));
                }
                while held < segment.file_bytes && offset < segment.file_bytes {
                    let length = (segment.file_bytes - offset).min(chunk);
                    let bytes = usize::try_from(length).expect("at most a chunk");
                    wanted.push_back((file, offset, bytes));
                    offset += length;
                }
            }
        }
        let (asked, writing) = (BTreeMap::new(), 0);
        let copying = Copying { checkpoint, content, wanted, asked, writing, files };
        current.stage = Stage::Segments(Box::new(copying));
    }

    fn segment_chunk(&mut self, now: Now, file: TransferFile, offset: u64, bytes: Bytes) {
        let Some(current) = &mut self.transfers.current else { return };
        let Stage::Segments(copying) = &mut current.stage else { return };
        let Some(length) = copying.asked.remove(&(file, offset)) else { return };
        if bytes.len() < length {
            return self.transfer_failed(now, "a segment file is shorter than its checkpoint says");
        }
        self.transfers.chunks += 1;
        let parts = vec![bytes.slice(..length)];
        let (log, request) = (current.log, current.request);
        let write = DiskRequest::Write { file: file.name(log), offset, parts };
        copying.writing += 1;
        let ticket = self.shared.disk.submit(DiskQueue::Pool, write);
        self.shared.tickets.insert(ticket, TicketOwner::Transfer { request });
    }

    /// A disk request of the transfer has ended.
    pub(super) fn transfer_disk(&mut self, now: Now, request: u64, result: DiskResult) {
        let Some(current) = &mut self.transfers.current else { return };
        if current.request != request {
            return;
        }
        if let Err(error) = result {
            let text = error.to_string();
            return self.transfer_failed(now, &text);
        }
        match &mut current.stage {
            Stage::Segments(copying) => copying.writing -= 1,
            Stage::Syncing { left, .. } => *left -= 1,
            Stage::Writing(_) => self.install(now),
            _ => unreachable!("nothing else is asked of the disk"),
        }
        self.advance_transfer(now);
    }

    /// Does whatever has become possible.
    fn advance_transfer(&mut self, now: Now) {
        let Some(current) = &mut self.transfers.current else { return };
        let (log, request, from) = (current.log, current.request, current.wish.from);
        match &mut current.stage {
            Stage::Asked | Stage::Checkpoint { .. } | Stage::Writing(_) => {}
            Stage::Segments(copying) => {
                while copying.asked.len() + copying.writing < TRANSFER_CHUNKS_IN_FLIGHT_MAX
                    && let Some((file, offset, bytes)) = copying.wanted.pop_front()
                {
                    copying.asked.insert((file, offset), bytes);
                    let step = TransferStep::Read { file, offset };
                    self.shared.send_transfer(from, log, request, step);
                }
                if copying.asked.is_empty() && copying.writing == 0 {
                    self.next_stage(now, Stage::Resting);
                    self.advance_transfer(now);
                }
            }
            Stage::Resting(_) => self.rest(now, log),
            Stage::Syncing { left: 0, .. } => self.write_transferred(now),
            Stage::Syncing { .. } => {}
        }
    }

    fn next_stage(&mut self, now: Now, next: impl FnOnce(Box<Copying>) -> Stage) {
        let Some(current) = &mut self.transfers.current else { return };
        current.deadline = now.mono.plus(PATIENCE);
        current.tries = 0;
        let stage = core::mem::replace(&mut current.stage, Stage::Asked);
        let (Stage::Segments(copying)
        | Stage::Resting(copying)
        | Stage::Syncing { copied: copying, .. }) = stage
        else {
            unreachable!("these follow one another");
        };
        current.stage = next(copying);
    }

    /// Waits until the lane writes nothing of its own, then syncs what was copied.
    fn rest(&mut self, now: Now, log: LogId) {
        if self.checkpointer.active(log).is_some() {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&log) {
            lane.set_resting(true);
        }
        let busy = self.shared.tickets.values().any(|owner| match owner {
            TicketOwner::Partition { log: of, .. } => *of == log,
            TicketOwner::Read(read) => read.log == log,
            _ => false,
        });
        if busy {
            return;
        }
        let mut left = 0;
        let Some(current) = &self.transfers.current else { return };
        let (request, Stage::Resting(copying)) = (current.request, &current.stage) else { return };
        for file in &copying.files {
            let sync = DiskRequest::Sync { file: file.clone() };
            let ticket = self.shared.disk.submit(DiskQueue::Pool, sync);
            self.shared.tickets.insert(ticket, TicketOwner::Transfer { request });
            left += 1;
        }
        self.next_stage(now, |copied| Stage::Syncing { copied, left });
        self.advance_transfer(now);
    }

    fn write_transferred(&mut self, now: Now) {
        self.next_stage(now, Stage::Writing);
        let Some(current) = &self.transfers.current else { return };
        let Stage::Writing(copying) = &current.stage else { return };
        let (file, parts) = (copying.checkpoint.file(), vec![copying.content.clone()]);
        let owner = TicketOwner::Transfer { request: current.request };
        let ticket =
            self.shared.disk.submit(DiskQueue::Pool, DiskRequest::DurableReplace { file, parts });
        self.shared.tickets.insert(ticket, owner);
    }

    /// The checkpoint is durable: it is this node's state from now on.
    fn install(&mut self, now: Now) {
        let Some(current) = self.transfers.current.take() else { return };
        let Stage::Writing(copying) = current.stage else { unreachable!("just written") };
        let (log, checkpoint) = (current.log, copying.checkpoint);
        let anchor = Anchor { op: checkpoint.op, checksum: checkpoint.prepare_checksum };
        let newer = self.applied(log).is_some_and(|applied| applied >= anchor.op);
        let leads = self.lanes.get(&log).is_some_and(Lane::is_serving)
            || (log.is_metadata() && self.serves_metadata());
        if leads || (newer && !current.wish.diverged) {
            // The log has caught up by itself meanwhile; the file is one checkpoint among others.
            self.remove_later(FileName::Checkpoint { log, op: anchor.op });
            return self.end_transfer(now, log, ReplicaEvent::TransferFailed);
        }
        if let Some(lane) = self.lanes.get_mut(&log) {
            match lane.install(&checkpoint, &copying.files, &mut self.shared) {
                Ok(unnamed) => unnamed.into_iter().for_each(|file| self.remove_later(file)),
                Err(error) => {
                    // Intact and impossible: of a build that is broken or another one.
                    self.remove_later(FileName::Checkpoint { log, op: anchor.op });
                    let text = format!("log {log}: a peer's checkpoint cannot be used: {error}");
                    self.shared.log(LogLevel::Error, LogEntry::Text(text));
                    return self.end_transfer(now, log, ReplicaEvent::TransferFailed);
                }
            }
        } else if let Some(metadata) = &mut self.metadata {
            metadata.install(anchor, checkpoint.owner, &mut self.shared);
        }
        let durable = self.checkpointer.installed(log, anchor.op);
        self.transfers.completed += 1;
        let text = format!("log {log}: the state of operation {} is installed", anchor.op);
        self.shared.log(LogLevel::Info, LogEntry::Text(text));
        self.end_transfer(now, log, ReplicaEvent::TransferComplete { checkpoint: anchor });
        self.checkpoint_allows(now, log, durable);
    }

    fn remove_later(&mut self, file: FileName) {
        let ticket = self.shared.disk.submit(DiskQueue::Pool, DiskRequest::Remove { file });
        self.shared.tickets.insert(ticket, TicketOwner::OldCheckpoint);
    }

    fn transfer_failed(&mut self, now: Now, why: &str) {
        let Some(current) = self.transfers.current.take() else { return };
        let (log, from) = (current.log, current.wish.from);
        let text = format!("log {log}: the state of node {from} was not copied: {why}");
        self.shared.log(LogLevel::Warn, LogEntry::Text(text));
        self.end_transfer(now, log, ReplicaEvent::TransferFailed);
    }

    fn end_transfer(&mut self, now: Now, log: LogId, event: ReplicaEvent) {
        if let Some(lane) = self.lanes.get_mut(&log) {
            lane.set_resting(false);
        }
        self.shared.work.insert(log);
        self.replica_event(now, log, event);
    }
}
