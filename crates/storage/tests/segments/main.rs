//! Segments, reads and checkpoints, driven through their public face on a disk in memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not recognise")]

mod crash;
mod damage;
mod formats;
mod model;
mod reads;
mod rules;
mod script;
mod support;
