//! The randomness seam. The core draws no randomness of its own: the shell injects a generator
//! seeded from the operating system, the simulator one seeded from the run's seed.

/// A source of random numbers. `Send`, because a shard is made on one thread and runs on another.
pub trait Random: Send {
    /// The next 64 random bits. Must be unpredictable in production: tokens and the keys of
    /// keyed hashes are made of it.
    fn next_u64(&mut self) -> u64;

    /// Fills `bytes` with random bits.
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// A small deterministic generator (SplitMix64) for tests and the simulator. Not for secrets.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// A generator whose whole output follows from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

impl Random for SeededRandom {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_gives_others() {
        let mut first = [0u8; 21];
        let mut second = [0u8; 21];
        let mut third = [0u8; 21];
        SeededRandom::new(7).fill(&mut first);
        SeededRandom::new(7).fill(&mut second);
        SeededRandom::new(8).fill(&mut third);
        assert_eq!(first, second);
        assert_ne!(first, third);
    }
}
