//! The only source of chance in a run.

use borzoi_shard::{Random, SeededRandom};

/// A deterministic generator with a few conveniences. Cloning repeats its future.
#[derive(Clone, Debug)]
pub struct Dice {
    source: SeededRandom,
}

impl Dice {
    /// A generator whose whole output follows from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { source: SeededRandom::new(seed) }
    }

    /// A generator of its own for the purpose called `name`; does not disturb this one, and is the
    /// same however much was drawn from its other forks.
    #[must_use]
    pub fn fork(seed: u64, name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut dice = Self::new(hash);
        dice.bits();
        dice
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.source.next_u64()
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// An index below `len`, which must not be zero.
    pub fn index(&mut self, len: usize) -> usize {
        assert!(len > 0, "nothing to choose from");
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range {low}..={high}");
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in `parts` of 10,000 cases.
    pub fn rarely(&mut self, parts: u64) -> bool {
        self.below(10_000) < parts
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_of_one_seed_differ_by_name_and_repeat() {
        let draw = |seed, name| Dice::fork(seed, name).bits();
        assert_eq!(draw(7, "network"), draw(7, "network"));
        assert_ne!(draw(7, "network"), draw(7, "disk"));
        assert_ne!(draw(7, "network"), draw(8, "network"));
    }
}
