//! Strategies for the parts that requests and replies are made of.

use borzoi_types::{ClientId, Micros, Offset, Op, PartitionId, SessionId, StreamId, TopicId};
use borzoi_wire::body::{
    AttachRecord, ClientGroup, ClientNumber, ClientRecord, ClusterNode, Compression,
    GlobalPermissions, GroupRecord, MessageExpiry, NodeRole, NodeStatus, Permissions, SignedInUser,
    SizeLimit, StreamPermissions, StreamRecord, TopicHeader, TopicPermissions, Transport,
    UserRecord, UserStatus,
};
use borzoi_wire::options::{OptionEntry, TrailingOptions};
use borzoi_wire::{Identifier, Name, Options, Secret, Text, Value};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

pub fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        8 => "[a-zA-Z0-9_é-]{1,20}",
        1 => "[a-z]{255}",
        1 => any::<char>().prop_map(String::from),
    ]
    .prop_map(|text| Name::new(text).unwrap())
}

pub fn secret() -> impl Strategy<Value = Secret> {
    "[ -~]{0,255}".prop_map(|text| Secret::new(text).unwrap())
}

pub fn text() -> impl Strategy<Value = Text> {
    ".{0,40}".prop_map(Text)
}

pub fn identifier() -> impl Strategy<Value = Identifier> {
    prop_oneof![any::<u32>().prop_map(Identifier::Numeric), name().prop_map(Identifier::Name)]
}

pub fn value() -> impl Strategy<Value = Value<'static>> {
    let short = vec(any::<u8>(), 1..=255).prop_map(|bytes| Value::raw(bytes).unwrap());
    let text = "[a-z]{1,60}".prop_map(|text| Value::text(text).unwrap());
    prop_oneof![
        short,
        text,
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::I8),
        any::<i16>().prop_map(Value::I16),
        any::<i32>().prop_map(Value::I32),
        any::<i64>().prop_map(Value::I64),
        any::<i128>().prop_map(Value::I128),
        any::<u8>().prop_map(Value::U8),
        any::<u16>().prop_map(Value::U16),
        any::<u32>().prop_map(Value::U32),
        any::<u64>().prop_map(Value::U64),
        any::<u128>().prop_map(Value::U128),
        prop::num::f32::NORMAL.prop_map(Value::F32),
        prop::num::f64::NORMAL.prop_map(Value::F64),
    ]
    .boxed()
}

pub fn options() -> impl Strategy<Value = Options> {
    btree_map("[a-z_]{1,30}", value(), 0..6).prop_map(|entries| {
        let mut options = Options::none();
        for (key, value) in entries {
            options.set(&key, value).unwrap();
        }
        let sorted: Vec<&OptionEntry> = options.entries().iter().collect();
        assert!(sorted.windows(2).all(|pair| pair[0].key < pair[1].key));
        options
    })
}

pub fn trailing() -> impl Strategy<Value = TrailingOptions> {
    options().prop_map(TrailingOptions)
}

pub fn micros() -> impl Strategy<Value = Micros> {
    any::<u64>().prop_map(Micros)
}

pub fn offset() -> impl Strategy<Value = Offset> {
    any::<u64>().prop_map(Offset)
}

pub fn partition() -> impl Strategy<Value = PartitionId> {
    any::<u32>().prop_map(PartitionId)
}

pub fn user_status() -> impl Strategy<Value = UserStatus> {
    select(UserStatus::ALL)
}

fn topic_permissions() -> impl Strategy<Value = TopicPermissions> {
    (any::<u32>(), any::<[bool; 4]>()).prop_map(|(id, f)| TopicPermissions {
        topic: TopicId(id),
        manage_topic: f[0],
        read_topic: f[1],
        poll_messages: f[2],
        send_messages: f[3],
    })
}

