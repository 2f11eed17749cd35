//! Lanes: one replicated log of data each, the state machine of every partition assigned to it.
//!
//! A lane on its primary gathers the requests of an event batch into prepares ([`forming`]), mints
//! offsets while it does, applies what commits and answers who waits ([`committing`]), answers
//! reads from committed state ([`reads`]), and keeps its partitions in step with what metadata
//! assigns to it ([`crate::reconciler`]). On every replica it claims offsets ahead
//! ([`reservation`]), flushes segments and takes part in checkpoints ([`checkpoint`]).
//!
//! Invariants:
//! - Whoever is admitted is answered exactly once: by commit, by refusal, or by the lane's stop.
//! - Offsets are minted when an operation is prepared, in log order, and never below one that was
//!   minted or exists.
//! - Nothing is confirmed before its operation has committed and been applied here.

pub mod admission;
pub mod api;
mod body_reader;
pub mod checkpoint;
pub mod committing;
pub mod confirming;
pub mod draining;
mod entry;
pub mod forming;
pub mod install;
pub mod loss;
pub mod operation;
pub mod reads;
pub mod reservation;
pub mod retention;
pub mod rounds;
pub mod state;
pub mod window;

use crate::back::shared::Shared;
use crate::back::transfer::Wish;
use crate::event::{FatalError, LogEntry, LogLevel};
use crate::lane::api::{ConsumerKey, LaneReply, LaneRequest, Origin, Refusal};
use crate::lane::checkpoint::LaneCheckpoint;
use crate::lane::confirming::Confirming;
use crate::lane::draining::Draining;
use crate::lane::forming::{ClaimOffsets, InFlight, Queued};
use crate::lane::operation::{Entry, Retention};
use crate::lane::reservation::{ReservationMode, Reservations};
use crate::lane::retention::RetentionIndex;
use crate::lane::rounds::ReadRounds;
use crate::lane::state::LaneState;
use crate::log_host::{HostOutput, LogHost};
use crate::peer::PeerMessage;
use borzoi_consensus::{Anchor, Role};
use borzoi_storage::disk::FileName;
use borzoi_storage::journal::{
    AppendError, Journal, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use borzoi_storage::partition::PartitionLog;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Durability, LogId, Now, Op, PartitionKey, RequestNumber, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A send in flight, for resends that overtake its commit.
pub(crate) type SendKey = (SessionId, RequestNumber, u64, PartitionKey);

/// What a lane has done since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneCounters {
    /// Operations prepared here.
    pub prepared: u64,
    /// Operations committed.
    pub committed: u64,
    /// Batches committed.
    pub batches: u64,
    /// Messages committed.
    pub messages: u64,
    /// Sends answered from the exactly-once window.
    pub duplicates: u64,
    /// Requests refused because the queue was full.
    pub refused_busy: u64,
    /// Requests for a key that was deleted.
    pub stale: u64,
    /// Reservations written.
    pub reservations: u64,
    /// Truncations planned by retention or for a wish that consumers held back.
    pub truncations: u64,
    /// Operations of consumer groups refused because another member owns the partition.
    pub fenced: u64,
}

/// What waits in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneWaiting {
    /// Requests admitted and not prepared.
    pub requests_queued: u64,
    /// Their bytes.
    pub bytes_queued: u64,
    /// Operations prepared and not committed.
    pub operations_in_flight: u64,
}

/// One lane on this node.
#[derive(Debug)]
pub struct Lane {
    pub(crate) log: LogId,
    level: Durability,
    lease: u64,
    host: LogHost,
    pub(crate) state: LaneState,
    /// Identity of the last operation applied, for checkpoints.
    applied: Anchor,
    reservations: Reservations,
    serving: bool,
    /// Requests admitted and not prepared.
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Entries of the lane itself (creates, deletes, jumps), prepared before the queue.
    pub(crate) planned: VecDeque<Entry>,
    in_flight: VecDeque<InFlight>,
    /// Sends with an identity from admission to commit, and who else waits for them.
    sends: BTreeMap<SendKey, Vec<Origin>>,
    /// Partitions whose deletion is planned, and by which metadata operation.
    pub(crate) closing: BTreeMap<PartitionKey, Op>,
    /// Highest key whose creation is planned or done.
    pub(crate) create_planned: PartitionKey,
    /// Keys whose creation is planned or in flight, and the retention that it carries.
    pub(crate) creating: BTreeMap<PartitionKey, Retention>,
    /// Consumers whose automatic commit is to be prepared.
    auto_commits: BTreeSet<(PartitionKey, ConsumerKey)>,
    /// Partitions that are gone but whose files may not be.
    removed: BTreeMap<PartitionKey, PartitionLog>,
    /// Partitions with closed chunks to write.
    flush_wanted: BTreeSet<PartitionKey>,
    deleted_waiters: BTreeMap<PartitionKey, Vec<Origin>>,
    /// Reads that wait for proof that this node still leads.
    rounds: ReadRounds<LaneRequest>,
    /// What consumer groups have been given and not committed.
    draining: Draining,
    /// Metadata operation up to which the reconciler has compared.
    pub(crate) reconciled: Option<Op>,
    /// Partitions with a consumer group that was not known there: it may have been deleted.
    pub(crate) new_groups: BTreeSet<PartitionKey>,
    confirming: Confirming,
    retention: RetentionIndex,
    checkpoint: Option<LaneCheckpoint>,
    /// Nothing of the lane's own is written: its state is being replaced.
    resting: bool,
    counters: LaneCounters,
}

