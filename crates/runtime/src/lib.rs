//! Sockets, files, clocks and threads: the shell that executes the effects of the core and feeds
//! events back to it.
//!
//! One thread per shard runs the loop ([`event_loop`]): it gathers what arrived, hands it to the
//! shard, and executes what the shard asks for. Beside it stand a journal writer, a flusher and a
//! small pool of disk threads. One thread per node accepts connections and deals them to the
//! shards. Nothing here decides anything that a client could observe as state.
//!
//! Invariant: after a fatal error no effect is executed any more, so nothing is acknowledged that
//! the journal may not hold.

mod budget;
mod clock;
pub mod disk;
mod host;
mod inbox;
pub mod password;
mod threads;

pub use clock::Clock;
