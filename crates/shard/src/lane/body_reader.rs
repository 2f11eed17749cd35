//! Reads little-endian fields from a body that may lie in several pieces.
//!
//! Invariant: nothing is read beyond the end; what ends early is an error, never a panic.

use super::operation::OperationError;
use borzoi_types::Body;
use bytes::{Bytes, BytesMut};

/// A cursor over the pieces of a body.
pub(super) struct BodyReader<'a> {
    parts: &'a [Bytes],
    position: usize,
    left: usize,
}

impl<'a> BodyReader<'a> {
    pub(super) fn new(body: &'a Body) -> Self {
        Self { parts: body.parts(), position: 0, left: body.len() }
    }

    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// The next `len` bytes: a slice when they lie in one piece, a copy otherwise.
    pub(super) fn bytes(&mut self, len: usize) -> Result<Bytes, OperationError> {
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

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], OperationError> {
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

    pub(super) fn u8(&mut self) -> Result<u8, OperationError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, OperationError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, OperationError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
