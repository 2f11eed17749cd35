//! What the shell counts, and how the figures of all shards are asked for.
//!
//! The threads of a shard count with relaxed atomics that only they write and that are read only
//! when somebody asks. Figures of the core are copied by its own thread, between two turns, when it
//! finds the question in its inbox: no lock is held while they are made or rendered.

use crate::inbox::Inbox;
use borzoi_shard::ShardFigures;
use borzoi_types::{HISTOGRAM_BUCKETS, Histogram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A histogram that other threads may read.
#[derive(Debug, Default)]
pub struct SharedHistogram {
    buckets: [AtomicU64; HISTOGRAM_BUCKETS],
    sum_micros: AtomicU64,
}

impl SharedHistogram {
    /// Counts the time since `began`.
    pub fn record_since(&self, began: Instant) {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.buckets[Histogram::bucket_of(micros)].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    fn read(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (into, bucket) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *into = bucket.load(Relaxed);
        }
        histogram.sum_micros = self.sum_micros.load(Relaxed);
        histogram
    }
}

/// Counters of one shard's sockets and disk threads.
#[derive(Debug, Default)]
pub struct ShellCounters {
    /// Connections handed to the shard.
    pub connections_opened: AtomicU64,
    /// Connections that ended.
    pub connections_closed: AtomicU64,
    /// Of these: otherwise than by their client or by a stop.
    pub connections_cut: AtomicU64,
    /// Whole frames received.
    pub frames_received: AtomicU64,
    /// Their bytes.
    pub bytes_received: AtomicU64,
    /// Bytes that sockets have taken.
    pub bytes_sent: AtomicU64,
    /// Times of journal writes.
    pub journal_writes: SharedHistogram,
    /// Times of journal flushes.
    pub journal_flushes: SharedHistogram,
    /// Times of requests of the disk pool.
    pub pool_requests: SharedHistogram,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

/// A copy of [`ShellCounters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShellFigures {
    /// See [`ShellCounters::connections_opened`].
    pub connections_opened: u64,
    /// See [`ShellCounters::connections_closed`].
    pub connections_closed: u64,
    /// See [`ShellCounters::connections_cut`].
    pub connections_cut: u64,
    /// See [`ShellCounters::frames_received`].
    pub frames_received: u64,
    /// See [`ShellCounters::bytes_received`].
    pub bytes_received: u64,
    /// See [`ShellCounters::bytes_sent`].
    pub bytes_sent: u64,
    /// Bytes of frames that are accepted and not answered.
    pub ingest_bytes: u64,
    /// See [`ShellCounters::journal_writes`].
    pub journal_writes: Histogram,
    /// See [`ShellCounters::journal_flushes`].
    pub journal_flushes: Histogram,
    /// See [`ShellCounters::pool_requests`].
    pub pool_requests: Histogram,
}

impl ShellCounters {
    /// A copy.
    #[must_use]
    pub fn read(&self, ingest_bytes: usize) -> ShellFigures {
        ShellFigures {
            connections_opened: self.connections_opened.load(Relaxed),
            connections_closed: self.connections_closed.load(Relaxed),
            connections_cut: self.connections_cut.load(Relaxed),
            frames_received: self.frames_received.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            ingest_bytes: ingest_bytes as u64,
            journal_writes: self.journal_writes.read(),
            journal_flushes: self.journal_flushes.read(),
            pool_requests: self.pool_requests.read(),
        }
    }
}

/// What one shard answers.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardReport {
    /// The core's part; none if the core keeps no figures.
    pub core: Option<Box<ShardFigures>>,
    /// The shell's part.
    pub shell: ShellFigures,
}

/// Asks the shards of a node for their figures.
#[derive(Clone)]
pub struct Probe {
    inboxes: Vec<Arc<Inbox>>,
}

impl Probe {
    pub(crate) fn new(inboxes: Vec<Arc<Inbox>>) -> Self {
        Self { inboxes }
    }

    /// The reports of all shards, by number; none for a shard that has not answered within
    /// `limit`.
    pub async fn ask(&self, limit: Duration) -> Vec<Option<ShardReport>> {
        let asked: Vec<oneshot::Receiver<ShardReport>> = self
            .inboxes
            .iter()
            .map(|inbox| {
                let (answer, receiver) = oneshot::channel();
                inbox.ask(answer);
                receiver
            })
            .collect();
        let by = tokio::time::Instant::now() + limit;
        let mut reports = Vec::with_capacity(asked.len());
        for receiver in asked {
            let answer = tokio::time::timeout_at(by, receiver).await;
            reports.push(answer.ok().and_then(Result::ok));
        }
        reports
    }
}
