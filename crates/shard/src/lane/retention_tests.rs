//! Which partitions are looked at when, and what is cut off.

use super::*;
use crate::lane::api::ConsumerKey;
use crate::lane::operation::{PartitionOptions, Retention};
use crate::lane::state::LaneState;
use borzoi_metadata::EXPIRY_NEVER;
use borzoi_storage::cache::{CacheOptions, SegmentCache};
use borzoi_types::{Offset, Op, PartitionId};
use borzoi_wire::batch::{MessageId, NewMessage, encode_batch, stamp};
use bytes::BytesMut;

const KEY: PartitionKey = PartitionKey(1);
const READER: ConsumerKey = ConsumerKey::Consumer(9);

/// One partition of a lane whose segments hold a single batch each.
struct World {
    state: LaneState,
    cache: SegmentCache,
}

impl World {
    fn new(retention: Retention) -> Self {
        let mut world =
            Self { state: LaneState::default(), cache: SegmentCache::new(CacheOptions::default()) };
        let options = PartitionOptions {
            segment_bytes: 1,
            partition: PartitionId(0),
            retention,
            options_op: Op(1),
        };
        world.apply(Entry::Create { key: KEY, options, by: Op(1) });
        world
    }

    fn apply(&mut self, entry: Entry) {
        let op = self.state.applied().next();
        self.state.apply(op, &[entry], &mut self.cache, &mut Vec::new());
    }

    fn partition(&self) -> &Partition {
        self.state.partition(KEY).unwrap()
    }

    /// A message appended at `time`, in a segment of its own.
    fn append(&mut self, time: u64) {
        let message = NewMessage {
            id: MessageId(1),
            payload: b"0123456789",
            origin_timestamp: Micros(1),
            user_headers: &[],
        };
        let mut bytes = Vec::new();
        encode_batch(&[message], &mut bytes).unwrap();
        let mut batch = BytesMut::from(&bytes[..]);
        let base_offset = self.partition().log.next_offset();
        stamp(&mut batch, PartitionId(0), base_offset, Micros(time)).unwrap();
        let (key, count, identity) = (KEY, 1, None);
        self.apply(Entry::Batch { key, base_offset, count, identity, batch: batch.freeze() });
    }

    fn store(&mut self, offset: u64) {
        let (key, consumer, offset) = (KEY, READER, Offset(offset));
        let (auto_commit, generation, persisted) = (false, 0, false);
        self.apply(Entry::StoreOffset {
            key,
            consumer,
            offset,
            auto_commit,
            generation,
            persisted,
        });
    }

    fn cut(&self, now: u64) -> Option<Offset> {
        self.partition().retention_cut(Micros(now), true, 16)
    }

    fn first(&self) -> Offset {
        self.partition().log.first_offset()
    }
}

fn expiring(message_expiry: u64) -> Retention {
    Retention { message_expiry: Micros(message_expiry), bytes_max: u64::MAX }
}

#[test]
fn a_closed_segment_goes_when_it_is_older_than_the_expiry_and_not_a_moment_before() {
    let mut world = World::new(expiring(100));
    for time in [1_000, 1_010, 1_050] {
        world.append(time);
    }
    assert_eq!(world.partition().expires(), Some(Micros(1_101)));
    assert_eq!(world.cut(1_100), None);
    assert_eq!(world.cut(1_101), Some(Offset(1)));
    assert_eq!(world.cut(1_150), Some(Offset(2)));
    // A partition that never expires is never looked at for it.
    world.apply(Entry::Options { key: KEY, retention: Retention::NONE, by: Op(2) });
    assert_eq!((world.partition().expires(), world.cut(u64::MAX)), (None, None));
    assert_eq!(Retention::NONE.message_expiry, EXPIRY_NEVER);
}

#[test]
fn the_oldest_segments_go_until_the_closed_ones_fit() {
    let mut world = World::new(Retention::NONE);
    for time in 0..4 {
        world.append(time);
    }
    let each = world.partition().log.closed_segments()[0].bytes;
    let limit = |bytes_max, by| Entry::Options {
        key: KEY,
        retention: Retention { message_expiry: EXPIRY_NEVER, bytes_max },
        by: Op(by),
    };
    world.apply(limit(4 * each, 2));
    assert!(!world.partition().has_excess());
    assert_eq!(world.cut(0), None, "at the limit");
    world.apply(limit(4 * each - 1, 3));
    assert!(world.partition().has_excess());
    assert_eq!(world.cut(0), Some(Offset(1)), "one byte past it");
    world.apply(limit(each, 4));
    assert_eq!(world.cut(0), Some(Offset(3)));
    assert_eq!(world.partition().retention_cut(Micros(0), true, 2), Some(Offset(2)), "the pace");
    assert_eq!(world.partition().retention_cut(Micros(0), false, 2), None, "turned off");
    world.apply(limit(4 * each, 3));
    assert_eq!(world.cut(0), Some(Offset(3)), "an older operation changes no options");
}

