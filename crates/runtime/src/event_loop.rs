//! The loop of one shard on tokio: one thread, one current-thread runtime, one set of local tasks.
//!
//! Each turn takes what has arrived (bounded), hands it to the shard, and lets everything that
//! comes out leave together. While nothing has arrived the thread sleeps until the bell rings or
//! the shard's deadline comes; while connections have frames, their tasks run between turns.

use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::figures::{ShardReport, ShellCounters};
use crate::inbox::{Arrivals, Class, Inbox};
use crate::net::Connections;
use crate::node::ArchiveMaker;
use crate::password::{self, PasswordPool};
use crate::threads::disk::DiskThreads;
use crate::turn::{Backend, Core, Ending, Turn};
use borzoi_shard::event::{
    ArchiveJob, ArchiveTicket, CloseReason, PasswordJob, PasswordOutcome, PasswordTicket,
};
use borzoi_shard::{ConnectionId, Event, FatalError, ShardMessage};
use borzoi_storage::disk::{DiskQueue, DiskRequest, DiskTicket};
use borzoi_storage::superblock::mark_write_failed;
use borzoi_types::limits::EVENTS_PER_TURN_MAX;
use borzoi_types::{Mono, ReplicaId, ShardId};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;

/// Time for the last replies to leave at a clean stop.
const LAST_REPLIES: Duration = Duration::from_millis(500);
/// Time between two looks at the time limits of connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two ticks. The timer is no finer, and a deadline that a core leaves in
/// the past costs a few per cent of a core instead of all of it.
const TICK_INTERVAL_MIN: borzoi_types::Duration = borzoi_types::Duration::from_millis(1);

/// Why a loop ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoopEnd {
    /// The clean stop is complete.
    Stopped,
    /// The shard, or a thread it depends on, cannot go on; in words for the log.
    Failed(String),
}

/// What a loop is made of, before it runs on its thread.
pub struct ShardLoop<C> {
    /// Which shard.
    pub id: ShardId,
    /// Its state, as recovered.
    pub core: C,
    /// Its files.
    pub disk: FileDisk,
    /// The node's clock.
    pub clock: Clock,
    /// The inboxes of all shards of the node, by number.
    pub inboxes: Vec<Arc<Inbox>>,
    /// Where passwords are hashed.
    pub passwords: PasswordPool,
    /// Makes diagnostic archives.
    pub archives: ArchiveMaker,
}

impl<C: Core> ShardLoop<C> {
    /// Runs until the shard has stopped or failed. Blocks the thread.
    ///
    /// # Errors
    /// When the runtime or a thread cannot be started.
    pub fn run(self) -> io::Result<LoopEnd> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inbox = self.inboxes[usize::from(self.id.0)].clone();
        let counters = Arc::new(ShellCounters::default());
        let disk = DiskThreads::start(self.id, &self.disk, &inbox, &counters)?;
        let local = LocalSet::new();
        let backend = TokioBackend {
            id: self.id,
            connections: Connections::new(inbox.clone(), self.clock, counters),
            disk,
            outgoing: self.inboxes.iter().map(|_| Default::default()).collect(),
            inboxes: self.inboxes,
            passwords: self.passwords,
            archives: self.archives,
            frames_lost: 0,
        };
        let running = Running {
            disk: self.disk.clone(),
            inbox,
            clock: self.clock,
            turn: Turn::new(self.core),
            backend,
            arrivals: Arrivals::default(),
            next_tick: Mono(0),
        };
        Ok(local.block_on(&runtime, running.run()))
    }
}

struct Running<C> {
    disk: FileDisk,
    inbox: Arc<Inbox>,
    clock: Clock,
    turn: Turn<C>,
    backend: TokioBackend,
    arrivals: Arrivals,
    /// Earliest time of the next tick.
    next_tick: Mono,
}

