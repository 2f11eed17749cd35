//! Sending and polling (sections 9.10, 9.11 and 9.13). The hot path: everything borrows.

use crate::batch::Batches;
use crate::codec::{DecodeError, Reader, Wire, usize_from, wire_record};
use crate::error_code::ErrorCode;
use crate::identifier::{
    ConsumerRef, Identifier, IdentifierRef, OptionalPartition, Partitioning, PollingStrategy,
};
use borzoi_types::{Offset, PartitionId, StreamId, TopicId};
use core::ops::Range;
use thiserror::Error;

/// Partition of a poll reply that tells a group member to sync its assignment.
pub const PARTITION_RESYNC: PartitionId = PartitionId(u32::MAX);

/// A send: the metadata decoded, the batch left where it is.
///
/// ```text
/// metadata_length u32 | stream | topic | partitioning | messages_count u32 | batch, to the end
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendMessages<'a> {
    /// The stream.
    pub stream: IdentifierRef<'a>,
    /// The topic.
    pub topic: IdentifierRef<'a>,
    /// Which partition.
    pub partitioning: Partitioning<'a>,
    /// Messages announced beside the batch; verified with it.
    pub messages_count: u32,
    /// The batch, not looked at yet; see [`crate::batch::verify_send`].
    pub batch: &'a [u8],
}

/// Why the body of a send is refused before its batch is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The metadata does not fit the body or does not decode.
    #[error("the metadata of the send does not decode: {0}")]
    Metadata(DecodeError),
    /// The metadata is longer than what it holds.
    #[error("{left} bytes of the metadata of the send are left over")]
    MetadataLength {
        /// Bytes left over.
        left: usize,
    },
}

impl SendError {
    /// The status to deny the send with (section 6.4).
    #[must_use]
    pub const fn deny(self) -> ErrorCode {
        match self {
            Self::Metadata(_) => ErrorCode::ResourceNotFound,
            Self::MetadataLength { .. } => ErrorCode::InvalidCommand,
        }
    }
}

impl<'a> SendMessages<'a> {
    /// Decodes the body of a send.
    ///
    /// # Errors
    /// When the metadata does not decode or does not fill its announced length.
    pub fn decode(body: &'a [u8]) -> Result<Self, SendError> {
        let mut reader = Reader::new(body);
        let length = reader.u32("metadata length").map_err(SendError::Metadata)?;
        let metadata = reader.bytes("metadata", usize_from(length)).map_err(SendError::Metadata)?;
        let batch = reader.rest();
        let mut metadata = Reader::new(metadata);
        let send = Self::read_metadata(&mut metadata, batch).map_err(SendError::Metadata)?;
        if metadata.is_empty() {
            Ok(send)
        } else {
            Err(SendError::MetadataLength { left: metadata.left() })
        }
    }

    fn read_metadata(reader: &mut Reader<'a>, batch: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self {
            stream: Wire::read(reader)?,
            topic: Wire::read(reader)?,
            partitioning: Wire::read(reader)?,
            messages_count: reader.u32("messages count")?,
            batch,
        })
    }

    /// Where the batch is in a body of `body_bytes` bytes that this was decoded from: always its
    /// end.
    #[must_use]
    pub const fn batch_range(&self, body_bytes: usize) -> Range<usize> {
        body_bytes - self.batch.len()..body_bytes
    }

    /// Appends the body up to the batch, which the caller sends behind it.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        self.stream.write(out);
        self.topic.write(out);
        self.partitioning.write(out);
        self.messages_count.write(out);
        let length = u32::try_from(out.len() - at - 4).expect("three names of 255 bytes");
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(out);
        out.extend_from_slice(self.batch);
    }
}

wire_record! {
    /// Where a batch was appended. 20 bytes; a send is answered with a counted list of them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SendConfirmation {
        /// The stream.
        pub stream: StreamId,
        /// The topic.
        pub topic: TopicId,
        /// The partition.
        pub partition: PartitionId,
        /// Offset of the first message.
        pub base_offset: Offset,
    }
}

wire_record! {
    /// Reads messages.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PollMessages<'a> {
        /// Who reads.
        pub consumer: ConsumerRef<'a>,
        /// The stream.
        pub stream: IdentifierRef<'a>,
        /// The topic.
        pub topic: IdentifierRef<'a>,
        /// The partition; a plain consumer that names none means 0.
        pub partition: OptionalPartition,
        /// Where to start.
        pub strategy: PollingStrategy,
        /// Messages wanted at most.
        pub count: u32,
        /// Whether the offset of the last message is stored for the consumer.
        pub auto_commit: bool,
    }
}

wire_record! {
    /// Start of a poll reply, 16 bytes. The batches follow to the end of the body.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PollPrefix {
        /// The partition, or [`PARTITION_RESYNC`].
        pub partition: PartitionId,
        /// Offset of the last committed message, 0 when there is none.
        pub current_offset: Offset,
        /// Messages in the batches.
        pub messages_count: u32,
    }
}

impl PollPrefix {
    /// Bytes of the prefix.
    pub const BYTES: usize = 16;

    /// The reply that tells a group member to sync its assignment.
    #[must_use]
    pub const fn resync() -> Self {
        let (partition, current_offset) = (PARTITION_RESYNC, Offset::ZERO);
        Self { partition, current_offset, messages_count: 0 }
    }
}

const _: () = assert!(<PollPrefix as Wire<'static>>::BYTES_MIN == PollPrefix::BYTES);

/// A poll reply as a client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollReply<'a> {
    /// Partition, current offset, count.
    pub prefix: PollPrefix,
    /// The batches, one after the other.
    pub records: &'a [u8],
}

impl<'a> PollReply<'a> {
    /// The batches in order.
    #[must_use]
    pub const fn batches(&self) -> Batches<'a> {
        Batches::new(self.records)
    }
}

impl<'a> Wire<'a> for PollReply<'a> {
    const BYTES_MIN: usize = PollPrefix::BYTES;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { prefix: PollPrefix::read(reader)?, records: reader.rest() })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.prefix.write(out);
        out.extend_from_slice(self.records);
    }
}

wire_record! {
    /// Asks for messages of a partition to be written out.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct FlushUnsavedBuffer {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// The partition.
        pub partition: PartitionId,
        /// Whether the disk is to be waited for.
        pub fsync: bool,
    }
}
