//! What happened at least once: fault kinds, rare branches, operations. A batch of seeds in which
//! one of the declared things never happened proves nothing about it and is invalid.

use std::collections::BTreeMap;

/// Counters by name. Names are stable: they stand in reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Rare branches of the product and the world that were reached.
    pub branches: BTreeMap<&'static str, u64>,
    /// Client operations that got an answer, by the operation's name.
    pub operations: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Counts a fault.
    pub fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Counts a rare branch.
    pub fn branch(&mut self, name: &'static str) {
        self.branch_times(name, 1);
    }

    /// Counts a rare branch several times; zero times counts nothing.
    pub fn branch_times(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            *self.branches.entry(name).or_default() += times;
        }
    }

    /// Counts an answered operation.
    pub fn operation(&mut self, name: &'static str) {
        *self.operations.entry(name).or_default() += 1;
    }

    /// Adds what another run counted.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.faults, &other.faults),
            (&mut self.branches, &other.branches),
            (&mut self.operations, &other.operations),
        ];
        for (mine, theirs) in pairs {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
    }
}
