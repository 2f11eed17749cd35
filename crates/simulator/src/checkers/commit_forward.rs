//! Checker 9: the commit point of a replica never goes back within a life; of a node alone also
//! not over a restart, unless writes were lost that its level allows to be lost.

use super::LogLook;
use borzoi_types::{LogId, Op};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct CommitForward {
    seen: BTreeMap<(usize, LogId), Op>,
    /// How often it looked.
    pub looked: u64,
}

impl CommitForward {
    /// A node has started, and may know less of what is committed than it did.
    pub fn may_know_less(&mut self, look: LogLook<'_>) {
        self.seen.remove(&(look.node, look.log));
    }

    /// Looks at a log of a node.
    pub fn look(&mut self, look: LogLook<'_>) {
        self.commit(look.node, look.log, look.replica.commit());
    }

    /// A node's disk was replaced by another one.
    pub fn forget(&mut self, node: usize) {
        self.seen.retain(|(of, _), _| *of != node);
    }

    fn commit(&mut self, node: usize, log: LogId, commit: Op) {
        let seen = self.seen.entry((node, log)).or_default();
        assert!(
            commit >= *seen,
            "checker 9: the commit point of log {log} on node {node} goes from {seen} to {commit}"
        );
        *seen = commit;
        self.looked += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 9")]
    fn a_commit_point_that_goes_back_is_noticed() {
        let mut checker = CommitForward::default();
        checker.commit(0, LogId(1), Op(4));
        checker.commit(0, LogId(1), Op(3));
    }
}
