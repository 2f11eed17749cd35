//! Checker 32: queues, buffers and parked requests stay within their declared limits, and are
//! empty when nothing happens any more.

use crate::world::node::Core;
use borzoi_types::limits::{
    INGEST_BYTES_PER_SHARD_MAX, JOURNAL_WRITES_IN_FLIGHT_MAX, PARKED_BYTES_PER_SHARD_MAX,
};

/// Requests that a shard may have at its disk at once: its journal's, and one per thing that has
/// something to write or read.
const DISK_REQUESTS_MAX: usize = 4_096 + JOURNAL_WRITES_IN_FLIGHT_MAX;

const _: () = assert!(PARKED_BYTES_PER_SHARD_MAX < INGEST_BYTES_PER_SHARD_MAX);

/// See the module.
#[derive(Debug, Default)]
pub struct AtRest {
    /// How often it looked.
    pub looked: u64,
}

impl AtRest {
    /// Looks at a shard after a batch.
    pub fn limits(&mut self, core: &Core) {
        let parking = &core.shard.back().shared().parking;
        Self::within("parked bytes", parking.bytes(), PARKED_BYTES_PER_SHARD_MAX);
        Self::within("disk requests", core.disk.len(), DISK_REQUESTS_MAX);
        self.looked += 1;
    }

    /// Looks at a shard when nothing happens any more.
    pub fn at_rest(&mut self, core: &Core) {
        let back = core.shard.back();
        Self::within("parked requests at rest", back.shared().parking.len(), 0);
        let front = core.shard.front();
        if front.waiting_but_handovers() > 0 {
            panic!("checker 32: at rest these wait: {:.600}", front.describe_waiting());
        }
        Self::within("unparked requests at rest", back.shared().unparked.len(), 0);
        for lane in back.lanes() {
            assert!(lane.is_idle(), "checker 32: lane {} is busy at rest", lane.log());
        }
        self.looked += 1;
    }

    fn within(what: &str, now: usize, most: usize) {
        assert!(now <= most, "checker 32: {now} {what}, at most {most} are allowed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 32")]
    fn a_queue_above_its_limit_is_noticed() {
        AtRest::within("things", 3, 3);
        AtRest::within("things", 4, 3);
    }
}
