//! Sockets, files, clocks and threads: the shell that executes the effects of the core and feeds
//! events back to it.
//!
//! One thread per shard runs the loop (`event_loop`): it gathers what arrived, hands it to the
//! shard (`turn`), and executes what the shard asks for. Beside it stand a journal writer, a
//! flusher and a small pool of disk threads (`threads::disk`). One thread per node accepts
//! connections and deals them to the shards (`net`). Nothing here decides anything that a client
//! could observe as state.
//!
//! Invariant: after a fatal error no effect is executed any more, so nothing is acknowledged that
//! the journal may not hold.

mod budget;
mod clock;
pub mod disk;
mod event_loop;
mod host;
mod inbox;
mod net;
mod node;
pub mod password;
mod threads;
pub mod turn;

pub use clock::Clock;
pub use node::{Node, NodeError, NodeParts};
