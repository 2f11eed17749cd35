//! The operations of a lane's log: what the body of a lane prepare holds.
//!
//! ```text
//! body     0  u16 version (1)   2  6 zero bytes      then entries, at least one, to the end
//! entry    0  u8 kind           1  u8 flags   2  u16 zero         4  u32 bytes after this header
//!          8  u64 partition key (session number for SessionExpired)        16.. by kind:
//! 1 create (old)    u64 segment_bytes, u32 partition id, u32 zero, u64 metadata op
//! 2 batch           u64 base_offset, u32 messages, u32 zero, u64 session, u64 request, u64 hash,
//!                   then the stamped wire batch            flag 1: has an identity
//! 3 store offset    u64 offset, u8 consumer kind, 3 zero, u32 consumer id
//!                   flag 1: auto-commit, flag 2: flushed before it is held
//! 4 delete offset   u64 zero, u8 consumer kind, 3 zero, u32 consumer id
//! 5 truncate        u64 first offset that stays
//! 6 purge           u64 new key, u64 metadata op
//! 7 delete          u64 metadata op
//! 8 offset jump     u64 next offset
//! 9 session expired nothing
//! 10 create         as 1, then u64 message expiry, u64 bytes limit, u64 operation of the options
//! 11 options        u64 message expiry, u64 bytes limit, u64 metadata op
//! 12 del. segments  u32 count, u32 zero, u64 metadata op
//! 13 group store    u64 offset, u32 group, u32 zero, u64 generation       flags as 3
//! 14 group delete   u64 zero, u32 group, u32 zero, u64 generation
//! 15 generation     u32 group, u32 zero, u64 generation
//! 16 group deleted  u32 group, u32 zero
//! ```
//!
//! Kinds are only added. 1 is read, never written; 3 and 4 with a group are of the time before
//! generations and mean generation 0.
//!
//! Little-endian throughout. Invariants: entries are validated before they are prepared, so that
//! apply cannot fail; a body that does not decode is damage or a newer version, and the reader says
//! which. A batch of [`BODY_BY_REFERENCE_BYTES_MIN`] bytes and more is a piece of its own in the
//! body, never copied; smaller ones are packed together with the entry headers.

use super::body_reader::BodyReader;
pub use super::entry::{Entry, PartitionOptions, Retention};
use crate::lane::api::{ConsumerKey, SendIdentity};
use borzoi_types::limits::BODY_BY_REFERENCE_BYTES_MIN;
use borzoi_types::{
    Body, GroupId, Micros, Offset, Op, PartitionId, PartitionKey, RequestNumber, SessionId,
};
use bytes::{BufMut, BytesMut};

/// Version of the layout above.
pub const OPERATION_VERSION: u16 = 1;
const BODY_HEADER_BYTES: usize = 8;
const ENTRY_HEADER_BYTES: usize = 16;
const BATCH_FIXED_BYTES: usize = 40;
const FLAG_SET: u8 = 1;
const FLAG_PERSISTED: u8 = 2;
const CONSUMER_BYTE: u8 = 1;
const GROUP_BYTE: u8 = 2;

const KIND_CREATE_OLD: u8 = 1;
const KIND_BATCH: u8 = 2;
const KIND_STORE_OFFSET: u8 = 3;
const KIND_DELETE_OFFSET: u8 = 4;
const KIND_TRUNCATE: u8 = 5;
const KIND_PURGE: u8 = 6;
const KIND_DELETE: u8 = 7;
const KIND_OFFSET_JUMP: u8 = 8;
const KIND_SESSION_EXPIRED: u8 = 9;
const KIND_CREATE: u8 = 10;
const KIND_OPTIONS: u8 = 11;
const KIND_DELETE_SEGMENTS: u8 = 12;
const KIND_GROUP_STORE: u8 = 13;
const KIND_GROUP_DELETE: u8 = 14;
const KIND_GENERATION: u8 = 15;
const KIND_GROUP_DELETED: u8 = 16;

/// Why a lane operation could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// Written by a newer build.
    #[error("lane operation of version {0}, this build knows {OPERATION_VERSION}")]
    Version(u16),
    /// Ends early or goes on after its last entry.
    #[error("lane operation of a wrong length")]
    Length,
    /// No such kind of entry.
    #[error("lane operation with an entry of unknown kind {0}")]
    Kind(u8),
    /// A field holds what it cannot hold.
    #[error("lane operation with a field out of range")]
    Field,
}

/// Builds the body of one prepare.
#[derive(Debug, Default)]
pub struct OperationBuilder {
    body: Body,
    packed: BytesMut,
    entries: usize,
}

