//! Names as they may and may not be: lengths, scripts, bytes that are no text, digits.

use crate::support::{Place, code, message, name, number, root, shared, unique};
use bytes::{BufMut, Bytes, BytesMut};
use iggy::prelude::*;

/// A name as it travels: one byte for the length, then the bytes.
fn short(bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(u8::try_from(bytes.len()).expect("short"));
    out.extend_from_slice(bytes);
    out.freeze()
}

/// The body of a stream creation without options.
fn create_stream(title: &[u8]) -> Bytes {
    short(title)
}

/// The body of a topic creation in `stream`, without options.
fn create_topic(stream: &Identifier, title: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.extend_from_slice(&identifier(2, stream.as_string().as_bytes()));
    out.put_u32_le(1);
    out.extend_from_slice(&short(title));
    out.freeze()
}

fn identifier(kind: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(kind);
    out.extend_from_slice(&short(bytes));
    out.freeze()
}

#[tokio::test]
async fn names_of_one_and_of_255_bytes_are_names_and_longer_ones_cannot_be_sent() {
    let place = Place::new(1).await;
    let client = &place.client;
    let long = "n".repeat(255);
    for title in ["x", long.as_str()] {
        let topic = TopicCreateOptions::default();
        client.create_topic(&place.stream, title, &topic).await.expect("a topic name");
        client
            .create_consumer_group(&place.stream, &place.topic, title)
            .await
            .expect("a group name");
        let read = client.get_topic(&place.stream, &name(title)).await.expect("read");
        assert_eq!(read.expect("there").name, title);
    }
    // The official client refuses these itself.
    let longer = "n".repeat(256);
    for title in ["", longer.as_str()] {
        assert_eq!(code(client.create_stream(title).await), 4);
    }
}

#[tokio::test]
async fn an_empty_name_in_a_raw_frame_is_refused() {
    let place = Place::new(1).await;
    let client = &place.client;
    assert_eq!(code(client.send_binary_request(202, create_stream(b"")).await), 3);
    let topic = create_topic(&place.stream, b"");
    assert_eq!(code(client.send_binary_request(302, topic).await), 3);
    client.ping().await.expect("the connection goes on");
}

#[tokio::test]
async fn a_name_that_is_no_utf8_is_refused_and_makes_nothing() {
    let place = Place::new(1).await;
    let client = &place.client;
    for bytes in [&b"\xff\xfe"[..], b"half \xe2\x82", b"\xc0\x80", b"ok\x80"] {
        assert_eq!(code(client.send_binary_request(202, create_stream(bytes)).await), 3);
        let topic = create_topic(&place.stream, bytes);
        assert_eq!(code(client.send_binary_request(302, topic).await), 3);
        // As the name of what is read or deleted.
        let wanted = identifier(2, bytes);
        assert_eq!(code(client.send_binary_request(200, wanted.clone()).await), 3);
        assert_eq!(code(client.send_binary_request(203, wanted).await), 3);
    }
    let topics = client.get_topics(&place.stream).await.expect("listed");
    assert_eq!(topics.len(), 1, "only the one that was there");
}

#[tokio::test]
async fn an_identifier_of_an_unknown_kind_or_a_wrong_length_is_refused() {
    let place = Place::new(1).await;
    let client = &place.client;
    let number = 0_u32.to_le_bytes();
    for wanted in [
        identifier(0, &number),
        identifier(3, &number),
        identifier(1, &number[..3]),
        identifier(1, b"12345"),
        identifier(2, b""),
        Bytes::from_static(&[2, 200, b'a']),
        Bytes::from_static(&[1]),
        Bytes::new(),
    ] {
        assert_eq!(code(client.send_binary_request(200, wanted.clone()).await), 3, "{wanted:?}");
        assert_eq!(code(client.send_binary_request(203, wanted.clone()).await), 3, "{wanted:?}");
    }
    client.get_stream(&place.stream).await.expect("answered").expect("still there");
}

#[tokio::test]
async fn a_name_of_digits_is_reached_by_name_and_never_taken_for_a_number() {
    let place = Place::new(1).await;
    let client = &place.client;
    let digits = format!("40{}", unique("").trim_start_matches('-'));
    let created = client.create_stream(&digits).await.expect("digits are a name");
    assert_ne!(created.id.to_string(), digits);
    let read = client.get_stream(&name(&digits)).await.expect("read").expect("by name");
    assert_eq!(read.id, created.id);
    let options = TopicCreateOptions::default();
    client.create_topic(&place.stream, "7", &options).await.expect("created");
    let by_name = client.get_topic(&place.stream, &name("7")).await.expect("read").expect("there");
    assert_ne!(by_name.id, 7);
    assert!(client.get_topic(&place.stream, &number(7)).await.expect("answered").is_none());
    client.delete_stream(&name(&digits)).await.expect("deleted by name");
}

#[tokio::test]
async fn names_differ_by_case_and_hold_any_script_and_sign() {
    let place = Place::new(1).await;
    let client = &place.client;
    let options = TopicCreateOptions::default();
    for title in ["Events", "EVENTS", "../../etc/passwd", "a b\tc", "Ереван-事件-🐶", "%00", "."]
    {
        let made = client.create_topic(&place.stream, title, &options).await;
        assert_eq!(made.expect("a name").name, title);
        let to = Partitioning::partition_id(0);
        client
            .send_messages(&place.stream, &name(title), &to, &mut [message("m")])
            .await
            .expect("its files have other names");
    }
    assert_eq!(client.get_topics(&place.stream).await.expect("listed").len(), 8);
}

#[tokio::test]
async fn a_name_of_another_scope_is_no_name_here() {
    let (one, two) = (Place::new(1).await, Place::new(1).await);
    let client = &one.client;
    let options = TopicCreateOptions::default();
    client.create_topic(&one.stream, "only-here", &options).await.expect("created");
    let foreign = name("only-here");
    assert!(client.get_topic(&two.stream, &foreign).await.expect("answered").is_none());
    assert_eq!(code(client.delete_topic(&two.stream, &foreign).await), 2010);
    client.create_consumer_group(&one.stream, &one.topic, "g").await.expect("created");
    let joined = client.join_consumer_group(&one.stream, &foreign, &name("g")).await;
    assert_eq!(code(joined), 5000, "a group belongs to its topic");
}

#[tokio::test]
async fn numbers_of_nothing_are_missing_and_not_an_invitation() {
    let server = shared();
    let client = root(server.address()).await;
    for nothing in [1_000_000, u32::MAX - 1, u32::MAX] {
        let nothing = number(nothing);
        assert!(client.get_stream(&nothing).await.expect("answered").is_none());
        assert!(client.get_user(&nothing).await.expect("answered").is_none());
        assert_eq!(code(client.delete_stream(&nothing).await), 1009);
        assert_eq!(code(client.delete_topic(&nothing, &nothing).await), 1009);
        assert_eq!(code(client.purge_stream(&nothing).await), 1009);
        assert_eq!(code(client.delete_user(&nothing).await), 20);
    }
}
