//! Requests that another node answers, and requests of other nodes that this one answers.
//!
//! A request leaves for the leader's shard that hosts the lane: one hop. One that arrives at a node
//! that does not lead is refused with who does, and never sent on.

use super::forwarding::{Action, Forwarding, Route};
use super::{Back, BackOutput};
use crate::event::Effect;
use crate::lane::api::{LaneReply, LaneRequest, LaneRequestKind, Origin, Refusal};
use crate::peer::{ForwardMessage, Forwarded, Waiter};
use borzoi_types::{Duration, LogId, Mono, Now, PartitionKey, ReplicaId};

/// How long a stopping node waits for answers of other nodes.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

impl Back {
    /// Where a request for `lane` is answered now.
    pub(super) fn route(&self, lane: LogId) -> Route {
        let options = &self.shared.options;
        if options.replica_count == 1 {
            return Route::Here;
        }
        match self.leader_of(lane) {
            Some(leader) if leader == options.replica => Route::Here,
            Some(leader) if self.shared.links.is_up(leader) => Route::Peer(leader),
            Some(_) | None => Route::Nowhere,
        }
    }

    /// Forwards a request of the own front, or keeps it until somebody leads its lane.
    pub(super) fn forward_request(&mut self, now: Now, route: Route, request: LaneRequest) {
        if self.shared.stopping || self.shared.fatal {
            return self.shared.reply(request.origin, LaneReply::Refused(Refusal::Stopping));
        }
        let mut actions = Vec::new();
        self.forwarding.take(now.mono, route, request, &mut actions);
        self.act(now, actions);
    }

    fn act(&mut self, now: Now, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(peer, ticket, request) => {
                    let waiter = Waiter { shard: self.shared.options.shard, ticket };
                    let LaneRequest { key, lane, kind, .. } = request;
                    let forwarded = Forwarded::Lane { waiter, lane, key, kind };
                    self.shared.send_forwarded(peer, forwarded);
                }
                Action::Submit(request) => self.submit_on_this_node(now, request),
                Action::Refuse(origin, refusal) => {
                    self.shared.reply(origin, LaneReply::Refused(refusal));
                }
            }
        }
    }

    /// Another node's front or lane says something.
    pub(super) fn forwarded(&mut self, now: Now, from: ReplicaId, message: ForwardMessage) {
        let Ok(forwarded) = Forwarded::from_message(message) else {
            return self.shared.links.note_malformed();
        };
        match forwarded {
            Forwarded::Lane { waiter, lane, key, kind } => {
                self.request_arrived(now, from, waiter, lane, key, kind);
            }
            Forwarded::LaneReply { waiter, leader, reply } => {
                self.reply_arrived(now, from, waiter, leader, reply);
            }
            Forwarded::AskFigures { waiter, lane, keys } => {
                self.figures_asked(from, waiter, lane, &keys);
            }
            Forwarded::Figures { waiter, figures } => {
                self.figures_told(from, waiter.ticket, figures);
            }
            message @ (Forwarded::Command { .. }
            | Forwarded::CommandRefused { .. }
            | Forwarded::AskCommit { .. }
            | Forwarded::CommitIs { .. }
            | Forwarded::AskClients { .. }
            | Forwarded::Clients { .. }) => {
                self.shared.output(BackOutput::Forwarded { from, message });
            }
        }
    }

    fn request_arrived(
        &mut self,
        now: Now,
        from: ReplicaId,
        waiter: Waiter,
        lane: LogId,
        key: PartitionKey,
        kind: LaneRequestKind,
    ) {
        let Waiter { shard, ticket } = waiter;
        let serving = self.lanes.get(&lane).is_some_and(crate::lane::Lane::is_serving);
        if !serving {
            let leader = self.leader_of(lane).filter(|leader| *leader != from);
            let reply = LaneReply::Refused(Refusal::NotServing);
            return self
                .shared
                .send_forwarded(from, Forwarded::LaneReply { waiter, leader, reply });
        }
        let origin = Origin { peer: Some(from), shard, ticket };
        self.submit_here(now, LaneRequest { origin, key, lane, kind });
    }

    fn reply_arrived(
        &mut self,
        now: Now,
        from: ReplicaId,
        waiter: Waiter,
        leader: Option<ReplicaId>,
        reply: LaneReply,
    ) {
        let retry = matches!(&reply, LaneReply::Refused(refusal) if refusal.is_retriable());
        let lane = self.forwarding.lane_of(waiter.ticket);
        if let Some(origin) = self.forwarding.answered(now.mono, from, waiter.ticket, retry) {
            self.shared.reply(origin, reply);
        }
        // The refusing node may know of a newer leader than this one has heard of.
        if let (Some(lane), Some(leader)) = (lane, leader)
            && self.leader_of(lane) == Some(from)
            && leader.get() < self.shared.options.replica_count
        {
            self.shared.note_leader(lane, Some(leader));
        }
    }

    /// Who leads a log has changed, as this shard was told: what waited for that goes on.
    pub(crate) fn note_route_changed(&mut self, now: Now, log: LogId, effects: &mut Vec<Effect>) {
        self.route_changed(now, log);
        self.shared.drain(effects);
    }

    fn route_changed(&mut self, now: Now, log: LogId) {
        let (route, mut actions) = (self.route(log), Vec::new());
        self.forwarding.route_changed(now.mono, log, route, &mut actions);
        self.act(now, actions);
    }

    /// The link with `peer` came up or went down.
    pub(super) fn reroute_for_link(&mut self, now: Now, peer: ReplicaId, up: bool) {
        if up {
            for lane in self.forwarding.lanes() {
                self.route_changed(now, lane);
            }
            return;
        }
        let mut actions = Vec::new();
        self.forwarding.peer_down(now.mono, peer, &mut actions);
        self.act(now, actions);
        self.give_up_figures(None, Some(peer));
    }

    /// When something that was asked of other nodes is due.
    pub(super) fn forward_deadline(&self) -> Option<Mono> {
        [self.forwarding.deadline(), self.figures.deadline()].into_iter().flatten().min()
    }

    pub(super) fn forward_tick(&mut self, now: Now) {
        if self.forward_deadline().is_none_or(|due| due > now.mono) {
            return;
        }
        let lanes = self.forwarding.lanes();
        let routes: std::collections::BTreeMap<LogId, Route> =
            lanes.into_iter().map(|lane| (lane, self.route(lane))).collect();
        let mut actions = Vec::new();
        let route = |lane| routes.get(&lane).copied().unwrap_or(Route::Nowhere);
        self.forwarding.tick(now.mono, route, &mut actions);
        self.act(now, actions);
        self.give_up_figures(Some(now.mono), None);
    }

    pub(super) fn stop_forwarding(&mut self, now: Now) {
        let mut actions = Vec::new();
        self.forwarding.stop(now.mono, STOP_PATIENCE, &mut actions);
        self.act(now, actions);
    }

    /// Requests that wait for other nodes.
    #[must_use]
    pub const fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }

    /// Sends a message of the front to another node.
    pub fn forward(&mut self, to: ReplicaId, message: Forwarded, effects: &mut Vec<Effect>) {
        self.shared.send_forwarded(to, message);
        self.shared.drain(effects);
    }
}
