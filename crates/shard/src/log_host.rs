//! A replicated log on this node: a consensus replica and its share of the shard's journal.
//!
//! Serves metadata and lanes alike. Executes what the replica wants (append, persist its view,
//! read a prepare back) against the journal, turns the journal's progress into *held at the log's
//! level* and *view durable*, and hands committed operations on, in order, each once.
//!
//! Invariants:
//! - A prepare is reported held only when its record has reached the log's level *and* every record
//!   it depends on (an offset reservation) is durable.
//! - Records enter the journal in the order in which the replica asked for them.
//! - What waits for the journal waits in sequence order, so progress is popped from the front.
//! - What a full journal did not take is kept, in order, and taken when there is room: nothing the
//!   replica asked for is forgotten.

use borzoi_consensus::{
    Effect as ReplicaEffect, Event as ReplicaEvent, Message, Options, Prepare, PrepareKind,
    Refusal as ReplicaRefusal, Replica, Role, Settled, ViewState,
};
use borzoi_storage::journal::{
    AppendError, Journal, JournalProgress, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Body, Durability, LogId, Micros, Mono, Now, Op, ReplicaId, View};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a log has for its owner.
#[derive(Debug)]
pub enum HostOutput {
    /// An operation has committed. In op order, each once.
    Committed(Arc<Prepare>),
    /// The replica's part has changed.
    Role(Role),
    /// Send a frame to a peer.
    Send {
        /// Receiver.
        to: ReplicaId,
        /// What to send.
        message: Message,
    },
    /// A prepare is wanted back from the journal.
    Fetch {
        /// Its op.
        op: Op,
        /// Its identity.
        checksum: u128,
    },
    /// State must be copied from a peer.
    StateTransfer {
        /// Whom to ask first.
        from: ReplicaId,
        /// What the checkpoint must cover.
        at_least: Op,
        /// This node's own state contradicts the group's.
        diverged: bool,
    },
    /// The journal did not take a record that it must take.
    JournalRefused(AppendError),
}

/// When a prepare may count as held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// This record must be durable first; [`RecordSeq::ZERO`]: none.
    pub durable_first: RecordSeq,
    /// The level of the prepare itself, at least that of its log.
    pub level: Durability,
}

/// What must be durable before a prepare may count as held, beside the prepare itself.
pub trait BeforeAppend {
    /// Called before the record of `prepare` enters the journal. May append records of its own; the
    /// highest of those that must be durable first is returned.
    ///
    /// # Errors
    /// When the journal does not take them; the prepare is not appended then.
    fn before_append(
        &mut self,
        prepare: &Prepare,
        journal: &mut Journal,
    ) -> Result<Before, AppendError>;
}

/// For logs of level `persisted` whose prepares depend on nothing.
pub struct NothingBefore;

impl BeforeAppend for NothingBefore {
    fn before_append(
        &mut self,
        _prepare: &Prepare,
        _journal: &mut Journal,
    ) -> Result<Before, AppendError> {
        Ok(Before { durable_first: RecordSeq::ZERO, level: Durability::Persisted })
    }
}

#[derive(Clone, Copy, Debug)]
struct Appended {
    op: Op,
    checksum: u128,
    sequence: RecordSeq,
    durable_first: RecordSeq,
}

#[derive(Clone, Copy, Debug)]
struct ViewWritten {
    view: View,
    log_view: View,
    sequence: RecordSeq,
}

/// See the module.
#[derive(Debug)]
pub struct LogHost {
    log: LogId,
    level: Durability,
    replica: Replica,
    appended: VecDeque<Appended>,
    views_written: VecDeque<ViewWritten>,
    wanted: Vec<ReplicaEffect>,
    /// Appends that found no room in the journal. Bounded by what a replica may have in flight.
    stalled: VecDeque<ReplicaEffect>,
    timestamp: Micros,
}