fn stream_permissions() -> impl Strategy<Value = StreamPermissions> {
    (any::<u32>(), any::<[bool; 6]>(), vec(topic_permissions(), 0..4)).prop_map(
        |(id, f, topics)| StreamPermissions {
            stream: StreamId(id),
            manage_stream: f[0],
            read_stream: f[1],
            manage_topics: f[2],
            read_topics: f[3],
            poll_messages: f[4],
            send_messages: f[5],
            topics,
        },
    )
}

pub fn permissions() -> impl Strategy<Value = Permissions> {
    (any::<[bool; 10]>(), vec(stream_permissions(), 0..4)).prop_map(|(f, streams)| Permissions {
        global: GlobalPermissions {
            manage_servers: f[0],
            read_servers: f[1],
            manage_users: f[2],
            read_users: f[3],
            manage_streams: f[4],
            read_streams: f[5],
            manage_topics: f[6],
            read_topics: f[7],
            poll_messages: f[8],
            send_messages: f[9],
        },
        streams,
    })
}

pub fn cluster_node() -> impl Strategy<Value = ClusterNode> {
    let kinds = (select(NodeRole::ALL), select(NodeStatus::ALL));
    (text(), text(), any::<[u16; 4]>(), kinds).prop_map(|(name, address, ports, kinds)| {
        let [tcp, quic, http, websocket] = ports;
        ClusterNode { name, address, tcp, quic, http, websocket, role: kinds.0, status: kinds.1 }
    })
}

pub fn attach_record() -> impl Strategy<Value = AttachRecord> {
    (any::<u128>(), any::<u64>(), any::<u64>()).prop_map(|(client, session, op)| AttachRecord {
        client: ClientId(client),
        session: SessionId(session),
        metadata_watermark: Op(op),
    })
}

pub fn topic_header() -> impl Strategy<Value = TopicHeader> {
    let numbers = (any::<u32>(), any::<u32>(), any::<[u64; 5]>());
    let rest = (select(Compression::ALL), name(), options(), options());
    (numbers, rest).prop_map(|((id, partitions_count, n), (compression, name, a, b))| TopicHeader {
        id: TopicId(id),
        created: Micros(n[0]),
        partitions_count,
        message_expiry: MessageExpiry(n[1]),
        compression,
        max_topic_size: SizeLimit(n[2]),
        size_bytes: n[3],
        messages: n[4],
        name,
        explicit: a,
        derived: b,
    })
}

pub fn stream_record() -> impl Strategy<Value = StreamRecord> {
    (any::<[u32; 2]>(), any::<[u64; 3]>(), name(), options()).prop_map(|(a, b, name, options)| {
        StreamRecord {
            id: StreamId(a[0]),
            created: Micros(b[0]),
            topics_count: a[1],
            size_bytes: b[1],
            messages: b[2],
            name,
            options,
        }
    })
}

pub fn group_record() -> impl Strategy<Value = GroupRecord> {
    (any::<[u32; 3]>(), name()).prop_map(|(n, name)| GroupRecord {
        id: borzoi_types::GroupId(n[0]),
        partitions_count: n[1],
        members_count: n[2],
        name,
    })
}

pub fn user_record() -> impl Strategy<Value = UserRecord> {
    (any::<u32>(), micros(), user_status(), name(), options()).prop_map(
        |(id, created, status, name, options)| UserRecord {
            id: borzoi_types::UserId(id),
            created,
            status,
            name,
            options,
        },
    )
}

pub fn client_record() -> impl Strategy<Value = ClientRecord> {
    let user = prop::option::of(0..u32::MAX);
    (any::<[u32; 2]>(), user, select(Transport::ALL), text()).prop_map(
        |(n, user, transport, address)| ClientRecord {
            client: ClientNumber(n[0]),
            user: SignedInUser(user.map(borzoi_types::UserId)),
            transport,
            address,
            groups_count: n[1],
        },
    )
}

pub fn client_group() -> impl Strategy<Value = ClientGroup> {
    any::<[u32; 3]>().prop_map(|n| ClientGroup {
        stream: StreamId(n[0]),
        topic: TopicId(n[1]),
        group: borzoi_types::GroupId(n[2]),
    })
}
