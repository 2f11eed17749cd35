//! The bytes of a journal file: file header, record header, trailer. All numbers little-endian.
//!
//! ```text
//! block 0   file header          block 1   the same header again
//! block 2.. groups, one after the other, each:
//!           records, packed, each padded with zeros to 8 bytes
//!           zeros up to the next block
//!           trailer, one block or more
//! ```
//!
//! Record header and trailer carry checksums seeded with the file's salt, which is drawn anew each
//! time a file is reused: nothing of an earlier life of the file, and no image of a journal inside
//! a message, can look valid. Decoding never trusts a length before the checksum over it holds.

use super::record::{RecordKind, RecordSeq};
use borzoi_types::checksum::{xxh3_128, xxh3_128_seeded};
use borzoi_types::limits::DISK_ALIGNMENT;
use borzoi_types::{ClusterId, Durability, LogId, Op, ShardId};

/// Format of journal files; part of the file header.
pub const JOURNAL_VERSION: u32 = 1;

/// Bytes before the first group: two copies of the file header.
pub const FILE_HEADER_BYTES: u64 = 2 * DISK_ALIGNMENT as u64;

/// Bytes of a record before the caller's header.
pub const RECORD_HEADER_BYTES: usize = 96;

/// Bytes of a trailer before its entries.
pub const TRAILER_HEADER_BYTES: usize = 112;

/// Bytes of one entry of a trailer.
pub const TRAILER_ENTRY_BYTES: usize = 40;

const FILE_MAGIC: [u8; 8] = *b"BORZOIJF";
const RECORD_MAGIC: [u8; 4] = *b"BRec";
const TRAILER_MAGIC: [u8; 4] = *b"BTrl";
const HEADER_FIELDS_BYTES: usize = 112;
const FORM_INLINE: u8 = 1;
const TRAILER_CLOSES_FILE: u32 = 1;

const _: () = assert!(TRAILER_HEADER_BYTES + TRAILER_ENTRY_BYTES < DISK_ALIGNMENT);
const _: () =
    assert!(RECORD_HEADER_BYTES.is_multiple_of(8) && TRAILER_ENTRY_BYTES.is_multiple_of(8));

/// The first sector of a journal file, and the second.
///
/// ```text
///   0 magic "BORZOIJF"      8 version u32         12 block bytes u32 = 4096
///  16 cluster u128         32 generation u64      40 nonce u64
///  48 file sequence u64    56 shard u16           58 zero u16      60 slot u32
///  64 file bytes u64       72 salt u64            80 first group u64
///  88 first record u64     96 previous record's checksum u128
/// 112 checksum u128 of bytes 0..112, unseeded    128 zeros to 4096
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Cluster incarnation.
    pub cluster: ClusterId,
    /// Journal generation.
    pub generation: u64,
    /// Tells attempts to begin the same generation apart; the superblock names the one that held.
    pub nonce: u64,
    /// Place of the file in its shard's journal, from 0.
    pub file_sequence: u64,
    /// Whose journal.
    pub shard: ShardId,
    /// The file's own name, so that a misplaced file is noticed.
    pub slot: u32,
    /// Length of the file.
    pub file_bytes: u64,
    /// Seed of all other checksums in the file.
    pub salt: u64,
    /// Number of the first group in the file.
    pub first_group: u64,
    /// Sequence of the first record in the file.
    pub first_record: RecordSeq,
    /// Checksum of the last record before the file; 0 for none.
    pub previous: u128,
}

/// What the first sector of a file turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderRead {
    /// Intact.
    Header(FileHeader),
    /// Intact, but of a format this build does not read.
    Version(u32),
    /// Anything else: never used, or damaged.
    None,
}

