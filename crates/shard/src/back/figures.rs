//! Figures of partitions for the front: from this node where it leads the lane, else from the
//! leader; this node's own copy where the leader does not answer in time.
//!
//! Figures are for people and dashboards: a copy is a moment old and better than nothing.
//!
//! Invariants: a gathering ends when every part has come or its time is up, and is answered once;
//! a part that comes later finds nobody.

use super::Back;
use super::forwarding::Route;
use crate::event::{Effect, ShardMessage};
use crate::lane::api::{CountersReply, CountersRequest, Origin, PartitionCounters, Ticket};
use crate::peer::{Forwarded, Waiter};
use borzoi_types::{Duration, LogId, Mono, Now, PartitionKey, ReplicaId, ShardId};
use std::collections::BTreeMap;

/// How long a leader may take to tell figures: a dashboard notices more than this.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Gathering {
    origin: Origin,
    keys: Vec<(LogId, PartitionKey)>,
    found: BTreeMap<PartitionKey, PartitionCounters>,
    parts: usize,
}

#[derive(Debug)]
struct Part {
    gathering: Ticket,
    peer: ReplicaId,
    lane: LogId,
    keys: Vec<PartitionKey>,
    due: Mono,
}

/// Questions for figures that other nodes have not answered yet.
#[derive(Debug, Default)]
pub struct Figures {
    gatherings: BTreeMap<Ticket, Gathering>,
    parts: BTreeMap<Ticket, Part>,
}

impl Figures {
    /// When the first part is given up: parts are asked in the order of their numbers.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.parts.first_key_value().map(|(_, part)| part.due)
    }

    /// Parts that match.
    fn parts_where(&self, matches: impl Fn(&Part) -> bool) -> Vec<Ticket> {
        let parts = self.parts.iter().filter(|(_, part)| matches(part));
        parts.map(|(ticket, _)| *ticket).collect()
    }
}

impl Back {
    /// Answers a request for counters of partitions that this shard hosts.
    pub fn counters(
        &mut self,
        now: Now,
        from: ShardId,
        request: &CountersRequest,
        effects: &mut Vec<Effect>,
    ) {
        assert_eq!(from, request.origin.shard, "askers speak for themselves");
        let mut found = BTreeMap::new();
        let mut elsewhere: BTreeMap<LogId, (ReplicaId, Vec<PartitionKey>)> = BTreeMap::new();
        for (lane, key) in &request.keys {
            if let Route::Peer(peer) = self.route(*lane) {
                elsewhere.entry(*lane).or_insert((peer, Vec::new())).1.push(*key);
            } else {
                found.insert(*key, self.own_figures(*lane, *key));
            }
        }
        let (origin, keys, parts) = (request.origin, request.keys.clone(), elsewhere.len());
        let gathering = Gathering { origin, keys, found, parts };
        if parts == 0 {
            self.answer_counters(&gathering);
        } else {
            let ticket = self.forwarding.next_ticket();
            self.figures.gatherings.insert(ticket, gathering);
            for (lane, (peer, keys)) in elsewhere {
                self.ask_figures(now, ticket, lane, peer, keys);
            }
        }
        self.shared.drain(effects);
    }

    fn ask_figures(
        &mut self,
        now: Now,
        gathering: Ticket,
        lane: LogId,
        peer: ReplicaId,
        keys: Vec<PartitionKey>,
    ) {
        let ticket = self.forwarding.next_ticket();
        let waiter = Waiter { shard: self.shared.options.shard, ticket };
        let question = Forwarded::AskFigures { waiter, lane, keys: keys.clone() };
        self.shared.send_forwarded(peer, question);
        let due = now.mono.plus(PATIENCE);
        self.figures.parts.insert(ticket, Part { gathering, peer, lane, keys, due });
    }

    fn own_figures(&self, lane: LogId, key: PartitionKey) -> PartitionCounters {
        let partition = self.lanes.get(&lane).and_then(|lane| lane.state().partition(key));
        partition.map(|partition| partition.counters()).unwrap_or_default()
    }

    /// Another node asks for figures of a lane hosted here.
    pub(super) fn figures_asked(
        &mut self,
        from: ReplicaId,
        waiter: Waiter,
        lane: LogId,
        keys: &[PartitionKey],
    ) {
        let leads = self.lanes.get(&lane).is_some_and(crate::lane::Lane::is_serving);
        let figures = leads.then(|| {
            let figures = keys.iter().map(|key| (*key, self.own_figures(lane, *key)));
            figures.collect()
        });
        self.shared.send_forwarded(from, Forwarded::Figures { waiter, figures });
    }

    /// Another node has told its figures, or that it does not lead the lane.
    pub(super) fn figures_told(
        &mut self,
        from: ReplicaId,
        ticket: Ticket,
        figures: Option<Vec<(PartitionKey, PartitionCounters)>>,
    ) {
        if self.figures.parts.get(&ticket).is_some_and(|part| part.peer == from) {
            self.end_part(ticket, figures);
        }
    }

    /// Gives up parts that `peer` will not answer, or whose time is up.
    pub(super) fn give_up_figures(&mut self, now: Option<Mono>, peer: Option<ReplicaId>) {
        let over = |part: &Part| {
            now.is_some_and(|now| part.due <= now) || peer.is_some_and(|peer| part.peer == peer)
        };
        for ticket in self.figures.parts_where(over) {
            self.end_part(ticket, None);
        }
    }

    fn end_part(
        &mut self,
        ticket: Ticket,
        figures: Option<Vec<(PartitionKey, PartitionCounters)>>,
    ) {
        let Some(part) = self.figures.parts.remove(&ticket) else { return };
        let figures = figures.unwrap_or_else(|| {
            part.keys.iter().map(|key| (*key, self.own_figures(part.lane, *key))).collect()
        });
        let Some(gathering) = self.figures.gatherings.get_mut(&part.gathering) else { return };
        gathering.found.extend(figures);
        assert!(gathering.parts > 0, "a part belongs to one gathering");
        gathering.parts -= 1;
        if gathering.parts == 0
            && let Some(gathering) = self.figures.gatherings.remove(&part.gathering)
        {
            self.answer_counters(&gathering);
        }
    }

    fn answer_counters(&mut self, gathering: &Gathering) {
        let figures = |key| gathering.found.get(key).copied().unwrap_or_default();
        let counters = gathering.keys.iter().map(|(_, key)| (*key, figures(key))).collect();
        let origin = gathering.origin;
        let reply = CountersReply { ticket: origin.ticket, counters };
        if origin.shard == self.shared.options.shard {
            self.shared.counters_reply(reply);
        } else {
            self.shared.send(origin.shard, ShardMessage::CountersReply(reply));
        }
    }
}
