//! Required behaviours on the real binary, by their numbers (B9 is in `deleting`).

use crate::support::{Place, message, name, root, unique};
use borzoi_conformance::{Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

/// Connections that send the moment a topic exists.
const CONNECTIONS: usize = 50;
/// What published clients wait for an answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

/// Topics to create; `CONFORMANCE_FRESH_TOPICS=1000` for the whole run.
fn fresh_topics() -> usize {
    let count = std::env::var("CONFORMANCE_FRESH_TOPICS").ok();
    count.and_then(|text| text.parse().ok()).unwrap_or(120)
}

/// Answers that a request to a topic that was just created may get beside success.
fn is_retriable(error: &IggyError) -> bool {
    matches!(error.as_code(), 57 | 58)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_a_topic_takes_messages_of_fifty_connections_in_the_microsecond_after_its_creation() {
    let (_folder, data) = data_directory();
    let options = ServerOptions::default().with("BORZOI_NODE_SHARDS", "2");
    let server = Server::start(&data, &options);
    let creator = root(server.address()).await;
    let stream = name("fresh");
    creator.create_stream("fresh").await.expect("created");
    // Every topic is announced to all senders; each sends one message to it at once.
    let (announce, _) = broadcast::channel::<usize>(4_096);
    let confirmed = Arc::new(AtomicU64::new(0));
    let retried = Arc::new(AtomicU64::new(0));
    let mut senders = Vec::new();
    for connection in 0..CONNECTIONS {
        let client = root(server.address()).await;
        let (mut topics, stream) = (announce.subscribe(), stream.clone());
        let (confirmed, retried) = (Arc::clone(&confirmed), Arc::clone(&retried));
        senders.push(tokio::spawn(async move {
            while let Ok(topic) = topics.recv().await {
                // Two connections out of fifty for each topic, in turn, and all for some.
                if topic % 20 != 0 && connection % 25 != topic % 25 {
                    continue;
                }
                let text = format!("{connection}");
                let to = Partitioning::partition_id(u32::try_from(connection % 3).expect("small"));
                let at = name(&format!("t{topic}"));
                loop {
                    let begun = Instant::now();
                    let sent = client.send_messages(&stream, &at, &to, &mut [message(&text)]).await;
                    assert!(begun.elapsed() < CLIENT_PATIENCE, "{:?}", begun.elapsed());
                    match sent {
                        Ok(_) => break,
                        Err(error) if is_retriable(&error) => {
                            retried.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("t{topic} from {connection}: {error:?}"),
                    }
                }
                confirmed.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let options = TopicCreateOptions { partitions_count: Some(3), ..TopicCreateOptions::default() };
    let topics = fresh_topics();
    for topic in 0..topics {
        let created = creator.create_topic(&stream, &format!("t{topic}"), &options).await;
        created.expect("created");
        announce.send(topic).expect("everybody listens");
    }
    drop(announce);
    for sender in senders {
        sender.await.expect("every send was confirmed");
    }
    let confirmed = confirmed.load(Ordering::Relaxed);
    println!(
        "{topics} topics, {confirmed} messages confirmed, {} repeated",
        retried.load(Ordering::Relaxed)
    );
    let read = creator.get_stream(&stream).await.expect("read").expect("there");
    assert_eq!(read.messages_count, confirmed, "each once");
    assert_eq!(read.topics_count as usize, topics);
}

#[tokio::test]
async fn b1_polls_and_offsets_of_a_topic_just_created_are_answered_and_never_left_waiting() {
    let place = Place::new(1).await;
    let other = root(place.address()).await;
    let consumer = Consumer::new(crate::support::number(1));
    let options = TopicCreateOptions { partitions_count: Some(8), ..TopicCreateOptions::default() };
    for _ in 0..20 {
        let title = unique("fresh");
        let topic = name(&title);
        let (stream, first) = (&place.stream, PollingStrategy::first());
        place.client.create_topic(stream, &title, &options).await.expect("created");
        for partition in 0..8 {
            let polled = other
                .poll_messages(stream, &topic, Some(partition), &consumer, &first, 1, false)
                .await;
            match polled {
                Ok(polled) => assert!(polled.messages.is_empty()),
                Err(error) => assert!(is_retriable(&error), "{error:?}"),
            }
            let read = other.get_consumer_offset(&consumer, stream, &topic, Some(partition)).await;
            match read {
                Ok(read) => assert!(read.is_none()),
                Err(error) => assert!(is_retriable(&error), "{error:?}"),
            }
            let stored =
                other.store_consumer_offset(&consumer, stream, &topic, Some(partition), 0).await;
            let code = stored.expect_err("there is no message yet").as_code();
            assert!(matches!(code, 57 | 58 | 4100), "{code}");
        }
    }
}

#[tokio::test]
async fn a3_a_lease_outside_its_range_refuses_to_start_naming_key_and_range() {
    for (lease, starts) in [("0", false), ("16777217", false), ("-1", false), ("many", false)] {
        let (_folder, data) = data_directory();
        let options =
            ServerOptions::default().with("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", lease);
        match Server::try_start(&data, &options) {
            Ok(_) => assert!(starts, "{lease} is outside of the range"),
            Err(text) => {
                for part in ["partition.offset_reservation_lease", lease, "1", "16777216"] {
                    let plain = text.replace(['_', ','], "");
                    let wanted = part.replace('_', "");
                    assert!(plain.contains(&wanted), "{part} is not in: {text}");
                }
            }
        }
    }
    for lease in ["1", "16777216"] {
        let (_folder, data) = data_directory();
        let options =
            ServerOptions::default().with("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", lease);
        let server = Server::start(&data, &options);
        let place = Place::at(server.address(), 1, Durability::Replicated).await;
        for offset in 0..5 {
            assert_eq!(place.send(0, &["m"]).await.confirmations[0].base_offset, offset);
        }
    }
}

#[tokio::test]
async fn a5_no_offset_confirmed_at_level_replicated_is_confirmed_again_after_kill_nine() {
    let (_folder, data) = data_directory();
    let options = ServerOptions::default().with("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", "100");
    let mut place: Option<Place> = None;
    let mut told: Vec<(u64, String)> = Vec::new();
    for round in 0..6 {
        let server = Server::start(&data, &options);
        let here = match place.take() {
            None => Place::at(server.address(), 1, Durability::Replicated).await,
            Some(before) => Place { client: root(server.address()).await, ..before },
        };
        let polled = here.poll(0, PollingStrategy::first(), 10_000).await.expect("answered");
        let texts = crate::support::texts(&polled);
        let offsets = polled.messages.iter().map(|message| message.header.offset);
        let held: Vec<(u64, String)> = offsets.zip(texts).collect();
        assert_eq!(held, told, "kill -9 takes nothing back");
        for index in 0..10 {
            let text = format!("{round}.{index}");
            let offset = here.send(0, &[&text]).await.confirmations[0].base_offset;
            assert!(told.last().is_none_or(|(last, _)| offset > *last), "{offset} again");
            told.push((offset, text));
        }
        place = Some(here);
        server.kill();
    }
}

#[tokio::test]
async fn a8_a_clean_stop_and_start_leave_no_hole_at_level_replicated() {
    let (_folder, data) = data_directory();
    let mut place: Option<Place> = None;
    for round in 0..3_u64 {
        let server = Server::start(&data, &ServerOptions::default());
        let here = match place.take() {
            None => Place::at(server.address(), 1, Durability::Replicated).await,
            Some(before) => Place { client: root(server.address()).await, ..before },
        };
        for index in 0..5 {
            let offset = here.send(0, &["m"]).await.confirmations[0].base_offset;
            assert_eq!(offset, round * 5 + index);
        }
        place = Some(here);
        assert!(server.stop().expect("it stops").success());
    }
}
