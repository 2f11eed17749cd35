//! The metadata log on shard 0: a log like any other, whose state machine belongs to the front.

use super::shared::Shared;
use super::transfer::Wish;
use crate::back::{BackOutput, MetadataCommit};
use crate::event::{FatalError, LogEntry, LogLevel};
use crate::lane::api::Refusal;
use crate::lane::rounds::ReadRounds;
use crate::log_host::{HostOutput, LogHost, NothingBefore, is_for_user};
use crate::peer::PeerMessage;
use borzoi_consensus::{Anchor, Event as ReplicaEvent, HEADER_BYTES, Role};
use borzoi_storage::journal::{AppendError, RecordClass};
use borzoi_types::{Body, LogId, Now, Op};

/// See the module.
#[derive(Debug)]
pub struct MetadataLog {
    host: LogHost,
    /// The last operation handed to the front.
    applied: Anchor,
    serving: bool,
    /// Questions for the commit point that wait for proof that this node still leads.
    rounds: ReadRounds<u64>,
    /// Something is to be said to the other replicas before the next heartbeat.
    speaks: bool,
}

impl MetadataLog {
    /// The log as boot found it; the front's state stands at `applied`.
    #[must_use]
    pub fn new(host: LogHost, applied: Anchor) -> Self {
        assert_eq!(host.log(), LogId::METADATA);
        Self { host, applied, serving: false, rounds: ReadRounds::default(), speaks: false }
    }

    /// The last operation handed to the front.
    #[must_use]
    pub const fn applied(&self) -> Anchor {
        self.applied
    }

