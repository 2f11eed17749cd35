//! The clean stop: finish what was admitted, flush everything, collapse reservations, say so.
//!
//! ```text
//! running ──Stop──▶ finishing ──all logs idle, all records synced──▶ collapsing ──synced──▶ done
//!                       │ in a cluster: leads are given up on the way, so that nobody waits
//!                       │ for a time-out; without a quorum after a second
//! ```
//!
//! Crash argument. Reservations collapse only after everything that they cover is durable, in a
//! record of their own behind it: a crash before that record is durable finds the reservations
//! standing, one after it finds nothing above them.

use super::Back;
use crate::event::{Effect, LogEntry, LogLevel, ShardMessage};
use crate::lane::api::{LaneReply, Refusal};
use borzoi_consensus::Event as ReplicaEvent;
use borzoi_storage::journal::RecordSeq;
use borzoi_types::{Duration, LogId, Mono, Now, ShardId};
use std::collections::BTreeSet;

/// How far the stop has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stop {
    stage: Stage,
    /// When waiting for others ends.
    patience: Option<Mono>,
    /// Shards that have handed everything in; shard 0 waits for them.
    peers: BTreeSet<ShardId>,
}

impl Stop {
    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.patience
    }
}

/// How long a stop waits for operations that need other nodes.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Running,
    Finishing,
    Collapsing(RecordSeq),
    Done,
}

impl Back {
    pub(crate) fn stop(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.stop.stage != Stage::Running {
            return;
        }
        self.stop.stage = Stage::Finishing;
        self.shared.stopping = true;
        if !self.shared.links.is_solo() {
            self.stop.patience = Some(now.mono.plus(PATIENCE));
        }
        for request in self.shared.parking.expire(Mono(u64::MAX)) {
            self.shared.reply(request.origin, LaneReply::Refused(Refusal::Stopping));
        }
        for lane in self.lanes.values_mut() {
            if !lane.is_serving() {
                lane.refuse_everyone(&Refusal::Stopping, &mut self.shared);
            }
        }
        self.stop_forwarding(now);
        self.shared.drain(effects);
    }

    pub(crate) fn peer_stopping(&mut self, _now: Now, from: ShardId, effects: &mut Vec<Effect>) {
        assert_eq!(self.shared.options.shard, ShardId(0), "only shard 0 is told");
        self.stop.peers.insert(from);
        self.shared.drain(effects);
    }

    /// Whether the clean stop is complete.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.stage == Stage::Done
    }

    pub(super) fn drive_stop(&mut self, now: Now) {
        if self.shared.fatal {
            return;
        }
        let synced = self.shared.journal.progress().synced_through;
        match self.stop.stage {
            Stage::Running | Stage::Done => {}
            Stage::Finishing => {
                if self.everything_is_durable() || self.has_waited(now) {
                    self.give_up_leads(now);
                    let collapsed = self.collapse_reservations(now);
                    self.stop.stage = Stage::Collapsing(collapsed);
                    self.drive_stop(now);
                }
            }
            Stage::Collapsing(record) => {
                if synced >= record {
                    self.stop.stage = Stage::Done;
                    self.say_stopped();
                }
            }
        }
    }

    /// Without a quorum what is in flight may never commit: after a while nobody waits for it.
    fn has_waited(&mut self, now: Now) -> bool {
        let first = self.shared.options.shard == ShardId(0);
        let others = usize::from(self.shared.options.shards) - 1;
        let waited = self.stop.patience.is_some_and(|at| at <= now.mono)
            && (!first || self.stop.peers.len() == others);
        if waited {
            self.stop.patience = None;
        }
        waited
    }

    /// In a cluster another node takes over at once.
    fn give_up_leads(&mut self, now: Now) {
        self.stop.patience = None;
        if self.shared.links.is_solo() {
            return;
        }
        let metadata = self.metadata.as_ref().map(|_| LogId::METADATA);
        let logs: Vec<LogId> = metadata.into_iter().chain(self.lanes.keys().copied()).collect();
        for log in logs {
            self.replica_event(now, log, ReplicaEvent::StepDown);
        }
    }

    fn everything_is_durable(&self) -> bool {
        let others = usize::from(self.shared.options.shards) - 1;
        let first = self.shared.options.shard == ShardId(0);
        let logs_idle = self.lanes.values().all(|lane| lane.is_idle() || !lane.is_serving())
            && self.metadata.as_ref().is_none_or(|log| log.is_idle() || !log.is_serving());
        let journal = &self.shared.journal;
        logs_idle
            && self.forwarding().is_empty()
            && (!first || self.stop.peers.len() == others)
            && journal.is_idle()
    }

    /// Appends the collapsing records; the last one's sequence. A journal that does not take them
    /// leaves the reservations standing, which costs a hole and nothing else.
    fn collapse_reservations(&mut self, _now: Now) -> RecordSeq {
        let mut last = RecordSeq::ZERO;
        for lane in self.lanes.values_mut() {
            if let Ok(Some(sequence)) = lane.collapse_reservations(&mut self.shared.journal) {
                last = last.max(sequence);
            }
        }
        last
    }

    fn say_stopped(&mut self) {
        let usage = self.shared.journal.usage();
        let entry = LogEntry::JournalUsed {
            records: usage.records,
            groups: usage.groups,
            flushes: usage.flushes,
            flushes_with_records: usage.flushes_with_records,
            bytes: usage.bytes_written,
        };
        self.shared.log(LogLevel::Info, entry);
        if self.shared.options.shard != ShardId(0) {
            self.shared.send(ShardId(0), ShardMessage::Stopping);
        }
        self.shared.emit(Effect::Stopped);
    }
}
