//! The disk queues of one shard, with the order that each promises: journal writes overlap, and are
//! reported in their order; a flush begins when every write submitted before it has been reported,
//! and runs beside later writes; the pool in any order, but requests about one file in theirs.

use crate::random::Dice;
use crate::world::queue::Slot;
use borzoi_storage::disk::{
    Disk as _, DiskError, DiskErrorKind, DiskOutcome, DiskQueue, DiskRequest, DiskResult,
    DiskTicket, execute,
};
use borzoi_storage::sim_disk::{BLOCK_BYTES, SimDisk, SyncInFlight};
use borzoi_types::limits::JOURNAL_WRITES_IN_FLIGHT_MAX;
use bytes::Bytes;
use std::collections::VecDeque;

/// Requests of the pool that run at the same time.
const POOL_THREADS: usize = 3;

#[derive(Debug)]
struct Flush {
    ticket: DiskTicket,
    request: DiskRequest,
    /// Journal writes that must have ended first.
    after_writes: u64,
    started: Option<SyncInFlight>,
}

#[derive(Debug)]
struct Pooled {
    ticket: DiskTicket,
    request: DiskRequest,
    running: bool,
}

#[derive(Debug)]
struct Writing {
    ticket: DiskTicket,
    request: DiskRequest,
    running: bool,
    result: Option<DiskResult>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct DiskQueues {
    writes: VecDeque<Writing>,
    writes_submitted: u64,
    writes_done: u64,
    flushes: VecDeque<Flush>,
    flushing: bool,
    pool: Vec<Pooled>,
}

impl DiskQueues {
    /// Takes a request.
    pub fn submit(&mut self, queue: DiskQueue, ticket: DiskTicket, request: DiskRequest) {
        match queue {
            DiskQueue::JournalWrite => {
                self.writes_submitted += 1;
                self.writes.push_back(Writing { ticket, request, running: false, result: None });
            }
            DiskQueue::JournalFlush => {
                let after_writes = self.writes_submitted;
                self.flushes.push_back(Flush { ticket, request, after_writes, started: None });
            }
            DiskQueue::Pool => self.pool.push(Pooled { ticket, request, running: false }),
        }
    }

    /// Starts what may start now; the caller schedules the end of each.
    pub fn start(&mut self, disk: &mut SimDisk) -> Vec<Slot> {
        let mut started = Vec::new();
        for write in self.writes.iter_mut().take(JOURNAL_WRITES_IN_FLIGHT_MAX) {
            if !write.running {
                write.running = true;
                started.push(Slot::Write(write.ticket));
            }
        }
        if !self.flushing
            && let Some(flush) = self.flushes.front_mut()
            && self.writes_done >= flush.after_writes
        {
            if let DiskRequest::Sync { file } = &flush.request {
                flush.started = disk.start_sync(file).ok();
            }
            self.flushing = true;
            started.push(Slot::Flush);
        }
        let mut running = self.pool.iter().filter(|pooled| pooled.running).count();
        for at in 0..self.pool.len() {
            if running >= POOL_THREADS {
                break;
            }
            let file = self.pool[at].request.file();
            let held = self.pool[..at].iter().any(|earlier| earlier.request.file() == file);
            if !self.pool[at].running && !held {
                self.pool[at].running = true;
                running += 1;
                started.push(Slot::Pool(self.pool[at].ticket));
            }
        }
        started
    }

    /// Ends what was started: executes it. Gives the results that may be reported now.
    pub fn finish(&mut self, slot: Slot, disk: &mut SimDisk) -> Vec<(DiskTicket, DiskResult)> {
        match slot {
            Slot::Write(ticket) => {
                let mut running = self.writes.iter_mut();
                let write = running.find(|write| write.ticket == ticket).expect("it was started");
                write.result = Some(execute(disk, &write.request));
                let mut ended = Vec::new();
                while self.writes.front().is_some_and(|write| write.result.is_some()) {
                    let write = self.writes.pop_front().expect("just seen");
                    self.writes_done += 1;
                    ended.push((write.ticket, write.result.expect("just seen")));
                }
                ended
            }
            Slot::Flush => {
                let flush = self.flushes.pop_front().expect("it was started");
                self.flushing = false;
                let result = match &flush.started {
                    Some(sync) => disk.finish_sync(sync).map(|()| DiskOutcome::Done),
                    None => execute(disk, &flush.request),
                };
                vec![(flush.ticket, result)]
            }
            Slot::Pool(ticket) => {
                let at = self.pool.iter().position(|pooled| pooled.ticket == ticket);
                let pooled = self.pool.remove(at.expect("it was started"));
                assert!(pooled.running, "only what was started ends");
                vec![(ticket, execute(disk, &pooled.request))]
            }
        }
    }

    /// The process is gone: of what was under way each request may have happened, or in part.
    /// What had not started never happens.
    pub fn abandon(mut self, disk: &mut SimDisk, dice: &mut Dice) {
        for write in self.writes.iter().filter(|write| write.running && write.result.is_none()) {
            partly(disk, &write.request, dice);
        }
        if self.flushing
            && let Some(Flush { started: Some(sync), .. }) = self.flushes.pop_front()
            && dice.chance(50)
        {
            let _ = disk.finish_sync(&sync);
        }
        for pooled in self.pool.into_iter().filter(|pooled| pooled.running) {
            partly(disk, &pooled.request, dice);
        }
    }

    /// Requests that wait or run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len() + self.flushes.len() + self.pool.len()
    }

    /// Whether nothing waits and nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Executes a prefix of a request: whole blocks of a write, steps of everything else.
fn partly(disk: &mut SimDisk, request: &DiskRequest, dice: &mut Dice) {
    if let DiskRequest::Write { file, offset, parts } = request {
        let mut all = Vec::new();
        parts.iter().for_each(|part| all.extend_from_slice(part));
        let blocks = dice.below((all.len() / BLOCK_BYTES) as u64 + 1);
        all.truncate(usize::try_from(blocks).expect("in memory") * BLOCK_BYTES);
        if !all.is_empty() {
            let _ = disk.write(file, *offset, &[Bytes::from(all)]);
        }
        return;
    }
    disk.crash_before(disk.steps() + dice.below(7));
    let _ = execute(disk, request);
    *disk = disk.kill();
}

/// Whether an error is one that the world injected.
#[must_use]
pub fn is_injected(error: &DiskError) -> bool {
    matches!(error.kind, DiskErrorKind::Io | DiskErrorKind::NoSpace | DiskErrorKind::Crashed)
}
