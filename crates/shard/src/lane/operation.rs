//! The operations of a lane's log: what the body of a lane prepare holds.
//!
//! ```text
//! body     0  u16 version (1)   2  6 zero bytes      then entries, at least one, to the end
//! entry    0  u8 kind           1  u8 flags   2  u16 zero         4  u32 bytes after this header
//!          8  u64 partition key (session number for SessionExpired)        16.. by kind:
//! 1 create          u64 segment_bytes, u32 partition id, u32 zero, u64 metadata op
//! 2 batch           u64 base_offset, u32 messages, u32 zero, u64 session, u64 request, u64 hash,
//!                   then the stamped wire batch            flag 1: has an identity
//! 3 store offset    u64 offset, u8 consumer kind, 3 zero, u32 consumer id   flag 1: auto-commit
//! 4 delete offset   u64 zero, u8 consumer kind, 3 zero, u32 consumer id
//! 5 truncate        u64 first offset that stays
//! 6 purge           u64 new key, u64 metadata op
//! 7 delete          u64 metadata op
//! 8 offset jump     u64 next offset
//! 9 session expired nothing
//! ```
//!
//! Little-endian throughout. Invariants: entries are validated before they are prepared, so that
//! apply cannot fail; a body that does not decode is damage or a newer version, and the reader says
//! which. A batch of [`BODY_BY_REFERENCE_BYTES_MIN`] bytes and more is a piece of its own in the
//! body, never copied; smaller ones are packed together with the entry headers.

use crate::lane::api::{ConsumerKey, SendIdentity};
use borzoi_types::limits::BODY_BY_REFERENCE_BYTES_MIN;
use borzoi_types::{
    Body, GroupId, Offset, Op, PartitionId, PartitionKey, RequestNumber, SessionId,
};
use bytes::{BufMut, Bytes, BytesMut};

/// Version of the layout above.
pub const OPERATION_VERSION: u16 = 1;
const BODY_HEADER_BYTES: usize = 8;
const ENTRY_HEADER_BYTES: usize = 16;
const BATCH_FIXED_BYTES: usize = 40;
const FLAG_SET: u8 = 1;

const KIND_CREATE: u8 = 1;
const KIND_BATCH: u8 = 2;
const KIND_STORE_OFFSET: u8 = 3;
const KIND_DELETE_OFFSET: u8 = 4;
const KIND_TRUNCATE: u8 = 5;
const KIND_PURGE: u8 = 6;
const KIND_DELETE: u8 = 7;
const KIND_OFFSET_JUMP: u8 = 8;
const KIND_SESSION_EXPIRED: u8 = 9;

/// What apply needs to know of a partition, fixed when it is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionOptions {
    /// A segment is closed when it holds this many bytes.
    pub segment_bytes: u64,
    /// The client-visible number, stamped into every batch.
    pub partition: PartitionId,
}

/// One entry of a lane operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The partition exists from here on.
    Create {
        /// Its key.
        key: PartitionKey,
        /// Everything that apply will read.
        options: PartitionOptions,
        /// Metadata operation in hand when this was prepared.
        by: Op,
    },
    /// Messages.
    Batch {
        /// To which partition.
        key: PartitionKey,
        /// Offset of the first message.
        base_offset: Offset,
        /// Messages in the batch.
        count: u32,
        /// For exactly-once.
        identity: Option<SendIdentity>,
        /// The stamped wire batch.
        batch: Bytes,
    },
    /// A consumer's offset.
    StoreOffset {
        /// In which partition.
        key: PartitionKey,
        /// Whose.
        consumer: ConsumerKey,
        /// Last processed message.
        offset: Offset,
        /// Made by a poll: only moves forward.
        auto_commit: bool,
    },
    /// A consumer's offset is forgotten.
    DeleteOffset {
        /// In which partition.
        key: PartitionKey,
        /// Whose.
        consumer: ConsumerKey,
    },
    /// Whole segments below `first` go away.
    Truncate {
        /// Of which partition.
        key: PartitionKey,
        /// First offset that stays.
        first: Offset,
    },
    /// The partition continues empty under another key.
    Purge {
        /// The key that ends.
        key: PartitionKey,
        /// The key that takes its place.
        new_key: PartitionKey,
        /// Metadata operation that purged.
        by: Op,
    },
    /// The partition is gone.
    Delete {
        /// Which one.
        key: PartitionKey,
        /// A metadata operation at or after the one that deleted it.
        by: Op,
    },
    /// Offsets up to `to` may have been handed out and lost; go on from there.
    OffsetJump {
        /// In which partition.
        key: PartitionKey,
        /// Next offset.
        to: Offset,
    },
    /// A session has ended; its exactly-once window goes away.
    SessionExpired {
        /// Which one.
        session: SessionId,
    },
}

