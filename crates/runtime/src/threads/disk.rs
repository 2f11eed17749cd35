//! The disk threads of one shard: a journal writer, a flusher beside it, and a pool.
//!
//! Invariants:
//! - journal writes start in order of submission, [`JOURNAL_WRITERS`] side by side, and are
//!   reported in that order: a write counts as done when it and all before it are. A flush starts
//!   only when every write submitted before it is done, and runs beside later writes;
//! - in the pool, requests that name the same file run in order of submission, others side by side;
//! - no queue waits for another, except a flush for the writes before it;
//! - every request is answered exactly once through the shard's inbox.

use crate::disk::FileDisk;
use crate::figures::ShellCounters;
use crate::inbox::{Inbox, PanicAlarm};
use borzoi_storage::disk::{DiskQueue, DiskRequest, DiskResult, DiskTicket, FileName, execute};
use borzoi_types::ShardId;
use borzoi_types::limits::{DISK_POOL_THREADS, JOURNAL_WRITERS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

struct Job {
    ticket: DiskTicket,
    request: DiskRequest,
}

#[derive(Default)]
struct Work {
    writes: VecDeque<Job>,
    writes_submitted: u64,
    writes_started: u64,
    /// All up to this one have ended and were reported.
    writes_done: u64,
    /// Those that have ended before one that started earlier.
    writes_ahead: BTreeMap<u64, (DiskTicket, DiskResult)>,
    /// Each with the number of writes that must be done before it.
    flushes: VecDeque<(u64, Job)>,
    /// Jobs of the pool by file, in order; an entry exists while a file has jobs waiting.
    by_file: BTreeMap<FileName, VecDeque<Job>>,
    /// Files whose first job may start, in order of arrival.
    ready: VecDeque<FileName>,
    /// Files of which a job is being executed.
    busy: BTreeSet<FileName>,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    writer: Condvar,
    flusher: Condvar,
    pool: Condvar,
}

/// The threads; they finish what was submitted and end when this is dropped.
pub struct DiskThreads {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl DiskThreads {
    /// Starts the threads of `shard`; results go to `inbox`.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub fn start(
        shard: ShardId,
        disk: &FileDisk,
        inbox: &Arc<Inbox>,
        counters: &Arc<ShellCounters>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        let mut start = |name: String, work: fn(&Shared, &mut FileDisk, &Inbox, &ShellCounters)| {
            let (shared, mut disk, inbox) = (shared.clone(), disk.clone(), inbox.clone());
            let counters = counters.clone();
            let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
                let _alarm = PanicAlarm::new(inbox.clone(), name);
                work(&shared, &mut disk, &inbox, &counters);
            })?;
            threads.push(thread);
            Ok::<(), std::io::Error>(())
        };
        for index in 0..JOURNAL_WRITERS {
            start(format!("journal-{shard}-{index}"), write_journal)?;
        }
        start(format!("flush-{shard}"), flush_journal)?;
        for index in 0..DISK_POOL_THREADS {
            start(format!("disk-{shard}-{index}"), work_in_pool)?;
        }
        Ok(Self { shared, threads })
    }

    /// Queues `request`; its result reaches the inbox under `ticket`.
    pub fn submit(&self, queue: DiskQueue, ticket: DiskTicket, request: DiskRequest) {
        let job = Job { ticket, request };
        let mut work = self.shared.lock();
        let bell = match queue {
            DiskQueue::JournalWrite => {
                work.writes_submitted += 1;
                work.writes.push_back(job);
                &self.shared.writer
            }
            DiskQueue::JournalFlush => {
                let after = work.writes_submitted;
                work.flushes.push_back((after, job));
                &self.shared.flusher
            }
            DiskQueue::Pool => {
                work.enter_pool(job);
                &self.shared.pool
            }
        };
        drop(work);
        bell.notify_one();
    }
}

