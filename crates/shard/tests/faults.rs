//! A node whose disk fails, fills up or was damaged; partitions that go and come back; stops.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use borzoi_metadata::Change;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart, Refusal};
use borzoi_storage::disk::{Directory, Disk, DiskErrorKind, DiskOperation, FileName};
use borzoi_storage::sim_disk::{Fate, Fault};
use borzoi_types::{Durability, Duration, Offset};
use support::model::{End, Model};
use support::{
    Node, Place, create_stream, create_topic, delete_topic, new_disk, options, poll_request,
    start_time, topic_name,
};

fn node_with_topics() -> (Node, Place, Place) {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("durable", 1, Durability::Persisted));
    node.command(create_topic("fast", 1, Durability::Replicated));
    node.settle();
    let durable = node.place("durable", 0).unwrap();
    let fast = node.place("fast", 0).unwrap();
    (node, durable, fast)
}

fn purge_topic(name: &str) -> Change {
    Change::PurgeTopic(topic_name(name))
}

fn send_ok(
    model: &mut Model,
    node: &mut Node,
    at: Place,
    level: Durability,
    bytes: usize,
) -> Offset {
    let ticket = model.send(node, at, level, 2, bytes);
    node.settle();
    assert_eq!(model.note_replies(node), 0, "refused");
    model.sends[&ticket].confirmed.expect("confirmed")
}

fn files(node: &mut Node, directory: Directory) -> Vec<FileName> {
    node.disk.list(directory).unwrap().files
}

#[test]
fn after_a_power_cut_or_a_kill_a_replicated_lane_goes_on_above_its_reservation() {
    let (mut node, _, fast) = node_with_topics();
    let mut model = Model::default();
    assert_eq!(send_ok(&mut model, &mut node, fast, Durability::Replicated, 10), Offset(0));
    model.life_ended(End::PowerCut);
    let image = node.disk.power_cut_and_boot([9; 16], |_| Fate::Lost);
    let mut node = Node::start(image, &options(1), node.now, 6);
    node.settle();
    // The lease is 16: the claim for offsets 0 and 1 stands at 2 + 16.
    let base = send_ok(&mut model, &mut node, fast, Durability::Replicated, 10);
    assert_eq!(base, Offset(18));
    let found = Model::read_all(&mut node, fast);
    assert!(found.keys().all(|offset| *offset < Offset(2) || *offset >= Offset(18)));
    // A process that is killed jumps as well: nothing tells it from a volume that was detached.
    let mut node = Node::start(node.disk.kill(), &options(1), node.now, 7);
    node.settle();
    assert_eq!(send_ok(&mut model, &mut node, fast, Durability::Replicated, 10), Offset(36));
}

#[test]
fn a_failed_flush_ends_the_node_without_another_confirmation() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 10);
    let (operation, kind) = (DiskOperation::Sync, DiskErrorKind::Io);
    node.disk.inject(Fault { operation, file: None, after: 0, kind, lasting: false });
    for _ in 0..3 {
        model.send(&mut node, durable, Durability::Persisted, 1, 10);
        model.send(&mut node, fast, Durability::Replicated, 1, 10);
        node.settle();
    }
    assert_eq!(node.fatal.len(), 1);
    model.note_replies(&mut node);
    let confirmed = model
        .sends
        .values()
        .filter(|send| send.level == Durability::Persisted && send.confirmed.is_some());
    assert_eq!(confirmed.count(), 1, "only what was flushed before");
    // What was confirmed is there after the restart, also when the cache is lost.
    let image = node.disk.power_cut(|_| Fate::Lost);
    model.life_ended(End::PowerCut);
    let mut node = Node::start(image, &options(1), node.now, 8);
    node.settle();
    model.check_partition(&mut node, durable, "after a failed flush");
    model.check_partition(&mut node, fast, "after a failed flush");
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_when_space_returns() {
    let (mut node, durable, _) = node_with_topics();
    let mut model = Model::default();
    let (operation, kind) = (DiskOperation::Write, DiskErrorKind::NoSpace);
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 10);
    let file = FileName::Segment { key: durable.key, base: Offset(0) };
    node.disk.inject(Fault { operation, file: Some(file), after: 0, kind, lasting: true });
    // A chunk closes and cannot be written to its segment.
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 50_000);
    let refused = model.send(&mut node, durable, Durability::Persisted, 1, 10);
    node.settle();
    assert!(matches!(node.answer(refused), LaneReply::Refused(Refusal::NoSpace)));
    model.sends.remove(&refused);
    model.check_partition(&mut node, durable, "while the disk is full");
    // Still full after the first wait: the next one is longer.
    node.pass(Duration::from_secs(1));
    node.settle();
    assert!(node.shards[0].back().shared().no_space.is_some());
    node.disk.heal();
    node.pass(Duration::from_secs(1));
    node.settle();
    assert!(node.shards[0].back().shared().no_space.is_some(), "not asked yet");
    node.pass(Duration::from_secs(1));
    node.settle();
    assert!(node.shards[0].back().shared().no_space.is_none());
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 10);
    model.check_partition(&mut node, durable, "after space returned");
    assert!(node.fatal.is_empty());
}

