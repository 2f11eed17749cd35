//! What a committed operation does: apply, answer who waits, wake what waited for it.

use super::Lane;
use super::admission::send_key;
use super::api::{ConsumerKey, LaneReply, Origin, Refusal};
use super::operation::{self, Entry};
use super::reads::Poll;
use super::state::Outcome;
use crate::back::shared::Shared;
use crate::log_host::is_for_user;
use borzoi_consensus::Prepare;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{GroupId, Offset, Op, PartitionKey};

impl Lane {
    /// Applies a committed operation and answers who waits for it.
    pub(super) fn committed(&mut self, prepare: &Prepare, shared: &mut Shared) {
        let op = prepare.header.op;
        self.applied = prepare.header.anchor();
        self.counters.committed += 1;
        if !is_for_user(prepare) {
            self.state.apply_nothing(op);
            self.apply_loss(prepare.header.kind, &prepare.body, shared);
            return self.settle_confirmed(shared);
        }
        let entries = operation::decode(&prepare.body).expect("checked at boot and when prepared");
        let mut removed = Vec::new();
        let outcomes = self.state.apply(op, &entries, &mut shared.cache, &mut removed);
        assert_eq!(outcomes.len(), entries.len());
        for mut log in removed {
            shared.note_unwritten(log.unwritten_change());
            self.removed.insert(log.key(), log);
        }
        self.answer_waiters(op, &entries, &outcomes, shared);
        for (entry, outcome) in entries.iter().zip(&outcomes) {
            self.after_entry(op, entry, *outcome, shared);
        }
        self.settle_confirmed(shared);
        shared.work.insert(self.log);
    }

    fn answer_waiters(
        &mut self,
        op: Op,
        entries: &[Entry],
        outcomes: &[Outcome],
        shared: &mut Shared,
    ) {
        if self.in_flight.front().is_none_or(|in_flight| in_flight.op != op) {
            return;
        }
        let in_flight = self.in_flight.pop_front().expect("just seen");
        for waiter in &in_flight.waiters {
            let (entry, outcome) = (&entries[waiter.entry], outcomes[waiter.entry]);
            if let Some(poll) = waiter.poll {
                self.poll_admitted(entry.key(), waiter.origin, poll, outcome, shared);
            } else {
                shared.reply(waiter.origin, self.reply_for(op, entry, outcome));
            }
        }
    }

    /// The generation of a poll is in the log: goes on with it, unless a later one was seen first.
    fn poll_admitted(
        &mut self,
        key: PartitionKey,
        origin: Origin,
        poll: Poll,
        outcome: Outcome,
        shared: &mut Shared,
    ) {
        match outcome {
            // A later entry of the same operation may have removed the partition.
            Outcome::Done | Outcome::NewConsumer if self.state.partition(key).is_some() => {
                self.poll(key, origin, poll, shared);
            }
            Outcome::Fenced => {
                self.counters.fenced += 1;
                shared.reply(origin, LaneReply::Refused(Refusal::NotOwner));
                self.poll_ended(key, &poll, shared);
            }
            _ => self.answer_deleted(origin, self.state.deleted_by(), shared),
        }
    }

    fn reply_for(&self, op: Op, entry: &Entry, outcome: Outcome) -> LaneReply {
        match outcome {
            Outcome::Sent { base_offset, .. } if planted::is(Bug::WrongConfirmation) => {
                LaneReply::Sent { base_offset: base_offset.next(), op }
            }
            Outcome::Sent { base_offset, .. } => LaneReply::Sent { base_offset, op },
            Outcome::OffsetNotFound => LaneReply::Refused(Refusal::OffsetNotFound),
            Outcome::Fenced => LaneReply::Refused(Refusal::NotOwner),
            Outcome::KeyDeleted => LaneReply::KeyDeleted { by: self.state.deleted_by() },
            Outcome::Done | Outcome::NewConsumer => {
                let stores =
                    matches!(entry, Entry::StoreOffset { .. } | Entry::DeleteOffset { .. });
                assert!(stores, "nobody waits for an entry of another kind");
                LaneReply::Stored
            }
        }
    }

