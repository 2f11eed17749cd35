//! Requests of this shard that another node has to answer: where they wait, and for how long.
//!
//! ```text
//!           leader known, link up           answer ──▶ origin
//!   parked ───────────────────────▶ sent ───┤
//!     ▲                                     deadline, link lost, another leader
//!     └── questions: asked again ───────────┴──▶ everything else: fate unknown
//! ```
//!
//! A request leaves this node once. One whose fate is unknown is answered so, and the client's
//! exactly-once identity makes its resend safe. Only questions that change nothing and may take
//! long ("tell me when it is deleted") are asked again, of whoever leads then.
//!
//! Invariants: whoever enters is answered exactly once, because an answer takes the entry out of
//! the table; an answer that finds no entry is counted and has no effect; entries of one lane are
//! dispatched in the order in which they came; `bytes` is the sum over the parked batches.

use crate::lane::api::{LaneRequest, LaneRequestKind, Origin, Refusal, Ticket};
use borzoi_types::limits::{
    FORWARDED_QUESTION_SECONDS_MAX, FORWARDED_REQUESTS_MAX, FORWARDED_SECONDS_MAX,
    PARKED_BYTES_PER_SHARD_MAX,
};
use borzoi_types::{Duration, GroupId, LogId, Mono, Op, PartitionKey, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};

/// Time after which a question that was not taken is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What forwarding has done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ForwardingCounters {
    /// Requests sent to another node.
    pub sent: u64,
    /// Requests that waited for a leader.
    pub parked: u64,
    /// Questions asked again.
    pub asked_again: u64,
    /// Requests answered because their time was up.
    pub expired: u64,
    /// Requests whose fate became unknown: link lost, another leader.
    pub unknown: u64,
    /// Requests refused because a limit was reached.
    pub overflows: u64,
    /// Answers that came too late.
    pub late: u64,
}

/// A question that changes nothing and may be asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    Deleted,
    Created,
    Drained(GroupId),
    Confirmed(Op),
}

impl Question {
    const fn of(kind: &LaneRequestKind) -> Option<Self> {
        match kind {
            LaneRequestKind::AwaitDeleted => Some(Self::Deleted),
            LaneRequestKind::AwaitCreated => Some(Self::Created),
            LaneRequestKind::AwaitDrained { group } => Some(Self::Drained(*group)),
            LaneRequestKind::AwaitConfirmed { through } => Some(Self::Confirmed(*through)),
            LaneRequestKind::Send { .. }
            | LaneRequestKind::Poll { .. }
            | LaneRequestKind::StoreOffset { .. }
            | LaneRequestKind::DeleteOffset { .. }
            | LaneRequestKind::GetOffset { .. } => None,
        }
    }

    const fn kind(self) -> LaneRequestKind {
        match self {
            Self::Deleted => LaneRequestKind::AwaitDeleted,
            Self::Created => LaneRequestKind::AwaitCreated,
            Self::Drained(group) => LaneRequestKind::AwaitDrained { group },
            Self::Confirmed(through) => LaneRequestKind::AwaitConfirmed { through },
        }
    }
}

#[derive(Debug)]
enum State {
    /// Nobody is known to lead the lane, or the link with the leader is down.
    Parked(LaneRequestKind),
    /// This node was asked.
    Sent(ReplicaId),
    /// Not taken; asked again when it is due.
    Pausing,
}

#[derive(Debug)]
struct Entry {
    origin: Origin,
    lane: LogId,
    key: PartitionKey,
    question: Option<Question>,
    /// Whether the request may have changed something once it has left.
    changes: bool,
    state: State,
    /// When it is looked at next.
    due: Mono,
    /// When it is given up.
    end: Mono,
}

/// Where a request can be answered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// By this node.
    Here,
    /// By this other node, whose link is up.
    Peer(ReplicaId),
    /// Nobody knows, or the way there is broken.
    Nowhere,
}

/// What follows for the caller.
#[derive(Debug)]
pub enum Action {
    /// Send the request to this node under this number.
    Send(ReplicaId, Ticket, LaneRequest),
    /// Submit the request to the lane of this node.
    Submit(LaneRequest),
    /// Tell the origin.
    Refuse(Origin, Refusal),
}

/// See the module.
#[derive(Debug)]
pub struct Forwarding {
    next: u64,
    entries: BTreeMap<Ticket, Entry>,
    by_due: BTreeSet<(Mono, Ticket)>,
    by_lane: BTreeMap<LogId, BTreeSet<Ticket>>,
    bytes: usize,
    park_age_max: Duration,
    counters: ForwardingCounters,
}