impl OperationBuilder {
    /// Bytes before the first entry.
    pub const HEADER_BYTES: usize = BODY_HEADER_BYTES;
    /// Bytes that a batch costs beside itself.
    pub const BATCH_OVERHEAD_BYTES: usize = ENTRY_HEADER_BYTES + BATCH_FIXED_BYTES;
    /// Bytes of an entry about a consumer's offset, at most.
    pub const OFFSET_ENTRY_BYTES: usize = ENTRY_HEADER_BYTES + 24;

    /// Entries so far.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len() + self.packed.len()
    }

    /// Bytes that `entry` will add.
    #[must_use]
    pub fn entry_bytes(entry: &Entry) -> usize {
        ENTRY_HEADER_BYTES
            + match entry {
                Entry::Create { .. } => 48,
                Entry::Batch { batch, .. } => BATCH_FIXED_BYTES + batch.len(),
                Entry::StoreOffset { consumer, .. } | Entry::DeleteOffset { consumer, .. } => {
                    match consumer {
                        ConsumerKey::Consumer(_) => 16,
                        ConsumerKey::Group(_) => 24,
                    }
                }
                Entry::Options { .. } => 24,
                Entry::Purge { .. } | Entry::DeleteSegments { .. } | Entry::Generation { .. } => 16,
                Entry::Truncate { .. }
                | Entry::Delete { .. }
                | Entry::OffsetJump { .. }
                | Entry::GroupDeleted { .. } => 8,
                Entry::SessionExpired { .. } => 0,
            }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &Entry) {
        if self.is_empty() {
            self.packed.put_u16_le(OPERATION_VERSION);
            self.packed.put_bytes(0, BODY_HEADER_BYTES - 2);
        }
        let before = self.len();
        self.entries += 1;
        self.put(entry);
        assert_eq!(self.len() - before, Self::entry_bytes(entry), "the size was announced");
    }

    /// The body; the builder is empty again.
    pub fn finish(&mut self) -> Body {
        assert!(self.len() > BODY_HEADER_BYTES, "an operation has at least one entry");
        self.seal_packed();
        self.entries = 0;
        core::mem::take(&mut self.body)
    }

    fn seal_packed(&mut self) {
        let packed = core::mem::take(&mut self.packed);
        self.body.push(packed.freeze());
    }

    fn header(&mut self, kind: u8, flags: u8, len: usize, subject: u64) {
        self.packed.put_u8(kind);
        self.packed.put_u8(flags);
        self.packed.put_u16_le(0);
        self.packed.put_u32_le(u32::try_from(len).expect("a frame is at most 64 MiB"));
        self.packed.put_u64_le(subject);
    }

    fn put(&mut self, entry: &Entry) {
        let len = Self::entry_bytes(entry) - ENTRY_HEADER_BYTES;
        match entry {
            Entry::Create { key, options, by } => {
                self.header(KIND_CREATE, 0, len, key.0);
                self.packed.put_u64_le(options.segment_bytes);
                self.packed.put_u32_le(options.partition.0);
                self.packed.put_u32_le(0);
                self.packed.put_u64_le(by.0);
                self.put_retention(options.retention, options.options_op);
            }
            Entry::Batch { key, base_offset, count, identity, batch } => {
                self.header(KIND_BATCH, u8::from(identity.is_some()), len, key.0);
                let no_one =
                    SendIdentity { session: SessionId(0), request: RequestNumber(0), hash: 0 };
                let identity = identity.unwrap_or(no_one);
                self.packed.put_u64_le(base_offset.0);
                self.packed.put_u32_le(*count);
                self.packed.put_u32_le(0);
                self.packed.put_u64_le(identity.session.0);
                self.packed.put_u64_le(identity.request.0);
                self.packed.put_u64_le(identity.hash);
                if batch.len() >= BODY_BY_REFERENCE_BYTES_MIN {
                    self.seal_packed();
                    self.body.push(batch.clone());
                } else {
                    self.packed.put_slice(batch);
                }
            }
            Entry::StoreOffset { .. } | Entry::DeleteOffset { .. } => self.put_offset(entry, len),
            Entry::Truncate { key, first } => {
                self.header(KIND_TRUNCATE, 0, len, key.0);
                self.packed.put_u64_le(first.0);
            }
            Entry::Purge { key, new_key, by } => {
                self.header(KIND_PURGE, 0, len, key.0);
                self.packed.put_u64_le(new_key.0);
                self.packed.put_u64_le(by.0);
            }
            Entry::Delete { key, by } => {
                self.header(KIND_DELETE, 0, len, key.0);
                self.packed.put_u64_le(by.0);
            }
            Entry::OffsetJump { key, to } => {
                self.header(KIND_OFFSET_JUMP, 0, len, key.0);
                self.packed.put_u64_le(to.0);
            }
            Entry::SessionExpired { session } => {
                self.header(KIND_SESSION_EXPIRED, 0, len, session.0);
            }
            Entry::Options { key, retention, by } => {
                self.header(KIND_OPTIONS, 0, len, key.0);
                self.put_retention(*retention, *by);
            }
            Entry::DeleteSegments { key, count, by } => {
                self.header(KIND_DELETE_SEGMENTS, 0, len, key.0);
                self.put_number(*count);
                self.packed.put_u64_le(by.0);
            }
            Entry::Generation { key, group, generation } => {
                self.header(KIND_GENERATION, 0, len, key.0);
                self.put_number(group.0);
                self.packed.put_u64_le(*generation);
            }
            Entry::GroupDeleted { key, group } => {
                self.header(KIND_GROUP_DELETED, 0, len, key.0);
                self.put_number(group.0);
            }
        }
    }

    fn put_offset(&mut self, entry: &Entry, len: usize) {
        let (kinds, flags, key, consumer, offset, generation) = match entry {
            Entry::StoreOffset { key, consumer, offset, auto_commit, generation, persisted } => {
                let auto_commit = if *auto_commit { FLAG_SET } else { 0 };
                let flags = auto_commit | if *persisted { FLAG_PERSISTED } else { 0 };
                let kinds = (KIND_STORE_OFFSET, KIND_GROUP_STORE);
                (kinds, flags, key, consumer, offset.0, *generation)
            }
            Entry::DeleteOffset { key, consumer, generation } => {
                ((KIND_DELETE_OFFSET, KIND_GROUP_DELETE), 0, key, consumer, 0, *generation)
            }
            other => unreachable!("not about a consumer's offset: {other:?}"),
        };
        match consumer {
            ConsumerKey::Consumer(id) => {
                assert!(generation == 0, "plain consumers have no generations");
                self.header(kinds.0, flags, len, key.0);
                self.packed.put_u64_le(offset);
                self.packed.put_u32_le(u32::from(CONSUMER_BYTE));
                self.packed.put_u32_le(*id);
            }
            ConsumerKey::Group(group) => {
                self.header(kinds.1, flags, len, key.0);
                self.packed.put_u64_le(offset);
                self.put_number(group.0);
                self.packed.put_u64_le(generation);
            }
        }
    }

    fn put_retention(&mut self, retention: Retention, op: Op) {
        self.packed.put_u64_le(retention.message_expiry.0);
        self.packed.put_u64_le(retention.bytes_max);
        self.packed.put_u64_le(op.0);
    }

    /// A number of 32 bits and as many zeros.
    fn put_number(&mut self, number: u32) {
        self.packed.put_u32_le(number);
        self.packed.put_u32_le(0);
    }
}

