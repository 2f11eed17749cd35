//! What the logs of one shard share: the journal, the disk, the segment cache, early requests, and
//! the way out.

use super::links::Links;
use super::serving::ServedRead;
use super::transfer::Wish;
use super::{BackOutput, MetadataCommit};
use crate::event::{Effect, FatalError, LogEntry, LogLevel, LogRecord, ShardMessage};
use crate::figures::TroubleCounters;
use crate::lane::api::{LaneReply, LaneRequest, Origin};
use crate::lane::reads::WaitingRead;
use crate::options::ShardOptions;
use crate::parking::Parking;
use crate::peer::{Forwarded, PeerMessage, Waiter};
use borzoi_consensus::Timeouts;
use borzoi_storage::cache::SegmentCache;
use borzoi_storage::disk::{DiskError, DiskQueue, DiskSubmissions, DiskTicket, Submission};
use borzoi_storage::journal::{Journal, RecordLocation};
use borzoi_types::limits::SEGMENT_UNWRITTEN_BYTES_MAX;
use borzoi_types::{LogId, Mono, Op, PartitionKey, ReplicaId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whom a disk result belongs to, when it is not the journal's.
#[derive(Debug)]
pub enum TicketOwner {
    /// A write, sync or removal of a partition's files.
    Partition {
        /// Its lane.
        log: LogId,
        /// Its key; the partition may be gone meanwhile.
        key: PartitionKey,
    },
    /// A poll that reads from disk.
    Read(Box<WaitingRead>),
    /// A checkpoint being written.
    Checkpoint {
        /// Of which log.
        log: LogId,
    },
    /// An old checkpoint being removed; nothing depends on it.
    OldCheckpoint,
    /// A chunk being read for a peer.
    Serve(ServedRead),
    /// A write, sync or checkpoint of the state transfer with this number.
    Transfer {
        /// The number.
        request: u64,
    },
    /// A prepare being read back for the replica.
    Fetch {
        /// Of which log.
        log: LogId,
        /// Which one.
        op: Op,
        /// Its identity.
        checksum: u128,
        /// Where it lies.
        location: RecordLocation,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// What the shard was told at boot.
    pub options: ShardOptions,
    /// The shard's journal.
    pub journal: Journal,
    /// Recent chunks and indexes.
    pub cache: SegmentCache,
    /// Disk requests of this batch.
    pub disk: DiskSubmissions,
    /// Links with other nodes.
    pub links: Links,
    /// Who leads which log, as far as known.
    pub leaders: BTreeMap<LogId, ReplicaId>,
    /// State transfers that replicas have asked for.
    pub(crate) transfers_wanted: Vec<(LogId, Wish)>,
    /// Logs that this node has begun or ceased to lead.
    pub leads_changed: Vec<(LogId, bool)>,
    /// Chunks being read for peers.
    pub served_reads: usize,
    /// When which log wants a tick.
    pub timers: LogTimers,
    /// Whom results belong to.
    pub tickets: BTreeMap<DiskTicket, TicketOwner>,
    /// Requests whose partition does not exist yet.
    pub parking: Parking,
    /// Requests to be submitted again: their partition has just been created.
    pub unparked: VecDeque<LaneRequest>,
    /// Logs that want their end of the batch.
    pub work: BTreeSet<LogId>,
    /// Logs whose next operation found no room in the journal; they are looked at with every
    /// batch until there is some, because what makes room knows nothing of them.
    pub no_room: BTreeSet<LogId>,
    /// A lane has something for the reconciler although metadata is unchanged, or has begun to
    /// serve: then its reconciler looks at everything.
    pub reconcile_wanted: bool,
    /// Logs that wait for the journal.
    pub waiting: BTreeSet<LogId>,
    /// Lanes that have confirmed more of what metadata wants since metadata was told.
    pub confirmed: BTreeSet<LogId>,
    /// The disk has refused a write for lack of space; when to try again.
    pub no_space: Option<Backoff>,
    /// The wait that led to the attempt under way, so that the next one is longer.
    pub retrying: Option<Backoff>,
    /// What went wrong and was handled.
    pub troubles: TroubleCounters,
    /// Set once: nothing is acknowledged any more.
    pub fatal: bool,
    /// The clean stop has begun: requests are refused.
    pub stopping: bool,
    /// Bytes of closed chunks, over all partitions, that are in no file yet.
    unwritten_bytes: usize,
    output: VecDeque<BackOutput>,
    effects: Vec<Effect>,
    /// Requests that boot has left for the shell.
    kept: Vec<Submission>,
}

/// When which log wants a tick, in order: a tick touches only the logs whose time has come.
#[derive(Debug, Default)]
pub struct LogTimers {
    order: BTreeSet<(Mono, LogId)>,
    armed: BTreeMap<LogId, Mono>,
    /// Logs that were given a tick since the start.
    ticked: u64,
}

impl LogTimers {
    /// The log wants a tick then, or none.
    pub fn set(&mut self, log: LogId, deadline: Option<Mono>) {
        let before = match deadline {
            Some(at) => self.armed.insert(log, at),
            None => self.armed.remove(&log),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, log));
        }
        if let Some(at) = deadline {
            self.order.insert((at, log));
        }
        assert_eq!(self.order.len(), self.armed.len(), "one place per log");
    }

    /// The earliest.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The logs whose time has come, in order of their numbers; each wants a new place.
    pub fn take_due(&mut self, now: Mono) -> BTreeSet<LogId> {
        let mut due = BTreeSet::new();
        while let Some((at, log)) = self.order.first().copied()
            && at <= now
        {
            self.order.pop_first();
            self.armed.remove(&log);
            due.insert(log);
        }
        self.ticked += due.len() as u64;
        due
    }

    /// Logs that were given a tick since the start.
    #[must_use]
    pub const fn ticked(&self) -> u64 {
        self.ticked
    }
}

