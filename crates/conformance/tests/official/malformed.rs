//! Truncated and lying bodies of every command, through the official client's raw requests.

use crate::support::{Place, message, name};
use borzoi_wire::body::{
    self, CreateConsumerGroup, CreatePartitions, CreateStream, CreateTopic, DeletePartitions,
    DeleteSegments, DeleteStream, DeleteTopic, DeleteUser, GetConsumerGroup, GetConsumerGroups,
    GetStream, GetTopic, GetTopics, GetUser, JoinConsumerGroup, LeaveConsumerGroup, PurgeStream,
    PurgeTopic, SyncConsumerGroup, UpdateStream, UpdateTopic,
};
use borzoi_wire::options::TrailingOptions;
use borzoi_wire::{Identifier as WireIdentifier, Name, Request};
use bytes::Bytes;
use iggy::prelude::*;

fn text(value: &str) -> Name {
    Name::new(value).expect("a valid name")
}

fn wire(value: &str) -> WireIdentifier {
    WireIdentifier::Name(text(value))
}

/// A request of every kind whose body names something; nothing of it exists.
fn requests() -> Vec<Request<'static>> {
    let mut all = requests_about_users_streams_and_topics();
    all.extend(requests_inside_topics());
    all
}

fn requests_about_users_streams_and_topics() -> Vec<Request<'static>> {
    let (stream, topic) = (wire("qqqq"), wire("rrrr"));
    let options = TrailingOptions::default;
    vec![
        Request::GetUser(GetUser { user: wire("qqqq") }),
        Request::DeleteUser(DeleteUser { user: wire("qqqq") }),
        Request::UpdatePermissions(body::UpdatePermissions {
            user: wire("qqqq"),
            permissions: None,
        }),
        Request::GetStream(GetStream { stream: stream.clone() }),
        Request::CreateStream(CreateStream { name: text("qqqq"), options: options() }),
        Request::DeleteStream(DeleteStream { stream: stream.clone() }),
        Request::UpdateStream(UpdateStream {
            stream: stream.clone(),
            name: text("tttt"),
            options: options(),
        }),
        Request::PurgeStream(PurgeStream { stream: stream.clone() }),
        Request::GetTopics(GetTopics { stream: stream.clone() }),
        Request::GetTopic(GetTopic { stream: stream.clone(), topic: topic.clone() }),
        Request::CreateTopic(CreateTopic {
            stream: stream.clone(),
            partitions_count: 1,
            name: text("rrrr"),
            options: options(),
        }),
        Request::DeleteTopic(DeleteTopic { stream: stream.clone(), topic: topic.clone() }),
        Request::UpdateTopic(UpdateTopic {
            stream: stream.clone(),
            topic: topic.clone(),
            name: text("tttt"),
            options: options(),
        }),
        Request::PurgeTopic(PurgeTopic { stream, topic }),
    ]
}

/// The same for what lies inside a topic.
fn requests_inside_topics() -> Vec<Request<'static>> {
    let (stream, topic, group) = (wire("qqqq"), wire("rrrr"), wire("ssss"));
    let partition = borzoi_client::PartitionId(0);
    vec![
        Request::CreatePartitions(CreatePartitions {
            stream: stream.clone(),
            topic: topic.clone(),
            partitions_count: 1,
        }),
        Request::DeletePartitions(DeletePartitions {
            stream: stream.clone(),
            topic: topic.clone(),
            partitions_count: 1,
        }),
        Request::DeleteSegments(DeleteSegments {
            stream: stream.clone(),
            topic: topic.clone(),
            partition,
            segments_count: 1,
        }),
        Request::GetConsumerGroups(GetConsumerGroups {
            stream: stream.clone(),
            topic: topic.clone(),
        }),
        Request::GetConsumerGroup(GetConsumerGroup {
            stream: stream.clone(),
            topic: topic.clone(),
            group: group.clone(),
        }),
        Request::CreateConsumerGroup(CreateConsumerGroup {
            stream: stream.clone(),
            topic: topic.clone(),
            name: text("ssss"),
        }),
        Request::DeleteConsumerGroup(body::DeleteConsumerGroup {
            stream: stream.clone(),
            topic: topic.clone(),
            group: group.clone(),
        }),
        Request::JoinConsumerGroup(JoinConsumerGroup {
            stream: stream.clone(),
            topic: topic.clone(),
            group: group.clone(),
        }),
        Request::LeaveConsumerGroup(LeaveConsumerGroup {
            stream: stream.clone(),
            topic: topic.clone(),
            group: group.clone(),
        }),
        Request::SyncConsumerGroup(SyncConsumerGroup { stream, topic, group }),
    ]
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.write_body(&mut out);
    out
}

