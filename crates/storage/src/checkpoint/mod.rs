//! Checkpoints: the state of one log after one operation, in one file, replaced whole.
//!
//! A checkpoint of a lane names the segments of its partitions and carries what is not in them, so
//! it costs bytes, not partitions; one of metadata is its owner's state alone. Two are kept, so
//! that a damaged newest one leaves the older; the journal is released up to the older.
//!
//! ```text
//! 0       8         12    16   24         28    32                  48       56    64
//! ┌───────┬─────────┬─────┬────┬──────────┬─────┬───────────────────┬────────┬─────┬────────────┐
//! │ magic │ version │ log │ op │ sections │ 0   │ prepare checksum  │ length │ 0   │ body check.│
//! └───────┴─────────┴─────┴────┴──────────┴─────┴───────────────────┴────────┴─────┴────────────┘
//! 80                         112               128
//! ┌──────────────────────────┬─────────────────┬───────────┬───────────┬───
//! │ 0                        │ header checksum │ section   │ section   │ ...
//! └──────────────────────────┴─────────────────┴───────────┴───────────┴───
//! section   0      4     8        16
//!           ┌──────┬─────┬────────┬─────────┐
//!           │ kind │ 0   │ length │ content │   1: the owner's, opaque; 2: a partition (`section`)
//!           └──────┴─────┴────────┴─────────┘
//! ```
//!
//! Little-endian; checksums are XXH3-128, the header's over the 112 bytes before it, the body's
//! over everything after the header. `prepare checksum` identifies the operation: recovery lets the
//! journal's records chain to it.
//!
//! Crash argument. A checkpoint is written by `DurableReplace` under a name of its own (log and
//! op), after everything it names is durable ([`crate::partition`]). A crash leaves either no file
//! of that name, or the whole one. Only when it is durable are older checkpoints and unnamed
//! files removed and the journal released; until then recovery finds the older ones complete.

mod load;
mod section;

pub(crate) use load::covers;
pub use load::{LoadError, Loaded, OlderCheckpoint, load_newest, obsolete};
pub use section::{ConsumerKey, ConsumerState, PartitionSection, SectionError};

use crate::disk::{DiskRequest, FileName};
use crate::segment::{u32_at, u64_at};
use borzoi_types::checksum::{xxh3_128, xxh3_128_body};
use borzoi_types::limits::{CHECKPOINT_BYTES_MAX, DISK_ALIGNMENT};
use borzoi_types::{Body, LogId, Op};
use bytes::{BufMut, Bytes, BytesMut};

/// Length of a checkpoint's header in bytes.
pub const CHECKPOINT_HEADER_BYTES: usize = 128;

/// First eight bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"BRZCHECK";

/// Version of the checkpoint format written by this build.
pub const CHECKPOINT_VERSION: u32 = 1;

/// Checkpoints of one log that are kept.
pub const CHECKPOINTS_KEPT: usize = 2;

const HEADER_CHECKSUM_AT: usize = 112;
const SECTION_HEADER_BYTES: usize = 16;
const SECTION_OWNER: u32 = 1;
const SECTION_PARTITION: u32 = 2;
const _: () = assert!(HEADER_CHECKSUM_AT + 16 == CHECKPOINT_HEADER_BYTES);

/// The state of one log after `op`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Which log.
    pub log: LogId,
    /// The last operation it contains.
    pub op: Op,
    /// Header checksum of that operation's prepare; 0 for the root.
    pub prepare_checksum: u128,
    /// Whatever the log's state machine keeps beside partitions: client table, metadata.
    pub owner: Body,
    /// The partitions of a lane, in rising order of their keys.
    pub partitions: Vec<PartitionSection>,
}

