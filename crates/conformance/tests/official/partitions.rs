//! Partitions: add and remove.

use crate::support::{Place, code, name};
use iggy::prelude::*;

async fn count(place: &Place) -> u32 {
    let topic = place.client.get_topic(&place.stream, &place.topic).await.expect("read");
    topic.expect("it exists").partitions_count
}

#[tokio::test]
async fn added_partitions_take_messages_at_once() {
    let place = Place::new(1).await;
    place.client.create_partitions(&place.stream, &place.topic, 3).await.expect("added");
    assert_eq!(count(&place).await, 4);
    let sent = place.send(3, &["in the new one"]).await;
    assert_eq!(sent.confirmations[0].partition_id, 3);
    assert_eq!(sent.confirmations[0].base_offset, 0);
}

#[tokio::test]
async fn the_highest_partitions_are_removed_first() {
    let place = Place::new(3).await;
    place.send(2, &["gone soon"]).await;
    place.client.delete_partitions(&place.stream, &place.topic, 1).await.expect("removed");
    assert_eq!(count(&place).await, 2);
    assert_eq!(code(place.poll(2, PollingStrategy::first(), 1).await), 3007);
    place.client.create_partitions(&place.stream, &place.topic, 1).await.expect("added");
    assert!(place.offsets(2, PollingStrategy::first(), 10).await.is_empty());
}

#[tokio::test]
async fn more_partitions_than_exist_cannot_be_removed() {
    let place = Place::new(2).await;
    let removed = place.client.delete_partitions(&place.stream, &place.topic, 3).await;
    assert_eq!(code(removed), 2019);
    assert_eq!(count(&place).await, 2);
}

#[tokio::test]
async fn partition_counts_outside_the_limits_are_refused() {
    let place = Place::new(1).await;
    let many = place.client.create_partitions(&place.stream, &place.topic, 1_001).await;
    assert_eq!(code(many), 2015);
    let unknown = place.client.create_partitions(&place.stream, &name("no-topic"), 1).await;
    assert_eq!(code(unknown), 2010);
}
