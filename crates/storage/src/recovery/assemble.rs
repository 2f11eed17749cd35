//! From the files of one shard's journal to what each log may rely on.
//!
//! Files are followed in order of their place in the journal; the synced mark S is the highest one
//! any intact trailer carries, and at least the end of every file that has a successor, because a
//! file is flushed before the next one begins.

use super::scan::{End, Piece, Scan, scan_file};
use super::table::{Decision, Situation, Verdict, decide};
use super::{Finding, LostRecord, RecoveredLog, RecoveredRecord, RecoveryError};
use crate::checkpoint::covers;
use crate::disk::{AsideName, Disk, DiskError, FileName};
use crate::journal::layout::{FILE_HEADER_BYTES, FileHeader};
use crate::journal::{RecordSeq, Retention};
use borzoi_types::{LogId, Op, ShardId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What the first sectors of a journal file of the live generation say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub header: FileHeader,
    /// Both copies of the header are intact.
    pub whole: bool,
}

/// What the journals of a generation hold, over all shards.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub logs: BTreeMap<LogId, RecoveredLog>,
    pub findings: Vec<Finding>,
    /// Slots that belong to the live generation and must not be touched before the switch.
    pub live: Vec<u32>,
    /// Bytes that a cut took from a solo node.
    pub aside: Vec<(FileName, Bytes)>,
    /// Damage that nobody can name.
    pub nameless: bool,
    /// Evidence that the tail is not complete.
    pub distrust: bool,
    /// How far checkpoints contain the logs of which a record is damaged.
    covered: BTreeMap<LogId, Option<Op>>,
}

/// What every decision needs to know of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub solo: bool,
    pub trusted: bool,
    pub generation: u64,
}

impl Assembly {
    /// Adds the journal of `shard`, whose files' headers are `heads`, by their place in it, and of
    /// which files before `known` are not needed. Returns the oldest file that is.
    pub(crate) fn add_shard(
        &mut self,
        disk: &mut dyn Disk,
        shard: ShardId,
        heads: &BTreeMap<u64, Head>,
        known: u64,
        node: Node,
    ) -> Result<u64, RecoveryError> {
        let (files, oldest) = self.follow(disk, heads, known)?;
        assert!(oldest >= known, "what is not needed is never needed again");
        assert!(heads.iter().all(|(place, head)| *place == head.header.file_sequence));
        self.report_missing(shard, &files, oldest, node)?;
        let live: Vec<Scan> =
            files.into_values().filter(|scan| scan.header.file_sequence >= oldest).collect();
        let mark = synced_mark(&live);
        assert!(live.iter().all(|scan| scan.synced_through <= mark));
        self.report_shortened(&live, node)?;
        let mut orders = BTreeMap::new();
        let mut cut = false;
        let last_trailer = live.iter().map(|scan| scan.last_group).max().unwrap_or(0);
        for scan in &live {
            self.live.push(scan.header.slot);
            // Files whose headers are gone have been reported where they were found.
            let whole = heads.get(&scan.header.file_sequence).is_none_or(|head| head.whole);
            self.report_repairable(scan, mark, whole);
            for piece in &scan.pieces {
                let situation = Situation {
                    below_mark: piece.group <= mark,
                    intact: piece.found.is_some(),
                    named: piece.named.is_some(),
                    followed: piece.group < last_trailer,
                    covered: self.is_covered(disk, piece, mark)?,
                    after_cut: cut,
                    solo: node.solo,
                    trusted: node.trusted,
                };
                let decision = decide(situation);
                self.apply(piece, decision, scan, node, &mut orders)?;
                cut |= decision.verdict.cuts();
            }
        }
        assert!(live.len() <= self.live.len(), "what is needed is not touched");
        self.sort_logs(orders);
        Ok(oldest)
    }

