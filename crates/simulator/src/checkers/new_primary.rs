//! Checker 3: a primary that serves has every operation that was ever committed, under the same
//! checksum.

use super::LogLook;
use super::committed_once::CommittedOnce;
use borzoi_types::{LogId, Op, View};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct NewPrimary {
    served: BTreeMap<(usize, LogId), View>,
    /// How often it looked.
    pub looked: u64,
}

impl NewPrimary {
    /// Looks at a log of a node: the first time that it serves in a view.
    pub fn look(&mut self, look: LogLook<'_>, committed: &CommittedOnce) {
        let (replica, place) = (look.replica, (look.node, look.log));
        if !replica.is_serving_primary() {
            self.served.remove(&place);
            return;
        }
        if self.served.insert(place, replica.view()) == Some(replica.view()) {
            return;
        }
        let highest = committed.highest(look.log);
        Self::compare(look.log, highest, replica.commit());
        let (theirs, mine) = (committed.at(look.log, highest), replica.checksum_at(highest));
        if let (Some(theirs), Some(mine)) = (theirs, mine) {
            assert_eq!(theirs, mine, "checker 3: another operation {highest} of {}", look.log);
        }
        self.looked += 1;
    }

    fn compare(log: LogId, highest: Op, commit: Op) {
        assert!(
            commit >= highest,
            "checker 3: log {log} is served up to {commit}, {highest} was committed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "was committed")]
    fn a_primary_that_lacks_a_committed_operation_is_noticed() {
        NewPrimary::compare(LogId(2), Op(9), Op(8));
    }
}
