//! Whether the nodes of a world hold the same.

use crate::world::{Node, World};
use borzoi_shard::lane::api::ConsumerKey;
use borzoi_types::{Duration, LogId, Offset};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Waits until every running node has applied the same of every lane, and checks that their
    /// partitions agree: offsets, bytes, consumers' offsets.
    pub fn check_replicas_agree(&mut self) {
        let same = self.until(Duration::from_secs(10), |world| {
            let positions: BTreeSet<_> = world.running().map(positions).collect();
            positions.len() == 1
        });
        let all: Vec<_> =
            self.running().map(|node| (node.options.replica, positions(node))).collect();
        assert!(same, "replicas do not come to the same point: {all:?}");
        let contents: Vec<_> = self.running().map(contents).collect();
        for other in &contents[1..] {
            assert_eq!(contents[0], *other, "replicas agree");
        }
    }
}

fn positions(node: &Node) -> BTreeMap<LogId, u64> {
    let mut positions = BTreeMap::new();
    for shard in &node.shards {
        for lane in shard.back().lanes() {
            positions.insert(lane.log(), lane.state().applied().0);
        }
        positions.insert(LogId::METADATA, node.shards[0].front().metadata().applied().0);
    }
    positions
}

type Content = (u64, u64, Option<Offset>, Vec<(ConsumerKey, Offset)>);

fn contents(node: &Node) -> BTreeMap<(LogId, u64), Content> {
    let mut contents = BTreeMap::new();
    for lane in node.shards.iter().flat_map(|shard| shard.back().lanes()) {
        for (key, partition) in lane.state().partitions() {
            let counters = partition.counters();
            let offsets = partition.offsets().collect();
            let content = (counters.messages, counters.bytes, counters.current_offset, offsets);
            contents.insert((lane.log(), key.0), content);
        }
    }
    contents
}
