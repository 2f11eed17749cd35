//! Frames out of a byte stream.
//!
//! Invariants: a frame is charged to the ingest budget before its body is read; its size is
//! checked against the connection's limit before anything is reserved for it.

use super::buffers::Buffers;
use super::connection::{Connection, EndReason, Receiving};
use crate::budget::Budgets;
use crate::clock::Clock;
use borzoi_types::limits::SOCKET_READ_BYTES;
use borzoi_wire::frame::{FrameSize, HEADER_BYTES};
use bytes::{BufMut as _, BytesMut};
use std::cell::RefCell;
use std::io;

/// A connection whose last frame was at least this large is read header by header, so that the
/// next body arrives at its final place without a copy.
const LARGE_FRAME_BYTES_MIN: usize = SOCKET_READ_BYTES;
/// The rate limit runs over pieces of this size, so that a frame which stalls late is noticed
/// early.
const PIECE_BYTES: usize = 256 * 1024;
/// A reader lets others run after so many bytes of one body.
const BYTES_PER_SLICE_MAX: usize = 1024 * 1024;

/// Takes one connection's stream apart.
#[derive(Default)]
pub struct Receiver {
    pending: BytesMut,
    large: bool,
}

impl Receiver {
    /// The next whole frame, charged.
    ///
    /// # Errors
    /// Why there is none any more.
    pub async fn next(
        &mut self,
        connection: &Connection,
        clock: &Clock,
        ingest: &Budgets,
        buffers: &RefCell<Buffers>,
    ) -> Result<BytesMut, EndReason> {
        connection.slot().await;
        connection.receiving(Receiving::Idle(clock.mono()));
        let mut started = false;
        while self.pending.len() < HEADER_BYTES {
            if !started && !self.pending.is_empty() {
                // Once, so that a trickle of single bytes is one slow frame.
                connection.receiving(Receiving::Frame(clock.mono(), HEADER_BYTES));
                started = true;
            }
            self.fill(connection, buffers).await?;
        }
        let header = self.pending.first_chunk().expect("as long as a header by the loop above");
        let size = FrameSize::peek(header, connection.frame_limit())?.frame_bytes();
        if !ingest.of(size).try_charge(size) {
            connection.receiving(Receiving::HeldUp);
            ingest.of(size).charge(size).await;
        }
        connection.charged(size);
        self.large = size >= LARGE_FRAME_BYTES_MIN;
        if self.pending.len() >= size {
            return Ok(self.pending.split_to(size));
        }
        self.body(connection, clock, buffers, size).await
    }

    /// Reads what is there, waiting until something is.
    async fn fill(
        &mut self,
        connection: &Connection,
        buffers: &RefCell<Buffers>,
    ) -> Result<(), EndReason> {
        let bytes_max =
            if self.large { HEADER_BYTES - self.pending.len() } else { SOCKET_READ_BYTES };
        loop {
            let read = buffers.borrow_mut().read(&connection.socket, bytes_max, &mut self.pending);
            match read {
                Ok(0) => return Err(self.closed(self.pending.len())),
                Ok(_) => return Ok(()),
                Err(error) => wait(connection, error).await?,
            }
        }
    }

    /// Reads the rest of a frame of `size` bytes whose beginning is pending.
    async fn body(
        &mut self,
        connection: &Connection,
        clock: &Clock,
        buffers: &RefCell<Buffers>,
        size: usize,
    ) -> Result<BytesMut, EndReason> {
        let mut frame = buffers.borrow_mut().take(size);
        frame.extend_from_slice(&self.pending);
        self.pending = BytesMut::new();
        let mut slice = 0;
        let mut piece_end = 0;
        while frame.len() < size {
            if frame.len() >= piece_end {
                piece_end = (frame.len() + PIECE_BYTES).min(size);
                let piece = piece_end - frame.len();
                let (now, large) = (clock.mono(), size >= LARGE_FRAME_BYTES_MIN);
                connection.receiving(if large {
                    Receiving::Large(now, piece)
                } else {
                    Receiving::Frame(now, piece)
                });
            }
            let missing = size - frame.len();
            match connection.socket.try_read_buf(&mut (&mut frame).limit(missing)) {
                Ok(0) => return Err(self.closed(frame.len())),
                Ok(read) => slice += read,
                Err(error) => {
                    slice = 0;
                    wait(connection, error).await?;
                }
            }
            if slice >= BYTES_PER_SLICE_MAX {
                slice = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(buffers.borrow_mut().finish(frame))
    }

    fn closed(&self, received: usize) -> EndReason {
        if received == 0 { EndReason::Peer } else { EndReason::PeerWithinFrame { received } }
    }
}

/// Waits until the socket has something, if `error` says that it had nothing.
async fn wait(connection: &Connection, error: io::Error) -> Result<(), EndReason> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(connection.socket.readable().await?),
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error.into()),
    }
}