impl LogHost {
    /// Starts the replica of a log from what recovery settled. Its first wishes are executed by
    /// the next [`Self::execute`].
    #[must_use]
    pub fn start(
        options: Options,
        level: Durability,
        settled: Settled,
        now: Mono,
        random_seed: u64,
    ) -> Self {
        let log = options.log;
        let newest = settled.slots.iter().rev().find_map(|slot| slot.header);
        let timestamp = newest.map_or(Micros(0), |header| header.timestamp);
        let mut wanted = Vec::new();
        let replica = Replica::start(options, settled, now, random_seed, &mut wanted);
        Self {
            log,
            level,
            replica,
            appended: VecDeque::new(),
            views_written: VecDeque::new(),
            wanted,
            stalled: VecDeque::new(),
            timestamp,
        }
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> LogId {
        self.log
    }

    /// The replica, to be asked.
    #[must_use]
    pub const fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Whether anything waits for the journal.
    #[must_use]
    pub fn waits_for_journal(&self) -> bool {
        !self.appended.is_empty() || !self.views_written.is_empty() || self.is_stalled()
    }

    /// Whether the journal had no room for something: [`Self::retry_stalled`] when it may have.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Begins a read round, and says what to send to whom so that peers echo it.
    pub fn begin_round(&mut self) -> (u64, Vec<(ReplicaId, Message)>) {
        let round = self.replica.begin_round();
        let peers = (0..self.replica.replica_count()).map(ReplicaId);
        let messages = peers.filter_map(|peer| Some((peer, self.replica.heartbeat_for(peer)?)));
        (round, messages.collect())
    }

    /// What a loss epoch is to know of this replica.
    pub fn set_attachment(&mut self, attachment: Bytes) {
        self.replica.set_attachment(attachment);
    }

    /// Whether the replica wants something executed.
    #[must_use]
    pub fn wants(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The timestamp for an operation prepared now: the wall clock, never behind the log's newest
    /// operation, so that time in the log does not go back when the clock does.
    pub fn mint_timestamp(&mut self, now: Now) -> Micros {
        self.timestamp = self.timestamp.max(now.wall);
        self.timestamp
    }

    /// The newest timestamp of the log.
    #[must_use]
    pub const fn timestamp(&self) -> Micros {
        self.timestamp
    }

    /// Raises what [`Self::mint_timestamp`] starts from.
    pub fn note_timestamp(&mut self, timestamp: Micros) {
        self.timestamp = self.timestamp.max(timestamp);
    }

    /// Gives the replica an event.
    pub fn event(&mut self, now: Mono, event: ReplicaEvent) {
        self.replica.handle(now, event, &mut self.wanted);
    }

    /// Whether an operation of `body_len` bytes could be prepared now.
    ///
    /// # Errors
    /// Why not.
    pub fn can_propose(&self, body_len: usize) -> Result<(), ReplicaRefusal> {
        self.replica.can_propose(body_len)
    }

    /// Prepares an operation; [`Self::execute`] appends it. The journal must have room for it.
    ///
    /// # Errors
    /// Why the replica does not take it.
    pub fn propose(
        &mut self,
        now: Now,
        timestamp: Micros,
        body: Body,
    ) -> Result<Op, ReplicaRefusal> {
        assert!(timestamp >= self.timestamp, "minted by mint_timestamp");
        self.replica.propose(now.mono, timestamp, body, &mut self.wanted)
    }

    /// When the replica wants a tick.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.replica.deadline()
    }

    /// Executes what the replica wants. What the owner must do is left in `out`.
    pub fn execute(
        &mut self,
        journal: &mut Journal,
        before: &mut dyn BeforeAppend,
        out: &mut Vec<HostOutput>,
    ) {
        for wish in core::mem::take(&mut self.wanted) {
            match wish {
                ReplicaEffect::Append(_) | ReplicaEffect::PersistViewState(_) => {
                    if self.is_stalled() {
                        self.stalled.push_back(wish);
                    } else if let Err(error) = self.write(&wish, journal, before) {
                        self.refused(wish, error, out);
                    }
                }
                ReplicaEffect::Commit(prepare) => out.push(HostOutput::Committed(prepare)),
                ReplicaEffect::Send { to, message } => out.push(HostOutput::Send { to, message }),
                ReplicaEffect::Fetch { op, checksum } => {
                    out.push(HostOutput::Fetch { op, checksum });
                }
                ReplicaEffect::RoleChanged(role) => out.push(HostOutput::Role(role)),
                ReplicaEffect::StateTransfer { from, at_least, diverged } => {
                    out.push(HostOutput::StateTransfer { from, at_least, diverged });
                }
            }
        }
    }

    /// Appends what found no room before, as far as there is room now.
    pub fn retry_stalled(
        &mut self,
        journal: &mut Journal,
        before: &mut dyn BeforeAppend,
        out: &mut Vec<HostOutput>,
    ) {
        while let Some(wish) = self.stalled.pop_front() {
            match self.write(&wish, journal, before) {
                Ok(()) => {}
                Err(AppendError::Full { .. }) => return self.stalled.push_front(wish),
                Err(error) => return out.push(HostOutput::JournalRefused(error)),
            }
        }
    }

    fn refused(&mut self, wish: ReplicaEffect, error: AppendError, out: &mut Vec<HostOutput>) {
        if matches!(error, AppendError::Full { .. }) {
            self.stalled.push_back(wish);
        }
        out.push(HostOutput::JournalRefused(error));
    }

    fn write(
        &mut self,
        wish: &ReplicaEffect,
        journal: &mut Journal,
        before: &mut dyn BeforeAppend,
    ) -> Result<(), AppendError> {
        match wish {
            ReplicaEffect::Append(prepare) => self.append(prepare, journal, before),
            ReplicaEffect::PersistViewState(state) => self.persist_view(state, journal),
            _ => unreachable!("only records are written"),
        }
    }

    /// Tells the replica how far the journal has come.
    pub fn progress(&mut self, now: Mono, progress: &JournalProgress) {
        while let Some(first) = self.views_written.front()
            && (first.sequence <= progress.synced_through || planted::is(Bug::ViewBeforeSync))
        {
            let ViewWritten { view, log_view, .. } = *first;
            self.views_written.pop_front();
            self.event(now, ReplicaEvent::ViewStateDurable { view, log_view });
        }
        let level_through = match self.level {
            Durability::Persisted if planted::is(Bug::AcknowledgeBeforeSync) => {
                progress.written_through
            }
            Durability::Persisted => progress.synced_through,
            Durability::Replicated => progress.written_through,
        };
        while let Some(first) = self.appended.front()
            && first.sequence <= level_through
            && (first.durable_first <= progress.synced_through
                || planted::is(Bug::ForgetReservation))
        {
            let Appended { op, checksum, .. } = *first;
            self.appended.pop_front();
            self.event(now, ReplicaEvent::Held { op, checksum });
        }
    }

    fn append(
        &mut self,
        prepare: &Arc<Prepare>,
        journal: &mut Journal,
        before: &mut dyn BeforeAppend,
    ) -> Result<(), AppendError> {
        assert_eq!(prepare.header.log, self.log);
        self.timestamp = self.timestamp.max(prepare.header.timestamp);
        let Before { mut durable_first, level } = before.before_append(prepare, journal)?;
        assert!(level >= self.level, "never less than the log promises");
        // Room for operations of clients was asked for before they were proposed; whatever
        // consensus itself appends may use the reserved share.
        let sequence = journal.append(prepare_record(prepare), level, RecordClass::Reserved)?;
        assert!(durable_first < sequence, "what it depends on stands before it");
        if level > self.level {
            durable_first = sequence;
        }
        let (op, checksum) = (prepare.header.op, prepare.header.checksum);
        self.appended.push_back(Appended { op, checksum, sequence, durable_first });
        Ok(())
    }

    fn persist_view(
        &mut self,
        state: &ViewState,
        journal: &mut Journal,
    ) -> Result<(), AppendError> {
        let (view, log_view) = (state.view, state.log_view);
        let record = view_state_record(state);
        let sequence = journal.append(record, Durability::Persisted, RecordClass::Reserved)?;
        self.views_written.push_back(ViewWritten { view, log_view, sequence });
        Ok(())
    }
}

/// The journal record of a prepare.
#[must_use]
pub fn prepare_record(prepare: &Prepare) -> JournalRecord {
    JournalRecord {
        kind: RecordKind::Prepare,
        log: prepare.header.log,
        op: prepare.header.op,
        header: Bytes::copy_from_slice(&prepare.header.encode()),
        body: prepare.body.clone(),
    }
}

/// The journal record of a view.
#[must_use]
pub fn view_state_record(state: &ViewState) -> JournalRecord {
    JournalRecord {
        kind: RecordKind::ViewState,
        log: state.log,
        op: state.suffix.head.op,
        header: Bytes::new(),
        body: Body::from(state.encode()),
    }
}

/// Whether an operation is the log user's own: consensus's are counted, not applied.
#[must_use]
pub fn is_for_user(prepare: &Prepare) -> bool {
    prepare.header.kind == PrepareKind::Normal
}
