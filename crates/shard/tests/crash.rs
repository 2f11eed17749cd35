//! The end-to-end crash test: fixed workloads at both levels; the world stops in front of every
//! step of the disk; what was unsynced is kept, lost or torn; the node boots from what is left,
//! now with one shard and now with two, and is crashed again inside that boot. Nothing confirmed
//! may be lost, nothing invented, nothing doubled, and no offset used twice.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports its counts")]

mod support;

use borzoi_shard::lane::api::{ConsumerKey, LaneReply, PollStart};
use borzoi_shard::{Random, SeededRandom};
use borzoi_storage::sim_disk::{Fate, SimDisk};
use borzoi_types::{Durability, Duration, Offset};
use std::collections::BTreeMap;
use support::model::{End, Model};
use support::{
    Action, BOOT_ID, Node, Place, boot_disk, create_stream, create_topic, create_topic_with,
    delete_segments, delete_topic, new_disk, options, poll_request, start_time,
};

const DURABLE: &str = "durable";
const FAST: &str = "fast";

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Send so many messages of so many bytes.
    Send(&'static str, u32, usize, usize),
    /// Store the offset of the newest confirmed message.
    Store(&'static str, u32),
    /// Poll `next` with automatic commit.
    Poll(&'static str, u32),
    /// Create a topic.
    Create(&'static str),
    /// Delete a topic.
    Delete(&'static str),
    /// Create a durable topic of one partition whose segments hold so many bytes.
    CreateSmall(&'static str, u64),
    /// Delete the oldest closed segments; messages below the offset may be gone.
    DeleteSegments(&'static str, u32, Offset),
    /// Let the checkpoint interval pass.
    Checkpoint,
    /// Wait until everything is answered.
    Wait,
}

fn level(topic: &str) -> Durability {
    if topic == FAST { Durability::Replicated } else { Durability::Persisted }
}

/// How many images a run has looked at.
#[derive(Default, Debug)]
struct Images {
    crashes: u64,
    images: u64,
    second_crashes: u64,
}

/// A run of one workload, crashed everywhere.
struct Run {
    node: Node,
    model: Model,
    places: Vec<(Place, Durability)>,
    random: SeededRandom,
    images: Images,
    boot_ids: u8,
    /// Topics that were seen created, and whether they were seen deleted since.
    topics: BTreeMap<&'static str, (Place, bool)>,
    /// Images per crash point when there are too many to try all.
    draws: u32,
}

impl Run {
    fn new(shards: u16, seed: u64, draws: u32) -> Self {
        let mut node = Node::start(new_disk(), &options(shards), start_time(), seed);
        node.settle();
        node.command(create_stream());
        node.command(create_topic(DURABLE, 2, Durability::Persisted));
        node.command(create_topic(FAST, 1, Durability::Replicated));
        node.settle();
        let place = |topic, partition| node.place(topic, partition).expect("created");
        let places = vec![
            (place(DURABLE, 0), Durability::Persisted),
            (place(DURABLE, 1), Durability::Persisted),
            (place(FAST, 0), Durability::Replicated),
        ];
        let random = SeededRandom::new(seed ^ 0xc4a5);
        let (model, images) = (Model::default(), Images::default());
        let topics = BTreeMap::new();
        Self { node, model, places, random, images, boot_ids: 1, topics, draws }
    }

    fn workload(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Create(topic) => {
                    self.node.command(create_topic(topic, 1, level(topic)));
                    while self.node.place(topic, 0).is_none() {
                        assert!(self.turn(), "the command is on its way");
                    }
                    let at = self.node.place(topic, 0).expect("just seen");
                    self.topics.insert(topic, (at, false));
                    self.places.push((at, level(topic)));
                }
                Step::Delete(topic) => {
                    let at = self.node.place(topic, 0).expect("created");
                    // From here on nobody knows what is left of it.
                    self.places.retain(|(place, _)| *place != at);
                    self.topics.remove(topic);
                    self.node.command(delete_topic(topic));
                    while self.node.place(topic, 0).is_some() {
                        assert!(self.turn(), "the command is on its way");
                    }
                    self.topics.insert(topic, (at, true));
                }
                Step::CreateSmall(topic, segment_bytes) => {
                    let level = Durability::Persisted;
                    let change = create_topic_with(topic, 1, level, |options| {
                        options.segment_size = segment_bytes;
                    });
                    self.node.command(change);
                    while self.turn() {}
                    let at = self.node.place(topic, 0).expect("created");
                    self.topics.insert(topic, (at, false));
                    self.places.push((at, level));
                }
                Step::DeleteSegments(topic, count, below) => {
                    let at = self.node.place(topic, 0).expect("created");
                    self.model.may_go_below(at, below);
                    self.node.command(delete_segments(topic, 0, count));
                }
                Step::Send(topic, partition, count, bytes) => {
                    let at = self.node.place(topic, partition).expect("created");
                    self.model.send(&mut self.node, at, level(topic), count, bytes);
                }
                Step::Store(topic, partition) => {
                    let at = self.node.place(topic, partition).expect("created");
                    if let Some(offset) = self.model.highest_seen(at) {
                        self.model.store(&mut self.node, at, level(topic), 3, offset);
                    }
                }
                Step::Poll(topic, partition) => {
                    let at = self.node.place(topic, partition).expect("created");
                    let consumer = ConsumerKey::Consumer(4);
                    let (start, count) = (PollStart::Next, 2);
                    self.node.request(at, poll_request(start, count, consumer, true));
                }
                Step::Checkpoint => self.node.pass(Duration::from_secs(61)),
                Step::Wait => while self.turn() {},
            }
            // Some of the disk's work between any two steps, so that requests overlap.
            for _ in 0..self.random.next_u64() % 3 {
                self.turn();
            }
        }
        while self.turn() {}
    }

    /// One action of the disk, crashed in front of each of its steps; whether there was one.
    fn turn(&mut self) -> bool {
        self.node.run_events_batched();
        self.model.note_replies(&mut self.node);
        self.node.replies.clear();
        let Some((shard, ticket, action)) = self.node.next_action() else { return false };
        self.crash_in_front_of(&action);
        self.node.finish(shard, ticket, &action);
        true
    }

    fn crash_in_front_of(&mut self, action: &Action) {
        let before = self.node.disk.clone();
        let mut whole = before.clone();
        let _ = action.apply(&mut whole);
        for step in before.steps()..whole.steps() {
            let mut crashed = before.clone();
            crashed.crash_before(step);
            let _ = action.apply(&mut crashed);
            assert!(crashed.is_crashed());
            self.images.crashes += 1;
            self.restart_from(&crashed);
        }
    }

    /// Boots from what a crash may have left.
    fn restart_from(&mut self, crashed: &SimDisk) {
        let seed = self.random.next_u64();
        self.check(crashed.kill(), End::Kill, seed);
        let items = crashed.unsynced().len();
        let all = 1u64.checked_shl(u32::try_from(items).unwrap()).unwrap_or(u64::MAX);
        if all <= u64::from(self.draws) {
            for subset in 0..all {
                let mut item = 0;
                let image = self.cut(crashed, |_| {
                    item += 1;
                    if subset >> (item - 1) & 1 == 1 { Fate::Kept } else { Fate::Lost }
                });
                self.check(image, End::PowerCut, seed ^ subset);
            }
        } else {
            for draw in 0..self.draws {
                let mut random = SeededRandom::new(seed ^ u64::from(draw));
                let image = self.cut(crashed, |random_bits| match random_bits {
                    _ if draw == 0 => Fate::Lost,
                    _ if draw == 1 => Fate::Kept,
                    _ => match random.next_u64() % 5 {
                        0 | 1 => Fate::Kept,
                        2 | 3 => Fate::Lost,
                        _ => Fate::Torn(random.next_u64() as u8),
                    },
                });
                self.check(image, End::PowerCut, seed ^ u64::from(draw));
            }
        }
        if self.images.crashes.is_multiple_of(7) {
            self.crash_inside_boot(crashed, seed);
        }
    }

    fn cut(
        &mut self,
        crashed: &SimDisk,
        fate: impl FnMut(&borzoi_storage::sim_disk::Unsynced) -> Fate,
    ) -> SimDisk {
        self.boot_ids = self.boot_ids % 250 + 1;
        let boot_id = [self.boot_ids + 1; 16];
        assert_ne!(boot_id, BOOT_ID);
        crashed.power_cut_and_boot(boot_id, fate)
    }

    /// Crashes the boot itself, at every step, then boots again.
    fn crash_inside_boot(&mut self, crashed: &SimDisk, seed: u64) {
        let first_cut = seed & 1 == 1;
        let image = if first_cut { self.cut(crashed, |_| Fate::Lost) } else { crashed.kill() };
        let shards = 1 + u16::from(seed & 2 == 2);
        let mut whole = image.clone();
        boot_disk(&mut whole, &options(shards), self.node.now).expect("starts");
        for step in image.steps()..whole.steps() {
            let mut again = image.clone();
            again.crash_before(step);
            let booted = boot_disk(&mut again, &options(shards), self.node.now);
            assert!(booted.is_err() && again.is_crashed(), "the boot was crashed");
            self.images.second_crashes += 1;
            let first = if first_cut { End::PowerCut } else { End::Kill };
            self.check(again.kill(), first, seed ^ step);
            let mut random = SeededRandom::new(seed ^ step);
            let cut = self.cut(&again, |_| match random.next_u64() % 3 {
                0 => Fate::Kept,
                1 => Fate::Lost,
                _ => Fate::Torn(random.next_u64() as u8),
            });
            self.check(cut, End::PowerCut, seed ^ step);
        }
    }

    /// Boots from an image and checks everything that clients can see.
    fn check(&mut self, image: SimDisk, end: End, seed: u64) {
        self.images.images += 1;
        let shards = 1 + u16::from(seed & 4 == 4);
        let context = format!("{end:?}, seed {seed:#x}, {shards} shards");
        let mut model = self.model.clone();
        model.life_ended(end);
        let mut node = match Node::try_start(image, &options(shards), self.node.now, seed) {
            Ok(node) => node,
            Err(error) => panic!("{context}: {error}"),
        };
        node.settle();
        for (topic, (at, deleted)) in &self.topics {
            let found = node.place(topic, 0);
            assert_eq!(found.is_none(), *deleted, "{context}: {topic} is {found:?}");
            assert!(found.is_none_or(|found| found == *at), "{context}: another {topic}");
        }
        for (at, _) in self.places.clone() {
            model.check_partition(&mut node, at, &context);
            model.check_stored(&mut node, at, 3, &context);
        }
        self.go_on(&mut node, &mut model, &context);
        assert!(node.fatal.is_empty(), "{context}: {:?}", node.fatal);
    }

    /// The node works, hands out no offset twice, and still knows what it confirmed.
    fn go_on(&self, node: &mut Node, model: &mut Model, context: &str) {
        let known: Vec<_> = model
            .sends
            .values()
            .filter(|send| send.confirmed.is_some() && !send.may_be_lost)
            .filter(|send| self.places.iter().any(|(place, _)| *place == send.place))
            .cloned()
            .collect();
        for send in known.iter().rev().take(2) {
            let ticket = model.resend(node, send);
            node.settle();
            match node.answer(ticket) {
                LaneReply::Sent { base_offset, .. } => {
                    assert_eq!(Some(base_offset), send.confirmed, "{context}: a resend");
                }
                other => panic!("{context}: a resend was answered {other:?}"),
            }
        }
        for (at, level) in &self.places {
            let highest = model.highest_seen(*at);
            let ticket = model.send(node, *at, *level, 2, 40);
            node.settle();
            assert_eq!(model.note_replies(node), 0, "{context}: refused");
            let base = model.sends[&ticket].confirmed.expect("confirmed");
            assert!(
                highest.is_none_or(|highest| base > highest),
                "{context}: {base:?} handed out again, {highest:?} was seen in {at:?}"
            );
            model.check_partition(node, *at, context);
        }
    }
}

fn report(name: &str, run: &Run) {
    println!(
        "{name}: {} crash points, {} images, {} of them crashed inside a boot",
        run.images.crashes, run.images.images, run.images.second_crashes
    );
    assert!(run.images.images > run.images.crashes);
}

#[test]
fn small_sends_and_offset_stores_survive_a_crash_at_every_step() {
    let mut run = Run::new(1, 11, 24);
    run.workload(&[
        Step::Send(DURABLE, 0, 1, 10),
        Step::Send(FAST, 0, 3, 10),
        Step::Send(DURABLE, 0, 2, 100),
        Step::Wait,
        Step::Store(DURABLE, 0),
        Step::Store(FAST, 0),
        Step::Send(DURABLE, 1, 1, 200),
        Step::Poll(DURABLE, 0),
        Step::Wait,
        Step::Send(FAST, 0, 20, 10),
        Step::Send(FAST, 0, 1, 10),
        Step::Send(DURABLE, 0, 1, 10),
        Step::Poll(DURABLE, 0),
        Step::Send(DURABLE, 1, 4, 10),
        Step::Wait,
        Step::Store(DURABLE, 1),
    ]);
    assert_eq!(run.model.highest_seen(run.places[2].0), Some(Offset(23)));
    report("small", &run);
}

#[test]
fn deleted_segments_stay_deleted_and_nothing_else_goes_after_a_crash_at_every_step() {
    const SMALL: &str = "small";
    let mut run = Run::new(1, 14, 8);
    let mut steps = vec![Step::CreateSmall(SMALL, 2_000)];
    // Two sends of 700 bytes and their frames close a segment: offsets 0 and 1, 2 and 3, ...
    steps.extend([Step::Send(SMALL, 0, 1, 700), Step::Wait].repeat(7));
    steps.extend([
        Step::DeleteSegments(SMALL, 1, Offset(2)),
        Step::Wait,
        Step::Checkpoint,
        Step::Send(SMALL, 0, 1, 700),
        Step::DeleteSegments(SMALL, 2, Offset(6)),
        Step::Wait,
        Step::Checkpoint,
        Step::Wait,
    ]);
    run.workload(&steps);
    let at = run.node.place(SMALL, 0).unwrap();
    let left = Model::read_all(&mut run.node, at);
    assert_eq!(left.keys().next(), Some(&Offset(6)), "three of four closed segments are gone");
    report("deleted segments", &run);
}

#[test]
fn large_sends_segments_and_checkpoints_survive_a_crash_at_every_step() {
    let mut run = Run::new(1, 12, 12);
    run.workload(&[
        Step::Send(DURABLE, 0, 2, 40_000),
        Step::Send(DURABLE, 1, 1, 10),
        Step::Send(FAST, 0, 4, 5_000),
        Step::Wait,
        Step::Checkpoint,
        Step::Send(DURABLE, 0, 3, 100),
        Step::Send(FAST, 0, 2, 30_000),
        Step::Wait,
        Step::Send(DURABLE, 0, 1, 60_000),
        Step::Store(DURABLE, 0),
        Step::Checkpoint,
        Step::Wait,
        Step::Send(FAST, 0, 1, 10),
        Step::Checkpoint,
        Step::Wait,
    ]);
    assert!(run.node.shards[0].back().checkpointer().counters().durable >= 3);
    report("large", &run);
}

#[test]
fn topics_that_come_and_go_survive_a_crash_at_every_step() {
    let mut run = Run::new(2, 14, 12);
    run.workload(&[
        Step::Create("one"),
        Step::Send("one", 0, 1, 10),
        Step::Send(DURABLE, 0, 1, 10),
        Step::Create("two"),
        Step::Send("two", 0, 2, 40_000),
        Step::Delete("one"),
        Step::Checkpoint,
        Step::Send("two", 0, 1, 10),
        Step::Create("three"),
        Step::Delete("two"),
        Step::Send("three", 0, 1, 10),
        Step::Checkpoint,
        Step::Wait,
        Step::Checkpoint,
        Step::Store("three", 0),
    ]);
    report("topics", &run);
}

#[test]
fn random_workloads_survive_a_crash_at_every_step() {
    let mut images = 0;
    for seed in 100..103u64 {
        let mut random = SeededRandom::new(seed);
        let mut run = Run::new(1 + u16::from(seed % 2 == 0), seed, 4);
        let steps: Vec<Step> = (0..30)
            .map(|_| {
                let bytes = [10, 10, 200, 3_000, 45_000];
                let pick = |random: &mut SeededRandom, n: u64| random.next_u64() % n;
                let topic = if pick(&mut random, 3) == 0 { FAST } else { DURABLE };
                let partition = if topic == FAST { 0 } else { pick(&mut random, 2) as u32 };
                match pick(&mut random, 10) {
                    0 => Step::Checkpoint,
                    1 => Step::Wait,
                    2 => Step::Store(topic, partition),
                    3 => Step::Poll(topic, partition),
                    _ => {
                        let bytes = bytes[pick(&mut random, 5) as usize];
                        let count = 1 + pick(&mut random, 3) as usize;
                        Step::Send(topic, partition, count, bytes)
                    }
                }
            })
            .collect();
        run.workload(&steps);
        images += run.images.images;
    }
    println!("random: {images} images");
}

#[test]
fn two_shards_survive_a_crash_at_every_step() {
    let mut run = Run::new(2, 13, 12);
    run.workload(&[
        Step::Send(DURABLE, 0, 1, 10),
        Step::Send(DURABLE, 1, 1, 10),
        Step::Send(FAST, 0, 3, 10),
        Step::Send(FAST, 0, 20, 10),
        Step::Wait,
        Step::Store(DURABLE, 1),
        Step::Send(DURABLE, 0, 2, 35_000),
        Step::Checkpoint,
        Step::Send(FAST, 0, 1, 10),
        Step::Wait,
    ]);
    report("two shards", &run);
}
