//! The clocks of one node: a monotonic one that drifts, and a wall clock that also steps.

use borzoi_types::{Micros, Mono, Now};

const MILLION: u128 = 1_000_000;

/// Wall clock of an honest node at simulated time zero.
pub const WALL_START: Micros = Micros(1_790_000_000_000_000);

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// True time at which the process started.
    started: Mono,
    /// What its monotonic clock showed then.
    base: Mono,
    /// Its ticks per million true ones.
    rate_ppm: u64,
    /// Microseconds that its wall clock is off.
    offset: i64,
}

impl Clock {
    /// A clock that shows `base` at `started` and runs at `rate_ppm`.
    #[must_use]
    pub fn new(started: Mono, base: Mono, rate_ppm: u64, offset: i64) -> Self {
        assert!(rate_ppm > 0, "time passes");
        Self { started, base, rate_ppm, offset }
    }

    /// Both readings at true time `now`.
    #[must_use]
    pub fn now(&self, now: Mono) -> Now {
        let passed = u128::from(now.since(self.started).0) * u128::from(self.rate_ppm) / MILLION;
        let mono = Mono(self.base.0 + u64::try_from(passed).expect("runs are short"));
        let wall = i64::try_from(WALL_START.0 + now.0 / 1_000).expect("below the year 9999");
        let wall = u64::try_from(wall + self.offset).unwrap_or(0);
        Now { mono, wall: Micros(wall) }
    }

    /// The true time at which the monotonic clock shows `local` or a little more.
    #[must_use]
    pub fn when(&self, local: Mono) -> Mono {
        let span = u128::from(local.since(self.base).0) * MILLION;
        let passed = span.div_ceil(u128::from(self.rate_ppm));
        Mono(self.started.0.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX / 2)))
    }

    /// Moves the wall clock by `micros`.
    pub fn step(&mut self, micros: i64) {
        self.offset += micros;
    }

    /// Microseconds that the wall clock is off.
    #[must_use]
    pub const fn offset(&self) -> i64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_names_the_first_moment_at_which_the_clock_shows_that_much() {
        for rate in [950_000, 1_000_000, 1_050_000] {
            let clock = Clock::new(Mono(77), Mono(1_000), rate, 0);
            for local in [1_000, 1_001, 5_123, 999_999_937] {
                let at = clock.when(Mono(local));
                assert!(clock.now(at).mono >= Mono(local), "{rate} {local}");
                if at > Mono(77) {
                    assert!(clock.now(Mono(at.0 - 1)).mono < Mono(local), "{rate} {local}");
                }
            }
        }
    }
}
