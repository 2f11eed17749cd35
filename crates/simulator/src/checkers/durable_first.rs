//! Checkers 5 and 14: at the moment an operation counts as committed, the simulated disks of a
//! replication quorum hold its record: synced in a lane of level `persisted`, written in one of
//! level `replicated`.

use super::journal_index::JournalIndex;
use borzoi_types::{Durability, LogId, Op};

/// See the module.
#[derive(Debug, Default)]
pub struct DurableFirst {
    /// Commits it looked at.
    pub looked: u64,
    /// Acknowledgements of replicas it looked at.
    pub acknowledgements: u64,
}

impl DurableFirst {
    /// An operation has committed for the first time.
    pub fn commit(
        &mut self,
        key: (LogId, Op, u128),
        level: Durability,
        quorum: usize,
        index: &[JournalIndex],
    ) {
        let holders = index.iter().filter(|index| index.holds(key, level)).count();
        Self::enough(key, level, quorum, holders);
        self.looked += 1;
    }

    /// A replica tells the primary that it holds everything up to an operation.
    pub fn acknowledged(
        &mut self,
        key: (LogId, Op, u128),
        level: Durability,
        index: &JournalIndex,
    ) {
        let (log, op, _) = key;
        assert!(
            index.holds_now(key, level),
            "checker 14: operation {op} of log {log} ({level:?}) is acknowledged and not on disk"
        );
        self.acknowledgements += 1;
    }

    fn enough(key: (LogId, Op, u128), level: Durability, quorum: usize, holders: usize) {
        let (log, op, _) = key;
        assert!(
            holders >= quorum,
            "checkers 5 and 14: operation {op} of log {log} ({level:?}) is committed, but \
             {holders} of the {quorum} disks that it needs hold it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checkers 5 and 14")]
    fn a_commit_without_a_quorum_of_disks_is_noticed() {
        let key = (LogId(1), Op(2), 3);
        DurableFirst::enough(key, Durability::Persisted, 2, 2);
        DurableFirst::enough(key, Durability::Persisted, 2, 1);
    }

    #[test]
    #[should_panic(expected = "not on disk")]
    fn an_acknowledgement_of_what_is_not_there_is_noticed() {
        let key = (LogId(1), Op(2), 3);
        let index = JournalIndex::default();
        DurableFirst::default().acknowledged(key, Durability::Replicated, &index);
    }

    #[test]
    #[should_panic(expected = "checkers 5 and 14")]
    fn an_empty_journal_holds_nothing() {
        let key = (LogId(1), Op(2), 3);
        let index = [JournalIndex::default()];
        DurableFirst::default().commit(key, Durability::Replicated, 1, &index);
    }
}