    /// Whether a checkpoint contains what a damaged record said. Checkpoints are read only if
    /// something durable is damaged.
    fn is_covered(
        &mut self,
        disk: &mut dyn Disk,
        piece: &Piece,
        mark: u64,
    ) -> Result<bool, DiskError> {
        match piece.named {
            Some((kind, log, op))
                if piece.group <= mark
                    && piece.found.is_none()
                    && kind.retention() == Retention::UntilReleased =>
            {
                covers(disk, &mut self.covered, log, op)
            }
            _ => Ok(false),
        }
    }

    /// Scans the files from the newest back to the oldest that is needed, each with the help of
    /// the one after it. A file whose header is gone is found through the end of the one before.
    /// Returns the scans by place, and the place of the oldest needed file.
    fn follow(
        &mut self,
        disk: &mut dyn Disk,
        heads: &BTreeMap<u64, Head>,
        known: u64,
    ) -> Result<(BTreeMap<u64, Scan>, u64), RecoveryError> {
        let mut scans: BTreeMap<u64, Scan> = BTreeMap::new();
        let Some((&newest, head)) = heads.last_key_value() else { return Ok((scans, known)) };
        let mut scan = scan_file(&read_whole(disk, head.header.slot)?, &head.header, None);
        // Each round finds a file that is not in `heads`; there are finitely many slots.
        while let Some(lost) = lost_successor(disk, &scan, None)? {
            let file = FileName::Journal(lost.header.slot);
            self.findings.push(Finding::Repairable { file, offset: 0 });
            scans.insert(scan.header.file_sequence, scan);
            scan = lost;
        }
        let mut oldest = scan.oldest_live_file.max(known);
        scans.insert(scan.header.file_sequence, scan);
        for (&place, head) in heads.range(..newest).rev() {
            let next = scans.get(&(place + 1)).map(|scan| scan.header);
            oldest = scans.values().map(|scan| scan.oldest_live_file).fold(oldest, u64::max);
            if place < oldest {
                break;
            }
            let bounds = next.map(|next| (next.first_group, next.first_record));
            let scan = scan_file(&read_whole(disk, head.header.slot)?, &head.header, bounds);
            if bounds.is_none() {
                let after = scans.get(&(place + 2)).map(|scan| scan.header);
                let after = after.map(|after| (after.first_group, after.first_record));
                if let Some(lost) = lost_successor(disk, &scan, after)? {
                    let file = FileName::Journal(lost.header.slot);
                    self.findings.push(Finding::Repairable { file, offset: 0 });
                    scans.insert(place + 1, lost);
                }
            }
            scans.insert(place, scan);
        }
        assert!(scans.contains_key(&newest), "the newest is always read");
        let placed = scans.iter().all(|(place, scan)| scan.header.file_sequence == *place);
        assert!(placed && oldest >= known, "each in its place");
        Ok((scans, oldest))
    }

    /// Files between the oldest live and the newest one that are not there.
    fn report_missing(
        &mut self,
        shard: ShardId,
        files: &BTreeMap<u64, Scan>,
        oldest: u64,
        node: Node,
    ) -> Result<(), RecoveryError> {
        let newest = files.keys().next_back().copied().unwrap_or(0);
        let Some(missing) = (oldest..=newest).find(|place| !files.contains_key(place)) else {
            return Ok(());
        };
        let what = format!(
            "file {missing} of the journal of shard {shard}, generation {}, is missing or its \
             header is damaged",
            node.generation
        );
        let file = FileName::Journal(files.values().next().map_or(0, |scan| scan.header.slot));
        if node.solo {
            return Err(RecoveryError::Damaged { file, offset: 0, named: None, what });
        }
        self.nameless = true;
        self.findings.push(Finding::DamagedNameless { file, offset: 0, what });
        Ok(())
    }

