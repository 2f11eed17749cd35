//! Stored offsets (section 9.12).

use crate::codec::{wire_enum, wire_record};
use crate::identifier::{ConsumerRef, IdentifierRef, OptionalPartition};
use borzoi_types::{Offset, PartitionId};

wire_enum! {
    /// When an offset write is answered.
    pub enum OffsetAck("offset acknowledgement") {
        /// After the local update.
        Local = 0,
        /// After replication.
        Quorum = 1,
    }
}

wire_record! {
    /// Asks for a stored offset. A partition that is not named means 0.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct GetConsumerOffset<'a> {
        /// Whose offset.
        pub consumer: ConsumerRef<'a>,
        /// The stream.
        pub stream: IdentifierRef<'a>,
        /// The topic.
        pub topic: IdentifierRef<'a>,
        /// The partition.
        pub partition: OptionalPartition,
    }
}

wire_record! {
    /// Stores an offset.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct StoreConsumerOffset<'a> {
        /// Whose offset.
        pub consumer: ConsumerRef<'a>,
        /// The stream.
        pub stream: IdentifierRef<'a>,
        /// The topic.
        pub topic: IdentifierRef<'a>,
        /// The partition.
        pub partition: OptionalPartition,
        /// The offset.
        pub offset: Offset,
        /// When to answer.
        pub ack: OffsetAck,
    }
}

wire_record! {
    /// Forgets a stored offset.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DeleteConsumerOffset<'a> {
        /// Whose offset.
        pub consumer: ConsumerRef<'a>,
        /// The stream.
        pub stream: IdentifierRef<'a>,
        /// The topic.
        pub topic: IdentifierRef<'a>,
        /// The partition.
        pub partition: OptionalPartition,
        /// When to answer.
        pub ack: OffsetAck,
    }
}

wire_record! {
    /// A stored offset. The body is empty when nothing is stored.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ConsumerOffset {
        /// The partition.
        pub partition: PartitionId,
        /// Offset of the last committed message, 0 when there is none.
        pub current_offset: Offset,
        /// The stored offset.
        pub stored_offset: Offset,
    }
}
