//! When each kind of fault strikes, and whom.

use crate::faults::Profile;
use crate::random::Dice;
use std::collections::BTreeMap;

/// A kind of fault that strikes at moments. Rates of links and latencies are not among them: they
/// hold for a whole run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultKind {
    /// `kill -9` of one node.
    Kill,
    /// Power cut of one node; the machine comes up with another boot identity.
    PowerCut,
    /// Power cut of every node at once.
    PowerCutAll,
    /// A clean stop and a start.
    Restart,
    /// The process stands still, also longer than any time-out.
    Pause,
    /// A write of the journal fails.
    JournalWriteError,
    /// A flush of the journal fails; the process must stop.
    JournalSyncError,
    /// Any other disk request fails once.
    DiskError,
    /// The disk is full for a while.
    DiskFull,
    /// Every disk request takes about a second for a while.
    DiskSlow,
    /// No disk request ends for a while.
    DiskStuck,
    /// The wall clock steps.
    ClockStep,
    /// The wall clock jumps to and fro for a while.
    ClockStrobe,
    /// Every connection of a client is cut.
    ClientsCut,
    /// One direction of one link between nodes is cut.
    LinkCut,
    /// One node, a minority or a majority is cut off.
    Partition,
    /// Links close one after the other and open again in another order.
    SwizzleClog,
    /// Nothing passes a link for a while; then everything does.
    LinkClog,
}

impl FaultKind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Kill,
        Self::PowerCut,
        Self::PowerCutAll,
        Self::Restart,
        Self::Pause,
        Self::JournalWriteError,
        Self::JournalSyncError,
        Self::DiskError,
        Self::DiskFull,
        Self::DiskSlow,
        Self::DiskStuck,
        Self::ClockStep,
        Self::ClockStrobe,
        Self::ClientsCut,
        Self::LinkCut,
        Self::Partition,
        Self::SwizzleClog,
        Self::LinkClog,
    ];

    /// Whether it can happen to a cluster of this size.
    #[must_use]
    pub fn is_possible(self, nodes: usize) -> bool {
        match self {
            Self::LinkCut | Self::Partition | Self::SwizzleClog | Self::LinkClog => nodes > 1,
            Self::PowerCutAll => nodes > 1,
            _ => true,
        }
    }

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::PowerCut => "power cut",
            Self::PowerCutAll => "power cut of all",
            Self::Restart => "clean restart",
            Self::Pause => "process paused",
            Self::JournalWriteError => "journal write fails",
            Self::JournalSyncError => "journal flush fails",
            Self::DiskError => "disk request fails",
            Self::DiskFull => "disk full",
            Self::DiskSlow => "disk slow",
            Self::DiskStuck => "disk stuck",
            Self::ClockStep => "clock steps",
            Self::ClockStrobe => "clock strobes",
            Self::ClientsCut => "client connections cut",
            Self::LinkCut => "link cut one way",
            Self::Partition => "network partitioned",
            Self::SwizzleClog => "links swizzled",
            Self::LinkClog => "link clogged",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// Draws the moments.
#[derive(Clone, Debug)]
pub struct Nemesis {
    dice: Dice,
    means: BTreeMap<FaultKind, u64>,
}

impl Nemesis {
    /// The faults of a profile.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        let dice = Dice::fork(profile.seed, "nemesis");
        Self { dice, means: profile.faults.clone() }
    }

    /// The kinds that strike.
    #[must_use]
    pub fn kinds(&self) -> Vec<FaultKind> {
        self.means.keys().copied().collect()
    }

    /// Microseconds until a kind strikes next.
    pub fn next_in(&mut self, kind: FaultKind) -> u64 {
        let mean = self.means.get(&kind).copied().unwrap_or(1_000) * 1_000;
        self.dice.between(mean / 10, mean * 19 / 10)
    }

    /// For what a fault needs to decide.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }
}
