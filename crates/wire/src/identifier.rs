//! How requests name things: identifiers, consumers, partitioning, polling strategies (wire
//! protocol, sections 5.1 to 5.4).
//!
//! Each comes borrowed (`...Ref`, for the hot requests) and owned.

use crate::codec::{DecodeError, Reader, Wire, wire_enum};
use crate::name::{Name, NameRef};
use borzoi_types::{Micros, Offset, PartitionId};
use core::fmt;

const KIND_NUMERIC: u8 = 1;
const KIND_NAME: u8 = 2;

/// A stream, topic, group or user, by number or by name; borrowed.
///
/// ```text
/// kind u8 (1 number, 2 name) | length u8 (4, or 1 to 255) | u32 or UTF-8
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdentifierRef<'a> {
    /// By number; 0 is valid.
    Numeric(u32),
    /// By name.
    Name(NameRef<'a>),
}

impl IdentifierRef<'_> {
    /// An owned copy.
    #[must_use]
    pub fn to_identifier(self) -> Identifier {
        match self {
            Self::Numeric(number) => Identifier::Numeric(number),
            Self::Name(name) => Identifier::Name(name.to_name()),
        }
    }
}

impl<'a> Wire<'a> for IdentifierRef<'a> {
    const BYTES_MIN: usize = 3;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = reader.u8("identifier kind")?;
        match kind {
            KIND_NUMERIC => {
                let len = reader.u8("identifier length")?;
                if len != 4 {
                    let value = u64::from(len);
                    return Err(DecodeError::Value { what: "identifier length", value });
                }
                Ok(Self::Numeric(reader.u32("identifier")?))
            }
            KIND_NAME => Ok(Self::Name(NameRef::read(reader)?)),
            kind => Err(DecodeError::Value { what: "identifier kind", value: u64::from(kind) }),
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Numeric(number) => {
                out.extend_from_slice(&[KIND_NUMERIC, 4]);
                number.write(out);
            }
            Self::Name(name) => {
                out.push(KIND_NAME);
                name.write(out);
            }
        }
    }
}

/// A stream, topic, group or user, by number or by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Identifier {
    /// By number; 0 is valid.
    Numeric(u32),
    /// By name.
    Name(Name),
}

impl Identifier {
    /// The identifier, borrowed.
    #[must_use]
    pub fn as_identifier_ref(&self) -> IdentifierRef<'_> {
        match self {
            Self::Numeric(number) => IdentifierRef::Numeric(*number),
            Self::Name(name) => IdentifierRef::Name(name.as_name_ref()),
        }
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numeric(number) => fmt::Display::fmt(number, f),
            Self::Name(name) => fmt::Display::fmt(name, f),
        }
    }
}

impl Wire<'_> for Identifier {
    const BYTES_MIN: usize = 3;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(IdentifierRef::read(reader)?.to_identifier())
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.as_identifier_ref().write(out);
    }
}

wire_enum! {
    /// Whose stored offset a request means.
    pub enum ConsumerKind("consumer kind") {
        /// One consumer on its own.
        Consumer = 1,
        /// A consumer group of the topic.
        Group = 2,
    }
}

/// A consumer: its kind and its identifier; borrowed.
///
/// A named plain consumer is keyed by [`consumer_number`] of its name, a numeric one by its
/// value; a group is resolved in its topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConsumerRef<'a> {
    /// Consumer or group.
    pub kind: ConsumerKind,
    /// Which one.
    pub id: IdentifierRef<'a>,
}

impl<'a> Wire<'a> for ConsumerRef<'a> {
    const BYTES_MIN: usize = 4;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { kind: ConsumerKind::read(reader)?, id: IdentifierRef::read(reader)? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.kind.write(out);
        self.id.write(out);
    }
}

impl ConsumerRef<'_> {
    /// The number a plain consumer's offset is stored under; `None` for a group.
    #[must_use]
    pub fn plain_number(&self) -> Option<u32> {
        match (self.kind, self.id) {
            (ConsumerKind::Group, _) => None,
            (ConsumerKind::Consumer, IdentifierRef::Numeric(number)) => Some(number),
            (ConsumerKind::Consumer, IdentifierRef::Name(name)) => Some(consumer_number(name)),
        }
    }
}

