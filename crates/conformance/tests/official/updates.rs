//! Changing and emptying streams and topics; what a purge leaves.

use crate::support::{Place, code, name, number, root, shared, unique};
use iggy::prelude::*;

fn nothing() -> TopicUpdateOptions {
    TopicUpdateOptions::default()
}

async fn topic(place: &Place) -> TopicDetails {
    place.client.get_topic(&place.stream, &place.topic).await.expect("read").expect("there")
}

#[tokio::test]
async fn a_stream_is_renamed_and_found_under_the_new_name_only() {
    let place = Place::new(1).await;
    place.fill(0, 3).await;
    let new = unique("renamed");
    let none = StreamUpdateOptions::default();
    place.client.update_stream(&place.stream, &new, &none).await.expect("the name is free");
    assert!(place.client.get_stream(&place.stream).await.expect("answered").is_none());
    let read = place.client.get_stream(&name(&new)).await.expect("read").expect("there");
    assert_eq!(read.messages_count, 3, "its messages came along");
    place.client.update_stream(&name(&new), &new, &none).await.expect("its own name is fine");
}

#[tokio::test]
async fn a_stream_cannot_take_the_name_of_another_nor_unknown_options() {
    let (one, two) = (Place::new(1).await, Place::new(1).await);
    let none = StreamUpdateOptions::default();
    let taken = two.stream.as_string();
    assert_eq!(code(one.client.update_stream(&one.stream, &taken, &none).await), 1012);
    let unknown = name("no-such-stream");
    assert_eq!(code(one.client.update_stream(&unknown, &unique("x"), &none).await), 1009);
    let mut options = StreamUpdateOptions::default();
    options.raw.insert("colour".to_owned(), "blue".to_owned());
    assert_eq!(code(one.client.update_stream(&one.stream, &unique("x"), &options).await), 4041);
}

#[tokio::test]
async fn a_purged_stream_keeps_its_topics_and_loses_their_messages() {
    let place = Place::new(2).await;
    place.fill(0, 10).await;
    place.fill(1, 10).await;
    place.client.purge_stream(&place.stream).await.expect("purged");
    let read = place.client.get_stream(&place.stream).await.expect("read").expect("there");
    assert_eq!((read.topics_count, read.messages_count), (1, 0));
    assert_eq!(read.size.as_bytes_u64(), 0);
    for partition in 0..2 {
        assert!(place.offsets(partition, PollingStrategy::first(), 10).await.is_empty());
    }
    assert_eq!(place.send(1, &["again"]).await.confirmations[0].base_offset, 0);
    assert_eq!(code(place.client.purge_stream(&name("no-such-stream")).await), 1009);
}

#[tokio::test]
async fn a_deleted_stream_takes_topics_messages_and_groups_along() {
    let place = Place::new(1).await;
    place.fill(0, 10).await;
    let client = &place.client;
    client.create_consumer_group(&place.stream, &place.topic, "g").await.expect("created");
    let title = place.stream.as_string();
    client.delete_stream(&place.stream).await.expect("deleted");
    assert_eq!(code(place.poll(0, PollingStrategy::first(), 1).await), 1009);
    client.create_stream(&title).await.expect("the name is free");
    assert!(client.get_topics(&place.stream).await.expect("listed").is_empty());
    let group = client.get_consumer_group(&place.stream, &place.topic, &name("g")).await;
    assert_eq!(code(group), 2010, "nothing of the old one");
}

#[tokio::test]
async fn a_freed_stream_number_is_the_next_ones() {
    let (_folder, data) = borzoi_conformance::data_directory();
    let options = borzoi_conformance::ServerOptions::default();
    let server = borzoi_conformance::Server::start(&data, &options);
    let client = root(server.address()).await;
    for (expected, title) in (0..).zip(["a", "b", "c"]) {
        assert_eq!(client.create_stream(title).await.expect("created").id, expected);
    }
    client.delete_stream(&number(1)).await.expect("deleted");
    assert_eq!(client.create_stream("d").await.expect("created").id, 1);
    assert_eq!(client.create_stream("e").await.expect("created").id, 3);
    client.create_topic(&number(1), "t", &TopicCreateOptions::default()).await.expect("created");
    client.create_topic(&number(1), "u", &TopicCreateOptions::default()).await.expect("created");
    client.delete_topic(&number(1), &number(0)).await.expect("deleted");
    let again = client.create_topic(&number(1), "v", &TopicCreateOptions::default()).await;
    assert_eq!(again.expect("created").id, 0);
}

