//! Requests and replies in the words of the vector file.

use borzoi_wire::batch::BatchView;
use borzoi_wire::body::{
    ClusterNode, Credentials, Login, Permissions, PollMessages, SendMessages, TopicDetails,
};
use borzoi_wire::reply::Reply;
use borzoi_wire::{
    ConsumerRef, Entries, Identifier, IdentifierRef, OptionalPartition, Options, Partitioning,
    PollingStrategy, Request, Value as Typed,
};
use serde_json::{Value, json};

pub fn hex128(value: u128) -> String {
    format!("{value:#034x}")
}

fn hex64(value: u64) -> String {
    format!("{value:#018x}")
}

fn ident_ref(id: IdentifierRef<'_>) -> Value {
    match id {
        IdentifierRef::Numeric(number) => json!(number),
        IdentifierRef::Name(name) => json!(name.as_str()),
    }
}

fn ident(id: &Identifier) -> Value {
    ident_ref(id.as_identifier_ref())
}

fn consumer(consumer: ConsumerRef<'_>) -> Value {
    json!({ "kind": consumer.kind as u8, "id": ident_ref(consumer.id) })
}

fn partition(partition: OptionalPartition) -> Value {
    json!(partition.0.map(|p| p.0))
}

fn typed(value: &Typed<'_>) -> Value {
    match value {
        Typed::Text(text) => json!(text),
        Typed::U32(number) => json!(number),
        Typed::U64(number) => json!(number),
        other => json!(format!("{other:?}")),
    }
}

