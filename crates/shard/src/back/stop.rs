//! The clean stop: finish what was admitted, flush everything, collapse reservations, say so.
//!
//! ```text
//! running ──Stop──▶ finishing ──all logs idle, all records synced──▶ collapsing ──synced──▶ done
//! ```
//!
//! Crash argument. Reservations collapse only after everything that they cover is durable, in a
//! record of their own behind it: a crash before that record is durable finds the reservations
//! standing, one after it finds nothing above them.

use super::Back;
use crate::event::{Effect, LogEntry, LogLevel, ShardMessage};
use crate::lane::api::{LaneReply, Refusal};
use borzoi_storage::journal::RecordSeq;
use borzoi_types::{Mono, Now, ShardId};
use std::collections::BTreeSet;

/// How far the stop has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stop {
    stage: Stage,
    /// Shards that have handed everything in; shard 0 waits for them.
    peers: BTreeSet<ShardId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Running,
    Finishing,
    Collapsing(RecordSeq),
    Done,
}

impl Back {
    pub(crate) fn stop(&mut self, _now: Now, effects: &mut Vec<Effect>) {
        if self.stop.stage != Stage::Running {
            return;
        }
        self.stop.stage = Stage::Finishing;
        self.shared.stopping = true;
        for request in self.shared.parking.expire(Mono(u64::MAX)) {
            self.shared.reply(request.origin, LaneReply::Refused(Refusal::Stopping));
        }
        for lane in self.lanes.values_mut() {
            if !lane.is_serving() {
                lane.refuse_everyone(&Refusal::Stopping, &mut self.shared);
            }
        }
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
                if self.everything_is_durable() {
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

    fn everything_is_durable(&self) -> bool {
        let others = usize::from(self.shared.options.shards) - 1;
        let first = self.shared.options.shard == ShardId(0);
        let logs_idle = self.lanes.values().all(|lane| lane.is_idle() || !lane.is_serving())
            && self.metadata.as_ref().is_none_or(|log| log.is_idle() || !log.is_serving());
        let journal = &self.shared.journal;
        logs_idle && (!first || self.stop.peers.len() == others) && journal.is_idle()
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
