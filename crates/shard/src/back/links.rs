//! The links of one shard with the other nodes: what is sent over them, what is believed of what
//! arrives, and how long ago each peer was heard.
//!
//! Heartbeats belong to links, not to logs. Every log that has run since the last one is asked for
//! what it has to say to each peer, and asked again as long as it has something; a log at rest is
//! not looked at.
//!
//! Invariants: a frame is counted exactly once, as received or under its fault; a heartbeat leaves
//! for every peer in every interval, also when no log has anything to say; a log that may have
//! something to say is in `speaking`.

use crate::options::ShardOptions;
use crate::peer::frame::{FrameFault, FrameKind, PEER_HEADER_BYTES, PeerHeader, Recipient};
use crate::peer::{Destination, PeerMessage};
use borzoi_types::limits::REPLICAS_MAX;
use borzoi_types::{Duration, LogId, Mono, ReplicaId, ShardId};
use bytes::Bytes;
use std::collections::BTreeSet;

/// What a shard has counted on its links since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames handed to links.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that passed every check.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Messages that arrived here for another shard of this node.
    pub passed_on: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Logs that were asked what they have to say.
    pub heartbeat_logs: u64,
    /// Frames dropped, by [`FrameFault`] in the order of [`FrameFault::ALL`].
    pub dropped: [u64; FrameFault::ALL.len()],
}

impl LinkCounters {
    /// Frames dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, fault: FrameFault) -> u64 {
        self.dropped[fault as usize]
    }
}

/// One link.
#[derive(Debug, Default)]
struct Link {
    up: bool,
    heard: Option<Mono>,
    /// The highest generation the peer has shown.
    generation: u64,
    /// When the peer was last told that its frames are of an earlier life.
    warned: Option<Mono>,
    /// Logs that may have something to say with the next heartbeat.
    speaking: BTreeSet<LogId>,
}

/// See the module.
#[derive(Debug)]
pub struct Links {
    own: Recipient,
    shard: ShardId,
    generation: u64,
    interval: Duration,
    links: Vec<Link>,
    next_heartbeat: Mono,
    counters: LinkCounters,
}

impl Links {
    /// Links of a shard; none for a solo node.
    #[must_use]
    pub fn new(options: &ShardOptions, interval: Duration) -> Self {
        assert!(usize::from(options.replica_count) <= REPLICAS_MAX, "rosters are bounded");
        let own = Recipient {
            cluster: options.cluster,
            replica: options.replica,
            replica_count: options.replica_count,
            shards: options.shards,
            lanes: options.lanes.count(),
        };
        Self {
            own,
            shard: options.shard,
            generation: options.generation,
            interval,
            links: (0..options.replica_count).map(|_| Link::default()).collect(),
            next_heartbeat: Mono(0),
            counters: LinkCounters::default(),
        }
    }

    /// Whether there is nobody else.
    #[must_use]
    pub const fn is_solo(&self) -> bool {
        self.own.replica_count == 1
    }

    /// The other nodes, in order.
    pub fn peers(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let own = self.own.replica;
        (0..self.own.replica_count).map(ReplicaId).filter(move |peer| *peer != own)
    }

    /// Counters.
    #[must_use]
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// The frame of a message.
    pub fn frame(&mut self, message: &PeerMessage) -> Vec<Bytes> {
        assert!(!self.is_solo(), "a solo node has no links");
        let header = PeerHeader {
            cluster: self.own.cluster,
            sender: self.own.replica,
            generation: self.generation,
            sender_shard: self.shard,
            sender_shards: self.own.shards,
            kind: message.kind(),
            destination: message.destination(),
        };
        let body = message.encode();
        self.counters.sent += 1;
        self.counters.sent_bytes += (PEER_HEADER_BYTES + body.len()) as u64;
        header.frame(&body)
    }

    /// Checks a frame that arrived over the link of `from`. A frame that fails has no other effect
    /// than its counter.
    ///
    /// # Errors
    /// Why it was dropped.
    pub fn receive(
        &mut self,
        now: Mono,
        from: ReplicaId,
        frame: &Bytes,
    ) -> Result<(PeerHeader, PeerMessage), FrameFault> {
        let checked = self.check(from, frame);
        match &checked {
            Ok((header, _)) => {
                self.counters.received += 1;
                self.counters.received_bytes += frame.len() as u64;
                // Who has no state yet is nobody's replica: hearing it keeps no lead alive.
                if header.kind != FrameKind::Join {
                    self.heard(from, now);
                }
            }
            Err(fault) => self.counters.dropped[*fault as usize] += 1,
        }
        checked
    }

