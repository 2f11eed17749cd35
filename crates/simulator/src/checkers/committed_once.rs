//! Checkers 2 and 6: what is committed at an operation is the same on every node, in every life,
//! for ever.

use borzoi_types::{LogId, Op};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct CommittedOnce {
    logs: BTreeMap<LogId, BTreeMap<Op, u128>>,
    /// Commits seen.
    pub looked: u64,
    /// Commits compared with an earlier one.
    pub compared: u64,
}

impl CommittedOnce {
    /// A node has committed `op`. Returns whether nobody had before.
    pub fn commit(&mut self, node: usize, log: LogId, op: Op, checksum: u128) -> bool {
        self.looked += 1;
        let known = self.logs.entry(log).or_default();
        if let Some(first) = known.get(&op) {
            self.compared += 1;
            assert_eq!(
                *first, checksum,
                "checkers 2 and 6: node {node} commits another operation {op} of log {log}"
            );
            return false;
        }
        known.insert(op, checksum);
        true
    }

    /// A node alone has lost writes that it may lose: what it has now is what was committed. Gives
    /// the first operation that is not as before.
    pub fn restarted(&mut self, log: LogId, now: impl Fn(Op) -> Option<u128>) -> Option<Op> {
        let known = self.logs.get_mut(&log)?;
        let changed = known.iter().rev().take_while(|(op, was)| now(**op) != Some(**was)).last();
        let first = *changed?.0;
        known.split_off(&first);
        Some(first)
    }

    /// What is committed at an operation.
    #[must_use]
    pub fn at(&self, log: LogId, op: Op) -> Option<u128> {
        self.logs.get(&log)?.get(&op).copied()
    }

    /// The highest committed operation of a log.
    #[must_use]
    pub fn highest(&self, log: LogId) -> Op {
        let known = self.logs.get(&log).and_then(BTreeMap::last_key_value);
        known.map_or(Op::ZERO, |(op, _)| *op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "another operation")]
    fn a_second_content_of_a_committed_operation_is_noticed() {
        let mut checker = CommittedOnce::default();
        assert!(checker.commit(0, LogId(1), Op(5), 7));
        assert!(!checker.commit(1, LogId(1), Op(5), 7));
        checker.commit(2, LogId(1), Op(5), 8);
    }
}