/// Why bytes are not a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Fewer bytes than the header or a length asks for, or more.
    #[error("the checkpoint has another length than it says")]
    Length,
    /// Another kind of file.
    #[error("not a checkpoint")]
    Magic,
    /// A checksum does not match.
    #[error("the checkpoint's checksum does not match")]
    Checksum,
    /// Written by a build with another format.
    #[error("checkpoint version {found} is not supported (this build knows {CHECKPOINT_VERSION})")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The checkpoint of another log or operation than its name says.
    #[error("the checkpoint is that of log {log} at operation {op}")]
    Misplaced {
        /// The log it says.
        log: LogId,
        /// The operation it says.
        op: Op,
    },
    /// A section of a kind this version does not have, or not in order.
    #[error("the checkpoint's sections are not in order")]
    Sections,
    /// A partition's section is malformed.
    #[error("partition section: {0}")]
    Section(#[from] SectionError),
}

/// Gathers small fields by copy and large pieces by reference.
#[derive(Default)]
pub(crate) struct Gather {
    body: Body,
    packed: BytesMut,
}

impl Gather {
    pub(crate) fn packed(&mut self) -> &mut BytesMut {
        &mut self.packed
    }

    pub(crate) fn push(&mut self, piece: &Bytes) {
        // A checkpoint may carry hundreds of megabytes of tails: only what is small is copied.
        if piece.len() < DISK_ALIGNMENT {
            self.packed.put_slice(piece);
            return;
        }
        self.body.push(self.packed.split().freeze());
        self.body.push(piece.clone());
        assert!(self.packed.is_empty(), "pieces stay in order");
        assert!(self.body.len() >= piece.len());
    }

    pub(crate) fn finish(mut self) -> Body {
        self.body.push(self.packed.split().freeze());
        assert!(self.packed.is_empty());
        self.body
    }
}

impl Checkpoint {
    /// The name of its file.
    #[must_use]
    pub const fn file(&self) -> FileName {
        FileName::Checkpoint { log: self.log, op: self.op }
    }

    /// The request that makes it durable.
    #[must_use]
    pub fn request(&self) -> DiskRequest {
        let parts = self.encode().parts().to_vec();
        assert!(parts.len() >= 2, "a header and a body");
        DiskRequest::DurableReplace { file: self.file(), parts }
    }

    /// The file's content. Large pieces of tails and of the owner's state are shared, not copied.
    #[must_use]
    pub fn encode(&self) -> Body {
        let rising = self.partitions.is_sorted_by(|a, b| a.state.key < b.state.key);
        assert!(rising, "partitions are in rising order of their keys");
        let mut gather = Gather::default();
        put_section(&mut gather, SECTION_OWNER, &self.owner);
        for partition in &self.partitions {
            put_section(&mut gather, SECTION_PARTITION, &partition.encode());
        }
        let body = gather.finish();
        assert!(body.len() as u64 <= CHECKPOINT_BYTES_MAX, "the owner bounds its partitions");
        let sections = u32::try_from(self.partitions.len() + 1).expect("bounded by the bytes");
        let mut header = [0u8; CHECKPOINT_HEADER_BYTES];
        header[0..8].copy_from_slice(&CHECKPOINT_MAGIC);
        header[8..12].copy_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&self.log.0.to_le_bytes());
        header[16..24].copy_from_slice(&self.op.0.to_le_bytes());
        header[24..28].copy_from_slice(&sections.to_le_bytes());
        header[32..48].copy_from_slice(&self.prepare_checksum.to_le_bytes());
        header[48..56].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[64..80].copy_from_slice(&xxh3_128_body(&body).to_le_bytes());
        assert!(self.op > Op::ZERO || self.prepare_checksum == 0, "the root has no prepare");
        let checksum = xxh3_128(&header[..HEADER_CHECKSUM_AT]);
        header[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        let mut file = Body::from(Bytes::copy_from_slice(&header));
        for part in body.parts() {
            file.push(part.clone());
        }
        assert!(file.len() == CHECKPOINT_HEADER_BYTES + body.len());
        file
    }

