//! Sending: partitioning, confirmations, sizes, headers.

use crate::support::{Place, code, message, name, number, texts};
use bytes::Bytes;
use iggy::prelude::*;
use std::collections::BTreeMap;
use std::str::FromStr;

#[tokio::test]
async fn a_confirmation_names_stream_topic_partition_and_offset() {
    let place = Place::new(2).await;
    let stream = place.client.get_stream(&place.stream).await.expect("read").expect("there");
    let topic =
        place.client.get_topic(&place.stream, &place.topic).await.expect("read").expect("there");
    let first = place.send(1, &["a", "b", "c"]).await;
    let second = place.send(1, &["d"]).await;
    assert_eq!(first.confirmations.len(), 1);
    assert_eq!(first.confirmations[0].stream_id, stream.id);
    assert_eq!(first.confirmations[0].topic_id, topic.id);
    assert_eq!(first.confirmations[0].partition_id, 1);
    assert_eq!(first.confirmations[0].base_offset, 0);
    assert_eq!(second.confirmations[0].base_offset, 3);
}

#[tokio::test]
async fn balanced_sends_reach_every_partition() {
    let place = Place::new(3).await;
    for index in 0..9 {
        place
            .client
            .send_messages(
                &place.stream,
                &place.topic,
                &Partitioning::balanced(),
                &mut [message(&format!("m{index}"))],
            )
            .await
            .expect("confirmed");
    }
    for partition in 0..3 {
        let count = place.offsets(partition, PollingStrategy::first(), 100).await.len();
        assert_eq!(count, 3, "partition {partition}");
    }
}

#[tokio::test]
async fn one_key_always_reaches_one_partition_in_order() {
    let place = Place::new(4).await;
    for index in 0..8 {
        place
            .client
            .send_messages(
                &place.stream,
                &place.topic,
                &Partitioning::messages_key_str("customer-42").expect("a valid key"),
                &mut [message(&format!("m{index}"))],
            )
            .await
            .expect("confirmed");
    }
    let mut full = Vec::new();
    for partition in 0..4 {
        let polled = place.poll(partition, PollingStrategy::first(), 100).await.expect("answered");
        if !polled.messages.is_empty() {
            full.push(texts(&polled));
        }
    }
    let expected: Vec<String> = (0..8).map(|index| format!("m{index}")).collect();
    assert_eq!(full, [expected]);
}

#[tokio::test]
async fn payload_id_headers_and_producer_time_come_back_unchanged() {
    let place = Place::new(1).await;
    let headers = BTreeMap::from([
        (
            HeaderKey::from_str("content-type").expect("a key"),
            HeaderValue::from_str("text/plain").expect("a value"),
        ),
        (HeaderKey::from_str("retries").expect("a key"), HeaderValue::from(7_u32)),
    ]);
    let sent = IggyMessage::builder()
        .id(0x1234_5678_9abc)
        .payload(Bytes::from_static(b"\x00\xff binary"))
        .user_headers(headers.clone())
        .build()
        .expect("a valid message");
    let origin = sent.header.origin_timestamp;
    place
        .client
        .send_messages(&place.stream, &place.topic, &Partitioning::partition_id(0), &mut [sent])
        .await
        .expect("confirmed");
    let polled = place.poll(0, PollingStrategy::first(), 1).await.expect("answered");
    let received = &polled.messages[0];
    assert_eq!(received.header.id, 0x1234_5678_9abc);
    assert_eq!(received.payload.as_ref(), b"\x00\xff binary");
    assert_eq!(received.user_headers_map().expect("valid").expect("present"), headers);
    assert_eq!(received.header.origin_timestamp, origin);
    assert!(received.header.timestamp > 0);
}

#[tokio::test]
async fn a_thousand_messages_in_one_send_keep_their_order() {
    let place = Place::new(1).await;
    place.fill(0, 1_000).await;
    let polled = place.poll(0, PollingStrategy::first(), 1_000).await.expect("answered");
    let expected: Vec<String> = (0..1_000).map(|index| format!("m{index}")).collect();
    assert_eq!(texts(&polled), expected);
    let offsets: Vec<u64> = polled.messages.iter().map(|m| m.header.offset).collect();
    assert_eq!(offsets, (0..1_000).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_message_of_ten_megabytes_travels_both_ways() {
    let place = Place::new(1).await;
    let payload: Vec<u8> = (0..10_000_000_u32).map(|index| (index % 251) as u8).collect();
    let large = IggyMessage::builder().payload(Bytes::from(payload.clone())).build().expect("ok");
    place
        .client
        .send_messages(&place.stream, &place.topic, &Partitioning::partition_id(0), &mut [large])
        .await
        .expect("confirmed");
    let polled = place.poll(0, PollingStrategy::first(), 10).await.expect("answered");
    assert_eq!(polled.messages.len(), 1);
    assert!(polled.messages[0].payload.as_ref() == payload.as_slice());
}

#[tokio::test]
async fn more_than_one_reply_holds_is_read_in_several_polls() {
    let place = Place::new(1).await;
    let payload = "x".repeat(1_000_000);
    for _ in 0..30 {
        place.send(0, &[&payload]).await;
    }
    let mut next = 0;
    let mut polls = 0;
    while next < 30 {
        let offsets = place.offsets(0, PollingStrategy::offset(next), 1_000).await;
        assert!(!offsets.is_empty(), "stuck at {next}");
        for offset in offsets {
            assert_eq!(offset, next);
            next += 1;
        }
        polls += 1;
    }
    assert!(polls > 1, "30 MB do not fit one reply");
}

#[tokio::test]
async fn sends_to_what_does_not_exist_are_refused() {
    let place = Place::new(1).await;
    let targets = [
        (place.stream.clone(), place.topic.clone(), 5),
        (place.stream.clone(), name("no-topic"), 0),
        (name("no-stream"), place.topic.clone(), 0),
        (place.stream.clone(), number(4_000), 0),
    ];
    for (stream, topic, partition) in targets {
        let sent = place
            .client
            .send_messages(
                &stream,
                &topic,
                &Partitioning::partition_id(partition),
                &mut [message("x")],
            )
            .await;
        assert_eq!(code(sent), 20);
    }
    place.send(0, &["the connection still works"]).await;
}

#[tokio::test]
async fn many_producers_on_one_partition_share_it_without_gaps() {
    let place = Place::new(1).await;
    let mut producers = Vec::new();
    for producer in 0..8 {
        let client = crate::support::root(place.address()).await;
        let (stream, topic) = (place.stream.clone(), place.topic.clone());
        producers.push(tokio::spawn(async move {
            let mut offsets = Vec::new();
            for index in 0..25 {
                let sent = client
                    .send_messages(
                        &stream,
                        &topic,
                        &Partitioning::partition_id(0),
                        &mut [message(&format!("{producer}:{index}"))],
                    )
                    .await
                    .expect("confirmed");
                offsets.push(sent.confirmations[0].base_offset);
            }
            assert!(offsets.is_sorted(), "order of one producer");
            offsets
        }));
    }
    let mut all = Vec::new();
    for producer in producers {
        all.extend(producer.await.expect("the producer ends"));
    }
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<u64>>());
    assert_eq!(place.offsets(0, PollingStrategy::first(), 1_000).await, all);
}
