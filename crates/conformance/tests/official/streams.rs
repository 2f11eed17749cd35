//! Streams: create, read, list, delete.

use crate::support::{code, name, number, root, shared, unique};
use iggy::prelude::*;

#[tokio::test]
async fn a_created_stream_is_read_by_name_and_by_number() {
    let server = shared();
    let client = root(server.address()).await;
    let title = unique("created");
    let created = client.create_stream(&title).await.expect("the name is free");
    assert_eq!(created.name, title);
    assert_eq!((created.topics_count, created.messages_count), (0, 0));
    let by_name = client.get_stream(&name(&title)).await.expect("read").expect("it exists");
    let by_number = client.get_stream(&number(created.id)).await.expect("read").expect("it exists");
    assert_eq!(by_name.id, created.id);
    assert_eq!(by_number.name, title);
    assert!(created.created_at.as_micros() > 0);
}

#[tokio::test]
async fn a_taken_stream_name_is_refused_with_its_number() {
    let server = shared();
    let client = root(server.address()).await;
    let title = unique("taken");
    client.create_stream(&title).await.expect("the name is free");
    assert_eq!(code(client.create_stream(&title).await), 1012);
}

#[tokio::test]
async fn an_unknown_stream_reads_as_none() {
    let server = shared();
    let client = root(server.address()).await;
    assert!(client.get_stream(&name("no-such-stream")).await.expect("answered").is_none());
    assert!(client.get_stream(&number(4_000_000_000)).await.expect("answered").is_none());
}

#[tokio::test]
async fn a_deleted_stream_is_gone_and_deleting_it_again_is_an_error() {
    let server = shared();
    let client = root(server.address()).await;
    let title = unique("deleted");
    client.create_stream(&title).await.expect("the name is free");
    client.delete_stream(&name(&title)).await.expect("it exists");
    assert!(client.get_stream(&name(&title)).await.expect("answered").is_none());
    assert_eq!(code(client.delete_stream(&name(&title)).await), 1009);
}

#[tokio::test]
async fn streams_are_listed_in_order_of_their_numbers() {
    let server = shared();
    let client = root(server.address()).await;
    let mine = [unique("listed"), unique("listed"), unique("listed")];
    for title in &mine {
        client.create_stream(title).await.expect("the name is free");
    }
    let listed = client.get_streams().await.expect("answered");
    assert!(listed.windows(2).all(|pair| pair[0].id < pair[1].id));
    for title in &mine {
        assert_eq!(listed.iter().filter(|stream| &stream.name == title).count(), 1);
    }
}

#[tokio::test]
async fn names_may_be_long_and_in_any_script() {
    let server = shared();
    let client = root(server.address()).await;
    for title in ["поток-данных", "流れ", "a b\tc/..\u{1}", &"x".repeat(255)] {
        let created = client.create_stream(title).await.expect("a valid name");
        let read = client.get_stream(&number(created.id)).await.expect("answered").expect("there");
        assert_eq!(read.name, title);
        client.delete_stream(&number(created.id)).await.expect("it exists");
    }
}

#[tokio::test]
async fn a_stream_counts_the_messages_of_its_topics() {
    let place = crate::support::Place::new(2).await;
    place.fill(0, 7).await;
    place.fill(1, 5).await;
    let stream = place.client.get_stream(&place.stream).await.expect("read").expect("it exists");
    assert_eq!(stream.messages_count, 12);
    assert_eq!(stream.topics_count, 1);
    assert!(stream.size.as_bytes_u64() > 12 * 48);
}
