//! Checker 12: nobody serves from a hole: a primary that serves has applied everything it knows to
//! be committed.

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
        Self::serves(applied, known);
        self.looked += 1;
    }

    fn serves(applied: u64, known: u64) {
        assert!(applied >= known, "checker 12: served from {applied}, committed is {known}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 12")]
    fn service_below_the_commit_point_is_noticed() {
        NoHole::serves(5, 5);
        NoHole::serves(4, 5);
    }
}