    /// Files that have lost their end. They are made at their full length, synced, before they are
    /// used, so no crash shortens one; and nothing that is left says how much the lost end held.
    fn report_shortened(&mut self, live: &[Scan], node: Node) -> Result<(), RecoveryError> {
        for scan in live {
            let (bytes, made) = (scan.data.len() as u64, scan.header.file_bytes);
            if bytes >= made {
                continue;
            }
            let file = FileName::Journal(scan.header.slot);
            let what = format!("the file has {bytes} bytes and was made with {made}");
            if node.solo {
                return Err(RecoveryError::Damaged { file, offset: bytes, named: None, what });
            }
            self.nameless = true;
            self.findings.push(Finding::DamagedNameless { file, offset: bytes, what });
        }
        Ok(())
    }

    /// Sectors that were durable and are bad, but whose content is known without them.
    fn report_repairable(&mut self, scan: &Scan, mark: u64, header_whole: bool) {
        let file = FileName::Journal(scan.header.slot);
        if scan.header.first_group <= mark && !header_whole {
            self.findings.push(Finding::Repairable { file: file.clone(), offset: 0 });
        }
        for &(group, offset) in &scan.holes {
            let bad = |piece: &Piece| piece.group == group && piece.found.is_none();
            if group <= mark && !scan.pieces.iter().any(bad) {
                self.findings.push(Finding::Repairable { file: file.clone(), offset });
            }
        }
        assert!(scan.written_end >= FILE_HEADER_BYTES);
    }

    fn apply(
        &mut self,
        piece: &Piece,
        decision: Decision,
        scan: &Scan,
        node: Node,
        orders: &mut BTreeMap<LogId, Vec<RecordSeq>>,
    ) -> Result<(), RecoveryError> {
        let file = FileName::Journal(scan.header.slot);
        let offset = piece.offset;
        self.distrust |= decision.distrust;
        let lost = piece
            .named
            .map(|(kind, log, op)| (log, LostRecord { kind, op, file: file.clone(), offset }));
        match decision.verdict {
            Verdict::Proved | Verdict::Kept => {
                let (record, order) = piece.found.clone().expect("kept because it is intact");
                assert!(order <= piece.sequence, "a copy is younger than its original");
                let as_named = (record.kind, record.log, record.op);
                assert!(piece.named.is_none_or(|named| named == as_named), "as its trailer says");
                let below_mark = decision.verdict == Verdict::Proved;
                let log = record.log;
                orders.entry(log).or_default().push(order);
                let records = &mut self.logs.entry(log).or_default().records;
                records.push(RecoveredRecord { record, below_mark });
            }
            Verdict::Refused | Verdict::Contradiction => {
                let named = piece.named.map(|(_, log, op)| (log, op));
                let what = match piece.named {
                    Some((kind, log, op)) => {
                        format!("{kind:?} of log {log}, op {op}, was durable and is not readable")
                    }
                    None => format!(
                        "record {} was durable, it is not readable, and neither is the trailer \
                         that names it",
                        piece.sequence.0
                    ),
                };
                return Err(RecoveryError::Damaged { file, offset, named, what });
            }
            Verdict::Faulty => {
                let (log, lost) = lost.expect("named");
                self.findings.push(Finding::Damaged { file, offset, log, op: lost.op });
                self.logs.entry(log).or_default().faulty.push(lost);
            }
            Verdict::Covered => {
                let (log, lost) = lost.expect("named");
                self.findings.push(Finding::Covered { file, offset, log, op: lost.op });
            }
            Verdict::FaultyNameless => {
                self.nameless = true;
                let what = format!("record {} was durable and is not readable", piece.sequence.0);
                self.findings.push(Finding::DamagedNameless { file, offset, what });
            }
            Verdict::Torn => self.findings.push(Finding::Torn { file, offset }),
            Verdict::Unknown => {
                let (log, lost) = lost.expect("named");
                self.findings.push(Finding::Unknown { file, offset, log, op: lost.op });
                self.logs.entry(log).or_default().unknown.push(lost);
            }
            Verdict::CutAside => {
                let (log, lost) = lost.expect("named");
                let aside = self.set_aside(scan, offset, node);
                self.findings.push(Finding::SetAside { file, offset, log, op: lost.op, aside });
            }
            Verdict::Void => {}
        }
        Ok(())
    }