impl FileHeader {
    /// One block; it is written twice.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0u8; DISK_ALIGNMENT];
        let mut at = Writer { bytes: &mut block, position: 0 };
        at.put(&FILE_MAGIC);
        at.put(&JOURNAL_VERSION.to_le_bytes());
        at.put(&(DISK_ALIGNMENT as u32).to_le_bytes());
        at.put(&self.cluster.get().to_le_bytes());
        at.put(&self.generation.to_le_bytes());
        at.put(&self.nonce.to_le_bytes());
        at.put(&self.file_sequence.to_le_bytes());
        at.put(&self.shard.get().to_le_bytes());
        at.put(&0u16.to_le_bytes());
        at.put(&self.slot.to_le_bytes());
        at.put(&self.file_bytes.to_le_bytes());
        at.put(&self.salt.to_le_bytes());
        at.put(&self.first_group.to_le_bytes());
        at.put(&self.first_record.0.to_le_bytes());
        at.put(&self.previous.to_le_bytes());
        assert_eq!(at.position, HEADER_FIELDS_BYTES, "the diagram is right");
        assert!(self.first_group > 0 && self.first_record > RecordSeq::ZERO, "counted from one");
        assert!(self.file_bytes > FILE_HEADER_BYTES && self.generation > 0, "a file of a start");
        let checksum = xxh3_128(&block[..HEADER_FIELDS_BYTES]);
        block[HEADER_FIELDS_BYTES..HEADER_FIELDS_BYTES + 16]
            .copy_from_slice(&checksum.to_le_bytes());
        debug_assert_eq!(Self::decode(&block), HeaderRead::Header(*self));
        block
    }

    /// Reads one block; shorter input is never a header.
    #[must_use]
    pub fn decode(block: &[u8]) -> HeaderRead {
        if block.len() < HEADER_FIELDS_BYTES + 16 || block[..8] != FILE_MAGIC {
            return HeaderRead::None;
        }
        let read = Reader(block);
        if read.u128(HEADER_FIELDS_BYTES) != xxh3_128(&block[..HEADER_FIELDS_BYTES]) {
            return HeaderRead::None;
        }
        if read.u32(8) != JOURNAL_VERSION || read.u32(12) as usize != DISK_ALIGNMENT {
            return HeaderRead::Version(read.u32(8));
        }
        HeaderRead::Header(Self {
            cluster: ClusterId(read.u128(16)),
            generation: read.u64(32),
            nonce: read.u64(40),
            file_sequence: read.u64(48),
            shard: ShardId(read.u16(56)),
            slot: read.u32(60),
            file_bytes: read.u64(64),
            salt: read.u64(72),
            first_group: read.u64(80),
            first_record: RecordSeq(read.u64(88)),
            previous: read.u128(96),
        })
    }
}

/// The fixed part of a record.
///
/// ```text
///  0 magic "BRec"          4 kind u8    5 form u8 (1 inline, 2 reserved for extents)
///  6 level u8              7 zero u8    8 log u32          12 header bytes u32
/// 16 body bytes u64       24 op u64    32 sequence u64     40 order u64
/// 48 previous record's checksum u128
/// 64 content checksum u128: caller's header and body, seeded with the salt
/// 80 checksum u128 of bytes 0..80, seeded with the salt
/// 96 caller's header, body, zeros to a multiple of 8
/// ```
///
/// `order` is the sequence under which the record was first written: a copy that was carried
/// forward keeps it, so that it takes its old place again at recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// What it is.
    pub kind: RecordKind,
    /// Level at which it was appended.
    pub level: Durability,
    /// Whose it is.
    pub log: LogId,
    /// Its operation.
    pub op: Op,
    /// Bytes of the caller's header.
    pub header_bytes: u32,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Place in the generation's record stream.
    pub sequence: RecordSeq,
    /// Place it takes at recovery.
    pub order: RecordSeq,
    /// Checksum of the record before it; 0 for the first of a generation.
    pub previous: u128,
    /// Checksum of header and body.
    pub content: u128,
}

impl RecordHeader {
    /// The 96 bytes and the checksum in them, which names the record.
    #[must_use]
    pub fn encode(&self, salt: u64) -> ([u8; RECORD_HEADER_BYTES], u128) {
        let mut bytes = [0u8; RECORD_HEADER_BYTES];
        let mut at = Writer { bytes: &mut bytes, position: 0 };
        at.put(&RECORD_MAGIC);
        at.put(&[self.kind as u8, FORM_INLINE, self.level as u8, 0]);
        at.put(&self.log.get().to_le_bytes());
        at.put(&self.header_bytes.to_le_bytes());
        at.put(&self.body_bytes.to_le_bytes());
        at.put(&self.op.get().to_le_bytes());
        at.put(&self.sequence.0.to_le_bytes());
        at.put(&self.order.0.to_le_bytes());
        at.put(&self.previous.to_le_bytes());
        at.put(&self.content.to_le_bytes());
        assert_eq!(at.position, 80, "the diagram is right");
        let checksum = xxh3_128_seeded(salt, &bytes[..80]);
        bytes[80..].copy_from_slice(&checksum.to_le_bytes());
        assert!(self.order <= self.sequence, "a copy is never older than its original");
        assert!(self.order > RecordSeq::ZERO, "records are counted from one");
        (bytes, checksum)
    }