#[tokio::test]
async fn a_topic_is_renamed_and_keeps_what_the_change_does_not_name() {
    let place = Place::new(1).await;
    place.fill(0, 3).await;
    let before = topic(&place).await;
    let new = name("renamed");
    place
        .client
        .update_topic(&place.stream, &place.topic, "renamed", &nothing())
        .await
        .expect("the name is free");
    assert!(place.client.get_topic(&place.stream, &place.topic).await.expect("read").is_none());
    let read = place.client.get_topic(&place.stream, &new).await.expect("read").expect("there");
    assert_eq!((read.id, read.messages_count), (before.id, 3));
    assert_eq!(read.message_expiry, before.message_expiry);
    assert_eq!(read.max_topic_size, before.max_topic_size);
}

#[tokio::test]
async fn expiry_size_limit_and_compression_of_a_topic_may_be_changed() {
    let place = Place::new(1).await;
    let changes = TopicUpdateOptions {
        compression_algorithm: Some(CompressionAlgorithm::Gzip),
        message_expiry: Some(IggyExpiry::from(7_200_000_000_u64)),
        max_topic_size: Some(MaxTopicSize::from(5_000_000_000_u64)),
        ..nothing()
    };
    place
        .client
        .update_topic(&place.stream, &place.topic, "events", &changes)
        .await
        .expect("changed");
    let read = topic(&place).await;
    assert_eq!(read.compression_algorithm, CompressionAlgorithm::Gzip);
    assert_eq!(read.message_expiry, IggyExpiry::from(7_200_000_000_u64));
    assert_eq!(read.max_topic_size, MaxTopicSize::from(5_000_000_000_u64));
    // The sentinel of the server's default counts as "not sent".
    let sentinels =
        TopicUpdateOptions { message_expiry: Some(IggyExpiry::ServerDefault), ..nothing() };
    place
        .client
        .update_topic(&place.stream, &place.topic, "events", &sentinels)
        .await
        .expect("nothing to change");
    assert_eq!(topic(&place).await.message_expiry, IggyExpiry::from(7_200_000_000_u64));
}

#[tokio::test]
async fn a_change_of_a_topic_is_refused_for_fixed_options_low_limits_and_taken_names() {
    let place = Place::new(1).await;
    let (client, stream, at) = (&place.client, &place.stream, &place.topic);
    let low =
        TopicUpdateOptions { max_topic_size: Some(MaxTopicSize::from(1_000_000_u64)), ..nothing() };
    assert_eq!(code(client.update_topic(stream, at, "events", &low).await), 1019);
    for key in ["segment_size", "durability", "colour"] {
        let mut fixed = nothing();
        fixed.raw.insert(key.to_owned(), "2097152".to_owned());
        assert_eq!(code(client.update_topic(stream, at, "events", &fixed).await), 4041, "{key}");
    }
    client.create_topic(stream, "other", &TopicCreateOptions::default()).await.expect("created");
    assert_eq!(code(client.update_topic(stream, at, "other", &nothing()).await), 2013);
    let none = name("none");
    assert_eq!(code(client.update_topic(stream, &none, "x", &nothing()).await), 2010);
    assert_eq!(code(client.update_topic(&none, at, "x", &nothing()).await), 1009);
}

#[tokio::test]
async fn values_of_topic_options_outside_their_bounds_are_refused() {
    let server = shared();
    let client = root(server.address()).await;
    let title = unique("options");
    client.create_stream(&title).await.expect("created");
    let stream = name(&title);
    let refused = [
        ("segment_size", "1000"),
        ("segment_size", "2147483648"),
        ("segment_size", "1048577"),
        ("messages_required_to_save", "0"),
        ("preallocate_segments", "perhaps"),
        ("message_expiry", "soon"),
        ("durability", "hopefully"),
        ("compression_algorithm", "magic"),
    ];
    for (key, value) in refused {
        let mut options = TopicCreateOptions::default();
        options.raw.insert(key.to_owned(), value.to_owned());
        if key == "durability" {
            // The official client always sends its own; a raw key collides with it.
            continue;
        }
        let made = client.create_topic(&stream, "t", &options).await;
        assert_eq!(code(made), 4042, "{key} = {value}");
    }
    let mut unknown = TopicCreateOptions::default();
    unknown.raw.insert("colour".to_owned(), "blue".to_owned());
    assert_eq!(code(client.create_topic(&stream, "t", &unknown).await), 4041);
    assert!(client.get_topics(&stream).await.expect("listed").is_empty(), "nothing was made");
}

