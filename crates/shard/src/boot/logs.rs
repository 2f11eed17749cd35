//! Each log as the directory holds it: checkpoint, settled suffix, reservations.

use super::BootError;
use crate::lane::checkpoint::restore;
use crate::lane::operation;
use crate::lane::reservation::{self, Reservation, ReservationMode, Reservations};
use crate::lane::state::LaneState;
use crate::log_host::{is_for_user, prepare_record, view_state_record};
use crate::options::Lanes;
use borzoi_consensus::{
    Anchor, DamageKind, DamagedRecord, LogRecords, Prepare, PrepareHeader, Settled, ViewState,
    settle,
};
use borzoi_storage::checkpoint::{Checkpoint, load_newest, obsolete};
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_storage::journal::{JournalRecord, RecordKind};
use borzoi_storage::recovery::{LostRecord, Recovered, RecoveredLog};
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
    pub(super) settled: Settled,
    pub(super) rest: LaneRest,
}

impl BootLog {
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
        records.push(view_state_record(&carried.view_state));
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
    let mut logs = BTreeMap::new();
    for log in lanes.logs() {
        logs.insert(log, read_log(disk, recovered, lanes, log)?);
    }
    Ok(logs)
}

fn read_log(
    disk: &mut dyn Disk,
    recovered: &Recovered,
    lanes: Lanes,
    log: LogId,
) -> Result<BootLog, BootError> {
    let (checkpoint, kept) = read_checkpoints(disk, log)?;
    let nothing = RecoveredLog::default();
    let found = recovered.logs.get(&log).unwrap_or(&nothing);
    let superblock = &recovered.superblock;
    let trusted = is_trusted(recovered, found, log);
    let mut rest = match &checkpoint {
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
    let base = checkpoint.as_ref().filter(|checkpoint| checkpoint.op > Op::ZERO);
    let base = base.map(|c| Anchor { op: c.op, checksum: c.prepare_checksum });
    let settled = settle(records, base, trusted)?;
    Ok(BootLog { log, checkpoint, kept, settled, rest })
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

/// The newest intact checkpoint and the operations of those that are kept; damaged ones are set
/// aside, older ones removed.
fn read_checkpoints(
    disk: &mut dyn Disk,
    log: LogId,
) -> Result<(Option<Checkpoint>, Vec<Op>), BootError> {
    let loaded = load_newest(disk, log)?;
    for (file, _) in &loaded.damaged {
        disk.set_aside(file)?;
    }
    let Some(checkpoint) = loaded.checkpoint else {
        return Ok((None, Vec::new()));
    };
    let files = disk.list(Directory::Checkpoints)?.files;
    for file in obsolete(log, checkpoint.op, &files) {
        disk.remove(&file)?;
    }
    let mut kept: Vec<Op> = disk
        .list(Directory::Checkpoints)?
        .files
        .iter()
        .filter_map(|file| match file {
            FileName::Checkpoint { log: of, op } if *of == log => Some(*op),
            _ => None,
        })
        .collect();
    kept.sort_unstable();
    // A process that was killed between the rename and the sync of the directory leaves a name that
    // the next power cut may take back. From here on the new generation relies on it.
    for op in &kept {
        disk.sync(&FileName::Checkpoint { log, op: *op })?;
    }
    assert_eq!(kept.last(), Some(&checkpoint.op), "newer ones were set aside");
    Ok((Some(checkpoint), kept))
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
