//! Checker 8: view and log view of a replica never go back: within a life at all, over restarts
//! not below what it has told anybody.

use super::LogLook;
use borzoi_types::{LogId, View};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct ViewForward {
    seen: BTreeMap<(usize, LogId), (View, View)>,
    /// What others have been told.
    told: BTreeMap<(usize, LogId), (View, View)>,
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

    /// A replica has told another one its view, and perhaps its log view.
    pub fn told(&mut self, node: usize, log: LogId, view: View, log_view: Option<View>) {
        let told = self.told.entry((node, log)).or_default();
        told.0 = told.0.max(view);
        told.1 = told.1.max(log_view.unwrap_or_default());
    }

    /// A node has started: what it told nobody may be gone.
    pub fn started(&mut self, node: usize, alone: bool) {
        if !alone {
            self.seen.retain(|(of, _), _| *of != node);
            let told = self.told.iter().filter(|((of, _), _)| *of == node);
            self.seen.extend(told.map(|(place, views)| (*place, *views)));
        }
    }

    /// A node's disk was replaced by an empty one: what it knew is gone with it.
    pub fn forget(&mut self, node: usize) {
        self.seen.retain(|(of, _), _| *of != node);
        self.told.retain(|(of, _), _| *of != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "go back")]
    fn a_view_that_was_told_and_is_gone_after_a_restart_is_noticed() {
        let mut checker = ViewForward::default();
        checker.views(0, LogId(1), (View(5), View(3)));
        checker.told(0, LogId(1), View(4), None);
        checker.started(0, false);
        checker.views(0, LogId(1), (View(4), View(3)));
        checker.started(0, false);
        checker.views(0, LogId(1), (View(3), View(3)));
    }

    #[test]
    #[should_panic(expected = "go back")]
    fn a_view_that_goes_back_is_noticed() {
        let mut checker = ViewForward::default();
        checker.views(0, LogId(1), (View(4), View(3)));
        checker.views(0, LogId(1), (View(4), View(2)));
    }
}
