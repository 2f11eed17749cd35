//! The log of one replica in memory: headers of everything above the checkpoint, bodies of what
//! is still moving.
//!
//! Invariants (checked by [`Log::check`]):
//! - `base <= applied <= head` and `base <= held_to <= head`;
//! - headers `chained_from..=head` are known and hash-chained, and the operation just below
//!   `chained_from` must have checksum `expected`;
//! - below `chained_from`, down to `applied`, slots are *candidates*: they belong to an older log
//!   and are believed only when the chain reaches them;
//! - nothing is applied and nothing is acknowledged across a gap in the chain.

use crate::header::{Anchor, Prepare, PrepareHeader};
use crate::settle::{Settled, SettledSlot};
use crate::suffix::{Evidence, LogSuffix, SUFFIX_OPS_MAX};
use borzoi_types::{Op, limits};
use std::collections::VecDeque;
use std::sync::Arc;

/// Applied prepares kept in memory for peers that are a little behind: one pipeline.
const CACHE_OPS_MAX: u64 = limits::PIPELINE_OPS_MAX as u64;
/// Bytes of applied prepares kept in memory per log. Everything else is read from the journal.
const CACHE_BYTES_MAX: usize = 1024 * 1024;

/// The replica has committed something that the log it is to adopt does not contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Diverged;

/// One position of the log.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) header: Option<PrepareHeader>,
    /// In memory; needed until applied and held.
    pub(crate) prepare: Option<Arc<Prepare>>,
    /// `Held` means: at the log's level in the journal.
    pub(crate) evidence: Evidence,
    /// An append is on its way to the journal.
    pub(crate) writing: bool,
}

impl Slot {
    const fn unknown() -> Self {
        Self { header: None, prepare: None, evidence: Evidence::Clean, writing: false }
    }

    const fn missing(header: PrepareHeader) -> Self {
        Self { header: Some(header), prepare: None, evidence: Evidence::Clean, writing: false }
    }

    fn is(&self, checksum: u128) -> bool {
        self.header.is_some_and(|header| header.checksum == checksum)
    }

    /// Neither in the journal nor on its way there.
    pub(crate) fn lacks_body(&self) -> bool {
        self.prepare.is_none() && self.evidence != Evidence::Held
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    base: Anchor,
    slots: VecDeque<Slot>,
    chained_from: Op,
    expected: u128,
    held_to: Op,
    applied: Op,
    cached_from: Op,
    cached_bytes: usize,
    /// Recovered prepares without a certain place; held by the journal.
    orphans: Vec<Arc<Prepare>>,
}

impl Log {
    /// The log that recovery settled on.
    pub(crate) fn from_settled(settled: &Settled) -> Self {
        let slots: VecDeque<Slot> = settled.slots.iter().map(slot_from_settled).collect();
        let mut log = Self {
            base: settled.base,
            slots,
            chained_from: settled.chained_from,
            expected: settled.base.checksum,
            held_to: settled.base.op,
            applied: settled.base.op,
            cached_from: settled.base.op.next(),
            cached_bytes: 0,
            orphans: settled.orphans.clone(),
        };
        if log.chained_from > log.base.op.next() {
            log.expected = log
                .slot(log.chained_from)
                .and_then(|slot| slot.header)
                .map_or(settled.view_state.suffix.head.checksum, |header| header.parent);
        }
        log.advance_held();
        log.check_chain();
        log.check();
        assert_eq!(log.head(), settled.view_state.suffix.head, "as the record says");
        log
    }

    pub(crate) const fn base(&self) -> Anchor {
        self.base
    }

    pub(crate) const fn applied(&self) -> Op {
        self.applied
    }

    pub(crate) const fn held_to(&self) -> Op {
        self.held_to
    }

    pub(crate) const fn chained_from(&self) -> Op {
        self.chained_from
    }

    /// The anchor just below the chained headers: what header repair asks for.
    pub(crate) fn wanted_header(&self) -> Option<Anchor> {
        if self.is_connected() {
            return None;
        }
        assert!(self.chained_from > self.applied.next(), "a gap lies above what is applied");
        Some(Anchor { op: Op(self.chained_from.get() - 1), checksum: self.expected })
    }

    /// Whether headers are complete from the base to the head.
    pub(crate) fn is_connected(&self) -> bool {
        self.chained_from == self.base.op.next()
    }

