//! The Rust client: administration, producing and consuming over TCP.
//!
//! ```no_run
//! # async fn example() -> Result<(), borzoi_client::Error> {
//! use borzoi_client::{Client, ClientOptions, Target};
//! let mut client = Client::connect(ClientOptions::new("127.0.0.1:8090", "iggy", "secret")).await?;
//! client.create_stream("orders").await?;
//! client.create_topic("orders", "events", 3, None).await?;
//! let target = Target::new("orders", "events")?;
//! let sent = client.send(&target.partition(0), &[b"hello"]).await?;
//! assert_eq!(sent.base_offset.0, 0);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is one connection with one request in flight. When the connection breaks it
//! connects again **with the same identity** and sends the request again under the same number;
//! the server recognises it and gives the original answer, so a retry is not a second execution.
//!
//! Not here: consumer groups, tokens, users (see `docs/status.md`).

mod client;
mod connection;
mod consumer;
mod error;
mod message;
mod options;

pub use borzoi_types::{ClientId, Durability, Micros, Offset, PartitionId};
pub use borzoi_wire::ErrorCode;
pub use borzoi_wire::body::{ClusterMetadata, Stats, StreamDetails, StreamRecord, TopicDetails};
pub use client::{Client, Sent, Target};
pub use consumer::{Consumer, Start};
pub use error::Error;
pub use message::{Message, Polled, batch_of};
pub use options::ClientOptions;
