//! One core's server: connections and sessions in front, lanes, partitions and the journal behind.
//!
//! A [`Shard`] is a plain state machine: `handle(now, event, effects)` for each event of a batch,
//! then `end_of_batch(now, effects)`, which forms prepares, journal groups and checkpoints from
//! what the batch brought. The shell executes the effects and feeds their results back. Two parts
//! with one border between them:
//!
//! - [`front`]: connections, sessions, decoding, authorisation, replies, the metadata state
//!   machine on shard 0 and its copies elsewhere;
//! - [`back`]: replicated logs, the journal, lanes and their partitions, checkpoints, boot.
//!
//! Invariants: no clock, randomness, file, socket or thread is touched here; iteration orders are
//! fixed, so equal inputs give equal effects; a broken internal invariant panics (the process ends
//! and recovers from its journal), bad input never does.

pub mod back;
pub mod boot;
pub mod checkpointer;
pub mod event;
pub mod figures;
pub mod front;
pub mod lane;
pub mod log_host;
pub mod parking;
pub mod partition;
pub mod peer;
pub mod random;
pub mod reconciler;

mod metadata_host;
mod options;
mod shard;

pub use event::{ConnectionId, Effect, Event, FatalError, ShardMessage, Transport};
pub use figures::ShardFigures;
pub use options::{Lanes, ShardOptions};
pub use random::{Random, SeededRandom};
pub use shard::Shard;
