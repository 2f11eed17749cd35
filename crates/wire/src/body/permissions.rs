//! Permissions of a user (section 8.1).
//!
//! ```text
//! 10 global flags | has_streams u8
//!   per stream: id u32 | 6 flags | has_topics u8
//!     per topic: id u32 | 4 flags | another topic follows u8
//!     another stream follows u8
//! ```

use crate::codec::{DecodeError, Reader, Wire, usize_from, wire_record};
use borzoi_types::{StreamId, TopicId};

wire_record! {
    /// What a user may do everywhere.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct GlobalPermissions {
        /// Manage servers.
        pub manage_servers: bool,
        /// Read servers.
        pub read_servers: bool,
        /// Manage users.
        pub manage_users: bool,
        /// Read users.
        pub read_users: bool,
        /// Manage streams.
        pub manage_streams: bool,
        /// Read streams.
        pub read_streams: bool,
        /// Manage topics.
        pub manage_topics: bool,
        /// Read topics.
        pub read_topics: bool,
        /// Poll messages.
        pub poll_messages: bool,
        /// Send messages.
        pub send_messages: bool,
    }
}

/// What a user may do in one stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPermissions {
    /// The stream.
    pub stream: StreamId,
    /// Manage the stream.
    pub manage_stream: bool,
    /// Read the stream.
    pub read_stream: bool,
    /// Manage its topics.
    pub manage_topics: bool,
    /// Read its topics.
    pub read_topics: bool,
    /// Poll messages of its topics.
    pub poll_messages: bool,
    /// Send messages to its topics.
    pub send_messages: bool,
    /// What the user may do in single topics.
    pub topics: Vec<TopicPermissions>,
}

wire_record! {
    /// What a user may do in one topic.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TopicPermissions {
        /// The topic.
        pub topic: TopicId,
        /// Manage the topic.
        pub manage_topic: bool,
        /// Read the topic.
        pub read_topic: bool,
        /// Poll its messages.
        pub poll_messages: bool,
        /// Send messages to it.
        pub send_messages: bool,
    }
}

/// What a user may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Permissions {
    /// Everywhere.
    pub global: GlobalPermissions,
    /// In single streams.
    pub streams: Vec<StreamPermissions>,
}

impl Wire<'_> for Permissions {
    const BYTES_MIN: usize = GlobalPermissions::BYTES_MIN + 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let global = GlobalPermissions::read(reader)?;
        let streams = read_chain(reader, "permissions of streams")?;
        Ok(Self { global, streams })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.global.write(out);
        write_chain(&self.streams, out);
    }
}

impl Wire<'_> for StreamPermissions {
    const BYTES_MIN: usize = 4 + 6 + 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            stream: Wire::read(reader)?,
            manage_stream: Wire::read(reader)?,
            read_stream: Wire::read(reader)?,
            manage_topics: Wire::read(reader)?,
            read_topics: Wire::read(reader)?,
            poll_messages: Wire::read(reader)?,
            send_messages: Wire::read(reader)?,
            topics: read_chain(reader, "permissions of topics")?,
        })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.stream.write(out);
        for flag in [
            self.manage_stream,
            self.read_stream,
            self.manage_topics,
            self.read_topics,
            self.poll_messages,
            self.send_messages,
        ] {
            flag.write(out);
        }
        write_chain(&self.topics, out);
    }
}

/// Reads elements that are each announced by a flag in front of them.
fn read_chain<'a, T: Wire<'a>>(
    reader: &mut Reader<'a>,
    what: &'static str,
) -> Result<Vec<T>, DecodeError> {
    let mut list = Vec::new();
    while reader.flag(what)? {
        list.push(T::read(reader)?);
    }
    Ok(list)
}

fn write_chain<'a, T: Wire<'a>>(list: &[T], out: &mut Vec<u8>) {
    for element in list {
        out.push(1);
        element.write(out);
    }
    out.push(0);
}

/// Reads `has u8`, then `length u32` and permissions, as requests carry them.
pub(crate) fn read_optional(reader: &mut Reader<'_>) -> Result<Option<Permissions>, DecodeError> {
    if reader.flag("has permissions")? { read_sized(reader).map(Some) } else { Ok(None) }
}

/// Appends what [`read_optional`] reads.
pub(crate) fn write_optional(permissions: Option<&Permissions>, out: &mut Vec<u8>) {
    match permissions {
        Some(permissions) => write_sized(permissions, out),
        None => out.push(0),
    }
}

/// Reads `1, length u32` and permissions, or four zero bytes, as replies carry them.
pub(crate) fn read_in_reply(reader: &mut Reader<'_>) -> Result<Option<Permissions>, DecodeError> {
    if reader.flag("has permissions")? {
        return read_sized(reader).map(Some);
    }
    match reader.array::<3>("no permissions")? {
        [0, 0, 0] => Ok(None),
        [a, ..] => Err(DecodeError::Value { what: "no permissions", value: u64::from(a) }),
    }
}

/// Appends what [`read_in_reply`] reads.
pub(crate) fn write_in_reply(permissions: Option<&Permissions>, out: &mut Vec<u8>) {
    match permissions {
        Some(permissions) => write_sized(permissions, out),
        None => out.extend_from_slice(&[0; 4]),
    }
}

fn read_sized(reader: &mut Reader<'_>) -> Result<Permissions, DecodeError> {
    let length = reader.u32("permissions length")?;
    Permissions::decode(reader.bytes("permissions", usize_from(length))?)
}

fn write_sized(permissions: &Permissions, out: &mut Vec<u8>) {
    out.push(1);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    permissions.write(out);
    let length = u32::try_from(out.len() - at - 4).expect("bounded by the streams of a cluster");
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
