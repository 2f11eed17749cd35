//! What a run has promised, and the comparison with what recovery finds.

use borzoi_storage::journal::{JournalRecord, RecordKind, RecordSeq};
use borzoi_storage::recovery::Recovered;
use borzoi_types::{Body, Durability, LogId, Op};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What a crash leaves: everything written, or what was synced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Written,
    Synced,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: RecordKind,
    pub log: LogId,
    pub op: Op,
    pub bytes: usize,
    pub level: Durability,
    /// Which shard's journal holds it, and under which sequence, in this life.
    pub place: (u16, RecordSeq),
    pub written: bool,
    pub synced: bool,
    /// A start found it missing or let it go: it must never come back.
    pub gone: bool,
}

#[derive(Clone, Default, Debug)]
pub struct Ledger {
    pub entries: Vec<Entry>,
    pub released: BTreeMap<LogId, Op>,
}

impl Ledger {
    pub fn record(&self, number: usize) -> JournalRecord {
        let entry = &self.entries[number];
        JournalRecord {
            kind: entry.kind,
            log: entry.log,
            op: entry.op,
            header: Bytes::from((number as u64).to_le_bytes().to_vec()),
            body: Body::from(vec![number as u8 ^ 0x5a; entry.bytes]),
        }
    }

    pub fn released(&self, log: LogId) -> Op {
        self.released.get(&log).copied().unwrap_or(Op::ZERO)
    }

    /// Whether the entry has been acknowledged, as far as `level` is concerned.
    fn is_promised(&self, entry: &Entry, level: Level) -> bool {
        let at_its_level = match entry.level {
            Durability::Persisted => entry.synced,
            Durability::Replicated => entry.written,
        };
        !entry.gone && at_its_level && (level == Level::Written || entry.synced)
    }

    /// Whether nothing needs the entry any more.
    fn is_unneeded(&self, number: usize) -> bool {
        let entry = &self.entries[number];
        match entry.kind {
            RecordKind::Prepare | RecordKind::Reservation => entry.op <= self.released(entry.log),
            RecordKind::ViewState | RecordKind::CheckpointPointer => false,
        }
    }
}

/// The numbers of the recovered records, per log in recovered order; an error if one is unknown.
pub fn numbers(
    ledger: &Ledger,
    recovered: &Recovered,
) -> Result<BTreeMap<LogId, Vec<usize>>, String> {
    let mut all = BTreeMap::new();
    for (log, found) in &recovered.logs {
        let mut numbers = Vec::new();
        for record in &found.records {
            let header = &record.record.header;
            let number = header.as_ref().try_into().map(u64::from_le_bytes);
            let number = number.map_err(|_| format!("a header of {} bytes", header.len()))?;
            let number = usize::try_from(number).map_err(|_| "a wild number".to_owned())?;
            if number >= ledger.entries.len() || record.record != ledger.record(number) {
                return Err(format!("log {log}: record {number} was never appended"));
            }
            numbers.push(number);
        }
        all.insert(*log, numbers);
    }
    Ok(all)
}

/// Operations promised at `level` and needed that `recovered` does not hold.
pub fn missing(ledger: &Ledger, recovered: &Recovered, level: Level) -> Vec<(LogId, Op)> {
    let found = numbers(ledger, recovered).unwrap();
    let found: BTreeSet<usize> = found.values().flatten().copied().collect();
    let newest: BTreeMap<(LogId, RecordKind), usize> =
        found.iter().map(|n| ((ledger.entries[*n].log, ledger.entries[*n].kind), *n)).collect();
    let mut missing = Vec::new();
    for (number, entry) in ledger.entries.iter().enumerate() {
        let superseded = entry.kind == RecordKind::ViewState
            && newest.get(&(entry.log, entry.kind)).is_some_and(|newest| *newest > number);
        if ledger.is_promised(entry, level)
            && !ledger.is_unneeded(number)
            && !superseded
            && !found.contains(&number)
            && !is_superseded_promise(ledger, number, level)
        {
            missing.push((entry.log, entry.op));
        }
    }
    missing
}

/// A state record may be forgotten once a newer one has been promised.
fn is_superseded_promise(ledger: &Ledger, number: usize, level: Level) -> bool {
    let entry = &ledger.entries[number];
    entry.kind == RecordKind::ViewState
        && ledger.entries[number + 1..].iter().any(|later| {
            later.log == entry.log && later.kind == entry.kind && ledger.is_promised(later, level)
        })
}

/// Holds `recovered` against the promises.
pub fn check(ledger: &Ledger, recovered: &Recovered, level: Level) -> Result<(), String> {
    let found = numbers(ledger, recovered)?;
    let missing = missing(ledger, recovered, level);
    if !missing.is_empty() {
        return Err(format!("acknowledged and lost at {level:?}: {missing:?}"));
    }
    for (log, numbers) in &found {
        if numbers.windows(2).any(|two| two[0] >= two[1]) {
            return Err(format!("log {log}: twice, or out of order: {numbers:?}"));
        }
        if let Some(back) = numbers.iter().find(|number| ledger.entries[**number].gone) {
            return Err(format!("log {log}: record {back} had been given up and is back"));
        }
        let ops: Vec<u64> = numbers
            .iter()
            .map(|number| &ledger.entries[*number])
            .filter(|e| e.kind == RecordKind::Prepare && e.op > ledger.released(*log))
            .map(|e| e.op.get())
            .collect();
        let holes = ops.windows(2).any(|two| two[0] + 1 != two[1]);
        let late = ops.first().is_some_and(|first| *first != ledger.released(*log).get() + 1);
        if holes || late {
            let released = ledger.released(*log);
            return Err(format!("log {log}: not a prefix after {released}: {ops:?}"));
        }
    }
    Ok(())
}
