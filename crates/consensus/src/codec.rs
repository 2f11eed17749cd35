//! Little-endian reading and writing with every length checked before use.
//!
//! Invariant: a reader never panics on any input and never allocates more than the input could
//! describe; a writer produces exactly what the reader accepts.

use borzoi_types::Op;
use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Largest operation number that is read from outside.
const OP_MAX: Op = Op(1 << 60);

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// Fewer bytes than the fields need.
    #[error("{what}: truncated")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// More bytes than the fields describe.
    #[error("{what}: {extra} bytes too many")]
    Trailing {
        /// What was being read.
        what: &'static str,
        /// How many bytes are left over.
        extra: usize,
    },
    /// A checksum does not match the bytes it covers.
    #[error("{what}: checksum mismatch")]
    Checksum {
        /// What was being read.
        what: &'static str,
    },
    /// Another format or another version of it.
    #[error("{what}: format {found} is unknown")]
    Format {
        /// What was being read.
        what: &'static str,
        /// The value found where a known one was expected.
        found: u32,
    },
    /// A field holds a value that no correct writer produces.
    #[error("{what}: invalid {field}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// The offending field.
        field: &'static str,
    },
}

/// Reads fields from the front of a slice.
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or(DecodeError::Truncated { what: self.what })?;
        assert_eq!(head.len(), len, "split_at_checked keeps its promise");
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// An operation number. A log that takes a billion operations a second reaches the limit after
    /// thirty years, so a larger number is damage, and arithmetic on these cannot overflow.
    pub(crate) fn op(&mut self) -> Result<Op, DecodeError> {
        let op = Op(self.u64()?);
        if op > OP_MAX { Err(self.invalid("op")) } else { Ok(op) }
    }

    pub(crate) fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A boolean: anything but 0 and 1 is invalid, so that one value has one encoding.
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid(field)),
        }
    }

    /// A count of elements of at least `element_bytes` each, refused before any allocation when
    /// the remaining bytes cannot hold that many or it exceeds `max`.
    pub(crate) fn count(
        &mut self,
        field: &'static str,
        element_bytes: usize,
        max: usize,
    ) -> Result<usize, DecodeError> {
        assert!(element_bytes > 0, "an element has a size");
        let count = self.u32()? as usize;
        if count > max {
            return Err(self.invalid(field));
        }
        if count * element_bytes > self.rest.len() {
            return Err(DecodeError::Truncated { what: self.what });
        }
        Ok(count)
    }

    pub(crate) const fn invalid(&self, field: &'static str) -> DecodeError {
        DecodeError::Invalid { what: self.what, field }
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing { what: self.what, extra: self.rest.len() })
        }
    }
}

/// Appends fields to a growing buffer.
pub(crate) struct Writer {
    bytes: BytesMut,
}

impl Writer {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(capacity) }
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.slice(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.slice(&value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.slice(&value.to_le_bytes());
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).expect("counts are bounded far below u32"));
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Overwrites bytes written earlier.
    pub(crate) fn patch(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes.len(), "a patch stays inside what was written");
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn finish(self) -> Bytes {
        self.bytes.freeze()
    }
}
