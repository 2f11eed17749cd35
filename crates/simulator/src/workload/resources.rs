//! Streams, topics, partitions, segments, groups: created, looked at, changed, purged, deleted,
//! created again under the same name.
//!
//! One change of a thing at a time: `busy` is set by the history while a change is under way, so
//! that the end of each is known exactly when its answer comes.

use super::cx::{Cx, name, named};
use super::draft::Draft;
use crate::history::{
    GroupRec, GroupRef, Intent, OpRef, State, StreamRec, StreamRef, TopicRec, TopicRef,
};
use borzoi_types::{Durability, PartitionId};
use borzoi_wire::body::{
    CreateConsumerGroup, CreatePartitions, CreateStream, CreateTopic, DeleteConsumerGroup,
    DeletePartitions, DeleteSegments, DeleteStream, DeleteTopic, GetStream, GetTopic, GetTopics,
    PurgeStream, PurgeTopic, UpdateStream, UpdateTopic,
};
use borzoi_wire::options::{TrailingOptions, keys};
use borzoi_wire::{CommandCode, Identifier, Options, Request, Value};

/// Streams that are watched, and those that are not, at most.
const STREAMS_MAX: usize = 3;
/// Groups at once.
const GROUPS_MAX: usize = 4;
/// Partitions of a topic.
const PARTITIONS_MAX: u32 = 6;

/// Reads.
pub(super) fn look(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    if command == CommandCode::GetStreams {
        return Some(Draft::other(&Request::GetStreams));
    }
    let topic = cx.topic()?;
    let (stream, topic) = cx.names(topic);
    Some(Draft::other(&match command {
        CommandCode::GetStream => Request::GetStream(GetStream { stream }),
        CommandCode::GetTopics => Request::GetTopics(GetTopics { stream }),
        _ => Request::GetTopic(GetTopic { stream, topic }),
    }))
}

fn stream_name(cx: &Cx<'_>, stream: StreamRef) -> Identifier {
    named(&cx.history.stream(stream).name)
}

fn idle_stream(cx: &mut Cx<'_>, scratch: bool) -> Option<StreamRef> {
    let idle = |&at: &StreamRef| {
        let in_it = |topic: &&TopicRec| topic.stream == at;
        let quiet = |topic: &TopicRec| !topic.busy && topic.state != State::Coming;
        !cx.history.stream(at).busy && cx.history.topics.iter().filter(in_it).all(quiet)
    };
    let found: Vec<StreamRef> = cx.history.live_streams(scratch).into_iter().filter(idle).collect();
    if found.is_empty() { None } else { Some(*cx.dice.pick(&found)) }
}

/// Changes of streams.
pub(super) fn streams(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    match command {
        CommandCode::CreateStream => create_stream(cx),
        CommandCode::UpdateStream => {
            let stream = idle_stream(cx, true)?;
            let old = stream_name(cx, stream);
            // The name it has is a fine new name; another one would be a new thing to watch.
            let name = name(&cx.history.stream(stream).name.clone());
            let body = UpdateStream { stream: old, name, options: TrailingOptions::default() };
            Some(Draft::new(Intent::UpdateStream(stream), &Request::UpdateStream(body)))
        }
        CommandCode::PurgeStream => {
            let stream = idle_stream(cx, false)?;
            let body = PurgeStream { stream: stream_name(cx, stream) };
            Some(Draft::new(Intent::PurgeStream(stream), &Request::PurgeStream(body)))
        }
        _ => {
            let watched = cx.history.live_streams(false).len();
            let scratch = watched < 2 || cx.dice.chance(70);
            let stream = idle_stream(cx, scratch)?;
            let body = DeleteStream { stream: stream_name(cx, stream) };
            Some(Draft::new(Intent::DeleteStream(stream), &Request::DeleteStream(body)))
        }
    }
}

/// The name of something that went away, to be given again, or a new one.
fn reusable(cx: &mut Cx<'_>, kind: &str, gone: &[String]) -> String {
    if !gone.is_empty() && cx.dice.chance(60) {
        return cx.dice.pick(gone).clone();
    }
    format!("{kind}-{}", cx.history.fresh_name())
}

