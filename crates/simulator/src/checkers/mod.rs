//! What must hold, one checker a file. Each counts how often it looked, because a checker that
//! never looks proves nothing.
//!
//! The checkers of protocol and health watch the run through [`Checks`]: after every batch of a
//! shard, at every start and end of a process, at every disk request that ends. The checkers of
//! what clients were told read the history of a finished run.

pub mod at_rest;
pub mod client;
pub mod client_answers;
pub mod client_committed;
pub mod client_drain;
pub mod client_duplicates;
pub mod client_final_reads;
pub mod client_lost;
pub mod client_offsets;
pub mod client_open;
pub mod client_order;
pub mod client_owners;
pub mod client_phantom;
pub mod client_polls;
pub mod client_reads;
pub mod client_retention;
pub mod commit_forward;
pub mod committed_once;
pub mod durable_first;
pub mod hash_chain;
pub mod journal_index;
pub mod new_primary;
pub mod no_hole;
pub mod one_primary;
pub mod order_of_marks;
pub mod same_state;
pub mod segments_equal;
pub mod truncation;
pub mod view_forward;

use crate::coverage::Coverage;
use crate::facts::Facts;
use crate::history::History;
use crate::world::node::{Node, Process};
use crate::world::queue::Place;
use borzoi_consensus::{Message, Quorums, Replica};
use borzoi_shard::peer::{PeerHeader, PeerMessage, Recipient};
use borzoi_shard::{Lanes, Shard};
use borzoi_storage::disk::{DiskQueue, DiskRequest};
use borzoi_types::limits::SHARDS_MAX;
use borzoi_types::{Durability, LogId, Mono, Op, ReplicaId};
use bytes::Bytes;
use core::fmt::Write as _;
use journal_index::JournalIndex;
use std::collections::BTreeMap;

/// A checker of what clients were told; runs over the history of a finished run.
pub trait HistoryChecker {
    /// Its number in the list of checkers.
    fn number(&self) -> u8;

    /// Its name: what must hold, as a short phrase.
    fn name(&self) -> &'static str;

    /// Looks at the whole history.
    ///
    /// # Errors
    /// What was broken, with the calls concerned, as a sentence.
    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String>;

    /// How many things it has compared.
    fn looked(&self) -> u64;
}

/// Number and name of every checker that is not a [`HistoryChecker`].
pub const OTHERS: &[(u8, &str)] = &[
    (1, "one primary per view"),
    (2, "logs agree by operation and checksum"),
    (3, "a new primary has every committed operation"),
    (4, "the same operation makes the same state"),
    (5, "committed means that a quorum holds it"),
    (6, "committed never changes"),
    (7, "released, checkpoint, applied, committed and head are in this order"),
    (8, "view and log view never go back, over restarts"),
    (9, "the commit point never goes back, over restarts"),
    (10, "segments are identical over replicas"),
    (11, "the hash chain is whole"),
    (12, "no service from a hole"),
    (13, "what a quorum has acknowledged is never truncated"),
    (14, "durable before acknowledged"),
    (29, "the cluster converges in time"),
    (30, "a final write and read succeed"),
    (31, "no panic, no failed assertion"),
    (32, "queues are within their limits, and empty at rest"),
    (33, "counters agree with what was injected"),
    (34, "the same seed gives the same trace"),
    (35, "every fault kind, rare branch and operation occurred in the batch"),
];

/// One replicated log as a checker sees it after a batch.
#[derive(Clone, Copy)]
pub struct LogLook<'a> {
    /// Which log.
    pub log: LogId,
    /// On which node.
    pub node: usize,
    /// Its replica.
    pub replica: &'a Replica,
    /// The last operation in its state.
    pub applied: Op,
    /// Its newest durable checkpoint.
    pub checkpoint: Option<Op>,
}

/// The logs of a shard, metadata first.
pub fn logs(node: usize, shard: &Shard) -> impl Iterator<Item = LogLook<'_>> {
    let back = shard.back();
    let checkpoint = |log| back.checkpointer().newest(log);
    let metadata = back.metadata_host().map(move |host| LogLook {
        log: host.log(),
        node,
        replica: host.replica(),
        applied: shard.front().metadata().applied(),
        checkpoint: checkpoint(host.log()),
    });
    let lanes = back.lanes().map(move |lane| LogLook {
        log: lane.log(),
        node,
        replica: lane.host().replica(),
        applied: lane.state().applied(),
        checkpoint: checkpoint(lane.log()),
    });
    metadata.into_iter().chain(lanes)
}

