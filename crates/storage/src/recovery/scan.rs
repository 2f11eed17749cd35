//! Reading one journal file: which groups are there, which records of them are intact.
//!
//! Trailers stand at block borders and carry a salted checksum, so they can be found without
//! knowing what lies before them. Between two intact trailers the record sequence says how many
//! records there must be.

use crate::journal::layout::{
    FILE_HEADER_BYTES, FileHeader, NextFile, Trailer, looks_like_trailer,
};
use crate::journal::{Decoded, JournalRecord, RecordKind, RecordSeq, decode_record};
use borzoi_types::limits::DISK_ALIGNMENT;
use borzoi_types::{LogId, Op};
use bytes::Bytes;

const BLOCK: usize = DISK_ALIGNMENT;

/// One place in the record stream of a file: a record, or the lack of one.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub sequence: RecordSeq,
    pub offset: u64,
    /// The first group it can belong to.
    pub group: u64,
    /// What an intact trailer says it is.
    pub named: Option<(RecordKind, LogId, Op)>,
    /// The record and its order, if it is intact.
    pub found: Option<(JournalRecord, RecordSeq)>,
}

/// One file, read.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub header: FileHeader,
    /// The whole file.
    pub data: Bytes,
    pub pieces: Vec<Piece>,
    /// Highest group with an intact trailer; one less than the file's first if there is none.
    pub last_group: u64,
    /// Highest synced mark in an intact trailer.
    pub synced_through: u64,
    /// Highest oldest live file in an intact trailer.
    pub oldest_live_file: u64,
    /// How the file ends, if the end was found.
    pub end: Option<End>,
    /// Trailers missing before an intact one: the first group and its position.
    pub holes: Vec<(u64, u64)>,
    /// End of the last group with an intact trailer.
    pub written_end: u64,
}

/// What the end of a file says about the file after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub next: NextFile,
    pub first_group: u64,
    pub first_record: RecordSeq,
    /// Checksum of the last record before it.
    pub previous: u128,
}

struct Scanner<'a> {
    data: &'a Bytes,
    salt: u64,
    scan: Scan,
    position: usize,
    group: u64,
    sequence: RecordSeq,
    /// Checksum of the record before `sequence`, if it is known.
    previous: Option<u128>,
}

/// Reads a whole file. `next_file` is the first group and first record of the file after it, if
/// there is one: then nothing may be missing up to there.
pub(crate) fn scan_file(
    data: &Bytes,
    header: &FileHeader,
    next_file: Option<(u64, RecordSeq)>,
) -> Scan {
    let mut scanner = Scanner {
        data,
        salt: header.salt,
        scan: Scan {
            header: *header,
            data: data.clone(),
            pieces: Vec::new(),
            last_group: header.first_group - 1,
            synced_through: 0,
            oldest_live_file: 0,
            end: None,
            holes: Vec::new(),
            written_end: FILE_HEADER_BYTES,
        },
        position: usize::try_from(FILE_HEADER_BYTES).expect("two blocks"),
        group: header.first_group,
        sequence: header.first_record,
        previous: Some(header.previous),
    };
    while let Some((trailer, at)) = scanner.next_trailer() {
        scanner.take_group(trailer, at);
    }
    let open_end = next_file.map(|(_, record)| record);
    if next_file.is_some_and(|(group, _)| group > scanner.group) {
        scanner.scan.holes.push((scanner.group, scanner.position as u64));
    }
    scanner.take_nameless(data.len(), open_end);
    let scan = scanner.scan;
    assert!(scan.written_end >= FILE_HEADER_BYTES && scan.written_end <= data.len() as u64);
    assert!(scan.holes.windows(2).all(|two| two[0] < two[1]), "holes follow each other");
    assert!(scan.pieces.windows(2).all(|two| two[0].sequence.next() == two[1].sequence));
    assert!(scan.last_group + 1 >= header.first_group);
    scan
}

