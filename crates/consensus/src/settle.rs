//! From journal records to the log a replica starts with.
//!
//! Rules (architecture, sections 5 and 6):
//! - the newest view record decides view, log_view, and the log up to its head;
//! - above its head only prepares of that very log_view count, because one view has one primary
//!   and so one log: what an older view left there was discarded when the record was written, and
//!   is void. A hole is bridged when it lies below what is known to be committed; otherwise the log
//!   ends there, and what lies beyond is kept as orphans for peers that may need the bytes;
//! - below its lowest header the chain is followed down by checksum; where a link is missing, a
//!   group repairs it from peers and a solo node does not start;
//! - the checkpoint wins over any record that contradicts it, because it holds committed
//!   operations only;
//! - an operation that the record says was held and that cannot be found is faulty, never clean;
//! - damage that cannot be tied to an operation makes the replica untrusted (must learn).

use crate::header::{Anchor, Prepare, PrepareHeader};
use crate::suffix::{Evidence, LogSuffix, SUFFIX_OPS_MAX};
use crate::view_state::ViewState;
use borzoi_types::{ClusterId, LogId, Op, View};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// What is known about a record that cannot be read (architecture, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// At or below the synced mark: it was durable and is damaged.
    Faulty,
    /// Above the mark, but named by an intact trailer: it may have been durable.
    Unknown,
}

/// A record of this log that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamagedRecord {
    /// Its operation, if something intact says so.
    pub op: Option<Op>,
    /// Its header, if that part is intact.
    pub header: Option<PrepareHeader>,
    /// Its header's checksum, if a trailer names it.
    pub checksum: Option<u128>,
    /// It was a view record: the replica no longer knows what it has promised.
    pub view_record: bool,
    /// What may have been lost.
    pub kind: DamageKind,
}

/// Everything the journal holds of one log, in journal order.
#[derive(Clone, Debug)]
pub struct LogRecords {
    /// Cluster incarnation.
    pub cluster: ClusterId,
    /// Which log.
    pub log: LogId,
    /// Members of the log's group.
    pub replica_count: u8,
    /// View records.
    pub view_states: Vec<ViewState>,
    /// Intact prepares.
    pub prepares: Vec<Arc<Prepare>>,
    /// Records that cannot be read.
    pub damaged: Vec<DamagedRecord>,
}

/// One position of a settled log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettledSlot {
    /// The header, if known.
    pub header: Option<PrepareHeader>,
    /// The operation, if held.
    pub prepare: Option<Arc<Prepare>>,
    /// What the replica may say about it.
    pub evidence: Evidence,
}

/// The log a replica starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The newest view record, its suffix brought up to date.
    pub view_state: ViewState,
    /// The checkpoint (or the root): everything up to it is committed and applied.
    pub base: Anchor,
    /// One slot per operation above `base`, up to the head.
    pub slots: Vec<SettledSlot>,
    /// Headers are complete and chained from here to the head; below, down to `base`, slots are
    /// candidates until their headers are learned. `base + 1` when nothing is missing.
    pub chained_from: Op,
    /// Intact operations that have no certain place: beyond a hole, or one of several for a
    /// position. Kept so that no copy of a committed operation is thrown away.
    pub orphans: Vec<Arc<Prepare>>,
    /// A solo node cut its log here because a record above the synced mark was unreadable.
    pub cut: Option<Op>,
    /// This node has never run: nothing was ever sent in its name, so the primary of the first
    /// view may lead it. Set by who knows; settling never does.
    pub first_life: bool,
}

/// What a new journal generation must carry of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// To be written first.
    pub view_state: ViewState,
    /// To be written in this order.
    pub prepares: Vec<Arc<Prepare>>,
}