fn options(options: &Options) -> Value {
    let entries = options.entries().iter();
    entries
        .map(|e| (e.key.as_str().to_owned(), typed(&e.value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn flags(flags: &[bool]) -> Value {
    let flags: Vec<&str> = flags.iter().map(|&flag| if flag { "1" } else { "0" }).collect();
    json!(flags.join(","))
}

fn permissions(all: &Permissions) -> Value {
    let g = &all.global;
    let global = [
        g.manage_servers,
        g.read_servers,
        g.manage_users,
        g.read_users,
        g.manage_streams,
        g.read_streams,
        g.manage_topics,
        g.read_topics,
        g.poll_messages,
        g.send_messages,
    ];
    let streams = all.streams.iter().map(|s| {
        let topics = s.topics.iter().map(|t| {
            let all = [t.manage_topic, t.read_topic, t.poll_messages, t.send_messages];
            json!({ "id": t.topic.0, "flags": flags(&all) })
        });
        let all = [
            s.manage_stream,
            s.read_stream,
            s.manage_topics,
            s.read_topics,
            s.poll_messages,
            s.send_messages,
        ];
        json!({ "id": s.stream.0, "flags": flags(&all), "topics": topics.collect::<Vec<_>>() })
    });
    json!({ "global_flags": flags(&global), "streams": streams.collect::<Vec<_>>() })
}

fn login(login: &Login) -> Value {
    let mut fields = json!({
        "protocol_version": login.version.protocol.0,
        "sdk_name": login.version.sdk_name.as_str(),
        "sdk_version": login.version.sdk_version.as_str(),
        "context": login.context.0,
    });
    match &login.credentials {
        Credentials::Password { user, password } => {
            fields["username"] = json!(user.as_str());
            fields["password"] = json!(password.reveal());
        }
        Credentials::Token { token } => fields["token"] = json!(token.reveal()),
    }
    fields
}

fn batch(view: &BatchView<'_>) -> (Value, Value) {
    let header = view.header();
    let messages = view.frames().map(|frame| {
        let frame = frame.unwrap();
        assert_eq!(frame.checksum(), frame.computed_checksum());
        let headers = Entries::new(frame.user_headers()).map(|entry| {
            let entry = entry.unwrap();
            json!({
                "key_kind": entry.key.kind(), "key": typed(&entry.key),
                "value_kind": entry.value.kind(), "value": typed(&entry.value),
            })
        });
        json!({
            "checksum": hex64(frame.checksum()), "id": hex128(frame.id().0),
            "offset_delta": frame.offset_delta(), "timestamp_delta": frame.timestamp_delta(),
            "payload": String::from_utf8_lossy(frame.payload()),
            "user_headers": headers.collect::<Vec<_>>(),
        })
    });
    let messages = messages.collect::<Vec<_>>();
    let header = json!({
        "partition_id": header.partition, "base_offset": header.base_offset.0,
        "base_timestamp": header.base_timestamp.0, "origin_timestamp": header.origin_timestamp.0,
        "batch_length": header.batch_length, "batch_checksum": hex64(header.batch_checksum),
        "message_count": header.message_count,
    });
    (header, json!(messages))
}

/// Adds what the file says about the batches of a poll reply.
pub fn add_batch(fields: &mut Value, records: &[u8]) {
    if records.is_empty() {
        return;
    }
    let view = BatchView::whole(records).unwrap();
    let first = view.frames().next().unwrap().unwrap();
    fields["first_offset"] = json!(first.offset(view.header()).0);
    fields["batch"] = batch(&view).0;
}

fn send(send: &SendMessages<'_>) -> Value {
    let mut head = Vec::new();
    send.write_head(&mut head);
    let Partitioning::Partition(partition) = send.partitioning else { panic!("explicit") };
    let (header, messages) = batch(&BatchView::whole(send.batch).unwrap());
    json!({
        "metadata_length": head.len() - 4, "stream": ident_ref(send.stream),
        "topic": ident_ref(send.topic), "messages_count": send.messages_count,
        "partitioning": { "kind": 2, "partition_id": partition.0 },
        "batch": header, "messages": messages,
    })
}

fn poll(poll: &PollMessages<'_>) -> Value {
    let PollingStrategy::Offset(offset) = poll.strategy else { panic!("by offset") };
    json!({
        "consumer": consumer(poll.consumer), "stream": ident_ref(poll.stream),
        "topic": ident_ref(poll.topic), "partition_id": partition(poll.partition),
        "strategy": { "kind": 1, "value": offset.0 }, "count": poll.count,
        "auto_commit": poll.auto_commit,
    })
}

pub fn request(request: &Request<'_>) -> Value {
    match request {
        Request::Login(body) => login(body),
        Request::SendMessages(body) => send(body),
        Request::PollMessages(body) => poll(body),
        Request::CreateStream(body) => {
            json!({ "name": body.name.as_str(), "options": options(&body.options.0) })
        }
        Request::CreateTopic(body) => json!({
            "stream": ident(&body.stream), "partitions_count": body.partitions_count,
            "name": body.name.as_str(), "options": options(&body.options.0),
        }),
        Request::GetTopic(b) => json!({ "stream": ident(&b.stream), "topic": ident(&b.topic) }),
        Request::GetTopics(b) => json!({ "stream": ident(&b.stream) }),
        Request::CreatePartitions(b) => json!({
            "stream": ident(&b.stream), "topic": ident(&b.topic),
            "partitions_count": b.partitions_count,
        }),
        Request::DeleteSegments(b) => json!({
            "stream": ident(&b.stream), "topic": ident(&b.topic),
            "partition_id": b.partition.0, "segments_count": b.segments_count,
        }),
        Request::GetConsumerOffset(b) => json!({
            "consumer": consumer(b.consumer), "stream": ident_ref(b.stream),
            "topic": ident_ref(b.topic), "partition_id": partition(b.partition),
        }),
        Request::StoreConsumerOffset(b) => json!({
            "consumer": consumer(b.consumer), "stream": ident_ref(b.stream),
            "topic": ident_ref(b.topic), "partition_id": partition(b.partition),
            "offset": b.offset.0, "ack": b.ack as u8,
        }),
        Request::CreateConsumerGroup(b) => json!({
            "stream": ident(&b.stream), "topic": ident(&b.topic), "name": b.name.as_str(),
        }),
        Request::JoinConsumerGroup(b) => json!({
            "stream": ident(&b.stream), "topic": ident(&b.topic), "group": ident(&b.group),
        }),
        Request::SyncConsumerGroup(b) => json!({
            "stream": ident(&b.stream), "topic": ident(&b.topic), "group": ident(&b.group),
        }),
        Request::CreateUser(b) => json!({
            "username": b.name.as_str(), "password": b.password.reveal(),
            "status": b.status as u8, "permissions": b.permissions.as_ref().map(permissions),
        }),
        Request::CreatePersonalAccessToken(b) => {
            json!({ "name": b.name.as_str(), "expiry_us": b.lifetime.0 })
        }
        Request::DescribeOptions(b) => json!({ "scope": b.scope as u8 }),
        Request::AttachConsumerSession(b) => json!({
            "client_id": hex128(b.client.0), "session": b.session.0,
            "metadata_watermark": b.metadata_watermark.0,
        }),
        Request::Ping
        | Request::GetStats
        | Request::GetClusterMetadata
        | Request::GetMe
        | Request::Logout => json!({}),
        other => panic!("{other:?} has a vector that this test does not know"),
    }
}

fn node(node: &ClusterNode) -> Value {
    json!({
        "name": node.name.0, "ip": node.address.0, "tcp": node.tcp, "quic": node.quic,
        "http": node.http, "websocket": node.websocket, "role": node.role as u8,
        "status": node.status as u8,
    })
}

fn topic(details: &TopicDetails) -> Value {
    let topic = &details.topic;
    let partitions = details.partitions.iter().map(|p| {
        json!({
            "id": p.id.0, "segments": p.segments, "current_offset": p.current_offset.0,
            "size": p.size_bytes, "messages": p.messages,
        })
    });
    let (explicit, derived) = (topic.explicit.entries().len(), topic.derived.entries().len());
    json!({
        "id": topic.id.0, "created_at": topic.created.0,
        "partitions_count": topic.partitions_count, "message_expiry": topic.message_expiry.0,
        "compression": topic.compression as u8, "max_topic_size": topic.max_topic_size.0,
        "size": topic.size_bytes, "messages": topic.messages, "name": topic.name.as_str(),
        "options": format!("{explicit} explicit, {derived} derived"),
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

pub fn reply(reply: &Reply) -> Value {
    match reply {
        Reply::Empty | Reply::NotFound => json!({}),
        Reply::Identity(identity) => json!({
            "user_id": identity.user.0, "session": identity.session.0,
            "server_protocol_version": identity.protocol.0,
            "server_version": identity.server_version.as_str(),
        }),
        Reply::ClusterMetadata(cluster) => {
            let leader = cluster.nodes.iter().find(|node| node.role as u8 == 0);
            json!({
                "name": cluster.name.0, "leader": leader.map(|node| node.name.0.clone()),
                "nodes": cluster.nodes.iter().map(node).collect::<Vec<_>>(),
            })
        }
        Reply::Client(details) => {
            let groups = details.groups.iter().map(|g| {
                json!({ "stream_id": g.stream.0, "topic_id": g.topic.0, "group_id": g.group.0 })
            });
            json!({
                "client_id": details.client.client.0, "user_id": details.client.user.0.unwrap().0,
                "transport": details.client.transport as u8, "address": details.client.address.0,
                "consumer_groups": groups.collect::<Vec<_>>(),
            })
        }
        Reply::Stream(details) => json!({
            "id": details.stream.id.0, "created_at": details.stream.created.0,
            "topics_count": details.topics.len(), "size": details.stream.size_bytes,
            "messages": details.stream.messages, "name": details.stream.name.as_str(),
            "options": options(&details.stream.options),
        }),
        Reply::Topic(details) => topic(details),
        Reply::Topics(topics) => json!({ "count": topics.len() }),
        Reply::Sent(confirmations) => {
            let list = confirmations.iter().map(|c| {
                json!({
                    "stream_id": c.stream.0, "topic_id": c.topic.0,
                    "partition_id": c.partition.0, "base_offset": c.base_offset.0,
                })
            });
            json!({ "confirmations": list.collect::<Vec<_>>() })
        }
        Reply::Polled(prefix) => json!({
            "partition_id": prefix.partition.0, "current_offset": prefix.current_offset.0,
            "messages_count": prefix.messages_count,
        }),
        other => reply_of_consumers_and_system(other),
    }
}

fn reply_of_consumers_and_system(reply: &Reply) -> Value {
    match reply {
        Reply::ConsumerOffset(offset) => json!({
            "partition_id": offset.partition.0, "current_offset": offset.current_offset.0,
            "stored_offset": offset.stored_offset.0,
        }),
        Reply::GroupCreated(group) => json!({
            "id": group.id.0, "partitions_count": group.partitions_count,
            "members_count": group.members_count, "name": group.name.as_str(),
        }),
        Reply::Group(details) => {
            let members = details.members.iter().map(|m| {
                let partitions: Vec<u32> = m.partitions.iter().map(|p| p.0).collect();
                json!({ "id": m.id, "partitions": partitions })
            });
            json!({
                "id": details.group.id.0, "partitions_count": details.group.partitions_count,
                "members_count": details.members.len(), "name": details.group.name.as_str(),
                "members": members.collect::<Vec<_>>(),
            })
        }
        Reply::Assignment(assignment) => {
            let partitions: Vec<u32> = assignment.partitions.iter().map(|p| p.0).collect();
            json!({ "generation": assignment.generation.0, "partitions": partitions })
        }
        Reply::User(details) => json!({
            "id": details.user.id.0, "created_at": details.user.created.0,
            "status": details.user.status as u8, "username": details.user.name.as_str(),
            "options": options(&details.user.options),
        }),
        Reply::Token(token) => json!({ "token": token.reveal() }),
        Reply::Stats(s) => json!({
            "process_id": s.process_id, "cpu_usage": s.process_cpu_percent,
            "total_cpu_usage": s.total_cpu_percent, "streams": s.streams_count,
            "topics": s.topics_count, "partitions": s.partitions_count,
            "segments": s.segments_count, "messages": s.messages_count,
            "clients": s.clients_count, "groups": s.consumer_groups_count,
            "hostname": s.hostname.0, "os_name": s.os_name.0, "os_version": s.os_version.0,
            "kernel_version": s.kernel_version.0, "server_version": s.server_version.0,
            "server_semver": s.server_semver.0, "cache_entries": s.caches.len(),
            "threads": s.threads_count,
        }),
        Reply::OptionDescriptions(list) => {
            let entries = list.iter().map(|entry| {
                json!({
                    "name": entry.name.as_str(), "kind": entry.default.kind(),
                    "default": typed(&entry.default), "description": entry.description.0,
                })
            });
            json!({ "count": list.len(), "entries": entries.collect::<Vec<_>>() })
        }
        Reply::Routing(routing) => json!({
            "client_id": hex128(routing.attach.client.0), "session": routing.attach.session.0,
            "metadata_watermark": routing.attach.metadata_watermark.0,
            "node": routing.node.name.0,
        }),
        other => panic!("{other:?} has a vector that this test does not know"),
    }
}
