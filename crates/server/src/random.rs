//! True randomness for the shards, behind their seam.

use borzoi_shard::Random;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};

/// A cryptographic generator seeded by the operating system.
pub struct SystemRandom(StdRng);

impl SystemRandom {
    /// A generator with a seed of its own.
    #[must_use]
    pub fn new() -> Self {
        Self(StdRng::from_os_rng())
    }
}

impl Random for SystemRandom {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
