//! What will happen and when. Things at the same moment happen in the order they were scheduled.

use crate::clients::SocketId;
use crate::faults::FaultKind;
use borzoi_shard::event::{PasswordOutcome, PasswordTicket};
use borzoi_storage::disk::DiskTicket;
use borzoi_types::{Duration, Mono};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Which request of a shard's disk queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Slot {
    /// A journal write under way.
    Write(DiskTicket),
    /// The journal flush under way.
    Flush,
    /// A request of the pool.
    Pool(DiskTicket),
}

/// A shard of a running process. What belongs to an earlier life is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Node, by index.
    pub node: usize,
    /// Life of its process.
    pub life: u64,
    /// Shard, by index.
    pub shard: usize,
}

/// One thing that will happen.
#[derive(Debug)]
pub enum Happening {
    /// A shard takes a batch of what waits for it.
    Wake(Place),
    /// A shard's deadline comes.
    Tick(Place, Mono),
    /// A disk request ends.
    Disk(Place, Slot),
    /// A password job ends.
    Password(Place, PasswordTicket, PasswordOutcome),
    /// A node that is down tries to start.
    Boot(usize),
    /// The deadline comes of a node that asks the others how to begin.
    Form {
        /// Which node.
        node: usize,
        /// Its life.
        life: u64,
    },
    /// A connection request reaches its node.
    Connect(SocketId),
    /// Bytes of a client reach the server.
    ToServer(SocketId, Bytes),
    /// The client's close reaches the server.
    CloseServer(SocketId),
    /// The connection is open, as the client sees it.
    Connected(SocketId),
    /// A frame reaches its client.
    ToClient(SocketId, Bytes),
    /// The client learns that the connection is gone.
    CloseClient(SocketId),
    /// A client's deadline comes.
    ClientTick(usize, Mono),
    /// A frame of a shard of one node reaches another node.
    Peer {
        /// The sender.
        from: usize,
        /// Its shard.
        shard: usize,
        /// The receiver.
        to: usize,
        /// Header and body.
        frame: Bytes,
    },
    /// A node's links to a peer are up, if both still live these lives.
    LinkUp {
        /// Who is told.
        node: usize,
        /// About whom.
        peer: usize,
        /// The lives of both.
        life: (u64, u64),
    },
    /// A node's links to a peer are down, likewise.
    LinkDown {
        /// Who is told.
        node: usize,
        /// About whom.
        peer: usize,
        /// The lives of both.
        life: (u64, u64),
    },
    /// Links that a fault has cut open again.
    LinksHeal,
    /// A fault strikes.
    Fault(FaultKind),
    /// The condition that a fault made on a node may be over.
    Recover(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<(Mono, u64), Happening>,
    sequence: u64,
}

impl Queue {
    /// Adds something `micros` from `now`.
    pub fn after(&mut self, now: Mono, micros: u64, happening: Happening) -> Mono {
        let at = now.plus(Duration::from_micros(micros));
        self.at(at, happening);
        at
    }

    /// Adds something at a moment.
    pub fn at(&mut self, at: Mono, happening: Happening) {
        self.sequence += 1;
        self.entries.insert((at, self.sequence), happening);
    }

    /// The next thing, if it happens no later than `until`.
    pub fn pop(&mut self, until: Mono) -> Option<(Mono, Happening)> {
        let entry = self.entries.first_entry()?;
        if entry.key().0 > until {
            return None;
        }
        let ((at, _), happening) = entry.remove_entry();
        Some((at, happening))
    }

    /// Things that will happen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing will happen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