/// What boot knows of a lane.
pub struct LaneBoot {
    /// Its level.
    pub level: Durability,
    /// Offsets to reserve ahead.
    pub lease: u64,
    /// Its replica, started.
    pub host: LogHost,
    /// Its state at the checkpoint.
    pub state: LaneState,
    /// The checkpoint's operation, or the root.
    pub applied: Anchor,
    /// What is reserved.
    pub reservations: Reservations,
}

impl Lane {
    /// A lane as boot found it; not serving yet.
    #[must_use]
    pub fn new(boot: LaneBoot) -> Self {
        assert_eq!(boot.applied.op, boot.state.applied(), "the anchor names the state");
        let create_planned = boot.state.highest_created();
        Self {
            log: boot.host.log(),
            level: boot.level,
            lease: boot.lease,
            host: boot.host,
            state: boot.state,
            applied: boot.applied,
            reservations: boot.reservations,
            serving: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            planned: VecDeque::new(),
            in_flight: VecDeque::new(),
            sends: BTreeMap::new(),
            closing: BTreeMap::new(),
            create_planned,
            creating: BTreeMap::new(),
            auto_commits: BTreeSet::new(),
            removed: BTreeMap::new(),
            flush_wanted: BTreeSet::new(),
            deleted_waiters: BTreeMap::new(),
            rounds: ReadRounds::default(),
            draining: Draining::default(),
            reconciled: None,
            new_groups: BTreeSet::new(),
            confirming: Confirming::default(),
            retention: RetentionIndex::default(),
            checkpoint: None,
            resting: false,
            counters: LaneCounters::default(),
        }
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> LogId {
        self.log
    }

    /// Whether this node leads the lane and admits requests.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.serving
    }

    /// The replicated state.
    #[must_use]
    pub const fn state(&self) -> &LaneState {
        &self.state
    }

    /// The log's host.
    #[must_use]
    pub const fn host(&self) -> &LogHost {
        &self.host
    }

    /// What is reserved ahead.
    #[must_use]
    pub const fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> LaneCounters {
        self.counters
    }

    /// How much waits here.
    #[must_use]
    pub fn waiting(&self) -> LaneWaiting {
        LaneWaiting {
            requests_queued: self.queue.len() as u64,
            bytes_queued: self.queue_bytes as u64,
            operations_in_flight: self.in_flight.len() as u64,
        }
    }