#[test]
fn deleting_a_topic_frees_its_space_on_a_disk_too_full_for_its_own_chunks() {
    // Deleted while a checkpoint of its lane is under way, and while none is.
    for under_way in [true, false] {
        let (mut node, durable, _) = node_with_topics();
        let mut model = Model::default();
        send_ok(&mut model, &mut node, durable, Durability::Persisted, 50_000);
        node.pass(Duration::from_secs(61));
        node.settle();
        let of_topic =
            |file: &FileName| matches!(file, FileName::Segment { key, .. } if *key == durable.key);
        assert!(files(&mut node, Directory::Segments).iter().any(of_topic));
        let (operation, kind) = (DiskOperation::Write, DiskErrorKind::NoSpace);
        let file = Some(FileName::Segment { key: durable.key, base: Offset(0) });
        node.disk.inject(Fault { operation, file, after: 0, kind, lasting: true });
        send_ok(&mut model, &mut node, durable, Durability::Persisted, 50_000);
        if under_way {
            // The wait for space is over in the same moment as the checkpoint's interval.
            node.pass(Duration::from_secs(61));
            node.settle();
            assert!(node.shards[0].back().checkpointer().active(durable.lane).is_some());
        }
        node.command(delete_topic("durable"));
        node.settle();
        for _ in 0..3 {
            node.pass(Duration::from_secs(61));
            node.settle();
        }
        let left = files(&mut node, Directory::Segments);
        assert!(!left.iter().any(of_topic), "still there: {left:?}");
        assert!(node.shards[0].back().shared().no_space.is_none());
        assert!(node.fatal.is_empty());
        let mut node = Node::start(node.disk.kill(), &options(1), node.now, 4);
        node.settle();
        assert!(node.place("durable", 0).is_none());
    }
}

#[test]
fn writes_that_fail_together_on_a_full_disk_lengthen_the_wait_once() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    for place in [durable, fast] {
        let (operation, kind) = (DiskOperation::Write, DiskErrorKind::NoSpace);
        let file = Some(FileName::Segment { key: place.key, base: Offset(0) });
        node.disk.inject(Fault { operation, file, after: 0, kind, lasting: true });
    }
    model.send(&mut node, durable, Durability::Persisted, 3, 50_000);
    model.send(&mut node, fast, Durability::Replicated, 3, 50_000);
    node.settle();
    let backoff = node.shards[0].back().shared().no_space.expect("both were refused");
    assert_eq!(backoff.next_secs, 2, "one attempt doubles the wait once");
    assert!(node.fatal.is_empty());
}

#[test]
fn a_damaged_newest_checkpoint_is_set_aside_and_the_older_one_serves() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    for _ in 0..3 {
        send_ok(&mut model, &mut node, durable, Durability::Persisted, 40_000);
        send_ok(&mut model, &mut node, fast, Durability::Replicated, 100);
        node.pass(Duration::from_secs(61));
        node.settle();
        node.pass(Duration::from_secs(61));
        node.settle();
    }
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 100);
    let newest = |node: &mut Node, at: Place| {
        let mut all = files(node, Directory::Checkpoints);
        all.retain(|file| matches!(file, FileName::Checkpoint { log, .. } if *log == at.lane));
        assert_eq!(all.len(), 2, "two are kept");
        all.pop().unwrap()
    };
    for at in [durable, fast] {
        let file = newest(&mut node, at);
        assert!(node.disk.flip_bit(&file, 200, 3));
    }
    let mut node = Node::start(node.disk.kill(), &options(1), node.now, 9);
    node.settle();
    model.check_partition(&mut node, durable, "older checkpoint");
    model.check_partition(&mut node, fast, "older checkpoint");
    assert_eq!(files(&mut node, Directory::SetAside).len(), 2);
}

