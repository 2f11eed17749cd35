//! What arrives from other nodes and what leaves for them: the back's side of the links.

use super::metadata_log::MetadataLog;
use super::{Back, BackOutput};
use crate::event::{Effect, FatalError, ShardMessage};
use crate::log_host::LogHost;
use crate::peer::join::{FormattedAnswer, JoinMessage, JoinStep};
use crate::peer::{FrameFault, Heartbeat, PeerMessage};
use borzoi_consensus::{Event as ReplicaEvent, Message};
use borzoi_types::{LogId, Now, ReplicaId, ShardId};
use bytes::Bytes;

impl Back {
    /// A frame arrived on this shard's link with `from`.
    pub(crate) fn peer(
        &mut self,
        now: Now,
        from: ReplicaId,
        frame: &Bytes,
        effects: &mut Vec<Effect>,
    ) {
        match self.shared.links.receive(now.mono, from, frame) {
            Ok((header, message)) => {
                if let PeerMessage::Heartbeat(_) = &message {
                    for shard in self.shared.links.listeners(&header) {
                        let heard = Box::new(PeerMessage::Heartbeat(Heartbeat::default()));
                        self.shared.send(shard, ShardMessage::Peer { from, message: heard });
                    }
                }
                self.pass_to_all(from, &message);
                self.peer_message(now, from, message);
            }
            Err(FrameFault::Replayed) if self.shared.links.take_warning(from, now.mono) => {
                let seen = self.shared.links.generation_of(from);
                self.join_answer(from, 0, JoinStep::Behind { seen });
            }
            // Counted; links lose frames anyway, so nothing else follows from it.
            Err(_) => {}
        }
        self.shared.drain(effects);
    }

    /// A message of `from` that another shard of this node received for this one.
    pub(crate) fn peer_passed_on(
        &mut self,
        now: Now,
        from: ReplicaId,
        message: PeerMessage,
        effects: &mut Vec<Effect>,
    ) {
        let here = self.shared.links.shard_for(message.destination());
        assert_eq!(here, self.shared.options.shard, "passed on once");
        self.shared.links.heard(from, now.mono);
        self.peer_message(now, from, message);
        self.shared.drain(effects);
    }

    /// The link with `peer` came up or went down.
    pub(crate) fn peer_link(
        &mut self,
        now: Now,
        peer: ReplicaId,
        up: bool,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.shared.links.peers().any(|other| other == peer);
        assert!(known, "links are with other nodes of the roster");
        self.shared.links.set_up(peer, up);
        self.shared.output(BackOutput::PeerLink { peer, up });
        self.reroute_for_link(now, peer, up);
        self.shared.drain(effects);
    }

    /// Who leads a log, as far as this shard knows: a hint. None while nobody is known to.
    #[must_use]
    pub fn leader_of(&self, log: LogId) -> Option<ReplicaId> {
        if self.shared.options.replica_count == 1 {
            return Some(self.shared.options.replica);
        }
        self.shared.leaders.get(&log).copied()
    }

    /// Another shard of this node has learned who leads one of its logs.
    pub(crate) fn leader_is(&mut self, log: LogId, leader: Option<ReplicaId>) {
        self.shared.note_leader(log, leader);
    }

    fn peer_message(&mut self, now: Now, from: ReplicaId, message: PeerMessage) {
        let to = self.shared.links.shard_for(message.destination());
        if to != self.shared.options.shard {
            self.shared.links.note_passed_on();
            let message = Box::new(message);
            return self.shared.send(to, ShardMessage::Peer { from, message });
        }
        match message {
            PeerMessage::Log { log, message } => self.log_message(now, from, log, message),
            PeerMessage::Heartbeat(heartbeat) => {
                for (log, message) in heartbeat.logs {
                    self.peer_message(now, from, PeerMessage::Log { log, message });
                }
            }
            PeerMessage::Join(message) => self.join_message(from, message),
            PeerMessage::Transfer(message) => self.transfer_message(now, from, message),
            PeerMessage::Forward(message) => self.forwarded(now, from, message),
        }
    }