/// Whether a replica of this shard has to learn before it counts.
#[must_use]
pub fn must_learn(shard: &Shard) -> bool {
    logs(0, shard).any(|look| look.replica.must_learn())
}

/// One line per log of a shard.
pub fn describe_logs(shard: &Shard, out: &mut String) {
    let journal = &shard.back().shared().journal;
    let _ = writeln!(out, "    journal {:?} {:?}", journal.pressure(), journal.usage());
    let _ = writeln!(out, "    no space: {:?}", shard.back().shared().no_space);
    for look in logs(0, shard) {
        let r = look.replica;
        let _ = writeln!(
            out,
            "    log {}: {:?} view {} log_view {} commit {}/{} applied {} held {} head {} \
             released {} checkpoint {:?} learn {}",
            look.log,
            r.role(),
            r.view(),
            r.log_view(),
            r.commit(),
            r.commit_known(),
            look.applied,
            r.held(),
            r.head(),
            r.released(),
            look.checkpoint,
            r.must_learn(),
        );
    }
}

/// The checkers that watch a run.
pub struct Checks {
    lanes: Lanes,
    quorum: usize,
    index: Vec<JournalIndex>,
    /// Per node and log, the commit point that was looked at last in this life.
    seen: BTreeMap<(usize, LogId), Op>,
    /// Nodes whose unsynced writes were lost: lanes of level `replicated` may restart shorter.
    pub lost: Vec<bool>,
    /// See [`Self::loosen`].
    loosened: bool,
    one_primary: one_primary::OnePrimary,
    committed: committed_once::CommittedOnce,
    new_primary: new_primary::NewPrimary,
    same_state: same_state::SameState,
    durable: durable_first::DurableFirst,
    order: order_of_marks::OrderOfMarks,
    view: view_forward::ViewForward,
    commit: commit_forward::CommitForward,
    segments: segments_equal::SegmentsEqual,
    chain: hash_chain::HashChain,
    hole: no_hole::NoHole,
    truncation: truncation::Truncation,
    rest: at_rest::AtRest,
    /// How often the checkers that the run itself performs have looked, by number.
    pub run: BTreeMap<u8, u64>,
}

impl Checks {
    /// Checkers of a cluster that has not begun.
    #[must_use]
    pub fn new(nodes: usize, lanes: Lanes) -> Self {
        let replicas = u8::try_from(nodes).expect("clusters are small");
        Self {
            lanes,
            quorum: usize::from(Quorums::of(replicas).replication),
            index: (0..nodes).map(|_| JournalIndex::default()).collect(),
            seen: BTreeMap::new(),
            lost: vec![false; nodes],
            loosened: false,
            one_primary: Default::default(),
            committed: Default::default(),
            new_primary: Default::default(),
            same_state: Default::default(),
            durable: Default::default(),
            order: Default::default(),
            view: Default::default(),
            commit: Default::default(),
            segments: Default::default(),
            chain: Default::default(),
            hole: Default::default(),
            truncation: Default::default(),
            rest: Default::default(),
            run: BTreeMap::new(),
        }
    }

    /// A shard has asked for a disk request.
    pub fn submitted(&mut self, place: Place, queue: DiskQueue, request: &DiskRequest) {
        if queue == DiskQueue::JournalWrite {
            self.index[place.node].submitted(request);
        }
    }

    /// A disk request of a node has ended.
    pub fn disk_ended(&mut self, index: usize, node: &Node) {
        let marked = self.index[index].look(&node.disk);
        let Some(process) = &node.process else { return };
        if marked.is_empty() {
            return;
        }
        for core in &process.cores {
            for look in logs(index, &core.shard) {
                self.truncation.held(look, &marked, self.lanes);
            }
        }
    }

