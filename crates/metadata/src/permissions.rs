//! What a user may do: the record that clients send and read (wire protocol, section 8.1).
//!
//! Grants only add up. They name streams and topics by number, as the protocol has it. This module
//! holds the record; [`crate::Action`] says what each operation needs.

use crate::codec::codec_struct;
use borzoi_types::{StreamId, TopicId};
use borzoi_wire::body;
use std::collections::BTreeMap;

/// Declares a set of flags that is stored as one byte per flag.
macro_rules! flags {
    ($(#[$meta:meta])* $name:ident { $( $(#[$flag_meta:meta])* $flag:ident ),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
        pub struct $name { $( $(#[$flag_meta])* pub $flag: bool, )+ }

        impl $name {
            /// The names of the flags, in the order of the wire.
            pub const NAMES: &'static [&'static str] = &[$( stringify!($flag), )+];

            /// Sets the flag with this name; false if there is none.
            pub fn set(&mut self, name: &str) -> bool {
                match name {
                    $( stringify!($flag) => { self.$flag = true; true } )+
                    _ => false,
                }
            }
        }

        codec_struct!($name { $( $flag ),+ });
    };
}

flags! {
    /// Rights over everything.
    GlobalFlags {
        /// Servers and clients: change.
        manage_servers,
        /// Servers and clients: read.
        read_servers,
        /// Users: change.
        manage_users,
        /// Users: read.
        read_users,
        /// Streams and what is in them: change.
        manage_streams,
        /// Streams and what is in them: read.
        read_streams,
        /// Topics of all streams: change.
        manage_topics,
        /// Topics of all streams: read.
        read_topics,
        /// Poll from everywhere.
        poll_messages,
        /// Send to everywhere.
        send_messages,
    }
}

flags! {
    /// Rights over one stream.
    StreamFlags {
        /// The stream and what is in it: change.
        manage_stream,
        /// The stream and what is in it: read.
        read_stream,
        /// Its topics: change.
        manage_topics,
        /// Its topics: read.
        read_topics,
        /// Poll from all its topics.
        poll_messages,
        /// Send to all its topics.
        send_messages,
    }
}

flags! {
    /// Rights over one topic.
    TopicFlags {
        /// The topic: change.
        manage_topic,
        /// The topic: read.
        read_topic,
        /// Poll from it.
        poll_messages,
        /// Send to it.
        send_messages,
    }
}

/// Rights over one stream and single topics of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamPermissions {
    /// Over the stream.
    pub flags: StreamFlags,
    /// Over single topics.
    pub topics: BTreeMap<TopicId, TopicFlags>,
}

codec_struct!(StreamPermissions { flags, topics });

/// All rights of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Permissions {
    /// Over everything.
    pub global: GlobalFlags,
    /// Over single streams.
    pub streams: BTreeMap<StreamId, StreamPermissions>,
}

codec_struct!(Permissions { global, streams });

impl Permissions {
    /// The rights over a stream; none at all without a grant.
    #[must_use]
    pub fn stream(&self, stream: StreamId) -> StreamFlags {
        self.streams.get(&stream).map(|grants| grants.flags).unwrap_or_default()
    }

    /// The rights over a topic; none at all without a grant.
    #[must_use]
    pub fn topic(&self, stream: StreamId, topic: TopicId) -> TopicFlags {
        let grants = self.streams.get(&stream);
        grants.and_then(|grants| grants.topics.get(&topic)).copied().unwrap_or_default()
    }

    /// Streams and topics with a grant of their own: what the record's size grows with.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.streams.values().map(|grants| 1 + grants.topics.len()).sum()
    }
}

impl From<&body::Permissions> for Permissions {
    /// The record of a request. Of two grants for one stream or topic the later one counts.
    fn from(wire: &body::Permissions) -> Self {
        let streams = wire.streams.iter().map(|stream| {
            let topics = stream.topics.iter().map(|topic| {
                let flags = TopicFlags {
                    manage_topic: topic.manage_topic,
                    read_topic: topic.read_topic,
                    poll_messages: topic.poll_messages,
                    send_messages: topic.send_messages,
                };
                (topic.topic, flags)
            });
            let flags = StreamFlags {
                manage_stream: stream.manage_stream,
                read_stream: stream.read_stream,
                manage_topics: stream.manage_topics,
                read_topics: stream.read_topics,
                poll_messages: stream.poll_messages,
                send_messages: stream.send_messages,
            };
            (stream.stream, StreamPermissions { flags, topics: topics.collect() })
        });
        Self { global: wire.global.into(), streams: streams.collect() }
    }
}

impl From<&Permissions> for body::Permissions {
    /// The record of a reply, in the order of numbers.
    fn from(permissions: &Permissions) -> Self {
        let streams = permissions.streams.iter().map(|(stream, grants)| {
            let topics = grants.topics.iter().map(|(topic, flags)| body::TopicPermissions {
                topic: *topic,
                manage_topic: flags.manage_topic,
                read_topic: flags.read_topic,
                poll_messages: flags.poll_messages,
                send_messages: flags.send_messages,
            });
            body::StreamPermissions {
                stream: *stream,
                manage_stream: grants.flags.manage_stream,
                read_stream: grants.flags.read_stream,
                manage_topics: grants.flags.manage_topics,
                read_topics: grants.flags.read_topics,
                poll_messages: grants.flags.poll_messages,
                send_messages: grants.flags.send_messages,
                topics: topics.collect(),
            }
        });
        Self { global: permissions.global.into(), streams: streams.collect() }
    }
}

macro_rules! global_flags {
    ($($flag:ident),+ $(,)?) => {
        impl From<body::GlobalPermissions> for GlobalFlags {
            fn from(wire: body::GlobalPermissions) -> Self {
                Self { $( $flag: wire.$flag ),+ }
            }
        }

        impl From<GlobalFlags> for body::GlobalPermissions {
            fn from(flags: GlobalFlags) -> Self {
                Self { $( $flag: flags.$flag ),+ }
            }
        }
    };
}
global_flags!(
    manage_servers,
    read_servers,
    manage_users,
    read_users,
    manage_streams,
    read_streams,
    manage_topics,
    read_topics,
    poll_messages,
    send_messages,
);
