//! Connections, sessions, decoding, authorisation, replies; the metadata state machine.

use crate::back::{Back, MetadataCommit};
use crate::event::{ConnectionId, Effect, HostStats, PasswordOutcome, PasswordTicket, Transport};
use crate::lane::api::{CountersReply, LaneReply, Ticket};
use crate::random::Random;
use borzoi_metadata::Metadata;
use borzoi_types::{Body, Mono, Now, Op, ReplicaId, ShardId};
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

/// Configuration of the front of one shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FrontOptions {
    /// This shard.
    pub shard: ShardId,
    /// Shards of this node.
    pub shards: u16,
    /// This node.
    pub replica: ReplicaId,
    /// Generation of this life of the node, from the superblock: rises at every start.
    pub generation: u64,
}

/// The client side of one shard.
pub struct Front {
    metadata: Metadata,
}

impl Front {
    /// A front with nobody connected. `metadata` is the recovered state on shard 0 and the
    /// same elsewhere, where the feed of shard 0 replaces it.
    #[must_use]
    pub fn new(_options: FrontOptions, metadata: Metadata, _random: Box<dyn Random>) -> Self {
        Self { metadata }
    }

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
