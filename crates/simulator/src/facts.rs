//! What the world did that a checker must know: losses that were injected, not bugs.

use borzoi_types::Mono;

/// Facts about one run, filled by the world.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Moments at which so many nodes had lost unsynced writes (power cut, other boot identity)
    /// that no replication quorum kept them: what a lane of level `replicated` had confirmed
    /// before may be gone, and its offsets jump. Level `persisted` loses nothing by it.
    pub unsynced_lost: Vec<Mono>,
    /// Moments at which the only node ended otherwise than by a clean stop: it cannot tell what it
    /// lost, so offsets of level `replicated` jump, also when nothing was.
    pub unclean_ends: Vec<Mono>,
    /// The cluster stopped on purpose: injected damage left no trusted copy, and it said so.
    /// Final reads are not expected then.
    pub safe_stop: bool,
    /// Any fault was injected at all.
    pub faulty: bool,
}

impl Facts {
    /// Whether something confirmed at level `replicated` at `at` may have been lost since.
    #[must_use]
    pub fn replicated_may_be_lost(&self, at: Mono) -> bool {
        self.unsynced_lost.iter().any(|lost| *lost >= at)
    }
}
