//! A journal and checkpoints that know what was flushed.

use super::random::Random;
use borzoi_consensus::{
    Anchor, DamageKind, DamagedRecord, LogRecords, Prepare, SettleError, Settled, ViewState, settle,
};
use borzoi_types::{ClusterId, LogId, Op, View};
use std::sync::Arc;

pub const CLUSTER: ClusterId = ClusterId(0xb0_2201);
pub const LOG: LogId = LogId(3);

#[derive(Clone, Debug)]
pub enum Body {
    View(ViewState),
    Prepare(Arc<Prepare>),
}

#[derive(Clone, Debug)]
pub struct Record {
    pub body: Body,
    pub damage: Option<DamageKind>,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub records: Vec<Record>,
    /// Records below this index are synced.
    pub flushed: usize,
    /// Records below this index are with the kernel.
    pub written: usize,
    /// A flush under way covers records below this index.
    pub flushing: Option<usize>,
    /// Oldest first; at most two.
    pub checkpoints: Vec<Anchor>,
    pub stuck: bool,
    pub trusted: bool,
}

impl Disk {
    pub fn new() -> Self {
        Self { trusted: true, ..Self::default() }
    }

    pub fn push(&mut self, body: Body) {
        self.records.push(Record { body, damage: None });
    }

    pub fn checkpoint(&self) -> Option<Anchor> {
        self.checkpoints.last().copied()
    }

    /// Whether `anchor` is held at the level: synced, or written when `written_counts`.
    pub fn holds(&self, anchor: Anchor, written_counts: bool) -> bool {
        if self.checkpoint().is_some_and(|checkpoint| checkpoint.op >= anchor.op) {
            return true;
        }
        let limit = if written_counts { self.written.max(self.flushed) } else { self.flushed };
        self.records[..limit].iter().any(|record| match &record.body {
            Body::Prepare(prepare) => prepare.header.anchor() == anchor && record.damage.is_none(),
            Body::View(_) => false,
        })
    }

    /// View and log_view that are durable.
    pub fn durable_view(&self) -> (View, View) {
        let views = self.records[..self.flushed].iter().filter_map(|record| match &record.body {
            Body::View(state) => Some((state.view, state.log_view)),
            Body::Prepare(_) => None,
        });
        views.max().unwrap_or_default()
    }

    pub fn find(&self, anchor: Anchor) -> Option<Arc<Prepare>> {
        self.records.iter().rev().find_map(|record| match &record.body {
            Body::Prepare(p) if p.header.anchor() == anchor && record.damage.is_none() => {
                Some(Arc::clone(p))
            }
            _ => None,
        })
    }

    /// Both checkpoints cover `through`.
    pub fn release(&mut self, through: Op) {
        let newest = self.records.iter().rposition(|record| matches!(record.body, Body::View(_)));
        let mut index = 0;
        let flushed = self.flushed;
        let mut dropped = 0;
        self.records.retain(|record| {
            let keep = match &record.body {
                Body::Prepare(prepare) => prepare.header.op > through || index >= flushed,
                Body::View(_) => Some(index) == newest || index >= flushed,
            };
            // Two views may be under way; keep every view that is the newest flushed one or later.
            let keep = keep || (matches!(record.body, Body::View(_)) && newest >= Some(flushed));
            dropped += usize::from(!keep);
            index += 1;
            keep
        });
        self.flushed -= dropped;
        self.written = self.written.saturating_sub(dropped).max(self.flushed);
        self.flushing = self.flushing.map(|upto| upto - dropped);
    }

    /// The process ends. A kill keeps what was written; a power cut keeps what was synced and some
    /// of the rest.
    pub fn crash(&mut self, power: bool, level_written: bool, random: &mut Random) {
        let written = self.written.max(self.flushed);
        let rest = (self.records.len() - self.flushed) as u64;
        let keep = if power {
            self.flushed + random.between(0, rest) as usize
        } else {
            written.max(self.flushed + random.between(0, rest) as usize)
        };
        if power && level_written {
            self.trusted = false;
        }
        let torn = keep < self.records.len() && power && random.chance(40);
        let named = torn && matches!(self.records[keep].body, Body::Prepare(_));
        let keep = keep + usize::from(named);
        self.records.truncate(keep);
        if named {
            // A trailer that names it survived; the record did not.
            self.records[keep - 1].damage = Some(DamageKind::Unknown);
        }
        self.flushed = keep;
        self.written = keep;
        self.flushing = None;
        self.stuck = false;
    }

    /// Recovers and rewrites into a new generation.
    pub fn recover(&mut self, n: u8, random: &mut Random) -> Result<Settled, SettleError> {
        let mut records = LogRecords {
            cluster: CLUSTER,
            log: LOG,
            replica_count: n,
            view_states: Vec::new(),
            prepares: Vec::new(),
            damaged: Vec::new(),
        };
        for record in &self.records {
            match (&record.body, record.damage) {
                (Body::View(state), _) => {
                    let decoded = ViewState::decode(&state.encode()).expect("round trip");
                    assert_eq!(&decoded, state);
                    records.view_states.push(decoded);
                }
                (Body::Prepare(prepare), None) => records.prepares.push(Arc::clone(prepare)),
                (Body::Prepare(prepare), Some(kind)) => {
                    let header = prepare.header;
                    let (header_known, op_known) = (random.chance(60), random.chance(80));
                    records.damaged.push(DamagedRecord {
                        op: op_known.then_some(header.op),
                        header: header_known.then_some(header),
                        checksum: op_known.then_some(header.checksum),
                        view_record: false,
                        kind,
                    });
                }
            }
        }
        let settled = settle(records, self.checkpoint(), self.trusted)?;
        self.trusted = true;
        let carried = settled.carried();
        self.check_carried(n, &settled);
        self.records.clear();
        self.push(Body::View(carried.view_state));
        for prepare in carried.prepares {
            self.push(Body::Prepare(prepare));
        }
        self.flushed = self.records.len();
        self.written = self.flushed;
        Ok(settled)
    }

    /// Settling what a generation carries gives the same log again. (Headers of damaged committed
    /// operations are not carried; they are learned from peers.)
    fn check_carried(&self, n: u8, settled: &Settled) {
        let carried = settled.carried();
        let records = LogRecords {
            cluster: CLUSTER,
            log: LOG,
            replica_count: n,
            view_states: vec![carried.view_state],
            prepares: carried.prepares,
            damaged: Vec::new(),
        };
        let again = settle(records, self.checkpoint(), true).expect("settles again");
        assert_eq!(again.view_state, settled.view_state);
        assert_eq!(again.slots.len(), settled.slots.len());
        if settled.slots.iter().all(|slot| slot.prepare.is_some()) {
            assert_eq!(again.slots, settled.slots);
            assert_eq!(again.chained_from, settled.chained_from);
        }
    }
}
