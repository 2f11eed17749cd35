//! The batch checksum: XXH3-64 over the first 40 bytes of the batch header, the message count and
//! the checksums of the frames (section 6.3).
//!
//! The checksums are gathered in a block on the stack and hashed block by block: no allocation,
//! and a short batch is hashed in one call.

use borzoi_types::checksum::xxh3_64;
use core::hash::Hasher as _;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// Bytes gathered before they are hashed: the header part and 26 checksums fit without streaming,
/// and it is the block size of the hash.
const BLOCK_BYTES: usize = 256;

/// Header bytes in front of the checksums: 40 of the header and 4 of the count.
pub(super) const HEADER_PART_BYTES: usize = 44;

/// A batch checksum that is being computed.
pub(super) struct BatchChecksum {
    block: [u8; BLOCK_BYTES],
    used: usize,
    stream: Option<RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>>,
}

impl BatchChecksum {
    /// Starts with the header's part: bytes 0 to 39, then the count.
    pub(super) fn new(header_part: &[u8; HEADER_PART_BYTES]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        block[..HEADER_PART_BYTES].copy_from_slice(header_part);
        Self { block, used: HEADER_PART_BYTES, stream: None }
    }

    /// Adds the checksum of the next frame.
    pub(super) fn add(&mut self, frame_checksum: [u8; 8]) {
        if self.used + 8 > BLOCK_BYTES {
            self.drain();
        }
        self.block[self.used..self.used + 8].copy_from_slice(&frame_checksum);
        self.used += 8;
        debug_assert!(self.used <= BLOCK_BYTES);
    }

    /// The checksum over everything added.
    pub(super) fn finish(mut self) -> u64 {
        if self.stream.is_none() {
            return xxh3_64(&self.block[..self.used]);
        }
        self.drain();
        self.stream.map_or(0, |stream| stream.finish())
    }

    fn drain(&mut self) {
        let stream = self.stream.get_or_insert_with(|| RawHasher::new(SecretBuffer::default()));
        stream.write(&self.block[..self.used]);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaming_and_hashing_at_once_agree_at_every_length() {
        let header: [u8; HEADER_PART_BYTES] = core::array::from_fn(|i| (i * 7) as u8);
        for frames in [0u64, 1, 2, 25, 26, 27, 58, 59, 100, 1_000, 4_097] {
            let mut streamed = BatchChecksum::new(&header);
            let mut all = header.to_vec();
            for frame in 0..frames {
                let checksum = frame.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                streamed.add(checksum);
                all.extend_from_slice(&checksum);
            }
            assert_eq!(streamed.finish(), xxh3_64(&all), "{frames} frames");
        }
    }
}