/// Why a log cannot start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettleError {
    /// A solo node has no peer to repair this from.
    #[error("log {log}: operation {op:?} was durable and its record is damaged")]
    Damaged {
        /// Which log.
        log: LogId,
        /// Which operation, if known.
        op: Option<Op>,
    },
    /// A solo node misses an operation between its checkpoint and its head.
    #[error("log {log}: operation {op} is missing")]
    Missing {
        /// Which log.
        log: LogId,
        /// Which operation.
        op: Op,
    },
    /// The journal's log does not contain the checkpoint.
    #[error("log {log}: the log differs from the checkpoint at operation {op}")]
    Diverged {
        /// Which log.
        log: LogId,
        /// The checkpoint's operation.
        op: Op,
    },
    /// A view record was durable and is damaged: the replica may not vote with what is left. A
    /// group member rejoins as if empty.
    #[error("log {log}: a view record is damaged")]
    ViewRecordDamaged {
        /// Which log.
        log: LogId,
    },
    /// A record belongs to another cluster or log.
    #[error("log {log}: a record belongs to another cluster or log")]
    Foreign {
        /// Which log.
        log: LogId,
    },
}

/// Settles one log from its journal records and its newest checkpoint (`None`: no checkpoint).
/// `trusted` is false when records above the synced mark may have been acknowledged and lost.
///
/// # Errors
/// [`SettleError`] when the log cannot start as it is.
pub fn settle(
    records: LogRecords,
    checkpoint: Option<Anchor>,
    trusted: bool,
) -> Result<Settled, SettleError> {
    check_identity(&records)?;
    let base = checkpoint.unwrap_or_else(|| Anchor::root(records.cluster, records.log));
    let newest = records.view_states.iter().max_by_key(|state| (state.view, state.log_view));
    let view_state =
        newest.cloned().unwrap_or_else(|| ViewState::initial(records.cluster, records.log));
    let solo = records.replica_count == 1;
    let mut chain = Chain::new(&records, base, view_state);
    let contradicted = chain.place_adopted_suffix();
    chain.extend_upwards();
    chain.bridge();
    let diverged = chain.extend_downwards();
    if contradicted || diverged {
        if solo {
            return Err(SettleError::Diverged { log: records.log, op: base.op });
        }
        chain.restart_from_base();
        chain.extend_upwards();
        chain.bridge();
        chain.extend_downwards();
    }
    chain.classify();
    let settled = chain.finish(trusted);
    settled.check();
    if !solo {
        return Ok(settled);
    }
    let settled = settle_solo(settled, &records)?;
    settled.check();
    assert!(settled.slots.iter().all(|slot| slot.prepare.is_some()), "a solo log is whole");
    Ok(settled)
}

fn check_identity(records: &LogRecords) -> Result<(), SettleError> {
    assert!(records.replica_count >= 1, "a log has at least one replica");
    let log = records.log;
    let foreign = |cluster, other| cluster != records.cluster || other != log;
    let views = records.view_states.iter().any(|state| foreign(state.cluster, state.log));
    let prepares =
        records.prepares.iter().any(|prepare| foreign(prepare.header.cluster, prepare.header.log));
    if views || prepares {
        return Err(SettleError::Foreign { log });
    }
    if records.damaged.iter().any(|damaged| damaged.view_record) {
        return Err(SettleError::ViewRecordDamaged { log });
    }
    Ok(())
}

/// The log being put together, by operation.
struct Chain<'a> {
    records: &'a LogRecords,
    by_op: BTreeMap<Op, Vec<&'a Arc<Prepare>>>,
    base: Anchor,
    view_state: ViewState,
    /// Chained headers with evidence from the view record or damage; contiguous up to `head`.
    chained: BTreeMap<Op, (PrepareHeader, Evidence)>,
    /// Certain headers below a hole.
    lower: BTreeMap<Op, (PrepareHeader, Evidence)>,
    /// Just below the lowest chained header.
    below: Anchor,
    head: Anchor,
    unresolved: bool,
}

impl<'a> Chain<'a> {
    fn new(records: &'a LogRecords, base: Anchor, view_state: ViewState) -> Self {
        let mut by_op: BTreeMap<Op, Vec<&'a Arc<Prepare>>> = BTreeMap::new();
        for prepare in records.prepares.iter().filter(|prepare| prepare.header.op > base.op) {
            by_op.entry(prepare.header.op).or_default().push(prepare);
        }
        Self {
            records,
            by_op,
            base,
            view_state,
            chained: BTreeMap::new(),
            lower: BTreeMap::new(),
            below: base,
            head: base,
            unresolved: false,
        }
    }