    /// Reads the header at the start of `bytes`, with its checksum. `None` if it is not intact.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u64) -> Option<(Self, u128)> {
        if bytes.len() < RECORD_HEADER_BYTES || bytes[..4] != RECORD_MAGIC {
            return None;
        }
        let read = Reader(bytes);
        let checksum = read.u128(80);
        if checksum != xxh3_128_seeded(salt, &bytes[..80]) || bytes[5] != FORM_INLINE {
            return None;
        }
        let header = Self {
            kind: RecordKind::from_byte(bytes[4])?,
            level: Durability::from_byte(bytes[6])?,
            log: LogId(read.u32(8)),
            header_bytes: read.u32(12),
            body_bytes: read.u64(16),
            op: Op(read.u64(24)),
            sequence: RecordSeq(read.u64(32)),
            order: RecordSeq(read.u64(40)),
            previous: read.u128(48),
            content: read.u128(64),
        };
        Some((header, checksum))
    }

    /// Bytes the whole record takes in its group.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.header_bytes), self.body_bytes)
    }
}

/// Bytes that a record with such a header and body takes in its group.
#[must_use]
pub const fn record_bytes(header_bytes: u64, body_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + header_bytes).saturating_add(body_bytes).div_ceil(8) * 8
}

/// Bytes of the trailer of a group with `records` records: whole blocks.
#[must_use]
pub const fn trailer_bytes(records: usize) -> u64 {
    crate::disk::aligned((TRAILER_HEADER_BYTES + records * TRAILER_ENTRY_BYTES) as u64)
}

/// Where a file continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextFile {
    /// Slot of the next file.
    pub slot: u32,
    /// Its salt, so that its groups can be read even if its header cannot.
    pub salt: u64,
}

/// What a trailer remembers of one record of its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrailerEntry {
    /// Checksum of the record's header.
    pub checksum: u128,
    /// Its operation.
    pub op: Op,
    /// Its log.
    pub log: LogId,
    /// Its length in the group.
    pub bytes: u64,
    /// Its kind.
    pub kind: RecordKind,
}

/// The end of a group, in sectors of its own.
///
/// ```text
///   0 magic "BTrl"          4 records u32        8 group u64      16 synced through group u64
///  24 group's position u64 32 first record u64  40 oldest live file u64
///  48 flags u32 (1: closes the file)            52 next slot u32  56 next salt u64
///  64 checksum u128 of the last record before the group
///  80 zeros                96 checksum u128 of bytes 0..96 and all entries, seeded
/// 112 entries, 40 bytes each:
///       0 record checksum u128   16 op u64   24 log u32   28 bytes / 8 u32
///      32 kind u8   33 zeros
///     zeros to a multiple of 4096
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Number of the group; the first of a generation is 1.
    pub group: u64,
    /// Highest group whose flush had completed when this group was formed.
    pub synced_through: u64,
    /// Where the group starts in the file.
    pub group_offset: u64,
    /// Sequence of its first record, or of the next one if it has none.
    pub first_record: RecordSeq,
    /// Files of the shard's journal before this one are not needed any more.
    pub oldest_live_file: u64,
    /// Set if this is the last group of the file.
    pub next: Option<NextFile>,
    /// Checksum of the last record before the group.
    pub previous: u128,
    /// The records of the group in order.
    pub entries: Vec<TrailerEntry>,
}

