//! A reusable buffer whose start is aligned for direct I/O, without `unsafe`: one alignment more
//! than needed is allocated and the slice starts at the first aligned byte.
//!
//! Invariant: [`AlignedBuffer::filled`] starts at a multiple of [`DISK_ALIGNMENT`] in memory.

use borzoi_types::limits::DISK_ALIGNMENT;

/// Scratch memory of one I/O thread.
#[derive(Default)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Makes room for `len` bytes and forgets what was filled. Keeps the allocation when it is
    /// large enough, so steady state allocates nothing.
    pub fn clear_for(&mut self, len: usize) {
        let wanted = len + DISK_ALIGNMENT;
        if self.bytes.len() < wanted {
            // Not resized in place: growing would copy bytes that nobody needs.
            self.bytes = vec![0; wanted.next_power_of_two()];
        }
        let address = self.bytes.as_ptr() as usize;
        self.start = address.next_multiple_of(DISK_ALIGNMENT) - address;
        self.len = 0;
        debug_assert!(self.start < DISK_ALIGNMENT);
    }

    /// Appends `part`, which must fit what [`AlignedBuffer::clear_for`] made room for.
    pub fn push(&mut self, part: &[u8]) {
        let from = self.start + self.len;
        self.bytes[from..from + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    /// What was pushed since the last clear, aligned in memory.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Gives memory back after an unusually large use.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        if self.bytes.len() > bytes_max {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filled_slice_is_aligned_and_holds_what_was_pushed() {
        let mut buffer = AlignedBuffer::default();
        for len in [1, 4_095, 4_096, 4_097, 100_000] {
            buffer.clear_for(len);
            buffer.push(&vec![7; len - 1]);
            buffer.push(&[8]);
            let filled = buffer.filled();
            assert_eq!(filled.as_ptr() as usize % DISK_ALIGNMENT, 0);
            assert_eq!(filled.len(), len);
            assert_eq!(filled[len - 1], 8);
            assert!(filled[..len - 1].iter().all(|byte| *byte == 7));
        }
        buffer.shrink_to(4_096);
        buffer.clear_for(10);
        assert!(buffer.filled().is_empty());
    }
}