    fn restart_from_base(&mut self) {
        assert!(self.records.replica_count > 1, "a solo node refuses instead");
        self.chained.clear();
        self.lower.clear();
        self.below = self.base;
        self.head = self.base;
    }

    /// Takes the adopted suffix, as far as it lies above the base. Returns whether the base
    /// contradicts it.
    fn place_adopted_suffix(&mut self) -> bool {
        let suffix = &self.view_state.suffix;
        if suffix.head.op < self.base.op {
            return false;
        }
        if suffix.checksum_at(self.base.op).is_some_and(|sum| sum != self.base.checksum) {
            return true;
        }
        for (header, evidence) in suffix.headers.iter().zip(&suffix.evidence) {
            if header.op > self.base.op {
                self.chained.insert(header.op, (*header, *evidence));
            }
        }
        let below = suffix.below();
        self.below = if below.op > self.base.op { below } else { self.base };
        self.head = suffix.head;
        assert!(self.below.op <= self.head.op && self.head.op >= self.base.op, "above the base");
        false
    }

    fn intact(&self, anchor: Anchor) -> Option<&'a Arc<Prepare>> {
        let all = self.by_op.get(&anchor.op)?;
        all.iter().copied().find(|prepare| prepare.header.checksum == anchor.checksum)
    }

    fn damaged_header(
        &self,
        wanted: impl Fn(&PrepareHeader) -> bool,
    ) -> Option<(PrepareHeader, Evidence)> {
        let mut known = self.records.damaged.iter().filter_map(|d| Some((d.header?, d.kind)));
        known
            .find(|(header, _)| wanted(header))
            .map(|(header, kind)| (header, Evidence::from(kind)))
    }

    fn extend_upwards(&mut self) {
        let log_view = self.view_state.log_view;
        loop {
            let head = self.head;
            let next = |header: &PrepareHeader| header.view == log_view && header.follows(head);
            let intact = self.by_op.get(&head.op.next()).into_iter().flatten();
            let intact = intact.map(|prepare| prepare.header).find(|header| next(header));
            let found = intact.map(|header| (header, Evidence::Held));
            let Some((header, evidence)) = found.or_else(|| self.damaged_header(next)) else {
                return;
            };
            assert!(header.op == head.op.next() && header.view == log_view, "one op further");
            self.chained.insert(header.op, (header, evidence));
            self.head = header.anchor();
        }
    }

    /// The headers of this log_view above the head: one view has one log, so each is certain.
    fn known_above(&self) -> BTreeMap<Op, (PrepareHeader, Evidence)> {
        let belongs = |header: &PrepareHeader| {
            header.view == self.view_state.log_view && header.op > self.head.op
        };
        let intact = self.by_op.values().flatten().map(|p| (p.header, Evidence::Held));
        let damaged = self.records.damaged.iter();
        let damaged = damaged.filter_map(|d| Some((d.header?, Evidence::from(d.kind))));
        let all = damaged.chain(intact).filter(|(header, _)| belongs(header));
        all.map(|(header, evidence)| (header.op, (header, evidence))).collect()
    }

    /// Moves the head over holes that lie below what is known to be committed.
    fn bridge(&mut self) {
        let known = self.known_above();
        if known.contains_key(&self.head.op.next()) {
            // No hole: it contradicts the head (a transferred checkpoint), or it were taken.
            return;
        }
        let commit = known.values().map(|(header, _)| header.commit).max();
        let commit = commit.unwrap_or(Op::ZERO).max(self.commit());
        self.view_state.commit = commit;
        let mut end = commit.max(self.head.op).next();
        while known.contains_key(&end) {
            end = end.next();
        }
        // Everything between the commit and `end` is known, so the uncommitted suffix has no hole.
        let Some((_, (top, evidence))) = known.range(..end).next_back() else { return };
        assert!(top.op > self.head.op, "a bridge leads upwards");
        assert!(self.lower.is_empty(), "one bridge is enough");
        self.lower.append(&mut self.chained);
        self.chained.insert(top.op, (*top, *evidence));
        self.head = top.anchor();
        self.below = Anchor { op: Op(top.op.get() - 1), checksum: top.parent };
        assert!(self.head.op < end, "the head is known");
    }

    /// Follows parents down to the base. Returns whether the chain contradicts the base.
    fn extend_downwards(&mut self) -> bool {
        while self.below.op > self.base.op {
            let below = self.below;
            let found = self.intact(below).map(|prepare| (prepare.header, Evidence::Held));
            let found = found.or_else(|| self.damaged_header(|h| h.anchor() == below));
            let lower = self.lower.get(&below.op).copied();
            let found = found.or(lower.filter(|(header, _)| header.anchor() == below));
            let Some((header, evidence)) = found else { return false };
            assert_eq!(header.anchor(), below, "followed by identity");
            self.chained.insert(header.op, (header, evidence));
            self.below = Anchor { op: Op(header.op.get() - 1), checksum: header.parent };
        }
        assert_eq!(self.below.op, self.base.op, "the walk ends at the base");
        self.below.checksum != self.base.checksum
    }

    /// Brings the evidence up to date: what is found is held, what should be and is not is faulty.
    fn classify(&mut self) {
        let mut updates = Vec::new();
        for (op, (header, evidence)) in &self.chained {
            let updated = match evidence {
                _ if self.intact(header.anchor()).is_some() => Evidence::Held,
                Evidence::Held | Evidence::Faulty => Evidence::Faulty,
                Evidence::Unknown => Evidence::Unknown,
                Evidence::Clean => self.damage_at(header).unwrap_or(Evidence::Clean),
            };
            updates.push((*op, updated));
        }
        assert_eq!(updates.len(), self.chained.len(), "each is looked at once");
        for (op, evidence) in updates {
            self.chained.get_mut(&op).expect("just seen").1 = evidence;
        }
        self.unresolved = self.records.damaged.iter().any(|damaged| self.is_unresolved(damaged));
    }

    fn damage_at(&self, header: &PrepareHeader) -> Option<Evidence> {
        let matches = |damaged: &&DamagedRecord| {
            let sum = damaged.checksum.or(damaged.header.map(|h| h.checksum));
            match sum {
                Some(sum) => sum == header.checksum,
                None => damaged.op == Some(header.op),
            }
        };
        let kinds = self.records.damaged.iter().filter(matches);
        kinds.map(|damaged| Evidence::from(damaged.kind)).min()
    }

    /// Whether a damaged record may have been an operation that this log does not account for.
    fn is_unresolved(&self, damaged: &DamagedRecord) -> bool {
        let op = damaged.op.or(damaged.header.map(|header| header.op));
        let Some(op) = op else { return true };
        if op <= self.base.op {
            return false;
        }
        if op > self.head.op {
            // A header of an older view above the head is void, as an intact record would be.
            return damaged.header.is_none_or(|header| header.view >= self.view_state.log_view);
        }
        false
    }

    /// What to keep for `op` inside a gap: preferably what follows the candidate below, else what
    /// the journal took last. Checksums decide when the chain reaches it.
    fn candidate(&self, op: Op, below: Anchor) -> Option<PrepareHeader> {
        if let Some((header, _)) = self.lower.get(&op) {
            return Some(*header);
        }
        let all = self.by_op.get(&op)?;
        let mut headers = all.iter().map(|prepare| prepare.header);
        let following = headers.clone().rfind(|header| header.follows(below));
        following.or_else(|| headers.next_back())
    }

    fn commit(&self) -> Op {
        let certain = self.chained.values().chain(self.lower.values());
        let chained = certain.map(|(header, _)| header.commit).max();
        let known = self.view_state.commit.max(self.base.op);
        known.max(chained.unwrap_or(Op::ZERO))
    }

    fn slot(&self, header: PrepareHeader, evidence: Evidence) -> SettledSlot {
        let prepare = self.intact(header.anchor()).map(Arc::clone);
        let evidence = if prepare.is_some() { Evidence::Held } else { evidence };
        SettledSlot { header: Some(header), prepare, evidence }
    }

    fn finish(self, trusted: bool) -> Settled {
        let commit = self.commit();
        let mut slots = Vec::new();
        let mut candidate = self.base;
        for op in self.base.op.get() + 1..=self.head.op.get() {
            let op = Op(op);
            if let Some((header, evidence)) = self.chained.get(&op) {
                let lost = op <= commit && *evidence == Evidence::Clean;
                slots.push(self.slot(*header, if lost { Evidence::Faulty } else { *evidence }));
                continue;
            }
            let header = self.candidate(op, candidate);
            slots.push(match header {
                Some(header) => self.slot(header, Evidence::Faulty),
                None => SettledSlot { header: None, prepare: None, evidence: Evidence::Faulty },
            });
            candidate = header.map_or(candidate, |header| header.anchor());
        }
        let chained_from =
            if self.below.op == self.base.op { self.base.op.next() } else { self.below.op.next() };
        let mut view_state = self.view_state;
        view_state.commit = commit;
        view_state.must_learn |= !trusted || self.unresolved;
        let orphans = orphans(&self.by_op, &slots, self.base, view_state.log_view);
        let base = self.base;
        assert_eq!(slots.len() as u64, self.head.op.get() - base.op.get(), "one slot per op");
        assert!(view_state.commit >= base.op, "the checkpoint is committed");
        let (cut, first_life) = (None, false);
        let mut settled =
            Settled { view_state, base, slots, chained_from, orphans, cut, first_life };
        settled.rebuild_suffix(self.head, self.below);
        settled
    }
}

