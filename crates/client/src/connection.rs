//! One TCP connection: a frame out, a frame in.

use crate::error::Error;
use borzoi_types::limits::FRAME_BYTES_MAX;
use borzoi_wire::ErrorCode;
use borzoi_wire::frame::{
    EvictionView, FrameCommand, FrameSize, HEADER_BYTES, HeaderBytes, ReplyView, ResultFault,
    split_result,
};
use bytes::{Bytes, BytesMut};
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A reply whose status was 0 and whose result section, if it has one, was a success.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The payload.
    pub payload: Bytes,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    input: BytesMut,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self, Error> {
        let fault = |source| Error::Connection { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).await.map_err(fault)?;
        stream.set_nodelay(true).map_err(fault)?;
        Ok(Self { stream, address: address.to_owned(), input: BytesMut::new() })
    }

    fn fault(&self, source: io::Error) -> Error {
        Error::Connection { address: self.address.clone(), source }
    }

    /// Sends one frame given in pieces and waits for its answer.
    pub(crate) async fn exchange(&mut self, parts: &[&[u8]]) -> Result<Answer, Error> {
        self.write(parts).await.map_err(|source| self.fault(source))?;
        let frame = self.read_frame().await?;
        interpret(frame)
    }

    async fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            let written = self.stream.write_vectored(left).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    async fn read_frame(&mut self) -> Result<Bytes, Error> {
        self.fill(HEADER_BYTES).await?;
        let header: &HeaderBytes =
            self.input.first_chunk().ok_or(Error::Protocol("a header was cut short"))?;
        let size = FrameSize::peek(header, FRAME_BYTES_MAX)
            .map_err(|_| Error::Protocol("the size of a frame is outside the limits"))?
            .frame_bytes();
        self.fill(size).await?;
        Ok(self.input.split_to(size).freeze())
    }

    /// Reads until `bytes` bytes are there.
    async fn fill(&mut self, bytes: usize) -> Result<(), Error> {
        while self.input.len() < bytes {
            self.input.reserve(bytes - self.input.len());
            let read = self.stream.read_buf(&mut self.input).await;
            if read.map_err(|source| self.fault(source))? == 0 {
                return Err(self.fault(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }
}

/// Steps 2 to 6 of section 3.10.
fn interpret(frame: Bytes) -> Result<Answer, Error> {
    let header: &HeaderBytes =
        frame.first_chunk().ok_or(Error::Protocol("a header was cut short"))?;
    let reply = ReplyView::new(header);
    if reply.command() == FrameCommand::Eviction as u8 {
        return Err(Error::Evicted(EvictionView::new(header).reason()));
    }
    if reply.command() != FrameCommand::Reply as u8 {
        return Err(Error::Protocol("the command byte is neither reply nor eviction"));
    }
    if reply.status() != 0 {
        return Err(Error::Refused(ErrorCode::from_wire(reply.status())));
    }
    let operation =
        reply.operation().ok_or(Error::Protocol("the operation of a reply is not known"))?;
    let body = frame.slice(HEADER_BYTES..);
    if !operation.has_result_section() || body.is_empty() {
        return Ok(Answer { payload: body });
    }
    match split_result(&body) {
        Ok(payload) => {
            let skipped = body.len() - payload.len();
            Ok(Answer { payload: body.slice(skipped..) })
        }
        Err(ResultFault::Rejected(number)) => Err(Error::Refused(ErrorCode::from_wire(number))),
        Err(ResultFault::Malformed) => Err(Error::Protocol("the result section does not decode")),
    }
}