impl ConsumerKey {
    /// The consumer under a kind byte (1 consumer, 2 group, as on the wire) and a number.
    #[must_use]
    pub const fn from_parts(kind: u8, id: u32) -> Option<Self> {
        match kind {
            CONSUMER_BYTE => Some(Self::Consumer(id)),
            GROUP_BYTE => Some(Self::Group(GroupId(id))),
            _ => None,
        }
    }
}

/// Reads the body of one lane prepare, entry by entry. Batches that lie in one piece of the body
/// are slices of it; nothing else is kept.
pub fn decode(body: &Body) -> Result<Vec<Entry>, OperationError> {
    let mut reader = BodyReader::new(body);
    let header: [u8; BODY_HEADER_BYTES] = reader.array()?;
    let version = u16::from_le_bytes([header[0], header[1]]);
    if version != OPERATION_VERSION {
        return Err(OperationError::Version(version));
    }
    let mut entries = Vec::new();
    while reader.left() > 0 {
        entries.push(decode_entry(&mut reader)?);
    }
    if entries.is_empty() {
        return Err(OperationError::Length);
    }
    Ok(entries)
}

fn decode_entry(reader: &mut BodyReader<'_>) -> Result<Entry, OperationError> {
    let kind = reader.u8()?;
    let flags = reader.u8()?;
    let _zero = reader.array::<2>()?;
    let len = reader.u32()? as usize;
    let subject = reader.u64()?;
    if len > reader.left() {
        return Err(OperationError::Length);
    }
    let end = reader.left() - len;
    let key = PartitionKey(subject);
    let entry = match kind {
        KIND_CREATE_OLD | KIND_CREATE => decode_create(reader, key, kind)?,
        KIND_BATCH => decode_batch(reader, key, flags, len)?,
        KIND_STORE_OFFSET | KIND_DELETE_OFFSET | KIND_GROUP_STORE | KIND_GROUP_DELETE => {
            decode_offset(reader, key, kind, flags)?
        }
        KIND_TRUNCATE => Entry::Truncate { key, first: Offset(reader.u64()?) },
        KIND_PURGE => {
            let new_key = PartitionKey(reader.u64()?);
            Entry::Purge { key, new_key, by: Op(reader.u64()?) }
        }
        KIND_DELETE => Entry::Delete { key, by: Op(reader.u64()?) },
        KIND_OFFSET_JUMP => Entry::OffsetJump { key, to: Offset(reader.u64()?) },
        KIND_SESSION_EXPIRED => Entry::SessionExpired { session: SessionId(subject) },
        KIND_OPTIONS => {
            let (retention, by) = decode_retention(reader)?;
            Entry::Options { key, retention, by }
        }
        KIND_DELETE_SEGMENTS => {
            let count = decode_number(reader)?;
            Entry::DeleteSegments { key, count, by: Op(reader.u64()?) }
        }
        KIND_GENERATION => {
            let group = GroupId(decode_number(reader)?);
            Entry::Generation { key, group, generation: reader.u64()? }
        }
        KIND_GROUP_DELETED => Entry::GroupDeleted { key, group: GroupId(decode_number(reader)?) },
        unknown => return Err(OperationError::Kind(unknown)),
    };
    if reader.left() != end {
        return Err(OperationError::Length);
    }
    Ok(entry)
}