    /// What follows from one applied entry beside the answer.
    fn after_entry(&mut self, op: Op, entry: &Entry, outcome: Outcome, shared: &mut Shared) {
        match entry {
            Entry::Batch { key, count, identity, .. } => {
                let resends =
                    identity.and_then(|identity| self.sends.remove(&send_key(&identity, *key)));
                for origin in resends.unwrap_or_default() {
                    shared.reply(origin, self.reply_for(op, entry, outcome));
                }
                if let Outcome::Sent { chunk_closed, segment_closed, .. } = outcome {
                    self.counters.batches += 1;
                    self.counters.messages += u64::from(*count);
                    if chunk_closed {
                        self.flush_wanted.insert(*key);
                    }
                    if segment_closed {
                        self.note_retention(*key);
                    }
                }
            }
            Entry::StoreOffset { key, consumer, offset, auto_commit, .. } => {
                self.after_store(*key, *consumer, auto_commit.then_some(*offset), shared);
                if outcome == Outcome::NewConsumer {
                    self.note_group(*key, shared);
                }
            }
            Entry::Generation { key, .. } => {
                if outcome == Outcome::NewConsumer {
                    self.note_group(*key, shared);
                }
            }
            Entry::DeleteOffset { key, .. } | Entry::GroupDeleted { key, .. } => {
                self.retention.offset_moved(*key);
            }
            Entry::Truncate { key, .. }
            | Entry::Options { key, .. }
            | Entry::DeleteSegments { key, .. } => self.note_retention(*key),
            Entry::Create { key, .. } => self.after_create(*key, shared),
            Entry::Delete { key, by } => self.after_delete(*key, *by, shared),
            Entry::Purge { key, new_key, by } => {
                self.after_delete(*key, *by, shared);
                self.after_create(*new_key, shared);
            }
            Entry::OffsetJump { key, .. } => {
                self.flush_wanted.insert(*key);
                self.note_retention(*key);
            }
            Entry::SessionExpired { .. } => {}
        }
    }

    /// An offset was stored, or refused; `auto_commit` is what an automatic store carried.
    fn after_store(
        &mut self,
        key: PartitionKey,
        consumer: ConsumerKey,
        auto_commit: Option<Offset>,
        shared: &mut Shared,
    ) {
        if let Some(offset) = auto_commit
            && let Some(partition) = self.state.partition_mut(key)
            && partition.auto_committed(consumer, offset)
        {
            self.auto_commits.insert((key, consumer));
        }
        self.retention.offset_moved(key);
        if let ConsumerKey::Group(group) = consumer {
            self.drained(key, group, shared);
        }
    }

    /// Something is kept of a consumer that nothing was kept of. If it is a group that has been
    /// deleted meanwhile, the reconciler removes that again.
    fn note_group(&mut self, key: PartitionKey, shared: &mut Shared) {
        if self.serving {
            self.new_groups.insert(key);
            shared.reconcile_wanted = true;
        }
    }

    /// Early requests of the partition are submitted again, in the order they came and before
    /// anything that comes later.
    fn after_create(&mut self, key: PartitionKey, shared: &mut Shared) {
        self.create_planned = self.create_planned.max(key);
        self.creating.remove(&key);
        let parked = shared.parking.take(key);
        shared.unparked.extend(parked);
    }

    fn after_delete(&mut self, key: PartitionKey, by: Op, shared: &mut Shared) {
        self.closing.remove(&key);
        self.reservations.remove(key);
        self.flush_wanted.remove(&key);
        self.retention.forget(key);
        let waiting: Vec<Origin> = self.deleted_waiters.remove(&key).unwrap_or_default();
        for origin in waiting.into_iter().chain(self.draining.forget(key)) {
            shared.reply(origin, LaneReply::KeyDeleted { by });
        }
    }

    /// Answers who waits for a group to have committed all it was given, if it has.
    fn drained(&mut self, key: PartitionKey, group: GroupId, shared: &mut Shared) {
        let committed = self.committed_of(key, group);
        let drained = self.draining.take_drained(key, group, committed);
        self.answer_drained(&drained, shared);
    }

    /// What a group has committed of a partition.
    pub(super) fn committed_of(&self, key: PartitionKey, group: GroupId) -> Option<Offset> {
        self.state.partition(key)?.offset(ConsumerKey::Group(group))
    }

    pub(super) fn answer_drained(&self, waiting: &[Origin], shared: &mut Shared) {
        for origin in waiting {
            shared.reply(*origin, LaneReply::Drained);
        }
    }
}
