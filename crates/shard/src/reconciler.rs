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
//! - What a lane keeps of a consumer group goes when metadata does not have the group any more,
//!   also when it was stored after the deletion: whatever is kept first is compared with metadata.

use crate::back::shared::Shared;
use crate::lane::Lane;
use crate::lane::api::LaneReply;
use crate::lane::operation::{Entry, PartitionOptions, Retention};
use borzoi_metadata::{Desired, Metadata, PartitionRecord, SIZE_UNLIMITED, Topic};
use borzoi_types::limits::FRAME_BYTES_MAX;
use borzoi_types::{GroupId, Op, PartitionKey, SessionId};
use std::collections::BTreeSet;

impl Lane {
    /// Whether a pass over `metadata` may find something to do.
    #[must_use]
    pub fn wants_reconcile(&self, metadata: &Metadata, shared: &Shared) -> bool {
        self.is_serving()
            && (self.reconciled != Some(metadata.applied())
                || !self.new_groups.is_empty()
                || shared.parking.holds_lane(self.log))
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
                        self.plan_changes_of(key, metadata);
                    }
                }
                None => {
                    self.plan_all_changes(metadata);
                    self.plan_session_ends(metadata);
                }
            }
            self.reconciled = Some(applied);
        }
        for key in core::mem::take(&mut self.new_groups) {
            self.plan_group_ends(key, metadata);
        }
        self.answer_parked(metadata, shared);
        if !self.planned.is_empty() {
            shared.work.insert(self.log);
        }
        self.settle_confirmed(shared);
    }

    fn plan_all_changes(&mut self, metadata: &Metadata) {
        let existing = self.state.partitions().map(|(key, _)| key);
        let keys: BTreeSet<PartitionKey> = existing.chain(self.creating.keys().copied()).collect();
        for key in keys {
            self.plan_changes_of(key, metadata);
        }
    }

    /// What metadata wants of a key that exists here or is about to.
    fn plan_changes_of(&mut self, key: PartitionKey, metadata: &Metadata) {
        self.plan_delete_if_gone(key, metadata);
        if self.closing.contains_key(&key) {
            return;
        }
        self.plan_options(key, metadata);
        self.plan_wishes(key, metadata);
        self.plan_group_ends(key, metadata);
    }

    /// What the options of the topic come to, if the partition has something else.
    fn plan_options(&mut self, key: PartitionKey, metadata: &Metadata) {
        let has = match (self.creating.get(&key), self.state.partition(key)) {
            (Some(carried), _) => *carried,
            (None, Some(partition)) => partition.options.retention,
            (None, None) => return,
        };
        let Some(topic) = metadata.topic_of(key) else { return };
        let (retention, by) = (retention_of(topic), metadata.applied());
        if retention != has {
            self.planned.push_back(Entry::Options { key, retention, by });
            if let Some(carried) = self.creating.get_mut(&key) {
                *carried = retention;
            }
        }
    }

    /// Segment deletions that were not applied yet. One that is planned twice changes nothing the
    /// second time.
    fn plan_wishes(&mut self, key: PartitionKey, metadata: &Metadata) {
        let Some(partition) = self.state.partition(key) else { return };
        let applied = partition.state().wish_op;
        let wishes = metadata.segment_wishes(key).filter(|(by, _)| *by > applied);
        self.planned.extend(wishes.map(|(by, count)| Entry::DeleteSegments { key, count, by }));
    }

    /// Groups that something is kept of and that metadata does not have.
    fn plan_group_ends(&mut self, key: PartitionKey, metadata: &Metadata) {
        let Some(partition) = self.state.partition(key) else { return };
        let Some(topic) = metadata.topic_of(key) else { return };
        // A number that this metadata has not handed out yet proves nothing.
        let ended =
            |group: &GroupId| *group < topic.next_group && !topic.groups.contains_key(group);
        let ended = partition.groups().into_iter().filter(ended);
        self.planned.extend(ended.map(|group| Entry::GroupDeleted { key, group }));
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
        let exists = self.state.partition(key).is_some() || self.creating.contains_key(&key);
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
            let options = options_of(record, topic, metadata.applied());
            assert!(record.key > self.create_planned, "keys rise");
            let (key, by) = (record.key, metadata.applied());
            self.create_planned = key;
            let replaced = record
                .replaces
                .filter(|old| !self.closing.contains_key(old))
                .and_then(|old| Some((old, self.state.partition(old)?.options.retention)));
            // What replaces a partition begins with that one's options.
            let carried = replaced.map_or(options.retention, |(_, carried)| carried);
            self.creating.insert(key, carried);
            self.planned.push_back(match replaced {
                Some((old, _)) => {
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
            if self.creating.contains_key(&key) {
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

fn options_of(record: &PartitionRecord, topic: &Topic, by: Op) -> PartitionOptions {
    PartitionOptions {
        segment_bytes: topic.options.segment_size,
        partition: record.place.partition,
        retention: retention_of(topic),
        options_op: by,
    }
}

/// A topic's limit is shared by its partitions; each may keep a segment and a frame, so that a
/// small limit does not delete what has just been written (behaviour, section 16).
fn retention_of(topic: &Topic) -> Retention {
    let (limit, segment) = (topic.options.max_topic_size, topic.options.segment_size);
    let bytes_max = if limit == SIZE_UNLIMITED {
        u64::MAX
    } else {
        let share = limit / u64::from(topic.partition_count().max(1));
        share.max(segment + FRAME_BYTES_MAX as u64)
    };
    Retention { message_expiry: topic.options.message_expiry, bytes_max }
}