/// Waiting before the next attempt after a full disk: 1 s, doubling to 60 s (required behaviour
/// B8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// When to try again.
    pub retry_at: Mono,
    /// The next wait, in seconds.
    pub next_secs: u64,
}

const BACKOFF_SECS_MIN: u64 = 1;
const BACKOFF_SECS_MAX: u64 = 60;

impl Shared {
    /// Nothing waiting anywhere.
    #[must_use]
    pub fn new(options: ShardOptions, journal: Journal, cache: SegmentCache) -> Self {
        let parking = Parking::new(options.park_age_max);
        let links = Links::new(&options, Timeouts::standard().heartbeat);
        Self {
            options,
            journal,
            cache,
            disk: DiskSubmissions::new(),
            links,
            leaders: BTreeMap::new(),
            transfers_wanted: Vec::new(),
            leads_changed: Vec::new(),
            served_reads: 0,
            timers: LogTimers::default(),
            tickets: BTreeMap::new(),
            parking,
            unparked: VecDeque::new(),
            work: BTreeSet::new(),
            no_room: BTreeSet::new(),
            reconcile_wanted: true,
            waiting: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            no_space: None,
            retrying: None,
            troubles: TroubleCounters::default(),
            fatal: false,
            stopping: false,
            unwritten_bytes: 0,
            output: VecDeque::new(),
            effects: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Answers a request: to the own front, or to the shard or node it came from.
    pub fn reply(&mut self, origin: Origin, reply: LaneReply) {
        if let Some(peer) = origin.peer {
            let waiter = Waiter { shard: origin.shard, ticket: origin.ticket };
            self.send_forwarded(peer, Forwarded::LaneReply { waiter, leader: None, reply });
        } else if origin.shard == self.options.shard {
            self.output.push_back(BackOutput::LaneReply { ticket: origin.ticket, reply });
        } else {
            let message = ShardMessage::LaneReply { ticket: origin.ticket, reply };
            self.send(origin.shard, message);
        }
    }

    /// Sends to another shard of this node.
    pub fn send(&mut self, to: borzoi_types::ShardId, message: ShardMessage) {
        assert!(to != self.options.shard, "what stays here takes no message");
        self.effects.push(Effect::ToShard { to, message });
    }

    /// Sends to another node; lost if the link is down, as any frame may be.
    pub fn send_peer(&mut self, to: ReplicaId, message: &PeerMessage) {
        assert!(to != self.options.replica, "nobody writes to themselves");
        let parts = self.links.frame(message);
        self.effects.push(Effect::ToPeer { to, parts });
    }

    /// Sends what the fronts and lanes of two nodes say to each other.
    pub fn send_forwarded(&mut self, to: ReplicaId, message: Forwarded) {
        self.send_peer(to, &PeerMessage::Forward(message.into_message()));
    }

    /// A log has run: when it wants a tick, and that it may have something to say to peers.
    pub fn note_ran(&mut self, log: LogId, deadline: Option<Mono>) {
        self.timers.set(log, deadline);
        self.links.note_ran(log);
    }

    /// Who leads a log of this shard has changed; the other shards of the node are told.
    pub fn leader_changed(&mut self, log: LogId, leader: Option<ReplicaId>) {
        if self.options.replica_count == 1 {
            return;
        }
        self.note_leader(log, leader);
        for shard in (0..self.options.shards).map(borzoi_types::ShardId) {
            if shard != self.options.shard {
                self.send(shard, ShardMessage::Leader { log, leader });
            }
        }
    }

    /// Remembers who leads a log and tells the front.
    pub fn note_leader(&mut self, log: LogId, leader: Option<ReplicaId>) {
        let before = match leader {
            Some(leader) => self.leaders.insert(log, leader),
            None => self.leaders.remove(&log),
        };
        if before != leader {
            self.output.push_back(BackOutput::Leader { log, leader });
        }
    }

    /// Hands something to the front.
    pub fn output(&mut self, output: BackOutput) {
        self.output.push_back(output);
    }

    /// Hands a committed metadata operation to the front.
    pub fn metadata_committed(&mut self, commit: MetadataCommit) {
        self.output.push_back(BackOutput::MetadataCommitted(commit));
    }

    /// Tells the front whether metadata operations may be proposed.
    pub fn metadata_serving(&mut self, serving: bool) {
        self.output.push_back(BackOutput::MetadataServing(serving));
    }

    /// Tells the front what lanes have confirmed, for metadata.
    pub fn lanes_confirmed(&mut self, lanes: Vec<(LogId, Op)>) {
        self.output.push_back(BackOutput::LanesConfirmed(lanes));
    }

    /// Answers a request for counters of the own front.
    pub fn counters_reply(&mut self, reply: crate::lane::api::CountersReply) {
        self.output.push_back(BackOutput::Counters(reply));
    }

    /// Emits something for a human.
    pub fn log(&mut self, level: LogLevel, entry: LogEntry) {
        self.troubles.note(&entry);
        self.effects.push(Effect::Log(LogRecord { level, entry }));
    }

    /// Emits an effect of the shard as a whole.
    pub fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The closed chunks of a partition that are in no file have become more or fewer.
    pub fn note_unwritten(&mut self, change: i64) {
        let now = i64::try_from(self.unwritten_bytes).expect("it fits in memory") + change;
        self.unwritten_bytes = usize::try_from(now).expect("each chunk is counted once");
    }

    /// Whether so much waits to be written to segments that nothing more is prepared.
    #[must_use]
    pub fn is_backed_up(&self) -> bool {
        self.unwritten_bytes >= SEGMENT_UNWRITTEN_BYTES_MAX
    }

    /// The node cannot go on: says so once; nothing is acknowledged after it.
    pub fn fail(&mut self, error: FatalError) {
        if !self.fatal {
            self.fatal = true;
            self.effects.push(Effect::Fatal(error));
        }
    }

    /// A write failed for lack of space: refuse writes until it has worked again.
    /// Several writes of one attempt may fail: only the first of them doubles the wait.
    pub fn note_no_space(&mut self, now: Mono, error: DiskError) {
        if self.no_space.is_some() {
            return;
        }
        let last = self.retrying.take();
        let secs = last.map_or(BACKOFF_SECS_MIN, |backoff| backoff.next_secs);
        let next_secs = (secs * 2).min(BACKOFF_SECS_MAX);
        let retry_at = now.plus(borzoi_types::Duration::from_secs(secs));
        if last.is_none() {
            self.log(LogLevel::Error, LogEntry::DiskTrouble { error });
        }
        self.no_space = Some(Backoff { retry_at, next_secs });
    }

    /// The wait after a full disk is over: writes are tried, by requests as well.
    pub fn begin_retry(&mut self) {
        self.retrying = self.no_space.take();
    }

    /// Whether something emitted has not left yet (boot leaves its effects here).
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.effects.is_empty()
            || !self.disk.is_empty()
            || !self.kept.is_empty()
            || !self.output.is_empty()
    }

    /// Boot: takes the journal's own requests; everything else is kept for the shell.
    pub fn take_journal_submissions(&mut self) -> Vec<Submission> {
        let (pool, journal): (Vec<_>, Vec<_>) =
            self.disk.drain().partition(|submission| submission.queue == DiskQueue::Pool);
        self.kept.extend(pool);
        journal
    }

    /// The next thing for the front.
    pub fn take_output(&mut self) -> Option<BackOutput> {
        self.output.pop_front()
    }

    /// Moves everything emitted to `effects`; disk requests last. After a fatal error no replies
    /// leave any more, only the error itself and the log.
    pub fn drain(&mut self, effects: &mut Vec<Effect>) {
        effects.append(&mut self.effects);
        for submission in self.kept.drain(..).chain(self.disk.drain()) {
            effects.push(Effect::Disk {
                queue: submission.queue,
                ticket: submission.ticket,
                request: submission.request,
            });
        }
    }
}
