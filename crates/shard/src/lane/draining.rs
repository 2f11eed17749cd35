//! What members of consumer groups have polled and not committed, while this node leads the lane.
//!
//! A partition that is to move to another member moves when its old owner has committed all it was
//! given. Nobody but the lane knows both sides, so the front asks here and is answered when nothing
//! is outstanding: no poll of the group is being answered, and the committed offset has reached the
//! last one delivered.
//!
//! Volatile: a new primary knows of no deliveries and answers at once; hand-overs also end by time.
//!
//! Invariants: an entry exists only while something is outstanding; every waiter is given back
//! exactly once.

use super::api::Origin;
use borzoi_types::{GroupId, Offset, PartitionKey};
use std::collections::BTreeMap;

type Place = (PartitionKey, GroupId);

#[derive(Debug, Default)]
struct Outstanding {
    /// Polls that are being answered.
    reading: u32,
    /// The highest offset delivered.
    delivered: Option<Offset>,
    waiters: Vec<Origin>,
}

impl Outstanding {
    fn is_drained(&self, committed: Option<Offset>) -> bool {
        self.reading == 0 && self.delivered <= committed
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Draining {
    places: BTreeMap<Place, Outstanding>,
}

impl Draining {
    /// A poll of the group is being worked on.
    pub fn read_started(&mut self, key: PartitionKey, group: GroupId) {
        self.places.entry((key, group)).or_default().reading += 1;
    }

    /// It is answered with messages up to `last`. Returns who waited for the group to be drained,
    /// if it is.
    pub fn read_ended(
        &mut self,
        key: PartitionKey,
        group: GroupId,
        last: Option<Offset>,
        committed: Option<Offset>,
    ) -> Vec<Origin> {
        if let Some(outstanding) = self.places.get_mut(&(key, group)) {
            outstanding.reading = outstanding.reading.saturating_sub(1);
            outstanding.delivered = outstanding.delivered.max(last);
        }
        self.take_drained(key, group, committed)
    }

    /// `origin` wants to know when the group is drained. Returns it if it is now.
    pub fn wait(
        &mut self,
        key: PartitionKey,
        group: GroupId,
        origin: Origin,
        committed: Option<Offset>,
    ) -> Vec<Origin> {
        let waiters = &mut self.places.entry((key, group)).or_default().waiters;
        // A node whose question may have been lost asks again under the same number.
        if !waiters.contains(&origin) {
            waiters.push(origin);
        }
        self.take_drained(key, group, committed)
    }

    /// Forgets the group on this partition if nothing is outstanding, and returns who waited.
    pub fn take_drained(
        &mut self,
        key: PartitionKey,
        group: GroupId,
        committed: Option<Offset>,
    ) -> Vec<Origin> {
        let place = (key, group);
        if self.places.get(&place).is_some_and(|outstanding| outstanding.is_drained(committed)) {
            return self.places.remove(&place).map(|it| it.waiters).unwrap_or_default();
        }
        Vec::new()
    }

    /// The partition is gone; returns who waited.
    pub fn forget(&mut self, key: PartitionKey) -> Vec<Origin> {
        let range = (key, GroupId::ZERO)..=(key, GroupId::MAX);
        let groups: Vec<Place> = self.places.range(range).map(|(place, _)| *place).collect();
        let removed = groups.iter().filter_map(|place| self.places.remove(place));
        removed.flat_map(|outstanding| outstanding.waiters).collect()
    }

    /// Another node leads now; returns who waited.
    pub fn forget_all(&mut self) -> Vec<Origin> {
        core::mem::take(&mut self.places).into_values().flat_map(|it| it.waiters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::api::Ticket;
    use borzoi_types::ShardId;

    const KEY: PartitionKey = PartitionKey(3);
    const GROUP: GroupId = GroupId(1);

    fn origin(ticket: u64) -> Origin {
        Origin::here(ShardId(0), Ticket(ticket))
    }

    #[test]
    fn a_group_that_polled_nothing_is_drained_at_once() {
        let mut draining = Draining::default();
        assert_eq!(draining.wait(KEY, GROUP, origin(1), None), [origin(1)]);
        assert!(draining.places.is_empty());
    }

    #[test]
    fn what_was_delivered_has_to_be_committed() {
        let mut draining = Draining::default();
        draining.read_started(KEY, GROUP);
        assert_eq!(draining.read_ended(KEY, GROUP, Some(Offset(4)), None), []);
        assert_eq!(draining.wait(KEY, GROUP, origin(1), None), []);
        assert_eq!(draining.take_drained(KEY, GROUP, Some(Offset(3))), []);
        assert_eq!(draining.take_drained(KEY, GROUP, Some(Offset(4))), [origin(1)]);
        assert!(draining.places.is_empty());
    }

    #[test]
    fn a_poll_that_is_being_answered_counts() {
        let mut draining = Draining::default();
        draining.read_started(KEY, GROUP);
        assert_eq!(draining.wait(KEY, GROUP, origin(1), None), []);
        assert_eq!(draining.read_ended(KEY, GROUP, None, None), [origin(1)]);
    }

    #[test]
    fn waiters_are_given_back_when_the_partition_or_the_lead_is_lost() {
        let mut draining = Draining::default();
        for (ticket, key) in [(1, KEY), (2, PartitionKey(4))] {
            draining.read_started(key, GROUP);
            draining.wait(key, GROUP, origin(ticket), None);
        }
        assert_eq!(draining.forget(KEY), [origin(1)]);
        assert_eq!(draining.forget_all(), [origin(2)]);
        assert!(draining.places.is_empty());
    }
}
