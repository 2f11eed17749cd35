//! A life of a node that loses its power in front of every step of its disk.
//!
//! At each step the unsynced pages are kept, lost or torn one by one; the node boots from what is
//! left, on one shard or two, and sends again. Nobody may get an offset that anybody was told of.

use crate::support::model::{End, Model};
use crate::support::{
    Action, Node, Place, boot_disk, create_stream, create_topic, new_disk, options, start_time,
};
use borzoi_shard::{Random, SeededRandom};
use borzoi_storage::sim_disk::{Fate, SimDisk};
use borzoi_types::{Durability, Duration, Offset};

/// The topic of level `replicated` that these tests use.
pub const FAST: &str = "fast";

/// What a machine knows of itself after its power came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comeback {
    /// It was started anew.
    OtherBoot,
    /// It never stopped: a volume was detached under it and lost its cache.
    SameBoot,
}

/// A node with one partition of level `replicated` and a lease of 16 offsets.
pub fn fast_node() -> (Node, Place) {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic(FAST, 1, Durability::Replicated));
    node.settle();
    let at = node.place(FAST, 0).unwrap();
    (node, at)
}

/// Sends and gives the confirmed base offset.
pub fn send(node: &mut Node, model: &mut Model, at: Place, count: usize, bytes: usize) -> Offset {
    let ticket = model.send(node, at, Durability::Replicated, count, bytes);
    node.settle();
    assert_eq!(model.note_replies(node), 0, "refused");
    model.sends[&ticket].confirmed.expect("confirmed")
}

/// Boots from `image` and settles.
pub fn restart(node: &Node, image: SimDisk, seed: u64) -> Node {
    let mut node = Node::start(image, &options(1), node.now, seed);
    node.settle();
    assert!(node.fatal.is_empty(), "{:?}", node.fatal);
    node
}

/// A power cut that takes every unsynced page.
pub fn lose_everything(node: &Node, comeback: Comeback, boot_id: u8) -> SimDisk {
    match comeback {
        Comeback::OtherBoot => node.disk.power_cut_and_boot([boot_id; 16], |_| Fate::Lost),
        Comeback::SameBoot => node.disk.power_cut(|_| Fate::Lost),
    }
}

/// A step of a life.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Send so many messages of so many bytes.
    Send(usize, usize),
    /// Wait until everything is answered.
    Wait,
    /// Wait, and let the journal come to rest, so that everything is synced.
    Flush,
    /// Wait, and let the checkpoint interval pass.
    Checkpoint,
}

/// See the module.
pub struct Life {
    pub node: Node,
    pub model: Model,
    pub at: Place,
    pub images: u64,
    comeback: Comeback,
    random: SeededRandom,
    boot_ids: u8,
    draws: u32,
}

impl Life {
    pub fn new(node: Node, model: Model, at: Place, comeback: Comeback, draws: u32) -> Self {
        let random = SeededRandom::new(0x0ff5 ^ u64::from(draws));
        Self { node, model, at, images: 0, comeback, random, boot_ids: 100, draws }
    }

    pub fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Send(count, bytes) => {
                    let level = Durability::Replicated;
                    self.model.send(&mut self.node, self.at, level, count, bytes);
                    self.turn();
                }
                Step::Wait => while self.turn() {},
                Step::Flush => self.pass(Duration::from_millis(20)),
                Step::Checkpoint => self.pass(Duration::from_secs(61)),
            }
        }
        while self.turn() {}
        let unanswered = self.model.sends.values().filter(|send| send.confirmed.is_none()).count();
        assert_eq!(unanswered, 0, "every send of this life was confirmed");
    }

    fn pass(&mut self, span: Duration) {
        while self.turn() {}
        self.node.pass(span);
        while self.turn() {}
    }

    /// One action of the disk, with a power cut in front of each of its steps.
    fn turn(&mut self) -> bool {
        self.node.run_events_batched();
        assert_eq!(self.model.note_replies(&mut self.node), 0, "nothing is refused");
        let Some((shard, ticket, action)) = self.node.next_action() else { return false };
        self.cut_in_front_of(&action);
        self.node.finish(shard, ticket, &action);
        true
    }

    fn cut_in_front_of(&mut self, action: &Action) {
        let before = self.node.disk.clone();
        let mut whole = before.clone();
        let _ = action.apply(&mut whole);
        for step in before.steps()..whole.steps() {
            let mut crashed = before.clone();
            crashed.crash_before(step);
            let _ = action.apply(&mut crashed);
            self.cut(&crashed);
        }
    }

    /// Every subset of few unsynced pages, draws of many.
    pub fn cut(&mut self, crashed: &SimDisk) {
        let items = u32::try_from(crashed.unsynced().len()).unwrap();
        let all = 1u64.checked_shl(items).unwrap_or(u64::MAX);
        let exhaustive = all <= u64::from(self.draws);
        for draw in 0..u64::from(self.draws).min(all) {
            let mut item = 0;
            let mut random = SeededRandom::new(self.random.next_u64());
            let fate = |_: &_| {
                item += 1;
                match draw {
                    _ if exhaustive && draw >> (item - 1) & 1 == 1 => Fate::Kept,
                    _ if exhaustive => Fate::Lost,
                    0 => Fate::Lost,
                    1 => Fate::Kept,
                    _ => match random.next_u64() % 3 {
                        0 => Fate::Kept,
                        1 => Fate::Lost,
                        _ => Fate::Torn(u8::try_from(random.next_u64() & 0xff).unwrap()),
                    },
                }
            };
            let image = match self.comeback {
                Comeback::SameBoot => crashed.power_cut(fate),
                Comeback::OtherBoot => {
                    self.boot_ids = self.boot_ids % 250 + 2;
                    crashed.power_cut_and_boot([self.boot_ids; 16], fate)
                }
            };
            self.check(image, draw);
        }
    }

    /// Boots, reads and sends: nothing is minted again.
    fn check(&mut self, image: SimDisk, draw: u64) {
        self.images += 1;
        let shards = 1 + u16::from(draw % 4 == 3);
        let context = format!("image {}, draw {draw}, {:?}", self.images, self.comeback);
        let mut model = self.model.clone();
        model.life_ended(End::PowerCut);
        let options = options(shards);
        let mut node = match Node::try_start(image, &options, self.node.now, draw) {
            Ok(node) => node,
            Err(error) => panic!("{context}: {error}"),
        };
        node.settle();
        model.check_partition(&mut node, self.at, &context);
        let told = model.highest_seen(self.at);
        let base = send(&mut node, &mut model, self.at, 1, 10);
        assert!(told.is_none_or(|told| base > told), "{context}: {base:?} after {told:?}");
        // The second loss of power, right after the first offset was told.
        let again = lose_everything(&node, self.comeback, 99);
        let mut node = restart(&node, again, draw + 1);
        model.life_ended(End::PowerCut);
        let next = send(&mut node, &mut model, self.at, 1, 10);
        assert!(next > base, "{context}: {next:?} after {base:?} and a second loss");
    }

    /// Loses power inside the start from `image`, at every step of it.
    pub fn cut_inside_the_start(&mut self, image: &SimDisk) {
        let mut whole = image.clone();
        boot_disk(&mut whole, &options(1), self.node.now).expect("starts");
        for step in image.steps()..whole.steps() {
            let mut crashed = image.clone();
            crashed.crash_before(step);
            let booted = boot_disk(&mut crashed, &options(1), self.node.now);
            assert!(booted.is_err() && crashed.is_crashed(), "the start was cut");
            self.cut(&crashed);
        }
    }
}
