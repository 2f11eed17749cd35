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
/// Buffers whose reuse is watched.
const BUFFERS_WATCHED_MAX: usize = 256;
/// How many of them one request for a buffer looks at.
const BUFFERS_TRIED_MAX: usize = 8;
/// Capacities are multiples of this, so that frames of similar size fit each other's buffers.
const CAPACITY_STEP: usize = 64 * 1024;

/// The buffers of one shard.
#[derive(Default)]
pub struct Buffers {
    chunk: BytesMut,
    /// What is left of buffers after their frame was split off, oldest first. Empty, but they
    /// keep the memory reachable.
    watched: VecDeque<BytesMut>,
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
        for _ in 0..self.watched.len().min(BUFFERS_TRIED_MAX) {
            let mut buffer = self.watched.pop_front().expect("not more than there are");
            if buffer.try_reclaim(bytes) {
                return buffer;
            }
            self.watched.push_back(buffer);
        }
        BytesMut::with_capacity(bytes.next_multiple_of(CAPACITY_STEP))
    }

    /// Splits the frame off a buffer from [`Buffers::take`] and watches the rest.
    pub fn finish(&mut self, mut buffer: BytesMut) -> BytesMut {
        let frame = buffer.split();
        if frame.len() >= BODY_BY_REFERENCE_BYTES_MIN {
            self.watched.push_back(buffer);
            if self.watched.len() > BUFFERS_WATCHED_MAX {
                self.watched.pop_front();
            }
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_frame_is_gone_and_not_before() {
        let mut buffers = Buffers::default();
        let mut buffer = buffers.take(100_000);
        buffer.extend_from_slice(&[1; 100_000]);
        let place = buffer.as_ptr();
        let frame = buffers.finish(buffer).freeze();
        let body = frame.slice(256..);
        drop(frame);
        let other = buffers.take(100_000);
        assert_ne!(other.as_ptr(), place, "a slice still lives");
        drop((body, other));
        let again = buffers.take(99_000);
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty());
    }
}