/// The first number of a life of a node: answers to an earlier life find nobody. Lives have 24
/// bits, spread so that those of a directory that was formatted anew do not repeat the old ones; a
/// life has a trillion numbers.
#[must_use]
pub const fn first_ticket(life: u64) -> u64 {
    (life.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) << 40
}

const fn changes(kind: &LaneRequestKind) -> bool {
    matches!(
        kind,
        LaneRequestKind::Send { .. }
            | LaneRequestKind::StoreOffset { .. }
            | LaneRequestKind::DeleteOffset { .. }
    )
}

fn batch_bytes(kind: &LaneRequestKind) -> usize {
    if let LaneRequestKind::Send { batch, .. } = kind { batch.len() } else { 0 }
}

impl Forwarding {
    /// Nothing waits. Requests without a leader wait at most `park_age_max`.
    #[must_use]
    pub fn new(generation: u64, park_age_max: Duration) -> Self {
        Self {
            next: first_ticket(generation),
            entries: BTreeMap::new(),
            by_due: BTreeSet::new(),
            by_lane: BTreeMap::new(),
            bytes: 0,
            park_age_max,
            counters: ForwardingCounters::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> &ForwardingCounters {
        &self.counters
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When something is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Lanes that requests wait for.
    #[must_use]
    pub fn lanes(&self) -> Vec<LogId> {
        self.by_lane.keys().copied().collect()
    }

    /// The lane of a request that waits.
    #[must_use]
    pub fn lane_of(&self, ticket: Ticket) -> Option<LogId> {
        self.entries.get(&ticket).map(|entry| entry.lane)
    }

    /// A number for something else that is asked of another node.
    pub fn next_ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    /// Takes a request that is not answered here now.
    pub fn take(
        &mut self,
        now: Mono,
        route: Route,
        request: LaneRequest,
        actions: &mut Vec<Action>,
    ) {
        assert!(route != Route::Here, "what is answered here is not forwarded");
        assert!(request.origin.peer.is_none(), "a forwarded request is not forwarded again");
        let LaneRequest { origin, key, lane, kind } = request;
        let bytes = batch_bytes(&kind);
        if self.entries.len() >= FORWARDED_REQUESTS_MAX
            || (route == Route::Nowhere && self.bytes + bytes > PARKED_BYTES_PER_SHARD_MAX)
        {
            self.counters.overflows += 1;
            return actions.push(Action::Refuse(origin, Refusal::Busy));
        }
        let question = Question::of(&kind);
        let end = now.plus(match question {
            Some(_) => Duration::from_secs(FORWARDED_QUESTION_SECONDS_MAX),
            None => self.park_age_max,
        });
        let ticket = self.next_ticket();
        let (changes, state) = (changes(&kind), State::Parked(kind));
        self.insert(ticket, Entry { origin, lane, key, question, changes, state, due: end, end });
        self.counters.parked += u64::from(route == Route::Nowhere);
        self.dispatch(now, ticket, route, actions);
    }

    /// Sends or submits an entry, if there is a way.
    fn dispatch(&mut self, now: Mono, ticket: Ticket, route: Route, actions: &mut Vec<Action>) {
        if route == Route::Nowhere {
            return;
        }
        let Some(mut entry) = self.remove(ticket) else { return };
        let kind = match (core::mem::replace(&mut entry.state, State::Pausing), entry.question) {
            (State::Parked(kind), _) => kind,
            (_, Some(question)) => question.kind(),
            (_, None) => panic!("a request that has left is not sent again"),
        };
        let (lane, key) = (entry.lane, entry.key);
        let Route::Peer(peer) = route else {
            return actions.push(Action::Submit(LaneRequest {
                origin: entry.origin,
                key,
                lane,
                kind,
            }));
        };
        let patience = Duration::from_secs(FORWARDED_SECONDS_MAX);
        if entry.question.is_some() {
            entry.due = now.plus(patience).min(entry.end);
        } else {
            entry.end = now.plus(patience);
            entry.due = entry.end;
        }
        entry.state = State::Sent(peer);
        self.counters.sent += 1;
        // Whoever answers this knows the entry by its number alone.
        actions.push(Action::Send(
            peer,
            ticket,
            LaneRequest { origin: entry.origin, key, lane, kind },
        ));
        self.insert(ticket, entry);
    }

    fn insert(&mut self, ticket: Ticket, entry: Entry) {
        if let State::Parked(kind) = &entry.state {
            self.bytes += batch_bytes(kind);
        }
        self.by_due.insert((entry.due, ticket));
        self.by_lane.entry(entry.lane).or_default().insert(ticket);
        let before = self.entries.insert(ticket, entry);
        assert!(before.is_none(), "numbers are not reused");
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Entry> {
        let entry = self.entries.remove(&ticket)?;
        if let State::Parked(kind) = &entry.state {
            self.bytes -= batch_bytes(kind);
        }
        let timed = self.by_due.remove(&(entry.due, ticket));
        assert!(timed, "every entry has a time");
        if let Some(tickets) = self.by_lane.get_mut(&entry.lane) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.by_lane.remove(&entry.lane);
            }
        }
        Some(entry)
    }

    /// Another node has answered. The origin, unless nobody waits or the question is asked again.
    pub fn answered(
        &mut self,
        now: Mono,
        from: ReplicaId,
        ticket: Ticket,
        retry: bool,
    ) -> Option<Origin> {
        let Some(mut entry) = self.remove(ticket) else {
            self.counters.late += 1;
            return None;
        };
        if retry && entry.question.is_some() {
            if matches!(entry.state, State::Sent(peer) if peer == from) {
                entry.state = State::Pausing;
                entry.due = now.plus(ASK_AGAIN_AFTER).min(entry.end);
            }
            self.insert(ticket, entry);
            return None;
        }
        Some(entry.origin)
    }

    /// The way to the leader of `lane` has changed.
    pub fn route_changed(
        &mut self,
        now: Mono,
        lane: LogId,
        route: Route,
        actions: &mut Vec<Action>,
    ) {
        let tickets = self.by_lane.get(&lane).cloned().unwrap_or_default();
        for ticket in tickets {
            let Some(entry) = self.entries.get(&ticket) else { continue };
            match (&entry.state, route) {
                (_, Route::Nowhere) => {}
                (State::Sent(peer), Route::Peer(leader)) if *peer == leader => {}
                (State::Sent(_), _) if entry.question.is_none() => {
                    self.fate_unknown(ticket, actions);
                }
                _ => self.dispatch(now, ticket, route, actions),
            }
        }
    }

    /// The link with `peer` is down: what it was asked is unanswered for good.
    pub fn peer_down(&mut self, now: Mono, peer: ReplicaId, actions: &mut Vec<Action>) {
        let asked = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Sent(to) if to == peer));
        let asked: Vec<Ticket> = asked.map(|(ticket, _)| *ticket).collect();
        for ticket in asked {
            let Some(mut entry) = self.remove(ticket) else { continue };
            let question = entry.question.is_some();
            if question {
                entry.state = State::Pausing;
                entry.due = now.plus(ASK_AGAIN_AFTER).min(entry.end);
            }
            self.insert(ticket, entry);
            if !question {
                self.fate_unknown(ticket, actions);
            }
        }
    }

