//! Turns appended records into the bytes of one flush group.
//!
//! Small pieces are packed into one buffer; bodies of [`BODY_BY_REFERENCE_BYTES_MIN`] and more
//! are passed on by reference, so a large batch is not copied here.

use super::layout::{RECORD_HEADER_BYTES, RecordHeader, Trailer, TrailerEntry};
use super::record::{JournalRecord, RecordSeq};
use crate::disk::padding;
use borzoi_types::Durability;
use borzoi_types::checksum::xxh3_128_seeded_body;
use borzoi_types::limits::{BODY_BY_REFERENCE_BYTES_MIN, DISK_ALIGNMENT};
use bytes::{Bytes, BytesMut};

/// A record that was appended and waits for its group.
#[derive(Clone, Debug)]
pub(crate) struct Forming {
    pub record: JournalRecord,
    pub level: Durability,
    pub sequence: RecordSeq,
    /// Place at recovery; the sequence itself unless the record is carried forward.
    pub order: RecordSeq,
    /// Length in the group.
    pub bytes: u64,
}

/// Bytes under construction.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    salt: u64,
    parts: Vec<Bytes>,
    open: BytesMut,
    bytes: u64,
    previous: u128,
    entries: Vec<TrailerEntry>,
}

impl GroupWriter {
    /// An empty group of the file with `salt`, after a record with checksum `previous`.
    pub(crate) fn new(salt: u64, previous: u128) -> Self {
        Self {
            salt,
            parts: Vec::new(),
            open: BytesMut::new(),
            bytes: 0,
            previous,
            entries: Vec::new(),
        }
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, forming: &Forming) {
        let record = &forming.record;
        let header = RecordHeader {
            kind: record.kind,
            level: forming.level,
            log: record.log,
            op: record.op,
            header_bytes: u32::try_from(record.header.len()).expect("checked at append"),
            body_bytes: record.body.len() as u64,
            sequence: forming.sequence,
            order: forming.order,
            previous: self.previous,
            content: xxh3_128_seeded_body(self.salt, &record.header, &record.body),
        };
        assert_eq!(header.record_bytes(), forming.bytes, "the size has not changed since append");
        let (encoded, checksum) = header.encode(self.salt);
        let before = self.bytes;
        self.copy(&encoded);
        self.copy(&record.header);
        for part in record.body.parts() {
            if part.len() >= BODY_BY_REFERENCE_BYTES_MIN {
                self.refer(part.clone());
            } else {
                self.copy(part);
            }
        }
        let written = RECORD_HEADER_BYTES + record.header.len() + record.body.len();
        assert_eq!(self.bytes - before, written as u64, "every byte went in once");
        self.copy(&[0; 8][..(8 - written % 8) % 8]);
        assert_eq!(self.bytes - before, forming.bytes, "padded as announced");
        assert!(self.entries.last().is_none_or(|last| last.checksum == self.previous), "chained");
        self.entries.push(TrailerEntry {
            checksum,
            op: record.op,
            log: record.log,
            bytes: forming.bytes,
            kind: record.kind,
        });
        self.previous = checksum;
    }

    /// Completes the group with `trailer`, whose entries are filled in here. Returns the bytes,
    /// whole blocks, their number, and the checksum of the last record.
    pub(crate) fn finish(mut self, mut trailer: Trailer) -> (Vec<Bytes>, u64, u128) {
        assert!(trailer.entries.is_empty(), "the writer knows the entries");
        assert!(trailer.group_offset.is_multiple_of(DISK_ALIGNMENT as u64), "whole blocks");
        trailer.entries = std::mem::take(&mut self.entries);
        self.copy(&padding(self.bytes));
        self.copy(&trailer.encode(self.salt));
        self.close();
        let parts_bytes: u64 = self.parts.iter().map(|part| part.len() as u64).sum();
        assert_eq!(parts_bytes, self.bytes, "nothing is left open");
        assert!(self.bytes.is_multiple_of(DISK_ALIGNMENT as u64));
        (self.parts, self.bytes, self.previous)
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn refer(&mut self, part: Bytes) {
        self.close();
        assert!(self.open.is_empty() && !part.is_empty(), "pieces stay in order");
        self.bytes += part.len() as u64;
        self.parts.push(part);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.parts.push(self.open.split().freeze());
        }
    }
}
