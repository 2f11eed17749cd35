//! Requests to what is being deleted, and topics that come back under their producers.

use crate::support::{Place, message, name, root};
use iggy::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What published clients wait for an answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

/// How long topics are deleted and created again; `CONFORMANCE_RECREATE_SECONDS=60` for the whole
/// run.
fn recreate_span() -> Duration {
    let seconds = std::env::var("CONFORMANCE_RECREATE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(6))
}

/// "Not now" and "not there": the answers that a request to something half deleted may get.
fn is_expected(error: &IggyError) -> bool {
    matches!(error.as_code(), 20 | 57 | 58 | 1009 | 2010 | 3007 | 5000 | 5009)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_to_a_topic_that_is_being_deleted_is_answered() {
    let place = Arc::new(Place::new(4).await);
    for partition in 0..4 {
        place.fill(partition, 10).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..4_u32 {
        let client = root(place.address()).await;
        let (place, stop) = (Arc::clone(&place), Arc::clone(&stop));
        workers.push(tokio::spawn(async move {
            let (stream, topic) = (&place.stream, &place.topic);
            let consumer = Consumer::new(crate::support::number(worker));
            let (mut answers, mut refused) = (0_u32, 0_u32);
            while !stop.load(Ordering::Relaxed) || answers < 20 {
                let to = Partitioning::partition_id(worker);
                let begun = Instant::now();
                let outcomes = [
                    client.send_messages(stream, topic, &to, &mut [message("m")]).await.map(drop),
                    place.poll(worker, PollingStrategy::first(), 5).await.map(drop),
                    client.store_consumer_offset(&consumer, stream, topic, Some(worker), 0).await,
                    client.get_topic(stream, topic).await.map(drop),
                    client
                        .get_consumer_offset(&consumer, stream, topic, Some(worker))
                        .await
                        .map(drop),
                ];
                assert!(begun.elapsed() < CLIENT_PATIENCE, "{:?}", begun.elapsed());
                for outcome in outcomes {
                    answers += 1;
                    if let Err(error) = outcome {
                        refused += 1;
                        assert!(is_expected(&error), "{error:?}");
                    }
                }
            }
            refused
        }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    place.client.delete_topic(&place.stream, &place.topic).await.expect("deleted");
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        let refused = worker.await.expect("the worker ends");
        assert!(refused > 0, "it met the deleted topic");
    }
}

/// Confirmed messages of one producer: text, offset, and which creates and deletes had been
/// answered before the send left and before its answer came.
#[derive(Debug)]
struct Confirmed {
    text: String,
    offset: u64,
    after: usize,
    before: usize,
    /// How many contents had begun to be read when the answer came.
    reads: usize,
}

struct Recreate {
    address: String,
    stream: Identifier,
    /// Twice the number of the incarnation while it exists; one more while it is being replaced.
    epoch: AtomicUsize,
    /// Contents that have begun to be read.
    reads: AtomicUsize,
    stop: AtomicBool,
    pause: AtomicBool,
}

async fn produce(shared: Arc<Recreate>, number: usize) -> (Vec<Confirmed>, u32) {
    let client = root(&shared.address).await;
    let (mut confirmed, mut refused, mut index) = (Vec::new(), 0, 0_u64);
    while !shared.stop.load(Ordering::Acquire) {
        if shared.pause.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let text = format!("{number}:{index}");
        index += 1;
        let after = shared.epoch.load(Ordering::Acquire);
        let begun = Instant::now();
        let to = Partitioning::partition_id(0);
        let sent =
            client.send_messages(&shared.stream, &name("t"), &to, &mut [message(&text)]).await;
        assert!(begun.elapsed() < CLIENT_PATIENCE, "answered after {:?}", begun.elapsed());
        match sent {
            Ok(sent) => {
                let offset = sent.confirmations[0].base_offset;
                let before = shared.epoch.load(Ordering::Acquire);
                let reads = shared.reads.load(Ordering::Acquire);
                confirmed.push(Confirmed { text, offset, after, before, reads });
            }
            Err(error) => {
                refused += 1;
                assert!(is_expected(&error), "{error:?}");
            }
        }
    }
    (confirmed, refused)
}

async fn content(client: &IggyClient, stream: &Identifier) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    loop {
        let next = all.last_key_value().map_or(0, |(offset, _)| offset + 1);
        let from = PollingStrategy::offset(next);
        let consumer = Consumer::default();
        let polled = client
            .poll_messages(stream, &name("t"), Some(0), &consumer, &from, 10_000, false)
            .await
            .expect("the poll is answered");
        if polled.messages.is_empty() {
            return all;
        }
        for (message, text) in polled.messages.iter().zip(crate::support::texts(&polled)) {
            all.insert(message.header.offset, text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_every_message_confirmed_under_a_recreated_topic_is_in_the_incarnation_that_took_it() {
    let place = Place::new(1).await;
    let options = TopicCreateOptions { partitions_count: Some(1), ..TopicCreateOptions::default() };
    let shared = Arc::new(Recreate {
        address: place.address().to_owned(),
        stream: place.stream.clone(),
        epoch: AtomicUsize::new(1),
        reads: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        pause: AtomicBool::new(false),
    });
    let producers: Vec<_> =
        (0..3).map(|number| tokio::spawn(produce(Arc::clone(&shared), number))).collect();
    let ends = Instant::now() + recreate_span();
    let mut contents: Vec<BTreeMap<u64, String>> = vec![BTreeMap::new()];
    while Instant::now() < ends {
        place.client.create_topic(&place.stream, "t", &options).await.expect("created");
        shared.epoch.fetch_add(1, Ordering::AcqRel);
        tokio::time::sleep(Duration::from_millis(30)).await;
        // Nothing is on its way while the content is read; the delete meets traffic again.
        shared.pause.store(true, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(60)).await;
        shared.reads.fetch_add(1, Ordering::AcqRel);
        contents.push(content(&place.client, &place.stream).await);
        shared.pause.store(false, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(10)).await;
        place.client.delete_topic(&place.stream, &name("t")).await.expect("deleted");
        shared.epoch.fetch_add(1, Ordering::AcqRel);
    }
    shared.stop.store(true, Ordering::Release);
    let mut all = Vec::new();
    let mut refused = 0;
    for producer in producers {
        let (confirmed, denied) = producer.await.expect("the producer ends");
        all.extend(confirmed);
        refused += denied;
    }
    verify(&all, &contents);
    println!(
        "{} incarnations, {} messages confirmed, {refused} sends refused",
        contents.len() - 1,
        all.len()
    );
    assert!(refused > 0, "producers met the topic while it was away");
}

fn verify(all: &[Confirmed], contents: &[BTreeMap<u64, String>]) {
    let mut place_of: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (incarnation, content) in contents.iter().enumerate() {
        for (offset, text) in content {
            let twice = place_of.insert(text, (incarnation, *offset));
            assert!(twice.is_none(), "{text} at {twice:?} and in {incarnation}");
        }
    }
    let mut exact = 0;
    for sent in all {
        // Incarnations that may have taken it: not deleted when it left, created when the answer
        // came.
        let possible = sent.after.div_ceil(2)..=sent.before.div_ceil(2);
        let certain = sent.after == sent.before && sent.after % 2 == 0;
        match place_of.get(sent.text.as_str()) {
            Some((incarnation, offset)) => {
                exact += 1;
                assert!(possible.contains(incarnation), "{sent:?} is in {incarnation}");
                assert_eq!(*offset, sent.offset, "{sent:?}");
            }
            // Confirmed by the only incarnation there was, before that was read.
            None if certain && sent.reads < sent.after / 2 => panic!("{sent:?} is lost"),
            // Confirmed after its incarnation was read: nobody else may hold that offset there.
            None if certain => {
                let held = contents.get(sent.after / 2).and_then(|held| held.get(&sent.offset));
                assert_eq!(held, None, "{sent:?}");
            }
            None => {}
        }
    }
    assert!(exact > 50, "only {exact} of {} were read back", all.len());
}
