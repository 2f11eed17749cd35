//! How far a lane has committed what metadata wants of it.
//!
//! The reconciler compares metadata up to an operation with the lane and plans the difference. When
//! all of that has been applied, everything that metadata wanted up to that operation is done:
//! clients that wait for it are answered, and metadata is told so that it forgets what it kept.
//!
//! Invariants: `confirmed` never rises past what was compared and applied; volatile, a new primary
//! compares everything once and confirms again.

use super::Lane;
use super::api::{LaneReply, Origin, Refusal};
use crate::back::shared::Shared;
use borzoi_types::Op;
use borzoi_types::limits::LANE_QUEUE_REQUESTS_MAX;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Confirming {
    /// All that metadata wanted up to here is applied.
    confirmed: Op,
    /// A metadata operation that was compared, and the lane operation that has to be applied.
    settling: Option<(Op, Op)>,
    waiters: BTreeMap<Op, Vec<Origin>>,
}

impl Confirming {
    /// This replica does not lead any more, or anew; returns who waited.
    pub fn reset(&mut self) -> Vec<Origin> {
        core::mem::take(self).waiters.into_values().flatten().collect()
    }
}

impl Lane {
    /// The metadata operation up to which this lane has committed all that was wanted of it, as far
    /// as this primary knows.
    #[must_use]
    pub const fn confirmed(&self) -> Op {
        self.confirming.confirmed
    }

    /// Answers `origin` when all that metadata wanted up to `through` is committed.
    pub(super) fn await_confirmed(&mut self, through: Op, origin: Origin, shared: &mut Shared) {
        if self.confirming.confirmed >= through {
            return shared.reply(origin, LaneReply::Confirmed);
        }
        let waiting: usize = self.confirming.waiters.values().map(Vec::len).sum();
        if waiting >= LANE_QUEUE_REQUESTS_MAX {
            return shared.reply(origin, LaneReply::Refused(Refusal::Busy));
        }
        let waiters = self.confirming.waiters.entry(through).or_default();
        // A node whose question may have been lost asks again under the same number.
        if !waiters.contains(&origin) {
            waiters.push(origin);
        }
    }

    /// Raises what is confirmed, if what was compared has been applied.
    pub(crate) fn settle_confirmed(&mut self, shared: &mut Shared) {
        if !self.serving {
            return;
        }
        if self.confirming.settling.is_none()
            && self.planned.is_empty()
            && let Some(compared) = self.reconciled
            && compared > self.confirming.confirmed
        {
            let last = self.in_flight.back().map_or(self.applied.op, |in_flight| in_flight.op);
            self.confirming.settling = Some((compared, last));
        }
        if let Some((compared, last)) = self.confirming.settling
            && last <= self.applied.op
        {
            assert!(compared > self.confirming.confirmed, "what is confirmed rises");
            self.confirming.settling = None;
            self.confirming.confirmed = compared;
            shared.confirmed.insert(self.log);
            self.answer_confirmed(shared);
        }
    }

    fn answer_confirmed(&mut self, shared: &mut Shared) {
        let later = self.confirming.waiters.split_off(&self.confirming.confirmed.next());
        let waiting = core::mem::replace(&mut self.confirming.waiters, later);
        for origin in waiting.into_values().flatten() {
            shared.reply(origin, LaneReply::Confirmed);
        }
    }
}
