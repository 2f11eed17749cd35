//! Vocabulary shared by every crate of Borzoi: newtypes, limits, checksums, message bodies.
//!
//! Nothing here decides anything. The types exist so that no bare integer crosses a module
//! border: an operation number cannot be passed where an offset is meant.
//!
//! Invariants: every type is plain data; no clock is read and no randomness is drawn here.

mod body;
pub mod checksum;
mod histogram;
mod ids;
pub mod limits;
pub mod planted;
mod time;

pub use body::Body;
pub use histogram::{HISTOGRAM_BOUNDS_MICROS, HISTOGRAM_BUCKETS, Histogram};
pub use ids::{
    ClientId, ClusterId, Durability, GroupId, LogId, Offset, Op, PartitionId, PartitionKey,
    ReplicaId, RequestNumber, SessionId, ShardId, StreamId, TopicId, UserId, View,
};
pub use time::{Duration, Micros, Mono, Now};
