//! Segments, reads and checkpoints, driven through their public face on a disk in memory.

mod crash;
mod damage;
mod formats;
mod model;
mod reads;
mod rules;
mod script;
mod support;
