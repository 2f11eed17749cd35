//! Counters of partitions, gathered from the shards that host their lanes.
//!
//! A read that needs counters joins the next round. One round is under way at a time: it asks every
//! shard once for all that its readers want. A reader never joins a round that was started before
//! it came, so a read after a confirmed send counts that send.
//!
//! Invariants: at most one round is under way; a round ends when every shard has answered.

use super::command::Waiting;
use super::request::Running;
use super::{Cx, Front};
use crate::event::{Effect, ShardMessage};
use crate::lane::api::{CountersReply, CountersRequest, Origin, PartitionCounters, Ticket};
use borzoi_types::{LogId, PartitionKey, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// Counters by partition.
pub(crate) type Counts = BTreeMap<PartitionKey, PartitionCounters>;

/// A reader and what it wants.
#[derive(Debug)]
struct Reader {
    running: Running,
    keys: Vec<(LogId, PartitionKey)>,
}

#[derive(Debug, Default)]
struct Round {
    readers: Vec<Reader>,
    outstanding: BTreeSet<Ticket>,
    counts: Counts,
}

/// Rounds of gathering.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    round: Option<Round>,
    next: Vec<Reader>,
}

impl Front {
    /// `running` is run again with the counters of `keys`.
    pub(super) fn want_counters(&mut self, keys: Vec<(LogId, PartitionKey)>, running: Running) {
        assert!(!keys.is_empty(), "nothing to gather");
        assert!(running.counts.is_none(), "a read gathers once");
        self.gather.next.push(Reader { running, keys });
    }

    /// Starts the next round, unless one is under way.
    pub(super) fn start_gathering(&mut self, cx: &mut Cx<'_>) {
        if self.gather.round.is_some() || self.gather.next.is_empty() {
            return;
        }
        self.counters.counter_rounds += 1;
        let readers = core::mem::take(&mut self.gather.next);
        let wanted: BTreeSet<(LogId, PartitionKey)> =
            readers.iter().flat_map(|reader| reader.keys.iter().copied()).collect();
        let mut by_shard: BTreeMap<ShardId, Vec<(LogId, PartitionKey)>> = BTreeMap::new();
        for (lane, key) in wanted {
            by_shard.entry(cx.behind.shard_of(lane)).or_default().push((lane, key));
        }
        let mut round = Round { readers, ..Round::default() };
        let mut requests = Vec::with_capacity(by_shard.len());
        for (shard, keys) in by_shard {
            let ticket = self.next_ticket();
            self.waiting.insert(ticket, Waiting::Counters);
            round.outstanding.insert(ticket);
            let origin = Origin::here(self.options.shard, ticket);
            requests.push((shard, CountersRequest { origin, keys }));
        }
        self.gather.round = Some(round);
        for (shard, request) in requests {
            if shard == self.options.shard {
                cx.behind.counters(cx.now, shard, &request, cx.effects);
            } else {
                let message = ShardMessage::Counters(request);
                cx.effects.push(Effect::ToShard { to: shard, message });
            }
        }
    }

    pub(super) fn counters_arrived(&mut self, reply: CountersReply, cx: &mut Cx<'_>) {
        self.waiting.remove(&reply.ticket);
        let Some(round) = self.gather.round.as_mut() else { return };
        if !round.outstanding.remove(&reply.ticket) {
            return;
        }
        round.counts.extend(reply.counters);
        if !round.outstanding.is_empty() {
            return;
        }
        let Some(Round { readers, counts, .. }) = self.gather.round.take() else { return };
        for Reader { mut running, keys } in readers {
            let wanted = keys.iter().filter_map(|(_, key)| counts.get_key_value(key));
            running.counts = Some(wanted.map(|(key, counters)| (*key, *counters)).collect());
            self.resume(running, cx);
        }
        self.start_gathering(cx);
    }
}