/// Intact prepares without a certain place, lowest first.
fn orphans(
    by_op: &BTreeMap<Op, Vec<&Arc<Prepare>>>,
    slots: &[SettledSlot],
    base: Anchor,
    log_view: View,
) -> Vec<Arc<Prepare>> {
    let placed = |header: &PrepareHeader| {
        let index = usize::try_from(header.op.get() - base.op.get() - 1).expect("above the base");
        slots.get(index).is_some_and(|slot| slot.header.is_some_and(|h| h == *header))
    };
    let head = base.op.get() + slots.len() as u64;
    let all = by_op.values().flatten().filter(|prepare| {
        let header = &prepare.header;
        let beyond = header.op.get() > head && header.view == log_view;
        (beyond || header.op.get() <= head) && !placed(header)
    });
    all.take(SUFFIX_OPS_MAX).map(|prepare| Arc::clone(prepare)).collect()
}

/// A solo node repairs nothing: it cuts what was never acknowledged and refuses what was.
fn settle_solo(mut settled: Settled, records: &LogRecords) -> Result<Settled, SettleError> {
    let log = records.log;
    if settled.chained_from > settled.base.op.next() {
        let op = Op(settled.chained_from.get() - 1);
        let damaged = records.damaged.iter().any(|d| d.op.is_none_or(|other| other == op));
        return Err(if damaged {
            SettleError::Damaged { log, op: Some(op) }
        } else {
            SettleError::Missing { log, op }
        });
    }
    let head_op = Op(settled.base.op.get() + settled.slots.len() as u64);
    let beyond = |damaged: &&DamagedRecord| damaged.op.is_none_or(|op| op > head_op);
    for damaged in records.damaged.iter().filter(beyond) {
        match damaged.kind {
            DamageKind::Faulty => return Err(SettleError::Damaged { log, op: damaged.op }),
            DamageKind::Unknown => settled.cut = Some(head_op.next()),
        }
    }
    if let Some(index) = settled.slots.iter().position(|slot| slot.prepare.is_none()) {
        let op = Op(settled.base.op.get() + 1 + index as u64);
        if settled.slots[index].evidence == Evidence::Faulty {
            return Err(SettleError::Damaged { log, op: Some(op) });
        }
        let above = &settled.slots[index..];
        if above.iter().any(|slot| slot.evidence == Evidence::Unknown) {
            settled.cut = Some(op);
        }
        assert!(index < settled.slots.len(), "something is cut");
        settled.slots.truncate(index);
        let below = settled.slots.last().and_then(|slot| slot.header);
        let head = below.map_or(settled.base, |header| header.anchor());
        settled.view_state.commit = settled.view_state.commit.min(head.op);
        settled.rebuild_suffix(head, settled.base);
    }
    // A cut record may have been acknowledged: the settled state stays untrusted, so that the node
    // starts with a loss epoch and its user can jump over what it may have told someone.
    settled.view_state.must_learn |= settled.cut.is_some();
    Ok(settled)
}

