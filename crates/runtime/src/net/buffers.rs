//! Memory that frames are received into.
//!
//! Small frames share chunks: one read of a socket takes as many frames as are there, and idle
//! connections hold no memory. Large frames get a buffer of their own, filled by the kernel at
//! its final place; when everybody has let go of it, its memory is used again, so that steady
//! load neither allocates nor meets fresh pages.

use borzoi_types::limits::{BODY_BY_REFERENCE_BYTES_MIN, SOCKET_READ_BYTES};
use bytes::{BufMut as _, BytesMut};
use std::collections::VecDeque;
use std::io;
use tokio::net::TcpStream;

/// Bytes of one shared chunk: a few reads.
const CHUNK_BYTES: usize = 4 * SOCKET_READ_BYTES;
/// A chunk with less room than this is replaced before it is read into.
const CHUNK_ROOM_MIN: usize = SOCKET_READ_BYTES / 4;
/// Buffers in use that are looked at again. They cost nothing but the entry.
const IN_USE_MAX: usize = 4_096;
/// How many of them each finished frame looks at, oldest first.
const LOOKED_AT: usize = 4;
/// Bytes of buffers that nobody uses and that are kept for the next frames.
const FREE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Capacities are multiples of this, so that frames of similar size fit each other's buffers.
const CAPACITY_STEP: usize = 64 * 1024;

/// The buffers of one shard.
#[derive(Default)]
pub struct Buffers {
    chunk: BytesMut,
    /// What is left of buffers after their frame was split off, with their capacity. Empty, but
    /// they keep the memory reachable.
    in_use: VecDeque<(BytesMut, usize)>,
    /// Buffers whose frames are gone, with their capacity.
    free: Vec<(BytesMut, usize)>,
    free_bytes: usize,
}

impl Buffers {
    /// Reads up to `bytes_max` bytes that are there, behind those in `pending`. Zero: the peer has
    /// closed its side.
    ///
    /// # Errors
    /// Those of `read(2)`; `WouldBlock` when nothing is there.
    pub fn read(
        &mut self,
        socket: &TcpStream,
        bytes_max: usize,
        pending: &mut BytesMut,
    ) -> io::Result<usize> {
        if self.chunk.capacity() < CHUNK_ROOM_MIN && !self.chunk.try_reclaim(CHUNK_BYTES) {
            self.chunk = BytesMut::with_capacity(CHUNK_BYTES);
        }
        let room = bytes_max.min(self.chunk.capacity());
        let read = socket.try_read_buf(&mut (&mut self.chunk).limit(room))?;
        let fresh = self.chunk.split();
        if pending.is_empty() {
            *pending = fresh;
        } else {
            pending.extend_from_slice(&fresh);
        }
        Ok(read)
    }

    /// An empty buffer that takes `bytes` without growing.
    pub fn take(&mut self, bytes: usize) -> BytesMut {
        if bytes < BODY_BY_REFERENCE_BYTES_MIN {
            return BytesMut::with_capacity(bytes);
        }
        // One more than twice as large would be wasted on this frame.
        let fits = |(_, capacity): &(BytesMut, usize)| (bytes..=2 * bytes).contains(capacity);
        if let Some(found) = self.free.iter().position(fits) {
            let (buffer, capacity) = self.free.swap_remove(found);
            self.free_bytes -= capacity;
            return buffer;
        }
        BytesMut::with_capacity(bytes.next_multiple_of(CAPACITY_STEP))
    }

    /// Splits the frame off a buffer from [`Buffers::take`] and keeps an eye on the rest.
    pub fn finish(&mut self, mut buffer: BytesMut) -> BytesMut {
        let capacity = buffer.capacity();
        let frame = buffer.split();
        if frame.len() >= BODY_BY_REFERENCE_BYTES_MIN {
            self.in_use.push_back((buffer, capacity));
            self.collect();
        }
        frame
    }

    /// Moves buffers whose frames are gone to the free ones.
    fn collect(&mut self) {
        for _ in 0..LOOKED_AT.min(self.in_use.len()) {
            let (mut buffer, capacity) = self.in_use.pop_front().expect("not more than there are");
            if !buffer.try_reclaim(capacity) {
                self.in_use.push_back((buffer, capacity));
            } else if self.free_bytes + capacity <= FREE_BYTES_MAX {
                self.free_bytes += capacity;
                self.free.push((buffer, capacity));
            }
        }
        while self.in_use.len() > IN_USE_MAX {
            self.in_use.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(buffers: &mut Buffers, bytes: usize) -> BytesMut {
        let mut buffer = buffers.take(bytes);
        buffer.resize(bytes, 1);
        buffers.finish(buffer)
    }

    #[test]
    fn a_buffer_is_used_again_when_its_frame_is_gone_and_not_before() {
        let mut buffers = Buffers::default();
        let first = frame(&mut buffers, 100_000).freeze();
        let place = first.as_ptr();
        let body = first.slice(256..);
        drop(first);
        let second = frame(&mut buffers, 100_000);
        assert!(buffers.free.is_empty(), "a slice still lives");
        drop(body);
        let third = frame(&mut buffers, 100_000);
        assert_eq!(buffers.free_bytes, 131_072);
        let again = buffers.take(99_000);
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty() && again.capacity() >= 99_000);
        assert_eq!(buffers.free_bytes, 0);
        drop((second, third));
    }

    #[test]
    fn what_nobody_uses_is_bounded_and_small_frames_do_not_take_large_buffers() {
        let mut buffers = Buffers::default();
        let many: Vec<BytesMut> = (0..200).map(|_| frame(&mut buffers, 1_000_000)).collect();
        drop(many);
        for _ in 0..100 {
            drop(frame(&mut buffers, 20_000));
        }
        assert!(buffers.free_bytes <= FREE_BYTES_MAX);
        assert!(buffers.free.len() >= 60, "{}", buffers.free.len());
        assert!(buffers.take(20_000).capacity() < 200_000);
    }
}
