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
mod figures;
mod host;
mod inbox;
mod net;
mod node;
pub mod password;
mod threads;
pub mod turn;

pub use clock::Clock;
pub use figures::{Probe, ShardReport, ShellFigures};
pub use node::{ArchiveMaker, Node, NodeError, NodeParts, Stopper};

/// Raises the soft limit of open file descriptors to the hard one: every connection and every
/// segment being read needs one. A refusal changes nothing; the limit shows in the statistics.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::debug!(current = limit.current, "the limit of open files cannot be raised");
    }
}
