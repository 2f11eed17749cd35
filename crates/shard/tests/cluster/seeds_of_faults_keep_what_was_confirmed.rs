//! Random faults, one seed after the other: whatever was confirmed stays where it was confirmed.
//!
//! Nodes are killed, stopped, lose power, start with another number of shards; links are cut in
//! one direction or both, lose, repeat and delay. At most one node loses power before it and all
//! others have learned again, which is what the level `replicated` survives.
//!
//! `BORZOI_SEEDS=n` runs that many seeds, `BORZOI_SEED=n` one.

use crate::support::{Place, create_stream, create_topic};
use crate::world::World;
use borzoi_shard::lane::api::{ConsumerKey, LaneReply, LaneRequestKind, PollStart, Ticket};
use borzoi_shard::{Random, SeededRandom};
use borzoi_storage::sim_disk::Fate;
use borzoi_types::{Durability, Duration, Offset, ReplicaId};
use borzoi_wire::batch::Batches;
use std::collections::BTreeMap;

struct Run {
    world: World,
    random: SeededRandom,
    places: Vec<Place>,
    sends: BTreeMap<Ticket, (Place, Vec<u128>)>,
    /// Highest offset confirmed per place when the poll was submitted.
    polls: BTreeMap<Ticket, (Place, Option<Offset>)>,
    confirmed: BTreeMap<(Place, Offset), u128>,
    life: u8,
    seed: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let nodes = [2, 3, 3, 3, 5][usize::try_from(random.next_u64() % 5).unwrap()];
        let shards = (0..nodes).map(|_| u16::try_from(1 + random.next_u64() % 3).unwrap());
        let shards: Vec<u16> = shards.collect();
        let mut world = World::with(&shards, |options| {
            options.checkpoint_interval = Duration::from_millis(700);
        });
        world.settle();
        world.command(create_stream());
        world.command(create_topic("durable", 3, Durability::Persisted));
        world.command(create_topic("fast", 2, Durability::Replicated));
        let places = [("durable", 0), ("durable", 1), ("durable", 2), ("fast", 0), ("fast", 1)];
        let places = places.into_iter().map(|(topic, number)| world.place(topic, number));
        let places = places.collect();
        if !random.next_u64().is_multiple_of(3) {
            world.chaos = Some(SeededRandom::new(seed ^ 0xc4a05));
        }
        let (sends, polls, confirmed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { world, random, places, sends, polls, confirmed, life: 0, seed }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn any(&mut self) -> ReplicaId {
        let nodes = self.world.nodes.len() as u64;
        ReplicaId(u8::try_from(self.below(nodes)).unwrap())
    }

    fn step(&mut self) {
        let index = usize::try_from(self.below(5)).unwrap();
        let place = self.places[index];
        let node = self.any();
        match self.below(25) {
            0..=11 => {
                if self.world.leader(place.lane).is_some() {
                    let count = usize::try_from(1 + self.below(8)).unwrap();
                    let bytes = usize::try_from(self.below(3_000)).unwrap();
                    let (ticket, ids) = self.world.submit_send_ids(place, count, bytes);
                    self.sends.insert(ticket, (place, ids));
                }
            }
            12..=15 => self.poll(place, node),
            16 if self.world.node(node).running => self.world.kill(node),
            17 => self.power_cut(node),
            18 if self.all_up() => self.world.stop(node),
            19 | 20 => {
                let from = self.any();
                if from != node {
                    self.world.cut.insert((from, node));
                }
            }
            21 => self.world.cut.clear(),
            24 => self.replace_disk(node),
            _ => self.start(node),
        }
        let span = Duration::from_micros(self.below(60_000));
        self.world.pass(span);
        self.take_answers();
    }

    fn poll(&mut self, place: Place, node: ReplicaId) {
        if !self.world.node(node).running {
            return;
        }
        let range = (place, Offset::ZERO)..=(place, Offset::MAX);
        let known = self.confirmed.range(range).next_back().map(|((_, offset), _)| *offset);
        let (start, count) = (PollStart::Last, 1);
        let consumer = ConsumerKey::Consumer(9);
        let kind =
            LaneRequestKind::Poll { start, count, consumer, auto_commit: false, generation: 0 };
        let ticket = self.world.submit(node, place, kind);
        self.polls.insert(ticket, (place, known));
    }

    fn all_up(&self) -> bool {
        self.world.nodes.iter().all(|node| node.running)
    }

    fn start(&mut self, node: ReplicaId) {
        if self.world.node(node).running || self.world.node(node).forming.is_some() {
            return;
        }
        if self.below(3) == 0 {
            let shards = u16::try_from(1 + self.below(3)).unwrap();
            self.world.node_mut(node).options.shards = shards;
        }
        self.world.start(node);
    }

    /// Whether all run and nobody has anything to learn: then one node may lose what it held.
    fn may_lose_one(&self) -> bool {
        let learned = self.world.running().all(|node| {
            node.shards.iter().all(|shard| {
                let mut lanes = shard.back().lanes();
                lanes.all(|lane| !lane.host().replica().must_learn())
                    && shard.back().metadata_has_learned()
            })
        });
        self.all_up() && learned
    }

    /// A node comes back with an empty disk.
    fn replace_disk(&mut self, node: ReplicaId) {
        if self.world.nodes.len() == 2 || !self.may_lose_one() {
            return;
        }
        self.world.kill(node);
        let disk = self.world.fresh_disk(node);
        let node = self.world.node_mut(node);
        node.disk = disk;
        node.options.formed = None;
    }

    fn power_cut(&mut self, node: ReplicaId) {
        if !self.may_lose_one() {
            return;
        }
        self.world.kill(node);
        self.life += 1;
        let mut random = SeededRandom::new(self.seed ^ u64::from(self.life));
        let disk = self.world.node(node).disk.power_cut_and_boot([100 + self.life; 16], |_| {
            match random.next_u64() % 3 {
                0 => Fate::Kept,
                1 => Fate::Lost,
                _ => Fate::Torn(u8::try_from(random.next_u64() % 256).unwrap()),
            }
        });
        self.world.node_mut(node).disk = disk;
    }

    fn take_answers(&mut self) {
        let answered: Vec<Ticket> = self.world.replies.keys().copied().collect();
        for ticket in answered {
            let reply = self.world.replies.remove(&ticket).unwrap();
            match reply {
                LaneReply::Sent { base_offset, .. } => {
                    let (place, ids) = self.sends.remove(&ticket).expect("of a send");
                    for (offset, id) in (base_offset.0..).zip(ids) {
                        let at = (place, Offset(offset));
                        let before = self.confirmed.insert(at, id);
                        assert!(before.is_none(), "seed {}: {at:?} given twice", self.seed);
                    }
                }
                LaneReply::Polled { current_offset, .. } => {
                    let (place, known) = self.polls.remove(&ticket).expect("of a poll");
                    assert!(
                        known.is_none_or(|known| current_offset >= known),
                        "seed {}: a stale read of {place:?}: {current_offset} below {known:?}",
                        self.seed
                    );
                }
                LaneReply::Refused(_) => {
                    self.sends.remove(&ticket);
                    self.polls.remove(&ticket);
                }
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
    }

    fn finish(mut self) {
        self.world.cut.clear();
        for node in self.world.replicas() {
            self.start(node);
        }
        let all = |world: &World| world.nodes.iter().all(|node| node.running);
        assert!(self.world.until(Duration::from_secs(20), all), "every node is back");
        self.world.settle();
        self.world.pass(Duration::from_secs(3));
        self.take_answers();
        self.world.settle();
        self.world.check_replicas_agree();
        for place in self.places.clone() {
            let found = self.read(place);
            let range = (place, Offset::ZERO)..=(place, Offset::MAX);
            for ((_, offset), id) in self.confirmed.range(range) {
                let seed = self.seed;
                assert_eq!(found.get(offset), Some(id), "seed {seed}: {place:?} at {offset}");
            }
        }
    }

    fn read(&mut self, place: Place) -> BTreeMap<Offset, u128> {
        self.world.pass(Duration::from_millis(1));
        self.world.settle();
        let (_, bytes) = self.world.poll_all(place);
        let mut found = BTreeMap::new();
        for batch in Batches::new(&bytes) {
            let batch = batch.expect("a whole batch");
            for frame in batch.frames() {
                let frame = frame.expect("a whole frame");
                found.insert(frame.offset(batch.header()), frame.id().0);
            }
        }
        found
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn seeds_of_faults_keep_what_was_confirmed() {
    let one = number("BORZOI_SEED");
    let count = number("BORZOI_SEEDS").unwrap_or(40);
    let seeds = one.map_or(1..=count, |seed| seed..=seed);
    let mut confirmed = 0;
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for _ in 0..120 {
                run.step();
            }
            let confirmed = run.confirmed.len();
            run.finish();
            confirmed
        });
        match outcome {
            Ok(messages) => confirmed += messages,
            Err(cause) => {
                eprintln!("BORZOI_SEED={seed} reproduces it");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(one.is_some() || confirmed as u64 > count * 20, "{confirmed} messages confirmed");
}
