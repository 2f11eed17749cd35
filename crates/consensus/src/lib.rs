//! Viewstamped Replication for one log, as a pure synchronous state machine.
//!
//! One [`Replica`] is one member of one log's replica group: `handle(now, event, &mut effects)`.
//! It reads no clock, draws no randomness but its own seeded generator, and does no I/O. A single
//! node is a group of one and runs the same code.
//!
//! The protocol is Viewstamped Replication Revisited (Liskov, Cowling 2012), with hash-chained
//! prepares, header suffixes in do-view-change with present and nack evidence per operation
//! (protocol-aware recovery: Alagappan et al., FAST 2018), one repair engine for every status,
//! check-quorum, probing before a view change, and untrusted replicas that must learn before they
//! count. `docs/internals/consensus.md` describes states, messages, timers, invariants and the
//! crash argument of every ordering that matters.
//!
//! What it does not do: it knows nothing of messages, partitions, clients or files. Bodies are
//! opaque; durability is reported to it by events.

mod codec;
mod event;
mod header;
mod log;
mod merge;
mod message;
mod options;
mod quorum;
mod random;
mod replica;
mod settle;
mod suffix;
mod view_state;

pub use codec::DecodeError;
pub use event::{Effect, Event, Refusal, Role};
pub use header::{Anchor, HEADER_BYTES, Prepare, PrepareHeader, PrepareKind};
pub use message::{DoViewChange, Message, StartView};
pub use options::{Options, Timeouts};
pub use quorum::Quorums;
pub use replica::{Counters, Replica};
pub use settle::{
    Carried, DamageKind, DamagedRecord, LogRecords, SettleError, Settled, SettledSlot, settle,
};
pub use suffix::{Evidence, LogSuffix, SUFFIX_OPS_MAX};
pub use view_state::ViewState;
