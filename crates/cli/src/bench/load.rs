//! Producers and consumers of a bench run.

use super::Load;
use super::report::Tally;
use borzoi_client::{Client, ClientOptions, Error, Offset, Target, batch_of};
use borzoi_wire::PollingStrategy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pause of a consumer that found nothing.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// What all actors share.
#[derive(Debug)]
pub struct Plan {
    options: ClientOptions,
    target: Target,
    batch: Arc<Vec<u8>>,
    batch_messages: u32,
    payload_bytes: u64,
    partitions: u32,
    producers: u32,
    consumers: u32,
    /// Messages that producers have still to send; `u64::MAX` when the run ends by time.
    left: Arc<AtomicU64>,
    ends: Option<Duration>,
    /// Time between the requests of one producer.
    pace: Option<Duration>,
    producing_done: Arc<AtomicBool>,
}

impl Plan {
    /// Encodes the batch that every request of a producer carries.
    ///
    /// # Errors
    /// When the batch would break a limit.
    pub fn new(load: &Load, producing: bool) -> Result<Self, Error> {
        let payload = vec![0x5a_u8; load.message_bytes];
        let payloads: Vec<&[u8]> = (0..load.batch).map(|_| payload.as_slice()).collect();
        let per_producer = |rate: f64| {
            Duration::from_secs_f64(f64::from(load.batch) * f64::from(load.producers) / rate)
        };
        Ok(Self {
            options: load.connect.options(),
            target: Target::new(&load.stream, &load.topic)?,
            batch: Arc::new(batch_of(&payloads)?),
            batch_messages: load.batch,
            payload_bytes: load.message_bytes as u64,
            partitions: load.partitions(producing),
            producers: load.producers,
            consumers: load.consumers,
            left: Arc::new(AtomicU64::new(load.messages.unwrap_or(u64::MAX))),
            ends: load.messages.is_none().then(|| Duration::from_secs_f64(load.seconds)),
            pace: load.rate.map(per_producer),
            producing_done: Arc::new(AtomicBool::new(!producing)),
        })
    }

    /// Tells the consumers that what they find missing will not come.
    pub fn producers_are_done(&self) {
        self.producing_done.store(true, Ordering::Release);
    }
}

type Actor = JoinHandle<Result<Tally, Error>>;

/// Starts the producers.
pub fn start_producers(plan: &Plan) -> Vec<Actor> {
    (0..plan.producers)
        .map(|index| {
            let producer = Producer {
                options: plan.options.clone(),
                target: plan.target.clone(),
                batch: Arc::clone(&plan.batch),
                messages: u64::from(plan.batch_messages),
                bytes: u64::from(plan.batch_messages) * plan.payload_bytes,
                left: Arc::clone(&plan.left),
                ends: plan.ends,
                pace: plan.pace,
                first_partition: index,
                step: plan.producers,
                partitions: plan.partitions,
            };
            tokio::spawn(producer.run())
        })
        .collect()
}

#[derive(Debug)]
struct Producer {
    options: ClientOptions,
    target: Target,
    batch: Arc<Vec<u8>>,
    messages: u64,
    bytes: u64,
    left: Arc<AtomicU64>,
    ends: Option<Duration>,
    pace: Option<Duration>,
    first_partition: u32,
    step: u32,
    partitions: u32,
}

impl Producer {
    async fn run(self) -> Result<Tally, Error> {
        let mut client = Client::connect(self.options.clone()).await?;
        let mut tally = Tally::new();
        let begun = Instant::now();
        let mut due = begun;
        let mut partition = self.first_partition % self.partitions;
        while self.ends.is_none_or(|ends| begun.elapsed() < ends) && self.take() {
            if let Some(pace) = self.pace {
                let now = Instant::now();
                if due > now {
                    tokio::time::sleep(due - now).await;
                }
                let sent = due;
                due += pace;
                self.send(&mut client, partition).await?;
                tally.record(self.messages, self.bytes, sent.elapsed());
            } else {
                let sent = Instant::now();
                self.send(&mut client, partition).await?;
                tally.record(self.messages, self.bytes, sent.elapsed());
            }
            partition = (partition + self.step) % self.partitions;
            if self.step >= self.partitions {
                partition = self.first_partition % self.partitions;
            }
        }
        client.logout().await?;
        Ok(tally)
    }

    async fn send(&self, client: &mut Client, partition: u32) -> Result<(), Error> {
        client.send_batch(&self.target.partition(partition), &self.batch).await.map(|_| ())
    }

    /// Takes one batch from what is left to send.
    fn take(&self) -> bool {
        let take = |left: u64| match left {
            0 => None,
            u64::MAX => Some(u64::MAX),
            left => Some(left.saturating_sub(self.messages)),
        };
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Starts the consumers; while producers run they wait for more, else they end with the data.
pub fn start_consumers(plan: &Plan, producing: bool) -> Vec<Actor> {
    (0..plan.consumers)
        .map(|index| {
            let consumer = Consumer {
                options: plan.options.clone(),
                target: plan.target.clone(),
                count: plan.batch_messages,
                payload_bytes: plan.payload_bytes,
                producing_done: Arc::clone(&plan.producing_done),
                // Reading alone starts over at the end, so that a run by time has enough to read.
                ends: if producing { None } else { plan.ends },
                partitions: (index..plan.partitions)
                    .step_by(plan.consumers.max(1) as usize)
                    .map(|partition| (partition, Offset(0)))
                    .collect(),
            };
            tokio::spawn(consumer.run())
        })
        .collect()
}

#[derive(Debug)]
struct Consumer {
    options: ClientOptions,
    target: Target,
    count: u32,
    payload_bytes: u64,
    producing_done: Arc<AtomicBool>,
    ends: Option<Duration>,
    partitions: Vec<(u32, Offset)>,
}

impl Consumer {
    async fn run(mut self) -> Result<Tally, Error> {
        let mut client = Client::connect(self.options.clone()).await?;
        let mut tally = Tally::new();
        let begun = Instant::now();
        loop {
            let done = self.producing_done.load(Ordering::Acquire);
            let mut found = false;
            for index in 0..self.partitions.len() {
                found |= self.poll(&mut client, index, &mut tally).await?;
            }
            let over = self.ends.is_some_and(|ends| begun.elapsed() >= ends);
            if over || (!found && done && self.ends.is_none()) || self.partitions.is_empty() {
                client.logout().await?;
                return Ok(tally);
            }
            if found {
                continue;
            }
            if self.ends.is_some() {
                for place in &mut self.partitions {
                    place.1 = Offset(0);
                }
            }
            tokio::time::sleep(IDLE_PAUSE).await;
        }
    }

    async fn poll(
        &mut self,
        client: &mut Client,
        index: usize,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let (partition, next) = self.partitions[index];
        let asked = Instant::now();
        let polled = client
            .poll(
                &self.target.partition(partition),
                "bench",
                PollingStrategy::Offset(next),
                self.count,
                false,
            )
            .await?;
        let count = u64::from(polled.count);
        if count == 0 {
            return Ok(false);
        }
        tally.record(count, count * self.payload_bytes, asked.elapsed());
        self.partitions[index].1 = Offset(next.0 + count);
        Ok(true)
    }
}

/// Waits for all actors and adds up what they did.
///
/// # Errors
/// The first error of an actor.
pub async fn finish(actors: Vec<Actor>) -> anyhow::Result<Tally> {
    let mut all = Tally::new();
    for actor in actors {
        all.add(&actor.await??);
    }
    Ok(all)
}
