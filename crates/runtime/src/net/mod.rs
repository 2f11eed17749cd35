//! Client connections: accepted on one thread, dealt to the shards, read and written on the
//! shard's own thread.
//!
//! Whatever the transport, a connection delivers whole frames as events and takes replies as
//! lists of slices; nothing behind this module knows how bytes travel.

pub mod accept;
mod buffers;
pub mod connection;
mod output;
mod pass;
mod receive;
mod table;
#[cfg(test)]
mod tests;

pub use pass::{Admission, Pass};
pub use table::Connections;
