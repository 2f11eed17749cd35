//! Everything behind the front of one shard: replicated logs, the journal, checkpoints, the stop.
//!
//! Routes requests to lanes, disk results to whoever asked, journal progress to the logs that wait
//! for it, and ends every batch: reconcile, prepare, flush, checkpoint, drive the journal.
//!
//! Invariants: only logs with something to do are touched; they are visited in order of their
//! numbers; nothing is acknowledged after a fatal error.

mod checkpoints;
mod figures;
mod forward;
pub mod forwarding;
mod handback;
pub mod links;
pub(crate) mod metadata_log;
mod peers;
mod serving;
pub(crate) mod shared;
mod stop;
pub(crate) mod transfer;
mod upkeep;

use crate::checkpointer::Checkpointer;
use crate::event::{Effect, FatalError, LogEntry, LogLevel, ShardMessage};
use crate::front::Front;
use crate::lane::Lane;
use crate::lane::api::{CountersReply, LaneReply, LaneRequest, Refusal, Ticket};
use crate::lane::operation::Entry;
use crate::log_host::LogHost;
use crate::options::ShardOptions;
use crate::peer::Forwarded;
use borzoi_consensus::{Event as ReplicaEvent, Prepare, PrepareHeader};
use borzoi_metadata::Metadata;
use borzoi_storage::disk::{
    DiskOutcome, DiskQueue, DiskRequest, DiskResult, DiskTicket, Submission,
};
use borzoi_storage::journal::RecordSeq;
use borzoi_types::limits::JOURNAL_REST_MILLIS;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Body, Duration, LogId, Micros, Mono, Now, Op, ReplicaId, SessionId, ShardId};
use figures::Figures;
pub use forwarding::first_ticket;
use forwarding::{Forwarding, Route};
use handback::HandBack;
use metadata_log::MetadataLog;
use shared::{Shared, TicketOwner};
use std::collections::BTreeMap;
use std::sync::Arc;
use stop::Stop;
use transfer::Transfers;
use upkeep::Upkeep;

/// One committed metadata operation, for the metadata state machine of shard 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataCommit {
    /// Its position in the metadata log.
    pub op: Op,
    /// The primary's wall clock when it was prepared; the only time that apply may use.
    pub timestamp: Micros,
    /// The encoded command; empty for operations that only consensus reads (apply counts the op
    /// and changes nothing).
    pub body: Body,
}

/// What the back has for the front.
#[derive(Debug)]
pub enum BackOutput {
    /// An answer to a request that this shard's front submitted.
    LaneReply {
        /// The front's ticket.
        ticket: Ticket,
        /// The answer.
        reply: LaneReply,
    },
    /// An answer to a request for counters.
    Counters(CountersReply),
    /// Shard 0 only: a metadata operation has committed. In op order, each once.
    MetadataCommitted(MetadataCommit),
    /// Shard 0 only: whether this replica is the metadata primary and may propose.
    MetadataServing(bool),
    /// Another node's front says something to this shard's.
    Forwarded {
        /// Which node.
        from: ReplicaId,
        /// What it says.
        message: Forwarded,
    },
    /// This shard's link with another node came up or went down.
    PeerLink {
        /// Which node.
        peer: ReplicaId,
        /// Whether it is up now.
        up: bool,
    },
    /// Shard 0 only: the whole metadata state was copied from a peer and replaces what there was.
    MetadataInstalled {
        /// The last operation it contains.
        op: Op,
        /// As in a checkpoint.
        state: Body,
    },
    /// Shard 0 only: the answer to [`Back::read_metadata`].
    MetadataRead {
        /// As asked.
        token: u64,
        /// The last operation applied here, which is at or above everything committed before the
        /// question; none when this replica does not lead.
        op: Option<Op>,
    },
    /// Another node leads a log now, of this shard or of another one of the node. A hint.
    Leader {
        /// Which log.
        log: LogId,
        /// Who leads it; none while nobody is known to.
        leader: Option<ReplicaId>,
    },
    /// Lanes led here have committed all that metadata wanted of them up to an operation.
    LanesConfirmed(Vec<(LogId, Op)>),
}