/// The error number, and that it was an answer and not a broken connection.
async fn refused(client: &IggyClient, request: &Request<'_>, bytes: Vec<u8>) -> u32 {
    let command = request.command();
    let answer = client.send_binary_request(command.code(), Bytes::from(bytes.clone())).await;
    match answer {
        Ok(payload) => panic!("{command:?} {bytes:?} was answered {payload:?}"),
        Err(error) => error.as_code(),
    }
}

#[tokio::test]
async fn a_body_cut_anywhere_is_an_invalid_command_for_every_operation() {
    let place = Place::new(1).await;
    let me = place.client.get_me().await.expect("answered").client_id;
    for request in requests() {
        let whole = encoded(&request);
        // Trailing options may be absent, so a body that ends before them is whole.
        let options = match &request {
            Request::CreateStream(_)
            | Request::UpdateStream(_)
            | Request::CreateTopic(_)
            | Request::UpdateTopic(_) => whole.len() - TrailingOptionsBytes::of(&request),
            _ => whole.len(),
        };
        for cut in 0..options {
            let number = refused(&place.client, &request, whole[..cut].to_vec()).await;
            assert_eq!(number, 3, "{:?} cut at {cut}", request.command());
        }
    }
    let still = place.client.get_me().await.expect("answered").client_id;
    assert_eq!(still, me, "one connection took it all");
    place.send(0, &["undisturbed"]).await;
}

/// How many bytes of a request are its options.
struct TrailingOptionsBytes;

impl TrailingOptionsBytes {
    fn of(request: &Request<'_>) -> usize {
        let mut without = encoded(request);
        // With empty options the block is either absent or a length of four zero bytes.
        let tail = without.split_off(without.len().saturating_sub(4));
        if tail == [0; 4] { 4 } else { 0 }
    }
}

#[tokio::test]
async fn bytes_behind_the_end_of_a_body_change_nothing() {
    // Later clients may send more: what is not understood behind a whole body is passed over,
    // unless it stands where options do.
    let place = Place::new(1).await;
    let outcome = async |request: &Request<'_>, bytes: Vec<u8>| {
        let code = request.command().code();
        let answer = place.client.send_binary_request(code, Bytes::from(bytes)).await;
        answer.map_err(|error| error.as_code())
    };
    for request in requests() {
        if matches!(request, Request::CreateStream(_)) {
            continue;
        }
        let whole = encoded(&request);
        let mut longer = whole.clone();
        longer.extend_from_slice(&[0xee; 7]);
        let (plain, more) = (outcome(&request, whole).await, outcome(&request, longer).await);
        let options = matches!(more, Err(3 | 4042 | 4043));
        assert!(more == plain || options, "{:?}: {plain:?}, {more:?}", request.command());
    }
    place.client.ping().await.expect("the connection goes on");
}

#[tokio::test]
async fn a_name_of_bytes_that_are_no_text_is_refused_wherever_a_name_may_stand() {
    let place = Place::new(1).await;
    for request in requests() {
        let whole = encoded(&request);
        for letter in [b'q', b'r', b's', b't'] {
            let mut bad = whole.clone();
            let Some(at) = bad.windows(4).position(|four| four == [letter; 4]) else { continue };
            bad[at + 1] = 0xff;
            let number = refused(&place.client, &request, bad).await;
            assert_eq!(number, 3, "{:?} with a bad {}", request.command(), letter as char);
        }
    }
    let streams = place.client.get_streams().await.expect("listed");
    assert!(streams.iter().all(|stream| stream.name != "qqqq"), "nothing was made of it");
}

