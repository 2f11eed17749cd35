//! What must hold over a whole run, whatever happens. Each check names what it watches.

use super::disk::Disk;
use borzoi_consensus::{Anchor, Message, Prepare, Quorums};
use borzoi_types::{Op, View};
use std::collections::{BTreeMap, BTreeSet};

/// Facts about the whole cluster's history.
#[derive(Debug, Default)]
pub struct Checks {
    primaries: BTreeMap<View, usize>,
    committed: BTreeMap<Op, u128>,
    confirmed: BTreeMap<u64, Op>,
    bodies: BTreeSet<u64>,
    /// What each node's journal has held, whatever was injected later.
    held: BTreeSet<(Op, u128, usize)>,
    /// Operations a declared loss took back; counted, and empty unless the run allows losses.
    pub losses_allowed: bool,
    pub looked: u64,
}

impl Checks {
    /// One primary per view.
    pub fn primary(&mut self, view: View, node: usize) {
        let first = *self.primaries.entry(view).or_insert(node);
        assert_eq!(first, node, "{view:?} has two primaries");
        self.looked += 1;
    }

    /// Committed never changes; logs agree by op and checksum; the first commit of an operation
    /// finds a replication quorum holding it.
    pub fn commit(&mut self, prepare: &Prepare, disks: &[&Disk]) {
        let anchor = prepare.header.anchor();
        self.looked += 1;
        if let Some(checksum) = self.committed.get(&anchor.op) {
            if !self.losses_allowed {
                assert_eq!(*checksum, anchor.checksum, "{:?} committed twice", anchor.op);
            }
            return;
        }
        let quorum = usize::from(Quorums::of(disks.len() as u8).replication);
        let covered = |disk: &Disk| disk.checkpoint().is_some_and(|c| c.op >= anchor.op);
        let holders = disks.iter().enumerate().filter(|(node, disk)| {
            covered(disk) || self.held.contains(&(anchor.op, anchor.checksum, *node))
        });
        let holders = holders.count();
        if !self.losses_allowed {
            assert!(holders >= quorum, "{:?} committed with {holders} holders", anchor.op);
            let expected = self.committed.last_key_value().map_or(1, |(op, _)| op.get() + 1);
            assert_eq!(anchor.op.get(), expected, "commits are contiguous over the cluster");
        }
        self.committed.insert(anchor.op, anchor.checksum);
    }

    /// A confirmed request is committed once, for ever.
    pub fn confirm(&mut self, id: u64, op: Op) {
        let first = *self.confirmed.entry(id).or_insert(op);
        assert_eq!(first, op, "request {id} confirmed at two positions");
        assert!(self.bodies.contains(&id), "request {id} was never proposed");
    }

    pub fn held(&mut self, node: usize, anchor: Anchor) {
        self.held.insert((anchor.op, anchor.checksum, node));
    }

    pub fn proposed(&mut self, id: u64) {
        self.bodies.insert(id);
    }

    pub fn confirmed_count(&self) -> usize {
        self.confirmed.len()
    }

    pub fn committed_max(&self) -> Op {
        self.committed.last_key_value().map_or(Op::ZERO, |(op, _)| *op)
    }

    /// Durable before sent: views before they are advertised, operations before they are
    /// acknowledged.
    pub fn sent(&mut self, message: &Message, disk: &Disk, written_counts: bool) {
        self.looked += 1;
        let (durable_view, durable_log_view) = disk.durable_view();
        if let Some(view) = message.view() {
            assert!(view <= durable_view, "{view:?} advertised before {durable_view:?} durable");
        }
        match message {
            Message::PrepareOk { view, held, .. } => {
                assert_eq!(*view, durable_log_view, "acknowledged before the log was adopted");
                let root = held.op == Op::ZERO;
                assert!(root || disk.holds(*held, written_counts), "{held:?} acknowledged early");
            }
            Message::StartView(start) => assert_eq!(start.view, durable_log_view),
            Message::DoViewChange(dvc) => assert_eq!(dvc.log_view, durable_log_view),
            _ => {}
        }
    }

    /// At the end every node has the same committed log.
    pub fn final_log(&self, node: usize, applied: &BTreeMap<Op, u128>) {
        if self.losses_allowed {
            return;
        }
        for (op, checksum) in applied {
            assert_eq!(self.committed.get(op), Some(checksum), "node {node} differs at {op:?}");
        }
    }
}
