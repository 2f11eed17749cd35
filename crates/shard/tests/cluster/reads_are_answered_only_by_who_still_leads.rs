//! A primary that was replaced without knowing it answers no read from its old state.

use crate::support::{create_stream, create_topic};
use crate::world::World;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart, Refusal};
use borzoi_types::{Durability, Duration, Offset};

const READER: ConsumerKey = ConsumerKey::Consumer(1);

fn poll() -> LaneRequestKind {
    let (start, count) = (PollStart::First, 1_000);
    LaneRequestKind::Poll { start, count, consumer: READER, auto_commit: false, generation: 0 }
}

#[test]
fn a_deposed_primary_refuses_reads_and_negative_answers() {
    let mut world = World::new(&[1, 1, 1]);
    world.settle();
    world.command(create_stream());
    world.command(create_topic("durable", 3, Durability::Persisted));
    let at = world.place("durable", 0);
    assert_eq!(world.send(at, 5, 10), Offset(0));
    let old = world.leader(at.lane).unwrap();
    for other in world.replicas().into_iter().filter(|other| *other != old) {
        world.cut.insert((old, other));
        world.cut.insert((other, old));
    }
    // The others choose another leader after half a second; the old one steps down only later.
    let stored = |offset| LaneRequestKind::StoreOffset {
        consumer: READER,
        offset: Offset(offset),
        wait: true,
        generation: 0,
        persisted: false,
    };
    let mut tickets = Vec::new();
    for _ in 0..12 {
        world.pass(Duration::from_millis(60));
        tickets.push(world.submit(old, at, poll()));
        tickets.push(world.submit(old, at, LaneRequestKind::GetOffset { consumer: READER }));
        // A message that the old primary does not know may exist by now.
        tickets.push(world.submit(old, at, stored(7)));
    }
    world.pass(Duration::from_secs(2));
    for ticket in tickets {
        let reply = world.replies.remove(&ticket).expect("nobody waits for ever");
        assert!(matches!(reply, LaneReply::Refused(Refusal::NotServing)), "{reply:?}");
    }
    world.cut.clear();
    world.settle();
    assert_eq!(world.send(at, 5, 10), Offset(5));
    assert_eq!(world.poll_all(at).0, 10);
}

#[test]
fn one_round_answers_all_reads_that_wait() {
    let mut world = World::new(&[1, 1, 1]);
    world.settle();
    world.command(create_stream());
    world.command(create_topic("durable", 1, Durability::Persisted));
    let at = world.place("durable", 0);
    assert_eq!(world.send(at, 5, 10), Offset(0));
    world.pass(Duration::from_secs(1));
    let leader = world.leader(at.lane).unwrap();
    let before = world.work_counted().frames;
    let tickets: Vec<_> = (0..500).map(|_| world.submit(leader, at, poll())).collect();
    world.pass(Duration::from_millis(5));
    for ticket in tickets {
        let reply = world.replies.remove(&ticket).expect("a round trip is enough");
        assert!(matches!(reply, LaneReply::Polled { count: 5, .. }), "{reply:?}");
    }
    // A question to each backup and its answer; heartbeats may fall into the same moment.
    let frames = world.work_counted().frames - before;
    assert!(frames <= 4 + 6, "{frames} frames for 500 reads");
}
