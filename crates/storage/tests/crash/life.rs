//! A node that formats, starts, works, and is restarted with other shard counts, on one simulated
//! disk, with its requests executed in any order the queues allow.

use crate::ledger::{Entry, Ledger, numbers};
use crate::world::Random;
use borzoi_storage::disk::{
    DiskErrorKind, DiskIdentity, DiskOutcome, DiskQueue, DiskRequest, DiskResult, DiskSubmissions,
    DiskTicket, Submission, execute,
};
use borzoi_storage::generation::{
    FormatOptions, GenerationError, GenerationOptions, begin_generation, format,
};
use borzoi_storage::journal::{
    Journal, JournalOptions, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use borzoi_storage::recovery::{Recovered, recover};
use borzoi_storage::sim_disk::{Fault, SimDisk, SyncInFlight};
use borzoi_types::{ClusterId, Durability, LogId, Op, ReplicaId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const BOOT: [u8; 16] = [1; 16];
pub const OTHER_BOOT: [u8; 16] = [2; 16];

/// What a run does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Shard count of each life.
    pub shards: Vec<u16>,
    pub logs: u32,
    pub actions_per_life: u64,
    pub body_bytes_max: u64,
    pub file_bytes: u64,
    pub solo: bool,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // One in four lives long enough to fill, free and reuse files; the others are short and
        // are restarted more often.
        let long = seed % 4 == 3;
        let (shards, actions_per_life) = match (long, random.below(3)) {
            (true, _) => (vec![1], 150),
            (false, 0) => (vec![1, 1], 20 + random.below(30)),
            (false, _) => (vec![1, 2, 1], 20 + random.below(30)),
        };
        Self {
            seed,
            shards,
            logs: 2 + random.below(3) as u32,
            actions_per_life,
            body_bytes_max: if long {
                9_000
            } else {
                [200, 3_000, 9_000][random.below(3) as usize]
            },
            file_bytes: if long { 64 } else { [64, 96][random.below(2) as usize] } * 1024,
            solo: true,
        }
    }

    pub fn large(seed: u64) -> Self {
        Self {
            body_bytes_max: 60_000,
            file_bytes: 1024 * 1024,
            shards: vec![1],
            ..Self::draw(seed)
        }
    }

    fn options(&self, shards: u16, salt_seed: u64) -> GenerationOptions {
        GenerationOptions {
            shards,
            journal: JournalOptions { file_bytes: self.file_bytes, files_max: 4 },
            must_learn: BTreeSet::new(),
            salt_seed,
        }
    }
}

/// A run, as far as it came.
pub struct Run {
    pub plan: Plan,
    pub disk: SimDisk,
    pub ledger: Ledger,
    pub formatted: bool,
    pub write_failed: bool,
    /// What the journals of completed lives have done.
    pub groups: u64,
    pub records_carried: u64,
    pub files_reused: u64,
}

/// The machine has stopped, or the node has.
struct Stopped;

impl Run {
    pub fn to_the_end(plan: &Plan) -> Self {
        let mut run = Self::new(plan);
        assert!(run.live().is_ok(), "nothing stops it");
        run
    }

    pub fn until(plan: &Plan, step: u64) -> Self {
        let mut run = Self::new(plan);
        run.disk.crash_before(step);
        let _ = run.live();
        run
    }

    pub fn with_fault(plan: &Plan, fault: Fault) -> Self {
        let mut run = Self::new(plan);
        run.disk.inject(fault);
        let _ = run.live();
        run.write_failed = run.disk.counters.errors > 0;
        run.disk.heal();
        run
    }

    fn new(plan: &Plan) -> Self {
        let identity = DiskIdentity { boot_id: Some(BOOT), device: 3, inode: 4 };
        Self {
            plan: plan.clone(),
            disk: SimDisk::new(identity),
            ledger: Ledger::default(),
            formatted: false,
            write_failed: false,
            groups: 0,
            records_carried: 0,
            files_reused: 0,
        }
    }

