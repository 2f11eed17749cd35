//! Streams, topics, partitions, clients, options.

use crate::client::{Answer, Client, name, named, number};
use crate::world::World;
use borzoi_types::{Op, PartitionId, StreamId, TopicId};
use borzoi_wire::body::{
    ClientDetails, ClientRecord, ClusterMetadata, CreatePartitions, CreateTopic, DeletePartitions,
    DeleteStream, DescribeOptions, FlushUnsavedBuffer, GetClient, GetStream, GetTopic, GetTopics,
    NodeRole, OptionDescription, OptionsScope, PurgeStream, StreamDetails, StreamRecord,
    TopicDetails, TopicHeader, UpdateStream, UpdateTopic,
};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{ErrorCode, Operation, Options, Reader, Request, Value, Wire};

fn get_stream(stream: u32) -> Request<'static> {
    Request::GetStream(GetStream { stream: number(stream) })
}

fn create_topic_with(options: &[(&str, Value<'static>)], partitions: u32) -> Request<'static> {
    let mut block = Options::none();
    for (key, value) in options {
        block.set(key, value.clone()).unwrap();
    }
    Request::CreateTopic(CreateTopic {
        stream: number(0),
        partitions_count: partitions,
        name: name("topic"),
        options: TrailingOptions(block),
    })
}

#[test]
fn creations_answer_the_whole_object_under_the_operations_clients_expect() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let answer = client.create_stream(&mut world, "stream");
        let Answer::Done { operation, op, commit, .. } = answer.clone() else { panic!() };
        assert_eq!(operation, Operation::CreateStream as u8);
        assert_eq!(op, commit);
        let stream: StreamDetails = answer.decode();
        assert_eq!((stream.stream.id, stream.stream.name), (StreamId(0), name("stream")));

        let answer = client.create_topic(&mut world, "topic", 3);
        let Answer::Done { operation, .. } = answer else { panic!() };
        assert_eq!(operation, Operation::CreateTopicWithAssignments as u8);
        let topic: TopicDetails = answer.decode();
        assert_eq!((topic.topic.id, topic.partitions.len()), (TopicId(0), 3));
        assert_eq!(topic.partitions[2].id, PartitionId(2));

        let more = CreatePartitions { stream: number(0), topic: number(0), partitions_count: 2 };
        let answer = client.call(&mut world, &Request::CreatePartitions(more));
        let Answer::Done { operation, payload, .. } = answer else { panic!() };
        assert_eq!(operation, Operation::CreatePartitionsWithAssignments as u8);
        assert!(payload.is_empty());
        client.send(&mut world, 4, &[b"in a new partition"]);

        let fewer = DeletePartitions { stream: number(0), topic: number(0), partitions_count: 4 };
        client.call(&mut world, &Request::DeletePartitions(fewer)).payload();
        let topic = GetTopic { stream: named("stream"), topic: named("topic") };
        let topic: TopicDetails = client.call(&mut world, &Request::GetTopic(topic)).decode();
        assert_eq!((topic.partitions.len(), topic.topic.messages), (1, 0));
    }
}

#[test]
fn refusals_of_the_log_stand_in_the_result_section_with_their_position() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let rejected = |code| Answer::Rejected(code);
    assert_eq!(
        client.create_stream(&mut world, "stream"),
        rejected(ErrorCode::StreamNameAlreadyExists)
    );
    assert_eq!(
        client.create_topic(&mut world, "topic", 1),
        rejected(ErrorCode::TopicNameAlreadyExists)
    );
    let frame = client.request_frame(&Request::DeleteStream(DeleteStream { stream: number(9) }));
    world.deliver(client.connection, &frame);
    world.run();
    let reply = client.take_frame(&mut world);
    assert_eq!(reply.len(), 256 + 12);
    assert_ne!(reply[176..184], [0; 8], "a position in the log");
    assert_eq!(reply[176..184], reply[184..192]);
    assert_eq!(Answer::read(&reply), rejected(ErrorCode::StreamIdNotFound));
    let many = DeletePartitions { stream: number(0), topic: number(0), partitions_count: 2 };
    let answer = client.call(&mut world, &Request::DeletePartitions(many));
    assert_eq!(answer, rejected(ErrorCode::InvalidPartitionsCount));
}

#[test]
fn counts_and_options_are_checked_before_the_log_and_denied() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.create_stream(&mut world, "stream").payload();
    let denied = |code| Answer::Denied(code);
    assert_eq!(
        client.create_topic(&mut world, "topic", 1_001),
        denied(ErrorCode::TooManyPartitions)
    );
    let unknown = create_topic_with(&[("no_such_key", Value::U64(1))], 1);
    assert_eq!(client.call(&mut world, &unknown), denied(ErrorCode::UnsupportedOptionKey));
    let bad = create_topic_with(&[("segment_size", Value::U64(5))], 1);
    assert_eq!(client.call(&mut world, &bad), denied(ErrorCode::InvalidOptionValue));
    let small = create_topic_with(&[("max_topic_size", Value::U64(1024))], 1);
    assert_eq!(client.call(&mut world, &small), denied(ErrorCode::InvalidTopicSize));
    for count in [0, 1_001] {
        let more =
            CreatePartitions { stream: number(0), topic: number(0), partitions_count: count };
        let answer = client.call(&mut world, &Request::CreatePartitions(more));
        assert_eq!(answer, denied(ErrorCode::TooManyPartitions));
    }
    let stable = create_topic_with(
        &[
            ("durability", Value::text("replicated").unwrap()),
            ("consumer_offset_durability", Value::text("replicated").unwrap()),
        ],
        2,
    );
    let topic: TopicDetails = client.call(&mut world, &stable).decode();
    let durability = topic.topic.explicit.get("durability");
    assert_eq!(durability, Some(&Value::text("replicated").unwrap()));
    client.send(&mut world, 0, &[b"in a replicated lane"]);
}

