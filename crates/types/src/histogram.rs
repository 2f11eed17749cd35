//! Histograms of time with fixed bounds: counting is two additions and allocates nothing.
//!
//! Invariant: the bounds rise, and every time belongs to exactly one bucket.

use crate::Duration;

/// Upper bounds of the buckets in microseconds, each included; one more bucket holds what is
/// longer. From a fast flush to a client's time-out, two or three to a decade.
pub const HISTOGRAM_BOUNDS_MICROS: [u64; 18] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000,
];

/// Buckets of a histogram.
pub const HISTOGRAM_BUCKETS: usize = HISTOGRAM_BOUNDS_MICROS.len() + 1;

/// How often something took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// Occurrences per bucket; not added up.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
    /// All times together, in microseconds.
    pub sum_micros: u64,
}

impl Histogram {
    /// The bucket of a time in microseconds.
    #[must_use]
    pub fn bucket_of(micros: u64) -> usize {
        let bucket = HISTOGRAM_BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        debug_assert!(bucket < HISTOGRAM_BUCKETS);
        bucket
    }

    /// Counts one occurrence.
    pub fn record(&mut self, time: Duration) {
        let micros = time.0 / 1_000;
        self.buckets[Self::bucket_of(micros)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// Adds another histogram to this one.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
    }

    /// Occurrences.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_at_a_bound_belongs_to_its_bucket_and_one_past_it_to_the_next() {
        assert!(HISTOGRAM_BOUNDS_MICROS.windows(2).all(|pair| pair[0] < pair[1]));
        for (index, bound) in HISTOGRAM_BOUNDS_MICROS.into_iter().enumerate() {
            assert_eq!(Histogram::bucket_of(bound), index);
            assert_eq!(Histogram::bucket_of(bound + 1), index + 1);
        }
        assert_eq!(Histogram::bucket_of(0), 0);
        assert_eq!(Histogram::bucket_of(u64::MAX), HISTOGRAM_BUCKETS - 1);
    }

    #[test]
    fn what_is_recorded_is_counted_once_and_added_up() {
        let mut histogram = Histogram::default();
        for micros in [10, 50, 51, 40_000_000] {
            histogram.record(Duration(micros * 1_000));
        }
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.sum_micros, 40_000_111);
        assert_eq!((histogram.buckets[0], histogram.buckets[1]), (2, 1));
        let mut twice = histogram;
        twice.add(&histogram);
        assert_eq!((twice.count(), twice.sum_micros), (8, 80_000_222));
    }
}