    fn set_aside(&mut self, scan: &Scan, offset: u64, node: Node) -> FileName {
        let slot = scan.header.slot;
        assert!(offset < scan.written_end, "a named record lies before its trailer");
        let name = format!("generation-{}-journal-{slot:08}-at-{offset}.cut", node.generation);
        let aside = FileName::SetAside(AsideName::new(&name));
        let at = |position: u64| usize::try_from(position).expect("inside the file");
        assert!(scan.written_end <= scan.data.len() as u64, "inside the file");
        let bytes = scan.data.slice(at(offset)..at(scan.written_end));
        self.aside.push((aside.clone(), bytes));
        aside
    }

    /// Puts each log's records into the order of their first writing; of copies of one record the
    /// one that is proved stays.
    fn sort_logs(&mut self, orders: BTreeMap<LogId, Vec<RecordSeq>>) {
        for (log, orders) in orders {
            let recovered = self.logs.get_mut(&log).expect("it has records");
            let kept_before = recovered.records.len() - orders.len();
            let added = recovered.records.split_off(kept_before);
            let mut keyed: Vec<(RecordSeq, RecoveredRecord)> =
                orders.into_iter().zip(added).collect();
            keyed.sort_by_key(|(order, record)| (*order, !record.below_mark));
            keyed.dedup_by_key(|(order, _)| *order);
            assert!(keyed.is_sorted_by(|a, b| a.0 < b.0), "each place is taken once");
            recovered.records.extend(keyed.into_iter().map(|(_, record)| record));
            assert!(recovered.records.len() >= kept_before);
        }
    }
}

/// S: the highest group that is proved to have been durable.
fn synced_mark(live: &[Scan]) -> u64 {
    let marked = live.iter().map(|scan| scan.synced_through).max().unwrap_or(0);
    let rising = |two: &[Scan]| two[0].header.first_group < two[1].header.first_group;
    assert!(live.windows(2).all(rising), "files follow each other");
    let followed = live.iter().skip(1).map(|scan| scan.header.first_group - 1).max().unwrap_or(0);
    marked.max(followed)
}

/// The file after the one of `scan`, if that one has ended and its successor's header is gone but
/// something has been written there: the end says under which salt. `after` is where the file
/// after that one begins, if there is one.
fn lost_successor(
    disk: &mut dyn Disk,
    scan: &Scan,
    after: Option<(u64, RecordSeq)>,
) -> Result<Option<Scan>, DiskError> {
    let Some(end) = scan.end else { return Ok(None) };
    let End { next, first_group, first_record, previous } = end;
    assert_eq!(first_group, scan.last_group + 1, "nothing follows the end of a file");
    let file = FileName::Journal(next.slot);
    let Some(file_bytes) = disk.len(&file)? else { return Ok(None) };
    let header = FileHeader {
        file_sequence: scan.header.file_sequence + 1,
        slot: next.slot,
        file_bytes,
        salt: next.salt,
        first_group,
        first_record,
        previous,
        ..scan.header
    };
    let found = scan_file(&read_whole(disk, next.slot)?, &header, after);
    assert_eq!(found.header.first_group, first_group, "it begins where the other ends");
    let written = !found.pieces.is_empty() || found.last_group >= first_group;
    Ok(written.then_some(found))
}

fn read_whole(disk: &mut dyn Disk, slot: u32) -> Result<Bytes, DiskError> {
    let file = FileName::Journal(slot);
    let bytes = disk.len(&file)?.unwrap_or(0);
    let data = disk.read(&file, 0, bytes)?;
    assert!(data.len() as u64 <= bytes, "a read returns at most what was asked for");
    Ok(data)
}
