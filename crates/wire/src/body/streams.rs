//! Streams (section 9.6).

use super::topics::TopicHeader;
use crate::codec::{DecodeError, Reader, Wire, wire_record, write_list};
use crate::identifier::Identifier;
use crate::name::Name;
use crate::options::{Options, TrailingOptions};
use borzoi_types::{Micros, StreamId};

wire_record! {
    /// Asks for a stream and its topics.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GetStream {
        /// The stream.
        pub stream: Identifier,
    }
}

wire_record! {
    /// Creates a stream.
    #[derive(Clone, PartialEq, Debug)]
    pub struct CreateStream {
        /// Name of the stream.
        pub name: Name,
        /// Options; profile A knows none for streams.
        pub options: TrailingOptions,
    }
}

wire_record! {
    /// Deletes a stream with all its topics.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct DeleteStream {
        /// The stream.
        pub stream: Identifier,
    }
}

wire_record! {
    /// Renames a stream.
    #[derive(Clone, PartialEq, Debug)]
    pub struct UpdateStream {
        /// The stream.
        pub stream: Identifier,
        /// New name.
        pub name: Name,
        /// Options; profile A knows none for streams.
        pub options: TrailingOptions,
    }
}

wire_record! {
    /// Deletes all messages of a stream.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct PurgeStream {
        /// The stream.
        pub stream: Identifier,
    }
}

wire_record! {
    /// A stream without its topics.
    #[derive(Clone, PartialEq, Debug)]
    pub struct StreamRecord {
        /// Number, from 0.
        pub id: StreamId,
        /// Time of creation.
        pub created: Micros,
        /// Topics. In [`StreamDetails`] the topics that follow are counted instead.
        pub topics_count: u32,
        /// Bytes of all messages.
        pub size_bytes: u64,
        /// Number of messages.
        pub messages: u64,
        /// Name.
        pub name: Name,
        /// Options.
        pub options: Options,
    }
}

/// A stream with its topics.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamDetails {
    /// The stream.
    pub stream: StreamRecord,
    /// Its topics.
    pub topics: Vec<TopicHeader>,
}

impl Wire<'_> for StreamDetails {
    const BYTES_MIN: usize = StreamRecord::BYTES_MIN;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let stream = StreamRecord::read(reader)?;
        let topics = reader.list("topics of a stream", stream.topics_count)?;
        Ok(Self { stream, topics })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let stream = &self.stream;
        let count = u32::try_from(self.topics.len()).expect("a stream has at most 4,096 topics");
        stream.id.write(out);
        stream.created.write(out);
        count.write(out);
        stream.size_bytes.write(out);
        stream.messages.write(out);
        stream.name.write(out);
        stream.options.write(out);
        write_list(&self.topics, out);
    }
}
