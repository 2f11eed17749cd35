//! Checker 11: each committed operation names the one before it.

use super::committed_once::CommittedOnce;
use super::journal_index::JournalIndex;
use borzoi_types::{LogId, Op};

/// See the module.
#[derive(Debug, Default)]
pub struct HashChain {
    /// How often it looked.
    pub looked: u64,
}

impl HashChain {
    /// An operation has committed for the first time.
    pub fn commit(
        &mut self,
        key: (LogId, Op, u128),
        committed: &CommittedOnce,
        index: &[JournalIndex],
    ) {
        let (log, op, _) = key;
        let before = committed.at(log, Op(op.0 - 1));
        let parent = index.iter().find_map(|index| index.parent(key));
        if let (Some(before), Some(parent)) = (before, parent) {
            Self::follows(log, op, before, parent);
            self.looked += 1;
        }
    }

    fn follows(log: LogId, op: Op, before: u128, parent: u128) {
        assert_eq!(before, parent, "checker 11: operation {op} of log {log} follows another");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 11")]
    fn a_broken_chain_is_noticed() {
        HashChain::follows(LogId(1), Op(2), 5, 6);
    }
}
