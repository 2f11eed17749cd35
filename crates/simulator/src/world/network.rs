//! Links between nodes: every shard has its own to every other node. They lose, repeat, reorder,
//! delay and change frames, pass one direction only, clog, and break with the process at an end.

use crate::random::Dice;
use crate::world::World;
use crate::world::queue::{Happening, Place};
use borzoi_shard::Event;
use borzoi_shard::boot::FormationEvent;
use borzoi_types::{Duration, Mono, ReplicaId};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Frames of the past that a link may deliver again.
const REPLAY_FRAMES: usize = 32;

/// State of all links.
#[derive(Debug)]
pub struct Network {
    /// By sender and receiver: nothing passes.
    cut: Vec<Vec<bool>>,
    /// By sender and receiver: what is sent waits until then.
    clogged: Vec<Vec<Mono>>,
    /// By sender, its shard and receiver: the last frame in order arrives then.
    last: BTreeMap<(usize, usize, usize), Mono>,
    past: VecDeque<(usize, usize, Bytes)>,
    /// Frames sent.
    pub sent: u64,
}

impl Network {
    /// Links between `nodes` nodes, all open.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self {
            cut: vec![vec![false; nodes]; nodes],
            clogged: vec![vec![Mono(0); nodes]; nodes],
            last: BTreeMap::new(),
            past: VecDeque::new(),
            sent: 0,
        }
    }

    /// Lets nothing pass from one node to another, or everything again.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        self.cut[from][to] = cut;
    }

    /// Lets nothing pass between one node and another in either direction, or everything again.
    pub fn cut_both(&mut self, a: usize, b: usize, cut: bool) {
        self.cut(a, b, cut);
        self.cut(b, a, cut);
    }

    /// Holds everything back that is sent from one node to another, until a moment.
    pub fn clog(&mut self, from: usize, to: usize, until: Mono) {
        self.clogged[from][to] = until;
    }

    /// Opens every link.
    pub fn heal(&mut self) {
        self.cut.iter_mut().for_each(|row| row.fill(false));
        self.clogged.iter_mut().for_each(|row| row.fill(Mono(0)));
    }

    /// Whether frames pass from one node to another.
    #[must_use]
    pub fn is_open(&self, from: usize, to: usize) -> bool {
        !self.cut[from][to]
    }

    fn remember(&mut self, from: usize, to: usize, frame: &Bytes) {
        if self.past.len() == REPLAY_FRAMES {
            self.past.pop_front();
        }
        self.past.push_back((from, to, frame.clone()));
    }
}

impl World {
    /// A shard sends a frame to another node.
    pub(crate) fn send_to_peer(&mut self, place: Place, to: ReplicaId, parts: &[Bytes]) {
        let (from, to) = (place.node, usize::from(to.0));
        assert!(from != to && to < self.nodes.len(), "node {from} sends to node {to}");
        let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        parts.iter().for_each(|part| all.extend_from_slice(part));
        let frame = all.freeze();
        self.network.sent += 1;
        if let Some(process) = &self.nodes[from].process {
            let to = ReplicaId(u8::try_from(to).expect("clusters are small"));
            self.checks.sent(from, to, &frame, process);
        }
        let link = self.profile.link;
        let faulty = self.faults_on;
        if !self.network.is_open(from, to) || (faulty && self.dice.chance(link.loss)) {
            self.coverage.fault("frame lost");
            return;
        }
        if faulty && self.dice.rarely(20) {
            self.network.remember(from, to, &frame);
        }
        self.travel(place, to, frame.clone());
        if faulty && self.dice.chance(link.duplicate) {
            self.coverage.fault("frame duplicated");
            self.travel(place, to, frame.clone());
        }
        if faulty && self.dice.rarely(link.corrupt) {
            self.coverage.fault("frame corrupted");
            let frame = corrupted(&frame, &mut self.dice);
            self.travel(place, to, frame);
        }
        if faulty && self.dice.rarely(link.corrupt / 4) {
            self.replay(place);
        }
    }

    /// An old frame comes again, perhaps from a node that it is not from.
    fn replay(&mut self, place: Place) {
        if self.network.past.is_empty() {
            return;
        }
        let at = self.dice.index(self.network.past.len());
        let (from, to, frame) = self.network.past[at].clone();
        if from == place.node {
            self.coverage.fault("old frame replayed");
            self.travel(place, to, frame);
        } else if to != place.node {
            self.coverage.fault("frame of an impostor");
            self.travel(place, to, frame);
        }
    }

