//! What a replica is told and what it asks for.

use crate::header::{Anchor, Prepare};
use crate::message::Message;
use crate::view_state::ViewState;
use borzoi_types::{Mono, Op, ReplicaId, View};
use std::sync::Arc;
use thiserror::Error;

/// Something that happened to a replica.
#[derive(Clone, Debug)]
pub enum Event {
    /// A frame of this log arrived from a peer; its checksums were verified by decoding.
    Message {
        /// Who sent it, as authenticated by the link.
        from: ReplicaId,
        /// What it says.
        message: Message,
    },
    /// The prepare of [`Effect::Append`] holds at the log's level.
    Held {
        /// Position.
        op: Op,
        /// Identity.
        checksum: u128,
    },
    /// The record of [`Effect::PersistViewState`] with these views is flushed.
    ViewStateDurable {
        /// As in the record.
        view: View,
        /// As in the record.
        log_view: View,
    },
    /// The answer to [`Effect::Fetch`]; `None` when the journal cannot produce the bytes.
    Fetched {
        /// Position.
        op: Op,
        /// Identity.
        checksum: u128,
        /// The prepare, verified.
        prepare: Option<Arc<Prepare>>,
    },
    /// The link to `peer` carried something at `at`. May be delivered late and coalesced: it is
    /// enough to deliver the newest before a [`Event::Tick`].
    PeerHeard {
        /// Which peer.
        peer: ReplicaId,
        /// When, on this node's monotonic clock.
        at: Mono,
    },
    /// Both retained checkpoints cover `op`: prepares up to it are no longer needed here.
    Checkpointed {
        /// The older retained checkpoint's operation.
        op: Op,
    },
    /// State up to a peer's checkpoint was installed ([`Effect::StateTransfer`]), durably.
    TransferComplete {
        /// The checkpoint's last operation.
        checkpoint: Anchor,
    },
    /// The state transfer did not succeed and may be asked for again.
    TransferFailed,
    /// The deadline has passed.
    Tick,
    /// The node stops cleanly or wants to be rid of the lead: a primary steps down.
    StepDown,
}

/// Something a replica wants done. Effects are executed in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Append to the journal; [`Event::Held`] follows when the log's level holds.
    Append(Arc<Prepare>),
    /// Append and flush whatever the level; [`Event::ViewStateDurable`] follows. Journal order
    /// relative to [`Effect::Append`] is kept.
    PersistViewState(ViewState),
    /// Send to a peer; may be lost, delayed, duplicated and reordered.
    Send {
        /// Receiver.
        to: ReplicaId,
        /// What to send.
        message: Message,
    },
    /// Apply: strictly in op order, each op exactly once in a process's life, starting above the
    /// checkpoint. [`crate::PrepareKind::ViewStart`] operations are included.
    Commit(Arc<Prepare>),
    /// Read a prepare back from the journal; [`Event::Fetched`] follows.
    Fetch {
        /// Position.
        op: Op,
        /// Identity.
        checksum: u128,
    },
    /// The replica's part has changed.
    RoleChanged(Role),
    /// Peers have released what this replica still needs: install `from`'s newest checkpoint, then
    /// [`Event::TransferComplete`] or [`Event::TransferFailed`].
    StateTransfer {
        /// Whom to ask first.
        from: ReplicaId,
        /// The checkpoint must cover this operation.
        at_least: Op,
        /// This replica has committed an operation that the group has not: its own state is to be
        /// replaced and the event logged as an error (a restored or written-off node).
        diverged: bool,
    },
}

/// The part a replica plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Primary of `view`; admits only when `may_serve`.
    Primary {
        /// Its view.
        view: View,
        /// The inherited suffix and one operation of this view have committed.
        may_serve: bool,
    },
    /// Backup of `primary` in `view`.
    Backup {
        /// Its view.
        view: View,
        /// Whom to forward requests to.
        primary: ReplicaId,
    },
    /// No primary is known.
    ViewChange {
        /// The view being formed or abandoned.
        view: View,
    },
}

/// Why an operation was not accepted. Every case may be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// Another replica leads, or nobody that is known.
    #[error("not the primary")]
    NotPrimary {
        /// Who leads, if known.
        primary: Option<ReplicaId>,
    },
    /// This replica leads but has not yet committed an operation of its view.
    #[error("primary of a view that is not yet in force")]
    NotServing,
    /// The operations or bytes in flight are at their limit.
    #[error("pipeline full")]
    PipelineFull,
    /// The body is larger than a prepare may be; retrying does not help.
    #[error("body of {len} bytes is too large")]
    TooLarge {
        /// Its length.
        len: usize,
    },
}
