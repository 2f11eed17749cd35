//! A node: its shards' threads, the threads they share, and the order in which all of them stop.
//!
//! Invariant: [`Node::run`] returns `Ok` only after every shard has completed its clean stop.

use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::event_loop::{LoopEnd, ShardLoop};
use crate::figures::Probe;
use crate::inbox::Inbox;
use crate::net::Admission;
use crate::net::accept::Acceptor;
use crate::password::PasswordPool;
use crate::threads::host::HostThread;
use crate::turn::Core;
use borzoi_shard::event::ArchiveJob;
use borzoi_types::ShardId;
use borzoi_types::limits::{PASSWORD_THREADS, STOP_SECONDS_MAX};
use bytes::Bytes;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Why a node ended otherwise than cleanly.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A shard failed.
    #[error("shard {shard}: {reason}")]
    Shard {
        /// Which one.
        shard: ShardId,
        /// Why, in words.
        reason: String,
    },
    /// A thread panicked: a bug, with the details above in the log.
    #[error("shard {shard} panicked: a bug; please report it with the log")]
    Panicked {
        /// Which shard's thread.
        shard: ShardId,
    },
    /// The clean stop took too long.
    #[error(
        "not stopped cleanly within {STOP_SECONDS_MAX} s; what was confirmed is in the journal"
    )]
    StopTimeout,
    /// A second signal.
    #[error("stopped at once on a second signal; what was confirmed is in the journal")]
    Impatient,
    /// A thread or listener could not be started.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

enum NodeEvent {
    Signal(&'static str),
    Ended(ShardId, LoopEnd),
    Panicked(ShardId),
}

/// Makes a diagnostic archive; none when it cannot. Called on a thread of its own.
pub type ArchiveMaker = Arc<dyn Fn(&ArchiveJob) -> Option<Bytes> + Send + Sync>;

/// What a node is made of.
pub struct NodeParts<C> {
    /// The shards, by number, as recovered.
    pub shards: Vec<C>,
    /// The data directory.
    pub disk: FileDisk,
    /// Bound listeners.
    pub listeners: Vec<TcpListener>,
    /// The clock with which the shards were booted.
    pub clock: Clock,
    /// Makes diagnostic archives.
    pub archives: ArchiveMaker,
}

/// Asks a node to stop, from any thread, as a signal would.
#[derive(Clone)]
pub struct Stopper(Sender<NodeEvent>);

impl Stopper {
    /// Begins the clean stop; does nothing if the node is gone.
    pub fn stop(&self) {
        let _ = self.0.send(NodeEvent::Signal("request"));
    }
}

/// A running node.
pub struct Node {
    stopper: Stopper,
    inboxes: Vec<Arc<Inbox>>,
    running: usize,
    events: Receiver<NodeEvent>,
    stop_accepting: Arc<Notify>,
    passwords: PasswordPool,
    _host: HostThread,
}

impl Node {
    /// Starts all threads. Connections are accepted when this returns.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start<C: Core + Send + 'static>(parts: NodeParts<C>) -> Result<Self, NodeError> {
        let count = parts.shards.len();
        assert!(count > 0, "a node has at least one shard");
        let inboxes: Vec<Arc<Inbox>> = (0..count).map(|_| Arc::default()).collect();
        let passwords = PasswordPool::start(PASSWORD_THREADS)?;
        let (sender, events) = channel();
        for (core, index) in parts.shards.into_iter().zip(0_u16..) {
            let shard_loop = ShardLoop {
                id: ShardId(index),
                core,
                disk: parts.disk.clone(),
                clock: parts.clock,
                inboxes: inboxes.clone(),
                passwords: passwords.clone(),
                archives: parts.archives.clone(),
            };
            start_shard(shard_loop, sender.clone())?;
        }
        let host = HostThread::start(parts.disk.root(), inboxes.clone())?;
        let stop_accepting = Arc::new(Notify::new());
        let acceptor = Acceptor {
            admission: Admission::new(count),
            inboxes: inboxes.clone(),
            stop: stop_accepting.clone(),
        };
        let listeners = parts.listeners;
        std::thread::Builder::new().name("accept".to_owned()).spawn(move || {
            if let Err(error) = acceptor.run(listeners) {
                tracing::error!(%error, "no connections can be accepted");
            }
        })?;
        start_signals(sender.clone())?;
        let stopper = Stopper(sender);
        Ok(Self {
            stopper,
            inboxes,
            running: count,
            events,
            stop_accepting,
            passwords,
            _host: host,
        })
    }

    /// A way to stop this node from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// A way to ask for the figures of its shards.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe::new(self.inboxes.clone())
    }

    /// Waits for a signal to stop, or for a failure, and stops. `stopping` is called when the stop
    /// begins.
    ///
    /// # Errors
    /// When the node ended otherwise than cleanly; the process must exit with a failure.
    pub fn run(mut self, stopping: impl Fn()) -> Result<(), NodeError> {
        let mut stop_by: Option<Instant> = None;
        while self.running > 0 {
            match self.next(stop_by)? {
                NodeEvent::Signal(name) if stop_by.is_none() => {
                    tracing::info!(signal = name, "stopping");
                    stopping();
                    stop_by = Some(Instant::now() + Duration::from_secs(STOP_SECONDS_MAX));
                    self.stop_accepting.notify_one();
                    self.inboxes.iter().for_each(|inbox| inbox.stop());
                }
                NodeEvent::Signal(_) => return Err(NodeError::Impatient),
                NodeEvent::Ended(_, LoopEnd::Stopped) => self.running -= 1,
                NodeEvent::Ended(shard, LoopEnd::Failed(reason)) => {
                    return Err(NodeError::Shard { shard, reason });
                }
                NodeEvent::Panicked(shard) => return Err(NodeError::Panicked { shard }),
            }
        }
        self.passwords.stop();
        Ok(())
    }

    fn next(&self, stop_by: Option<Instant>) -> Result<NodeEvent, NodeError> {
        let Some(by) = stop_by else {
            return self.events.recv().map_err(|_| NodeError::StopTimeout);
        };
        match self.events.recv_timeout(by.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(NodeError::StopTimeout)
            }
        }
    }
}

/// Reports how the thread ended, also when it panics.
struct Report {
    shard: ShardId,
    sender: Sender<NodeEvent>,
    end: Option<LoopEnd>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let event = match self.end.take() {
            Some(end) => NodeEvent::Ended(self.shard, end),
            None => NodeEvent::Panicked(self.shard),
        };
        // A node that is gone already has nobody to tell.
        let _ = self.sender.send(event);
    }
}

fn start_shard<C: Core + Send + 'static>(
    shard_loop: ShardLoop<C>,
    sender: Sender<NodeEvent>,
) -> io::Result<()> {
    let shard = shard_loop.id;
    std::thread::Builder::new().name(format!("shard-{shard}")).spawn(move || {
        let mut report = Report { shard, sender, end: None };
        let end = shard_loop.run().unwrap_or_else(|error| LoopEnd::Failed(error.to_string()));
        report.end = Some(end);
    })?;
    Ok(())
}

/// Turns SIGTERM and SIGINT into events. The thread lives as long as the process.
fn start_signals(sender: Sender<NodeEvent>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Registered before the node says that it is ready.
    let (mut terminate, mut interrupt) = runtime.block_on(async {
        Ok::<_, io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if sender.send(NodeEvent::Signal(name)).is_err() {
                    return;
                }
            }
        });
    })?;
    Ok(())
}
