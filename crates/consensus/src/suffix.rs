//! The uncommitted end of a log: what view changes and view records carry.
//!
//! Invariants of a [`LogSuffix`]: its headers are contiguous and hash-chained, the last one is the
//! head, and there is one piece of evidence per header. With no headers the head stands alone
//! (everything up to it is committed).

use crate::codec::{DecodeError, Reader, Writer};
use crate::header::{Anchor, HEADER_BYTES, PrepareHeader};
use borzoi_types::{Op, limits};

/// Most uncommitted operations of a log. Twice the pipeline: a new primary inherits at most a
/// pipeline and adds one operation of its own; several view changes without a commit add one
/// each, and a primary that reaches this limit first commits what it inherited.
pub const SUFFIX_OPS_MAX: usize = 2 * limits::PIPELINE_OPS_MAX;

const _: () = assert!(SUFFIX_OPS_MAX > limits::PIPELINE_OPS_MAX + 1);

/// What one replica can say about one operation of its log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Evidence {
    /// It never held this operation at the log's level, so it never acknowledged it: a nack.
    Clean = 0,
    /// It holds the operation, body included.
    Held = 1,
    /// It held the operation and the bytes are damaged: never a nack.
    Faulty = 2,
    /// Its record was damaged by a crash at a place where it may or may not have been
    /// acknowledged: never a nack, but worth nothing once every replica has answered.
    Unknown = 3,
}

impl Evidence {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Clean),
            1 => Some(Self::Held),
            2 => Some(Self::Faulty),
            3 => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// The end of a log: every header above some committed operation, and the head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSuffix {
    /// The last operation of the log.
    pub head: Anchor,
    /// Headers in rising order, ending with the head; empty when nothing is uncommitted.
    pub headers: Vec<PrepareHeader>,
    /// One entry per header.
    pub evidence: Vec<Evidence>,
}

impl LogSuffix {
    /// A log in which everything up to `head` is committed.
    #[must_use]
    pub const fn committed(head: Anchor) -> Self {
        Self { head, headers: Vec::new(), evidence: Vec::new() }
    }

    /// The operation just below the first header; the head when there are no headers.
    #[must_use]
    pub fn below(&self) -> Anchor {
        self.headers.first().map_or(self.head, |first| Anchor {
            op: Op(first.op.get() - 1),
            checksum: first.parent,
        })
    }

    /// Header and evidence of `op`, if the suffix reaches down to it.
    #[must_use]
    pub fn get(&self, op: Op) -> Option<(&PrepareHeader, Evidence)> {
        let first = self.headers.first()?.op;
        let index = usize::try_from(op.get().checked_sub(first.get())?).ok()?;
        let header = self.headers.get(index)?;
        assert_eq!(header.op, op, "headers stand without gaps");
        Some((header, *self.evidence.get(index)?))
    }

    /// The identity of `op`, if the suffix knows it.
    #[must_use]
    pub fn checksum_at(&self, op: Op) -> Option<u128> {
        if op == self.head.op {
            return Some(self.head.checksum);
        }
        if op == self.below().op {
            return Some(self.below().checksum);
        }
        self.get(op).map(|(header, _)| header.checksum)
    }

    /// Whether the module's invariants hold.
    #[must_use]
    pub fn is_chained(&self) -> bool {
        if self.headers.len() != self.evidence.len() || self.headers.len() > SUFFIX_OPS_MAX {
            return false;
        }
        let mut below = self.below();
        for header in &self.headers {
            if !header.follows(below) {
                return false;
            }
            below = header.anchor();
        }
        below == self.head
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        assert!(self.is_chained(), "only a chained suffix is written");
        writer.u64(self.head.op.get());
        writer.u128(self.head.checksum);
        writer.count(self.headers.len());
        for (header, evidence) in self.headers.iter().zip(&self.evidence) {
            writer.slice(&header.encode());
            writer.u8(*evidence as u8);
        }
        assert!(self.headers.len() <= SUFFIX_OPS_MAX, "suffixes are bounded");
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const { assert!(SUFFIX_OPS_MAX * (HEADER_BYTES + 1) < 1024 * 1024) };
        let head = Anchor { op: reader.op()?, checksum: reader.u128()? };
        let count = reader.count("suffix length", HEADER_BYTES + 1, SUFFIX_OPS_MAX)?;
        let mut headers = Vec::with_capacity(count);
        let mut evidence = Vec::with_capacity(count);
        for _ in 0..count {
            headers.push(PrepareHeader::decode(reader.take(HEADER_BYTES)?)?);
            let byte = reader.u8()?;
            evidence.push(Evidence::from_byte(byte).ok_or_else(|| reader.invalid("evidence"))?);
        }
        let suffix = Self { head, headers, evidence };
        if suffix.is_chained() { Ok(suffix) } else { Err(reader.invalid("chain")) }
    }

    pub(crate) fn encoded_bytes(&self) -> usize {
        28 + self.headers.len() * (HEADER_BYTES + 1)
    }
}