/// The number under which a named plain consumer is stored: XXH32 of the name (section 5.2).
#[must_use]
pub fn consumer_number(name: NameRef<'_>) -> u32 {
    twox_hash::XxHash32::oneshot(0, name.as_str().as_bytes())
}

/// A key of 1 to 255 bytes that decides a partition; borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessagesKey<'a>(&'a [u8]);

impl<'a> MessagesKey<'a> {
    /// Takes `bytes` as a key; `None` unless there are 1 to 255 of them.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > u8::MAX as usize { None } else { Some(Self(bytes)) }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The partition of a topic with `partitions` partitions: XXH32 of the key modulo their number
    /// (section 5.3); `None` when there are no partitions.
    #[must_use]
    pub fn partition(self, partitions: u32) -> Option<PartitionId> {
        twox_hash::XxHash32::oneshot(0, self.0).checked_rem(partitions).map(PartitionId)
    }
}

/// Where a send goes.
///
/// ```text
/// kind u8 (1 balanced, 2 partition, 3 key) | length u8 (0, 4, 1 to 255) | value
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Partitioning<'a> {
    /// Any partition, in turn.
    Balanced,
    /// This partition.
    Partition(PartitionId),
    /// The partition of this key.
    Key(MessagesKey<'a>),
}

impl<'a> Wire<'a> for Partitioning<'a> {
    const BYTES_MIN: usize = 2;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = reader.u8("partitioning kind")?;
        let len = reader.u8("partitioning length")?;
        let value = reader.bytes("partitioning value", usize::from(len))?;
        let wrong_length =
            DecodeError::Value { what: "partitioning length", value: u64::from(len) };
        match kind {
            1 if value.is_empty() => Ok(Self::Balanced),
            2 => {
                let bytes: [u8; 4] = value.try_into().map_err(|_| wrong_length)?;
                Ok(Self::Partition(PartitionId(u32::from_le_bytes(bytes))))
            }
            3 => MessagesKey::new(value).map(Self::Key).ok_or(wrong_length),
            1 => Err(wrong_length),
            _ => Err(DecodeError::Value { what: "partitioning kind", value: u64::from(kind) }),
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Balanced => out.extend_from_slice(&[1, 0]),
            Self::Partition(partition) => {
                out.extend_from_slice(&[2, 4]);
                partition.write(out);
            }
            Self::Key(key) => {
                let len = u8::try_from(key.0.len()).expect("checked when the key was made");
                out.extend_from_slice(&[3, len]);
                out.extend_from_slice(key.0);
            }
        }
    }
}

/// Where a poll starts (section 5.4): kind u8, value u64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PollingStrategy {
    /// At this offset.
    Offset(Offset),
    /// At the first batch appended at or after this time.
    Timestamp(Micros),
    /// At the first message there is. The value travels and is ignored.
    First,
    /// So that the last messages are returned.
    Last,
    /// After the stored offset of the consumer.
    Next,
}

impl Wire<'_> for PollingStrategy {
    const BYTES_MIN: usize = 9;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.u8("polling strategy")?;
        let value = reader.u64("polling value")?;
        match kind {
            1 => Ok(Self::Offset(Offset(value))),
            2 => Ok(Self::Timestamp(Micros(value))),
            3 => Ok(Self::First),
            4 => Ok(Self::Last),
            5 => Ok(Self::Next),
            _ => Err(DecodeError::Value { what: "polling strategy", value: u64::from(kind) }),
        }
    }
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, value) = match self {
            Self::Offset(offset) => (1, offset.0),
            Self::Timestamp(time) => (2, time.0),
            Self::First => (3, 0),
            Self::Last => (4, 0),
            Self::Next => (5, 0),
        };
        out.push(kind);
        out.extend_from_slice(&u64::to_le_bytes(value));
    }
}

/// An optional partition: flag u8, then always four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OptionalPartition(pub Option<PartitionId>);

impl Wire<'_> for OptionalPartition {
    const BYTES_MIN: usize = 5;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let present = reader.flag("partition flag")?;
        let partition = PartitionId::read(reader)?;
        Ok(Self(present.then_some(partition)))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.0.is_some()));
        self.0.unwrap_or_default().write(out);
    }
}
