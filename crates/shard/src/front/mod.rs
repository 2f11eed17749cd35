//! Connections, sessions, decoding, authorisation, replies; the metadata state machine.

use crate::back::{Back, MetadataCommit};
use crate::event::{ConnectionId, Effect, HostStats, PasswordOutcome, PasswordTicket, Transport};
use crate::lane::api::{CountersReply, LaneReply, Ticket};
use crate::pending::Metadata;
use borzoi_types::{Body, Mono, Now, Op, ShardId};
use bytes::BytesMut;

/// Between the fronts of one node.
#[derive(Debug)]
pub enum FrontMessage {}

/// What the front is told: the client side of [`crate::Event`] and what the back produced.
#[derive(Debug)]
pub enum FrontEvent {
    /// See [`crate::Event::ConnectionOpened`].
    ConnectionOpened {
        /// Its number.
        connection: ConnectionId,
        /// Remote address.
        peer: String,
        /// How it connected.
        transport: Transport,
    },
    /// See [`crate::Event::Frame`].
    Frame {
        /// From where.
        connection: ConnectionId,
        /// The whole frame.
        frame: BytesMut,
    },
    /// See [`crate::Event::ConnectionClosed`].
    ConnectionClosed {
        /// Which one.
        connection: ConnectionId,
    },
    /// See [`crate::Event::Password`].
    Password {
        /// Which job.
        ticket: PasswordTicket,
        /// What it found.
        outcome: PasswordOutcome,
    },
    /// See [`crate::Event::Host`].
    Host(Box<HostStats>),
    /// See [`crate::Event::Tick`].
    Tick,
    /// See [`crate::Event::Stop`]: refuse what arrives from now on.
    Stop,
    /// Another shard's front sent something.
    Message {
        /// Who.
        from: ShardId,
        /// What.
        message: FrontMessage,
    },
    /// A lane answered.
    LaneReply {
        /// Which request.
        ticket: Ticket,
        /// The answer.
        reply: LaneReply,
    },
    /// Counters arrived.
    Counters(CountersReply),
    /// Shard 0: a metadata operation has committed, in op order, each once.
    MetadataCommitted(MetadataCommit),
    /// Shard 0: whether metadata operations may be proposed here.
    MetadataServing(bool),
}

/// The client side of one shard.
pub struct Front {
    metadata: Metadata,
}

impl Front {
    /// Takes one event.
    pub fn handle(
        &mut self,
        _now: Now,
        _event: FrontEvent,
        _back: &mut Back,
        _effects: &mut Vec<Effect>,
    ) {
    }

    /// Ends a batch of events.
    pub fn end_of_batch(&mut self, _now: Now, _back: &mut Back, _effects: &mut Vec<Effect>) {}

    /// When a tick is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        None
    }

    /// This shard's committed metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Shard 0: the whole metadata state for a checkpoint, and the operation it stands at: the
    /// last one received as [`FrontEvent::MetadataCommitted`].
    #[must_use]
    pub fn metadata_checkpoint(&self) -> (Op, Body) {
        (Op::ZERO, Body::empty())
    }
}
