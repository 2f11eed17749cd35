//! Reads that wait until this node has proved that it still leads (architecture, section 10).
//!
//! A read may be answered from committed state only if a replication quorum has answered something
//! this primary sent after the read arrived: otherwise another primary may have been chosen and
//! may have committed what the read would miss. One round serves every read that waited when it
//! began; reads that come while it is under way share the next one.
//!
//! Invariants: at most one round is under way; what waits is given back exactly once, when its
//! round is confirmed or when the lead is lost.

use borzoi_types::limits::LANE_QUEUE_REQUESTS_MAX;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub struct ReadRounds<T> {
    /// Waiting for the next round to begin.
    next: VecDeque<T>,
    /// The round under way and who waits for it.
    current: Option<(u64, VecDeque<T>)>,
}

impl<T> Default for ReadRounds<T> {
    fn default() -> Self {
        Self { next: VecDeque::new(), current: None }
    }
}

impl<T> ReadRounds<T> {
    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next.is_empty() && self.current.is_none()
    }

    fn len(&self) -> usize {
        self.next.len() + self.current.as_ref().map_or(0, |(_, waiting)| waiting.len())
    }

    /// `read` waits for the next round.
    ///
    /// # Errors
    /// The read itself, when too many wait.
    pub fn wait(&mut self, read: T) -> Result<(), T> {
        if self.len() >= LANE_QUEUE_REQUESTS_MAX {
            return Err(read);
        }
        self.next.push_back(read);
        Ok(())
    }

    /// Whether a round is to begin now.
    #[must_use]
    pub fn wants_round(&self) -> bool {
        self.current.is_none() && !self.next.is_empty()
    }

    /// The round that serves everyone who waits has begun.
    pub fn begun(&mut self, round: u64) {
        assert!(self.wants_round(), "one at a time, and for somebody");
        self.current = Some((round, core::mem::take(&mut self.next)));
    }

    /// Who waited for the round under way, if `confirmed` has reached it.
    pub fn take_confirmed(&mut self, confirmed: Option<u64>) -> VecDeque<T> {
        match &self.current {
            Some((round, _)) if confirmed >= Some(*round) => {
                self.current.take().map(|(_, waiting)| waiting).unwrap_or_default()
            }
            _ => VecDeque::new(),
        }
    }

    /// The lead is lost: who waits is given back, in the order they came.
    pub fn take_all(&mut self) -> VecDeque<T> {
        let mut all = self.current.take().map(|(_, waiting)| waiting).unwrap_or_default();
        all.append(&mut self.next);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_serves_all_who_waited_and_none_who_came_later() {
        let mut rounds = ReadRounds::default();
        assert!(!rounds.wants_round());
        rounds.wait(1).unwrap();
        rounds.wait(2).unwrap();
        assert!(rounds.wants_round());
        rounds.begun(7);
        rounds.wait(3).unwrap();
        assert!(!rounds.wants_round());
        assert!(rounds.take_confirmed(Some(6)).is_empty());
        assert!(rounds.take_confirmed(None).is_empty());
        assert_eq!(rounds.take_confirmed(Some(7)), [1, 2]);
        assert!(rounds.wants_round());
        rounds.begun(8);
        rounds.wait(4).unwrap();
        assert_eq!(rounds.take_all(), [3, 4]);
        assert!(rounds.is_empty());
    }

    #[test]
    fn waiting_reads_are_bounded() {
        let mut rounds = ReadRounds::default();
        for read in 0..LANE_QUEUE_REQUESTS_MAX {
            rounds.wait(read).unwrap();
        }
        assert_eq!(rounds.wait(0), Err(0));
    }
}
