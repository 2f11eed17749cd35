//! Topics, partitions and segments (sections 9.7 and 9.8).

use crate::codec::{
    DecodeError, Reader, Wire, number_newtypes, wire_enum, wire_record, write_list,
};
use crate::identifier::Identifier;
use crate::name::Name;
use crate::options::{Options, TrailingOptions};
use borzoi_types::{Micros, Offset, PartitionId, TopicId};

wire_enum! {
    /// Compression that a topic reports; it has no effect on data.
    pub enum Compression("compression") {
        /// None.
        None = 1,
        /// Gzip.
        Gzip = 2,
    }
}

/// Microseconds until a message may be deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageExpiry(pub u64);
number_newtypes!(MessageExpiry(u64));

impl MessageExpiry {
    /// What the server is configured to.
    pub const SERVER_DEFAULT: Self = Self(0);
    /// Never.
    pub const NEVER: Self = Self(u64::MAX);
}

/// Bytes that a topic may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeLimit(pub u64);
number_newtypes!(SizeLimit(u64));

impl SizeLimit {
    /// What the server is configured to.
    pub const SERVER_DEFAULT: Self = Self(0);
    /// No limit.
    pub const UNLIMITED: Self = Self(u64::MAX);
}

wire_record! {
    /// Asks for a topic and its partitions.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GetTopic {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
    }
}

wire_record! {
    /// Asks for all topics of a stream.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GetTopics {
        /// The stream.
        pub stream: Identifier,
    }
}

wire_record! {
    /// Creates a topic.
    #[derive(Clone, PartialEq, Debug)]
    pub struct CreateTopic {
        /// The stream.
        pub stream: Identifier,
        /// Partitions to start with, 0 to 1,000.
        pub partitions_count: u32,
        /// Name of the topic.
        pub name: Name,
        /// Options that the application set.
        pub options: TrailingOptions,
    }
}

wire_record! {
    /// Deletes a topic.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeleteTopic {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
    }
}

wire_record! {
    /// Renames a topic and changes options; those not named stay.
    #[derive(Clone, PartialEq, Debug)]
    pub struct UpdateTopic {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// New name.
        pub name: Name,
        /// Options to change.
        pub options: TrailingOptions,
    }
}

wire_record! {
    /// Deletes all messages of a topic.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct PurgeTopic {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
    }
}

wire_record! {
    /// Adds partitions to a topic.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct CreatePartitions {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// How many, 1 to 1,000.
        pub partitions_count: u32,
    }
}

wire_record! {
    /// Removes the highest partitions of a topic.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeletePartitions {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// How many, 1 to 1,000.
        pub partitions_count: u32,
    }
}

wire_record! {
    /// Removes the oldest closed segments of a partition.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeleteSegments {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// The partition.
        pub partition: PartitionId,
        /// How many.
        pub segments_count: u32,
    }
}

wire_record! {
    /// A topic without its partitions.
    #[derive(Clone, PartialEq, Debug)]
    pub struct TopicHeader {
        /// Number within the stream, from 0.
        pub id: TopicId,
        /// Time of creation.
        pub created: Micros,
        /// Partitions. In [`TopicDetails`] the partitions that follow are counted instead.
        pub partitions_count: u32,
        /// When messages may be deleted.
        pub message_expiry: MessageExpiry,
        /// Compression, informative.
        pub compression: Compression,
        /// Bytes it may have.
        pub max_topic_size: SizeLimit,
        /// Bytes of all messages.
        pub size_bytes: u64,
        /// Number of messages.
        pub messages: u64,
        /// Name.
        pub name: Name,
        /// Options that the client set.
        pub explicit: Options,
        /// Options that the server filled in.
        pub derived: Options,
    }
}

wire_record! {
    /// A partition, 40 bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PartitionRecord {
        /// Number within the topic, from 0.
        pub id: PartitionId,
        /// Time of creation.
        pub created: Micros,
        /// Segments.
        pub segments: u32,
        /// Offset of the last message, 0 when there is none.
        pub current_offset: Offset,
        /// Bytes of all messages.
        pub size_bytes: u64,
        /// Number of messages.
        pub messages: u64,
    }
}

const _: () = assert!(<PartitionRecord as Wire<'static>>::BYTES_MIN == 40);

/// A topic with its partitions.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicDetails {
    /// The topic.
    pub topic: TopicHeader,
    /// Its partitions.
    pub partitions: Vec<PartitionRecord>,
}

impl Wire<'_> for TopicDetails {
    const BYTES_MIN: usize = TopicHeader::BYTES_MIN;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let topic = TopicHeader::read(reader)?;
        let partitions = reader.list("partitions of a topic", topic.partitions_count)?;
        Ok(Self { topic, partitions })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let topic = &self.topic;
        let count = u32::try_from(self.partitions.len()).expect("at most 1,000,000 partitions");
        topic.id.write(out);
        topic.created.write(out);
        count.write(out);
        topic.message_expiry.write(out);
        topic.compression.write(out);
        topic.max_topic_size.write(out);
        topic.size_bytes.write(out);
        topic.messages.write(out);
        topic.name.write(out);
        topic.explicit.write(out);
        topic.derived.write(out);
        write_list(&self.partitions, out);
    }
}
