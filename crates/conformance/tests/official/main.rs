//! The official Apache Iggy Rust client 0.11.0 against the real binary: one sentence a scenario.
#![allow(missing_docs, clippy::print_stdout)]

mod connections;
mod durability;
mod fixtures;
mod high_level;
mod hostile;
mod messages;
mod offsets;
mod partitions;
mod polls;

mod streams;
mod support;
mod topics;