#[tokio::test]
async fn lengths_inside_a_body_that_lie_are_refused() {
    let place = Place::new(1).await;
    for request in requests() {
        let whole = encoded(&request);
        for letter in [b'q', b'r', b's', b't'] {
            let Some(at) = whole.windows(4).position(|four| four == [letter; 4]) else { continue };
            for length in [0, 3, 5, 255] {
                let mut bad = whole.clone();
                bad[at - 1] = length;
                let answer = place
                    .client
                    .send_binary_request(request.command().code(), Bytes::from(bad))
                    .await;
                // A length that is short by one may leave a body that means something else, but
                // never one that names what exists.
                let known = match &answer {
                    Ok(payload) => payload.is_empty() || payload[..] == [0; 4],
                    Err(error) => error.as_code() < 14_000,
                };
                assert!(known, "{:?} with length {length}: {answer:?}", request.command());
            }
        }
    }
    let streams = place.client.get_streams().await.expect("listed");
    assert!(streams.iter().all(|stream| !stream.name.contains("qqq")), "nothing was made of it");
    place.send(0, &["undisturbed"]).await;
}

#[tokio::test]
async fn a_batch_that_was_changed_on_its_way_is_refused_and_stores_nothing() {
    let place = Place::new(1).await;
    let batch = borzoi_client::batch_of(&["first", "second"]).expect("a batch");
    let (stream, topic) = (place.stream.as_string(), place.topic.as_string());
    let stream = borzoi_wire::NameRef::new(&stream).expect("a name");
    let topic = borzoi_wire::NameRef::new(&topic).expect("a name");
    let body = |batch: &[u8], count: u32| {
        let request = Request::SendMessages(body::SendMessages {
            stream: borzoi_wire::IdentifierRef::Name(stream),
            topic: borzoi_wire::IdentifierRef::Name(topic),
            partitioning: borzoi_wire::Partitioning::Partition(borzoi_client::PartitionId(0)),
            messages_count: count,
            batch,
        });
        Bytes::from(encoded(&request))
    };
    // Each byte of the batch's frames flipped, and each of a few of its header.
    for at in (0..batch.len()).step_by(7) {
        let mut changed = batch.clone();
        changed[at] ^= 0x10;
        let sent = place.client.send_binary_request(101, body(&changed, 2)).await;
        if let Err(error) = sent {
            let number = error.as_code();
            let known = matches!(number, 3 | 4 | 4009 | 4017 | 4022 | 4024..=4039 | 4101);
            assert!(known, "byte {at}: {number}");
        } else {
            // The server stamps some fields itself and what a client put there means nothing.
            let last = place.poll(0, PollingStrategy::last(), 2).await.expect("answered");
            assert_eq!(crate::support::texts(&last), ["first", "second"], "byte {at}");
        }
    }
    for count in [0, 1, 3, u32::MAX] {
        let sent = place.client.send_binary_request(101, body(&batch, count)).await;
        assert!(sent.is_err(), "{count} messages announced");
    }
    for cut in [0, 1, 100, 255, batch.len() - 1] {
        let sent = place.client.send_binary_request(101, body(&batch[..cut], 2)).await;
        assert!(sent.is_err(), "cut at {cut}");
    }
    let all = place.poll(0, PollingStrategy::first(), 1_000).await.expect("answered");
    for (index, text) in crate::support::texts(&all).iter().enumerate() {
        assert_eq!(text, ["first", "second"][index % 2]);
    }
    let to = Partitioning::partition_id(0);
    place
        .client
        .send_messages(&place.stream, &name("events"), &to, &mut [message("undisturbed")])
        .await
        .expect("the connection goes on");
}