#[test]
fn nothing_goes_that_a_consumer_has_not_passed_also_when_it_went_back_meanwhile() {
    let mut world = World::new(expiring(1));
    for time in 0..4 {
        world.append(time);
    }
    world.store(0);
    assert_eq!(world.cut(100), Some(Offset(1)));
    world.store(2);
    assert_eq!(world.cut(100), Some(Offset(3)));
    // The consumer goes back while the truncation is on its way.
    world.store(1);
    world.apply(Entry::Truncate { key: KEY, first: Offset(3) });
    assert_eq!(world.first(), Offset(2));
    assert_eq!(world.partition().current_offset(), Some(Offset(3)));
    let (consumer, generation) = (READER, 0);
    world.apply(Entry::DeleteOffset { key: KEY, consumer, generation });
    assert_eq!(world.cut(100), Some(Offset(4)));
    world.apply(Entry::Truncate { key: KEY, first: Offset(4) });
    assert_eq!(world.partition().counters().messages, 0);
    assert_eq!(world.partition().current_offset(), Some(Offset(3)), "unaffected by deletion");
    assert_eq!(world.partition().log.next_offset(), Offset(4));
}

#[test]
fn a_wish_is_applied_once_and_what_consumers_hold_back_goes_later() {
    let mut world = World::new(Retention::NONE);
    for time in 0..5 {
        world.append(time);
    }
    world.store(0);
    let wish = |count, by| Entry::DeleteSegments { key: KEY, count, by: Op(by) };
    world.apply(wish(3, 10));
    assert_eq!(world.first(), Offset(1), "what may go goes at once");
    world.apply(wish(1, 10));
    assert_eq!(world.partition().state().delete_through, Offset(3), "the same wish again");
    assert_eq!(world.cut(0), None);
    world.store(1);
    assert_eq!(world.partition().retention_cut(Micros(0), false, 16), Some(Offset(2)));
    world.store(4);
    assert_eq!(world.cut(0), Some(Offset(3)), "no more than was wished");
    world.apply(Entry::Truncate { key: KEY, first: Offset(3) });
    world.apply(wish(100, 11));
    assert_eq!(world.first(), Offset(5), "fewer than asked is fine");
    world.apply(wish(1, 12));
    assert_eq!(world.first(), Offset(5), "nothing to delete");
}

#[test]
fn a_partition_is_looked_at_when_it_expires_or_has_excess_or_its_consumer_moved() {
    let mut index = RetentionIndex::default();
    let mut world = World::new(expiring(100));
    index.note(KEY, world.partition());
    assert!(!index.waits(), "nothing is closed");
    world.append(1_000);
    index.note(KEY, world.partition());
    assert!(index.waits() && index.take(Micros(1_100)).is_empty());
    assert_eq!(index.take(Micros(1_101)), [KEY].into());
    assert!(!index.waits(), "once");
    index.held.insert(KEY);
    assert!(!index.waits_little());
    index.offset_moved(KEY);
    assert!(index.waits_little());
    index.offset_moved(KEY);
    assert_eq!(index.take(Micros(0)), [KEY].into());
    assert!(!index.waits_little());

    let retention = Retention { message_expiry: EXPIRY_NEVER, bytes_max: 0 };
    world.apply(Entry::Options { key: KEY, retention, by: Op(2) });
    index.note(KEY, world.partition());
    assert!(index.due.is_empty() && index.waits(), "too much is there at once");
    index.forget(KEY);
    assert!(!index.waits());
}

#[test]
fn former_owners_are_refused_from_the_moment_a_later_generation_is_applied() {
    use crate::lane::state::Outcome;
    use borzoi_types::GroupId;
    let mut world = World::new(Retention::NONE);
    world.append(0);
    world.append(1);
    let group = GroupId(3);
    let consumer = ConsumerKey::Group(group);
    let mut outcome = |entry| {
        let op = world.state.applied().next();
        let outcomes = world.state.apply(op, &[entry], &mut world.cache, &mut Vec::new());
        outcomes[0]
    };
    let store = |offset, generation| Entry::StoreOffset {
        key: KEY,
        consumer,
        offset: Offset(offset),
        auto_commit: false,
        generation,
        persisted: false,
    };
    assert_eq!(outcome(store(0, 2)), Outcome::NewConsumer);
    assert_eq!(outcome(store(1, 2)), Outcome::Done);
    assert_eq!(outcome(Entry::Generation { key: KEY, group, generation: 5 }), Outcome::Done);
    assert_eq!(outcome(store(0, 4)), Outcome::Fenced);
    let delete = |generation| Entry::DeleteOffset { key: KEY, consumer, generation };
    assert_eq!(outcome(delete(4)), Outcome::Fenced);
    assert_eq!(outcome(Entry::Generation { key: KEY, group, generation: 4 }), Outcome::Fenced);
    assert_eq!(outcome(store(0, 5)), Outcome::Done);
    assert_eq!(outcome(delete(6)), Outcome::Done);
    assert_eq!(outcome(store(0, 5)), Outcome::Fenced, "a deletion raises it too");
    assert_eq!(outcome(Entry::GroupDeleted { key: KEY, group }), Outcome::Done);
    assert_eq!(outcome(store(0, 1)), Outcome::NewConsumer, "nothing is left of it");
}