#[test]
fn a_deleted_and_recreated_topic_serves_only_its_new_incarnation() {
    let (mut node, durable, _) = node_with_topics();
    let mut model = Model::default();
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 70_000);
    let gone = node.request(durable, LaneRequestKind::AwaitDeleted);
    node.command(delete_topic("durable"));
    node.command(create_topic("durable", 1, Durability::Persisted));
    // Produce to the old incarnation while it goes away.
    let late = model.send(&mut node, durable, Durability::Persisted, 1, 10);
    node.settle();
    assert!(matches!(node.answer(gone), LaneReply::KeyDeleted { .. }));
    if let Some(reply) = node.replies.remove(&late) {
        assert!(matches!(reply, LaneReply::KeyDeleted { .. } | LaneReply::Sent { .. }));
    }
    model.sends.remove(&late);
    let again = node.place("durable", 0).unwrap();
    assert!(again.key > durable.key);
    assert!(Model::read_all(&mut node, again).is_empty());
    let poll = poll_request(PollStart::First, 1, ConsumerKey::Consumer(1), false);
    let stale = node.request(durable, poll);
    node.settle();
    assert!(matches!(node.answer(stale), LaneReply::KeyDeleted { .. }));
    assert_eq!(send_ok(&mut model, &mut node, again, Durability::Persisted, 10), Offset(0));
    // Its files go with the next checkpoints of the lane.
    node.pass(Duration::from_secs(61));
    node.settle();
    node.pass(Duration::from_secs(61));
    node.settle();
    let left = files(&mut node, Directory::Segments);
    assert!(
        left.iter().all(|f| !matches!(f, FileName::Segment { key, .. } if *key == durable.key))
    );
    let mut node = Node::start(node.disk.kill(), &options(2), node.now, 10);
    node.settle();
    model.check_partition(&mut node, again, "after a restart");
}

#[test]
fn a_purged_topic_starts_again_at_zero_under_another_key_and_forgets_its_offsets() {
    let (mut node, durable, _) = node_with_topics();
    let mut model = Model::default();
    send_ok(&mut model, &mut node, durable, Durability::Persisted, 10);
    model.store(&mut node, durable, Durability::Persisted, 3, Offset(1));
    node.settle();
    node.command(purge_topic("durable"));
    node.settle();
    let purged = node.place("durable", 0).unwrap();
    assert!(purged.key > durable.key && purged.lane == durable.lane);
    assert!(Model::read_all(&mut node, purged).is_empty());
    assert_eq!(send_ok(&mut model, &mut node, purged, Durability::Persisted, 10), Offset(0));
    let get = LaneRequestKind::GetOffset { consumer: ConsumerKey::Consumer(3) };
    let ticket = node.request(purged, get);
    node.settle();
    assert!(matches!(node.answer(ticket), LaneReply::Offset { stored_offset: None, .. }));
}

#[test]
fn a_stop_answers_everyone_and_refuses_what_comes_later() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    let first = model.send(&mut node, durable, Durability::Persisted, 1, 10);
    let second = model.send(&mut node, fast, Durability::Replicated, 1, 10);
    node.run_events();
    node.stop();
    model.note_replies(&mut node);
    for ticket in [first, second] {
        assert_eq!(model.sends[&ticket].confirmed, Some(Offset(0)));
    }
    let late = model.send(&mut node, durable, Durability::Persisted, 1, 10);
    node.settle();
    assert!(matches!(node.answer(late), LaneReply::Refused(Refusal::Stopping)));
    // The reservation has collapsed: even a start that trusts nothing finds no hole.
    let image = node.disk.power_cut_and_boot([3; 16], |_| Fate::Lost);
    let mut node = Node::start(image, &options(1), node.now, 11);
    node.settle();
    model.sends.remove(&late);
    assert_eq!(send_ok(&mut model, &mut node, fast, Durability::Replicated, 10), Offset(1));
}

#[test]
fn more_than_the_journal_holds_may_be_sent_at_once_and_waits_for_checkpoints() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    for _ in 0..150 {
        model.send(&mut node, durable, Durability::Persisted, 1, 30_000);
        model.send(&mut node, fast, Durability::Replicated, 1, 30_000);
    }
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    let unanswered = model.sends.values().filter(|send| send.confirmed.is_none()).count();
    assert_eq!(unanswered, 0, "of {}", model.sends.len());
    model.check_partition(&mut node, durable, "sent at once");
    model.check_partition(&mut node, fast, "sent at once");
}

#[test]
fn a_journal_that_fills_up_is_emptied_by_checkpoints_and_every_send_is_answered() {
    let (mut node, durable, fast) = node_with_topics();
    let mut model = Model::default();
    for _ in 0..60 {
        model.send(&mut node, durable, Durability::Persisted, 1, 30_000);
        model.send(&mut node, fast, Durability::Replicated, 1, 30_000);
        node.settle();
    }
    assert_eq!(model.note_replies(&mut node), 0);
    assert!(model.sends.values().all(|send| send.confirmed.is_some()));
    let counters = node.shards[0].back().checkpointer().counters();
    assert!(counters.durable >= 4, "{counters:?}");
    let mut node = Node::start(node.disk.kill(), &options(2), node.now, 12);
    node.settle();
    model.check_partition(&mut node, durable, "after a full journal");
    model.check_partition(&mut node, fast, "after a full journal");
}
