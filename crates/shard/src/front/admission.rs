//! Who may connect: caps on connections in total, per address and before login.
//!
//! Invariants: the counters equal the connections that are open; an address without connections
//! has no entry. A connection over a cap is refused at once with the reason, except that one over
//! the cap of connections before login takes the place of the oldest such connection, so that
//! peers which never log in cannot lock the others out.

use crate::event::ConnectionId;
use std::collections::BTreeMap;

/// The caps of one shard. Each is a limit of `borzoi_types::limits` unless configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionLimits {
    /// Connections in total.
    pub connections_max: usize,
    /// Connections of one address.
    pub per_address_max: usize,
    /// Connections before login.
    pub before_login_max: usize,
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The shard has as many connections as it may.
    Total,
    /// The address has as many connections as it may.
    Address,
}

/// A connection was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admitted {
    /// The connection before login that has to go in exchange.
    pub(crate) displaced: Option<ConnectionId>,
}

/// Counts of open connections.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: AdmissionLimits,
    total: usize,
    by_address: BTreeMap<String, usize>,
    /// Connections before login. Connection numbers rise, so the first is the oldest.
    before_login: BTreeMap<ConnectionId, String>,
}

impl Admission {
    /// Nothing is connected yet.
    pub(crate) fn new(limits: AdmissionLimits) -> Self {
        assert!(limits.before_login_max > 0, "nobody could ever log in");
        assert!(limits.connections_max >= limits.per_address_max, "the address cap is a share");
        Self { limits, total: 0, by_address: BTreeMap::new(), before_login: BTreeMap::new() }
    }

    /// Counts a new connection from `address` (without port).
    pub(crate) fn open(
        &mut self,
        connection: ConnectionId,
        address: &str,
    ) -> Result<Admitted, Refused> {
        if self.total >= self.limits.connections_max {
            return Err(Refused::Total);
        }
        let of_address = self.by_address.get(address).copied().unwrap_or(0);
        if of_address >= self.limits.per_address_max {
            return Err(Refused::Address);
        }
        let displaced = self.to_displace(address);
        self.total += 1;
        self.by_address.insert(address.to_owned(), of_address + 1);
        let before = self.before_login.insert(connection, address.to_owned());
        assert!(before.is_none(), "connection numbers are unique");
        Ok(Admitted { displaced })
    }

    /// The oldest connection before login of the same address, or of any if it has none.
    fn to_displace(&self, address: &str) -> Option<ConnectionId> {
        if self.before_login.len() < self.limits.before_login_max {
            return None;
        }
        let same = self.before_login.iter().find(|(_, other)| other.as_str() == address);
        same.or_else(|| self.before_login.iter().next()).map(|(connection, _)| *connection)
    }

    /// The connection logged in.
    pub(crate) fn logged_in(&mut self, connection: ConnectionId) {
        self.before_login.remove(&connection);
    }

    /// The connection, opened from `address`, logged out.
    pub(crate) fn logged_out(&mut self, connection: ConnectionId, address: &str) {
        self.before_login.insert(connection, address.to_owned());
    }

    /// The connection, opened from `address`, is gone.
    pub(crate) fn close(&mut self, connection: ConnectionId, address: &str) {
        self.before_login.remove(&connection);
        assert!(self.total > 0, "only a counted connection closes");
        self.total -= 1;
        if let Some(count) = self.by_address.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(address);
            }
        }
    }

    /// Open connections.
    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// Open connections that have not logged in.
    #[cfg(test)]
    pub(crate) fn before_login(&self) -> usize {
        self.before_login.len()
    }
}

/// The address of a peer without its port: what the caps and the delays count by.
pub(crate) fn address_of(peer: &str) -> &str {
    match peer.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            address.trim_start_matches('[').trim_end_matches(']')
        }
        _ => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(total: usize, address: usize, before_login: usize) -> Admission {
        Admission::new(AdmissionLimits {
            connections_max: total,
            per_address_max: address,
            before_login_max: before_login,
        })
    }

    #[test]
    fn the_total_cap_refuses_one_past_it_and_admits_again_after_a_close() {
        let mut admission = admission(2, 2, 2);
        assert!(admission.open(ConnectionId(1), "a").is_ok());
        assert!(admission.open(ConnectionId(2), "b").is_ok());
        assert_eq!(admission.open(ConnectionId(3), "c"), Err(Refused::Total));
        admission.close(ConnectionId(1), "a");
        assert_eq!(admission.open(ConnectionId(4), "c"), Ok(Admitted { displaced: None }));
        assert_eq!((admission.total(), admission.before_login()), (2, 2));
    }

    #[test]
    fn one_address_at_its_cap_does_not_hinder_another() {
        let mut admission = admission(10, 1, 10);
        assert!(admission.open(ConnectionId(1), "a").is_ok());
        assert_eq!(admission.open(ConnectionId(2), "a"), Err(Refused::Address));
        assert!(admission.open(ConnectionId(3), "b").is_ok());
    }

    #[test]
    fn past_the_cap_before_login_the_oldest_of_the_same_address_goes_first() {
        let mut admission = admission(10, 10, 2);
        assert!(admission.open(ConnectionId(1), "a").is_ok());
        assert!(admission.open(ConnectionId(2), "b").is_ok());
        let admitted = admission.open(ConnectionId(3), "b");
        assert_eq!(admitted, Ok(Admitted { displaced: Some(ConnectionId(2)) }));
        admission.close(ConnectionId(2), "b");
        let admitted = admission.open(ConnectionId(4), "c");
        assert_eq!(admitted, Ok(Admitted { displaced: Some(ConnectionId(1)) }));
        admission.close(ConnectionId(1), "a");
        admission.logged_in(ConnectionId(3));
        assert_eq!(admission.open(ConnectionId(5), "c"), Ok(Admitted { displaced: None }));
    }

    #[test]
    fn the_address_of_a_peer_is_its_text_without_the_port() {
        assert_eq!(address_of("127.0.0.1:5000"), "127.0.0.1");
        assert_eq!(address_of("[::1]:5000"), "::1");
        assert_eq!(address_of("unix"), "unix");
        assert_eq!(address_of("host:name"), "host:name");
    }
}
