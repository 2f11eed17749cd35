//! The shard itself: hands events to the front or the back and carries answers between them.

use crate::back::{Back, BackOutput};
use crate::event::{Effect, Event, ShardMessage};
use crate::front::{Front, FrontEvent};
use borzoi_types::{Mono, Now};

/// One core's server. Owned by one thread; never shared.
pub struct Shard {
    front: Front,
    back: Back,
}

impl Shard {
    /// Joins the two parts that boot made.
    #[must_use]
    pub fn new(front: Front, back: Back) -> Self {
        Self { front, back }
    }

    /// Takes one event. `now.mono` never goes back between calls.
    pub fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Disk { ticket, result } => self.back.disk(now, ticket, result, effects),
            Event::FromShard { from, message } => self.message(now, from, message, effects),
            Event::ConnectionOpened { connection, peer, transport } => {
                let event = FrontEvent::ConnectionOpened { connection, peer, transport };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::Frame { connection, frame } => {
                let event = FrontEvent::Frame { connection, frame };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::OutputTaken { connection } => {
                let event = FrontEvent::OutputTaken { connection };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::ConnectionClosed { connection } => {
                let event = FrontEvent::ConnectionClosed { connection };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::Peer { from, frame } => self.back.peer(now, from, &frame, effects),
            Event::PeerUp { peer } => self.back.peer_link(now, peer, true, effects),
            Event::PeerDown { peer } => self.back.peer_link(now, peer, false, effects),
            Event::Password { ticket, outcome } => {
                let event = FrontEvent::Password { ticket, outcome };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::Archive { ticket, archive } => {
                let event = FrontEvent::Archive { ticket, archive };
                self.front.handle(now, event, &mut self.back, effects);
            }
            Event::Host(stats) => {
                self.front.handle(now, FrontEvent::Host(stats), &mut self.back, effects);
            }
            Event::Tick => {
                self.back.tick(now, effects);
                self.front.handle(now, FrontEvent::Tick, &mut self.back, effects);
            }
            Event::Stop => {
                self.front.handle(now, FrontEvent::Stop, &mut self.back, effects);
                self.back.stop(now, effects);
            }
        }
        self.pump(now, effects);
    }

    /// Ends a batch of events: forms prepares, journal groups and checkpoints. Must be called
    /// after every batch, also one of a single event; nothing is written before it.
    pub fn end_of_batch(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.front.end_of_batch(now, &mut self.back, effects);
        self.pump(now, effects);
        self.back.end_of_batch(now, &self.front, effects);
        self.pump(now, effects);
    }

    /// When the next [`Event::Tick`] is wanted; none while nothing waits for time.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        match (self.front.deadline(), self.back.deadline()) {
            (Some(front), Some(back)) => Some(front.min(back)),
            (front, back) => front.or(back),
        }
    }

    /// The part behind, for tests and metrics.
    #[must_use]
    pub fn back(&self) -> &Back {
        &self.back
    }

    /// The part in front, for tests and metrics.
    #[must_use]
    pub fn front(&self) -> &Front {
        &self.front
    }

    fn message(
        &mut self,
        now: Now,
        from: borzoi_types::ShardId,
        message: ShardMessage,
        effects: &mut Vec<Effect>,
    ) {
        let event = match message {
            ShardMessage::Lane(request) => {
                return self.back.submit_arrived(now, *request, effects);
            }
            ShardMessage::Counters(request) => {
                return self.back.counters(now, from, &request, effects);
            }
            ShardMessage::Peer { from, message } => {
                return self.back.peer_passed_on(now, from, *message, effects);
            }
            ShardMessage::Leader { log, leader } => return self.back.leader_is(log, leader),
            ShardMessage::Stopping => return self.back.peer_stopping(now, from, effects),
            ShardMessage::LaneReply { ticket, reply } => FrontEvent::LaneReply { ticket, reply },
            ShardMessage::CountersReply(reply) => FrontEvent::Counters(reply),
            ShardMessage::Front(message) => FrontEvent::Message { from, message },
        };
        self.front.handle(now, event, &mut self.back, effects);
    }

    /// Carries what the back produced to the front until both are quiet. Ends: the front's
    /// reaction to an answer is at most one further request per waiting client.
    fn pump(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while let Some(output) = self.back.take_output() {
            let event = match output {
                BackOutput::LaneReply { ticket, reply } => FrontEvent::LaneReply { ticket, reply },
                BackOutput::Counters(reply) => FrontEvent::Counters(reply),
                BackOutput::MetadataCommitted(commit) => FrontEvent::MetadataCommitted(commit),
                BackOutput::Forwarded { from, message } => FrontEvent::Forwarded { from, message },
                BackOutput::PeerLink { peer, up } => FrontEvent::PeerLink { peer, up },
                BackOutput::Leader { log, leader } => {
                    self.back.note_route_changed(now, log, effects);
                    FrontEvent::Leader { log, leader }
                }
                BackOutput::MetadataInstalled { op, state } => {
                    FrontEvent::MetadataInstalled { op, state }
                }
                BackOutput::MetadataRead { token, op } => FrontEvent::MetadataRead { token, op },
                BackOutput::MetadataServing(serving) => FrontEvent::MetadataServing(serving),
                BackOutput::LanesConfirmed(lanes) => FrontEvent::LanesConfirmed(lanes),
            };
            self.front.handle(now, event, &mut self.back, effects);
        }
    }
}
