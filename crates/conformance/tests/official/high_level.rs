//! The official high-level producer and consumer.

use crate::support::{name, root, shared, texts, unique};
use futures_util::StreamExt;
use iggy::prelude::*;
use std::time::Duration;

#[tokio::test]
async fn the_producer_creates_stream_and_topic_and_the_consumer_reads_all() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = unique("produced");
    let producer = client
        .producer(&stream, "events")
        .expect("valid names")
        .direct(DirectConfig::builder().batch_length(100).build())
        .partitioning(Partitioning::partition_id(0))
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(1, IggyExpiry::NeverExpire, MaxTopicSize::Unlimited)
        .build();
    producer.init().await.expect("stream and topic are created");
    for round in 0..5 {
        let messages = (0..100)
            .map(|index| crate::support::message(&format!("{}", round * 100 + index)))
            .collect();
        producer.send(messages).await.expect("confirmed");
    }
    let reader = root(server.address()).await;
    let mut consumer = reader
        .consumer("reader", &stream, "events", 0)
        .expect("valid names")
        .auto_commit(AutoCommit::When(AutoCommitWhen::PollingMessages))
        .polling_strategy(PollingStrategy::next())
        .poll_interval(IggyDuration::from(1_000_u64))
        .batch_length(50)
        .build();
    consumer.init().await.expect("the consumer starts");
    let mut seen = Vec::new();
    while seen.len() < 500 {
        let next = tokio::time::timeout(Duration::from_secs(20), consumer.next()).await;
        let received = next.expect("messages keep coming").expect("no end").expect("no error");
        seen.push(String::from_utf8_lossy(&received.message.payload).into_owned());
    }
    let expected: Vec<String> = (0..500).map(|index: u32| index.to_string()).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_producer_uses_a_stream_and_topic_that_exist() {
    let server = shared();
    let client = root(server.address()).await;
    let stream = unique("existing");
    client.create_stream(&stream).await.expect("new");
    client
        .create_topic(&name(&stream), "events", &TopicCreateOptions::default())
        .await
        .expect("new");
    let producer = client
        .producer(&stream, "events")
        .expect("valid names")
        .create_stream_if_not_exists()
        .create_topic_if_not_exists(1, IggyExpiry::NeverExpire, MaxTopicSize::Unlimited)
        .build();
    producer.init().await.expect("nothing is missing");
    producer.send(vec![crate::support::message("hello")]).await.expect("confirmed");
    let polled = client
        .poll_messages(
            &name(&stream),
            &name("events"),
            Some(0),
            &Consumer::default(),
            &PollingStrategy::first(),
            10,
            false,
        )
        .await
        .expect("answered");
    assert_eq!(texts(&polled), ["hello"]);
}