    /// Whether operations may be proposed here.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.serving
    }

    /// The log's host.
    #[must_use]
    pub const fn host(&self) -> &LogHost {
        &self.host
    }

    /// Whether nothing waits for the journal.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.host.waits_for_journal() && self.host.replica().head() == self.applied.op
    }

    /// Proposes an operation; its commit is handed to the front.
    pub fn propose(&mut self, now: Now, body: Body, shared: &mut Shared) -> Result<Op, Refusal> {
        self.propose_of_class(now, body, RecordClass::Normal, shared)
    }

    /// Moves the log on by one operation that changes nothing, so that a checkpoint of it frees
    /// the journal. It may use the reserved share: a full journal is what it is for.
    pub fn nudge(&mut self, now: Now, shared: &mut Shared) {
        // Refused only when the journal is failing, and then asked again.
        let _ = self.propose_of_class(now, Body::empty(), RecordClass::Reserved, shared);
    }

    fn propose_of_class(
        &mut self,
        now: Now,
        body: Body,
        class: RecordClass,
        shared: &mut Shared,
    ) -> Result<Op, Refusal> {
        if shared.fatal {
            return Err(Refusal::Stopping);
        }
        if !self.serving {
            return Err(Refusal::NotServing);
        }
        if !shared.journal.has_room(HEADER_BYTES, body.len(), class) {
            return Err(Refusal::NoSpace);
        }
        let timestamp = self.host.mint_timestamp(now);
        let proposed = self.host.propose(now, timestamp, body);
        self.run(now, shared);
        proposed.map_err(|refusal| match refusal {
            borzoi_consensus::Refusal::PipelineFull => Refusal::Busy,
            borzoi_consensus::Refusal::NotPrimary { .. }
            | borzoi_consensus::Refusal::NotServing
            | borzoi_consensus::Refusal::TooLarge { .. } => Refusal::NotServing,
        })
    }

    /// Takes over a peer's state; the front is given it.
    pub fn install(&mut self, anchor: Anchor, state: Body, shared: &mut Shared) {
        assert!(!self.serving, "who leads has nothing to learn");
        self.applied = anchor;
        shared.output(BackOutput::MetadataInstalled { op: anchor.op, state });
    }

    /// Answers with the commit point once this replica is known to lead.
    pub fn read(&mut self, token: u64, shared: &mut Shared) {
        let solo = shared.options.replica_count == 1;
        if solo || !self.serving {
            let op = self.serving.then_some(self.applied.op);
            return shared.output(BackOutput::MetadataRead { token, op });
        }
        match self.rounds.wait(token) {
            Ok(()) => _ = shared.work.insert(LogId::METADATA),
            Err(token) => shared.output(BackOutput::MetadataRead { token, op: None }),
        }
    }

    /// Begins the read round that waiting questions want.
    pub fn begin_round(&mut self, shared: &mut Shared) {
        if !self.serving || !self.rounds.wants_round() {
            return;
        }
        let (round, messages) = self.host.begin_round();
        self.rounds.begun(round);
        for (to, message) in messages {
            shared.send_peer(to, &PeerMessage::Log { log: LogId::METADATA, message });
        }
        shared.note_ran(LogId::METADATA, self.host.deadline());
    }

    /// Appends what the journal had no room for, if it has now.
    pub fn retry_stalled(&mut self, now: Now, shared: &mut Shared) {
        if !self.host.is_stalled() {
            return;
        }
        let mut outputs = Vec::new();
        self.host.retry_stalled(&mut shared.journal, &mut NothingBefore, &mut outputs);
        for output in outputs {
            self.output(now, output, shared);
        }
        if self.host.is_stalled() {
            shared.no_room.insert(LogId::METADATA);
        }
        self.run(now, shared);
    }

    /// The journal has come further.
    pub fn journal_progress(&mut self, now: Now, shared: &mut Shared) {
        let progress = shared.journal.progress().clone();
        self.host.progress(now.mono, &progress);
        if !self.host.waits_for_journal() {
            shared.waiting.remove(&LogId::METADATA);
        }
        self.run(now, shared);
    }

    /// Gives the replica an event.
    pub fn replica_event(&mut self, now: Now, event: ReplicaEvent, shared: &mut Shared) {
        self.host.event(now.mono, event);
        self.run(now, shared);
    }

    /// As [`Self::replica_event`], for events of time.
    pub fn time_event(&mut self, now: Now, event: ReplicaEvent, shared: &mut Shared) {
        self.host.event(now.mono, event);
        if self.host.wants() {
            self.run(now, shared);
        } else {
            shared.timers.set(LogId::METADATA, self.host.deadline());
        }
    }

    /// Does what the replica wants.
    pub fn run(&mut self, now: Now, shared: &mut Shared) {
        let mut outputs = Vec::new();
        while self.host.wants() {
            self.host.execute(&mut shared.journal, &mut NothingBefore, &mut outputs);
            for output in outputs.drain(..) {
                self.output(now, output, shared);
            }
        }
        if !self.rounds.is_empty() {
            let op = Some(self.applied.op);
            for token in self.rounds.take_confirmed(self.host.replica().confirmed_round()) {
                shared.output(BackOutput::MetadataRead { token, op });
            }
        }
        shared.note_ran(LogId::METADATA, self.host.deadline());
        if self.host.waits_for_journal() {
            shared.waiting.insert(LogId::METADATA);
        }
        shared.work.insert(LogId::METADATA);
    }

    /// Whether the other replicas are to be told something now.
    pub fn take_speaks(&mut self) -> bool {
        core::mem::take(&mut self.speaks)
    }

    fn output(&mut self, now: Now, output: HostOutput, shared: &mut Shared) {
        match output {
            HostOutput::Committed(prepare) => {
                assert!(prepare.header.follows(self.applied), "in order, each once");
                self.applied = prepare.header.anchor();
                self.speaks |= self.serving;
                let user = is_for_user(&prepare);
                shared.metadata_committed(MetadataCommit {
                    op: prepare.header.op,
                    timestamp: prepare.header.timestamp,
                    body: if user { prepare.body.clone() } else { Body::empty() },
                });
            }
            HostOutput::Role(role) => {
                shared.leader_changed(LogId::METADATA, self.host.replica().primary());
                let serving = matches!(role, Role::Primary { may_serve: true, .. });
                if serving != self.serving {
                    self.serving = serving;
                    shared.leads_changed.push((LogId::METADATA, serving));
                    shared.metadata_serving(serving);
                    if !serving {
                        for token in self.rounds.take_all() {
                            shared.output(BackOutput::MetadataRead { token, op: None });
                        }
                        return;
                    }
                    let commit = self.host.replica().commit();
                    let entry = LogEntry::LogServing { log: LogId::METADATA, commit };
                    shared.log(LogLevel::Info, entry);
                }
            }
            HostOutput::JournalRefused(AppendError::Failed(error)) => {
                shared.fail(FatalError::Journal(error));
            }
            HostOutput::JournalRefused(error) => {
                shared.no_room.insert(LogId::METADATA);
                shared.log(LogLevel::Warn, LogEntry::Text(format!("metadata log: {error}")));
            }
            HostOutput::Fetch { op, checksum } => {
                if !super::fetch(shared, LogId::METADATA, op, checksum) {
                    assert!(shared.options.replica_count > 1, "a solo log is whole");
                    let prepare = None;
                    self.host.event(now.mono, ReplicaEvent::Fetched { op, checksum, prepare });
                }
            }
            HostOutput::Send { to, message } => {
                shared.send_peer(to, &PeerMessage::Log { log: LogId::METADATA, message });
            }
            HostOutput::StateTransfer { from, at_least, diverged } => {
                shared.transfers_wanted.push((LogId::METADATA, Wish { from, at_least, diverged }));
            }
        }
    }
}
