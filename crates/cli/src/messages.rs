//! `borzoi send` and `borzoi poll`: messages as lines.

use crate::Connect;
use anyhow::Context as _;
use borzoi_client::{Client, Consumer, Durability, ErrorCode, Offset, Start, Target};
use clap::{Args, ValueEnum};
use std::io::{BufRead as _, Write as _};

/// Lines sent in one request at most.
const LINES_PER_REQUEST: u32 = 1_000;

/// What to send, and where.
#[derive(Debug, Args)]
pub struct Send {
    /// Stream, by name.
    stream: String,
    /// Topic, by name.
    topic: String,
    #[command(flatten)]
    connect: Connect,
    /// The partition; without it the server chooses.
    #[arg(long)]
    partition: Option<u32>,
    /// Make the stream and the topic when they do not exist.
    #[arg(long)]
    create: bool,
    /// Partitions of a topic that is made.
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// Durability level of a topic that is made; the server's default when not given.
    #[arg(long, value_enum)]
    level: Option<crate::bench::Level>,
}

/// What to read.
#[derive(Debug, Args)]
pub struct Poll {
    /// Stream, by name.
    stream: String,
    /// Topic, by name.
    topic: String,
    #[command(flatten)]
    connect: Connect,
    /// The partition.
    #[arg(long, default_value_t = 0)]
    partition: u32,
    /// Start at this offset instead of the first message.
    #[arg(long, conflicts_with = "stored")]
    offset: Option<u64>,
    /// Start after the offset stored for this consumer, and store it again at the end.
    #[arg(long)]
    stored: bool,
    /// Name of the consumer whose offset is used with `--stored`.
    #[arg(long, default_value = "borzoi-cli")]
    consumer: String,
    /// Stop after this many messages.
    #[arg(long)]
    count: Option<u64>,
    /// Wait for more at the end.
    #[arg(long)]
    follow: bool,
    /// What to print of a message.
    #[arg(long, value_enum, default_value_t = Format::Payload)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The payload.
    Payload,
    /// Offset, time in microseconds, payload, separated by tabs.
    Full,
}

async fn create(client: &mut Client, send: &Send) -> anyhow::Result<()> {
    match client.create_stream(&send.stream).await {
        Err(error) if error.code() == Some(ErrorCode::StreamNameAlreadyExists) => {}
        other => other?,
    }
    let level = send.level.map(Durability::from);
    match client.create_topic(&send.stream, &send.topic, send.partitions, level).await {
        Err(error) if error.code() == Some(ErrorCode::TopicNameAlreadyExists) => {}
        other => other?,
    }
    Ok(())
}

/// Sends the lines of standard input.
///
/// # Errors
/// When the server refuses or a line is empty.
pub async fn send(send: Send) -> anyhow::Result<()> {
    let mut client = Client::connect(send.connect.options()).await?;
    if send.create {
        create(&mut client, &send).await?;
    }
    let mut target = Target::new(&send.stream, &send.topic)?;
    if let Some(partition) = send.partition {
        target = target.partition(partition);
    }
    let mut lines = Vec::new();
    let mut sent = 0_u64;
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.context("standard input")?;
        anyhow::ensure!(!line.is_empty(), "line {} is empty", sent + lines.len() as u64 + 1);
        lines.push(line);
        if lines.len() == LINES_PER_REQUEST as usize {
            client.send(&target, &lines).await?;
            sent += lines.len() as u64;
            lines.clear();
        }
    }
    if !lines.is_empty() {
        let place = client.send(&target, &lines).await?;
        sent += lines.len() as u64;
        let (partition, offset) = (place.partition, place.base_offset);
        eprint_line(&format!(
            "{sent} sent; the last request at partition {partition}, offset {offset}"
        ));
    }
    client.logout().await?;
    Ok(())
}

/// Prints messages.
///
/// # Errors
/// When the server refuses or the connection cannot be made again.
pub async fn poll(poll: Poll) -> anyhow::Result<()> {
    let client = Client::connect(poll.connect.options()).await?;
    let target = Target::new(&poll.stream, &poll.topic)?.partition(poll.partition);
    let start = match (poll.stored, poll.offset) {
        (true, _) => Start::Stored,
        (false, Some(offset)) => Start::Offset(Offset(offset)),
        (false, None) => Start::First,
    };
    let mut consumer =
        Consumer::new(client, target, &poll.consumer, start, LINES_PER_REQUEST).await?;
    let mut left = poll.count.unwrap_or(u64::MAX);
    while left > 0 {
        // Never more than is printed, so that what is stored was also seen.
        consumer.set_batch(u32::try_from(left).unwrap_or(LINES_PER_REQUEST).min(LINES_PER_REQUEST));
        let messages = if poll.follow { consumer.next().await? } else { consumer.poll().await? };
        if messages.is_empty() {
            break;
        }
        for message in &messages {
            let payload = String::from_utf8_lossy(&message.payload);
            crate::print(&match poll.format {
                Format::Payload => payload.into_owned(),
                Format::Full => {
                    format!("{}\t{}\t{payload}", message.offset, message.timestamp.0)
                }
            });
        }
        left = left.saturating_sub(messages.len() as u64);
        if poll.stored {
            consumer.commit().await?;
        }
    }
    Ok(())
}

fn eprint_line(line: &str) {
    // Standard error may be closed; the exit code still tells.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
