//! The two clocks that the core is told about, and nothing else.
//!
//! Invariant: `Now::mono` never goes back within a process. `Now::wall` may step either way; the
//! core treats it as something users see, not as something that decides.

use borzoi_types::{Micros, Mono, Now};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads the clocks of the machine. Copied to every thread so that all share one origin of
/// monotonic time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Both readings.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// Monotonic nanoseconds since [`Clock::start`].
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The instant at which [`Clock::mono`] will read `at`.
    #[must_use]
    pub fn instant(&self, at: Mono) -> Instant {
        self.origin + std::time::Duration::from_nanos(at.0)
    }
}

/// Microseconds since 1970; zero if the machine believes to live before that.
#[must_use]
pub fn wall() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_maps_to_instants_and_back() {
        let clock = Clock::start();
        let first = clock.mono();
        let second = clock.mono();
        assert!(second >= first);
        let at = Mono(first.0 + 5_000_000_000);
        let ahead = clock.instant(at).duration_since(Instant::now());
        assert!(ahead <= std::time::Duration::from_secs(5));
        assert!(ahead > std::time::Duration::from_secs(4));
        assert!(wall().0 > 1_600_000_000_000_000);
    }
}