    pub(crate) fn head(&self) -> Anchor {
        let op = self.head_op();
        if op == self.base.op {
            return self.base;
        }
        let header = self.slots.back().and_then(|slot| slot.header);
        let checksum = match header {
            Some(header) if self.chained_from <= op => header.checksum,
            _ => {
                assert_eq!(self.chained_from, op.next(), "only an anchored head lacks its header");
                self.expected
            }
        };
        Anchor { op, checksum }
    }

    pub(crate) fn head_op(&self) -> Op {
        Op(self.base.op.get() + self.slots.len() as u64)
    }

    fn index(&self, op: Op) -> Option<usize> {
        let above = op.get().checked_sub(self.base.op.get() + 1)?;
        let index = usize::try_from(above).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    pub(crate) fn slot(&self, op: Op) -> Option<&Slot> {
        self.index(op).map(|index| &self.slots[index])
    }

    fn slot_mut(&mut self, op: Op) -> Option<&mut Slot> {
        self.index(op).map(|index| &mut self.slots[index])
    }

    /// Identity of `op` as far as it is certain: chained, applied or the base.
    pub(crate) fn checksum_at(&self, op: Op) -> Option<u128> {
        if op == self.base.op {
            return Some(self.base.checksum);
        }
        if op.get() == self.chained_from.get() - 1 {
            return Some(self.expected);
        }
        if op >= self.chained_from || op <= self.applied {
            return self.slot(op)?.header.map(|header| header.checksum);
        }
        None
    }

    /// The slot of exactly this operation, whether certain or candidate.
    pub(crate) fn find(&self, anchor: Anchor) -> Option<&Slot> {
        self.slot(anchor.op).filter(|slot| slot.is(anchor.checksum))
    }

    /// A recovered prepare that has no certain place here but may have one with a peer.
    pub(crate) fn orphan(&self, anchor: Anchor) -> Option<&Arc<Prepare>> {
        self.orphans.iter().find(|prepare| prepare.header.anchor() == anchor)
    }

    /// Everything above `commit` with evidence; `commit` may lie above the head.
    ///
    /// For peers (`to_disk` false) a body in memory counts as held, because it can be served. On
    /// disk only what the journal reported counts: whatever was still on its way at a crash was
    /// never acknowledged.
    pub(crate) fn suffix(&self, commit: Op, to_disk: bool) -> LogSuffix {
        let head = self.head();
        let low = commit.max(self.base.op).min(head.op).next();
        assert!(low >= self.chained_from, "the uncommitted suffix has no gap");
        assert!(head.op.get() + 1 - low.get() <= SUFFIX_OPS_MAX as u64, "suffixes are bounded");
        let mut headers = Vec::new();
        let mut evidence = Vec::new();
        for op in low.get()..=head.op.get() {
            let slot = self.slot(Op(op)).expect("between base and head");
            headers.push(slot.header.expect("chained slots have headers"));
            let served = !to_disk && slot.prepare.is_some();
            evidence.push(if served { Evidence::Held } else { slot.evidence });
        }
        assert_eq!(headers.len(), evidence.len(), "one evidence each");
        assert!(headers.last().is_none_or(|last| last.anchor() == head), "up to the head");
        LogSuffix { head, headers, evidence }
    }

    /// Appends an operation that directly follows the head.
    pub(crate) fn append(&mut self, prepare: Arc<Prepare>) {
        assert!(prepare.header.follows(self.head()), "appends follow the head");
        assert!(self.reaches(prepare.header.op), "logs are bounded");
        assert!(prepare.header.body_len as usize == prepare.body.len(), "a body has its length");
        self.slots.push_back(Slot {
            header: Some(prepare.header),
            prepare: Some(prepare),
            evidence: Evidence::Clean,
            writing: true,
        });
    }

    /// Stores the body of an operation whose header is known. Returns whether it is to be
    /// appended to the journal.
    pub(crate) fn fill(&mut self, prepare: &Arc<Prepare>) -> bool {
        let Some(slot) = self.slot_mut(prepare.header.op) else { return false };
        if !slot.is(prepare.header.checksum) || slot.prepare.is_some() {
            return false;
        }
        slot.prepare = Some(Arc::clone(prepare));
        let append = slot.evidence != Evidence::Held;
        assert!(!slot.writing, "what is being written is at hand already");
        slot.writing |= append;
        assert!(slot.header == Some(prepare.header), "a body has its own header");
        if prepare.header.op < self.cached_from {
            self.cached_from = prepare.header.op;
        }
        if prepare.header.op <= self.applied {
            self.cached_bytes += prepare.size();
        }
        assert!(self.cached_from <= prepare.header.op, "what is at hand is in the cache");
        append
    }

    /// The journal holds `anchor` at the log's level.
    pub(crate) fn hold(&mut self, anchor: Anchor) {
        if self.find(anchor).is_none() {
            return;
        }
        let before = self.held_to;
        let Some(slot) = self.slot_mut(anchor.op) else { return };
        assert!(slot.is(anchor.checksum), "held by identity");
        slot.evidence = Evidence::Held;
        slot.writing = false;
        self.advance_held();
        assert!(self.held_to >= before, "holding more never lowers the mark");
    }

    /// The journal cannot produce `anchor` although it held it: damage, never a nack.
    pub(crate) fn lose(&mut self, anchor: Anchor) {
        let Some(slot) = self.slot_mut(anchor.op).filter(|slot| slot.is(anchor.checksum)) else {
            return;
        };
        assert!(!slot.writing, "what is being written is not read back");
        assert!(slot.header.is_some_and(|header| header.op == anchor.op), "at its op");
        slot.evidence = Evidence::Faulty;
        if anchor.op <= self.held_to {
            self.held_to = Op(anchor.op.get() - 1);
        }
        assert!(self.held_to >= self.base.op, "the base is in the checkpoint");
    }

    fn advance_held(&mut self) {
        let limit = if self.is_connected() { self.head_op() } else { self.applied };
        assert!(limit <= self.head_op(), "nothing above the head is held");
        assert!(self.held_to >= self.base.op, "the base is in the checkpoint");
        while self.held_to < limit {
            let next = self.held_to.next();
            if self.slot(next).is_none_or(|slot| slot.evidence != Evidence::Held) {
                break;
            }
            assert!(next <= limit && next > self.base.op, "inside the chain");
            self.held_to = next;
        }
    }

    /// Whether a log that ends at `op` fits in memory above this base.
    pub(crate) fn reaches(&self, op: Op) -> bool {
        op.get().saturating_sub(self.base.op.get()) <= limits::LOG_OPS_RETAINED_MAX as u64
    }

    /// Makes this log end like `suffix`. Slots of the same identity are kept with all they have.
    ///
    /// Returns false, changing nothing, when the suffix ends below what is applied: it is old.
    pub(crate) fn adopt(&mut self, suffix: &LogSuffix) -> Result<bool, Diverged> {
        assert!(suffix.is_chained(), "decoding and merging guarantee the chain");
        if suffix.head.op < self.applied {
            return Ok(false);
        }
        if suffix.checksum_at(self.applied).is_some_and(|c| Some(c) != self.applied_checksum()) {
            return Err(Diverged);
        }
        let keep = suffix.head.op.get() - self.base.op.get();
        assert!(keep <= limits::LOG_OPS_RETAINED_MAX as u64, "checked by `reaches`");
        let keep = usize::try_from(keep).expect("logs fit in memory");
        while self.slots.len() > keep {
            self.drop_last();
        }
        while self.slots.len() < keep {
            self.slots.push_back(Slot::unknown());
        }
        self.held_to = self.held_to.min(suffix.head.op);
        let base = self.base.op;
        for header in suffix.headers.iter().filter(|header| header.op > base) {
            self.replace(*header);
        }
        let below = suffix.below();
        if below.op >= self.base.op {
            self.chained_from = below.op.next();
            self.expected = below.checksum;
        } else {
            self.chained_from = self.base.op.next();
            self.expected = self.base.checksum;
        }
        self.connect()?;
        if !self.is_connected() {
            self.held_to = self.held_to.min(self.applied);
        }
        self.advance_held();
        assert_eq!(self.head(), suffix.head, "the log ends as adopted");
        self.check_chain();
        self.check();
        Ok(true)
    }

    fn applied_checksum(&self) -> Option<u128> {
        if self.applied == self.base.op {
            return Some(self.base.checksum);
        }
        self.slot(self.applied)?.header.map(|header| header.checksum)
    }

    fn drop_last(&mut self) {
        let op = self.head_op();
        assert!(op > self.applied, "what is applied is never dropped");
        assert!(op > self.base.op, "the base is never dropped");
        self.slots.pop_back();
        assert_eq!(self.head_op().next(), op, "one slot per op");
        self.held_to = self.held_to.min(self.head_op());
        self.cached_from = self.cached_from.min(op);
    }

    fn replace(&mut self, header: PrepareHeader) {
        let applied = self.applied;
        let orphan = self.orphan(header.anchor()).cloned();
        let slot = self.slot_mut(header.op).expect("the suffix lies between base and head");
        if slot.is(header.checksum) {
            return;
        }
        assert!(header.op > applied, "what is applied is never replaced");
        assert!(slot.header.is_none_or(|before| before.op == header.op), "each at its op");
        let unreadable = slot.header.is_none() && slot.evidence == Evidence::Faulty;
        *slot = Slot::missing(header);
        if let Some(prepare) = orphan {
            slot.evidence = Evidence::Held;
            slot.prepare = Some(prepare);
        } else if unreadable {
            slot.evidence = Evidence::Faulty;
        }
        self.held_to = self.held_to.min(Op(header.op.get() - 1));
    }

    /// Takes headers below the chain, as far as they connect. Returns whether any did.
    pub(crate) fn insert_headers(&mut self, headers: &[PrepareHeader]) -> Result<bool, Diverged> {
        let mut inserted = false;
        for header in headers.iter().rev() {
            let Some(wanted) = self.wanted_header() else { break };
            if header.anchor() != wanted {
                continue;
            }
            self.replace(*header);
            assert!(header.op < self.chained_from, "the chain grows downwards");
            self.chained_from = header.op;
            self.expected = header.parent;
            inserted = true;
            self.connect()?;
        }
        self.advance_held();
        if inserted {
            self.check_chain();
        }
        Ok(inserted)
    }

    /// Extends the chain downwards over slots that fit, to the base if possible.
    fn connect(&mut self) -> Result<(), Diverged> {
        while self.chained_from > self.base.op.next() {
            let below = Op(self.chained_from.get() - 1);
            let slot = self.slot(below).expect("between base and head");
            let Some(header) = slot.header.filter(|header| header.checksum == self.expected) else {
                return if below <= self.applied { Err(Diverged) } else { Ok(()) };
            };
            assert_eq!(header.op, below, "a header lies at its op");
            self.chained_from = below;
            self.expected = header.parent;
            if below <= self.applied {
                // What is applied is chained down to the base already.
                self.chained_from = self.base.op.next();
                self.expected = self.base.checksum;
            }
        }
        if self.expected == self.base.checksum { Ok(()) } else { Err(Diverged) }
    }

    /// The next operation to apply, if it may be (`commit` covers it) and its body is at hand.
    pub(crate) fn apply_next(&mut self, commit: Op) -> Option<Arc<Prepare>> {
        if !self.is_connected() || self.applied >= commit {
            return None;
        }
        let next = self.applied.next();
        assert!(next > self.base.op, "the base is applied");
        let prepare = Arc::clone(self.slot(next)?.prepare.as_ref()?);
        assert_eq!(prepare.header.op, next, "operations apply in order");
        assert!(next <= commit && next <= self.head_op(), "committed, then applied");
        let below = self.applied_checksum();
        assert!(below == Some(prepare.header.parent), "on top of what is applied");
        self.applied = next;
        self.cached_bytes += prepare.size();
        Some(prepare)
    }

    /// Forgets bodies that are applied and held, beyond a small cache for peers.
    pub(crate) fn trim(&mut self, keep: bool) {
        let settled = self.is_connected().then_some(self.held_to);
        self.orphans.retain(|prepare| settled.is_none_or(|held| prepare.header.op > held));
        let ops_max = if keep { CACHE_OPS_MAX } else { 0 };
        while self.cached_from <= self.applied {
            let op = self.cached_from;
            let small = self.cached_bytes <= CACHE_BYTES_MAX;
            if self.applied.get() - op.get() < ops_max && small {
                return;
            }
            if let Some(slot) = self.slot_mut(op) {
                if slot.prepare.is_some() && slot.evidence != Evidence::Held {
                    return;
                }
                assert!(slot.prepare.is_none() || !slot.writing, "what is written stays at hand");
                let freed = slot.prepare.take().map_or(0, |prepare| prepare.size());
                self.cached_bytes = self.cached_bytes.saturating_sub(freed);
            }
            self.cached_from = op.next();
        }
    }

    /// Both checkpoints cover `through`: slots up to it go.
    pub(crate) fn release(&mut self, through: Op) {
        if through <= self.base.op {
            return;
        }
        assert!(through <= self.applied, "a checkpoint holds applied operations only");
        let checksum = self.checksum_at(through).expect("applied operations are known");
        self.rebase(Anchor { op: through, checksum });
        assert!(self.held_to >= through, "what is in the checkpoint is held");
        self.advance_held();
        self.check();
    }

    fn rebase(&mut self, base: Anchor) {
        let connected = self.is_connected();
        while self.base.op < base.op {
            if let Some(slot) = self.slots.pop_front() {
                let op = self.base.op.next();
                let cached = op <= self.applied && op >= self.cached_from;
                let size = slot.prepare.map_or(0, |prepare| prepare.size());
                self.cached_bytes = self.cached_bytes.saturating_sub(if cached { size } else { 0 });
            }
            self.base.op = self.base.op.next();
        }
        assert_eq!(self.base.op, base.op, "moved op by op");
        self.base = base;
        self.held_to = self.held_to.max(base.op);
        self.applied = self.applied.max(base.op);
        self.cached_from = self.cached_from.max(base.op.next());
        if connected || self.chained_from <= base.op.next() {
            self.chained_from = base.op.next();
            self.expected = base.checksum;
        }
    }

    /// State up to `checkpoint` was installed from a peer. `force` when this replica's own applied
    /// operations are to be given up.
    pub(crate) fn transfer(&mut self, checkpoint: Anchor, force: bool) -> bool {
        if checkpoint.op <= self.applied && !force {
            return false;
        }
        let known = self.checksum_at(checkpoint.op);
        let beyond = checkpoint.op > self.head_op() || checkpoint.op < self.base.op;
        if beyond || known.is_some_and(|checksum| checksum != checkpoint.checksum) || force {
            self.slots.clear();
            self.base = checkpoint;
            self.applied = checkpoint.op;
            self.held_to = checkpoint.op;
            self.chained_from = checkpoint.op.next();
            self.expected = checkpoint.checksum;
            self.cached_from = checkpoint.op.next();
            self.cached_bytes = 0;
        } else {
            self.applied = checkpoint.op;
            self.rebase(checkpoint);
            self.held_to = if self.is_connected() { self.held_to } else { checkpoint.op };
            if self.connect().is_err() {
                return self.transfer(checkpoint, true);
            }
            self.advance_held();
        }
        assert_eq!(self.base, checkpoint, "the log begins at the checkpoint");
        self.check_chain();
        self.check();
        true
    }

    /// The module's invariants that need a walk over the log; after every change of its shape.
    fn check_chain(&self) {
        let mut below = Anchor { op: Op(self.chained_from.get() - 1), checksum: self.expected };
        for op in self.chained_from.get()..=self.head_op().get() {
            let slot = self.slot(Op(op)).expect("between base and head");
            let header = slot.header.expect("chained slots have headers");
            assert_eq!(header.op, Op(op), "a header lies at its op");
            assert!(header.follows(below), "chained headers are chained");
            below = header.anchor();
        }
        assert_eq!(below, self.head(), "the chain ends at the head");
        for (index, slot) in self.slots.iter().enumerate() {
            let op = Op(self.base.op.get() + 1 + index as u64);
            assert!(slot.prepare.is_none() || slot.header.is_some(), "a body has a header");
            assert!(!slot.writing || slot.prepare.is_some(), "what is written is at hand");
            assert!(!slot.writing || slot.evidence != Evidence::Held, "written, then held");
            let held = op > self.held_to || op <= self.applied || slot.evidence == Evidence::Held;
            assert!(held, "everything up to the held mark is held");
            if let Some(prepare) = &slot.prepare {
                assert_eq!(slot.header, Some(prepare.header), "a body has its own header");
            }
        }
    }

    /// The module's invariants.
    pub(crate) fn check(&self) {
        let head = self.head_op();
        assert!(self.base.op <= self.applied, "what is released is applied");
        assert!(self.applied <= head, "what is applied is in the log");
        assert!(self.base.op <= self.held_to && self.held_to <= head, "held lies in the log");
        assert!(self.chained_from > self.base.op, "the chain lies above the base");
        assert!(self.chained_from <= head.next(), "the chain reaches the head");
        assert!(self.is_connected() || self.held_to <= self.applied, "no hold across a gap");
        assert!(self.cached_from > self.base.op, "what is released is not cached");
        assert!(self.cached_from <= head.next(), "the cache lies in the log");
        assert!(self.orphans.len() <= SUFFIX_OPS_MAX, "orphans are bounded");
        if self.is_connected() {
            assert_eq!(self.expected, self.base.checksum, "a whole chain hangs on the base");
        }
    }
}

fn slot_from_settled(slot: &SettledSlot) -> Slot {
    assert!(
        slot.prepare.is_none() || slot.evidence == Evidence::Held,
        "recovered prepares are held"
    );
    Slot {
        header: slot.header,
        prepare: slot.prepare.clone(),
        evidence: slot.evidence,
        writing: false,
    }
}