#[tokio::test]
async fn a_purged_topic_keeps_partitions_and_groups_and_loses_messages_and_offsets() {
    let place = Place::new(3).await;
    place.fill(0, 10).await;
    let (client, stream, at) = (&place.client, &place.stream, &place.topic);
    client.create_consumer_group(stream, at, "g").await.expect("created");
    client.join_consumer_group(stream, at, &name("g")).await.expect("joined");
    let (single, group) = (Consumer::new(number(7)), Consumer::group(name("g")));
    for consumer in [&single, &group] {
        client.store_consumer_offset(consumer, stream, at, Some(0), 5).await.expect("stored");
    }
    client.purge_topic(stream, at).await.expect("purged");
    let read = topic(&place).await;
    assert_eq!((read.partitions_count, read.messages_count), (3, 0));
    assert_eq!(read.size.as_bytes_u64(), 0);
    for consumer in [&single, &group] {
        let stored = client.get_consumer_offset(consumer, stream, at, Some(0)).await;
        assert!(stored.expect("answered").is_none(), "offsets go with the messages");
    }
    let kept = client.get_consumer_group(stream, at, &name("g")).await.expect("read");
    assert_eq!(kept.expect("there").members_count, 1, "members stay");
    assert_eq!(place.send(0, &["again"]).await.confirmations[0].base_offset, 0);
    assert_eq!(place.offsets(0, PollingStrategy::first(), 10).await, [0]);
}

#[tokio::test]
async fn a_purge_is_not_repeated_by_a_restart() {
    let (_folder, data) = borzoi_conformance::data_directory();
    let options = borzoi_conformance::ServerOptions::default();
    let server = borzoi_conformance::Server::start(&data, &options);
    let place = Place::at(server.address(), 1, Durability::Persisted).await;
    place.fill(0, 10).await;
    place.client.purge_topic(&place.stream, &place.topic).await.expect("purged");
    place.send(0, &["newer"]).await;
    server.kill();
    let server = borzoi_conformance::Server::start(&data, &options);
    let place = Place { client: root(server.address()).await, ..place };
    let polled = place.poll(0, PollingStrategy::first(), 10).await.expect("answered");
    assert_eq!(crate::support::texts(&polled), ["newer"]);
}

#[tokio::test]
async fn topics_that_do_not_exist_cannot_be_purged_or_deleted() {
    let place = Place::new(1).await;
    let (client, none) = (&place.client, name("none"));
    assert_eq!(code(client.purge_topic(&place.stream, &none).await), 2010);
    assert_eq!(code(client.purge_topic(&none, &place.topic).await), 1009);
    assert_eq!(code(client.delete_topic(&place.stream, &none).await), 2010);
    assert_eq!(code(client.delete_topic(&none, &place.topic).await), 1009);
    assert_eq!(code(client.create_partitions(&place.stream, &none, 1).await), 2010);
    assert_eq!(code(client.create_partitions(&none, &place.topic, 1).await), 1009);
    assert_eq!(code(client.delete_partitions(&place.stream, &none, 1).await), 2010);
    assert_eq!(code(client.delete_partitions(&none, &place.topic, 1).await), 1009);
}

#[tokio::test]
async fn a_removed_partition_is_gone_and_comes_back_empty_under_its_number() {
    let place = Place::new(2).await;
    place.fill(1, 10).await;
    let consumer = Consumer::new(number(1));
    let (client, stream, at) = (&place.client, &place.stream, &place.topic);
    client.store_consumer_offset(&consumer, stream, at, Some(1), 5).await.expect("stored");
    client.delete_partitions(stream, at, 1).await.expect("deleted");
    assert_eq!(code(place.poll(1, PollingStrategy::first(), 1).await), 3007);
    assert_eq!(topic(&place).await.messages_count, 0);
    client.create_partitions(stream, at, 1).await.expect("created");
    assert!(place.offsets(1, PollingStrategy::first(), 10).await.is_empty());
    let stored = client.get_consumer_offset(&consumer, stream, at, Some(1)).await;
    assert!(stored.expect("answered").is_none());
    assert_eq!(place.send(1, &["new"]).await.confirmations[0].base_offset, 0);
}