    fn check(
        &mut self,
        from: ReplicaId,
        frame: &Bytes,
    ) -> Result<(PeerHeader, PeerMessage), FrameFault> {
        let (header, body) = PeerHeader::check(frame, from, &self.own)?;
        let link = &self.links[usize::from(from.get())];
        // A node without state speaks of itself before it knows of its earlier lives.
        let joins = header.kind == FrameKind::Join;
        if header.generation < link.generation && !joins {
            return Err(FrameFault::Replayed);
        }
        let message = PeerMessage::decode(&header, body)?;
        if let PeerMessage::Heartbeat(heartbeat) = &message
            && heartbeat.logs.last().is_some_and(|(log, _)| log.get() > self.own.lanes)
        {
            return Err(FrameFault::Unknown);
        }
        if !joins {
            self.links[usize::from(from.get())].generation = header.generation;
        }
        Ok((header, message))
    }

    /// The shard of this node that a message is for.
    #[must_use]
    pub fn shard_for(&self, destination: Destination) -> ShardId {
        match destination {
            Destination::Link => self.shard,
            Destination::Log(log) => log.shard(self.own.shards),
            Destination::Shard(shard) => shard,
        }
    }

    /// Shards of this node that hear a peer through this shard's link only, because the peer has
    /// fewer shards.
    pub fn listeners(&self, header: &PeerHeader) -> impl Iterator<Item = ShardId> + use<> {
        let (own, from, count) = (self.shard, header.sender_shard.get(), header.sender_shards);
        let all = (0..self.own.shards).map(ShardId);
        all.filter(move |shard| *shard != own && shard.get() % count == from)
    }

    /// The content of a message that had passed the checks of its frame makes no sense.
    pub const fn note_malformed(&mut self) {
        self.counters.dropped[FrameFault::Malformed as usize] += 1;
    }

    /// A message passed on to another shard.
    pub const fn note_passed_on(&mut self) {
        self.counters.passed_on += 1;
    }

    /// The highest generation that `peer` has shown; 0 if none.
    #[must_use]
    pub fn generation_of(&self, peer: ReplicaId) -> u64 {
        self.links[usize::from(peer.get())].generation
    }

    /// Something intact came from `peer`.
    pub fn heard(&mut self, peer: ReplicaId, now: Mono) {
        let link = &mut self.links[usize::from(peer.get())];
        link.heard = link.heard.max(Some(now));
    }

    /// When something came from `peer` last.
    #[must_use]
    pub fn heard_at(&self, peer: ReplicaId) -> Option<Mono> {
        self.links[usize::from(peer.get())].heard
    }

    /// The link came up or went down.
    pub fn set_up(&mut self, peer: ReplicaId, up: bool) {
        self.links[usize::from(peer.get())].up = up;
    }

    /// Whether to tell `peer` now that its frames are of an earlier life: at most once a second.
    pub fn take_warning(&mut self, peer: ReplicaId, now: Mono) -> bool {
        let link = &mut self.links[usize::from(peer.get())];
        let due = link.warned.is_none_or(|at| now.since(at) >= Duration::from_secs(1));
        if due {
            link.warned = Some(now);
        }
        due
    }

    /// Whether the link is up.
    #[must_use]
    pub fn is_up(&self, peer: ReplicaId) -> bool {
        self.links[usize::from(peer.get())].up
    }

    /// A log has run: it may have something to say.
    pub fn note_ran(&mut self, log: LogId) {
        if !self.is_solo() {
            for link in &mut self.links {
                link.speaking.insert(log);
            }
        }
    }

    /// When the next heartbeats leave; none for a solo node.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        (!self.is_solo()).then_some(self.next_heartbeat)
    }

    /// Whether heartbeats are due now; if so the next ones are an interval away.
    pub fn take_due(&mut self, now: Mono) -> bool {
        let due = self.deadline().is_some_and(|at| at <= now);
        if due {
            self.next_heartbeat = now.plus(self.interval);
        }
        due
    }

    /// The logs to be asked for the heartbeat to `peer`; those that spoke come back with
    /// [`Self::spoke`].
    pub fn take_speaking(&mut self, peer: ReplicaId) -> BTreeSet<LogId> {
        let speaking = core::mem::take(&mut self.links[usize::from(peer.get())].speaking);
        self.counters.heartbeats += 1;
        self.counters.heartbeat_logs += speaking.len() as u64;
        speaking
    }

    /// A log had something to say to `peer`: it is asked again next time.
    pub fn spoke(&mut self, peer: ReplicaId, log: LogId) {
        self.links[usize::from(peer.get())].speaking.insert(log);
    }
}
