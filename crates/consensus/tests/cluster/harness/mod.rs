//! A cluster in one thread from one seed: replicas, links that lose, delay, duplicate, reorder and
//! partition, journals that forget what was not flushed, and checks that watch everything.

pub mod checks;
pub mod disk;
mod ending;
mod journal;
pub mod random;
pub mod world;

pub use world::{Config, World};
