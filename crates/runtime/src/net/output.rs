//! Replies on their way to one client.
//!
//! Invariant: at most [`OUTPUT_BYTES_PER_CONNECTION_MAX`] bytes wait, plus the reply that crossed
//! the line; after that the connection is closed.

use borzoi_types::Mono;
use borzoi_types::limits::{
    OUTPUT_BYTES_PER_CONNECTION_MAX, OUTPUT_HOLD_BYTES, OUTPUT_TAKEN_BYTES,
};
use bytes::{Buf as _, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use tokio::net::TcpStream;

/// Slices handed to the kernel at once.
const SLICES_MAX: usize = 64;

/// What waits to be written.
#[derive(Default)]
pub struct Output {
    parts: VecDeque<Bytes>,
    bytes: usize,
    /// Bytes queued since [`Output::is_taken`] last said so.
    since_taken: usize,
    /// Bytes that the socket has taken since [`Output::take_written`].
    written: usize,
    /// When the peer last took something, while something waits.
    pub waiting_since: Option<Mono>,
    /// Whether a task waits for the socket to take more.
    pub has_writer: bool,
}

impl Output {
    /// Queues one reply; whether the peer is still within its bounds.
    pub fn push(&mut self, parts: Vec<Bytes>) -> bool {
        for part in parts {
            self.bytes += part.len();
            self.since_taken += part.len();
            if !part.is_empty() {
                self.parts.push_back(part);
            }
        }
        self.bytes <= OUTPUT_BYTES_PER_CONNECTION_MAX
    }

    /// Whether much was queued and most of it is gone; says so once. The core holds requests back
    /// until then.
    pub fn is_taken(&mut self) -> bool {
        let taken = self.since_taken >= OUTPUT_HOLD_BYTES && self.bytes <= OUTPUT_TAKEN_BYTES;
        if taken {
            self.since_taken = 0;
        }
        taken
    }

    /// Bytes that the socket has taken since the last call.
    pub fn take_written(&mut self) -> usize {
        std::mem::take(&mut self.written)
    }

    /// Bytes waiting.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes what the socket takes now; whether everything is written.
    ///
    /// # Errors
    /// Those of `writev(2)` except `WouldBlock`.
    pub fn write(&mut self, socket: &TcpStream, now: Mono) -> io::Result<bool> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut used = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                used += 1;
            }
            match socket.try_write_vectored(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written(written, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting_since.get_or_insert(now);
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        debug_assert_eq!(self.bytes, 0);
        self.waiting_since = None;
        Ok(true)
    }

    fn written(&mut self, mut written: usize, now: Mono) {
        self.bytes -= written;
        self.written += written;
        self.waiting_since = Some(now);
        while written > 0 {
            let first = self.parts.front_mut().expect("no more was written than waits");
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_ends_within_a_part_leaves_the_rest_of_it() {
        let mut output = Output::default();
        let parts = ["head", "", "body", "tail"].map(Bytes::from);
        assert!(output.push(parts.to_vec()));
        output.written(6, Mono(5));
        assert_eq!(output.parts, ["dy", "tail"].map(Bytes::from));
        assert_eq!((output.bytes(), output.waiting_since), (6, Some(Mono(5))));
        output.written(6, Mono(6));
        assert!(output.parts.is_empty());
        assert!(!output.push(vec![Bytes::from(vec![0; OUTPUT_BYTES_PER_CONNECTION_MAX + 1])]));
    }
}
