//! What the shards of different nodes say to each other, and how it travels.
//!
//! ```text
//!  log, front, transfer ──▶ PeerMessage ──▶ header + body ──▶ Effect::ToPeer ──▶ the link
//!  log, front, transfer ◀── PeerMessage ◀── checks, counters ◀── Event::Peer ◀── the link
//! ```
//!
//! Every shard has its own link to every peer. A frame names the log or the shard it is for; where
//! the nodes have different numbers of shards, the shard that receives it passes it on within its
//! node.
//!
//! Invariants: a frame that is not whole, intact, of this cluster, of this version and from the
//! node at the other end of the link has no effect but a counter; no bytes make a shard panic.

pub mod forward;
mod forward_codec;
pub mod forward_content;
pub mod frame;
pub mod join;
pub mod message;
pub mod transfer;

pub use forward::ForwardMessage;
pub use forward_content::{Forwarded, Waiter};
pub use frame::{Destination, FrameFault, PeerHeader, Recipient};
pub use message::{Heartbeat, PeerMessage};