fn create_stream(cx: &mut Cx<'_>) -> Option<Draft> {
    let there = |scratch: bool| {
        let is = |it: &&StreamRec| it.scratch == scratch && it.state != State::Gone;
        cx.history.streams.iter().filter(is).count()
    };
    let scratch = there(false) > 0 && cx.dice.chance(50);
    if there(scratch) >= STREAMS_MAX {
        return None;
    }
    let taken =
        |text: &str| cx.history.streams.iter().any(|it| it.name == text && it.state != State::Gone);
    let gone: Vec<String> =
        cx.history.streams.iter().map(|it| it.name.clone()).filter(|it| !taken(it)).collect();
    let text = reusable(cx, "stream", &gone);
    let at = StreamRef(u32::try_from(cx.history.streams.len()).expect("few streams"));
    let body = CreateStream { name: name(&text), options: TrailingOptions::default() };
    cx.history.streams.push(StreamRec {
        name: text,
        id: None,
        state: State::Coming,
        scratch,
        deletes: Vec::new(),
        busy: false,
    });
    Some(Draft::new(Intent::CreateStream(at), &Request::CreateStream(body)))
}

fn idle_topic(cx: &mut Cx<'_>, scratch: bool) -> Option<TopicRef> {
    let idle = |&at: &TopicRef| {
        let record = cx.history.topic(at);
        !record.busy && !cx.history.stream(record.stream).busy
    };
    let found: Vec<TopicRef> = cx.history.live_topics(scratch).into_iter().filter(idle).collect();
    if found.is_empty() { None } else { Some(*cx.dice.pick(&found)) }
}

/// Changes of topics.
pub(super) fn topics(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    if command == CommandCode::CreateTopic {
        return create_topic(cx);
    }
    let watched = cx.history.live_topics(false).len();
    let scratch = match command {
        CommandCode::DeleteTopic => watched < 2 || cx.dice.chance(50),
        _ => cx.dice.chance(30),
    };
    let at = idle_topic(cx, scratch)?;
    let (stream, topic) = cx.names(at);
    Some(match command {
        CommandCode::DeleteTopic => {
            let body = DeleteTopic { stream, topic };
            Draft::new(Intent::DeleteTopic(at), &Request::DeleteTopic(body))
        }
        CommandCode::PurgeTopic => {
            let body = PurgeTopic { stream, topic };
            Draft::new(Intent::PurgeTopic(at), &Request::PurgeTopic(body))
        }
        _ => {
            let name = name(&cx.history.topic(at).name.clone());
            let mut options = Options::none();
            let algorithm = if cx.dice.chance(50) { "gzip" } else { "none" };
            set(&mut options, keys::COMPRESSION_ALGORITHM, Value::text(algorithm));
            let options = TrailingOptions(options);
            let body = UpdateTopic { stream, topic, name, options };
            Draft::new(Intent::UpdateTopic(at), &Request::UpdateTopic(body))
        }
    })
}

fn set(options: &mut Options, key: &str, value: Option<Value<'static>>) {
    let value = value.expect("texts made here are short");
    options.set(key, value).expect("keys of the catalogue are names");
}

fn create_topic(cx: &mut Cx<'_>) -> Option<Draft> {
    let there = |scratch: bool| {
        let is = |it: &&TopicRec| it.scratch == scratch && it.state != State::Gone;
        cx.history.topics.iter().filter(is).count()
    };
    let scratch = there(false) >= cx.memory.topics_wanted;
    if there(scratch) >= cx.memory.topics_wanted {
        return None;
    }
    let stream = idle_stream(cx, scratch)?;
    let taken = |text: &str| {
        let same = |it: &TopicRec| it.stream == stream && it.name == text;
        cx.history.topics.iter().any(|it| same(it) && it.state != State::Gone)
    };
    let in_stream = cx.history.topics.iter().filter(|it| it.stream == stream);
    let gone: Vec<String> = in_stream.map(|it| it.name.clone()).filter(|it| !taken(it)).collect();
    let text = reusable(cx, "topic", &gone);
    let partitions = u32::try_from(cx.dice.between(1, cx.memory.partitions_max)).unwrap_or(1);
    let (options, level, retention) = topic_options(cx);
    let at = TopicRef(u32::try_from(cx.history.topics.len()).expect("few topics"));
    let body = CreateTopic {
        stream: stream_name(cx, stream),
        partitions_count: partitions,
        name: name(&text),
        options,
    };
    cx.history.topics.push(TopicRec {
        stream,
        name: text,
        id: None,
        state: State::Coming,
        scratch,
        level,
        retention,
        partitions,
        partitions_certain: true,
        create: OpRef(0),
        deletes: Vec::new(),
        endings: Vec::new(),
        segment_deletes: Vec::new(),
        busy: false,
    });
    Some(Draft::new(Intent::CreateTopic(at), &Request::CreateTopic(body)))
}

