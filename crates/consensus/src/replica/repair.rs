//! The one repair engine, for every status: asks peers for what the log lacks, and answers them.
//!
//! What may be lacking: that the primary has a longer log (ask for start-view), headers below the
//! chain (asked downwards by checksum, so any peer in any status may answer), bodies (asked by
//! identity, in any order), and, when peers have released what is lacking, a state transfer.
//!
//! It opens whenever the replica learns that it is behind, asks one peer at a time and moves to
//! the next when an answer is overdue. Everything in flight is bounded, and an answer that was not
//! asked for is used only if it fits by checksum.

use super::{Replica, Status};
use crate::event::Effect;
use crate::header::{Anchor, Prepare, PrepareHeader};
use crate::message::{HEADERS_PER_ANSWER_MAX, Message, PREPARES_PER_REQUEST_MAX};
use crate::suffix::Evidence;
use borzoi_types::{Duration, Mono, Op, ReplicaId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prepares asked for and not yet received: half a pipeline, so that repair never crowds out the
/// prepares of normal operation.
const REQUESTED_OPS_MAX: usize = PREPARES_PER_REQUEST_MAX / 2;
/// Operations looked at for missing bodies beyond the first one.
const WINDOW_OPS: u64 = 256;
/// Bytes given in answer to one request; one prepare is always given.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Journal reads under way for peers and for this replica.
const FETCHES_MAX: usize = 128;

/// What the engine has asked for.
#[derive(Debug)]
pub(super) struct Repair {
    own: ReplicaId,
    replica_count: u8,
    peer: ReplicaId,
    /// Bodies may be missing: look for them.
    looking: bool,
    requested: BTreeMap<Op, Mono>,
    headers_again: Option<Mono>,
    start_view_again: Option<Mono>,
    transferring: bool,
    transfer_again: Option<Mono>,
    /// Journal reads under way, with a bit per replica that wants the result.
    fetching: BTreeMap<Anchor, u8>,
    due: Option<Mono>,
}

impl Repair {
    pub(super) const fn new(own: ReplicaId, replica_count: u8) -> Self {
        Self {
            own,
            replica_count,
            peer: own,
            looking: true,
            requested: BTreeMap::new(),
            headers_again: None,
            start_view_again: None,
            transferring: false,
            transfer_again: None,
            fetching: BTreeMap::new(),
            due: None,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.due
    }

    /// Asks `peer` first from now on.
    pub(super) fn prefer(&mut self, peer: ReplicaId) {
        assert!(peer.get() < self.replica_count, "a member of the group");
        self.peer = peer;
    }

    /// The log has changed: whatever was asked for before, look again at once.
    pub(super) fn look(&mut self, now: Mono) {
        self.looking = true;
        self.requested.clear();
        self.headers_again = None;
        self.due = Some(now);
    }

    fn rotate(&mut self) {
        let next = (self.peer.get() + 1) % self.replica_count;
        self.peer = ReplicaId(next);
        if self.peer == self.own {
            self.peer = ReplicaId((next + 1) % self.replica_count);
        }
        assert!(self.replica_count == 1 || self.peer != self.own, "a peer is another replica");
    }

    fn target(&mut self) -> ReplicaId {
        assert!(self.replica_count > 1, "a solo replica has no peer");
        if self.peer == self.own {
            self.rotate();
        }
        assert!(self.peer.get() < self.replica_count && self.peer != self.own, "a peer");
        self.peer
    }

    /// Everything in flight is bounded.
    pub(super) fn check(&self) {
        assert!(self.requested.len() <= REQUESTED_OPS_MAX, "requests are bounded");
        assert!(self.fetching.len() <= FETCHES_MAX + 1, "reads are bounded");
        assert!(self.peer.get() < self.replica_count, "a member of the group");
        assert!(!(self.transferring && self.transfer_again.is_some()), "one transfer at a time");
        let members = 1u16 << self.replica_count;
        let wanted = self.fetching.values().all(|bits| *bits != 0 && u16::from(*bits) < members);
        assert!(wanted, "each read is wanted by members of the group");
    }

    fn wake_at(&mut self, at: Mono) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        assert!(self.due.is_some_and(|due| due <= at), "no later than asked");
    }
}

impl Replica {
    /// Whether the primary is known to have more than this log, or must be asked.
    fn is_behind(&self) -> bool {
        let head = self.log.head_op();
        let lacks = self.known_head > head || self.commit_max > head || !self.pending.is_empty();
        let unlearned = self.must_learn && self.learn_goal.is_none();
        self.is_backup() && (lacks || unlearned || self.suspecting)
    }

    /// Sends the requests that are due.
    pub(super) fn drive_repair(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.repair.due = None;
        self.fetch_for_apply(effects);
        if self.is_solo() {
            return;
        }
        if self.is_behind() {
            self.request_start_view(now, effects);
        }
        if !self.log.is_connected() {
            self.request_headers(now, effects);
        }
        if self.repair.looking {
            self.request_prepares(now, effects);
        }
        self.repair.check();
        if let Some(at) = self.repair.transfer_again {
            self.repair.wake_at(at);
            self.repair.transfer_again = Some(at).filter(|at| *at > now);
        }
    }

    fn patience(&self) -> Duration {
        self.options.timeouts.repair_retry
    }

    fn request_start_view(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !self.is_durable() {
            return; // Durability drives this again.
        }
        let again = self.repair.start_view_again;
        if again.is_none_or(|at| at <= now) {
            // The primary first, then whoever is next: a half-connected backup follows its peers.
            let primary = self.view_primary();
            let to = if again.is_none() || self.random.below(2) == 0 {
                primary
            } else {
                self.repair.rotate();
                self.repair.target()
            };
            assert!(to != self.options.replica && !self.is_solo(), "one asks a peer");
            let message = Message::RequestStartView { view: self.view, nonce: self.nonce };
            self.send(to, message, effects);
            let pause =
                if self.suspecting { self.options.timeouts.heartbeat } else { self.patience() };
            self.repair.start_view_again = Some(now.plus(pause));
        }
        if let Some(at) = self.repair.start_view_again {
            self.repair.wake_at(at.max(now));
        }
    }

    fn request_headers(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let Some(top) = self.log.wanted_header() else { return };
        if self.repair.headers_again.is_none_or(|at| at <= now) {
            if self.repair.headers_again.is_some() {
                self.repair.rotate();
            }
            let low = self.log.applied().next();
            assert!(low <= top.op, "a gap lies above what is applied");
            let to = self.repair.target();
            self.send(to, Message::RequestHeaders { top, low }, effects);
            self.repair.headers_again = Some(now.plus(self.patience()));
        }
        self.repair.wake_at(self.repair.headers_again.unwrap_or(now));
    }

    /// First operation whose body may be missing.
    fn first_unsettled(&self) -> Op {
        if self.log.is_connected() {
            self.log.held_to().next()
        } else {
            self.log.chained_from().max(self.log.applied().next())
        }
    }

    fn request_prepares(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let first = self.first_unsettled();
        let last = self.log.head_op();
        assert!(first > self.log.base().op, "the checkpoint holds the rest");
        let window = Op(last.get().min(first.get().saturating_add(WINDOW_OPS)));
        let retry = self.patience();
        let mut wanted = Vec::new();
        let mut missing = false;
        let mut overdue = false;
        self.repair.requested.retain(|op, _| *op >= first && *op <= window);
        for op in first.get()..=window.get() {
            let op = Op(op);
            let Some(header) = self.log.slot(op).filter(|s| s.lacks_body()).and_then(|s| s.header)
            else {
                self.repair.requested.remove(&op);
                continue;
            };
            missing = true;
            let asked = self.repair.requested.get(&op).copied();
            let late = asked.is_some_and(|at| now.since(at) >= retry);
            overdue |= late;
            let room = self.repair.requested.len() < REQUESTED_OPS_MAX;
            if late || (asked.is_none() && room) {
                self.repair.requested.insert(op, now);
                wanted.push(header.anchor());
            }
        }
        self.repair.looking = missing || window < last;
        if overdue {
            self.repair.rotate();
        }
        if !wanted.is_empty() {
            assert!(wanted.len() <= REQUESTED_OPS_MAX, "what is in flight is bounded");
            self.counters.prepares_requested += wanted.len() as u64;
            let to = self.repair.target();
            self.send(to, Message::RequestPrepares { wanted }, effects);
        }
        if missing {
            let oldest = self.repair.requested.values().min().copied().unwrap_or(now);
            self.repair.wake_at(oldest.plus(retry));
        }
    }

    /// Reads back what is to be applied next and is in the journal only.
    fn fetch_for_apply(&mut self, effects: &mut Vec<Effect>) {
        let next = self.log.applied().next();
        if next > self.commit_max || !self.log.is_connected() {
            return;
        }
        let Some(slot) = self.log.slot(next) else { return };
        if slot.prepare.is_none() && slot.evidence == Evidence::Held {
            let anchor = slot.header.expect("chained slots have headers").anchor();
            assert_eq!(anchor.op, next, "a header lies at its op");
            assert!(next <= self.log.held_to(), "what is read back is held");
            self.fetch(anchor, self.options.replica, effects);
        }
    }

    fn fetch(&mut self, anchor: Anchor, wanted_by: ReplicaId, effects: &mut Vec<Effect>) {
        let bit = 1u8 << wanted_by.get();
        if let Some(bits) = self.repair.fetching.get_mut(&anchor) {
            *bits |= bit;
        } else if self.repair.fetching.len() < FETCHES_MAX || wanted_by == self.options.replica {
            self.repair.fetching.insert(anchor, bit);
            effects.push(Effect::Fetch { op: anchor.op, checksum: anchor.checksum });
        }
        assert!(self.repair.fetching.len() <= FETCHES_MAX + 1, "reads under way are bounded");
    }

    pub(super) fn on_fetched(
        &mut self,
        anchor: Anchor,
        prepare: Option<Arc<Prepare>>,
        effects: &mut Vec<Effect>,
    ) {
        let bits = self.repair.fetching.remove(&anchor).unwrap_or(0);
        let Some(prepare) = prepare.filter(|prepare| prepare.header.anchor() == anchor) else {
            self.counters.fetches_failed += 1;
            self.log.lose(anchor);
            self.repair.looking = true;
            return;
        };
        assert_eq!(prepare.header.op, anchor.op, "as asked");
        for peer in self.others().filter(|peer| bits & (1 << peer.get()) != 0) {
            self.counters.prepares_served += 1;
            let prepare = Arc::clone(&prepare);
            self.send(peer, Message::RepairPrepare { prepare }, effects);
        }
        if bits & (1 << self.options.replica.get()) != 0 {
            let append = self.log.fill(&prepare);
            assert!(!append || self.log.find(anchor).is_some(), "appended where it belongs");
            if append {
                effects.push(Effect::Append(prepare));
            }
        }
    }

    pub(super) fn on_request_headers(
        &self,
        from: ReplicaId,
        top: Anchor,
        low: Op,
        effects: &mut Vec<Effect>,
    ) {
        let base = self.log.base().op;
        if top.op <= base {
            self.send(from, Message::Released { through: base }, effects);
            return;
        }
        let mut headers: Vec<PrepareHeader> = Vec::new();
        let mut wanted = top;
        while wanted.op >= low && headers.len() < HEADERS_PER_ANSWER_MAX {
            let Some(header) = self.log.find(wanted).and_then(|slot| slot.header) else { break };
            assert_eq!(header.anchor(), wanted, "found by identity");
            headers.push(header);
            wanted = Anchor { op: Op(wanted.op.get() - 1), checksum: header.parent };
        }
        if !headers.is_empty() {
            headers.reverse();
            assert!(headers.len() <= HEADERS_PER_ANSWER_MAX, "answers are bounded");
            assert_eq!(headers.last().map(PrepareHeader::anchor), Some(top), "as asked");
            self.send(from, Message::Headers { headers }, effects);
        }
    }

    pub(super) fn on_headers(
        &mut self,
        from: ReplicaId,
        headers: &[PrepareHeader],
        effects: &mut Vec<Effect>,
    ) {
        if headers.iter().any(|header| self.is_foreign(header)) {
            self.counters.rejected += 1;
            return;
        }
        let before = self.log.chained_from();
        match self.log.insert_headers(headers) {
            Ok(true) => {
                self.counters.headers_repaired += 1;
                self.repair.looking = true;
                self.repair.headers_again = None;
                self.drain_pending(effects);
            }
            Ok(false) => {}
            Err(_) => self.on_diverged(from, effects),
        }
        assert!(self.log.chained_from() <= before || self.diverged, "the chain only grows");
    }

    pub(super) fn on_request_prepares(
        &mut self,
        from: ReplicaId,
        wanted: &[Anchor],
        effects: &mut Vec<Effect>,
    ) {
        let base = self.log.base().op;
        if wanted.iter().any(|anchor| anchor.op <= base) {
            self.send(from, Message::Released { through: base }, effects);
        }
        let mut bytes = 0;
        for anchor in wanted {
            let Some(slot) = self.log.find(*anchor) else {
                if let Some(orphan) = self.log.orphan(*anchor) {
                    let prepare = Arc::clone(orphan);
                    self.send(from, Message::RepairPrepare { prepare }, effects);
                }
                continue;
            };
            let header = slot.header.expect("found by its header");
            if bytes > 0 && bytes + header.body_len as usize > ANSWER_BYTES_MAX {
                break;
            }
            assert_eq!(header.anchor(), *anchor, "found by identity");
            bytes += header.body_len as usize + 1;
            if let Some(prepare) = slot.prepare.clone() {
                self.counters.prepares_served += 1;
                self.send(from, Message::RepairPrepare { prepare }, effects);
            } else if slot.evidence == Evidence::Held {
                self.fetch(*anchor, from, effects);
            }
        }
    }

    pub(super) fn on_repair_prepare(&mut self, prepare: &Arc<Prepare>, effects: &mut Vec<Effect>) {
        if self.is_foreign(&prepare.header) {
            self.counters.rejected += 1;
            return;
        }
        let op = prepare.header.op;
        let wanted = self.log.find(prepare.header.anchor()).is_some_and(|slot| slot.lacks_body());
        if wanted && self.log.fill(prepare) {
            assert!(op > self.log.base().op && op <= self.log.head_op(), "it lies in the log");
            self.counters.prepares_repaired += 1;
            self.repair.requested.remove(&op);
            self.merge_due = true;
            effects.push(Effect::Append(Arc::clone(prepare)));
        }
    }

    /// A peer's checkpoint covers what this replica lacks.
    pub(super) fn on_released(&mut self, from: ReplicaId, through: Op, effects: &mut Vec<Effect>) {
        let needed = match self.log.wanted_header() {
            Some(top) => top.op,
            None => self.first_unsettled(),
        };
        if through >= needed && needed <= self.log.head_op() && through > self.log.applied() {
            self.ask_for_transfer(from, through, effects);
        }
    }

    pub(super) fn ask_for_transfer(
        &mut self,
        from: ReplicaId,
        at_least: Op,
        effects: &mut Vec<Effect>,
    ) {
        if self.repair.transferring || self.repair.transfer_again.is_some() {
            return;
        }
        assert_ne!(from, self.options.replica, "state comes from a peer");
        assert!(!self.is_solo(), "a solo replica has no peer");
        assert!(at_least >= self.log.applied(), "a transfer goes forward");
        self.repair.transferring = true;
        self.counters.state_transfers += 1;
        effects.push(Effect::StateTransfer { from, at_least, diverged: self.diverged });
    }

    pub(super) fn on_transferred(&mut self, checkpoint: Anchor, effects: &mut Vec<Effect>) {
        self.repair.transferring = false;
        let forced = self.diverged;
        if !self.log.transfer(checkpoint, forced) {
            return;
        }
        self.commit_max = if forced { checkpoint.op } else { self.commit_max.max(checkpoint.op) };
        self.diverged = false;
        self.repair.looking = true;
        self.repair.requested.clear();
        self.repair.headers_again = None;
        self.merge_due = true;
        self.drain_pending(effects);
        assert!(self.log.applied() >= checkpoint.op, "the checkpoint is applied state");
        assert!(self.log.held_to() >= checkpoint.op, "and as durable as the log");
        assert!(self.commit_max >= checkpoint.op, "and committed");
        if forced {
            self.persist(effects);
        }
    }

    pub(super) fn on_transfer_failed(&mut self, now: Mono) {
        let pause = self.options.timeouts.view_change;
        self.repair.transferring = false;
        self.repair.transfer_again = Some(now.plus(pause));
        assert!(self.status == Status::Normal || self.log_view <= self.view);
    }
}