    fn live(&mut self) -> Result<(), Stopped> {
        let options = FormatOptions {
            cluster: ClusterId(7),
            replica: ReplicaId(0),
            replica_count: if self.plan.solo { 1 } else { 3 },
            lanes_persisted: 2,
            lanes_replicated: 2,
            must_learn: BTreeSet::new(),
        };
        format(&mut self.disk, &options).map_err(|_| Stopped)?;
        self.formatted = true;
        for (number, shards) in self.plan.shards.clone().into_iter().enumerate() {
            let recovered = recover(&mut self.disk).map_err(|_| Stopped)?;
            let carried = self.carried(&recovered, shards);
            let salt = self.plan.seed * 1_000 + number as u64;
            let records = carried.iter().map(|shard| self.records(shard)).collect();
            let begun = begin_generation(
                &mut self.disk,
                &recovered,
                &self.plan.options(shards, salt),
                records,
            );
            let begun = begun.map_err(|_| Stopped)?;
            self.settle_ledger(&carried);
            let mut life = Life::new(self, begun.journals, number as u64);
            life.work()?;
        }
        Ok(())
    }

    fn records(&self, numbers: &[usize]) -> Vec<JournalRecord> {
        numbers.iter().map(|number| self.ledger.record(*number)).collect()
    }

    /// What each shard's new journal begins with: what no checkpoint contains, and of the state
    /// records the newest.
    fn carried(&self, recovered: &Recovered, shards: u16) -> Vec<Vec<usize>> {
        let mut carried = vec![Vec::new(); usize::from(shards)];
        for (log, found) in numbers(&self.ledger, recovered).unwrap() {
            let entry = |number: &usize| &self.ledger.entries[*number];
            let last_view =
                found.iter().filter(|n| entry(n).kind == RecordKind::ViewState).max().copied();
            let needed = found.iter().copied().filter(|number| match entry(number).kind {
                RecordKind::ViewState => Some(*number) == last_view,
                _ => entry(number).op > self.ledger.released(log),
            });
            carried[usize::from(log.shard(shards).get())].extend(needed);
        }
        carried
    }

    /// A generation has begun: what it carries is durable, everything else is gone for ever.
    fn settle_ledger(&mut self, carried: &[Vec<usize>]) {
        for entry in &mut self.ledger.entries {
            entry.gone = true;
        }
        for (shard, numbers) in carried.iter().enumerate() {
            for (index, number) in numbers.iter().enumerate() {
                let entry = &mut self.ledger.entries[*number];
                (entry.gone, entry.written, entry.synced) = (false, true, true);
                entry.place = (shard as u16, RecordSeq(index as u64 + 1));
            }
        }
    }

    /// Starts from `disk` with `shards` shards. `None` if the machine crashes meanwhile.
    pub fn restart(&self, disk: &mut SimDisk, shards: u16) -> Option<Recovered> {
        let recovered = match recover(disk) {
            Ok(recovered) => recovered,
            Err(error) => {
                assert!(disk.is_crashed(), "refuses to start: {error}\n{:?}", self.plan);
                return None;
            }
        };
        let carried = self.carried(&recovered, shards);
        let records = carried.iter().map(|shard| self.records(shard)).collect();
        let salt = 77_777 + disk.steps() * 3;
        match begin_generation(disk, &recovered, &self.plan.options(shards, salt), records) {
            Ok(_) => Some(recovered),
            Err(GenerationError::Disk(error)) if error.kind == DiskErrorKind::Crashed => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// A restart that succeeded keeps exactly what the recovery before it found and needed.
    pub fn same_after_restart(&self, before: &Recovered, after: &Recovered) {
        let sorted = |recovered: &Recovered| {
            let mut all: Vec<usize> = self.carried(recovered, 1).into_iter().flatten().collect();
            all.sort_unstable();
            all
        };
        assert_eq!(sorted(before), sorted(after), "a restart changes nothing");
        assert!(after.findings.is_empty(), "a new generation is whole: {:?}", after.findings);
    }
}

/// A flush on its way.
struct Flushing {
    ticket: DiskTicket,
    sync: SyncInFlight,
}

/// One shard's journal with its queues.
struct Shard {
    journal: Journal,
    out: DiskSubmissions,
    writes: VecDeque<Submission>,
    writes_submitted: u64,
    writes_done: u64,
    flushes: VecDeque<(u64, Submission)>,
    flushing: Option<Flushing>,
    pool: VecDeque<Submission>,
    /// Results the shard has not been told yet.
    results: Vec<(DiskTicket, DiskResult)>,
}

struct Life<'a> {
    run: &'a mut Run,
    shards: Vec<Shard>,
    random: Random,
    next_op: BTreeMap<LogId, u64>,
}

impl<'a> Life<'a> {
    fn new(run: &'a mut Run, journals: Vec<Journal>, number: u64) -> Self {
        let shard = |journal| Shard {
            journal,
            out: DiskSubmissions::new(),
            writes: VecDeque::new(),
            writes_submitted: 0,
            writes_done: 0,
            flushes: VecDeque::new(),
            flushing: None,
            pool: VecDeque::new(),
            results: Vec::new(),
        };
        let mut next_op = BTreeMap::new();
        for log in (0..run.plan.logs).map(LogId) {
            let entries = run.ledger.entries.iter();
            let held = entries.filter(|e| e.log == log && !e.gone && e.kind == RecordKind::Prepare);
            let last = held.map(|e| e.op.get()).max().unwrap_or(0);
            next_op.insert(log, last.max(run.ledger.released(log).get()) + 1);
        }
        let random = Random::new(run.plan.seed * 31 + number);
        Self { shards: journals.into_iter().map(shard).collect(), run, random, next_op }
    }

