//! Keeps the partitions of a lane in step with what metadata assigns to it (architecture, section
//! 8; required behaviours B1, B9, B10).
//!
//! Level triggered, on the lane's primary: compares what committed metadata wants with what the
//! lane's log has created, and plans operations for the difference. Metadata tells which keys
//! changed since the last pass, so a pass costs what changed; the first pass after this replica
//! began to serve looks at everything.
//!
//! Invariants:
//! - A delete is planned only on proof: the key is absent *and* below the key counter of the
//!   metadata in hand. A copy that lags proves nothing, and nothing is deleted by it.
//! - Creates are planned in key order, none twice; a create in flight is followed, never preceded,
//!   by the delete of the same key.

use crate::back::shared::Shared;
use crate::lane::Lane;
use crate::lane::api::LaneReply;
use crate::lane::operation::{Entry, PartitionOptions};
use borzoi_metadata::{Desired, Metadata, PartitionRecord};
use borzoi_types::{Op, PartitionKey, SessionId};
use std::collections::BTreeSet;

impl Lane {
    /// Whether a pass over `metadata` may find something to do.
    #[must_use]
    pub fn wants_reconcile(&self, metadata: &Metadata, shared: &Shared) -> bool {
        self.is_serving()
            && (self.reconciled != Some(metadata.applied()) || shared.parking.holds_lane(self.log))
    }

    /// One pass.
    pub fn reconcile(&mut self, metadata: &Metadata, shared: &mut Shared) {
        assert!(self.is_serving(), "only the primary plans operations");
        let applied = metadata.applied();
        assert!(self.reconciled.is_none_or(|before| before <= applied), "metadata goes forward");
        if self.reconciled != Some(applied) {
            let changed: Option<Vec<PartitionKey>> = self.reconciled.and_then(|since| {
                let changes = metadata.lane_changes(self.log, since)?;
                Some(changes.map(|(_, key)| key).collect())
            });
            // Creates first: a purge replaces a key, and a key created and deleted since the last
            // pass is deleted after it was created.
            self.plan_creates(metadata);
            match changed {
                Some(keys) => {
                    for key in keys {
                        self.plan_delete_if_gone(key, metadata);
                    }
                }
                None => {
                    self.plan_all_deletes(metadata);
                    self.plan_session_ends(metadata);
                }
            }
            self.reconciled = Some(applied);
        }
        self.answer_parked(metadata, shared);
        if !self.planned.is_empty() {
            shared.work.insert(self.log);
        }
    }

    fn plan_all_deletes(&mut self, metadata: &Metadata) {
        let keys: Vec<PartitionKey> = self.state.partitions().map(|(key, _)| key).collect();
        for key in keys {
            self.plan_delete_if_gone(key, metadata);
        }
    }

    /// Windows of sessions that ended while nobody led this lane. A number that this metadata
    /// cannot know yet proves nothing.
    fn plan_session_ends(&mut self, metadata: &Metadata) {
        let live: BTreeSet<SessionId> =
            metadata.sessions().iter().map(|session| session.first).collect();
        let known = |session: &SessionId| session.0 <= metadata.applied().0;
        let ended = self.state.windows().ids().filter(known).filter(|id| !live.contains(id));
        let ended: Vec<Entry> = ended.map(|session| Entry::SessionExpired { session }).collect();
        self.planned.extend(ended);
    }

    fn plan_delete_if_gone(&mut self, key: PartitionKey, metadata: &Metadata) {
        let exists = self.state.partition(key).is_some() || self.creating.contains(&key);
        if !exists || self.closing.contains_key(&key) {
            return;
        }
        let Desired::Deleted { by } = metadata.desired(self.log, key) else { return };
        assert!(key < metadata.next_key(), "absence below the counter is proof");
        self.closing.insert(key, by);
        self.planned.push_back(Entry::Delete { key, by });
    }

    /// Every key above the highest one planned, in order.
    fn plan_creates(&mut self, metadata: &Metadata) {
        let from = self.create_planned.next();
        for record in metadata.partitions_of_lane(self.log, from) {
            let topic = metadata.topic_of(record.key).expect("a partition has a topic");
            let options = options_of(record, topic.options.segment_size);
            assert!(record.key > self.create_planned, "keys rise");
            let (key, by) = (record.key, metadata.applied());
            self.create_planned = key;
            self.creating.insert(key);
            let replaced = record.replaces.filter(|old| {
                self.state.partition(*old).is_some() && !self.closing.contains_key(old)
            });
            self.planned.push_back(match replaced {
                Some(old) => {
                    self.closing.insert(old, by);
                    Entry::Purge { key: old, new_key: key, by }
                }
                None => Entry::Create { key, options, by },
            });
        }
    }

    /// Early requests whose partition was deleted before this lane ever had it are answered.
    fn answer_parked(&mut self, metadata: &Metadata, shared: &mut Shared) {
        for key in shared.parking.keys_of(self.log) {
            if self.creating.contains(&key) {
                continue;
            }
            let Desired::Deleted { by } = metadata.desired(self.log, key) else { continue };
            for request in shared.parking.take(key) {
                shared.reply(request.origin, LaneReply::KeyDeleted { by });
            }
        }
    }

    /// Metadata operation up to which this lane's partitions are known to be what metadata wants.
    #[must_use]
    pub fn reconciled(&self) -> Option<Op> {
        self.reconciled.filter(|_| self.planned.is_empty())
    }
}

const fn options_of(record: &PartitionRecord, segment_bytes: u64) -> PartitionOptions {
    PartitionOptions { segment_bytes, partition: record.place.partition }
}
