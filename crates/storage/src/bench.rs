//! What the unit tests of journal, recovery and generations share.

use crate::disk::{DiskIdentity, DiskSubmissions, Submission, execute};
use crate::generation::{FormatOptions, GenerationOptions, begin_generation, format};
use crate::journal::{
    Journal, JournalOptions, JournalProgress, JournalRecord, RecordClass, RecordKind, RecordSeq,
};
use crate::recovery::{Recovered, recover};
use crate::sim_disk::SimDisk;
use borzoi_types::{Body, ClusterId, Durability, LogId, Op, ReplicaId};
use bytes::Bytes;
use std::collections::BTreeSet;

pub(crate) const OPTIONS: JournalOptions = JournalOptions { file_bytes: 128 * 1024, files_max: 3 };

/// A node of one shard on a simulated disk, its requests executed one at a time.
pub(crate) struct Bench {
    pub disk: SimDisk,
    pub journal: Journal,
    out: DiskSubmissions,
}

pub(crate) fn formatted(replica_count: u8) -> SimDisk {
    let identity = DiskIdentity { boot_id: Some([1; 16]), device: 1, inode: 2 };
    let mut disk = SimDisk::new(identity);
    let options = FormatOptions {
        cluster: ClusterId(7),
        replica: ReplicaId(0),
        replica_count,
        lanes_persisted: 2,
        lanes_replicated: 2,
        must_learn: BTreeSet::new(),
    };
    format(&mut disk, &options).unwrap();
    disk
}

impl Bench {
    pub fn new() -> Self {
        Self::with(OPTIONS)
    }

    pub fn with(journal: JournalOptions) -> Self {
        Self::of(1, journal)
    }

    pub fn of(replica_count: u8, journal: JournalOptions) -> Self {
        let mut disk = formatted(replica_count);
        let recovered = recover(&mut disk).unwrap();
        let must_learn = BTreeSet::new();
        let options = GenerationOptions { shards: 1, journal, must_learn, salt_seed: 5 };
        let begun = begin_generation(&mut disk, &recovered, &options, vec![vec![]]);
        let journal = begun.unwrap().journals.remove(0);
        Self { disk, journal, out: DiskSubmissions::new() }
    }

    pub fn append(&mut self, record: JournalRecord, level: Durability) -> RecordSeq {
        self.journal.append(record, level, RecordClass::Normal).unwrap()
    }

    pub fn drive(&mut self) -> Vec<Submission> {
        self.journal.drive(&mut self.out);
        self.out.drain().collect()
    }

    pub fn run(&mut self, submission: &Submission) -> JournalProgress {
        assert!(self.journal.owns(submission.ticket));
        let result = execute(&mut self.disk, &submission.request);
        self.journal.complete(submission.ticket, result)
    }

    /// Until nothing is left to do.
    pub fn settle(&mut self) {
        loop {
            let submissions = self.drive();
            if submissions.is_empty() {
                return;
            }
            for submission in &submissions {
                self.run(submission);
            }
        }
    }

    pub fn recovered(&self) -> Recovered {
        recover(&mut self.disk.kill()).unwrap()
    }
}

pub(crate) fn prepare(log: u32, op: u64, bytes: usize) -> JournalRecord {
    let fill = (log as u8).wrapping_mul(31) ^ op as u8;
    JournalRecord {
        kind: RecordKind::Prepare,
        log: LogId(log),
        op: Op(op),
        header: Bytes::from(op.to_le_bytes().to_vec()),
        body: Body::from(vec![fill; bytes]),
    }
}

pub(crate) fn view(log: u32, view: u8) -> JournalRecord {
    JournalRecord {
        kind: RecordKind::ViewState,
        log: LogId(log),
        op: Op(0),
        header: Bytes::new(),
        body: Body::from(vec![view; 100]),
    }
}

pub(crate) fn ops(recovered: &Recovered, log: u32) -> Vec<u64> {
    let Some(log) = recovered.logs.get(&LogId(log)) else { return Vec::new() };
    let prepares = log.records.iter().filter(|r| r.record.kind == RecordKind::Prepare);
    prepares.map(|r| r.record.op.get()).collect()
}