    /// Reads a checkpoint file. Large fields are slices of `file`.
    ///
    /// # Errors
    /// See [`CheckpointError`]; nothing is half read.
    pub fn decode(file: &Bytes) -> Result<Self, CheckpointError> {
        let Header { log, op, sections, prepare_checksum, .. } = check_header(file)?;
        let mut checkpoint =
            Self { log, op, prepare_checksum, owner: Body::empty(), partitions: Vec::new() };
        let mut rest = file.slice(CHECKPOINT_HEADER_BYTES..);
        for index in 0..sections {
            let (kind, content) = take_section(&mut rest)?;
            match kind {
                SECTION_OWNER if index == 0 => checkpoint.owner = Body::from(content),
                SECTION_PARTITION if index > 0 => {
                    let section = PartitionSection::decode(&content)?;
                    let before = checkpoint.partitions.last().map(|last| last.state.key);
                    if before.is_some_and(|before| before >= section.state.key) {
                        return Err(CheckpointError::Sections);
                    }
                    checkpoint.partitions.push(section);
                }
                _ => return Err(CheckpointError::Sections),
            }
        }
        if sections == 0 || !rest.is_empty() {
            return Err(CheckpointError::Sections);
        }
        assert!(checkpoint.partitions.len() + 1 == sections as usize);
        Ok(checkpoint)
    }
}

/// The fields of a checkpoint's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    log: LogId,
    op: Op,
    sections: u32,
    prepare_checksum: u128,
    body_bytes: u64,
    body_checksum: u128,
}

/// Verifies the header alone.
fn decode_header(file: &[u8]) -> Result<Header, CheckpointError> {
    if file.len() < CHECKPOINT_HEADER_BYTES {
        return Err(CheckpointError::Length);
    }
    let header = &file[..CHECKPOINT_HEADER_BYTES];
    if header[0..8] != CHECKPOINT_MAGIC {
        return Err(CheckpointError::Magic);
    }
    if u128_at(header, HEADER_CHECKSUM_AT) != xxh3_128(&header[..HEADER_CHECKSUM_AT]) {
        return Err(CheckpointError::Checksum);
    }
    let version = u32_at(header, 8);
    if version != CHECKPOINT_VERSION {
        return Err(CheckpointError::Version { found: version });
    }
    Ok(Header {
        log: LogId(u32_at(header, 12)),
        op: Op(u64_at(header, 16)),
        sections: u32_at(header, 24),
        prepare_checksum: u128_at(header, 32),
        body_bytes: u64_at(header, 48),
        body_checksum: u128_at(header, 64),
    })
}

/// Verifies header and body.
fn check_header(file: &[u8]) -> Result<Header, CheckpointError> {
    let header = decode_header(file)?;
    let body = &file[CHECKPOINT_HEADER_BYTES..];
    if header.body_bytes != body.len() as u64 {
        return Err(CheckpointError::Length);
    }
    if header.body_checksum != xxh3_128(body) {
        return Err(CheckpointError::Checksum);
    }
    assert!(CHECKPOINT_HEADER_BYTES + body.len() == file.len());
    Ok(header)
}

fn put_section(gather: &mut Gather, kind: u32, content: &Body) {
    assert!(kind == SECTION_OWNER || kind == SECTION_PARTITION);
    gather.packed().put_u32_le(kind);
    gather.packed().put_u32_le(0);
    gather.packed().put_u64_le(content.len() as u64);
    for part in content.parts() {
        gather.push(part);
    }
}

fn take_section(rest: &mut Bytes) -> Result<(u32, Bytes), CheckpointError> {
    if rest.len() < SECTION_HEADER_BYTES {
        return Err(CheckpointError::Length);
    }
    let header = rest.split_to(SECTION_HEADER_BYTES);
    let length = usize::try_from(u64_at(&header, 8)).unwrap_or(usize::MAX);
    if length > rest.len() {
        return Err(CheckpointError::Length);
    }
    let before = rest.len();
    let content = rest.split_to(length);
    assert_eq!(rest.len() + length, before, "nothing is read twice");
    assert!(header.len() == SECTION_HEADER_BYTES && content.len() == length);
    Ok((u32_at(&header, 0), content))
}

/// Little-endian u128 at `at`; the caller has checked the length.
fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from(u64_at(bytes, at)) | u128::from(u64_at(bytes, at + 8)) << 64
}
