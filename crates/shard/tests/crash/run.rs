//! One workload on one node, stopped in front of every step of the disk, and started again from
//! everything that a crash may have left.

use crate::harness::Counts;
use crate::support::model::{End, Model};
use crate::support::{
    Action, BOOT_ID, Node, Place, boot_disk, create_stream, create_topic, create_topic_with,
    delete_segments, delete_topic, new_disk, options, poll_request, start_time,
};
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, PollStart};
use borzoi_shard::{Random, SeededRandom};
use borzoi_storage::sim_disk::{Fate, SimDisk};
use borzoi_types::{Durability, Duration, Offset};
use std::collections::BTreeMap;

pub const DURABLE: &str = "durable";
pub const FAST: &str = "fast";

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Step {
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

pub fn level(topic: &str) -> Durability {
    if topic == FAST { Durability::Replicated } else { Durability::Persisted }
}

/// A run of one workload, crashed everywhere.
pub struct Run {
    pub node: Node,
    pub model: Model,
    pub places: Vec<(Place, Durability)>,
    random: SeededRandom,
    pub counts: Counts,
    boot_ids: u8,
    /// Topics that were seen created, and whether they were seen deleted since.
    topics: BTreeMap<&'static str, (Place, bool)>,
    /// Images per crash point when there are too many to try all.
    draws: u32,
    /// The world stops in front of every so many-th action of the disk.
    pub stride: u64,
    /// At every so many-th crash the start that follows is stopped as well, everywhere.
    pub second_every: u64,
    actions: u64,
}

impl Run {
    /// A node without topics.
    pub fn empty(shards: u16, seed: u64, draws: u32) -> Self {
        let mut node = Node::start(new_disk(), &options(shards), start_time(), seed);
        node.settle();
        Self {
            node,
            model: Model::default(),
            places: Vec::new(),
            random: SeededRandom::new(seed ^ 0xc4a5),
            counts: Counts::default(),
            boot_ids: 1,
            topics: BTreeMap::new(),
            draws,
            stride: 1,
            second_every: 7,
            actions: 0,
        }
    }

    /// A node with a topic of each level.
    pub fn new(shards: u16, seed: u64, draws: u32) -> Self {
        let mut run = Self::empty(shards, seed, draws);
        let node = &mut run.node;
        node.command(create_stream());
        node.command(create_topic(DURABLE, 2, Durability::Persisted));
        node.command(create_topic(FAST, 1, Durability::Replicated));
        node.settle();
        let place = |topic, partition| node.place(topic, partition).expect("created");
        run.places = vec![
            (place(DURABLE, 0), Durability::Persisted),
            (place(DURABLE, 1), Durability::Persisted),
            (place(FAST, 0), Durability::Replicated),
        ];
        run
    }

    /// Goes through `steps` and on until nothing is left to do.
    pub fn workload(&mut self, steps: &[Step]) {
        self.steps(steps);
        while self.turn() {}
    }

    /// Goes through `steps`; some of what they began is still on its way when this returns.
    pub fn steps(&mut self, steps: &[Step]) {
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
    }

    /// The life of the node ends like this, and the next one begins with so many shards, after its
    /// start has been stopped in front of every step of its own.
    pub fn restart(&mut self, end: End, shards: u16) {
        let base = match end {
            End::Kill => self.node.disk.kill(),
            End::Clean => {
                self.node.stop();
                self.model.note_replies(&mut self.node);
                self.node.disk.kill()
            }
            End::PowerCut => {
                let disk = self.node.disk.clone();
                let mut random = SeededRandom::new(self.random.next_u64());
                self.cut(&disk, |_| any_fate(&mut random))
            }
        };
        self.model.life_ended(end);
        self.crash_start(&base, shards);
        let seed = self.random.next_u64();
        self.node = Node::start(base, &options(shards), self.node.now, seed);
        // What the start has left for the running node to do.
        let stride = core::mem::replace(&mut self.stride, 1);
        while self.turn() {}
        self.stride = stride;
        for (at, _) in self.places.clone() {
            self.model.check_partition(&mut self.node, at, "after a restart");
            self.model.check_stored(&mut self.node, at, 3, "after a restart");
        }
    }

    /// Stops a start in front of every step of its own.
    pub fn crash_start(&mut self, base: &SimDisk, shards: u16) {
        let mut whole = base.clone();
        boot_disk(&mut whole, &options(shards), self.node.now).expect("starts");
        assert!(whole.steps() > base.steps() + 10, "a start has many steps");
        for step in base.steps()..whole.steps() {
            let mut crashed = base.clone();
            crashed.crash_before(step);
            let booted = boot_disk(&mut crashed, &options(shards), self.node.now);
            assert!(booted.is_err() && crashed.is_crashed(), "the start was crashed");
            self.counts.crash_points += 1;
            self.restart_from(&crashed);
        }
    }

    /// One action of the disk, crashed in front of each of its steps; whether there was one.
    fn turn(&mut self) -> bool {
        self.node.run_events_batched();
        self.model.note_replies(&mut self.node);
        self.node.replies.clear();
        let Some((shard, ticket, action)) = self.node.next_action() else { return false };
        self.actions += 1;
        if self.actions.is_multiple_of(self.stride) {
            self.crash_in_front_of(&action);
        }
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
            self.counts.crash_points += 1;
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
                    _ => any_fate(&mut random),
                });
                self.check(image, End::PowerCut, seed ^ u64::from(draw));
            }
        }
        if items > 0 {
            // The same boot identity: a machine that does not tell that it has lost power.
            let mut random = SeededRandom::new(seed);
            let image = crashed.power_cut(|_| any_fate(&mut random));
            self.check_places(image, End::PowerCut, seed, |level| level == Durability::Persisted);
        }
        if self.counts.crash_points.is_multiple_of(self.second_every) {
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
            self.counts.second_crashes += 1;
            let first = if first_cut { End::PowerCut } else { End::Kill };
            self.check(again.kill(), first, seed ^ step);
            let mut random = SeededRandom::new(seed ^ step);
            let cut = self.cut(&again, |_| any_fate(&mut random));
            self.check(cut, End::PowerCut, seed ^ step);
        }
    }

    /// Boots from an image and checks everything that clients can see.
    fn check(&mut self, image: SimDisk, end: End, seed: u64) {
        self.check_places(image, end, seed, |_| true);
    }

    /// As [`Self::check`], of partitions of some levels only: a disk that lost writes while the
    /// machine seems to have kept running breaks what level `replicated` rests on.
    fn check_places(
        &mut self,
        image: SimDisk,
        end: End,
        seed: u64,
        wanted: impl Fn(Durability) -> bool,
    ) {
        self.counts.images += 1;
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
        let mut places = self.places.clone();
        places.retain(|(_, level)| wanted(*level));
        for (at, _) in &places {
            model.check_partition(&mut node, *at, &context);
            model.check_stored(&mut node, *at, 3, &context);
        }
        go_on(&mut node, &mut model, &places, &context);
        assert!(node.fatal.is_empty(), "{context}: {:?}", node.fatal);
    }
}

/// The node works, hands out no offset twice, and still knows what it confirmed.
fn go_on(node: &mut Node, model: &mut Model, places: &[(Place, Durability)], context: &str) {
    let known: Vec<_> = model
        .sends
        .values()
        .filter(|send| send.confirmed.is_some() && !send.may_be_lost)
        .filter(|send| places.iter().any(|(place, _)| *place == send.place))
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
    for (at, level) in places {
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
/// Kept, lost or torn.
fn any_fate(random: &mut SeededRandom) -> Fate {
    match random.next_u64() % 5 {
        0 | 1 => Fate::Kept,
        2 | 3 => Fate::Lost,
        _ => Fate::Torn(random.next_u64() as u8),
    }
}