fn decode_create(
    reader: &mut BodyReader<'_>,
    key: PartitionKey,
    kind: u8,
) -> Result<Entry, OperationError> {
    let segment_bytes = reader.u64()?;
    let partition = PartitionId(decode_number(reader)?);
    let by = Op(reader.u64()?);
    let (retention, options_op) = if kind == KIND_CREATE {
        decode_retention(reader)?
    } else {
        // The reconciler compares and sends the topic's options after it.
        (Retention::NONE, Op::ZERO)
    };
    let options = PartitionOptions { segment_bytes, partition, retention, options_op };
    Ok(Entry::Create { key, options, by })
}

fn decode_retention(reader: &mut BodyReader<'_>) -> Result<(Retention, Op), OperationError> {
    let message_expiry = Micros(reader.u64()?);
    let bytes_max = reader.u64()?;
    Ok((Retention { message_expiry, bytes_max }, Op(reader.u64()?)))
}

fn decode_number(reader: &mut BodyReader<'_>) -> Result<u32, OperationError> {
    let number = reader.u32()?;
    let _zero = reader.u32()?;
    Ok(number)
}

fn decode_offset(
    reader: &mut BodyReader<'_>,
    key: PartitionKey,
    kind: u8,
    flags: u8,
) -> Result<Entry, OperationError> {
    let offset = Offset(reader.u64()?);
    let (consumer, generation) = if matches!(kind, KIND_GROUP_STORE | KIND_GROUP_DELETE) {
        (ConsumerKey::Group(GroupId(decode_number(reader)?)), reader.u64()?)
    } else {
        (decode_consumer(reader)?, 0)
    };
    if matches!(kind, KIND_DELETE_OFFSET | KIND_GROUP_DELETE) {
        return Ok(Entry::DeleteOffset { key, consumer, generation });
    }
    let auto_commit = flags & FLAG_SET != 0;
    let persisted = flags & FLAG_PERSISTED != 0;
    Ok(Entry::StoreOffset { key, consumer, offset, auto_commit, generation, persisted })
}

fn decode_batch(
    reader: &mut BodyReader<'_>,
    key: PartitionKey,
    flags: u8,
    len: usize,
) -> Result<Entry, OperationError> {
    if len <= BATCH_FIXED_BYTES {
        return Err(OperationError::Length);
    }
    let base_offset = Offset(reader.u64()?);
    let count = reader.u32()?;
    let _zero = reader.u32()?;
    let session = SessionId(reader.u64()?);
    let request = RequestNumber(reader.u64()?);
    let hash = reader.u64()?;
    let batch = reader.bytes(len - BATCH_FIXED_BYTES)?;
    if count == 0 {
        return Err(OperationError::Field);
    }
    let identity = (flags & FLAG_SET != 0).then_some(SendIdentity { session, request, hash });
    Ok(Entry::Batch { key, base_offset, count, identity, batch })
}

fn decode_consumer(reader: &mut BodyReader<'_>) -> Result<ConsumerKey, OperationError> {
    let kind = reader.u8()?;
    let _zero = reader.array::<3>()?;
    let id = reader.u32()?;
    ConsumerKey::from_parts(kind, id).ok_or(OperationError::Field)
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
