//! A small deterministic generator for jitter and for rotating over peers.
//!
//! SplitMix64: one word of state, full period. Nothing secret is drawn from it.

/// Deterministic pseudo-random numbers from one seed.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.next();
        let number = if bound == 0 { 0 } else { drawn % bound };
        assert!(number < bound || bound == 0, "below its bound");
        number
    }
}