impl<C: Core> Running<C> {
    async fn run(mut self) -> LoopEnd {
        let ports = self.backend.connections.ports().clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                Connections::sweep(&ports);
            }
        });
        let mut events = Vec::new();
        // The first turn has no events: boot may have left something to do.
        loop {
            let ending = self.turn.run(self.clock.now(), events.drain(..), &mut self.backend);
            match ending {
                Ending::Running => {}
                Ending::Stopped => {
                    self.backend.connections.drain(LAST_REPLIES).await;
                    return LoopEnd::Stopped;
                }
                Ending::Fatal(error) => {
                    self.note_failed_write(&error);
                    return LoopEnd::Failed(error.to_string());
                }
            }
            // Connection tasks get the thread between turns, also when more work is waiting.
            tokio::task::yield_now().await;
            loop {
                if let Some(what) = self.gather(&mut events) {
                    return LoopEnd::Failed(what);
                }
                if !events.is_empty() {
                    break;
                }
                self.sleep().await;
            }
        }
    }

    /// After a failed write or flush of the journal the next start must not trust its tail.
    fn note_failed_write(&mut self, error: &FatalError) {
        if matches!(error, FatalError::Journal(_))
            && let Err(error) = mark_write_failed(&mut self.disk)
        {
            tracing::error!(?error, "the superblock cannot say that the journal has failed");
        }
    }

    /// Moves what has arrived into `events`, up to the limit of one turn, most urgent first.
    /// Returns what broke, if something did.
    fn gather(&mut self, events: &mut Vec<Event>) -> Option<String> {
        for blocked in self.inbox.take(&mut self.arrivals) {
            self.backend.inboxes[usize::from(blocked.0)].ring();
        }
        let arrivals = &mut self.arrivals;
        if arrivals.broken.is_some() {
            return arrivals.broken.take();
        }
        for ask in arrivals.asks.drain(..) {
            let ports = self.backend.connections.ports();
            let shell = ports.counters.read(ports.ingest.used());
            // Whoever asked may have given up.
            let _ = ask.send(ShardReport { core: self.turn.figures(), shell });
        }
        let now = self.clock.mono();
        if self.turn.deadline().is_some_and(|at| at.max(self.next_tick) <= now) {
            self.next_tick = now.plus(TICK_INTERVAL_MIN);
            events.push(Event::Tick);
        }
        let disk = arrivals.disk.drain(..);
        events.extend(disk.map(|(ticket, result)| Event::Disk { ticket, result }));
        let passwords = arrivals.passwords.drain(..);
        events.extend(passwords.map(|(ticket, outcome)| Event::Password { ticket, outcome }));
        let archives = arrivals.archives.drain(..);
        events.extend(archives.map(|(ticket, archive)| Event::Archive { ticket, archive }));
        events.extend(arrivals.host.take().map(Event::Host));
        for new in arrivals.connections.drain(..) {
            self.backend.connections.open(new);
        }
        let mut more = false;
        for messages in &mut arrivals.messages {
            let room = EVENTS_PER_TURN_MAX.saturating_sub(events.len()).min(messages.len());
            let taken = messages.drain(..room);
            events.extend(taken.map(|(from, message)| Event::FromShard { from, message }));
            more |= !messages.is_empty();
        }
        let mut local = self.backend.connections.ports().events.borrow_mut();
        let room = EVENTS_PER_TURN_MAX.saturating_sub(events.len()).min(local.len());
        events.extend(local.drain(..room));
        more |= !local.is_empty();
        if std::mem::take(&mut arrivals.stop) {
            events.push(Event::Stop);
        }
        if more {
            self.inbox.ring();
        }
        None
    }

    async fn sleep(&mut self) {
        match self.turn.deadline() {
            Some(at) => {
                let until = self.clock.instant(at.max(self.next_tick)).into();
                let _ = tokio::time::timeout_at(until, self.inbox.rung()).await;
            }
            None => self.inbox.rung().await,
        }
    }
}

/// Executes effects on tokio sockets and plain threads.
struct TokioBackend {
    id: ShardId,
    connections: Connections,
    disk: DiskThreads,
    inboxes: Vec<Arc<Inbox>>,
    /// Messages per destination and class that have not left yet.
    outgoing: Vec<[VecDeque<ShardMessage>; 3]>,
    passwords: PasswordPool,
    archives: ArchiveMaker,
    /// Frames for other nodes that could not leave.
    frames_lost: u64,
}

impl Backend for TokioBackend {
    fn reply(&mut self, connection: ConnectionId, parts: Vec<Bytes>) {
        self.connections.reply(connection, parts);
    }

    fn set_frame_limit(&mut self, connection: ConnectionId, bytes: usize) {
        self.connections.set_frame_limit(connection, bytes);
    }

    fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.connections.close(connection, reason);
    }

    fn disk(&mut self, queue: DiskQueue, ticket: DiskTicket, request: DiskRequest) {
        self.disk.submit(queue, ticket, request);
    }

    fn to_shard(&mut self, to: ShardId, message: ShardMessage) {
        let class = Class::of(&message);
        self.outgoing[usize::from(to.0)][class as usize].push_back(message);
    }

    fn to_peer(&mut self, to: ReplicaId, _parts: Vec<Bytes>) {
        // There are no sockets between nodes yet. Frames may be lost, so this is a link that is
        // down; one line says so.
        if self.frames_lost == 0 {
            tracing::warn!(node = to.0, "no links between nodes in this version: frames are lost");
        }
        self.frames_lost += 1;
    }

    fn password(&mut self, ticket: PasswordTicket, address: &str, job: PasswordJob) {
        let inbox = self.inboxes[usize::from(self.id.0)].clone();
        let refused = inbox.clone();
        let work = Box::new(move || inbox.password(ticket, work_on(job)));
        if self.passwords.submit(address, work).is_err() {
            refused.password(ticket, PasswordOutcome::Refused);
        }
    }

    fn archive(&mut self, ticket: ArchiveTicket, job: ArchiveJob) {
        let inbox = self.inboxes[usize::from(self.id.0)].clone();
        let (make, refused) = (self.archives.clone(), inbox.clone());
        let work = move || inbox.archive(ticket, make(&job));
        if std::thread::Builder::new().name("archive".to_owned()).spawn(work).is_err() {
            refused.archive(ticket, None);
        }
    }

    fn end_of_turn(&mut self) {
        let mut held = false;
        for (inbox, classes) in self.inboxes.iter().zip(&mut self.outgoing) {
            for class in Class::ALL {
                let queue = &mut classes[class as usize];
                if !queue.is_empty() {
                    inbox.messages(self.id, class, queue);
                    held |= !queue.is_empty();
                }
            }
        }
        // Back-pressure: no further client frame while another shard is full.
        self.connections.ports().ingest.hold(held);
        self.connections.flush();
    }
}

fn work_on(job: PasswordJob) -> PasswordOutcome {
    match job {
        PasswordJob::Verify { password, phc } => {
            PasswordOutcome::Verified(password::verify(password.0.as_bytes(), &phc))
        }
        PasswordJob::Hash { password, salt } => password::hash(password.0.as_bytes(), &salt)
            .map_or(PasswordOutcome::Refused, PasswordOutcome::Hashed),
    }
}
