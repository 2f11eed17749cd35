//! Checker 4: a state machine that has applied the same operation is in the same state: on every
//! node, on every shard that keeps a copy, and after every restart.

use crate::world::node::Core;
use borzoi_shard::lane::Lane;
use borzoi_types::checksum::xxh3_64_seeded;
use borzoi_types::{LogId, Op};
use core::fmt::Write as _;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct SameState {
    states: BTreeMap<(LogId, Op), u64>,
    last: BTreeMap<(usize, u16), Op>,
    lanes_seen: BTreeMap<LogId, Op>,
    /// States compared with an earlier one.
    pub looked: u64,
}

impl SameState {
    /// Looks at a shard's metadata.
    pub fn metadata(&mut self, node: usize, core: &Core) {
        let metadata = core.shard.front().metadata();
        let shard = core.shard.back().options().shard;
        let applied = metadata.applied();
        if self.last.insert((node, shard.0), applied) != Some(applied) {
            let hash = xxh3_64_seeded(0, &metadata.encode_snapshot());
            self.state(LogId::METADATA, applied, hash);
        }
    }

    /// Looks at a lane's replicated state.
    pub fn lane(&mut self, lane: &Lane) {
        let state = lane.state();
        if self.lanes_seen.insert(lane.log(), state.applied()) == Some(state.applied()) {
            return;
        }
        let mut text = format!("{} {}", state.highest_created(), state.deleted_by());
        for (key, partition) in state.partitions() {
            let _ = write!(text, "|{key} {:?}", partition.current_offset());
            for (consumer, offset) in partition.offsets() {
                let _ = write!(text, " {consumer:?}={offset}");
            }
        }
        self.state(lane.log(), state.applied(), xxh3_64_seeded(0, text.as_bytes()));
    }

    fn state(&mut self, log: LogId, applied: Op, hash: u64) {
        if let Some(first) = self.states.get(&(log, applied)) {
            assert_eq!(*first, hash, "checker 4: log {log} has two states at {applied}");
            self.looked += 1;
        } else {
            self.states.insert((log, applied), hash);
        }
    }

    /// Operations from `op` on were lost by an injected fault that allows it.
    pub fn forget_from(&mut self, log: LogId, op: Op) {
        self.states.retain(|(of, at), _| *of != log || *at < op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "two states")]
    fn another_state_at_the_same_operation_is_noticed() {
        let mut checker = SameState::default();
        checker.state(LogId(1), Op(3), 1);
        checker.state(LogId(1), Op(4), 2);
        checker.state(LogId(1), Op(3), 2);
    }
}
