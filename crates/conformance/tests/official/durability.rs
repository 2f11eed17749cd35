//! What was confirmed survives: kill -9, clean stop, another number of shards.

use crate::support::{Place, name, root};
use borzoi_conformance::{Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rounds of kill -9 under load.
const KILL_ROUNDS: u32 = 20;
const PRODUCERS: u32 = 4;

/// Everything one producer was told: offset and text.
type Confirmed = Vec<(u64, String)>;

async fn produce(
    address: String,
    topic: Identifier,
    partition: u32,
    round: u32,
    stop: Arc<AtomicBool>,
) -> Confirmed {
    let mut confirmed = Confirmed::new();
    let client = root(&address).await;
    let stream = name("kills");
    let mut index = 0;
    while !stop.load(Ordering::Relaxed) {
        let text = format!("{round}:{partition}:{index}");
        let sent = tokio::time::timeout(
            Duration::from_secs(2),
            client.send_messages(
                &stream,
                &topic,
                &Partitioning::partition_id(partition),
                &mut [crate::support::message(&text)],
            ),
        )
        .await;
        let Ok(Ok(sent)) = sent else { break };
        confirmed.push((sent.confirmations[0].base_offset, text));
        index += 1;
    }
    confirmed
}

async fn read_all(client: &IggyClient, topic: &Identifier, partition: u32) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    loop {
        let next = all.last().map_or(0, |(offset, _): &(u64, String)| offset + 1);
        let polled = client
            .poll_messages(
                &name("kills"),
                topic,
                Some(partition),
                &Consumer::default(),
                &PollingStrategy::offset(next),
                10_000,
                false,
            )
            .await
            .expect("the poll is answered");
        if polled.messages.is_empty() {
            return all;
        }
        for message in &polled.messages {
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            all.push((message.header.offset, text));
        }
    }
}

async fn verify(client: &IggyClient, topic: &Identifier, partition: u32, confirmed: &Confirmed) {
    let stored = read_all(client, topic, partition).await;
    assert!(stored.windows(2).all(|pair| pair[0].0 < pair[1].0), "offsets rise");
    for (offset, text) in confirmed {
        let found = stored.binary_search_by_key(offset, |(offset, _)| *offset);
        let found = found.unwrap_or_else(|_| panic!("confirmed {text} at {offset} is lost"));
        assert_eq!(&stored[found].1, text, "another message at offset {offset}");
    }
    let mut texts: Vec<&String> = stored.iter().map(|(_, text)| text).collect();
    texts.sort_unstable();
    assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "a message is stored twice");
}

async fn create(client: &IggyClient, title: &str, durability: Durability) {
    let options = TopicCreateOptions {
        partitions_count: Some(PRODUCERS),
        durability,
        ..TopicCreateOptions::default()
    };
    client.create_topic(&name("kills"), title, &options).await.expect("created");
}