    fn travel(&mut self, place: Place, to: usize, frame: Bytes) {
        let link = self.profile.link;
        let delay = Duration::from_micros(link.delay.draw(&mut self.dice));
        let clogged = self.network.clogged[place.node][to];
        let mut at = self.now.plus(delay).max(clogged);
        let last = self.network.last.entry((place.node, place.shard, to)).or_insert(Mono(0));
        if self.faults_on && self.dice.chance(link.reorder) {
            self.coverage.fault("frame may be overtaken");
        } else {
            at = at.max(*last);
            *last = at;
        }
        let (from, shard) = (place.node, place.shard);
        self.queue.at(at, Happening::Peer { from, shard, to, frame });
    }

    /// A frame arrives.
    pub(crate) fn peer_frame(&mut self, from: usize, shard: usize, to: usize, frame: Bytes) {
        if !self.network.is_open(from, to) {
            self.coverage.fault("frame lost");
            return;
        }
        let from = ReplicaId(u8::try_from(from).expect("clusters are small"));
        if self.nodes[to].forming.is_some() {
            return self.form(to, FormationEvent::Peer { from, frame: &frame });
        }
        if let Some(place) = self.end_of_link(to, shard) {
            self.push(place, Event::Peer { from, frame });
        }
    }

    /// The shard of `node` that the link of a peer's shard leads to.
    fn end_of_link(&self, node: usize, shard: usize) -> Option<Place> {
        let life = self.nodes[node].life;
        let process = self.nodes[node].process.as_ref()?;
        Some(Place { node, life, shard: shard % process.cores.len() })
    }

    /// A process has started: its links and those of the others to it come up, each in its time.
    pub(crate) fn links_up(&mut self, index: usize) {
        for other in 0..self.nodes.len() {
            if other == index || !self.nodes[other].is_alive() {
                continue;
            }
            for (node, peer) in [(index, other), (other, index)] {
                let delay = self.profile.link.delay.draw(&mut self.dice);
                let life = (self.nodes[node].life, self.nodes[peer].life);
                self.queue.after(self.now, delay, Happening::LinkUp { node, peer, life });
            }
        }
    }

    /// The links of one node to a peer are up, if both still live.
    pub(crate) fn link_up(&mut self, node: usize, peer: usize, life: (u64, u64)) {
        if (self.nodes[node].life, self.nodes[peer].life) == life {
            let peer = ReplicaId(u8::try_from(peer).expect("clusters are small"));
            self.tell_shards(node, || Event::PeerUp { peer });
        }
    }

    /// A process is gone: the others learn it soon, or after a silence.
    pub(crate) fn links_down(&mut self, index: usize, silent: bool) {
        for node in 0..self.nodes.len() {
            if node == index || !self.nodes[node].is_up() {
                continue;
            }
            let silence = if silent { self.dice.below(2_000_000) } else { 0 };
            let delay = silence + self.profile.link.delay.draw(&mut self.dice);
            let life = (self.nodes[node].life, self.nodes[index].life);
            self.queue.after(self.now, delay, Happening::LinkDown { node, peer: index, life });
        }
    }

    /// One node learns that its links to a peer are down; not if that has started again since.
    pub(crate) fn link_down(&mut self, node: usize, peer: usize, life: (u64, u64)) {
        if (self.nodes[node].life, self.nodes[peer].life) == life {
            let peer = ReplicaId(u8::try_from(peer).expect("clusters are small"));
            self.tell_shards(node, || Event::PeerDown { peer });
        }
    }

    fn tell_shards(&mut self, node: usize, event: impl Fn() -> Event) {
        let life = self.nodes[node].life;
        let shards = self.nodes[node].process.as_ref().map_or(0, |process| process.cores.len());
        for shard in 0..shards {
            self.push(Place { node, life, shard }, event());
        }
    }
}

fn corrupted(frame: &Bytes, dice: &mut Dice) -> Bytes {
    let mut bytes = frame.to_vec();
    if !bytes.is_empty() {
        let at = dice.index(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
    }
    Bytes::from(bytes)
}
