//! Giving leads back: a log whose preferred node has caught up is led by it again.
//!
//! After a failure one node leads what two led before. When the other is back and holds
//! everything, leads are handed to it one at a time, by stepping down: the view that follows is
//! the next node's, which does the same until the preferred one leads. A lead that comes straight
//! back is offered again only after a longer and longer wait, so that a node that can follow and
//! not lead costs little.
//!
//! Invariants: only logs led here and preferred elsewhere are looked at; at most one lead is given
//! back per interval.

use super::Back;
use borzoi_consensus::Event as ReplicaEvent;
use borzoi_types::{Duration, LogId, Mono, Now};
use std::collections::BTreeMap;

/// How often one lead may be given back.
const EVERY: Duration = Duration::from_secs(1);
/// How long a log is led here before its lead is offered the first time.
const SETTLED: Duration = Duration::from_secs(5);
/// Longest wait of a lead that keeps coming back.
const WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
struct Lead {
    /// When it was taken, or lost.
    since: Mono,
    wait: Duration,
    led: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct HandBack {
    leads: BTreeMap<LogId, Lead>,
    next: Mono,
    pub(crate) given: u64,
}

impl HandBack {
    fn note(&mut self, log: LogId, led: bool, now: Mono) {
        if !led {
            if let Some(lead) = self.leads.get_mut(&log) {
                (lead.led, lead.since) = (false, now);
            }
            return;
        }
        let lead = self.leads.entry(log).or_insert(Lead { since: now, wait: SETTLED, led });
        if now.since(lead.since).0 > lead.wait.0 * 2 {
            // It stayed away for long: the other could lead it.
            lead.wait = SETTLED;
        }
        (lead.led, lead.since) = (true, now);
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let led = self.leads.values().filter(|lead| lead.led);
        led.map(|lead| lead.since.plus(lead.wait)).min().map(|at| at.max(self.next))
    }
}

impl Back {
    /// Gives a lead back if one is due.
    pub(super) fn hand_back(&mut self, now: Now) {
        for (log, led) in core::mem::take(&mut self.shared.leads_changed) {
            let preferred = self.host_of(log).is_some_and(|host| {
                host.replica().preferred_primary() == self.shared.options.replica
            });
            if !preferred {
                self.hand_back.note(log, led, now.mono);
            }
        }
        if self.shared.stopping || self.hand_back.deadline().is_none_or(|at| at > now.mono) {
            return;
        }
        self.hand_back.next = now.mono.plus(EVERY);
        let due = |lead: &Lead| lead.led && lead.since.plus(lead.wait) <= now.mono;
        let due = self.hand_back.leads.iter().filter(|(_, lead)| due(lead));
        let due: Vec<LogId> = due.map(|(log, _)| *log).collect();
        for log in due {
            let ready = self.host_of(log).is_some_and(|host| {
                let replica = host.replica();
                replica.has_caught_up(replica.preferred_primary())
            });
            if ready {
                let lead = self.hand_back.leads.get_mut(&log).expect("just seen");
                lead.wait = Duration((lead.wait.0 * 2).min(WAIT_MAX.0));
                self.hand_back.given += 1;
                return self.replica_event(now, log, ReplicaEvent::StepDown);
            }
        }
    }
}
