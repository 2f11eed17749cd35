//! Threads beside a shard's loop: disk work and the figures of the machine.

pub mod disk;
pub mod host;