    /// A shard sends a frame to another node.
    pub fn sent(&mut self, index: usize, to: ReplicaId, frame: &Bytes, process: &Process) {
        let Some(core) = process.cores.first() else { return };
        let options = core.shard.back().options();
        let recipient = Recipient {
            cluster: options.cluster,
            replica: to,
            replica_count: options.replica_count,
            shards: SHARDS_MAX,
            lanes: options.lanes.count(),
        };
        let Ok((header, body)) = PeerHeader::check(frame, options.replica, &recipient) else {
            return;
        };
        match PeerMessage::decode(&header, body) {
            Ok(PeerMessage::Log { log, message }) => self.said(index, log, &message, process),
            Ok(PeerMessage::Heartbeat(heartbeat)) => {
                for (log, message) in &heartbeat.logs {
                    self.said(index, *log, message, process);
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, index: usize, log: LogId, message: &Message, process: &Process) {
        let log_view = match message {
            Message::PrepareOk { view, held, .. } => {
                let shards = process.cores.iter().flat_map(|core| logs(index, &core.shard));
                let look = shards.into_iter().find(|look| look.log == log);
                let released = look.map_or(Op::ZERO, |look| look.replica.released());
                if held.op > released && held.op > Op::ZERO {
                    let level = self.lanes.durability(log);
                    let key = (log, held.op, held.checksum);
                    self.durable.acknowledged(key, level, &self.index[index]);
                }
                Some(*view)
            }
            Message::DoViewChange(change) => Some(change.log_view),
            Message::StartView(start) => Some(start.view),
            _ => None,
        };
        if let Some(view) = message.view() {
            self.view.told(index, log, view, log_view);
        }
    }

    /// The unsynced writes of a node are gone.
    pub fn unsynced_lost(&mut self, index: usize) {
        self.lost[index] = true;
        self.index[index].unsynced_lost();
    }

    /// What boot wrote to a node's journal.
    pub fn boot_wrote(&mut self, index: usize, request: &DiskRequest) {
        self.index[index].submitted(request);
    }

    /// A process has started.
    pub fn started(&mut self, index: usize, nodes: &[Node]) {
        self.index[index].look(&nodes[index].disk);
        self.seen.retain(|(node, _), _| *node != index);
        self.view.started(index, nodes.len() == 1);
        let Some(process) = &nodes[index].process else { return };
        for core in &process.cores {
            for look in logs(index, &core.shard) {
                let level = self.lanes.durability(look.log);
                let may_shrink = self.lost[index] && level == Durability::Replicated;
                let alone = nodes.len() == 1;
                if may_shrink || !alone {
                    self.commit.may_know_less(look);
                }
                let now = |op| look.replica.checksum_at(op);
                if may_shrink && alone {
                    self.truncation.forget(look.log);
                    if let Some(first) = self.committed.restarted(look.log, now) {
                        self.same_state.forget_from(look.log, first);
                    }
                }
            }
        }
        self.lost[index] = false;
        for shard in 0..process.cores.len() {
            self.look(index, shard, nodes);
        }
    }

    /// A shard has handled a batch and its effects are under way.
    pub fn after_batch(&mut self, _now: Mono, place: Place, nodes: &[Node]) {
        self.look(place.node, place.shard, nodes);
    }

    /// Disks of a replication quorum.
    #[must_use]
    pub const fn quorum(&self) -> usize {
        self.quorum
    }

    /// So many nodes of a cluster have lost unsynced writes that lanes of level `replicated` may
    /// begin anew from less than was committed.
    pub fn loosen(&mut self) {
        self.loosened |= self.index.len() > 1;
    }

    fn is_loose(&self, log: LogId) -> bool {
        self.loosened && self.lanes.durability(log) == Durability::Replicated
    }

    fn look(&mut self, index: usize, shard: usize, nodes: &[Node]) {
        let Some(process) = &nodes[index].process else { return };
        let core = &process.cores[shard];
        self.rest.limits(core);
        self.same_state.metadata(index, core);
        for look in logs(index, &core.shard) {
            self.one_primary.look(look);
            self.order.look(look);
            self.view.look(look);
            self.commit.look(look);
            self.hole.look(look);
            if !self.is_loose(look.log) {
                self.new_primary.look(look, &self.committed);
                self.commits(look);
            }
        }
        for lane in core.shard.back().lanes() {
            if !self.is_loose(lane.log()) {
                self.same_state.lane(lane);
            }
        }
    }

    /// Looks at every operation that has committed since the last look.
    fn commits(&mut self, look: LogLook<'_>) {
        let commit = look.replica.commit();
        let seen = self.seen.insert((look.node, look.log), commit);
        let Some(seen) = seen else {
            // What boot has brought back was committed before, or in its course.
            for op in look.replica.released().0 + 1..=commit.0 {
                if let Some(checksum) = look.replica.checksum_at(Op(op)) {
                    self.committed.commit(look.node, look.log, Op(op), checksum);
                }
            }
            return;
        };
        for op in seen.0 + 1..=commit.0 {
            let op = Op(op);
            let Some(checksum) = look.replica.checksum_at(op) else { continue };
            let fresh = self.committed.commit(look.node, look.log, op, checksum);
            if !fresh {
                continue;
            }
            let level = self.lanes.durability(look.log);
            self.durable.commit((look.log, op, checksum), level, self.quorum, &self.index);
            self.chain.commit((look.log, op, checksum), &self.committed, &self.index);
            self.truncation.commit(look.log, op, checksum, self.quorum);
        }
    }

    /// A process is about to end, or the run is: what its counters tell is gathered.
    pub fn ending(&mut self, _now: Mono, index: usize, process: &Process, out: &mut Coverage) {
        self.index[index].forget_unfinished();
        for core in &process.cores {
            gather(&core.shard, out);
        }
    }

    /// A node's disk was replaced by another one: what it had shown does not bind it any more.
    pub fn forget(&mut self, node: usize) {
        self.view.forget(node);
        self.commit.forget(node);
        self.index[node] = JournalIndex::default();
        self.seen.retain(|(of, _), _| *of != node);
        if self.index.len() == 1 {
            self.committed = Default::default();
            self.same_state = Default::default();
            self.truncation = Default::default();
        }
    }

    /// Nothing happens any more: every queue must be empty, every replica equal.
    pub fn at_rest(&mut self, nodes: &mut [Node]) {
        for node in nodes.iter() {
            for core in node.process.iter().flat_map(|process| &process.cores) {
                self.rest.at_rest(core);
            }
        }
        self.segments.compare(nodes);
    }

    /// How often each checker looked, by number.
    #[must_use]
    pub fn looked(&self) -> BTreeMap<u8, u64> {
        let mut counts: BTreeMap<u8, u64> = OTHERS.iter().map(|(number, _)| (*number, 0)).collect();
        let mine = [
            (1, self.one_primary.looked),
            (2, self.committed.compared),
            (3, self.new_primary.looked),
            (4, self.same_state.looked),
            (5, self.durable.looked),
            (6, self.committed.looked),
            (7, self.order.looked),
            (8, self.view.looked),
            (9, self.commit.looked),
            (10, self.segments.looked),
            (11, self.chain.looked),
            (12, self.hole.looked),
            (13, self.truncation.looked),
            (14, self.durable.looked + self.durable.acknowledgements),
            (32, self.rest.looked),
        ];
        counts.extend(mine);
        for (number, times) in &self.run {
            *counts.entry(*number).or_default() += times;
        }
        counts
    }
}

/// What a shard's own counters tell, as rare branches.
fn gather(shard: &Shard, out: &mut Coverage) {
    let back = shard.back();
    let usage = back.shared().journal.usage();
    out.branch_times("journal record carried forward", usage.records_carried);
    out.branch_times("journal spare refused", usage.spares_refused);
    out.branch_times("checkpoint abandoned", back.checkpointer().counters().abandoned);
    for look in logs(0, shard) {
        let counters = look.replica.counters();
        out.branch_times("view change", counters.view_changes);
        out.branch_times("primary stepped down", counters.step_downs);
        out.branch_times("prepare repaired", counters.prepares_repaired);
        out.branch_times("header repaired", counters.headers_repaired);
        out.branch_times("prepare out of order", counters.buffered);
        out.branch_times("state transfer", counters.state_transfers);
        out.branch_times("suffix discarded", counters.discarded);
    }
    for lane in back.lanes() {
        let counters = lane.counters();
        out.branch_times("send answered from the window", counters.duplicates);
        out.branch_times("request for a deleted key", counters.stale);
        out.branch_times("reservation", counters.reservations);
        for (_, partition) in lane.state().partitions() {
            let rolled = u64::from(partition.counters().segments).saturating_sub(1);
            out.branch_times("segment roll", rolled);
        }
    }
}
