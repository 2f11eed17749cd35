//! Who may connect: caps on connections in total, per address, and before login.
//!
//! Invariant: a [`Pass`] is counted from [`Admission::admit`] until it is dropped, under its
//! address, its shard, and, until [`Pass::logged_in`], among those who have not logged in.

use borzoi_types::limits::{
    CONNECTIONS_BEFORE_LOGIN_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Counts {
    total: usize,
    before_login: usize,
    by_address: BTreeMap<IpAddr, usize>,
    by_shard: Vec<usize>,
}

/// The counts of one node.
#[derive(Clone)]
pub struct Admission {
    counts: Arc<Mutex<Counts>>,
}

/// Why a connection is turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The node is full.
    #[error("the node has {CONNECTIONS_MAX} connections")]
    Total,
    /// The address has its share.
    #[error("the address has {CONNECTIONS_PER_ADDRESS_MAX} connections")]
    Address,
    /// Too many are waiting to log in.
    #[error("{CONNECTIONS_BEFORE_LOGIN_MAX} connections have not logged in")]
    BeforeLogin,
}

impl Admission {
    /// No connections yet, on a node with `shards` shards.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        assert!(shards > 0, "a connection needs a shard");
        let counts = Counts { by_shard: vec![0; shards], ..Counts::default() };
        Self { counts: Arc::new(Mutex::new(counts)) }
    }

    /// Admits a connection to the shard with the fewest.
    ///
    /// # Errors
    /// When a cap is reached.
    pub fn admit(&self, address: IpAddr) -> Result<Pass, Refused> {
        let mut counts = self.lock();
        if counts.total >= CONNECTIONS_MAX {
            return Err(Refused::Total);
        }
        if counts.before_login >= CONNECTIONS_BEFORE_LOGIN_MAX {
            return Err(Refused::BeforeLogin);
        }
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= CONNECTIONS_PER_ADDRESS_MAX {
            return Err(Refused::Address);
        }
        let least = counts.by_shard.iter().enumerate().min_by_key(|(_, count)| **count);
        let (shard, _) = least.expect("there is a shard");
        counts.total += 1;
        counts.before_login += 1;
        counts.by_shard[shard] += 1;
        counts.by_address.insert(address, of_address + 1);
        Ok(Pass { admission: self.clone(), address, shard, logged_in: Cell::new(false) })
    }

    /// Connections now.
    #[cfg(test)]
    #[must_use]
    pub fn total(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One admitted connection.
pub struct Pass {
    admission: Admission,
    address: IpAddr,
    shard: usize,
    logged_in: Cell<bool>,
}

impl Pass {
    /// Index of the shard it was dealt to.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Moves it from those who have not logged in to those who have.
    pub fn logged_in(&self) {
        if !self.logged_in.replace(true) {
            self.admission.lock().before_login -= 1;
        }
    }

    /// Whether it has logged in.
    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.logged_in.get()
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pass({}, shard {})", self.address, self.shard)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.admission.lock();
        counts.total -= 1;
        counts.by_shard[self.shard] -= 1;
        if !self.logged_in.get() {
            counts.before_login -= 1;
        }
        let left = counts.by_address.get_mut(&self.address).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            counts.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn connections_go_to_the_shard_with_the_fewest_and_are_uncounted_when_they_end() {
        let admission = Admission::new(2);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let first = admission.admit(address).unwrap();
        let second = admission.admit(address).unwrap();
        assert_eq!((first.shard(), second.shard()), (0, 1));
        drop(second);
        let third = admission.admit(address).unwrap();
        assert_eq!(third.shard(), 1);
        first.logged_in();
        first.logged_in();
        assert_eq!(admission.lock().before_login, 1);
        drop((first, third));
        assert_eq!(admission.total(), 0);
        assert!(admission.lock().by_address.is_empty());
    }

    #[test]
    fn an_address_with_its_share_is_refused_and_another_is_not() {
        let admission = Admission::new(1);
        let greedy = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let passes: Vec<Pass> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|_| {
                let pass = admission.admit(greedy).unwrap();
                pass.logged_in();
                pass
            })
            .collect();
        assert_eq!(admission.admit(greedy).unwrap_err(), Refused::Address);
        assert!(admission.admit(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))).is_ok());
        drop(passes);
        assert!(admission.admit(greedy).is_ok());
    }
}
