//! Shard 0's side of the metadata log: whose proposals are under way.
//!
//! The log itself is a replicated log like any other, behind the back. Here is who waits for which
//! of its operations, and the queue in front of a full pipeline.
//!
//! Invariants: proposals are taken in the order they came; the operations under way rise; every
//! asker hears of its proposal exactly once: applied, refused (it will never be executed), or
//! unknown (another primary may have committed it).

use crate::lane::api::Ticket;
use borzoi_types::limits::METADATA_COMMANDS_QUEUED_MAX;
use borzoi_types::{Op, ReplicaId, ShardId};
use bytes::Bytes;
use std::collections::VecDeque;

/// Who proposed a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    /// The node whose front asks, if it is not this one.
    pub(crate) peer: Option<ReplicaId>,
    /// The shard whose front asks.
    pub(crate) shard: ShardId,
    /// Its number for it.
    pub(crate) ticket: Ticket,
}

/// Commands with who wants them.
pub(crate) type Proposals = Vec<(Asker, Bytes)>;

/// Proposals to the metadata log.
#[derive(Debug)]
pub(crate) struct MetadataHost {
    /// Shards of this node.
    shards: u16,
    serving: bool,
    /// Whether the other shards have been sent the state that the feed starts from.
    feeding: bool,
    proposed: VecDeque<(Op, Asker, Bytes)>,
    queued: VecDeque<(Asker, Bytes)>,
}

impl MetadataHost {
    /// Nothing proposed, not serving yet.
    pub(crate) fn new(shards: u16) -> Self {
        assert!(shards > 0, "a node has at least one shard");
        Self {
            shards,
            serving: false,
            feeding: false,
            proposed: VecDeque::new(),
            queued: VecDeque::new(),
        }
    }

    /// The shards that follow the feed.
    pub(crate) fn followers(&self) -> impl Iterator<Item = ShardId> + use<> {
        (1..self.shards).map(ShardId)
    }

    /// Whether commands may be proposed here.
    pub(crate) const fn is_serving(&self) -> bool {
        self.serving
    }

    /// Whether the feed has to be started now; true once.
    pub(crate) fn start_feed(&mut self) -> bool {
        !core::mem::replace(&mut self.feeding, true)
    }

    /// The state was replaced: the feed starts again.
    pub(crate) fn restart_feed(&mut self) {
        self.feeding = false;
    }

    /// Queues a command; false if it is refused.
    pub(crate) fn queue(&mut self, asker: Asker, body: Bytes) -> bool {
        if !self.serving || self.queued.len() >= METADATA_COMMANDS_QUEUED_MAX {
            return false;
        }
        self.queued.push_back((asker, body));
        true
    }

    /// The next command to propose.
    pub(crate) fn next(&self) -> Option<&Bytes> {
        self.queued.front().map(|(_, body)| body)
    }

    /// The next command was proposed as `op`.
    pub(crate) fn accepted(&mut self, op: Op) {
        assert!(self.proposed.back().is_none_or(|(last, ..)| *last < op), "operations rise");
        if let Some((asker, body)) = self.queued.pop_front() {
            self.proposed.push_back((op, asker, body));
        }
    }

    /// The next command was refused for good.
    pub(crate) fn refused(&mut self) -> Option<Asker> {
        self.queued.pop_front().map(|(asker, _)| asker)
    }

    /// `op` was committed: who proposed it, and whose earlier proposals have been replaced.
    pub(crate) fn committed(&mut self, op: Op) -> (Option<Asker>, Vec<Asker>) {
        let mut replaced = Vec::new();
        while let Some((proposed, asker, _)) = self.proposed.front() {
            let (proposed, asker) = (*proposed, *asker);
            if proposed > op {
                break;
            }
            self.proposed.pop_front();
            if proposed == op {
                return (Some(asker), replaced);
            }
            replaced.push(asker);
        }
        (None, replaced)
    }

    /// Serving begins or ends. When it ends: the proposals with an unknown fate, and those that
    /// were never made.
    pub(crate) fn serve(&mut self, serving: bool) -> (Proposals, Proposals) {
        self.serving = serving;
        if serving {
            return (Vec::new(), Vec::new());
        }
        let unknown = self.proposed.drain(..).map(|(_, asker, body)| (asker, body)).collect();
        let refused = self.queued.drain(..).collect();
        (unknown, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(ticket: u64) -> Asker {
        Asker { peer: None, shard: ShardId(0), ticket: Ticket(ticket) }
    }

    fn serving() -> MetadataHost {
        let mut host = MetadataHost::new(1);
        host.serve(true);
        host
    }

    #[test]
    fn proposals_are_answered_by_the_operation_they_became() {
        let mut host = serving();
        assert!(host.queue(asker(1), Bytes::from_static(b"a")));
        assert!(host.queue(asker(2), Bytes::from_static(b"b")));
        host.accepted(Op(5));
        host.accepted(Op(6));
        assert_eq!(host.next(), None);
        assert_eq!(host.committed(Op(4)), (None, vec![]));
        assert_eq!(host.committed(Op(5)), (Some(asker(1)), vec![]));
        assert_eq!(host.committed(Op(6)), (Some(asker(2)), vec![]));
    }

    #[test]
    fn an_end_of_service_tells_unknown_from_refused() {
        let mut host = serving();
        assert!(host.queue(asker(1), Bytes::new()));
        assert!(host.queue(asker(2), Bytes::new()));
        host.accepted(Op(1));
        let (unknown, refused) = ((asker(1), Bytes::new()), (asker(2), Bytes::new()));
        assert_eq!(host.serve(false), (vec![unknown], vec![refused]));
        assert!(!host.queue(asker(3), Bytes::new()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut host = serving();
        for ticket in 0..METADATA_COMMANDS_QUEUED_MAX {
            assert!(host.queue(asker(ticket as u64), Bytes::new()));
        }
        assert!(!host.queue(asker(0), Bytes::new()));
        assert_eq!(host.refused(), Some(asker(0)));
        assert!(host.queue(asker(0), Bytes::new()));
    }

    #[test]
    fn a_proposal_that_another_operation_replaced_is_reported() {
        let mut host = serving();
        assert!(host.queue(asker(1), Bytes::new()));
        host.accepted(Op(3));
        assert_eq!(host.committed(Op(4)), (None, vec![asker(1)]));
    }

    #[test]
    fn the_feed_starts_once() {
        let mut host = MetadataHost::new(3);
        assert!(host.start_feed());
        assert!(!host.start_feed());
        assert_eq!(host.followers().collect::<Vec<_>>(), [ShardId(1), ShardId(2)]);
    }
}
