//! `borzoi bench`: load from producers, consumers or both, and what came of it.
//!
//! Each actor has its own connection and keeps one request in flight. Batches are encoded once,
//! before the clock starts: the bench measures the server, not the encoder. Hidden modes measure
//! the two bounds of any result: `ceiling` is a server that verifies and confirms and stores
//! nothing, `device` is the disk's own sequential write rate.

mod ceiling;
mod device;
mod load;
mod report;

use crate::Connect;
use borzoi_client::{Client, Durability, ErrorCode};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Producers only.
    Produce(Load),
    /// Consumers only: reads what `produce` with the same topic has left.
    Consume(Load),
    /// Producers and consumers at once.
    Both(Load),
    /// A server that verifies and confirms and stores nothing: the upper bound of the client.
    #[command(hide = true)]
    Ceiling {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:8099")]
        listen: String,
    },
    /// The direct sequential write rate of the disk under a folder.
    #[command(hide = true)]
    Device {
        /// The folder.
        #[arg(long, default_value = ".")]
        folder: PathBuf,
        /// How much to write, in MiB.
        #[arg(long, default_value_t = 1024)]
        mebibytes: u64,
    },
}

/// Durability level of the topic that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Confirmed when flushed.
    Persisted,
    /// Confirmed when handed to the kernel.
    Replicated,
}

impl From<Level> for Durability {
    fn from(level: Level) -> Self {
        match level {
            Level::Persisted => Self::Persisted,
            Level::Replicated => Self::Replicated,
        }
    }
}

/// Size and shape of the load.
#[derive(Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub connect: Connect,
    /// Producers side by side.
    #[arg(long, default_value_t = 8)]
    pub producers: u32,
    /// Consumers side by side.
    #[arg(long, default_value_t = 8)]
    pub consumers: u32,
    /// Partitions of the topic; as many as actors when not given.
    #[arg(long)]
    pub partitions: Option<u32>,
    /// Payload bytes of a message.
    #[arg(long, default_value_t = 1000)]
    pub message_bytes: usize,
    /// Messages of one request.
    #[arg(long, default_value_t = 1000)]
    pub batch: u32,
    /// Messages in all; without it the run ends by time.
    #[arg(long)]
    pub messages: Option<u64>,
    /// Seconds to run when no number of messages is given.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Messages per second of all producers together; unlimited when not given.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Durability level of the topic.
    #[arg(long, value_enum, default_value_t = Level::Persisted)]
    pub level: Level,
    /// Stream to use.
    #[arg(long, default_value = "bench")]
    pub stream: String,
    /// Topic to use.
    #[arg(long, default_value = "load")]
    pub topic: String,
    /// Keep stream and topic, for `consume` later.
    #[arg(long)]
    pub keep: bool,
    /// One line of JSON instead of the table.
    #[arg(long)]
    pub json: bool,
}

impl Load {
    fn partitions(&self, producing: bool) -> u32 {
        let actors = if producing { self.producers } else { self.consumers };
        self.partitions.unwrap_or(actors).max(1)
    }
}

/// Runs what was asked for.
///
/// # Errors
/// When the server cannot be reached or refuses the load.
pub async fn run(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Produce(load) => run_load(load, true, false).await,
        Bench::Consume(load) => run_load(load, false, true).await,
        Bench::Both(load) => run_load(load, true, true).await,
        Bench::Ceiling { listen } => Ok(ceiling::serve(&listen).await?),
        Bench::Device { folder, mebibytes } => {
            let rate = device::sequential_write_rate(&folder, mebibytes * 1024 * 1024)?;
            crate::print(&format!("direct sequential write: {:.0} MB/s", rate / 1e6));
            Ok(())
        }
    }
}

async fn prepare(load: &Load, producing: bool) -> anyhow::Result<()> {
    let mut client = Client::connect(load.connect.options()).await?;
    match client.create_stream(&load.stream).await {
        Err(error) if error.code() == Some(ErrorCode::StreamNameAlreadyExists) => {}
        other => other?,
    }
    if producing && !load.keep && client.topic(&load.stream, &load.topic).await?.is_some() {
        client.delete_topic(&load.stream, &load.topic).await?;
    }
    let (partitions, level) = (load.partitions(producing), load.level.into());
    match client.create_topic(&load.stream, &load.topic, partitions, Some(level)).await {
        Err(error) if error.code() == Some(ErrorCode::TopicNameAlreadyExists) => {}
        other => other?,
    }
    Ok(())
}

async fn run_load(load: Load, producing: bool, consuming: bool) -> anyhow::Result<()> {
    anyhow::ensure!(load.batch > 0, "--batch must be at least 1");
    anyhow::ensure!(load.message_bytes > 0, "--message-bytes must be at least 1");
    anyhow::ensure!(load.rate.is_none_or(|rate| rate > 0.0), "--rate must be above 0");
    prepare(&load, producing).await?;
    let plan = load::Plan::new(&load, producing)?;
    let begun = Instant::now();
    let producers = producing.then(|| load::start_producers(&plan));
    let consumers = consuming.then(|| load::start_consumers(&plan, producing));
    let mut rows = Vec::new();
    let (mut produced, mut consumed) = (report::Tally::new(), report::Tally::new());
    let (mut produce_time, mut consume_time) = (Duration::ZERO, Duration::ZERO);
    if let Some(producers) = producers {
        produced = load::finish(producers).await?;
        produce_time = begun.elapsed();
        plan.producers_are_done();
    }
    if let Some(consumers) = consumers {
        consumed = load::finish(consumers).await?;
        consume_time = begun.elapsed();
    }
    if producing {
        let (actors, elapsed) = (load.producers, produce_time);
        rows.push(report::Row { name: "producers", actors, tally: &produced, elapsed });
    }
    if consuming {
        let (actors, elapsed) = (load.consumers, consume_time);
        rows.push(report::Row { name: "consumers", actors, tally: &consumed, elapsed });
    }
    let paced = load.rate.is_some();
    let text = if load.json { report::json(&rows, paced) } else { report::table(&rows, paced) };
    crate::print(&text);
    if !load.keep {
        let mut client = Client::connect(load.connect.options()).await?;
        client.delete_topic(&load.stream, &load.topic).await?;
    }
    Ok(())
}