    /// A node that joins asks one shard; each answers for its own logs.
    fn pass_to_all(&mut self, from: ReplicaId, message: &PeerMessage) {
        let PeerMessage::Join(JoinMessage { step: JoinStep::Ask, .. }) = message else { return };
        let own = self.shared.options.shard;
        for shard in (0..self.shared.options.shards).map(ShardId).filter(|shard| *shard != own) {
            let message = Box::new(message.clone());
            self.shared.send(shard, ShardMessage::Peer { from, message });
        }
    }

    fn join_message(&mut self, from: ReplicaId, message: JoinMessage) {
        match message.step {
            JoinStep::Ask => {
                let lanes = self.shared.options.lanes;
                let count = |lanes: u32| u16::try_from(lanes).expect("limited to LANES_MAX");
                let metadata = self.metadata.iter().map(|log| (LogId::METADATA, log.host()));
                let hosts =
                    metadata.chain(self.lanes.iter().map(|(log, lane)| (*log, lane.host())));
                let answer = FormattedAnswer {
                    cluster: self.shared.options.cluster,
                    lanes_persisted: count(lanes.persisted),
                    lanes_replicated: count(lanes.replicated),
                    seen: self.shared.links.generation_of(from),
                    views: hosts.map(|(log, host)| (log, host.replica().view())).collect(),
                };
                self.join_answer(from, message.nonce, JoinStep::Formatted(answer));
            }
            JoinStep::Behind { seen } if seen > self.shared.options.generation => {
                self.shared.fail(FatalError::Outdated { node: from });
            }
            _ => {} // Said to a life of this node that had not been formatted yet.
        }
    }

    fn join_answer(&mut self, to: ReplicaId, nonce: u64, step: JoinStep) {
        self.shared.send_peer(to, &PeerMessage::Join(JoinMessage { nonce, step }));
    }

    fn log_message(&mut self, now: Now, from: ReplicaId, log: LogId, message: Message) {
        if matches!(message, Message::StartViewChange { .. }) {
            // Whether to join depends on how long others have been silent.
            self.tell_heard(now, log);
        }
        self.replica_event(now, log, ReplicaEvent::Message { from, message });
    }

    /// Tells a log's replica when each peer was heard: before everything that depends on it, and
    /// only then.
    pub(super) fn tell_heard(&mut self, now: Now, log: LogId) {
        for peer in self.shared.links.peers() {
            if let Some(at) = self.shared.links.heard_at(peer) {
                self.time_event(now, log, ReplicaEvent::PeerHeard { peer, at });
            }
        }
    }

    /// Sends the heartbeats if their time has come.
    pub(super) fn send_heartbeats(&mut self, now: Now) {
        if self.shared.fatal || !self.shared.links.take_due(now.mono) {
            return;
        }
        for peer in self.shared.links.peers() {
            let mut heartbeat = Heartbeat::default();
            for log in self.shared.links.take_speaking(peer) {
                if let Some(message) = self.heartbeat_of(log, peer) {
                    heartbeat.logs.push((log, message));
                    self.shared.links.spoke(peer, log);
                }
            }
            self.shared.send_peer(peer, &PeerMessage::Heartbeat(heartbeat));
        }
    }

    /// That metadata operations have committed is told at once, not with the next heartbeat:
    /// clients of other nodes wait for it.
    pub(super) fn speak_for_metadata(&mut self) {
        let speaks = self.metadata.as_mut().is_some_and(|log| log.take_speaks());
        if !speaks || self.shared.fatal {
            return;
        }
        for peer in self.shared.links.peers() {
            if let Some(message) = self.heartbeat_of(LogId::METADATA, peer) {
                self.shared.send_peer(peer, &PeerMessage::Log { log: LogId::METADATA, message });
            }
        }
    }

    fn heartbeat_of(&self, log: LogId, peer: ReplicaId) -> Option<Message> {
        self.host_of(log)?.replica().heartbeat_for(peer)
    }

    /// The host of a log of this shard.
    pub(super) fn host_of(&self, log: LogId) -> Option<&LogHost> {
        match self.lanes.get(&log) {
            Some(lane) => Some(lane.host()),
            None => self.metadata.as_ref().filter(|_| log.is_metadata()).map(MetadataLog::host),
        }
    }
}
