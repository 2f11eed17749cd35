//! Checker 8: view and log view of a replica never go back, over restarts.

use super::LogLook;
use borzoi_types::{LogId, View};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct ViewForward {
    seen: BTreeMap<(usize, LogId), (View, View)>,
    /// How often it looked.
    pub looked: u64,
}

impl ViewForward {
    /// Looks at a log of a node.
    pub fn look(&mut self, look: LogLook<'_>) {
        let views = (look.replica.view(), look.replica.log_view());
        self.views(look.node, look.log, views);
    }

    fn views(&mut self, node: usize, log: LogId, views: (View, View)) {
        let seen = self.seen.entry((node, log)).or_default();
        assert!(
            views.0 >= seen.0 && views.1 >= seen.1,
            "checker 8: views of log {log} on node {node} go back from {seen:?} to {views:?}"
        );
        *seen = views;
        self.looked += 1;
    }

    /// A node's disk was replaced by an empty one: what it knew is gone with it.
    pub fn forget(&mut self, node: usize) {
        self.seen.retain(|(of, _), _| *of != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "go back")]
    fn a_view_that_goes_back_is_noticed() {
        let mut checker = ViewForward::default();
        checker.views(0, LogId(1), (View(4), View(3)));
        checker.views(0, LogId(1), (View(4), View(2)));
    }
}
