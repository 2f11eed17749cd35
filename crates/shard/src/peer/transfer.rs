//! State transfer between nodes: a replica copies a peer's newest checkpoint of a log, and of the
//! segment files that it names whatever the replica does not have.
//!
//! ```text
//!  behind                                   has it
//!    │ Ask(at least this operation)           │
//!    │ ─────────────────────────────────────▶ │
//!    │               Offer(op), or Gone       │
//!    │ ◀───────────────────────────────────── │
//!    │ Read(file, offset)          many times │
//!    │ ─────────────────────────────────────▶ │  stateless: each answer stands for itself
//!    │               Chunk(file, offset, ..)  │
//!    │ ◀───────────────────────────────────── │
//! ```
//!
//! Chunks are [`TRANSFER_CHUNK_BYTES`] long but for the last one of a file, which is shorter and
//! may be empty. They are protected by the checksum of their frame.
//!
//! ```text
//! body   0 u8 kind   1 u8 file (0 none, 1 checkpoint, 2 segment)   2 six zero bytes
//!        8 u64 request   16 u64 number (operation, or offset in the file)
//!       24 u64 key, or operation of the checkpoint   32 u64 base of the segment   40 chunk
//! ```

use super::frame::FrameFault;
use borzoi_storage::disk::FileName;
use borzoi_types::limits::TRANSFER_CHUNK_BYTES;
use borzoi_types::{Body, LogId, Offset, Op, PartitionKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};

const FIXED_BYTES: usize = 40;

/// A file that travels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransferFile {
    /// The checkpoint at an operation.
    Checkpoint(Op),
    /// A segment of a partition.
    Segment {
        /// Whose.
        key: PartitionKey,
        /// Its first offset.
        base: Offset,
    },
}

impl TransferFile {
    /// Its name on a node's disk.
    #[must_use]
    pub const fn name(self, log: LogId) -> FileName {
        match self {
            Self::Checkpoint(op) => FileName::Checkpoint { log, op },
            Self::Segment { key, base } => FileName::Segment { key, base },
        }
    }
}

/// What is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransferStep {
    /// What is your newest checkpoint? It must contain this operation.
    Ask {
        /// The operation.
        at_least: Op,
    },
    /// The newest checkpoint stands at this operation.
    Offer {
        /// The operation.
        op: Op,
    },
    /// One chunk, please.
    Read {
        /// Of which file.
        file: TransferFile,
        /// From where; a multiple of the chunk length.
        offset: u64,
    },
    /// Here it is.
    Chunk {
        /// Of which file.
        file: TransferFile,
        /// From where.
        offset: u64,
        /// Shorter than a chunk at the end of the file.
        bytes: Bytes,
    },
    /// What you want is not here, or no longer: ask again, or ask somebody else.
    Gone,
}

/// One message of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferMessage {
    /// Which log.
    pub log: LogId,
    /// The receiver's number for the transfer; answers echo it.
    pub request: u64,
    /// What is said.
    pub step: TransferStep,
}

impl TransferMessage {
    /// The body of its frame.
    #[must_use]
    pub fn encode(&self) -> Body {
        let (kind, number, file) = match &self.step {
            TransferStep::Ask { at_least } => (1u8, at_least.get(), None),
            TransferStep::Offer { op } => (2, op.get(), None),
            TransferStep::Read { file, offset } => (3, *offset, Some(*file)),
            TransferStep::Chunk { file, offset, .. } => (4, *offset, Some(*file)),
            TransferStep::Gone => (5, 0, None),
        };
        let (file, first, second) = match file {
            None => (0u8, 0, 0),
            Some(TransferFile::Checkpoint(op)) => (1, op.get(), 0),
            Some(TransferFile::Segment { key, base }) => (2, key.get(), base.get()),
        };
        let mut bytes = BytesMut::with_capacity(FIXED_BYTES);
        bytes.put_u8(kind);
        bytes.put_u8(file);
        bytes.put_bytes(0, 6);
        bytes.put_u64_le(self.request);
        bytes.put_u64_le(number);
        bytes.put_u64_le(first);
        bytes.put_u64_le(second);
        assert_eq!(bytes.len(), FIXED_BYTES, "as documented");
        let mut body = Body::from(bytes.freeze());
        if let TransferStep::Chunk { bytes, .. } = &self.step {
            assert!(bytes.len() <= TRANSFER_CHUNK_BYTES, "chunks are bounded");
            body.push(bytes.clone());
        }
        body
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`FrameFault::Malformed`].
    pub fn decode(log: LogId, mut body: Bytes) -> Result<Self, FrameFault> {
        if body.len() < FIXED_BYTES || body.len() > FIXED_BYTES + TRANSFER_CHUNK_BYTES {
            return Err(FrameFault::Malformed);
        }
        let (kind, file) = (body.get_u8(), body.get_u8());
        body.advance(6);
        let (request, number) = (body.get_u64_le(), body.get_u64_le());
        let (first, second) = (body.get_u64_le(), body.get_u64_le());
        let file = match file {
            0 => None,
            1 => Some(TransferFile::Checkpoint(Op(first))),
            2 => Some(TransferFile::Segment { key: PartitionKey(first), base: Offset(second) }),
            _ => return Err(FrameFault::Malformed),
        };
        let step = match (kind, file) {
            (1, None) => TransferStep::Ask { at_least: Op(number) },
            (2, None) => TransferStep::Offer { op: Op(number) },
            (3, Some(file)) if number.is_multiple_of(TRANSFER_CHUNK_BYTES as u64) => {
                TransferStep::Read { file, offset: number }
            }
            (4, Some(file)) => {
                return Ok(Self {
                    log,
                    request,
                    step: TransferStep::Chunk { file, offset: number, bytes: body },
                });
            }
            (5, None) => TransferStep::Gone,
            _ => return Err(FrameFault::Malformed),
        };
        if body.has_remaining() {
            return Err(FrameFault::Malformed);
        }
        Ok(Self { log, request, step })
    }
}
