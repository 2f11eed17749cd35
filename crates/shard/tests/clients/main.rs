//! The front, driven with wire frames over a whole node.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod archives;
mod client;
mod connection_rules;
mod exactly_once;
mod group_changes;
mod groups;
mod malformed;
mod messages;
mod output_hold;
mod resources;

mod sealed;
mod segments;
mod sessions;
mod stream;
mod users;
mod world;
