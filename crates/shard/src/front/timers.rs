//! What the front does when time has passed, in one ordered set.
//!
//! Invariants: a timer fires once, at or after its time, in order of time and then of kind; a timer
//! that has lost its meaning is harmless, its handler looks at the present state first.

use crate::event::ConnectionId;
use crate::front::connection::Place;
use crate::lane::api::Ticket;
use borzoi_types::{Mono, Op};
use std::collections::BTreeSet;

/// What to look at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The connection must have logged in.
    LoginDeadline(ConnectionId),
    /// A failed login is due for its answer.
    FailedLogin(Place),
    /// A member of a group must have been heard.
    Heartbeat(ConnectionId),
    /// The token that the connection logged in with expires.
    TokenExpiry(ConnectionId),
    /// A delete or purge must have been confirmed by its lanes.
    Lanes(Ticket),
    /// Shard 0 looks for what has outlived its time.
    Housekeeping,
    /// A refused report of lost connections may be repeated.
    Retry,
    /// A command that another node was asked to execute must have been.
    Relayed(Ticket),
    /// A question for the commit point must have been answered, or may be asked again.
    Question(Ticket),
    /// Other nodes must have named their clients.
    Clients(Ticket),
    /// Requests must not wait for metadata up to this operation any longer.
    Metadata(Op),
    /// Requests must not wait for the node to become ready any longer.
    Unready,
}

/// All timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Mono, Timer)>,
}

impl Timers {
    /// Fires `timer` at `at`.
    pub(crate) fn set(&mut self, at: Mono, timer: Timer) {
        self.due.insert((at, timer));
    }

    /// Takes back the timer set for `at`.
    pub(crate) fn cancel(&mut self, at: Mono, timer: Timer) {
        self.due.remove(&(at, timer));
    }

    /// The next timer that is due.
    pub(crate) fn pop(&mut self, now: Mono) -> Option<Timer> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        self.due.pop_first().map(|(_, timer)| timer)
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_once_they_are_due() {
        let mut timers = Timers::default();
        timers.set(Mono(20), Timer::Housekeeping);
        timers.set(Mono(10), Timer::LoginDeadline(ConnectionId(1)));
        timers.set(Mono(10), Timer::LoginDeadline(ConnectionId(2)));
        timers.cancel(Mono(10), Timer::LoginDeadline(ConnectionId(1)));
        assert_eq!(timers.next(), Some(Mono(10)));
        assert_eq!(timers.pop(Mono(9)), None);
        assert_eq!(timers.pop(Mono(10)), Some(Timer::LoginDeadline(ConnectionId(2))));
        assert_eq!(timers.pop(Mono(10)), None);
        assert_eq!(timers.pop(Mono(25)), Some(Timer::Housekeeping));
        assert_eq!(timers.next(), None);
    }
}