#[test]
fn a_read_of_one_unknown_object_is_empty_and_of_the_topics_of_an_unknown_stream_a_zero_count() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        assert!(client.call(&mut world, &get_stream(7)).payload().is_empty());
        let topic = GetTopic { stream: number(7), topic: number(7) };
        assert!(client.call(&mut world, &Request::GetTopic(topic)).payload().is_empty());
        let topics = Request::GetTopics(GetTopics { stream: number(7) });
        assert_eq!(client.call(&mut world, &topics).payload(), [0; 4]);
        assert!(client.call(&mut world, &Request::GetStreams).payload().is_empty());
    }
}

#[test]
fn updates_and_deletes_show_at_once_on_every_shard() {
    let mut world = World::new(2);
    let mut admin = Client::root(&mut world, 0, 5);
    let mut reader = Client::root(&mut world, 1, 6);
    admin.prepare(&mut world, 1);
    let update = UpdateStream {
        stream: number(0),
        name: name("renamed"),
        options: TrailingOptions::default(),
    };
    admin.call(&mut world, &Request::UpdateStream(update)).payload();
    let update = UpdateTopic {
        stream: named("renamed"),
        topic: named("topic"),
        name: name("renamed"),
        options: TrailingOptions::default(),
    };
    admin.call(&mut world, &Request::UpdateTopic(update)).payload();
    let topics = Request::GetTopics(GetTopics { stream: named("renamed") });
    let payload = reader.call(&mut world, &topics).payload();
    let header = TopicHeader::decode(&payload[4..]).unwrap();
    assert_eq!(header.name, name("renamed"));
    reader.send(&mut world, 0, &[b"m"]);
    admin.call(&mut world, &Request::PurgeStream(PurgeStream { stream: number(0) })).payload();
    let stream: StreamDetails = reader.call(&mut world, &get_stream(0)).decode();
    assert_eq!(stream.stream.messages, 0);
    admin.call(&mut world, &Request::DeleteStream(DeleteStream { stream: number(0) })).payload();
    assert!(reader.call(&mut world, &get_stream(0)).payload().is_empty());
    world.assert_at_rest();
}

#[test]
fn ids_are_the_lowest_free_and_lists_are_in_their_order() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for stream in ["a", "b", "c"] {
        client.create_stream(&mut world, stream).payload();
    }
    client.call(&mut world, &Request::DeleteStream(DeleteStream { stream: named("b") })).payload();
    let again: StreamDetails = client.create_stream(&mut world, "d").decode();
    assert_eq!(again.stream.id, StreamId(1));
    let payload = client.call(&mut world, &Request::GetStreams).payload();
    let mut reader = Reader::new(&payload);
    let list: Vec<StreamRecord> = reader.list_to_end().unwrap();
    let names: Vec<&str> = list.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["a", "d", "c"]);
}

#[test]
fn one_node_lists_itself_as_leader_and_the_catalogue_lists_the_topic_options() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let cluster: ClusterMetadata = client.call(&mut world, &Request::GetClusterMetadata).decode();
    assert_eq!(cluster.nodes.len(), 1);
    assert_eq!(cluster.nodes[0].role, NodeRole::Leader);
    let describe = |scope| Request::DescribeOptions(DescribeOptions { scope });
    let payload = client.call(&mut world, &describe(OptionsScope::Topic)).payload();
    let mut reader = Reader::new(&payload);
    let count = reader.u32("count").unwrap();
    let list: Vec<OptionDescription> = reader.list("options", count).unwrap();
    assert!(list.iter().any(|option| option.name.as_str() == "durability"));
    assert_eq!(client.call(&mut world, &describe(OptionsScope::User)).payload(), [0; 4]);
}

#[test]
fn clients_of_all_shards_are_listed_and_found_by_their_number() {
    let mut world = World::new(3);
    let mut first = Client::root(&mut world, 0, 5);
    let mut second = Client::root(&mut world, 1, 6);
    Client::connect(&mut world, 2, 7);
    let me: ClientDetails = second.call(&mut world, &Request::GetMe).decode();
    let payload = first.call(&mut world, &Request::GetClients).payload();
    let list: Vec<ClientRecord> = Reader::new(&payload).list_to_end().unwrap();
    assert_eq!(list.len(), 3);
    assert!(list.contains(&me.client));
    assert_eq!(list.iter().filter(|client| client.user.0.is_none()).count(), 1);
    let find = |client| Request::GetClient(GetClient { client });
    let found: ClientDetails = first.call(&mut world, &find(me.client.client)).decode();
    assert_eq!(found, me);
    let nobody = find(borzoi_wire::body::ClientNumber(4_000_000_000));
    assert!(first.call(&mut world, &nobody).payload().is_empty());
}

#[test]
fn what_is_not_there_yet_is_refused_with_5() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let flush = FlushUnsavedBuffer {
        stream: number(0),
        topic: number(0),
        partition: PartitionId(0),
        fsync: false,
    };
    let answer = client.call(&mut world, &Request::FlushUnsavedBuffer(flush));
    assert_eq!(answer, Answer::Denied(ErrorCode::FeatureUnavailable));
}

#[test]
fn commit_positions_of_one_client_never_fall() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    let mut highest = Op(0);
    for round in 0..5 {
        for request in [Request::Ping, Request::GetStreams] {
            let Answer::Done { commit, .. } = client.call(&mut world, &request) else { panic!() };
            assert!(commit >= highest);
            highest = commit;
        }
        let created = client.create_stream(&mut world, &format!("stream {round}"));
        let Answer::Done { commit, .. } = created else { panic!() };
        assert!(commit > highest);
        highest = commit;
    }
}
