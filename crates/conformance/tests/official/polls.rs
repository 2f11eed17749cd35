//! Polling with every strategy, and its edges.

use crate::support::{Place, code, name};
use iggy::prelude::*;

#[tokio::test]
async fn first_offset_last_and_beyond_read_what_they_say() {
    let place = Place::new(1).await;
    place.fill(0, 20).await;
    let range = |from: u64, to: u64| (from..to).collect::<Vec<u64>>();
    assert_eq!(place.offsets(0, PollingStrategy::first(), 5).await, range(0, 5));
    assert_eq!(place.offsets(0, PollingStrategy::offset(15), 100).await, range(15, 20));
    assert_eq!(place.offsets(0, PollingStrategy::offset(7), 2).await, range(7, 9));
    assert_eq!(place.offsets(0, PollingStrategy::last(), 3).await, range(17, 20));
    assert_eq!(place.offsets(0, PollingStrategy::last(), 100).await, range(0, 20));
    assert!(place.offsets(0, PollingStrategy::offset(20), 5).await.is_empty());
    assert!(place.offsets(0, PollingStrategy::offset(u64::MAX), 5).await.is_empty());
}

#[tokio::test]
async fn an_empty_poll_still_names_partition_and_current_offset() {
    let place = Place::new(3).await;
    let fresh = place.poll(2, PollingStrategy::first(), 5).await.expect("answered");
    assert_eq!((fresh.partition_id, fresh.current_offset, fresh.count), (2, 0, 0));
    place.fill(2, 4).await;
    let beyond = place.poll(2, PollingStrategy::offset(4), 5).await.expect("answered");
    assert_eq!((beyond.partition_id, beyond.current_offset, beyond.count), (2, 3, 0));
}

#[tokio::test]
async fn a_poll_that_starts_inside_a_batch_starts_there() {
    let place = Place::new(1).await;
    place.fill(0, 100).await;
    let polled = place.poll(0, PollingStrategy::offset(42), 3).await.expect("answered");
    assert_eq!(crate::support::texts(&polled), ["m42", "m43", "m44"]);
    assert_eq!(polled.current_offset, 99);
}

#[tokio::test]
async fn a_timestamp_finds_the_first_batch_at_or_after_it() {
    let place = Place::new(1).await;
    place.send(0, &["a", "b"]).await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    place.send(0, &["c", "d"]).await;
    let all = place.poll(0, PollingStrategy::first(), 10).await.expect("answered");
    let second = all.messages[2].header.timestamp;
    assert_eq!(all.messages[3].header.timestamp, second, "one time for a batch");
    assert!(all.messages[0].header.timestamp < second);
    let at = place.offsets(0, PollingStrategy::timestamp(second.into()), 10).await;
    assert_eq!(at, [2, 3]);
    let before = place.offsets(0, PollingStrategy::timestamp((second - 1).into()), 10).await;
    assert_eq!(before, [2, 3]);
    let start = place.offsets(0, PollingStrategy::timestamp(1.into()), 10).await;
    assert_eq!(start, [0, 1, 2, 3]);
    let future = place.offsets(0, PollingStrategy::timestamp((second + 1).into()), 10).await;
    assert!(future.is_empty());
}

#[tokio::test]
async fn next_without_a_stored_offset_starts_at_the_beginning() {
    let place = Place::new(1).await;
    place.fill(0, 5).await;
    assert_eq!(place.offsets(0, PollingStrategy::next(), 3).await, [0, 1, 2]);
    assert_eq!(place.offsets(0, PollingStrategy::next(), 3).await, [0, 1, 2], "nothing stored");
}

#[tokio::test]
async fn a_poll_for_no_messages_is_empty() {
    let place = Place::new(1).await;
    place.fill(0, 5).await;
    // The official client refuses the count itself; other clients may send it.
    assert_eq!(code(place.poll(0, PollingStrategy::first(), 0).await), 4009);
    let (stream, topic) = (place.stream.as_string(), place.topic.as_string());
    let options = borzoi_client::ClientOptions::new(
        place.address(),
        borzoi_conformance::ROOT_USERNAME,
        borzoi_conformance::ROOT_PASSWORD,
    );
    let mut raw = borzoi_client::Client::connect(options).await.expect("connected");
    let target = borzoi_client::Target::new(&stream, &topic).expect("names").partition(0);
    let first = borzoi_wire::PollingStrategy::First;
    let polled = raw.poll(&target, "zero", first, 0, false).await.expect("answered");
    assert_eq!((polled.count, polled.current_offset.0), (0, 4));
}

#[tokio::test]
async fn polls_of_what_does_not_exist_are_errors_and_never_empty() {
    let place = Place::new(1).await;
    assert_eq!(code(place.poll(9, PollingStrategy::first(), 1).await), 3007);
    let consumer = Consumer::default();
    let first = PollingStrategy::first();
    let topic = place
        .client
        .poll_messages(&place.stream, &name("none"), Some(0), &consumer, &first, 1, false)
        .await;
    assert_eq!(code(topic), 2010);
    let stream = place
        .client
        .poll_messages(&name("none"), &place.topic, Some(0), &consumer, &first, 1, false)
        .await;
    assert_eq!(code(stream), 1009);
}

#[tokio::test]
async fn a_consumer_without_a_partition_reads_partition_zero() {
    let place = Place::new(2).await;
    place.send(0, &["zero"]).await;
    place.send(1, &["one"]).await;
    let polled = place
        .client
        .poll_messages(
            &place.stream,
            &place.topic,
            None,
            &Consumer::default(),
            &PollingStrategy::first(),
            10,
            false,
        )
        .await
        .expect("answered");
    assert_eq!(crate::support::texts(&polled), ["zero"]);
}

#[tokio::test]
async fn both_levels_serve_what_they_confirmed_at_once() {
    for durability in [Durability::Persisted, Durability::Replicated] {
        let server = crate::support::shared();
        let place = Place::at(server.address(), 1, durability).await;
        for index in 0..50_u64 {
            let sent = place.send(0, &["x"]).await;
            assert_eq!(sent.confirmations[0].base_offset, index);
            assert_eq!(place.offsets(0, PollingStrategy::offset(index), 1).await, [index]);
        }
    }
}
