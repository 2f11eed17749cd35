//! One node: a machine with a disk and clocks, and perhaps a process on it.

use crate::world::clock::Clock;
use crate::world::disk::DiskQueues;
use borzoi_shard::boot::{BootOptions, Formation};
use borzoi_shard::{Event, Shard};
use borzoi_storage::disk::DiskIdentity;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::Mono;
use std::collections::{BTreeSet, VecDeque};

/// One shard of a running process.
pub struct Core {
    /// The product.
    pub shard: Shard,
    /// Events that wait for the next batch.
    pub inbox: VecDeque<Event>,
    /// Its disk queues.
    pub disk: DiskQueues,
    pub(crate) wake: bool,
    pub(crate) tick: Option<Mono>,
}

impl Core {
    /// A shard as boot made it.
    #[must_use]
    pub fn new(shard: Shard) -> Self {
        let (inbox, disk) = (VecDeque::new(), DiskQueues::default());
        Self { shard, inbox, disk, wake: false, tick: None }
    }
}

/// A running process.
pub struct Process {
    /// Its shards.
    pub cores: Vec<Core>,
    /// Shards that have stopped cleanly.
    pub stopped: BTreeSet<usize>,
    /// Whether it was told to stop.
    pub stopping: bool,
}

/// A start that asks the other nodes how to begin.
pub struct Forming {
    /// The product.
    pub formation: Box<Formation>,
    /// With what it will start.
    pub options: BootOptions,
    /// What its randomness follows from.
    pub seed: u64,
}

/// See the module.
pub struct Node {
    /// The process, unless it is down.
    pub process: Option<Process>,
    /// Its start, while it asks the others.
    pub forming: Option<Forming>,
    /// Bytes of its files have been damaged.
    pub damaged: bool,
    /// The disk.
    pub disk: SimDisk,
    /// Rises with every start and every end of the process.
    pub life: u64,
    /// Clocks of this life.
    pub clock: Clock,
    /// The process stands still until then.
    pub paused_until: Mono,
    /// No disk request ends before.
    pub stuck_until: Mono,
    /// Disk requests are slow until then.
    pub slow_until: Mono,
    /// The disk is full until then.
    pub full_until: Mono,
    /// The wall clock strobes until then.
    pub strobe_until: Mono,
    /// Starts that came to serve.
    pub starts: u64,
    /// Boot identities handed out.
    pub boot_ids: u64,
    /// Shards of the present or last process.
    pub shards: u16,
    /// Why the node refused to start, the last time it tried.
    pub refusal: Option<String>,
    /// A start is scheduled.
    pub boot_pending: bool,
}

impl Node {
    /// A machine with an empty disk and nothing running.
    #[must_use]
    pub fn new(index: usize, clock: Clock) -> Self {
        Self {
            process: None,
            forming: None,
            damaged: false,
            disk: SimDisk::new(DiskIdentity {
                boot_id: Some(1_u128.to_le_bytes()),
                device: 7,
                inode: 100 + index as u64,
            }),
            life: 0,
            clock,
            paused_until: Mono(0),
            stuck_until: Mono(0),
            slow_until: Mono(0),
            full_until: Mono(0),
            strobe_until: Mono(0),
            starts: 0,
            boot_ids: 1,
            shards: 0,
            refusal: None,
            boot_pending: false,
        }
    }

    /// Whether a process runs here.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Whether a process runs here or is about to.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.process.is_some() || self.forming.is_some()
    }

    /// Everything that is wrong with the machine is over.
    pub fn heal(&mut self) {
        let zero = Mono(0);
        self.paused_until = zero;
        self.stuck_until = zero;
        self.slow_until = zero;
        self.full_until = zero;
        self.strobe_until = zero;
        self.disk.heal();
        self.disk.set_capacity(None);
    }
}
