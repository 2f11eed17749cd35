//! The front, driven with wire frames over a whole node.

mod client;
mod connection_rules;
mod exactly_once;
mod groups;
mod malformed;
mod messages;
mod resources;
mod sessions;
mod users;
mod world;
