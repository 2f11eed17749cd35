//! A consumer of one partition that remembers where it is.

use crate::client::{Client, Target};
use crate::error::Error;
use crate::message::Message;
use borzoi_types::Offset;
use borzoi_wire::PollingStrategy;
use std::time::Duration;

/// Where a consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest message.
    First,
    /// At this offset.
    Offset(Offset),
    /// After the stored offset; at the oldest message when none is stored.
    Stored,
}

/// Reads one partition in order, each message once.
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    target: Target,
    name: String,
    next: Option<Offset>,
    batch: u32,
    idle_pause: Duration,
}

impl Consumer {
    /// A consumer called `name` of the partition in `target`, reading up to `batch` messages at
    /// once.
    ///
    /// # Errors
    /// When the stored offset cannot be read.
    pub async fn new(
        mut client: Client,
        target: Target,
        name: &str,
        start: Start,
        batch: u32,
    ) -> Result<Self, Error> {
        let next = match start {
            Start::First => None,
            Start::Offset(offset) => Some(offset),
            Start::Stored => client.offset(&target, name).await?.map(Offset::next),
        };
        let idle_pause = Duration::from_millis(20);
        Ok(Self { client, target, name: name.to_owned(), next, batch, idle_pause })
    }

    /// Reads up to `batch` messages at once from now on.
    pub const fn set_batch(&mut self, batch: u32) {
        self.batch = batch;
    }

    /// The next messages; empty when there are none now.
    ///
    /// # Errors
    /// As [`Client::poll`], and when a batch does not hold together.
    pub async fn poll(&mut self) -> Result<Vec<Message>, Error> {
        let strategy = self.next.map_or(PollingStrategy::First, PollingStrategy::Offset);
        let polled =
            self.client.poll(&self.target, &self.name, strategy, self.batch, false).await?;
        let messages = polled.messages()?;
        if let Some(last) = messages.last() {
            self.next = Some(last.offset.next());
        }
        Ok(messages)
    }

    /// The next messages, waiting until there are some.
    ///
    /// # Errors
    /// As [`Consumer::poll`].
    pub async fn next(&mut self) -> Result<Vec<Message>, Error> {
        loop {
            let messages = self.poll().await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            tokio::time::sleep(self.idle_pause).await;
        }
    }

    /// Stores that everything delivered so far has been dealt with.
    ///
    /// # Errors
    /// As [`Client::store_offset`].
    pub async fn commit(&mut self) -> Result<(), Error> {
        let Some(last) = self.next.and_then(|next| next.0.checked_sub(1)) else { return Ok(()) };
        self.client.store_offset(&self.target, &self.name, Offset(last)).await
    }
}
