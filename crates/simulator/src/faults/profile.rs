//! The shape of a run, drawn whole from its seed before anything happens (swarm testing): sizes,
//! latencies, rates. A rate of zero switches a fault off, and every seed has its own set.

use crate::faults::nemesis::FaultKind;
use crate::random::Dice;
use borzoi_shard::Lanes;
use borzoi_storage::journal::JournalOptions;
use borzoi_types::Duration;
use std::collections::BTreeMap;

/// Both ends included; the unit stands with each use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range(pub u64, pub u64);

impl Range {
    /// A value in the range; mostly near the low end, as latencies are.
    pub fn draw(self, dice: &mut Dice) -> u64 {
        if dice.chance(85) {
            dice.between(self.0, self.0 + (self.1 - self.0) / 8)
        } else {
            dice.between(self.0, self.1)
        }
    }

    fn of(dice: &mut Dice, low: Range, high: Range) -> Self {
        let low = dice.between(low.0, low.1);
        Self(low, low + dice.between(high.0, high.1))
    }
}

/// Latencies of a disk, microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskProfile {
    /// A write of the journal.
    pub write: Range,
    /// A flush of the journal.
    pub flush: Range,
    /// Anything in the pool.
    pub pool: Range,
}

/// What links do to frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkProfile {
    /// Microseconds on the way.
    pub delay: Range,
    /// Percent of frames lost.
    pub loss: u64,
    /// Percent of frames that arrive twice.
    pub duplicate: u64,
    /// Percent of frames that may be overtaken.
    pub reorder: u64,
    /// Frames of 10,000 that arrive with a byte changed.
    pub corrupt: u64,
}

/// Everything about a run that is decided before it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The seed that all of it follows from.
    pub seed: u64,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Most shards that a start may choose; each start of each node draws its own number.
    pub shards_max: u16,
    /// Lanes by level.
    pub lanes: Lanes,
    /// Sizes of the journals.
    pub journal: JournalOptions,
    /// Budget of each shard's cache of chunks, bytes.
    pub cache_bytes: usize,
    /// Offsets reserved ahead in lanes of level `replicated`.
    pub lease: u64,
    /// Between two checkpoints of a log that changes.
    pub checkpoint_interval: Duration,
    /// How long an early request waits.
    pub park_age_max: Duration,
    /// From an event to the batch that takes it, microseconds.
    pub wake: Range,
    /// Most events of a batch.
    pub batch_max: usize,
    /// Disks.
    pub disk: DiskProfile,
    /// Between nodes.
    pub link: LinkProfile,
    /// Between clients and nodes, one way, microseconds.
    pub client_delay: Range,
    /// A password job, microseconds.
    pub password: Range,
    /// Drift of each node's clocks, parts per million, either way.
    pub drift_ppm: u64,
    /// Mean time between faults of a kind, milliseconds; a kind that is absent never strikes.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Faults strike until then at the latest, milliseconds of simulated time.
    pub faults_until: u64,
    /// Sends that the run must confirm.
    pub sends_wanted: u64,
    /// Whether every disk loses or keeps unsynced sectors at a power cut; percent lost.
    pub lost_percent: u64,
}

impl Profile {
    /// The profile of `seed`. `nodes` overrides how many nodes there are.
    #[must_use]
    pub fn draw(seed: u64, nodes: Option<usize>) -> Self {
        let mut dice = Dice::fork(seed, "profile");
        let calm = dice.chance(6);
        let drawn = *dice.pick(Self::SIZES);
        let nodes = nodes.unwrap_or(drawn);
        let mut profile = Self::sized(seed, nodes, &mut dice);
        if calm {
            return profile;
        }
        profile.disk = DiskProfile {
            write: Range::of(&mut dice, Range(5, 60), Range(20, 3_000)),
            flush: Range::of(&mut dice, Range(50, 1_500), Range(100, 20_000)),
            pool: Range::of(&mut dice, Range(20, 1_000), Range(100, 30_000)),
        };
        profile.client_delay = Range::of(&mut dice, Range(20, 500), Range(10, 20_000));
        profile.wake = Range::of(&mut dice, Range(0, 20), Range(0, 400));
        profile.drift_ppm = dice.below(3) * 25_000;
        profile.draw_link(&mut dice);
        profile.draw_faults(&mut dice);
        profile
    }

    /// How many nodes a run may have; drawn evenly.
    const SIZES: &[usize] = &[1];

    fn sized(seed: u64, nodes: usize, dice: &mut Dice) -> Self {
        let file_bytes = *dice.pick(&[256 * 1024, 512 * 1024, 1024 * 1024, 4 * 1024 * 1024]);
        let files_max = u32::try_from(dice.between(3, 6)).expect("small");
        let lanes = |dice: &mut Dice| u32::try_from(dice.between(1, 3)).expect("small");
        Self {
            seed,
            nodes,
            shards_max: u16::try_from(dice.between(1, 3)).expect("small"),
            lanes: Lanes { persisted: lanes(dice), replicated: lanes(dice) },
            journal: JournalOptions { file_bytes, files_max },
            cache_bytes: 1 << dice.between(16, 24),
            lease: *dice.pick(&[1, 7, 64, 1_000, 65_536]),
            checkpoint_interval: Duration::from_millis(dice.between(20, 2_000)),
            park_age_max: Duration::from_millis(dice.between(200, 3_000)),
            wake: Range(0, 20),
            batch_max: usize::try_from(1 << dice.below(8)).expect("small"),
            disk: DiskProfile { write: Range(5, 50), flush: Range(50, 500), pool: Range(20, 500) },
            link: LinkProfile {
                delay: Range(20, 400),
                loss: 0,
                duplicate: 0,
                reorder: 0,
                corrupt: 0,
            },
            client_delay: Range(20, 200),
            password: Range(5_000, 60_000),
            drift_ppm: 0,
            faults: BTreeMap::new(),
            faults_until: 60_000,
            sends_wanted: 200,
            lost_percent: dice.below(101),
        }
    }

    fn draw_link(&mut self, dice: &mut Dice) {
        let some = |dice: &mut Dice, most: u64| if dice.chance(50) { dice.below(most) } else { 0 };
        self.link = LinkProfile {
            delay: Range::of(dice, Range(20, 1_000), Range(100, 50_000)),
            loss: some(dice, 20),
            duplicate: some(dice, 30),
            reorder: some(dice, 50),
            corrupt: some(dice, 100),
        };
    }

    /// Each kind is on with even chance; one at least is.
    fn draw_faults(&mut self, dice: &mut Dice) {
        let possible: Vec<FaultKind> =
            FaultKind::ALL.iter().copied().filter(|kind| kind.is_possible(self.nodes)).collect();
        for kind in &possible {
            if dice.chance(45) {
                self.faults.insert(*kind, dice.between(100, 4_000));
            }
        }
        if self.faults.is_empty() {
            self.faults.insert(*dice.pick(&possible), dice.between(50, 500));
        }
    }

    /// Takes everything out that goes wrong, and all slowness.
    pub fn calm(&mut self) {
        self.faults.clear();
        self.disk =
            DiskProfile { write: Range(5, 50), flush: Range(50, 500), pool: Range(20, 500) };
        let delay = Range(20, 400);
        self.link = LinkProfile { delay, loss: 0, duplicate: 0, reorder: 0, corrupt: 0 };
        self.client_delay = Range(20, 200);
        self.wake = Range(0, 20);
        self.drift_ppm = 0;
    }

    /// Whether anything goes wrong in this run.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        !self.faults.is_empty()
    }
}