    /// Whether nothing is queued, in flight or waiting for the journal.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.planned.is_empty()
            && self.in_flight.is_empty()
            && self.auto_commits.is_empty()
            && self.rounds.is_empty()
            && !self.host.waits_for_journal()
    }

    /// Whether no operation of this lane is planned or on its way, so that only a new one moves it.
    /// Requests may wait for room.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.planned.is_empty() && self.in_flight.is_empty() && !self.host.waits_for_journal()
    }

    /// Whether this lane needs a segment file of `key`.
    #[must_use]
    pub fn names_file(&self, key: PartitionKey, file: &FileName) -> bool {
        let existing = self.state.partition(key).map(|partition| &partition.log);
        existing.or_else(|| self.removed.get(&key)).is_some_and(|log| log.names_file(file))
    }

    /// Gives the replica what has happened and does what follows from it: appends, commits, role
    /// changes, answers.
    pub fn run(&mut self, now: Now, shared: &mut Shared) {
        let mut outputs = Vec::new();
        while self.host.wants() {
            let mut claims = ClaimOffsets {
                level: self.level,
                lease: self.lease,
                reservations: &mut self.reservations,
                state: &self.state,
                written: &mut self.counters.reservations,
            };
            self.host.execute(&mut shared.journal, &mut claims, &mut outputs);
            for output in outputs.drain(..) {
                self.output(now, output, shared);
            }
        }
        self.serve_confirmed(now, shared);
        shared.note_ran(self.log, self.host.deadline());
        if self.host.waits_for_journal() {
            shared.waiting.insert(self.log);
        }
        shared.work.insert(self.log);
    }

    /// The journal has come further.
    pub fn journal_progress(&mut self, now: Now, shared: &mut Shared) {
        let progress = shared.journal.progress().clone();
        self.host.progress(now.mono, &progress);
        if !self.host.waits_for_journal() {
            shared.waiting.remove(&self.log);
        }
        self.run(now, shared);
    }

    /// Gives the replica an event and runs it.
    pub fn replica_event(&mut self, now: Now, event: borzoi_consensus::Event, shared: &mut Shared) {
        self.host.event(now.mono, event);
        self.run(now, shared);
    }

    /// As [`Self::replica_event`], for events of time: a replica at rest that wants nothing costs
    /// no more than its next deadline.
    pub fn time_event(&mut self, now: Now, event: borzoi_consensus::Event, shared: &mut Shared) {
        self.host.event(now.mono, event);
        if self.host.wants() {
            self.run(now, shared);
        } else {
            shared.timers.set(self.log, self.host.deadline());
        }
    }

    fn output(&mut self, now: Now, output: HostOutput, shared: &mut Shared) {
        match output {
            HostOutput::Committed(prepare) => self.committed(&prepare, shared),
            HostOutput::Role(role) => self.role_changed(role, shared),
            HostOutput::Fetch { op, checksum } => {
                if !crate::back::fetch(shared, self.log, op, checksum) {
                    let prepare = None;
                    let event = borzoi_consensus::Event::Fetched { op, checksum, prepare };
                    self.host.event(now.mono, event);
                }
            }
            HostOutput::JournalRefused(AppendError::Failed(error)) => {
                shared.fail(FatalError::Journal(error));
            }
            HostOutput::JournalRefused(error) => {
                // Kept and appended when there is room; a primary has asked for room before.
                shared.no_room.insert(self.log);
                let text = format!("log {}: {error}", self.log);
                shared.log(LogLevel::Warn, LogEntry::Text(text));
            }
            HostOutput::Send { to, message } => {
                shared.send_peer(to, &PeerMessage::Log { log: self.log, message });
            }
            HostOutput::StateTransfer { from, at_least, diverged } => {
                shared.transfers_wanted.push((self.log, Wish { from, at_least, diverged }));
            }
        }
    }

    /// Appends what the journal had no room for, if it has now.
    pub fn retry_stalled(&mut self, now: Now, shared: &mut Shared) {
        if !self.host.is_stalled() {
            return;
        }
        let mut outputs = Vec::new();
        let mut claims = ClaimOffsets {
            level: self.level,
            lease: self.lease,
            reservations: &mut self.reservations,
            state: &self.state,
            written: &mut self.counters.reservations,
        };
        self.host.retry_stalled(&mut shared.journal, &mut claims, &mut outputs);
        for output in outputs {
            self.output(now, output, shared);
        }
        if self.host.is_stalled() {
            shared.no_room.insert(self.log);
        }
        self.run(now, shared);
    }

    /// Begins the read round that waiting reads want, and asks peers to answer it.
    pub fn begin_round(&mut self, shared: &mut Shared) {
        if !self.serving || !self.rounds.wants_round() {
            return;
        }
        let (round, messages) = self.host.begin_round();
        self.rounds.begun(round);
        for (to, message) in messages {
            shared.send_peer(to, &PeerMessage::Log { log: self.log, message });
        }
        shared.note_ran(self.log, self.host.deadline());
    }

    fn serve_confirmed(&mut self, now: Now, shared: &mut Shared) {
        if self.rounds.is_empty() {
            return;
        }
        for read in self.rounds.take_confirmed(self.host.replica().confirmed_round()) {
            self.submit_confirmed(now, read, shared);
        }
        if self.rounds.wants_round() {
            shared.work.insert(self.log);
        }
    }

    fn role_changed(&mut self, role: Role, shared: &mut Shared) {
        shared.leader_changed(self.log, self.host.replica().primary());
        if matches!(role, Role::ViewChange { .. }) {
            self.attach_reservations();
        }
        let serves = matches!(role, Role::Primary { may_serve: true, .. });
        if serves == self.serving {
            return;
        }
        self.serving = serves;
        shared.leads_changed.push((self.log, serves));
        self.forget_plans();
        self.refuse_everyone(&Refusal::NotServing, shared);
        if !serves {
            return self.refuse_parked(&Refusal::NotServing, shared);
        }
        shared.reconcile_wanted = true;
        for (_, partition) in self.state.partitions_mut() {
            partition.reset_primary_state();
        }
        self.create_planned = self.state.highest_created();
        self.reconciled = None;
        self.rebuild_retention();
        self.plan_jumps(shared);
        let commit = self.host.replica().commit();
        shared.log(LogLevel::Debug, LogEntry::LogServing { log: self.log, commit });
    }

    /// Plans to go on above what was reserved, where more existed than the log shows: before any
    /// other operation of this primary, so that no offset that may have been confirmed is handed
    /// out again.
    fn plan_jumps(&mut self, shared: &mut Shared) {
        if planted::is(Bug::SkipJump) {
            return;
        }
        assert!(self.planned.is_empty(), "jumps come first");
        for (key, reservation) in self.reservations.iter() {
            let Some(partition) = self.state.partition(key) else { continue };
            if reservation.frontier > partition.log.next_offset() {
                self.planned.push_back(Entry::OffsetJump { key, to: reservation.reserved });
            }
        }
        let partitions = self.planned.len() as u64;
        if partitions > 0 {
            shared.log(LogLevel::Warn, LogEntry::OffsetJump { log: self.log, partitions });
        }
    }

    fn forget_plans(&mut self) {
        self.planned.clear();
        self.closing.clear();
        self.creating.clear();
        self.auto_commits.clear();
        self.new_groups.clear();
    }

    /// Appends the record that lowers every reservation to what exists. Only when everything this
    /// lane ever appended is durable and nothing is minted any more.
    ///
    /// # Errors
    /// When the journal does not take it: the reservations stand.
    pub fn collapse_reservations(
        &mut self,
        journal: &mut Journal,
    ) -> Result<Option<RecordSeq>, AppendError> {
        // In a group whoever holds nothing that is not applied has nothing above it to claim.
        let replica = self.host.replica();
        let applied = replica.head() == self.applied.op && self.is_idle();
        let whole = replica.replica_count() > 1 && applied;
        if self.level == Durability::Persisted
            || !(whole || (self.serving && replica.replica_count() == 1))
        {
            return Ok(None);
        }
        assert!(self.is_idle(), "nothing is minted any more");
        let state = &self.state;
        let frontier = |key| state.partition(key).map(|p| p.log.next_offset());
        let mut collapsed = self.reservations.clone();
        let entries = collapsed.collapse(frontier);
        if entries.is_empty() {
            return Ok(None);
        }
        let (header, body) = reservation::encode(ReservationMode::Install, &entries);
        let record = JournalRecord {
            kind: RecordKind::Reservation,
            log: self.log,
            op: self.applied.op,
            header,
            body,
        };
        let sequence = journal.append(record, Durability::Persisted, RecordClass::Reserved)?;
        self.reservations = collapsed;
        Ok(Some(sequence))
    }

    /// Refuses the early requests of this lane: another node creates their partitions now.
    fn refuse_parked(&self, refusal: &Refusal, shared: &mut Shared) {
        for key in shared.parking.keys_of(self.log) {
            for request in shared.parking.take(key) {
                shared.reply(request.origin, LaneReply::Refused(refusal.clone()));
            }
        }
    }

    /// Answers everyone who waits for an operation of this lane: with the refusal, or, where the
    /// operation was prepared and another node may commit it, that its fate is unknown.
    pub fn refuse_everyone(&mut self, refusal: &Refusal, shared: &mut Shared) {
        for in_flight in self.in_flight.drain(..) {
            for waiter in &in_flight.waiters {
                shared.reply(waiter.origin, LaneReply::Refused(Refusal::Unknown));
            }
        }
        for (_, waiters) in core::mem::take(&mut self.sends) {
            for origin in waiters {
                shared.reply(origin, LaneReply::Refused(Refusal::Unknown));
            }
        }
        let mut origins: Vec<Origin> = Vec::new();
        for queued in self.queue.drain(..) {
            origins.extend(queued.waits.then_some(queued.origin));
        }
        self.queue_bytes = 0;
        for (_, waiters) in core::mem::take(&mut self.deleted_waiters) {
            origins.extend(waiters);
        }
        origins.extend(self.draining.forget_all());
        origins.extend(self.rounds.take_all().iter().map(|read| read.origin));
        origins.extend(self.confirming.reset());
        for origin in origins {
            shared.reply(origin, LaneReply::Refused(refusal.clone()));
        }
    }
}
