//! Checker 13: an operation that a replication quorum has acknowledged in one view is never
//! replaced: a log is cut only where a nack quorum proves that this cannot be.

use super::LogLook;
use super::journal_index::Marked;
use borzoi_shard::Lanes;
use borzoi_types::{Durability, LogId, Op};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct Truncation {
    /// By log, operation and checksum: nodes that held it while they were in its view.
    holders: BTreeMap<(LogId, Op, u128), BTreeSet<usize>>,
    /// How often it looked.
    pub looked: u64,
}

impl Truncation {
    /// Records of a node have reached its disk.
    pub fn held(&mut self, look: LogLook<'_>, marked: &[Marked], lanes: Lanes) {
        let synced_wanted = lanes.durability(look.log) == Durability::Persisted;
        for mark in marked.iter().filter(|mark| mark.key.0 == look.log) {
            let in_view = look.replica.log_view() == mark.view && look.replica.view() == mark.view;
            if in_view && (mark.synced || !synced_wanted) {
                self.holder(mark.key, look.node);
            }
        }
    }

    fn holder(&mut self, key: (LogId, Op, u128), node: usize) {
        self.holders.entry(key).or_default().insert(node);
    }

    /// A node alone has lost writes that it may lose.
    pub fn forget(&mut self, log: LogId) {
        self.holders.retain(|(of, _, _), _| *of != log);
    }

    /// An operation has committed.
    pub fn commit(&mut self, log: LogId, op: Op, checksum: u128, quorum: usize) {
        let range = (log, op, 0)..=(log, op, u128::MAX);
        for ((_, _, other), nodes) in self.holders.range(range) {
            assert!(
                *other == checksum || nodes.len() < quorum,
                "checker 13: operation {op} of log {log} replaced one that {nodes:?} had held"
            );
        }
        self.holders.retain(|(of, at, _), _| *of != log || *at > op);
        self.looked += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 13")]
    fn a_replaced_operation_of_a_quorum_is_noticed() {
        let mut checker = Truncation::default();
        checker.holder((LogId(1), Op(4), 7), 0);
        checker.commit(LogId(1), Op(3), 1, 2);
        checker.holder((LogId(1), Op(4), 7), 1);
        checker.commit(LogId(1), Op(4), 8, 2);
    }
}