    fn work(&mut self) -> Result<(), Stopped> {
        for _ in 0..self.run.plan.actions_per_life {
            match self.random.below(12) {
                0..=5 => self.append(),
                6 => self.release(),
                7 => self.settle()?,
                _ => {
                    for _ in 0..self.random.below(4) {
                        self.step()?;
                    }
                }
            }
            self.drive();
        }
        self.settle()?;
        for shard in &self.shards {
            let usage = shard.journal.usage();
            let files = usage.bytes_written / self.run.plan.file_bytes;
            self.run.groups += usage.groups;
            self.run.records_carried += usage.records_carried;
            self.run.files_reused += files.saturating_sub(u64::from(usage.files_live));
        }
        Ok(())
    }

    fn append(&mut self) {
        let log = LogId(self.random.below(u64::from(self.run.plan.logs)) as u32);
        let view = self.random.one_in(8);
        let replicated = log.get() >= 2;
        let op = self.next_op[&log];
        let number = self.run.ledger.entries.len();
        let shard = log.shard(self.shards.len() as u16).get();
        self.run.ledger.entries.push(Entry {
            kind: if view { RecordKind::ViewState } else { RecordKind::Prepare },
            log,
            op: Op(if view { op - 1 } else { op }),
            bytes: self.random.below(self.run.plan.body_bytes_max) as usize,
            level: if replicated && !view { Durability::Replicated } else { Durability::Persisted },
            place: (shard, RecordSeq::ZERO),
            written: false,
            synced: false,
            gone: false,
        });
        let record = self.run.ledger.record(number);
        let level = self.run.ledger.entries[number].level;
        let class = if view { RecordClass::Reserved } else { RecordClass::Normal };
        let journal = &mut self.shards[usize::from(shard)].journal;
        match journal.append(record, level, class) {
            Ok(sequence) => {
                self.run.ledger.entries[number].place.1 = sequence;
                if !view {
                    self.next_op.insert(log, op + 1);
                }
            }
            Err(_) => {
                self.run.ledger.entries.pop();
            }
        }
    }

    /// Checkpoints a log: everything acknowledged of it up to some op is contained.
    fn release(&mut self) {
        let log = LogId(self.random.below(u64::from(self.run.plan.logs)) as u32);
        // One log lags behind for ever in some runs, and has to be carried forward.
        if self.run.plan.seed.is_multiple_of(3) && log.get() == 1 {
            return;
        }
        let entries = self.run.ledger.entries.iter();
        let synced = entries.filter(|e| e.log == log && !e.gone && e.synced);
        let Some(through) = synced.map(|e| e.op).max() else { return };
        let through = through.max(self.run.ledger.released(log));
        self.run.ledger.released.insert(log, through);
        let shard = log.shard(self.shards.len() as u16).get();
        self.shards[usize::from(shard)].journal.release(log, through);
    }

