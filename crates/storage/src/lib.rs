//! What a node keeps on its disk: journal, superblock, segments, indexes, checkpoints, recovery.
//!
//! State machines that emit [`disk::DiskRequest`]s and take their results back as events; the
//! straight-line code that runs once at boot works on the [`disk::Disk`] trait. Nothing here
//! opens a file: `runtime` does for real, [`sim_disk`] in tests and in the simulator.
//!
//! Read [`disk`] first, then [`journal`], [`recovery`] and [`generation`]; then [`segment`],
//! [`partition`] and [`checkpoint`] for what the journal is released into. The layouts of all
//! files stand together in `docs/internals/data-files.md`.

#[cfg(test)]
mod bench;
pub mod cache;
pub mod checkpoint;
pub mod disk;
pub mod generation;
pub mod index;
pub mod journal;
pub mod partition;
pub mod recovery;
pub mod sealing;
pub mod segment;
pub mod sim_disk;
pub mod superblock;
