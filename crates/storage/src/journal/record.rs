//! What callers put into the journal and get back from it.

use crate::disk::FileName;
use borzoi_types::{Body, LogId, Op};
use bytes::Bytes;
use core::fmt;

/// Position of a record in the journal of one generation, in order of writing; the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordSeq(pub u64);

impl RecordSeq {
    /// Before the first record.
    pub const ZERO: Self = Self(0);

    /// The sequence after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(next) => Self(next),
            None => panic!("2^64 records take centuries"),
        }
    }
}

impl fmt::Debug for RecordSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordSeq({})", self.0)
    }
}

/// What a record is, and with that how long it is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// An operation of a log; `op` is its own.
    Prepare = 1,
    /// View, log view and adopted suffix of a log; `op` is the head it adopts.
    ViewState = 2,
    /// Offsets reserved ahead; `op` is the log's head when it was made, so that it is released
    /// together with the prepares before it, by a checkpoint that contains it.
    Reservation = 3,
    /// Which checkpoint of a log is the newest; `op` is the checkpoint's.
    CheckpointPointer = 4,
}

/// Until when the journal keeps a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retention {
    /// Until its log is released through its op.
    UntilReleased,
    /// Until a newer record of the same log and kind is durable.
    Newest,
}

impl RecordKind {
    /// The kind stored under `byte`, if it is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Prepare),
            2 => Some(Self::ViewState),
            3 => Some(Self::Reservation),
            4 => Some(Self::CheckpointPointer),
            _ => None,
        }
    }

    /// How long records of this kind are kept.
    #[must_use]
    pub const fn retention(self) -> Retention {
        match self {
            Self::Prepare | Self::Reservation => Retention::UntilReleased,
            Self::ViewState | Self::CheckpointPointer => Retention::Newest,
        }
    }
}

/// Which share of the journal a record may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RecordClass {
    /// Ordinary operations.
    Normal,
    /// What must go through when the journal is full: view records, commits, deletes, truncates,
    /// checkpoints.
    Reserved,
}

/// One record: two opaque byte strings of a log under a kind and an operation number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecord {
    /// What it is.
    pub kind: RecordKind,
    /// Whose it is.
    pub log: LogId,
    /// Its operation number; see [`RecordKind`] for what it means for each kind.
    pub op: Op,
    /// Small, copied into the journal's buffers.
    pub header: Bytes,
    /// Written from where it lies.
    pub body: Body,
}

/// Where a record lies on disk. Valid until its file is reused, which
/// [`Journal::decode_located`](crate::journal::Journal::decode_located) notices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordLocation {
    /// The file to read.
    pub file: FileName,
    /// Position of the record in it.
    pub offset: u64,
    /// Length of the record.
    pub bytes: u64,
    /// The record's sequence.
    pub sequence: RecordSeq,
    pub(crate) salt: u64,
}