impl Entry {
    /// The partition it is about; the zero key, which no partition has, for a session's end.
    #[must_use]
    pub const fn key(&self) -> PartitionKey {
        match self {
            Self::Create { key, .. }
            | Self::Batch { key, .. }
            | Self::StoreOffset { key, .. }
            | Self::DeleteOffset { key, .. }
            | Self::Truncate { key, .. }
            | Self::Purge { key, .. }
            | Self::Delete { key, .. }
            | Self::OffsetJump { key, .. } => *key,
            Self::SessionExpired { .. } => PartitionKey::ZERO,
        }
    }
}

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
    /// Bytes of an entry that stores or deletes an offset.
    pub const OFFSET_ENTRY_BYTES: usize = ENTRY_HEADER_BYTES + 16;

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
                Entry::Create { .. } => 24,
                Entry::Batch { batch, .. } => BATCH_FIXED_BYTES + batch.len(),
                Entry::StoreOffset { .. } | Entry::DeleteOffset { .. } | Entry::Purge { .. } => 16,
                Entry::Truncate { .. } | Entry::Delete { .. } | Entry::OffsetJump { .. } => 8,
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
            Entry::StoreOffset { key, consumer, offset, auto_commit } => {
                self.header(KIND_STORE_OFFSET, u8::from(*auto_commit), len, key.0);
                self.put_consumer(offset.0, *consumer);
            }
            Entry::DeleteOffset { key, consumer } => {
                self.header(KIND_DELETE_OFFSET, 0, len, key.0);
                self.put_consumer(0, *consumer);
            }
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
        }
    }

    fn put_consumer(&mut self, offset: u64, consumer: ConsumerKey) {
        let (kind, id) = consumer.parts();
        self.packed.put_u64_le(offset);
        self.packed.put_u8(kind);
        self.packed.put_bytes(0, 3);
        self.packed.put_u32_le(id);
    }
}

impl ConsumerKey {
    /// Kind byte (1 consumer, 2 group, as on the wire) and number.
    #[must_use]
    pub const fn parts(self) -> (u8, u32) {
        match self {
            Self::Consumer(id) => (1, id),
            Self::Group(id) => (2, id.0),
        }
    }

    /// The reverse of [`Self::parts`].
    #[must_use]
    pub const fn from_parts(kind: u8, id: u32) -> Option<Self> {
        match kind {
            1 => Some(Self::Consumer(id)),
            2 => Some(Self::Group(GroupId(id))),
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
        KIND_CREATE => {
            let segment_bytes = reader.u64()?;
            let partition = PartitionId(reader.u32()?);
            let _zero = reader.u32()?;
            let options = PartitionOptions { segment_bytes, partition };
            Entry::Create { key, options, by: Op(reader.u64()?) }
        }
        KIND_BATCH => decode_batch(reader, key, flags, len)?,
        KIND_STORE_OFFSET => {
            let offset = Offset(reader.u64()?);
            let consumer = decode_consumer(reader)?;
            let auto_commit = flags & FLAG_SET != 0;
            Entry::StoreOffset { key, consumer, offset, auto_commit }
        }
        KIND_DELETE_OFFSET => {
            let _zero = reader.u64()?;
            Entry::DeleteOffset { key, consumer: decode_consumer(reader)? }
        }
        KIND_TRUNCATE => Entry::Truncate { key, first: Offset(reader.u64()?) },
        KIND_PURGE => {
            let new_key = PartitionKey(reader.u64()?);
            Entry::Purge { key, new_key, by: Op(reader.u64()?) }
        }
        KIND_DELETE => Entry::Delete { key, by: Op(reader.u64()?) },
        KIND_OFFSET_JUMP => Entry::OffsetJump { key, to: Offset(reader.u64()?) },
        KIND_SESSION_EXPIRED => Entry::SessionExpired { session: SessionId(subject) },
        unknown => return Err(OperationError::Kind(unknown)),
    };
    if reader.left() != end {
        return Err(OperationError::Length);
    }
    Ok(entry)
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

/// A cursor over the pieces of a body.
struct BodyReader<'a> {
    parts: &'a [Bytes],
    position: usize,
    left: usize,
}

impl<'a> BodyReader<'a> {
    fn new(body: &'a Body) -> Self {
        Self { parts: body.parts(), position: 0, left: body.len() }
    }

    const fn left(&self) -> usize {
        self.left
    }

    /// The next `len` bytes: a slice when they lie in one piece, a copy otherwise.
    fn bytes(&mut self, len: usize) -> Result<Bytes, OperationError> {
        if len > self.left {
            return Err(OperationError::Length);
        }
        if let Some((first, _)) = self.parts.split_first()
            && first.len() - self.position >= len
        {
            let slice = first.slice(self.position..self.position + len);
            self.advance(len);
            return Ok(slice);
        }
        let mut copy = BytesMut::with_capacity(len);
        while copy.len() < len {
            let first = &self.parts[0];
            let take = (len - copy.len()).min(first.len() - self.position);
            copy.extend_from_slice(&first[self.position..self.position + take]);
            self.advance(take);
        }
        Ok(copy.freeze())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], OperationError> {
        if N > self.left {
            return Err(OperationError::Length);
        }
        let mut array = [0u8; N];
        let mut filled = 0;
        while filled < N {
            let first = &self.parts[0];
            let take = (N - filled).min(first.len() - self.position);
            array[filled..filled + take]
                .copy_from_slice(&first[self.position..self.position + take]);
            filled += take;
            self.advance(take);
        }
        Ok(array)
    }

    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.left);
        self.left -= bytes;
        self.position += bytes;
        while let Some((first, rest)) = self.parts.split_first()
            && self.position >= first.len()
        {
            self.position -= first.len();
            self.parts = rest;
        }
    }

    fn u8(&mut self) -> Result<u8, OperationError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, OperationError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, OperationError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
