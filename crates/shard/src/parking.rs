//! Requests that came before their partition exists in its lane (required behaviours B3 to B8).
//!
//! Metadata confirms a create before the lane's log has it, so a request can be early. It waits
//! here under limits of count, bytes and age, and is re-dispatched in arrival order when the
//! partition materialises. Nothing waits in silence: whatever leaves here leaves with an answer or
//! for its partition.
//!
//! Invariants: running totals equal the sums and are zero when nothing is parked; requests of one
//! key leave in the order they came; the walk over due requests is in deadline order.

use crate::lane::api::{LaneRequest, LaneRequestKind};
use borzoi_types::limits::{
    DISK_ALIGNMENT, PARKED_BYTES_PER_PARTITION_MAX, PARKED_BYTES_PER_SHARD_MAX,
    PARKED_REQUESTS_PER_PARTITION_MAX,
};
use borzoi_types::{Duration, LogId, Mono, PartitionKey};
use std::collections::{BTreeMap, VecDeque};

/// Resident size of a request beside its batch: the request itself and its place in the queues.
const REQUEST_BYTES: usize = 256;

#[derive(Debug)]
struct Parked {
    request: LaneRequest,
    charge: usize,
    deadline: Mono,
    number: u64,
}

#[derive(Debug, Default)]
struct ParkedPartition {
    requests: VecDeque<Parked>,
    bytes: usize,
}

impl ParkedPartition {
    /// The lane recorded with the partition, the same in all its requests.
    fn lane(&self) -> Option<LogId> {
        self.requests.front().map(|parked| parked.request.lane)
    }
}

/// What parking has done since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParkingCounters {
    /// Requests parked.
    pub parked: u64,
    /// Requests refused because a limit was reached (`reason="park_overflow"`).
    pub overflows: u64,
    /// Requests answered because they waited too long.
    pub expired: u64,
}

/// The requests parked on one shard.
#[derive(Debug)]
pub struct Parking {
    partitions: BTreeMap<PartitionKey, ParkedPartition>,
    by_deadline: BTreeMap<(Mono, u64), PartitionKey>,
    bytes: usize,
    next_number: u64,
    age_max: Duration,
    counters: ParkingCounters,
}

impl Parking {
    /// Nothing parked; requests wait at most `age_max`.
    #[must_use]
    pub fn new(age_max: Duration) -> Self {
        Self {
            partitions: BTreeMap::new(),
            by_deadline: BTreeMap::new(),
            bytes: 0,
            next_number: 0,
            age_max,
            counters: ParkingCounters::default(),
        }
    }

    /// Parks `request`, or gives it back if a limit is reached.
    ///
    /// # Errors
    /// The request itself, to be answered at once.
    #[allow(clippy::result_large_err, reason = "the request goes back to be answered")]
    pub fn park(&mut self, now: Mono, request: LaneRequest) -> Result<(), LaneRequest> {
        let charge = charge(&request);
        let (count, bytes) = self
            .partitions
            .get(&request.key)
            .map_or((0, 0), |partition| (partition.requests.len(), partition.bytes));
        if count >= PARKED_REQUESTS_PER_PARTITION_MAX
            || bytes + charge > PARKED_BYTES_PER_PARTITION_MAX
            || self.bytes + charge > PARKED_BYTES_PER_SHARD_MAX
        {
            self.counters.overflows += 1;
            return Err(request);
        }
        let deadline = now.plus(self.age_max);
        let number = self.next_number;
        self.next_number += 1;
        self.by_deadline.insert((deadline, number), request.key);
        self.bytes += charge;
        self.counters.parked += 1;
        let partition = self.partitions.entry(request.key).or_default();
        partition.bytes += charge;
        partition.requests.push_back(Parked { request, charge, deadline, number });
        Ok(())
    }

    /// Takes everything parked for `key`, in arrival order.
    pub fn take(&mut self, key: PartitionKey) -> Vec<LaneRequest> {
        let Some(partition) = self.partitions.remove(&key) else {
            return Vec::new();
        };
        assert!(!partition.requests.is_empty(), "empty queues are removed");
        self.bytes = self.bytes.checked_sub(partition.bytes).expect("totals equal the sums");
        let mut requests = Vec::with_capacity(partition.requests.len());
        for parked in partition.requests {
            let known = self.by_deadline.remove(&(parked.deadline, parked.number));
            assert_eq!(known, Some(key));
            requests.push(parked.request);
        }
        assert!(!self.partitions.is_empty() || self.bytes == 0, "totals return to zero");
        requests
    }

    /// Takes the requests whose time is up, oldest first.
    pub fn expire(&mut self, now: Mono) -> Vec<LaneRequest> {
        let mut expired = Vec::new();
        while let Some((&(deadline, number), &key)) = self.by_deadline.first_key_value()
            && deadline <= now
        {
            self.by_deadline.remove(&(deadline, number));
            let partition = self.partitions.get_mut(&key).expect("it holds the request");
            let parked = partition.requests.pop_front().expect("it holds the request");
            assert_eq!(parked.number, number, "one window, so the oldest expires first");
            partition.bytes -= parked.charge;
            if partition.requests.is_empty() {
                assert_eq!(partition.bytes, 0);
                self.partitions.remove(&key);
            }
            self.bytes = self.bytes.checked_sub(parked.charge).expect("totals equal the sums");
            self.counters.expired += 1;
            expired.push(parked.request);
        }
        expired
    }

    /// Keys of a lane that something waits for, in rising order.
    #[must_use]
    pub fn keys_of(&self, lane: LogId) -> Vec<PartitionKey> {
        let waiting = self.partitions.iter().filter(|(_, parked)| parked.lane() == Some(lane));
        waiting.map(|(key, _)| *key).collect()
    }

    /// Whether something waits for a partition of a lane.
    #[must_use]
    pub fn holds_lane(&self, lane: LogId) -> bool {
        self.partitions.values().any(|parked| parked.lane() == Some(lane))
    }

    /// When the oldest request expires.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.by_deadline.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Requests parked now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_deadline.len()
    }

    /// Whether nothing is parked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
    }

    /// Bytes charged now.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> ParkingCounters {
        self.counters
    }
}

/// Resident size, rounded up to the granularity of the buffers.
fn charge(request: &LaneRequest) -> usize {
    let batch_bytes = match &request.kind {
        LaneRequestKind::Send { batch, .. } => batch.len(),
        _ => 0,
    };
    (batch_bytes + REQUEST_BYTES).div_ceil(DISK_ALIGNMENT) * DISK_ALIGNMENT
}

#[cfg(test)]
#[path = "parking_tests.rs"]
mod tests;
