//! Batches at rest whose frames are encrypted.
//!
//! Two of the header's reserved fields, zero on the wire, say so:
//!
//! ```text
//! 52 key number u32, 0: the frames are plain    | 56 tag, 16 bytes    | 72 zero
//! ```
//!
//! Everything else of the header stays as it was stamped, and no length changes. Clients never see
//! such a batch: it is opened before it is served, and a client that sends one is refused because
//! reserved bytes are set.

use super::header::BatchHeader;
use super::{BATCH_HEADER_BYTES, BatchFault, field};
use core::ops::Range;

const KEY_FIELD: Range<usize> = 52..56;
const TAG_FIELD: Range<usize> = 56..72;

/// Bytes of the header that a seal vouches for beside the frames: everything that was stamped.
pub const SEALED_HEADER_BYTES: usize = 52;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;

/// What a header says about the encryption of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Number of the key, never 0.
    pub key: u32,
    /// Proves that header and frames are what was encrypted.
    pub tag: [u8; TAG_BYTES],
}

impl Seal {
    /// The seal of the batch that `bytes` starts with; none if its frames are plain.
    ///
    /// # Errors
    /// [`BatchFault::TooShort`] without a whole header, [`BatchFault::Reserved`] for a tag without
    /// a key.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, BatchFault> {
        let Some(header) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(BatchFault::TooShort { len: bytes.len() });
        };
        let key = u32::from_le_bytes(field(header, KEY_FIELD.start));
        let tag = field(header, TAG_FIELD.start);
        if key == 0 && tag != [0; TAG_BYTES] {
            return Err(BatchFault::Reserved);
        }
        Ok((key != 0).then_some(Self { key, tag }))
    }

    /// Writes the seal into the header of `batch`, which must have one.
    pub fn write(self, batch: &mut [u8]) {
        assert!(self.key != 0, "key number 0 means that there is none");
        batch[KEY_FIELD].copy_from_slice(&self.key.to_le_bytes());
        batch[TAG_FIELD].copy_from_slice(&self.tag);
    }

    /// Removes a seal from the header of `batch`.
    pub fn clear(batch: &mut [u8]) {
        batch[KEY_FIELD.start..TAG_FIELD.end].fill(0);
    }
}

impl BatchHeader {
    /// Reads the header of a batch at rest, whose frames may be encrypted.
    ///
    /// # Errors
    /// As [`BatchHeader::decode`], except that a seal is allowed.
    pub fn decode_stored(bytes: &[u8]) -> Result<(Self, Option<Seal>), BatchFault> {
        let Some(seal) = Seal::read(bytes)? else { return Ok((Self::decode(bytes)?, None)) };
        let mut header: [u8; BATCH_HEADER_BYTES] = field(bytes, 0);
        Seal::clear(&mut header);
        Ok((Self::decode(&header)?, Some(seal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_read_back_and_the_wire_does_not_take_it() {
        let header = BatchHeader { batch_length: 300, message_count: 1, ..BatchHeader::default() };
        let mut bytes = header.encode();
        assert_eq!(BatchHeader::decode_stored(&bytes), Ok((header, None)));
        let seal = Seal { key: 7, tag: [3; TAG_BYTES] };
        seal.write(&mut bytes);
        assert_eq!(BatchHeader::decode_stored(&bytes), Ok((header, Some(seal))));
        assert_eq!(BatchHeader::decode(&bytes), Err(BatchFault::Reserved));
        bytes[72] = 1;
        assert_eq!(BatchHeader::decode_stored(&bytes), Err(BatchFault::Reserved));
        bytes[72] = 0;
        Seal::clear(&mut bytes);
        assert_eq!(BatchHeader::decode(&bytes), Ok(header));
        bytes[56] = 1;
        assert_eq!(BatchHeader::decode_stored(&bytes), Err(BatchFault::Reserved));
        assert_eq!(Seal::read(&bytes[..255]), Err(BatchFault::TooShort { len: 255 }));
    }
}