    /// What is due: given up, or asked again of whoever `route` names.
    pub fn tick(&mut self, now: Mono, route: impl Fn(LogId) -> Route, actions: &mut Vec<Action>) {
        while let Some((due, ticket)) = self.by_due.first().copied()
            && due <= now
        {
            let Some(mut entry) = self.remove(ticket) else { continue };
            if entry.end <= now {
                self.counters.expired += 1;
                let refusal = match entry.state {
                    State::Sent(_) if entry.changes => Refusal::Unknown,
                    _ => Refusal::NotServing,
                };
                actions.push(Action::Refuse(entry.origin, refusal));
                continue;
            }
            assert!(entry.question.is_some(), "only questions are looked at before their end");
            self.counters.asked_again += 1;
            entry.state = State::Pausing;
            entry.due = now.plus(ASK_AGAIN_AFTER).min(entry.end);
            let route = route(entry.lane);
            self.insert(ticket, entry);
            self.dispatch(now, ticket, route, actions);
        }
    }

    /// The node stops: what has not left is refused, what has left is given `patience`.
    pub fn stop(&mut self, now: Mono, patience: Duration, actions: &mut Vec<Action>) {
        let all: Vec<Ticket> = self.entries.keys().copied().collect();
        for ticket in all {
            let Some(mut entry) = self.remove(ticket) else { continue };
            if entry.changes && matches!(entry.state, State::Sent(_)) {
                entry.end = entry.end.min(now.plus(patience));
                entry.due = entry.end;
                self.insert(ticket, entry);
            } else {
                actions.push(Action::Refuse(entry.origin, Refusal::Stopping));
            }
        }
    }

    fn fate_unknown(&mut self, ticket: Ticket, actions: &mut Vec<Action>) {
        let Some(entry) = self.remove(ticket) else { return };
        self.counters.unknown += 1;
        let refusal = if entry.changes { Refusal::Unknown } else { Refusal::NotServing };
        actions.push(Action::Refuse(entry.origin, refusal));
    }
}

#[cfg(test)]
#[path = "forwarding_tests.rs"]
mod tests;