/// Everything behind the front of one shard.
#[derive(Debug)]
pub struct Back {
    shared: Shared,
    lanes: BTreeMap<LogId, Lane>,
    /// On shard 0.
    metadata: Option<MetadataLog>,
    checkpointer: Checkpointer,
    transfers: Transfers,
    hand_back: HandBack,
    /// Committed metadata has changed since the last pass of the reconciler.
    metadata_changed: bool,
    stop: Stop,
    upkeep: Upkeep,
    /// The journal's newest record, and when it was first seen.
    appended: (RecordSeq, Mono),
    /// Requests that other nodes answer.
    forwarding: Forwarding,
    /// Questions for figures that other nodes answer.
    figures: Figures,
    /// The disk refused a spare file of the journal; when one is asked for again. Nothing else need
    /// fail meanwhile, so nothing else would.
    spares_again: Option<Mono>,
}

/// What boot hands over.
pub(crate) struct BackParts {
    pub(crate) shared: Shared,
    pub(crate) lanes: BTreeMap<LogId, Lane>,
    pub(crate) metadata: Option<MetadataLog>,
    pub(crate) checkpointer: Checkpointer,
}

impl Back {
    pub(crate) fn new(parts: BackParts) -> Self {
        let shard = parts.shared.options.shard;
        assert_eq!(parts.metadata.is_some(), shard == ShardId(0), "metadata lives on shard 0");
        let options = &parts.shared.options;
        Self {
            forwarding: Forwarding::new(options.generation, options.park_age_max),
            figures: Figures::default(),
            shared: parts.shared,
            lanes: parts.lanes,
            metadata: parts.metadata,
            checkpointer: parts.checkpointer,
            transfers: Transfers::default(),
            hand_back: HandBack::default(),
            metadata_changed: true,
            stop: Stop::default(),
            upkeep: Upkeep::default(),
            appended: (RecordSeq::ZERO, Mono(0)),
            // What a start was refused is asked for again with the first tick.
            spares_again: Some(Mono(0)),
        }
    }

    /// Submits a request of this shard's front to a lane, wherever it is led. Answered exactly
    /// once, later in the same batch at the earliest, with [`BackOutput::LaneReply`].
    pub fn submit(&mut self, now: Now, request: LaneRequest, effects: &mut Vec<Effect>) {
        match self.route(request.lane) {
            Route::Here => self.submit_on_this_node(now, request),
            elsewhere => self.forward_request(now, elsewhere, request),
        }
        self.shared.drain(effects);
    }

    /// Takes a request that another shard of this node has sent here. One that came to the wrong
    /// shard is passed on: the arithmetic of lanes ends at the right one.
    pub(crate) fn submit_arrived(
        &mut self,
        now: Now,
        request: LaneRequest,
        effects: &mut Vec<Effect>,
    ) {
        self.submit_on_this_node(now, request);
        self.shared.drain(effects);
    }

    fn submit_on_this_node(&mut self, now: Now, request: LaneRequest) {
        let to = self.shard_of(request.lane);
        if to == self.shared.options.shard {
            self.submit_here(now, request);
        } else {
            self.shared.send(to, ShardMessage::Lane(Box::new(request)));
        }
    }

    /// Shard 0 only: proposes a metadata operation; its commit arrives as
    /// [`BackOutput::MetadataCommitted`] with the returned op.
    ///
    /// # Errors
    /// When this replica is not the serving primary, its pipeline is full or the journal is.
    pub fn propose_metadata(
        &mut self,
        now: Now,
        body: Body,
        effects: &mut Vec<Effect>,
    ) -> Result<Op, Refusal> {
        let Some(metadata) = &mut self.metadata else {
            return Err(Refusal::NotServing);
        };
        if self.shared.stopping {
            return Err(Refusal::Stopping);
        }
        let proposed = metadata.propose(now, body, &mut self.shared);
        self.shared.drain(effects);
        proposed
    }

    /// Shard 0 only: how far is metadata committed? Answered exactly once, with
    /// [`BackOutput::MetadataRead`], after a replication quorum has confirmed that this replica
    /// leads, at once on a solo node.
    pub fn read_metadata(&mut self, token: u64, effects: &mut Vec<Effect>) {
        match &mut self.metadata {
            Some(metadata) => metadata.read(token, &mut self.shared),
            None => self.shared.output(BackOutput::MetadataRead { token, op: None }),
        }
        self.shared.drain(effects);
    }