impl From<DamageKind> for Evidence {
    fn from(kind: DamageKind) -> Self {
        match kind {
            DamageKind::Faulty => Self::Faulty,
            DamageKind::Unknown => Self::Unknown,
        }
    }
}

impl Settled {
    /// A replica of a log that has never had one here. `view` is what the group reports
    /// (architecture, section 5, *new and empty nodes*); a member that joins a formatted group
    /// must learn.
    #[must_use]
    pub fn joining(cluster: ClusterId, log: LogId, view: View, must_learn: bool) -> Self {
        let mut view_state = ViewState::initial(cluster, log);
        view_state.view = view;
        view_state.must_learn = must_learn;
        let base = Anchor::root(cluster, log);
        let chained_from = base.op.next();
        let (slots, orphans) = (Vec::new(), Vec::new());
        let (cut, first_life) = (None, false);
        Self { view_state, base, slots, chained_from, orphans, cut, first_life }
    }

    /// What the next journal generation must hold so that settling it gives this again.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let placed = self.slots.iter().filter_map(|slot| slot.prepare.clone());
        // Orphans first: of several for one position, settling prefers the last.
        let prepares: Vec<Arc<Prepare>> = self.orphans.iter().cloned().chain(placed).collect();
        let above = |prepare: &Arc<Prepare>| prepare.header.op > self.base.op;
        assert!(prepares.iter().all(above), "the checkpoint holds the rest");
        Carried { view_state: self.view_state.clone(), prepares }
    }

    /// What every settled log is.
    fn check(&self) {
        let state = &self.view_state;
        let head = state.suffix.head.op;
        assert!(state.log_view <= state.view, "a log is adopted in a view that was entered");
        assert!(self.base.op <= head, "the checkpoint is part of the log");
        assert!(state.commit >= self.base.op, "a checkpoint is committed");
        assert_eq!(head.get() - self.base.op.get(), self.slots.len() as u64, "one slot per op");
        assert!(self.chained_from > self.base.op, "the chain lies above the base");
        assert!(self.chained_from <= state.commit.next(), "holes lie below the commit");
        assert!(self.orphans.len() <= SUFFIX_OPS_MAX, "orphans are bounded");
        for (index, slot) in self.slots.iter().enumerate() {
            let op = Op(self.base.op.get() + 1 + index as u64);
            let held = slot.evidence == Evidence::Held;
            assert_eq!(slot.prepare.is_some(), held, "held means found");
            assert!(slot.header.is_none_or(|header| header.op == op), "each at its op");
            assert!(op < self.chained_from || slot.header.is_some(), "the chain is known");
        }
    }

    fn rebuild_suffix(&mut self, head: Anchor, below: Anchor) {
        let lowest = self.view_state.commit.max(self.base.op).min(head.op).max(below.op);
        let above = usize::try_from(lowest.get() - self.base.op.get()).expect("fits in memory");
        let slots = &self.slots[above..];
        let headers: Vec<PrepareHeader> = slots.iter().filter_map(|slot| slot.header).collect();
        assert_eq!(headers.len(), slots.len(), "the uncommitted suffix has no gap");
        let evidence = slots.iter().map(|slot| slot.evidence).collect();
        self.view_state.suffix = LogSuffix { head, headers, evidence };
        assert!(self.view_state.suffix.is_chained(), "the settled suffix is chained and bounded");
        assert!(below.op <= self.view_state.commit, "a gap lies below the commit");
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
