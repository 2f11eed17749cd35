//! Checker 12: nobody serves from a hole. A primary that serves has applied everything it knows
//! to be committed, and is not a replica that has to learn first.

use super::LogLook;

/// See the module.
#[derive(Debug, Default)]
pub struct NoHole {
    /// How often it looked.
    pub looked: u64,
}

impl NoHole {
    /// Looks at a log of a node.
    pub fn look(&mut self, look: LogLook<'_>) {
        let replica = look.replica;
        if !replica.is_serving_primary() {
            return;
        }
        let (applied, known) = (replica.commit().0, replica.commit_known().0);
        Self::serves(applied, known, replica.must_learn());
        self.looked += 1;
    }

    fn serves(applied: u64, known: u64, must_learn: bool) {
        assert!(applied >= known, "checker 12: served from {applied}, committed is {known}");
        assert!(!must_learn, "checker 12: served by a replica that has to learn");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 12")]
    fn service_below_the_commit_point_is_noticed() {
        NoHole::serves(4, 5, false);
    }

    #[test]
    #[should_panic(expected = "has to learn")]
    fn service_by_an_untrusted_replica_is_noticed() {
        NoHole::serves(5, 5, true);
    }
}