async fn kill_rounds(title: &str, durability: Durability) {
    let (_folder, data) = data_directory();
    let topic = name(title);
    let mut confirmed: Vec<Confirmed> = vec![Confirmed::new(); PRODUCERS as usize];
    for round in 0..KILL_ROUNDS {
        let server = Server::start(&data, &ServerOptions::default());
        let client = root(server.address()).await;
        if round == 0 {
            client.create_stream("kills").await.expect("created");
            create(&client, title, durability).await;
        }
        for partition in 0..PRODUCERS {
            verify(&client, &topic, partition, &confirmed[partition as usize]).await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let mut producers = Vec::new();
        for partition in 0..PRODUCERS {
            let address = server.address().to_owned();
            let produced = produce(address, topic.clone(), partition, round, Arc::clone(&stop));
            producers.push(tokio::spawn(produced));
        }
        tokio::time::sleep(Duration::from_millis(150 + u64::from(round) * 13)).await;
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for (partition, producer) in producers.into_iter().enumerate() {
            confirmed[partition].extend(producer.await.expect("the producer ends"));
        }
    }
    let total: usize = confirmed.iter().map(Vec::len).sum();
    println!("{title}: {total} messages confirmed over {KILL_ROUNDS} rounds of kill -9");
    assert!(total > KILL_ROUNDS as usize, "the rounds confirmed almost nothing: {total}");
    let server = Server::start(&data, &ServerOptions::default());
    let client = root(server.address()).await;
    for partition in 0..PRODUCERS {
        verify(&client, &topic, partition, &confirmed[partition as usize]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_rounds_of_kill_nine_lose_nothing_confirmed_at_persisted() {
    kill_rounds("persisted", Durability::Persisted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_rounds_of_kill_nine_lose_nothing_confirmed_at_replicated() {
    kill_rounds("replicated", Durability::Replicated).await;
}

#[tokio::test]
async fn a_clean_stop_and_a_start_keep_messages_offsets_and_numbers() {
    let (_folder, data) = data_directory();
    let server = Server::start(&data, &ServerOptions::default());
    let place = Place::at(server.address(), 2, Durability::Replicated).await;
    place.fill(0, 100).await;
    let consumer = Consumer::new(crate::support::number(3));
    place
        .client
        .store_consumer_offset(&consumer, &place.stream, &place.topic, Some(0), 41)
        .await
        .expect("stored");
    let stream = place.client.get_stream(&place.stream).await.expect("read").expect("there");
    let begun = std::time::Instant::now();
    let status = server.stop().expect("the server stops when asked");
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let server = Server::start(&data, &ServerOptions::default());
    let client = root(server.address()).await;
    let again = client.get_stream(&place.stream).await.expect("read").expect("still there");
    assert_eq!((again.id, again.messages_count), (stream.id, 100));
    let stored = client
        .get_consumer_offset(&consumer, &place.stream, &place.topic, Some(0))
        .await
        .expect("answered")
        .expect("still stored");
    assert_eq!((stored.stored_offset, stored.current_offset), (41, 99));
    let place = Place { client, ..place };
    let sent = place.send(0, &["after the stop"]).await;
    assert_eq!(sent.confirmations[0].base_offset, 100, "a clean stop leaves no hole");
}

#[tokio::test]
async fn restarts_with_another_number_of_shards_keep_everything() {
    let (_folder, data) = data_directory();
    let mut expected = 0;
    let mut place: Option<Place> = None;
    for shards in ["1", "2", "1", "2"] {
        let options = ServerOptions::default().with("BORZOI_NODE_SHARDS", shards);
        let server = Server::start(&data, &options);
        let here = match place.take() {
            None => Place::at(server.address(), 8, Durability::Persisted).await,
            Some(before) => Place { client: root(server.address()).await, ..before },
        };
        for partition in 0..8 {
            assert_eq!(
                here.offsets(partition, PollingStrategy::first(), 1_000).await.len(),
                expected
            );
            here.fill(partition, 10).await;
        }
        expected += 10;
        place = Some(here);
        server.kill();
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused_by_name() {
    let (_folder, data) = data_directory();
    let server = Server::start(&data, &ServerOptions::default());
    let second = Server::try_start(&data, &ServerOptions::default());
    let text = second.expect_err("one directory serves one process");
    assert!(text.contains(&*data.to_string_lossy()), "the message names the directory: {text}");
    root(server.address()).await.ping().await.expect("the first server is undisturbed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_larger_than_the_journal_is_answered_to_the_end() {
    // Lanes that met a full journal were not looked at again when a checkpoint had made room, so
    // their producers waited for ever. Twice the journal's size from eight lanes at once meets it.
    let (_folder, data) = data_directory();
    let options = ServerOptions::default().with("BORZOI_JOURNAL_FILES_MAX", "2");
    let server = Server::start(&data, &options);
    let place = Place::at(server.address(), 8, Durability::Persisted).await;
    let payload = bytes::Bytes::from(vec![7_u8; 1_000_000]);
    let mut producers = Vec::new();
    for partition in 0..8 {
        let client = root(server.address()).await;
        let (stream, topic, payload) = (place.stream.clone(), place.topic.clone(), payload.clone());
        producers.push(tokio::spawn(async move {
            for _ in 0..60 {
                let message =
                    IggyMessage::builder().payload(payload.clone()).build().expect("valid");
                let partitioning = Partitioning::partition_id(partition);
                client
                    .send_messages(&stream, &topic, &partitioning, &mut [message])
                    .await
                    .expect("confirmed");
            }
        }));
    }
    for producer in producers {
        let ended = tokio::time::timeout(Duration::from_secs(120), producer).await;
        ended.expect("no producer is left waiting").expect("the producer ends");
    }
    for partition in 0..8 {
        let last = place.offsets(partition, PollingStrategy::last(), 1).await;
        assert_eq!(last, [59]);
    }
}