fn topic_options(cx: &mut Cx<'_>) -> (TrailingOptions, Durability, bool) {
    let mut options = Options::none();
    let replicated = cx.setting.lanes_replicated > 0 && cx.dice.chance(40);
    let level = if replicated { Durability::Replicated } else { Durability::Persisted };
    if replicated {
        set(&mut options, keys::DURABILITY, Value::text("replicated"));
    } else if cx.dice.chance(50) {
        set(&mut options, keys::DURABILITY, Value::text("persisted"));
    } else if cx.dice.chance(30) {
        set(&mut options, keys::ENFORCE_FSYNC, Some(Value::Bool(true)));
    }
    if cx.dice.chance(70) {
        set(&mut options, keys::SEGMENT_SIZE, Some(Value::U64(1024 * 1024)));
    }
    let retention = cx.dice.chance(15);
    if retention {
        let seconds = cx.dice.between(5, 120);
        set(&mut options, keys::MESSAGE_EXPIRY, Some(Value::U64(seconds * 1_000_000)));
    }
    (TrailingOptions(options), level, retention)
}

/// Changes of partitions and segments.
pub(super) fn partitions(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    let at = idle_topic(cx, false)?;
    let record = cx.history.topic(at);
    let (count, certain) = (record.partitions, record.partitions_certain);
    let (stream, topic) = cx.names(at);
    Some(match command {
        CommandCode::CreatePartitions => {
            if count >= PARTITIONS_MAX {
                return None;
            }
            let more = u32::try_from(cx.dice.between(1, 2)).unwrap_or(1);
            let body = CreatePartitions { stream, topic, partitions_count: more };
            Draft::new(Intent::CreatePartitions(at, more), &Request::CreatePartitions(body))
        }
        CommandCode::DeletePartitions => {
            if count < 2 || !certain {
                return None;
            }
            let body = DeletePartitions { stream, topic, partitions_count: 1 };
            Draft::new(Intent::DeletePartitions(at, 1), &Request::DeletePartitions(body))
        }
        _ => {
            let partition = cx.partition(at)?;
            let segments_count = u32::try_from(cx.dice.below(3)).unwrap_or(0);
            let partition_id = PartitionId(partition);
            let body = DeleteSegments { stream, topic, partition: partition_id, segments_count };
            Draft::new(Intent::DeleteSegments(at, partition), &Request::DeleteSegments(body))
        }
    })
}

/// Creation and deletion of groups.
pub(super) fn groups(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    let live = cx.history.live_groups();
    if command == CommandCode::DeleteConsumerGroup {
        if live.len() < 2 {
            return None;
        }
        let at = *cx.dice.pick(&live);
        let group = named(&cx.history.group(at).name.clone());
        let topic = cx.history.group(at).topic;
        let (stream, topic) = cx.names(topic);
        let body = DeleteConsumerGroup { stream, topic, group };
        return Some(Draft::new(Intent::DeleteGroup(at), &Request::DeleteConsumerGroup(body)));
    }
    if live.len() >= GROUPS_MAX {
        return None;
    }
    let topic = cx.topic()?;
    let text = format!("group-{}", cx.history.fresh_name());
    let at = GroupRef(u32::try_from(cx.history.groups.len()).expect("few groups"));
    let (stream, id) = cx.names(topic);
    let body = CreateConsumerGroup { stream, topic: id, name: name(&text) };
    cx.history.groups.push(GroupRec { topic, name: text, state: State::Coming });
    Some(Draft::new(Intent::CreateGroup(at), &Request::CreateConsumerGroup(body)))
}
