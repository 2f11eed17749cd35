//! What clients do: drawn per seed, over every operation that the server accepts.

use crate::clients::Client;
use crate::random::Dice;

/// The world that a workload is made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Lanes of level `persisted`, at least one.
    pub lanes_persisted: u32,
    /// Lanes of level `replicated`, perhaps none.
    pub lanes_replicated: u32,
    /// Whether faults will be injected.
    pub faulty: bool,
    /// Sends that the run must confirm at least.
    pub sends_wanted: u64,
    /// Name and password of the root user.
    pub root: (&'static str, &'static str),
}

/// The clients of a run.
#[must_use]
pub fn clients(_setting: &Setting, _dice: &mut Dice) -> Vec<Box<dyn Client>> {
    Vec::new()
}
