//! One turn of a shard: events in, effects out.
//!
//! This is the whole border between the core and whatever drives sockets and files. A loop
//! delivers events to [`Turn::run`] and implements [`Backend`] to execute what comes out; another
//! kind of loop (on a raw io_uring, say) is another `Backend`, and nothing else changes.
//!
//! Invariant: after a fatal effect nothing that follows it is executed.

use borzoi_shard::event::{
    ArchiveJob, ArchiveTicket, CloseReason, LogEntry, LogLevel, LogRecord, PasswordJob,
    PasswordTicket,
};
use borzoi_shard::{ConnectionId, Effect, Event, FatalError, Shard, ShardFigures, ShardMessage};
use borzoi_storage::disk::{DiskQueue, DiskRequest, DiskTicket};
use borzoi_types::{Mono, Now, ReplicaId, ShardId};
use bytes::Bytes;

/// What a loop drives: [`Shard`], or a stand-in where the loop itself is tested or measured.
pub trait Core {
    /// See [`Shard::handle`].
    fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>);
    /// See [`Shard::end_of_batch`].
    fn end_of_batch(&mut self, now: Now, effects: &mut Vec<Effect>);
    /// See [`Shard::deadline`].
    fn deadline(&self) -> Option<Mono>;
    /// See [`Shard::figures`]; a stand-in keeps none.
    fn figures(&self) -> Option<Box<ShardFigures>> {
        None
    }
}

impl Core for Shard {
    fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        Shard::handle(self, now, event, effects);
    }

    fn end_of_batch(&mut self, now: Now, effects: &mut Vec<Effect>) {
        Shard::end_of_batch(self, now, effects);
    }

    fn deadline(&self) -> Option<Mono> {
        Shard::deadline(self)
    }

    fn figures(&self) -> Option<Box<ShardFigures>> {
        Some(Box::new(Shard::figures(self)))
    }
}

/// Executes effects. Nothing here may block.
pub trait Backend {
    /// See [`Effect::Reply`].
    fn reply(&mut self, connection: ConnectionId, parts: Vec<Bytes>);
    /// See [`Effect::SetFrameLimit`].
    fn set_frame_limit(&mut self, connection: ConnectionId, bytes: usize);
    /// See [`Effect::Close`].
    fn close(&mut self, connection: ConnectionId, reason: CloseReason);
    /// See [`Effect::Disk`].
    fn disk(&mut self, queue: DiskQueue, ticket: DiskTicket, request: DiskRequest);
    /// See [`Effect::ToShard`].
    fn to_shard(&mut self, to: ShardId, message: ShardMessage);
    /// See [`Effect::ToPeer`].
    fn to_peer(&mut self, to: ReplicaId, parts: Vec<Bytes>);
    /// See [`Effect::Password`].
    fn password(&mut self, ticket: PasswordTicket, address: &str, job: PasswordJob);
    /// See [`Effect::Archive`].
    fn archive(&mut self, ticket: ArchiveTicket, job: ArchiveJob);
    /// The turn is over: what was gathered leaves now.
    fn end_of_turn(&mut self);
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The shard goes on.
    Running,
    /// The clean stop is complete.
    Stopped,
    /// The node cannot go on.
    Fatal(FatalError),
}

/// A core and its scratch memory.
pub struct Turn<C> {
    core: C,
    effects: Vec<Effect>,
}

impl<C: Core> Turn<C> {
    /// A core that has not run yet.
    #[must_use]
    pub fn new(core: C) -> Self {
        Self { core, effects: Vec::new() }
    }

    /// When the core wants a tick.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.core.deadline()
    }

    /// What the core tells about itself.
    #[must_use]
    pub fn figures(&self) -> Option<Box<ShardFigures>> {
        self.core.figures()
    }

    /// Hands `events` to the core and what it answers to `backend`.
    pub fn run(
        &mut self,
        now: Now,
        events: impl Iterator<Item = Event>,
        backend: &mut impl Backend,
    ) -> Ending {
        debug_assert!(self.effects.is_empty(), "each turn executes all its effects");
        for event in events {
            self.core.handle(now, event, &mut self.effects);
        }
        self.core.end_of_batch(now, &mut self.effects);
        let mut ending = Ending::Running;
        for effect in self.effects.drain(..) {
            match execute(effect, backend) {
                Ending::Running => {}
                Ending::Stopped => ending = Ending::Stopped,
                fatal @ Ending::Fatal(_) => return fatal,
            }
        }
        backend.end_of_turn();
        ending
    }
}

fn execute(effect: Effect, backend: &mut impl Backend) -> Ending {
    match effect {
        Effect::Reply { connection, parts } => backend.reply(connection, parts),
        Effect::SetFrameLimit { connection, bytes } => backend.set_frame_limit(connection, bytes),
        Effect::Close { connection, reason } => backend.close(connection, reason),
        Effect::Disk { queue, ticket, request } => backend.disk(queue, ticket, request),
        Effect::ToShard { to, message } => backend.to_shard(to, message),
        Effect::ToPeer { to, parts } => backend.to_peer(to, parts),
        Effect::Password { ticket, address, job } => backend.password(ticket, &address, job),
        Effect::Archive { ticket, job } => backend.archive(ticket, job),
        Effect::Log(record) => log(&record),
        Effect::Fatal(error) => return Ending::Fatal(error),
        Effect::Stopped => return Ending::Stopped,
    }
    Ending::Running
}

/// Emits one record at the level it names: the macros want the level at compile time.
macro_rules! emit {
    ($level:expr, $($fields:tt)+) => {
        match $level {
            LogLevel::Error => tracing::error!(target: "borzoi", $($fields)+),
            LogLevel::Warn => tracing::warn!(target: "borzoi", $($fields)+),
            LogLevel::Info => tracing::info!(target: "borzoi", $($fields)+),
            LogLevel::Debug => tracing::debug!(target: "borzoi", $($fields)+),
        }
    };
}

/// Hands a record to the subscriber, its data as fields.
fn log(record: &LogRecord) {
    let level = record.level;
    match &record.entry {
        LogEntry::LogServing { log, commit } => {
            emit!(level, log = log.0, commit = commit.0, "log serves");
        }
        LogEntry::JournalUsed { records, groups, flushes, flushes_with_records, bytes } => {
            emit!(
                level,
                records,
                groups,
                flushes,
                flushes_with_records,
                bytes,
                "journal since the start"
            );
        }
        LogEntry::Checkpoint { log, op } => {
            emit!(level, log = log.0, op = op.0, "checkpoint is durable");
        }
        LogEntry::DiskTrouble { error } => emit!(level, %error, "disk trouble"),
        LogEntry::Damage { key, file, position } => {
            emit!(level, partition = key.0, file = file.as_str(), position, "damaged data");
        }
        LogEntry::OffsetJump { log, partitions } => {
            emit!(level, log = log.0, partitions, "offsets jump to their reservation");
        }
        LogEntry::Client { peer, trouble } => {
            emit!(level, peer = peer.as_str(), %trouble, "client");
        }
        LogEntry::Text(text) => emit!(level, "{text}"),
    }
}
