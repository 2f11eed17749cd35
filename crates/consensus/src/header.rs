//! Prepares and their headers: the hash chain.
//!
//! A header's checksum covers everything else in it, including the checksum of its body and of
//! its parent header, so one checksum names one operation *and* the whole log below it.
//!
//! Byte layout of a header, little-endian, 128 bytes:
//!
//! ```text
//!   0  checksum       u128   over bytes 16..128
//!  16  body_checksum  u128   XXH3-128 of the body
//!  32  parent         u128   checksum of the header of op - 1 (of the root for op 1)
//!  48  cluster        u128
//!  64  log            u32
//!  68  view           u32    view that prepared it; kept when a later view inherits it
//!  72  op             u64
//!  80  commit         u64    committed by the primary when it prepared this
//!  88  timestamp      u64    microseconds, wall clock of that primary, never decreasing in a log
//!  96  body_len       u32
//! 100  config_epoch   u32
//! 104  kind           u8
//! 105  version        u8     1
//! 106  zero           22 bytes
//! ```

use crate::codec::{DecodeError, Reader};
use borzoi_types::{Body, ClusterId, LogId, Micros, Op, View, checksum, limits};

/// Bytes of an encoded [`PrepareHeader`].
pub const HEADER_BYTES: usize = 128;

const HEADER_VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 16;
const ZERO_FROM: usize = 106;
const WHAT: &str = "prepare header";

const _: () = assert!(ZERO_FROM < HEADER_BYTES);
const _: () = assert!(limits::PREPARE_BODY_BYTES_MAX <= u32::MAX as usize);

/// What a prepare is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PrepareKind {
    /// An operation of the log's user.
    Normal = 1,
    /// The first operation of a view: nothing for the user to apply. Its commit proves that the
    /// view's log is in force.
    ViewStart = 2,
    /// The first operation of a view that began although acknowledged operations may have been
    /// lost (architecture, section 5, *declared loss*). The body holds, per replica, what
    /// [`crate::Replica::set_attachment`] was given.
    LossEpoch = 3,
}

impl PrepareKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Normal),
            2 => Some(Self::ViewStart),
            3 => Some(Self::LossEpoch),
            _ => None,
        }
    }
}

/// A position in the log with the checksum of the header there: names the whole log up to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Anchor {
    /// Position.
    pub op: Op,
    /// Checksum of the header at that position.
    pub checksum: u128,
}

impl Anchor {
    /// Where the log of `log` in `cluster` starts: op 0, which has no prepare.
    #[must_use]
    pub fn root(cluster: ClusterId, log: LogId) -> Self {
        let mut bytes = [0u8; 32];
        bytes[..11].copy_from_slice(b"borzoi root");
        bytes[12..28].copy_from_slice(&cluster.get().to_le_bytes());
        bytes[28..].copy_from_slice(&log.get().to_le_bytes());
        Self { op: Op::ZERO, checksum: checksum::xxh3_128(&bytes) }
    }
}

/// Header of one operation of the log. See the module for its layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareHeader {
    /// Checksum of the rest of the header: the operation's identity.
    pub checksum: u128,
    /// Checksum of the body.
    pub body_checksum: u128,
    /// Checksum of the header one op below.
    pub parent: u128,
    /// Cluster incarnation.
    pub cluster: ClusterId,
    /// Which log.
    pub log: LogId,
    /// View that prepared it.
    pub view: View,
    /// Position in the log; at least 1.
    pub op: Op,
    /// What the primary had committed when it prepared this; below `op`.
    pub commit: Op,
    /// Wall clock of the primary, raised to at least its predecessor's.
    pub timestamp: Micros,
    /// What it is for.
    pub kind: PrepareKind,
    /// Length of the body in bytes.
    pub body_len: u32,
    /// Configuration epoch of the log; 0 until logs move between nodes.
    pub config_epoch: u32,
}