    fn drive(&mut self) {
        for shard in &mut self.shards {
            shard.journal.drive(&mut shard.out);
            for submission in shard.out.drain() {
                match submission.queue {
                    DiskQueue::JournalWrite => {
                        shard.writes_submitted += 1;
                        shard.writes.push_back(submission);
                    }
                    DiskQueue::JournalFlush => {
                        shard.flushes.push_back((shard.writes_submitted, submission));
                    }
                    DiskQueue::Pool => shard.pool.push_back(submission),
                }
            }
        }
    }

    /// Until nothing is left to do.
    fn settle(&mut self) -> Result<(), Stopped> {
        loop {
            self.drive();
            if !self.step()? {
                self.drive();
                if self.shards.iter().all(Shard::is_at_rest) {
                    return Ok(());
                }
            }
        }
    }

    /// One thing that one of the workers may do next. Returns whether there was any.
    fn step(&mut self) -> Result<bool, Stopped> {
        let first = self.random.next() as usize;
        for turn in 0..self.shards.len() * 5 {
            let index = (first + turn) % (self.shards.len() * 5);
            let shard = &mut self.shards[index / 5];
            if shard.work(index % 5, &mut self.run.disk)? {
                self.note_progress(index / 5);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn note_progress(&mut self, index: usize) {
        let progress = self.shards[index].journal.progress().clone();
        for entry in &mut self.run.ledger.entries {
            let (shard, sequence) = entry.place;
            if usize::from(shard) == index && !entry.gone && sequence > RecordSeq::ZERO {
                entry.written |= sequence <= progress.written_through;
                entry.synced |= sequence <= progress.synced_through;
            }
        }
    }
}

impl Shard {
    fn is_at_rest(&self) -> bool {
        self.writes.is_empty()
            && self.flushes.is_empty()
            && self.flushing.is_none()
            && self.pool.is_empty()
            && self.results.is_empty()
            && self.journal.is_idle()
    }

    /// Lets worker `which` do its next piece. Returns whether it had one.
    fn work(&mut self, which: usize, disk: &mut SimDisk) -> Result<bool, Stopped> {
        match which {
            0 => {
                let Some(submission) = self.writes.pop_front() else { return Ok(false) };
                let result = run(disk, &submission)?;
                self.writes_done += 1;
                self.results.push((submission.ticket, result));
            }
            1 => {
                let ready =
                    self.flushes.front().is_some_and(|(after, _)| *after <= self.writes_done);
                if !ready || self.flushing.is_some() {
                    return Ok(false);
                }
                let (_, submission) = self.flushes.pop_front().unwrap();
                let DiskRequest::Sync { file } = &submission.request else { panic!("a flush") };
                let sync = disk.start_sync(file).map_err(|_| Stopped)?;
                self.flushing = Some(Flushing { ticket: submission.ticket, sync });
            }
            2 => {
                let Some(flushing) = self.flushing.take() else { return Ok(false) };
                let result = disk.finish_sync(&flushing.sync).map(|()| DiskOutcome::Done);
                stop_if_crashed(&result)?;
                self.results.push((flushing.ticket, result));
            }
            3 => {
                let Some(submission) = self.pool.pop_front() else { return Ok(false) };
                let result = run(disk, &submission)?;
                self.results.push((submission.ticket, result));
            }
            _ => {
                if self.results.is_empty() {
                    return Ok(false);
                }
                for (ticket, result) in self.results.drain(..) {
                    if self.journal.complete(ticket, result).failed.is_some() {
                        return Err(Stopped);
                    }
                }
            }
        }
        Ok(true)
    }
}

fn run(disk: &mut SimDisk, submission: &Submission) -> Result<DiskResult, Stopped> {
    let result = execute(disk, &submission.request);
    stop_if_crashed(&result)?;
    Ok(result)
}

fn stop_if_crashed(result: &DiskResult) -> Result<(), Stopped> {
    match result {
        Err(error) if error.kind == DiskErrorKind::Crashed => Err(Stopped),
        _ => Ok(()),
    }
}
