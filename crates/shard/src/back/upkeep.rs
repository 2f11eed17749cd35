//! What the lanes of a shard do from time to time: retention, and telling metadata what they have
//! committed of its wishes.
//!
//! Invariants: nothing is looked at while nothing waits; a report that is lost is repeated, because
//! it is made until metadata itself says that it knows.

use super::Back;
use borzoi_metadata::Metadata;
use borzoi_types::limits::{LANES_CONFIRMED_MILLIS, RETENTION_HELD_MILLIS};
use borzoi_types::{Duration, LogId, Mono, Now, Op};

/// When what was done last.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    retained: Mono,
    reported: Mono,
}

impl Back {
    /// When retention or a report is due; none while there is nothing to do.
    pub(super) fn upkeep_deadline(&self) -> Option<Mono> {
        let report = (!self.shared.confirmed.is_empty())
            .then(|| self.upkeep.reported.plus(Duration::from_millis(LANES_CONFIRMED_MILLIS)));
        report.into_iter().chain(self.retention_deadline()).min()
    }

    fn retention_deadline(&self) -> Option<Mono> {
        if self.shared.stopping {
            return None;
        }
        let mut leading = self.lanes.values().filter(|lane| lane.is_serving());
        let interval = self.shared.options.retention_interval;
        let soon = Duration::from_millis(RETENTION_HELD_MILLIS);
        let held = interval.map_or(soon, |interval| interval.min(soon));
        if leading.clone().any(|lane| lane.retention().waits_little()) {
            return Some(self.upkeep.retained.plus(held));
        }
        let waits = leading.any(|lane| lane.retention().waits());
        interval.filter(|_| waits).map(|interval| self.upkeep.retained.plus(interval))
    }

    /// Removes what is too old, too much, or wished away and not needed any more.
    pub(super) fn drive_retention(&mut self, now: Now) {
        if self.retention_deadline().is_none_or(|due| due > now.mono) {
            return;
        }
        self.upkeep.retained = now.mono;
        let by_options = self.shared.options.retention_interval.is_some();
        for lane in self.lanes.values_mut() {
            lane.retain(now, by_options, &mut self.shared);
        }
    }

    /// Tells metadata what its lanes have committed, as far as it waits for that.
    pub(super) fn report_confirmed(&mut self, now: Now, metadata: &Metadata) {
        if self.shared.confirmed.is_empty() || self.shared.stopping {
            self.shared.confirmed.clear();
            return;
        }
        let due = self.upkeep.reported.plus(Duration::from_millis(LANES_CONFIRMED_MILLIS));
        if now.mono < due {
            return;
        }
        let lanes = &self.lanes;
        let news = |log: &LogId| {
            let confirmed = lanes.get(log).filter(|lane| lane.is_serving())?.confirmed();
            let wanted = metadata.lane_waits(*log) && confirmed > metadata.lane_confirmed(*log);
            wanted.then_some((*log, confirmed))
        };
        let reports: Vec<(LogId, Op)> = self.shared.confirmed.iter().filter_map(news).collect();
        // Whoever is reported stays until metadata has it: a report may be refused.
        self.shared.confirmed = reports.iter().map(|(log, _)| *log).collect();
        if !reports.is_empty() {
            self.upkeep.reported = now.mono;
            self.shared.lanes_confirmed(reports);
        }
    }
}