impl PrepareHeader {
    /// The same header with its checksum computed.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        assert!(self.op > Op::ZERO, "op 0 is the root and has no prepare");
        assert!(self.commit < self.op, "an operation is prepared before it commits");
        assert!(self.body_len as usize <= limits::PREPARE_BODY_BYTES_MAX, "bodies are bounded");
        let bytes = self.encode();
        self.checksum = checksum::xxh3_128(&bytes[CHECKSUM_BYTES..]);
        self
    }

    /// Position and identity.
    #[must_use]
    pub const fn anchor(&self) -> Anchor {
        Anchor { op: self.op, checksum: self.checksum }
    }

    /// Whether this header directly follows `below`.
    #[must_use]
    pub fn follows(&self, below: Anchor) -> bool {
        self.op.get().checked_sub(1) == Some(below.op.get()) && self.parent == below.checksum
    }

    /// The 128 bytes of the module's layout, with the checksum as it stands.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0u8; HEADER_BYTES];
        out[0..16].copy_from_slice(&self.checksum.to_le_bytes());
        out[16..32].copy_from_slice(&self.body_checksum.to_le_bytes());
        out[32..48].copy_from_slice(&self.parent.to_le_bytes());
        out[48..64].copy_from_slice(&self.cluster.get().to_le_bytes());
        out[64..68].copy_from_slice(&self.log.get().to_le_bytes());
        out[68..72].copy_from_slice(&self.view.get().to_le_bytes());
        out[72..80].copy_from_slice(&self.op.get().to_le_bytes());
        out[80..88].copy_from_slice(&self.commit.get().to_le_bytes());
        out[88..96].copy_from_slice(&self.timestamp.0.to_le_bytes());
        out[96..100].copy_from_slice(&self.body_len.to_le_bytes());
        out[100..104].copy_from_slice(&self.config_epoch.to_le_bytes());
        out[104] = self.kind as u8;
        out[105] = HEADER_VERSION;
        out
    }

    /// Reads and verifies a header from exactly [`HEADER_BYTES`] bytes.
    ///
    /// # Errors
    /// Any [`DecodeError`]: wrong length, checksum, version, kind, non-zero reserve, or fields
    /// that no correct primary writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > HEADER_BYTES {
            return Err(DecodeError::Trailing { what: WHAT, extra: bytes.len() - HEADER_BYTES });
        }
        let mut reader = Reader::new(WHAT, bytes);
        let stored = reader.u128()?;
        let covered = bytes.get(CHECKSUM_BYTES..HEADER_BYTES);
        let covered = covered.ok_or(DecodeError::Truncated { what: WHAT })?;
        if checksum::xxh3_128(covered) != stored {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        let header = Self {
            checksum: stored,
            body_checksum: reader.u128()?,
            parent: reader.u128()?,
            cluster: ClusterId(reader.u128()?),
            log: LogId(reader.u32()?),
            view: View(reader.u32()?),
            op: reader.op()?,
            commit: reader.op()?,
            timestamp: Micros(reader.u64()?),
            body_len: reader.u32()?,
            config_epoch: reader.u32()?,
            kind: PrepareKind::from_byte(reader.u8()?)
                .ok_or(DecodeError::Invalid { what: WHAT, field: "kind" })?,
        };
        let version = reader.u8()?;
        if version != HEADER_VERSION {
            return Err(DecodeError::Format { what: WHAT, found: u32::from(version) });
        }
        if bytes[ZERO_FROM..].iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Invalid { what: WHAT, field: "reserve" });
        }
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let invalid = |field| Err(DecodeError::Invalid { what: WHAT, field });
        if self.op == Op::ZERO {
            return invalid("op");
        }
        if self.commit >= self.op {
            return invalid("commit");
        }
        if self.body_len as usize > limits::PREPARE_BODY_BYTES_MAX {
            return invalid("body_len");
        }
        Ok(())
    }
}

/// One operation of the log: header and body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// Its header, sealed.
    pub header: PrepareHeader,
    /// Its payload; `header.body_len` bytes with checksum `header.body_checksum`.
    pub body: Body,
}

impl Prepare {
    /// Joins a header and a body, verifying that they belong together.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] when the length differs, [`DecodeError::Checksum`] when the bytes
    /// do.
    pub fn verified(header: PrepareHeader, body: Body) -> Result<Self, DecodeError> {
        if body.len() != header.body_len as usize {
            return Err(DecodeError::Invalid { what: "prepare", field: "body_len" });
        }
        if checksum::xxh3_128_body(&body) != header.body_checksum {
            return Err(DecodeError::Checksum { what: "prepare body" });
        }
        Ok(Self { header, body })
    }

    /// Bytes this prepare occupies in memory and, roughly, in the journal.
    #[must_use]
    pub const fn size(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}
