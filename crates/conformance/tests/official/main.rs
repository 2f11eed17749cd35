//! The official Apache Iggy Rust client 0.11.0 against the real binary: one sentence a scenario.
#![allow(missing_docs, clippy::print_stdout)]

mod connections;
mod deleting;
mod durability;
mod fixtures;
mod frames;
mod groups;
mod high_level;
mod hostile;
mod malformed;
mod messages;
mod metrics;
mod names;
mod offsets;
mod partitions;
mod permissions;
mod polls;
mod required;
mod segments;
mod snapshot;

mod streams;
mod support;
mod system;
mod tokens;
mod topics;
mod updates;
mod users;
