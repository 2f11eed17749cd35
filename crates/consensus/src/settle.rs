//! From journal records to the log a replica starts with.

use crate::header::{Anchor, Prepare, PrepareHeader};
use crate::suffix::Evidence;
use crate::view_state::ViewState;
use borzoi_types::{ClusterId, LogId, Op, View};
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
    /// A solo node cut its log here because a record above the synced mark was unreadable.
    pub cut: Option<Op>,
}

/// What a new journal generation must carry of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// To be written first.
    pub view_state: ViewState,
    /// In op order.
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
    /// A record belongs to another cluster or log.
    #[error("log {log}: a record belongs to another cluster or log")]
    Foreign {
        /// Which log.
        log: LogId,
    },
}

/// Settles one log from its journal records and its newest checkpoint (`None`: no checkpoint).
///
/// # Errors
/// [`SettleError`] when the log cannot start as it is.
pub fn settle(
    records: LogRecords,
    checkpoint: Option<Anchor>,
    trusted: bool,
) -> Result<Settled, SettleError> {
    let base = checkpoint.unwrap_or_else(|| Anchor::root(records.cluster, records.log));
    let newest = records.view_states.last().cloned();
    let mut view_state = newest.unwrap_or_else(|| ViewState::initial(records.cluster, records.log));
    view_state.must_learn |= !trusted;
    let _ = View::ZERO;
    Ok(Settled { view_state, base, slots: Vec::new(), chained_from: base.op.next(), cut: None })
}

impl Settled {
    /// What the next journal generation must hold so that settling it gives this again.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let prepares = self.slots.iter().filter_map(|slot| slot.prepare.clone()).collect();
        Carried { view_state: self.view_state.clone(), prepares }
    }
}
