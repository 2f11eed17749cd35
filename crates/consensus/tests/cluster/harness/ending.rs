//! The end of a run: everything heals, and the group must serve and agree.

use super::world::{MS, Node, World};
use borzoi_consensus::Replica;

impl World {
    /// Heals everything and demands that the cluster serves and agrees within `ms`.
    pub fn converge(&mut self, ms: u64) {
        self.heal();
        self.config.loss_percent = 0;
        self.config.duplicate_percent = 0;
        self.config.delay_us = (100, 500);
        self.config.flush_us = (200, 3_000);
        for index in 0..self.nodes.len() {
            self.nodes[index].paused_until = 0;
            if self.nodes[index].disk.stuck {
                self.unstick(index);
            }
            if !self.is_up(index) {
                self.start(index);
            }
        }
        if !self.serves_and_agrees_within(ms) {
            self.accept_safe_stop(ms);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            self.checks.final_log(index, &node.applied);
        }
    }

    fn serves_and_agrees_within(&mut self, ms: u64) -> bool {
        let before = self.checks.committed_max();
        let until = self.now + ms * MS;
        while self.now < until {
            self.run_ms(20);
            self.propose();
            let risen = self.checks.committed_max().get() > before.get() + 20;
            if risen && self.agrees() && self.serving().is_some() {
                self.run_ms(1_000);
                return self.agrees();
            }
        }
        false
    }

    /// A group whose journals are damaged where nothing intact says what was there may have to
    /// stop: nobody serves, and an operator decides. Anything else is a failure.
    fn accept_safe_stop(&mut self, ms: u64) {
        let untrusted = |node: &Node| node.replica.as_ref().is_some_and(Replica::must_learn);
        let expected = self.damage_injected && self.nodes.iter().any(untrusted);
        assert!(expected, "not served or not agreed after {ms} ms: {}", self.describe());
        assert!(self.serving().is_none(), "a stop is a stop: {}", self.describe());
        self.safe_stops += 1;
        self.config.accept_loss = true;
        self.checks.losses_allowed = true;
        for index in 0..self.nodes.len() {
            self.crash(index, false);
            self.start(index);
        }
        assert!(self.serves_and_agrees_within(ms), "accepted, yet: {}", self.describe());
    }

    fn agrees(&self) -> bool {
        let max = self.checks.committed_max().get();
        self.nodes
            .iter()
            .filter_map(|node| node.replica.as_ref())
            .all(|replica| replica.commit().get() + 100 > max && !replica.must_learn())
    }

    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(r) = &node.replica else {
                text += &format!("\n  {index}: down");
                continue;
            };
            text += &format!(
                "\n  {index}: {:?} log_view {} commit {}/{} held {} head {} released {} \
                 learn {} {:?}",
                r.role(),
                r.log_view(),
                r.commit(),
                r.commit_known(),
                r.held(),
                r.head(),
                r.released(),
                r.must_learn(),
                r.counters(),
            );
        }
        text
    }
}