impl Drop for DiskThreads {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.writer.notify_all();
        self.shared.flusher.notify_all();
        self.shared.pool.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported by the thread's alarm.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at `bell` until `next` finds a job, or returns none when it is time to end.
    fn wait_for<T>(
        &self,
        bell: &Condvar,
        mut next: impl FnMut(&mut Work) -> Option<T>,
    ) -> Option<T> {
        let mut work = self.lock();
        loop {
            if let Some(found) = next(&mut work) {
                return Some(found);
            }
            if work.stopping {
                return None;
            }
            work = bell.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Work {
    fn next_write(&mut self) -> Option<(u64, Job)> {
        let job = self.writes.pop_front()?;
        self.writes_started += 1;
        Some((self.writes_started, job))
    }

    /// The next write in order of submission, once it has ended.
    fn take_next_done(&mut self) -> Option<(DiskTicket, DiskResult)> {
        let done = self.writes_ahead.remove(&(self.writes_done + 1))?;
        self.writes_done += 1;
        assert!(self.writes_done <= self.writes_started, "only what has started ends");
        Some(done)
    }

    fn enter_pool(&mut self, job: Job) {
        let file = job.request.file().clone();
        let queue = self.by_file.entry(file.clone()).or_default();
        queue.push_back(job);
        if queue.len() == 1 && !self.busy.contains(&file) {
            self.ready.push_back(file);
        }
    }

    fn next_in_pool(&mut self) -> Option<Job> {
        let file = self.ready.pop_front()?;
        let queue = self.by_file.get_mut(&file).expect("a ready file has jobs");
        let job = queue.pop_front().expect("a file with an entry has jobs");
        if queue.is_empty() {
            self.by_file.remove(&file);
        }
        let was_idle = self.busy.insert(file);
        assert!(was_idle, "two jobs of one file never run side by side");
        Some(job)
    }

    /// Whether the file has another job, now ready.
    fn leave_pool(&mut self, file: &FileName) -> bool {
        let was_busy = self.busy.remove(file);
        assert!(was_busy, "only a running job ends");
        let more = self.by_file.contains_key(file);
        if more {
            self.ready.push_back(file.clone());
        }
        more
    }
}

fn write_journal(shared: &Shared, disk: &mut FileDisk, inbox: &Inbox, counters: &ShellCounters) {
    while let Some((number, job)) = shared.wait_for(&shared.writer, Work::next_write) {
        let began = Instant::now();
        let result = execute(disk, &job.request);
        counters.journal_writes.record_since(began);
        let mut work = shared.lock();
        work.writes_ahead.insert(number, (job.ticket, result));
        let before = work.writes_done;
        // Reported under the lock: the other writer must not overtake.
        while let Some((ticket, result)) = work.take_next_done() {
            inbox.disk(ticket, result);
        }
        let flush_waits = work.writes_done > before
            && work.flushes.front().is_some_and(|(after, _)| *after <= work.writes_done);
        drop(work);
        if flush_waits {
            shared.flusher.notify_one();
        }
    }
}

fn flush_journal(shared: &Shared, disk: &mut FileDisk, inbox: &Inbox, counters: &ShellCounters) {
    let next = |work: &mut Work| {
        let (after, _) = work.flushes.front()?;
        if *after > work.writes_done {
            return None;
        }
        work.flushes.pop_front().map(|(_, job)| job)
    };
    while let Some(job) = shared.wait_for(&shared.flusher, next) {
        let began = Instant::now();
        let result = execute(disk, &job.request);
        counters.journal_flushes.record_since(began);
        inbox.disk(job.ticket, result);
    }
}

fn work_in_pool(shared: &Shared, disk: &mut FileDisk, inbox: &Inbox, counters: &ShellCounters) {
    while let Some(job) = shared.wait_for(&shared.pool, Work::next_in_pool) {
        let began = Instant::now();
        let result = execute(disk, &job.request);
        counters.pool_requests.record_since(began);
        let more = shared.lock().leave_pool(job.request.file());
        if more {
            shared.pool.notify_one();
        }
        inbox.disk(job.ticket, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileDiskOptions;
    use crate::inbox::Arrivals;
    use borzoi_storage::disk::DiskOutcome;
    use borzoi_types::{LogId, Op};
    use bytes::Bytes;
    use std::time::Duration;

    fn collect(inbox: &Inbox, count: usize) -> Vec<(DiskTicket, DiskOutcome)> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut found = Vec::new();
        while found.len() < count && Instant::now() < until {
            let mut arrivals = Arrivals::default();
            inbox.take(&mut arrivals);
            assert!(arrivals.broken.is_none(), "{:?}", arrivals.broken);
            found.extend(arrivals.disk.into_iter().map(|(t, result)| (t, result.unwrap())));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found.len(), count);
        found
    }

    #[test]
    fn requests_of_one_file_keep_their_order_and_each_is_answered_once() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, _) = FileDisk::open(directory.path(), &FileDiskOptions::default()).unwrap();
        let inbox = Arc::new(Inbox::default());
        let threads = DiskThreads::start(ShardId(0), &disk, &inbox, &Arc::default()).unwrap();
        let files: Vec<FileName> =
            (0..4).map(|op| FileName::Checkpoint { log: LogId(1), op: Op(op) }).collect();
        let mut ticket = 0;
        let mut submit = |queue, request| {
            threads.submit(queue, DiskTicket(ticket), request);
            ticket += 1;
        };
        for round in 0..20_u8 {
            for file in &files {
                let parts = vec![Bytes::from(vec![round; 10])];
                let file = file.clone();
                submit(DiskQueue::Pool, DiskRequest::DurableReplace { file, parts });
            }
            let file = FileName::Journal(0);
            let parts = vec![Bytes::from(vec![round; 4_096])];
            let offset = u64::from(round) * 4_096;
            let write = DiskRequest::Write { file: file.clone(), offset, parts };
            submit(DiskQueue::JournalWrite, write);
            submit(DiskQueue::JournalFlush, DiskRequest::Sync { file });
        }
        for file in &files {
            let file = file.clone();
            submit(DiskQueue::Pool, DiskRequest::Read { file, offset: 0, bytes: 100 });
        }
        let mut answers = collect(&inbox, 20 * 6 + 4);
        answers.sort_by_key(|(ticket, _)| *ticket);
        let tickets: BTreeSet<u64> = answers.iter().map(|(ticket, _)| ticket.0).collect();
        assert_eq!(tickets.len(), answers.len());
        for (_, outcome) in &answers[120..] {
            assert_eq!(*outcome, DiskOutcome::Data(Bytes::from(vec![19; 10])));
        }
        drop(threads);
        let journal = std::fs::read(directory.path().join("journal/00000000.journal")).unwrap();
        assert_eq!(journal.len(), 20 * 4_096);
        assert!(journal.chunks(4_096).zip(0..).all(|(block, round)| block[0] == round));
    }
}
