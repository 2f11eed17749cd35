//! What metadata wants of each lane.
//!
//! A lane's primary compares, level triggered, the partitions assigned to its lane with those its
//! log has created. So that it need not scan, every lane keeps a feed of the keys that operations
//! touched; a reader whose place in the feed is gone scans once and goes on from there.
//!
//! Invariants: a key is in exactly one lane's set while its partition lives; tombstones and wishes
//! end when the lane has confirmed their operation; tombstones and feed are bounded, and dropping
//! the oldest of them loses no correctness: absence below the key counter already proves deletion.

use crate::codec::codec_struct;
use borzoi_types::limits::{
    LANE_FEED_ENTRIES_MAX, LANE_TOMBSTONES_MAX, LANES_MAX, SEGMENT_WISHES_PER_PARTITION_MAX,
};
use borzoi_types::{Durability, LogId, Op, PartitionKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many lanes of each level the cluster was formatted with. Lanes 1 to `persisted` flush, the
/// `replicated` ones after them do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Lanes of level persisted.
    pub persisted: u32,
    /// Lanes of level replicated.
    pub replicated: u32,
}

codec_struct!(Layout { persisted, replicated });

impl Layout {
    /// Number of lanes.
    #[must_use]
    pub const fn lanes(&self) -> u32 {
        self.persisted + self.replicated
    }

    /// Whether the counts are usable: at least one lane of each level, within the limit.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.persisted >= 1
            && self.replicated >= 1
            && self.persisted <= LANES_MAX
            && self.replicated <= LANES_MAX
            && self.lanes() <= LANES_MAX
    }

    /// The level of a lane; none when there is no such lane.
    #[must_use]
    pub const fn durability(&self, lane: LogId) -> Option<Durability> {
        if lane.0 == 0 || lane.0 > self.lanes() {
            None
        } else if lane.0 <= self.persisted {
            Some(Durability::Persisted)
        } else {
            Some(Durability::Replicated)
        }
    }
}

/// What metadata wants of one lane.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Keys of its live partitions.
    pub keys: BTreeSet<PartitionKey>,
    /// Deleted keys that the lane has not confirmed, with the deleting operation.
    pub tombstones: BTreeMap<PartitionKey, Op>,
    /// Segment deletions that the lane has not confirmed: how many, by partition and operation.
    pub wishes: BTreeMap<(PartitionKey, Op), u32>,
    /// The lane has committed all that was wanted up to here.
    pub confirmed: Op,
    /// Keys touched, in operation order. Not in snapshots.
    feed: VecDeque<(Op, PartitionKey)>,
    /// The feed is complete after this operation.
    feed_floor: Op,
}

impl Lane {
    /// A lane as a snapshot at `floor` has it.
    pub const fn restored(
        keys: BTreeSet<PartitionKey>,
        tombstones: BTreeMap<PartitionKey, Op>,
        wishes: BTreeMap<(PartitionKey, Op), u32>,
        confirmed: Op,
        floor: Op,
    ) -> Self {
        Self { keys, tombstones, wishes, confirmed, feed: VecDeque::new(), feed_floor: floor }
    }

    /// Notes that `op` changed what is wanted of `key`.
    pub fn touch(&mut self, op: Op, key: PartitionKey) {
        assert!(self.feed.back().is_none_or(|(last, _)| *last <= op), "operations rise");
        self.feed.push_back((op, key));
        if self.feed.len() > LANE_FEED_ENTRIES_MAX
            && let Some((dropped, _)) = self.feed.pop_front()
        {
            self.feed_floor = self.feed_floor.max(dropped);
        }
    }

    /// Adds a live partition.
    pub fn add(&mut self, op: Op, key: PartitionKey) {
        let new = self.keys.insert(key);
        assert!(new, "a key is minted once");
        self.touch(op, key);
    }

    /// Turns a live partition into a tombstone.
    pub fn bury(&mut self, op: Op, key: PartitionKey) {
        let known = self.keys.remove(&key);
        assert!(known, "only a live partition is deleted");
        self.wishes.retain(|(wished, _), _| *wished != key);
        self.tombstones.insert(key, op);
        if self.tombstones.len() > LANE_TOMBSTONES_MAX {
            self.tombstones.pop_first();
        }
        self.touch(op, key);
    }

    /// Notes a wish to delete segments; false when too many wait for this partition.
    pub fn wish(&mut self, op: Op, key: PartitionKey, count: u32) -> bool {
        assert!(self.keys.contains(&key), "wishes are for live partitions");
        let waiting = self.wishes.range((key, Op::ZERO)..=(key, Op::MAX)).count();
        if waiting >= SEGMENT_WISHES_PER_PARTITION_MAX {
            return false;
        }
        self.wishes.insert((key, op), count);
        self.touch(op, key);
        true
    }

    /// The lane has committed all that was wanted up to `through`.
    pub fn confirm(&mut self, through: Op) {
        self.confirmed = self.confirmed.max(through);
        let confirmed = self.confirmed;
        self.tombstones.retain(|_, op| *op > confirmed);
        self.wishes.retain(|(_, op), _| *op > confirmed);
    }

    /// Keys touched after `since`, in operation order, possibly repeated; none when the feed does
    /// not reach back so far and everything has to be looked at.
    pub fn changes_since(&self, since: Op) -> Option<impl Iterator<Item = (Op, PartitionKey)>> {
        if since < self.feed_floor {
            return None;
        }
        let start = self.feed.partition_point(|(op, _)| *op <= since);
        Some(self.feed.range(start..).copied())
    }
}

/// Hands out lanes of one level, least loaded first, lowest number first among equals.
pub struct LaneChooser {
    by_load: BTreeSet<(usize, LogId)>,
}

impl LaneChooser {
    /// Looks at the present load of the lanes of a level. `lanes` are all lanes in order, from
    /// lane 1.
    pub fn new(layout: &Layout, lanes: &[Lane], level: Durability) -> Self {
        let numbered = (1..).map(LogId).zip(lanes);
        let of_level = numbered.filter(|(id, _)| layout.durability(*id) == Some(level));
        let by_load: BTreeSet<_> = of_level.map(|(id, lane)| (lane.keys.len(), id)).collect();
        assert!(!by_load.is_empty(), "a cluster has lanes of both levels");
        Self { by_load }
    }

    /// The lane of the next partition.
    pub fn choose(&mut self) -> LogId {
        let (load, lane) = self.by_load.pop_first().expect("never empty");
        self.by_load.insert((load + 1, lane));
        lane
    }
}
