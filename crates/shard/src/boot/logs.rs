//! Each log as the directory holds it: checkpoint, settled suffix, reservations.

use super::BootError;
use crate::lane::checkpoint::restore;
use crate::lane::operation;
use crate::lane::reservation::{self, Reservation, ReservationMode, Reservations};
use crate::lane::state::LaneState;
use crate::log_host::{is_for_user, prepare_record, view_state_record};
use crate::options::Lanes;
use borzoi_consensus::{
    Anchor, DamageKind, DamagedRecord, LogRecords, Prepare, PrepareHeader, SettleError, Settled,
    ViewState, settle,
};
use borzoi_storage::checkpoint::{Checkpoint, CheckpointError, Loaded, load_newest};
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_storage::journal::{JournalRecord, RecordKind};
use borzoi_storage::recovery::{Finding, LostRecord, Recovered, RecoveredLog};
use borzoi_types::limits::CHECKPOINT_OVERLAP_BYTES_MAX;
use borzoi_types::{Durability, LogId, Micros, Op, PartitionKey, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What belongs to a lane beside its replica.
pub(super) struct LaneRest {
    pub(super) state: LaneState,
    pub(super) reservations: Reservations,
    pub(super) timestamp: Micros,
}

/// One log as it was found.
pub(super) struct BootLog {
    log: LogId,
    pub(super) checkpoint: Option<Checkpoint>,
    /// Operations of the checkpoints that are kept, rising.
    pub(super) kept: Vec<Op>,
    /// What the newest checkpoint contains and the one before it does not, rising: with these the
    /// older one can serve should the newest turn out to be damaged.
    contained: Vec<Arc<Prepare>>,
    /// Checkpoints that are of no use any more: damaged ones, to be kept for a human.
    damaged: Vec<(FileName, CheckpointError)>,
    pub(super) settled: Settled,
    pub(super) rest: LaneRest,
}

impl BootLog {
    /// Nothing was ever said in the name of this node, unless an earlier life of it lost its disk.
    pub(super) fn note_first_life(&mut self) {
        let state = &self.settled.view_state;
        self.settled.first_life = !state.must_learn && state.view == View::ZERO;
    }

    /// The first start of a node that joins: it begins in the view that the others report.
    pub(super) fn join(&mut self, views: &BTreeMap<LogId, View>) {
        if let Some(view) = views.get(&self.log) {
            let state = &mut self.settled.view_state;
            assert!(state.must_learn, "who joins with nothing has everything to learn");
            state.view = state.view.max(*view);
        }
    }

    /// Appends what the new generation must hold of this log.
    pub(super) fn carry(&self, records: &mut Vec<JournalRecord>) {
        let carried = self.settled.carried();
        let first = self.contained.first().map_or(self.settled.base.op.next(), |p| p.header.op);
        assert!(self.kept.len() < 2 || first == self.kept[0].next(), "the older one is reached");
        records.push(view_state_record(&carried.view_state));
        records.extend(self.contained.iter().map(|prepare| prepare_record(prepare)));
        records.extend(carried.prepares.iter().map(|prepare| prepare_record(prepare)));
        let reserved: Vec<(PartitionKey, Reservation)> = self.rest.reservations.iter().collect();
        if !reserved.is_empty() {
            let (header, body) = reservation::encode(ReservationMode::Install, &reserved);
            let head = carried.prepares.last().map_or(self.settled.base.op, |p| p.header.op);
            let (kind, log) = (RecordKind::Reservation, self.log);
            records.push(JournalRecord { kind, log, op: head.next(), header, body });
        }
    }
}

/// Reads every log of the cluster.
pub(super) fn read_logs(
    disk: &mut dyn Disk,
    recovered: &Recovered,
    lanes: Lanes,
) -> Result<BTreeMap<LogId, BootLog>, BootError> {
    // One sync for all checkpoints: a process that was killed between the rename and the sync of
    // the directory left a name that a power cut may take back, and the new generation relies on
    // it.
    disk.sync_names(Directory::Checkpoints)?;
    let mut logs = BTreeMap::new();
    for log in lanes.logs() {
        logs.insert(log, read_log(disk, recovered, lanes, log)?);
    }
    Ok(logs)
}

/// After the switch: checkpoints that no start will read again go out of the way, damaged ones to
/// where a human finds them. Returns what an operator should know.
pub(super) fn clean_checkpoints(
    disk: &mut dyn Disk,
    logs: &BTreeMap<LogId, BootLog>,
) -> Result<Vec<Finding>, BootError> {
    let mut findings = Vec::new();
    for (file, error) in logs.values().flat_map(|log| &log.damaged) {
        disk.set_aside(file)?;
        let (file, what) = (file.clone(), error.to_string());
        findings.push(Finding::CheckpointDamaged { file, what });
    }
    for file in disk.list(Directory::Checkpoints)?.files {
        if let FileName::Checkpoint { log, op } = file
            && let Some(log) = logs.get(&log)
            && !log.kept.contains(&op)
        {
            assert!(log.kept.last().is_some_and(|newest| op < *newest), "newer ones are used");
            disk.remove(&file)?;
        }
    }
    Ok(findings)
}

fn read_log(
    disk: &mut dyn Disk,
    recovered: &Recovered,
    lanes: Lanes,
    log: LogId,
) -> Result<BootLog, BootError> {
    let loaded = load_newest(disk, log)?;
    if log.is_metadata() && loaded.checkpoint.is_none() {
        return Err(BootError::NoMetadata { damaged: named(&loaded.damaged) });
    }
    let nothing = RecoveredLog::default();
    let found = recovered.logs.get(&log).unwrap_or(&nothing);
    let superblock = &recovered.superblock;
    let trusted = is_trusted(recovered, found, log);
    let mut rest = match &loaded.checkpoint {
        Some(checkpoint) if !log.is_metadata() => {
            let restored = restore(checkpoint).map_err(|error| BootError::Lane { log, error })?;
            LaneRest {
                state: restored.state,
                reservations: restored.reservations,
                timestamp: restored.timestamp,
            }
        }
        _ => LaneRest {
            state: LaneState::default(),
            reservations: Reservations::default(),
            timestamp: Micros(0),
        },
    };
    if lanes.durability(log) == Durability::Replicated {
        merge_reservations(log, found, &mut rest.reservations)?;
        // On one node nothing but a clean stop proves that the end is complete: a volume that is
        // detached under a running machine loses pages, and the boot identity stays. A clean stop
        // has lowered the reservations to what exists, so nothing is owed after it.
        // A group finds out from each other what was lost, and jumps with its loss epoch.
        if superblock.is_solo() {
            rest.reservations.owe_jumps();
        }
    }
    let records = log_records(recovered, log, found)?;
    let root = Anchor::root(records.cluster, log);
    let base = loaded.checkpoint.as_ref().filter(|checkpoint| checkpoint.op > Op::ZERO);
    let base = base.map(|c| Anchor { op: c.op, checksum: c.prepare_checksum });
    let older = loaded.older.filter(|older| older.op > Op::ZERO);
    let older = older.map_or(root, |o| Anchor { op: o.op, checksum: o.prepare_checksum });
    let contained = contained(&records.prepares, older, base.unwrap_or(root));
    let settled = settle(records, base, trusted);
    let settled = held_at_least(log, &loaded, settled, superblock.is_solo())?;
    let newest = loaded.checkpoint.as_ref().map(|checkpoint| checkpoint.op);
    // An older checkpoint that the journal does not reach back to could never serve.
    let older = loaded.older.filter(|_| contained.is_some()).map(|older| older.op);
    let kept = older.into_iter().chain(newest).collect();
    let (checkpoint, damaged) = (loaded.checkpoint, loaded.damaged);
    let contained = contained.unwrap_or_default();
    Ok(BootLog { log, checkpoint, kept, contained, damaged, settled, rest })
}

/// Whether this node's copy of a log may count. A directory that was formatted and never started
/// has lost nothing; its must-learn marks say that others may have acknowledged in its name. Later
/// the log's own view record carries the mark, and a record without it says that it has learned.
fn is_trusted(recovered: &Recovered, found: &RecoveredLog, log: LogId) -> bool {
    let superblock = &recovered.superblock;
    let marked = superblock.must_learn.contains(&log);
    if superblock.generation == 0 && !superblock.is_solo() {
        return !marked;
    }
    let views = found.records.iter().any(|found| found.record.kind == RecordKind::ViewState);
    recovered.trusted && (views || !marked)
}

/// The operations after `older` up to `newest`, rising; none if the journal does not hold them all,
/// or if they are more than is carried for this reason.
fn contained(
    prepares: &[Arc<Prepare>],
    older: Anchor,
    newest: Anchor,
) -> Option<Vec<Arc<Prepare>>> {
    assert!(older.op <= newest.op, "the newest is the newest");
    let between =
        |prepare: &&Arc<Prepare>| older.op < prepare.header.op && prepare.header.op <= newest.op;
    let by_anchor: BTreeMap<(Op, u128), &Arc<Prepare>> = prepares
        .iter()
        .filter(between)
        .map(|prepare| ((prepare.header.op, prepare.header.checksum), prepare))
        .collect();
    let mut chain = Vec::with_capacity(by_anchor.len());
    let mut at = newest;
    let mut bytes = 0;
    while at.op > older.op {
        let prepare = *by_anchor.get(&(at.op, at.checksum))?;
        at = Anchor { op: Op(at.op.get() - 1), checksum: prepare.header.parent };
        chain.push(Arc::clone(prepare));
        bytes += prepare.size();
        if bytes > CHECKPOINT_OVERLAP_BYTES_MAX {
            return None;
        }
    }
    chain.reverse();
    assert!(chain.windows(2).all(|two| two[1].header.follows(two[0].header.anchor())));
    (at == older).then_some(chain)
}

/// Whether the log reaches as far as its damaged checkpoints did. What they contained was
/// committed, so a solo node must not start without it.
fn held_at_least(
    log: LogId,
    loaded: &Loaded,
    settled: Result<Settled, SettleError>,
    solo: bool,
) -> Result<Settled, BootError> {
    if loaded.damaged.is_empty() {
        return Ok(settled?);
    }
    let needed = loaded.damaged.iter().filter_map(|(file, _)| match file {
        FileName::Checkpoint { op, .. } => Some(*op),
        _ => None,
    });
    let needed = needed.max().expect("checkpoints are damaged");
    let reason = match settled {
        Err(error) => error.to_string(),
        Ok(mut settled) => {
            let head = settled.view_state.suffix.head.op;
            if head >= needed || !solo {
                settled.view_state.must_learn |= head < needed;
                return Ok(settled);
            }
            format!("log {log}: the journal ends at operation {head}, before {needed}")
        }
    };
    Err(BootError::CheckpointsDamaged { log, damaged: named(&loaded.damaged), reason })
}

/// Damaged files in words.
fn named(damaged: &[(FileName, CheckpointError)]) -> String {
    let each: Vec<String> =
        damaged.iter().map(|(file, error)| format!("{file} ({error})")).collect();
    each.join(", ")
}

fn merge_reservations(
    log: LogId,
    found: &RecoveredLog,
    reservations: &mut Reservations,
) -> Result<(), BootError> {
    for recovered in &found.records {
        let record = &recovered.record;
        if record.kind == RecordKind::Reservation {
            let (mode, entries) = reservation::decode(&record.header, &record.body)
                .map_err(|error| BootError::Reservation { log, error })?;
            reservations.merge(mode, &entries);
        }
    }
    Ok(())
}

fn log_records(
    recovered: &Recovered,
    log: LogId,
    found: &RecoveredLog,
) -> Result<LogRecords, BootError> {
    let mut records = LogRecords {
        cluster: recovered.superblock.cluster,
        log,
        replica_count: recovered.superblock.replica_count,
        view_states: Vec::new(),
        prepares: Vec::new(),
        damaged: Vec::new(),
    };
    for recovered in &found.records {
        let record = &recovered.record;
        let op = record.op;
        match record.kind {
            RecordKind::Prepare => {
                let header = PrepareHeader::decode(&record.header)
                    .map_err(|error| BootError::Record { log, op, error })?;
                // The journal has verified the record whole.
                let prepare = Prepare { header, body: record.body.clone() };
                check_operation(log, &prepare)?;
                records.prepares.push(Arc::new(prepare));
            }
            RecordKind::ViewState => {
                let state = ViewState::decode(&record.body.to_bytes())
                    .map_err(|error| BootError::Record { log, op, error })?;
                records.view_states.push(state);
            }
            RecordKind::Reservation | RecordKind::CheckpointPointer => {}
        }
    }
    let lost = found.faulty.iter().map(|lost| (lost, DamageKind::Faulty));
    let lost = lost.chain(found.unknown.iter().map(|lost| (lost, DamageKind::Unknown)));
    records.damaged = lost.filter_map(|(lost, kind)| damaged(lost, kind)).collect();
    Ok(records)
}

fn damaged(lost: &LostRecord, kind: DamageKind) -> Option<DamagedRecord> {
    // A view record whose flush never completed was not advertised either.
    let view_record = lost.kind == RecordKind::ViewState && kind == DamageKind::Faulty;
    let prepare = lost.kind == RecordKind::Prepare;
    let op = prepare.then_some(lost.op);
    (prepare || view_record).then_some(DamagedRecord {
        op,
        header: None,
        checksum: None,
        view_record,
        kind,
    })
}

/// An operation that this build cannot read must stop the start, not the apply.
fn check_operation(log: LogId, prepare: &Prepare) -> Result<(), BootError> {
    if log.is_metadata() || !is_for_user(prepare) {
        return Ok(());
    }
    let op = prepare.header.op;
    match operation::decode(&prepare.body) {
        Ok(_) => Ok(()),
        Err(error) => Err(BootError::Operation { log, op, error }),
    }
}
