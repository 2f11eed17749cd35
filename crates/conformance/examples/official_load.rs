//! Load from the official client: the counterpart of `borzoi bench` for `benchmarks/run`.
//!
//! Usage: `official_load ADDRESS PASSWORD produce|consume ACTORS BATCH MESSAGE_BYTES SECONDS
//! LEVEL`. Prints one line of JSON.
#![allow(clippy::print_stdout)]

use bytes::Bytes;
use iggy::prelude::*;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const STREAM: &str = "official";
const TOPIC: &str = "load";

#[derive(Clone, Debug)]
struct Load {
    address: String,
    password: String,
    consume: bool,
    actors: u32,
    batch: u32,
    message_bytes: usize,
    seconds: f64,
    level: Durability,
}

fn load() -> Option<Load> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, password, what, actors, batch, message_bytes, seconds, level] =
        arguments.as_slice()
    else {
        return None;
    };
    let level = match level.as_str() {
        "persisted" => Durability::Persisted,
        _ => Durability::Replicated,
    };
    Some(Load {
        address: address.clone(),
        password: password.clone(),
        consume: what == "consume",
        actors: actors.parse().ok()?,
        batch: batch.parse().ok()?,
        message_bytes: message_bytes.parse().ok()?,
        seconds: seconds.parse().ok()?,
        level,
    })
}

async fn client(load: &Load) -> Result<IggyClient, Failure> {
    let client =
        IggyClient::builder().with_tcp().with_server_address(load.address.clone()).build()?;
    client.connect().await?;
    client.login_user("iggy", &load.password).await?;
    Ok(client)
}

async fn produce(load: Load, partition: u32) -> Result<(u64, Vec<u64>), Failure> {
    let client = client(&load).await?;
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(TOPIC)?);
    let payload = Bytes::from(vec![0x5a; load.message_bytes]);
    let mut latencies = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(load.seconds) {
        let mut messages = Vec::with_capacity(load.batch as usize);
        for _ in 0..load.batch {
            messages.push(IggyMessage::builder().payload(payload.clone()).build()?);
        }
        let sent = Instant::now();
        client
            .send_messages(&stream, &topic, &Partitioning::partition_id(partition), &mut messages)
            .await?;
        latencies.push(u64::try_from(sent.elapsed().as_micros())?);
    }
    Ok((latencies.len() as u64 * u64::from(load.batch), latencies))
}

async fn consume(load: Load, partition: u32) -> Result<(u64, Vec<u64>), Failure> {
    let client = client(&load).await?;
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(TOPIC)?);
    let consumer = Consumer::new(Identifier::numeric(partition + 1)?);
    let (mut next, mut read, mut latencies) = (0, 0, Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs_f64(load.seconds) {
        let asked = Instant::now();
        let strategy = PollingStrategy::offset(next);
        let polled = client
            .poll_messages(
                &stream,
                &topic,
                Some(partition),
                &consumer,
                &strategy,
                load.batch,
                false,
            )
            .await?;
        if polled.messages.is_empty() {
            next = 0;
            continue;
        }
        next += u64::from(polled.count);
        read += u64::from(polled.count);
        latencies.push(u64::try_from(asked.elapsed().as_micros())?);
    }
    Ok((read, latencies))
}

async fn prepare(load: &Load) -> Result<(), Failure> {
    let client = client(load).await?;
    if client.get_stream(&Identifier::named(STREAM)?).await?.is_none() {
        client.create_stream(STREAM).await?;
    }
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(TOPIC)?);
    if !load.consume && client.get_topic(&stream, &topic).await?.is_some() {
        // The ceiling server always has a topic and forgets nothing when told to.
        client.delete_topic(&stream, &topic).await?;
    }
    let options = TopicCreateOptions {
        partitions_count: Some(load.actors),
        durability: load.level,
        ..TopicCreateOptions::default()
    };
    match client.create_topic(&stream, TOPIC, &options).await {
        Err(IggyError::TopicNameAlreadyExists(..)) => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let load = load().ok_or(
        "usage: official_load ADDRESS PASSWORD produce|consume ACTORS BATCH BYTES SECONDS LEVEL",
    )?;
    prepare(&load).await?;
    let begun = Instant::now();
    let mut actors = Vec::new();
    for partition in 0..load.actors {
        let load = load.clone();
        actors.push(tokio::spawn(async move {
            if load.consume {
                consume(load, partition).await
            } else {
                produce(load, partition).await
            }
        }));
    }
    let (mut messages, mut latencies) = (0, Vec::new());
    for actor in actors {
        let (count, mut some) = actor.await??;
        messages += count;
        latencies.append(&mut some);
    }
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = (latencies.len() as f64 * share) as usize;
        latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    println!(
        "{{\"messages_per_second\":{:.1},\"bytes_per_second\":{:.1},\"p50\":{},\"p99\":{}}}",
        messages as f64 / seconds,
        messages as f64 * load.message_bytes as f64 / seconds,
        at(0.5),
        at(0.99)
    );
    Ok(())
}