impl Trailer {
    /// Whole blocks.
    #[must_use]
    pub fn encode(&self, salt: u64) -> Vec<u8> {
        let bytes = trailer_bytes(self.entries.len());
        let mut block = vec![0u8; usize::try_from(bytes).expect("a trailer fits in memory")];
        let records = u32::try_from(self.entries.len()).expect("groups are bounded");
        let mut at = Writer { bytes: &mut block, position: 0 };
        at.put(&TRAILER_MAGIC);
        at.put(&records.to_le_bytes());
        at.put(&self.group.to_le_bytes());
        at.put(&self.synced_through.to_le_bytes());
        at.put(&self.group_offset.to_le_bytes());
        at.put(&self.first_record.0.to_le_bytes());
        at.put(&self.oldest_live_file.to_le_bytes());
        at.put(&self.next.map_or(0, |_| TRAILER_CLOSES_FILE).to_le_bytes());
        at.put(&self.next.map_or(0, |next| next.slot).to_le_bytes());
        at.put(&self.next.map_or(0, |next| next.salt).to_le_bytes());
        at.put(&self.previous.to_le_bytes());
        assert_eq!(at.position, 80, "the diagram is right");
        at.position = TRAILER_HEADER_BYTES;
        for entry in &self.entries {
            assert!(entry.bytes.is_multiple_of(8), "records are padded");
            let eighths = u32::try_from(entry.bytes / 8).expect("a record is shorter than a file");
            at.put(&entry.checksum.to_le_bytes());
            at.put(&entry.op.get().to_le_bytes());
            at.put(&entry.log.get().to_le_bytes());
            at.put(&eighths.to_le_bytes());
            at.put(&[entry.kind as u8, 0, 0, 0, 0, 0, 0, 0]);
        }
        let end = at.position;
        assert_eq!(bytes, self.bytes(), "one formula on both sides");
        assert!(self.group_offset >= FILE_HEADER_BYTES, "behind the file's header");
        assert!(end <= block.len() && self.synced_through < self.group, "a group is never early");
        let checksum = trailer_checksum(&block, end, salt);
        block[96..112].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the trailer at the start of `bytes`. `None` if it is not intact.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        if bytes.len() < DISK_ALIGNMENT || bytes[..4] != TRAILER_MAGIC {
            return None;
        }
        let read = Reader(bytes);
        let records = read.u32(4) as usize;
        let end = records.checked_mul(TRAILER_ENTRY_BYTES)?.checked_add(TRAILER_HEADER_BYTES)?;
        if end > bytes.len() || read.u128(96) != trailer_checksum(bytes, end, salt) {
            return None;
        }
        let mut entries = Vec::with_capacity(records);
        for entry in bytes[TRAILER_HEADER_BYTES..end].chunks_exact(TRAILER_ENTRY_BYTES) {
            let read = Reader(entry);
            entries.push(TrailerEntry {
                checksum: read.u128(0),
                op: Op(read.u64(16)),
                log: LogId(read.u32(24)),
                bytes: u64::from(read.u32(28)) * 8,
                kind: RecordKind::from_byte(entry[32])?,
            });
        }
        assert_eq!(entries.len(), records, "as many as it says");
        let next = (read.u32(48) & TRAILER_CLOSES_FILE != 0)
            .then(|| NextFile { slot: read.u32(52), salt: read.u64(56) });
        Some(Self {
            group: read.u64(8),
            synced_through: read.u64(16),
            group_offset: read.u64(24),
            first_record: RecordSeq(read.u64(32)),
            oldest_live_file: read.u64(40),
            next,
            previous: read.u128(64),
            entries,
        })
    }

    /// Bytes this trailer takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        trailer_bytes(self.entries.len())
    }

    /// Bytes its records take, without the zeros up to the trailer.
    #[must_use]
    pub fn records_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }
}

/// Whether a block could be the start of a trailer; a cheap test before the checksum.
#[must_use]
pub fn looks_like_trailer(block: &[u8]) -> bool {
    block.len() >= DISK_ALIGNMENT && block[..4] == TRAILER_MAGIC
}

fn trailer_checksum(bytes: &[u8], end: usize, salt: u64) -> u128 {
    assert!(end >= TRAILER_HEADER_BYTES && end <= bytes.len(), "checked by the callers");
    let entries = xxh3_128_seeded(salt, &bytes[TRAILER_HEADER_BYTES..end]);
    let mut head = [0u8; 112];
    head[..96].copy_from_slice(&bytes[..96]);
    head[96..].copy_from_slice(&entries.to_le_bytes());
    xxh3_128_seeded(salt, &head)
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    position: usize,
}

impl Writer<'_> {
    fn put(&mut self, field: &[u8]) {
        let end = self.position + field.len();
        assert!(end <= self.bytes.len(), "the diagram fits its block");
        self.bytes[self.position..end].copy_from_slice(field);
        self.position = end;
    }
}

/// Reads fixed fields of a slice whose length the caller has checked.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[at..at + N]);
        field
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(crate) fn u128(&self, at: usize) -> u128 {
        u128::from_le_bytes(self.array(at))
    }
}