    /// Whether metadata, where it is hosted here, has nothing to learn from peers.
    #[must_use]
    pub fn metadata_has_learned(&self) -> bool {
        self.metadata.as_ref().is_none_or(|log| !log.host().replica().must_learn())
    }

    /// The shard of this node that hosts `log`.
    #[must_use]
    pub fn shard_of(&self, log: LogId) -> ShardId {
        log.shard(self.shared.options.shards)
    }

    /// What this shard was told at boot.
    #[must_use]
    pub fn options(&self) -> &ShardOptions {
        &self.shared.options
    }

    /// Shard 0 only: whether metadata operations may be proposed here.
    #[must_use]
    pub fn serves_metadata(&self) -> bool {
        self.metadata.as_ref().is_some_and(MetadataLog::is_serving)
    }

    /// Shard 0 only: the metadata log.
    #[must_use]
    pub fn metadata_host(&self) -> Option<&LogHost> {
        self.metadata.as_ref().map(MetadataLog::host)
    }

    /// The lanes hosted here, in order.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.values()
    }

    /// A lane hosted here.
    #[must_use]
    pub fn lane(&self, log: LogId) -> Option<&Lane> {
        self.lanes.get(&log)
    }

    /// Shard 0: the metadata log.
    #[must_use]
    pub const fn metadata_log(&self) -> Option<&MetadataLog> {
        self.metadata.as_ref()
    }

    /// What the logs share: journal, cache, parking.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Checkpoints and their counters.
    #[must_use]
    pub fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    /// A client's session is over: lanes led here forget what they remember of its sends, by a
    /// logged operation. `first` is the number that they remember them under.
    pub fn session_ended(&mut self, first: SessionId) {
        for (log, lane) in &mut self.lanes {
            if lane.is_serving() && lane.state().windows().knows(first) {
                lane.planned.push_back(Entry::SessionExpired { session: first });
                self.shared.work.insert(*log);
            }
        }
    }

    /// The committed metadata of this shard has changed (a command was applied to its state or
    /// copy): lanes led here compare it with what they have created, at the end of the batch.
    pub fn metadata_changed(&mut self) {
        self.metadata_changed = true;
    }

    pub(crate) fn disk(
        &mut self,
        now: Now,
        ticket: DiskTicket,
        result: DiskResult,
        effects: &mut Vec<Effect>,
    ) {
        if self.shared.journal.owns(ticket) {
            self.journal_disk(now, ticket, result);
        } else {
            let owner = self.shared.tickets.remove(&ticket).expect("every request has an owner");
            self.owned_disk(now, ticket, owner, result);
        }
        self.resubmit(now);
        self.shared.drain(effects);
    }

    pub(crate) fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for request in self.shared.parking.expire(now.mono) {
            if planted::is(Bug::LoseParked) {
                continue;
            }
            self.shared.reply(request.origin, LaneReply::Refused(Refusal::NotMaterialised));
        }
        for log in self.shared.timers.take_due(now.mono) {
            self.tell_heard(now, log);
            self.time_event(now, log, ReplicaEvent::Tick);
        }
        self.send_heartbeats(now);
        self.hand_back(now);
        self.forward_tick(now);
        self.retry_after_no_space(now);
        self.drive_retention(now);
        if self.spares_again.take_if(|at| *at <= now.mono).is_some() {
            self.shared.journal.retry_spares();
        }
        self.shared.drain(effects);
    }

    pub(crate) fn end_of_batch(&mut self, now: Now, front: &Front, effects: &mut Vec<Effect>) {
        self.reconcile(front.metadata());
        let waiting = core::mem::take(&mut self.shared.no_room);
        self.shared.work.extend(waiting);
        for log in core::mem::take(&mut self.shared.work) {
            self.checkpointer.note_changed_if_new(log, self.applied(log), now.mono);
            if let Some(lane) = self.lanes.get_mut(&log) {
                lane.retry_stalled(now, &mut self.shared);
                lane.begin_round(&mut self.shared);
                lane.form(now, &mut self.shared);
                lane.flush(&mut self.shared);
                lane.settle_confirmed(&mut self.shared);
            } else if let Some(metadata) = &mut self.metadata {
                metadata.retry_stalled(now, &mut self.shared);
                metadata.begin_round(&mut self.shared);
            }
        }
        self.report_confirmed(now, front.metadata());
        self.drive_transfers(now);
        self.speak_for_metadata();
        self.drive_checkpoints(now, front);
        // What a checkpoint has just released is used at once: no event may follow that would
        // wake these lanes.
        for log in core::mem::take(&mut self.shared.no_room) {
            if let Some(lane) = self.lanes.get_mut(&log) {
                lane.form(now, &mut self.shared);
            }
        }
        self.drive_stop(now);
        if !self.shared.fatal {
            self.note_appends(now);
            self.shared.journal.drive(&mut self.shared.disk);
        }
        self.shared.drain(effects);
    }

    /// Tells the journal whether it rests.
    fn note_appends(&mut self, now: Now) {
        let last = self.shared.journal.last_record();
        if last != self.appended.0 {
            self.appended = (last, now.mono);
        }
        let rested = now.mono >= self.rests_at();
        self.shared.journal.set_resting(rested || self.shared.stopping);
    }

    fn rests_at(&self) -> Mono {
        self.appended.1.plus(Duration::from_millis(JOURNAL_REST_MILLIS))
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let pending = self.shared.has_pending().then_some(Mono(0));
        let rest = self.shared.journal.wants_rest().then(|| self.rests_at());
        // While the disk is full no checkpoint is tried before the wait is over.
        let may_write = self.shared.no_space.is_none();
        let checkpoint = may_write.then(|| self.checkpointer.deadline()).flatten();
        let all = [
            self.shared.timers.next(),
            self.shared.links.deadline(),
            self.transfers.deadline(),
            self.hand_back_deadline(),
            self.stop.deadline(),
            self.shared.parking.deadline(),
            self.forward_deadline(),
            checkpoint,
            self.shared.no_space.map(|backoff| backoff.retry_at),
            self.spares_again,
            pending,
            rest,
            self.upkeep_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    fn hand_back_deadline(&self) -> Option<Mono> {
        let changed = !self.shared.leads_changed.is_empty() && !self.shared.links.is_solo();
        let now = changed.then_some(Mono(0));
        now.or_else(|| self.hand_back.deadline()).filter(|_| !self.shared.stopping)
    }

    pub(crate) fn take_output(&mut self) -> Option<BackOutput> {
        self.shared.take_output()
    }

    /// Boot: the replicas' first wishes.
    pub(crate) fn start_logs(&mut self, now: Now) {
        for lane in self.lanes.values_mut() {
            lane.attach_reservations();
            lane.run(now, &mut self.shared);
        }
        if let Some(metadata) = &mut self.metadata {
            metadata.run(now, &mut self.shared);
        }
    }

    /// Boot: what the journal wants now.
    pub(crate) fn boot_submissions(&mut self) -> Vec<Submission> {
        self.shared.journal.drive(&mut self.shared.disk);
        self.shared.take_journal_submissions()
    }

    /// Boot: the result of one of those.
    pub(crate) fn boot_disk(&mut self, now: Now, ticket: DiskTicket, result: DiskResult) {
        self.journal_disk(now, ticket, result);
    }

    /// Whether this is shard 0.
    #[must_use]
    pub const fn hosts_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    fn submit_here(&mut self, now: Now, request: LaneRequest) {
        let Some(lane) = self.lanes.get_mut(&request.lane) else {
            // Only metadata assigns lanes, and only lanes of the cluster.
            let refused = LaneReply::Refused(Refusal::NotServing);
            return self.shared.reply(request.origin, refused);
        };
        lane.submit(now, request, &mut self.shared);
        self.resubmit(now);
    }

    /// Submits early requests whose partition now exists.
    fn resubmit(&mut self, now: Now) {
        while let Some(request) = self.shared.unparked.pop_front() {
            let lane = self.lanes.get_mut(&request.lane).expect("it was parked for this lane");
            lane.submit(now, request, &mut self.shared);
        }
    }

    fn reconcile(&mut self, metadata: &Metadata) {
        // A pass may be skipped only if metadata is unchanged and nothing is parked (B10).
        let parked = !self.shared.parking.is_empty();
        let wanted = core::mem::take(&mut self.shared.reconcile_wanted);
        if !core::mem::take(&mut self.metadata_changed) && !wanted && !parked {
            return;
        }
        for lane in self.lanes.values_mut() {
            if lane.wants_reconcile(metadata, &self.shared) {
                lane.reconcile(metadata, &mut self.shared);
            }
        }
    }

    fn journal_disk(&mut self, now: Now, ticket: DiskTicket, result: DiskResult) {
        if result.is_err() {
            self.spares_again = Some(now.mono.plus(Duration::from_secs(1)));
        }
        let progress = self.shared.journal.complete(ticket, result);
        if let Some(error) = progress.failed {
            return self.shared.fail(FatalError::Journal(error));
        }
        if self.shared.fatal {
            return;
        }
        for log in self.shared.waiting.clone() {
            match (self.lanes.get_mut(&log), &mut self.metadata) {
                (Some(lane), _) => lane.journal_progress(now, &mut self.shared),
                (None, Some(metadata)) => metadata.journal_progress(now, &mut self.shared),
                (None, None) => unreachable!("only logs of this shard wait for its journal"),
            }
        }
    }

    fn owned_disk(&mut self, now: Now, ticket: DiskTicket, owner: TicketOwner, result: DiskResult) {
        match owner {
            TicketOwner::Partition { log, key } => {
                let lane = self.lanes.get_mut(&log).expect("lanes stay");
                lane.partition_disk(now, key, ticket, &result, &mut self.shared);
            }
            TicketOwner::Read(read) => {
                let lane = self.lanes.get_mut(&read.log).expect("lanes stay");
                lane.resume_read(*read, result, &mut self.shared);
            }
            TicketOwner::Checkpoint { log } => self.checkpoint_written(now, log, result),
            TicketOwner::OldCheckpoint => {
                if let Err(error) = result {
                    self.shared.log(LogLevel::Warn, LogEntry::DiskTrouble { error });
                }
            }
            TicketOwner::Serve(read) => self.served(read, result),
            TicketOwner::Transfer { request } => self.transfer_disk(now, request, result),
            TicketOwner::Fetch { log, op, checksum, location } => {
                let prepare = result.ok().and_then(|outcome| {
                    let DiskOutcome::Data(bytes) = outcome else { return None };
                    let record = self.shared.journal.decode_located(&location, &bytes)?;
                    let header = PrepareHeader::decode(&record.header).ok()?;
                    (header.checksum == checksum)
                        .then(|| Prepare::verified(header, record.body).ok().map(Arc::new))?
                });
                let event = ReplicaEvent::Fetched { op, checksum, prepare };
                self.replica_event(now, log, event);
            }
        }
    }

    fn time_event(&mut self, now: Now, log: LogId, event: ReplicaEvent) {
        if let Some(lane) = self.lanes.get_mut(&log) {
            lane.time_event(now, event, &mut self.shared);
        } else if let Some(metadata) = &mut self.metadata {
            assert!(log.is_metadata());
            metadata.time_event(now, event, &mut self.shared);
        }
    }

    fn replica_event(&mut self, now: Now, log: LogId, event: ReplicaEvent) {
        if let Some(lane) = self.lanes.get_mut(&log) {
            lane.replica_event(now, event, &mut self.shared);
        } else if let Some(metadata) = &mut self.metadata {
            assert!(log.is_metadata());
            metadata.replica_event(now, event, &mut self.shared);
        }
    }

    /// The last operation applied to a log of this shard.
    fn applied(&self, log: LogId) -> Option<Op> {
        if log.is_metadata() {
            return self.metadata.as_ref().map(|metadata| metadata.applied().op);
        }
        self.lanes.get(&log).map(|lane| lane.state().applied())
    }
}

/// Asks the journal for a prepare; false when it does not hold it.
pub(crate) fn fetch(shared: &mut Shared, log: LogId, op: Op, checksum: u128) -> bool {
    let Some(location) = shared.journal.locate(log, op) else {
        return false;
    };
    let request = DiskRequest::Read {
        file: location.file.clone(),
        offset: location.offset,
        bytes: location.bytes,
    };
    let ticket = shared.disk.submit(DiskQueue::Pool, request);
    shared.tickets.insert(ticket, TicketOwner::Fetch { log, op, checksum, location });
    true
}
