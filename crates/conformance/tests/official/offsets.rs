//! Stored consumer offsets.

use crate::support::{Place, code, name, number};
use iggy::prelude::*;

async fn stored(place: &Place, consumer: &Consumer) -> Option<u64> {
    place
        .client
        .get_consumer_offset(consumer, &place.stream, &place.topic, Some(0))
        .await
        .expect("answered")
        .map(|info| info.stored_offset)
}

async fn store(place: &Place, consumer: &Consumer, offset: u64) -> Result<(), IggyError> {
    place.client.store_consumer_offset(consumer, &place.stream, &place.topic, Some(0), offset).await
}

#[tokio::test]
async fn an_offset_is_stored_read_and_deleted() {
    let place = Place::new(1).await;
    place.fill(0, 10).await;
    let consumer = Consumer::new(number(7));
    assert_eq!(stored(&place, &consumer).await, None);
    store(&place, &consumer, 4).await.expect("stored");
    assert_eq!(stored(&place, &consumer).await, Some(4));
    place
        .client
        .delete_consumer_offset(&consumer, &place.stream, &place.topic, Some(0))
        .await
        .expect("deleted");
    assert_eq!(stored(&place, &consumer).await, None);
}

#[tokio::test]
async fn an_offset_may_go_backwards() {
    let place = Place::new(1).await;
    place.fill(0, 10).await;
    let consumer = Consumer::new(number(1));
    store(&place, &consumer, 9).await.expect("stored");
    store(&place, &consumer, 2).await.expect("stored");
    assert_eq!(stored(&place, &consumer).await, Some(2));
}

#[tokio::test]
async fn an_offset_beyond_the_last_message_is_refused() {
    let place = Place::new(1).await;
    let consumer = Consumer::new(number(1));
    assert_eq!(code(store(&place, &consumer, 0).await), 4100);
    place.fill(0, 3).await;
    assert_eq!(code(store(&place, &consumer, 3).await), 4100);
    store(&place, &consumer, 2).await.expect("the last message exists");
}

#[tokio::test]
async fn deleting_an_offset_that_is_not_stored_is_an_error() {
    let place = Place::new(1).await;
    place.fill(0, 1).await;
    let consumer = Consumer::new(number(9));
    let deleted =
        place.client.delete_consumer_offset(&consumer, &place.stream, &place.topic, Some(0)).await;
    assert_eq!(code(deleted), 3021);
}

#[tokio::test]
async fn consumers_with_names_keep_offsets_of_their_own() {
    let place = Place::new(1).await;
    place.fill(0, 10).await;
    let reader = Consumer::new(name("reader"));
    let writer = Consumer::new(name("auditor"));
    store(&place, &reader, 3).await.expect("stored");
    store(&place, &writer, 8).await.expect("stored");
    assert_eq!(stored(&place, &reader).await, Some(3));
    assert_eq!(stored(&place, &writer).await, Some(8));
}

#[tokio::test]
async fn the_next_strategy_continues_after_the_stored_offset() {
    let place = Place::new(1).await;
    place.fill(0, 20).await;
    let consumer = Consumer::new(number(1));
    store(&place, &consumer, 12).await.expect("stored");
    assert_eq!(place.offsets(0, PollingStrategy::next(), 3).await, [13, 14, 15]);
}

#[tokio::test]
async fn auto_commit_stores_the_last_offset_it_delivered() {
    let place = Place::new(1).await;
    place.fill(0, 10).await;
    let consumer = Consumer::new(number(5));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let polled = place
            .client
            .poll_messages(
                &place.stream,
                &place.topic,
                Some(0),
                &consumer,
                &PollingStrategy::next(),
                3,
                true,
            )
            .await
            .expect("answered");
        seen.extend(polled.messages.iter().map(|message| message.header.offset));
    }
    assert_eq!(seen, (0..10).collect::<Vec<u64>>());
    // The commit follows the reply; it is made durable in the background.
    for _ in 0..200 {
        if stored(&place, &consumer).await == Some(9) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the offset was never committed: {:?}", stored(&place, &consumer).await);
}

#[tokio::test]
async fn an_offset_of_an_unknown_partition_is_an_error() {
    let place = Place::new(1).await;
    let consumer = Consumer::new(number(1));
    let read =
        place.client.get_consumer_offset(&consumer, &place.stream, &place.topic, Some(7)).await;
    assert_eq!(code(read), 3007);
}
