//! Old segments: deleted on request, by age and by size; what readers at the edge get.

use crate::support::{Place, code, name, number, root, shared, unique};
use borzoi_conformance::{Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;
/// Two of these fill a segment of the smallest size.
const PAYLOAD_BYTES: usize = 600_000;

async fn place_at(address: &str, options: TopicCreateOptions) -> Place {
    let client = root(address).await;
    let title = unique("segments");
    client.create_stream(&title).await.expect("created");
    let stream = name(&title);
    let options = TopicCreateOptions {
        partitions_count: Some(1),
        segment_size: Some(IggyByteSize::from(MIB)),
        ..options
    };
    client.create_topic(&stream, "events", &options).await.expect("created");
    Place { client, stream, topic: name("events"), server: None }
}

async fn place() -> Place {
    let server = shared();
    let place = place_at(server.address(), TopicCreateOptions::default()).await;
    Place { server: Some(server), ..place }
}

async fn fill(place: &Place, count: usize) {
    let payload = "x".repeat(PAYLOAD_BYTES);
    for _ in 0..count {
        place.send(0, &[&payload]).await;
    }
}

async fn topic(place: &Place) -> TopicDetails {
    place.client.get_topic(&place.stream, &place.topic).await.expect("read").expect("there")
}

async fn delete(place: &Place, count: u32) -> Result<(), IggyError> {
    place.client.delete_segments(&place.stream, &place.topic, 0, count).await
}

async fn first_offset(place: &Place) -> Option<u64> {
    place.offsets(0, PollingStrategy::first(), 1).await.first().copied()
}

#[tokio::test]
async fn the_oldest_closed_segments_are_deleted_and_offsets_keep_their_numbers() {
    let place = place().await;
    fill(&place, 7).await;
    let before = topic(&place).await;
    assert_eq!((before.partitions[0].segments_count, before.messages_count), (4, 7));
    delete(&place, 2).await.expect("deleted");
    let after = topic(&place).await;
    assert_eq!((after.partitions[0].segments_count, after.messages_count), (2, 3));
    assert_eq!(after.partitions[0].current_offset, 6, "unaffected");
    assert!(after.size.as_bytes_u64() < before.size.as_bytes_u64());
    assert_eq!(place.offsets(0, PollingStrategy::offset(0), 10).await, [4, 5, 6]);
    assert_eq!(place.offsets(0, PollingStrategy::first(), 10).await, [4, 5, 6]);
    assert_eq!(place.offsets(0, PollingStrategy::last(), 10).await, [4, 5, 6]);
    assert_eq!(place.offsets(0, PollingStrategy::next(), 10).await, [4, 5, 6]);
    assert_eq!(place.offsets(0, PollingStrategy::timestamp(1.into()), 10).await, [4, 5, 6]);
    assert_eq!(place.send(0, &["next"]).await.confirmations[0].base_offset, 7);
}

#[tokio::test]
async fn the_active_segment_stays_and_nothing_to_delete_is_no_error() {
    let place = place().await;
    delete(&place, 5).await.expect("an empty partition has nothing to delete");
    fill(&place, 1).await;
    for count in [0, 1, 1_000] {
        delete(&place, count).await.expect("nothing to delete");
    }
    assert_eq!(place.offsets(0, PollingStrategy::first(), 10).await, [0]);
}

#[tokio::test]
async fn a_consumer_holds_segments_back_until_it_has_read_them() {
    let place = place().await;
    fill(&place, 5).await;
    let consumer = Consumer::new(number(9));
    let store = |offset| {
        place.client.store_consumer_offset(&consumer, &place.stream, &place.topic, Some(0), offset)
    };
    store(0).await.expect("stored");
    delete(&place, 2).await.expect("accepted");
    assert_eq!(first_offset(&place).await, Some(0), "held back");
    store(4).await.expect("stored");
    for _ in 0..500 {
        if first_offset(&place).await == Some(4) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("still there: {:?}", first_offset(&place).await);
}

#[tokio::test]
async fn segments_of_what_does_not_exist_are_missing() {
    let place = place().await;
    let (client, stream, at) = (&place.client, &place.stream, &place.topic);
    assert_eq!(code(client.delete_segments(&name("none"), at, 0, 1).await), 1009);
    assert_eq!(code(client.delete_segments(stream, &name("none"), 0, 1).await), 2010);
    assert_eq!(code(client.delete_segments(stream, at, 7, 1).await), 3007);
}

#[tokio::test]
async fn deleted_segments_stay_deleted_after_kill_nine() {
    let (_folder, data) = data_directory();
    let server = Server::start(&data, &ServerOptions::default());
    let place = place_at(server.address(), TopicCreateOptions::default()).await;
    fill(&place, 5).await;
    delete(&place, 1).await.expect("deleted");
    assert_eq!(first_offset(&place).await, Some(2));
    server.kill();
    let server = Server::start(&data, &ServerOptions::default());
    let place = Place { client: root(server.address()).await, ..place };
    assert_eq!(place.offsets(0, PollingStrategy::first(), 10).await, [2, 3, 4]);
    assert_eq!(topic(&place).await.messages_count, 3);
}

#[tokio::test]
async fn old_messages_go_by_age_and_surplus_ones_by_size() {
    let (_folder, data) = data_directory();
    let options = ServerOptions::default().with("BORZOI_RETENTION_INTERVAL", "1s");
    let server = Server::start(&data, &options);
    let aged = TopicCreateOptions {
        message_expiry: Some(IggyExpiry::from(1_000_000_u64)),
        ..TopicCreateOptions::default()
    };
    let sized = TopicCreateOptions {
        // The share of a partition is never below one segment and one frame, 65 MiB.
        max_topic_size: Some(MaxTopicSize::from(2 * MIB)),
        ..TopicCreateOptions::default()
    };
    let (aged, sized) =
        (place_at(server.address(), aged).await, place_at(server.address(), sized).await);
    fill(&aged, 5).await;
    fill(&sized, 130).await;
    let (mut by_age, mut by_size) = (Some(0), Some(0));
    for _ in 0..300 {
        by_age = first_offset(&aged).await;
        by_size = first_offset(&sized).await;
        if by_age == Some(4) && by_size > Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(by_age, Some(4), "all but the active segment have expired");
    assert!(by_size > Some(0), "the oldest went, {by_size:?} is the first");
    let left = topic(&sized).await;
    assert!(left.size.as_bytes_u64() < 130 * PAYLOAD_BYTES as u64);
    assert_eq!(left.partitions[0].current_offset, 129);
    assert_eq!(sized.send(0, &["next"]).await.confirmations[0].base_offset, 130);
}
