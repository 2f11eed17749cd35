//! How long a failed login waits for its answer, by address.
//!
//! The first failure of an address is answered after 100 ms, each further one after twice the time
//! of the one before, up to a cap; an address without failures for a while starts anew. Guessing
//! is slow, and a right login is never delayed.
//!
//! Invariants: bounded by [`FAILED_LOGIN_ADDRESSES_MAX`] entries, the one longest without a failure
//! makes room.

use borzoi_types::limits::FAILED_LOGIN_ADDRESSES_MAX;
use borzoi_types::{Duration, Mono};
use std::collections::BTreeMap;

/// Delay of the first failure of an address.
pub(crate) const DELAY_FIRST: Duration = Duration::from_millis(100);
/// Doublings after which the delay stops growing: 100 ms to 3.2 s, below the 5 s that a client
/// may take to log in.
const DOUBLINGS_MAX: u32 = 5;
/// Time without failures after which an address starts anew.
const FORGET_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Record {
    failures: u32,
    last: Mono,
}

/// Failures by address.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins {
    by_address: BTreeMap<String, Record>,
}

impl FailedLogins {
    /// Counts a failure of `address` and returns when it is to be answered.
    pub(crate) fn failed(&mut self, now: Mono, address: &str) -> Mono {
        if !self.by_address.contains_key(address) {
            self.make_room(now);
        }
        let fresh = Record { failures: 0, last: now };
        let record = self.by_address.entry(address.to_owned()).or_insert(fresh);
        if now.since(record.last) >= FORGET_AFTER {
            record.failures = 0;
        }
        let doublings = record.failures.min(DOUBLINGS_MAX);
        record.failures = record.failures.saturating_add(1);
        record.last = now;
        now.plus(Duration(DELAY_FIRST.as_nanos() << doublings))
    }

    fn make_room(&mut self, now: Mono) {
        if self.by_address.len() < FAILED_LOGIN_ADDRESSES_MAX {
            return;
        }
        self.by_address.retain(|_, record| now.since(record.last) < FORGET_AFTER);
        if self.by_address.len() < FAILED_LOGIN_ADDRESSES_MAX {
            return;
        }
        let oldest = self.by_address.iter().min_by_key(|(_, record)| record.last);
        if let Some(address) = oldest.map(|(address, _)| address.clone()) {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Mono = Mono(1_000);

    #[test]
    fn the_delay_doubles_from_a_tenth_of_a_second_up_to_its_cap() {
        let mut failed = FailedLogins::default();
        let delays: Vec<u64> =
            (0..7).map(|_| failed.failed(START, "a").since(START).as_micros() / 1_000).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 3_200]);
        assert_eq!(failed.failed(START, "b").since(START), DELAY_FIRST);
    }

    #[test]
    fn a_minute_without_failures_forgives() {
        let mut failed = FailedLogins::default();
        failed.failed(START, "a");
        failed.failed(START, "a");
        let later = START.plus(FORGET_AFTER);
        assert_eq!(failed.failed(later, "a").since(later), DELAY_FIRST);
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_address_makes_room() {
        let mut failed = FailedLogins::default();
        for index in 0..=FAILED_LOGIN_ADDRESSES_MAX {
            failed.failed(START.plus(Duration(index as u64)), &format!("address-{index}"));
        }
        assert_eq!(failed.by_address.len(), FAILED_LOGIN_ADDRESSES_MAX);
        assert!(!failed.by_address.contains_key("address-0"));
    }
}
