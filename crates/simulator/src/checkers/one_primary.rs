//! Checker 1: a view of a log has one primary.

use super::LogLook;
use borzoi_consensus::Role;
use borzoi_types::{LogId, View};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct OnePrimary {
    primaries: BTreeMap<(LogId, View), usize>,
    /// How often it looked.
    pub looked: u64,
}

impl OnePrimary {
    /// Looks at a log of a node.
    pub fn look(&mut self, look: LogLook<'_>) {
        if matches!(look.replica.role(), Role::Primary { .. }) {
            self.primary(look.log, look.replica.view(), look.node);
        }
    }

    /// A node says that it leads a view.
    pub fn primary(&mut self, log: LogId, view: View, node: usize) {
        let first = *self.primaries.entry((log, view)).or_insert(node);
        assert_eq!(first, node, "checker 1: log {log} has two primaries in view {view}");
        self.looked += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "two primaries")]
    fn two_primaries_of_one_view_are_noticed() {
        let mut checker = OnePrimary::default();
        checker.primary(LogId(1), View(3), 0);
        checker.primary(LogId(1), View(4), 1);
        checker.primary(LogId(1), View(3), 1);
    }
}
