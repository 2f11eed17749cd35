//! Topics: create, read, list, delete, re-create.

use crate::support::{Place, code, name, root, shared, unique};
use iggy::prelude::*;

fn with_partitions(count: u32) -> TopicCreateOptions {
    TopicCreateOptions { partitions_count: Some(count), ..TopicCreateOptions::default() }
}

async fn stream_of_its_own(client: &IggyClient) -> Identifier {
    let title = unique("topics");
    client.create_stream(&title).await.expect("the name is free");
    name(&title)
}

#[tokio::test]
async fn a_created_topic_answers_with_all_its_partitions() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    let created = client.create_topic(&stream, "t", &with_partitions(3)).await.expect("created");
    assert_eq!(created.partitions_count, 3);
    let numbers: Vec<u32> = created.partitions.iter().map(|partition| partition.id).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let read = client.get_topic(&stream, &name("t")).await.expect("read").expect("it exists");
    assert_eq!(read.id, created.id);
    assert_eq!(read.messages_count, 0);
}

#[tokio::test]
async fn a_taken_topic_name_and_an_unknown_stream_are_refused() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    client.create_topic(&stream, "t", &with_partitions(1)).await.expect("created");
    assert_eq!(code(client.create_topic(&stream, "t", &with_partitions(1)).await), 2013);
    let unknown = name("no-such-stream");
    assert_eq!(code(client.create_topic(&unknown, "t", &with_partitions(1)).await), 1009);
}

#[tokio::test]
async fn a_thousand_partitions_are_allowed_and_one_more_is_not() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    assert_eq!(code(client.create_topic(&stream, "many", &with_partitions(1_001)).await), 2015);
    let created =
        client.create_topic(&stream, "many", &with_partitions(1_000)).await.expect("at the limit");
    assert_eq!(created.partitions.len(), 1_000);
    client.delete_topic(&stream, &name("many")).await.expect("it exists");
}

#[tokio::test]
async fn a_topic_without_partitions_takes_no_message() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    let created = client.create_topic(&stream, "none", &with_partitions(0)).await.expect("allowed");
    assert_eq!(created.partitions_count, 0);
    let sent = client
        .send_messages(
            &stream,
            &name("none"),
            &Partitioning::partition_id(0),
            &mut [crate::support::message("x")],
        )
        .await;
    assert_eq!(code(sent), 20);
}

#[tokio::test]
async fn topics_of_an_unknown_stream_are_an_empty_list() {
    let server = shared();
    let client = root(server.address()).await;
    let topics = client.get_topics(&name("no-such-stream")).await.expect("answered");
    assert!(topics.is_empty());
    let topic = client.get_topic(&name("no-such-stream"), &name("t")).await.expect("answered");
    assert!(topic.is_none());
}

#[tokio::test]
async fn options_of_a_topic_are_kept_and_reported() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    let options = TopicCreateOptions {
        partitions_count: Some(1),
        message_expiry: Some(IggyExpiry::from(3_600_000_000_u64)),
        max_topic_size: Some(MaxTopicSize::from(2_000_000_000_u64)),
        segment_size: Some(IggyByteSize::from(8 * 1024 * 1024)),
        ..TopicCreateOptions::default()
    };
    client.create_topic(&stream, "t", &options).await.expect("created");
    let read = client.get_topic(&stream, &name("t")).await.expect("read").expect("it exists");
    assert_eq!(read.message_expiry, IggyExpiry::from(3_600_000_000_u64));
    assert_eq!(read.max_topic_size, MaxTopicSize::from(2_000_000_000_u64));
}

#[tokio::test]
async fn a_size_limit_below_a_segment_is_refused() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    let options = TopicCreateOptions {
        max_topic_size: Some(MaxTopicSize::from(1_000_000_u64)),
        ..TopicCreateOptions::default()
    };
    assert_eq!(code(client.create_topic(&stream, "t", &options).await), 1019);
}

#[tokio::test]
async fn a_recreated_topic_serves_nothing_of_the_deleted_one() {
    let place = Place::new(2).await;
    place.fill(0, 20).await;
    place.client.delete_topic(&place.stream, &place.topic).await.expect("it exists");
    assert_eq!(code(place.poll(0, PollingStrategy::first(), 10).await), 2010);
    place
        .client
        .create_topic(&place.stream, "events", &with_partitions(2))
        .await
        .expect("the name is free again");
    assert!(place.offsets(0, PollingStrategy::first(), 10).await.is_empty());
    let sent = place.send(0, &["new"]).await;
    assert_eq!(sent.confirmations[0].base_offset, 0);
    let polled = place.poll(0, PollingStrategy::first(), 10).await.expect("answered");
    assert_eq!(crate::support::texts(&polled), ["new"]);
}

#[tokio::test]
async fn a_message_sent_the_moment_a_topic_is_created_is_confirmed() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = stream_of_its_own(&client).await;
    for index in 0..20 {
        let title = format!("fresh-{index}");
        client.create_topic(&stream, &title, &with_partitions(4)).await.expect("created");
        for partition in 0..4 {
            let sent = client
                .send_messages(
                    &stream,
                    &name(&title),
                    &Partitioning::partition_id(partition),
                    &mut [crate::support::message("first")],
                )
                .await
                .expect("confirmed");
            assert_eq!(sent.confirmations[0].base_offset, 0);
        }
    }
}

#[tokio::test]
async fn deleting_a_topic_takes_its_counts_from_the_stream() {
    let place = Place::new(1).await;
    place.fill(0, 9).await;
    place.client.delete_topic(&place.stream, &place.topic).await.expect("it exists");
    let stream = place.client.get_stream(&place.stream).await.expect("read").expect("it exists");
    assert_eq!((stream.topics_count, stream.messages_count), (0, 0));
}