impl Scanner<'_> {
    /// The next intact trailer that continues the file, and its position.
    fn next_trailer(&self) -> Option<(Trailer, usize)> {
        assert!(self.position.is_multiple_of(BLOCK), "groups start at blocks");
        let mut at = self.position;
        while at + BLOCK <= self.data.len() {
            if looks_like_trailer(&self.data[at..])
                && let Some(trailer) = Trailer::decode(&self.data[at..], self.salt)
                && self.continues(&trailer, at)
            {
                return Some((trailer, at));
            }
            at += BLOCK;
        }
        None
    }

    fn continues(&self, trailer: &Trailer, at: usize) -> bool {
        let Ok(start) = usize::try_from(trailer.group_offset) else { return false };
        let Ok(records) = usize::try_from(trailer.records_bytes()) else { return false };
        let ends = start.checked_add(records.next_multiple_of(BLOCK)) == Some(at);
        let next = trailer.group == self.group && start == self.position;
        let later = trailer.group > self.group && start > self.position;
        let records = trailer.first_record >= self.sequence
            && (!next || trailer.first_record == self.sequence);
        ends && records && (next || later)
    }

    /// Takes the group that ends with `trailer` at `at`, and what lies before it.
    fn take_group(&mut self, trailer: Trailer, at: usize) {
        let start = usize::try_from(trailer.group_offset).expect("inside the file");
        if trailer.group > self.group {
            self.scan.holes.push((self.group, self.position as u64));
            self.take_nameless(start, Some(trailer.first_record));
        }
        assert_eq!(self.sequence, trailer.first_record, "nothing is missing before the group");
        self.previous = Some(trailer.previous);
        let mut offset = start;
        for entry in &trailer.entries {
            let end = offset + usize::try_from(entry.bytes).expect("inside the file");
            let bytes = self.data.slice(offset..end);
            let found = decode_record(&bytes, self.salt).filter(|decoded| {
                let (header, record) = (&decoded.header, &decoded.record);
                header.sequence == self.sequence
                    && (record.kind, record.log, record.op) == (entry.kind, entry.log, entry.op)
                    && header.record_bytes() == entry.bytes
                    && decoded.checksum == entry.checksum
                    && self.continues_chain(header.previous)
            });
            self.scan.pieces.push(Piece {
                sequence: self.sequence,
                offset: offset as u64,
                group: trailer.group,
                named: Some((entry.kind, entry.log, entry.op)),
                found: found.map(|decoded| (decoded.record, decoded.header.order)),
            });
            self.sequence = self.sequence.next();
            self.previous = Some(entry.checksum);
            offset = end;
        }
        let scan = &mut self.scan;
        scan.last_group = trailer.group;
        scan.synced_through = scan.synced_through.max(trailer.synced_through);
        scan.oldest_live_file = scan.oldest_live_file.max(trailer.oldest_live_file);
        if let Some(next) = trailer.next {
            let (first_group, first_record) = (trailer.group + 1, self.sequence);
            let previous = self.previous.expect("the trailer said what was before its group");
            scan.end = Some(End { next, first_group, first_record, previous });
        }
        assert!(trailer.group >= self.group, "groups follow each other");
        assert_eq!(offset - start, usize::try_from(trailer.records_bytes()).unwrap_or(0));
        self.group = trailer.group + 1;
        self.position = at + usize::try_from(trailer.bytes()).expect("inside the file");
        scan.written_end = self.position as u64;
        assert!(self.position <= self.data.len(), "a decoded trailer lies inside the file");
    }

    /// Takes what is intact up to `end` without the help of a trailer. `until` is the sequence
    /// that follows, if known: every one before it is a piece, intact or not.
    fn take_nameless(&mut self, end: usize, until: Option<RecordSeq>) {
        assert!(self.position <= end && end <= self.data.len(), "a part of the file");
        let mut at = self.position;
        let mut place = at as u64;
        while at < end {
            let bytes = self.data.slice(at..end);
            let found = decode_record(&bytes, self.salt).filter(|Decoded { header, .. }| {
                header.sequence >= self.sequence
                    && until.is_none_or(|until| header.sequence < until)
                    && (header.sequence > self.sequence || self.continues_chain(header.previous))
            });
            let Some(Decoded { header, checksum, record }) = found else {
                at = (at + 1).next_multiple_of(BLOCK);
                continue;
            };
            while self.sequence < header.sequence {
                self.push_nameless(place, None);
            }
            self.push_nameless(at as u64, Some((record, header.order)));
            self.previous = Some(checksum);
            at += usize::try_from(header.record_bytes()).expect("it was decoded from memory");
            place = at as u64;
        }
        while until.is_some_and(|until| self.sequence < until) {
            self.push_nameless(place, None);
        }
    }

    /// Whether a record that says `previous` can follow what was read last.
    fn continues_chain(&self, previous: u128) -> bool {
        self.previous.is_none_or(|known| known == previous)
    }

    fn push_nameless(&mut self, offset: u64, found: Option<(JournalRecord, RecordSeq)>) {
        let (sequence, group) = (self.sequence, self.group);
        let follows = |last: &Piece| last.sequence.next() == sequence && last.offset <= offset;
        assert!(self.scan.pieces.last().is_none_or(follows), "one piece for each place");
        assert!(offset >= FILE_HEADER_BYTES && offset <= self.data.len() as u64);
        self.scan.pieces.push(Piece { sequence, offset, group, named: None, found });
        self.sequence = sequence.next();
        self.previous = None;
    }
}
