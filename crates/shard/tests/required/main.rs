//! Required behaviours A and B on one node: one test per number, the number in its name.
//!
//! The table number, test, code is in `docs/internals/offsets-and-materialisation.md`. Lanes are
//! driven over a simulated disk ([`support`]), clients with wire frames over a whole node
//! ([`world`]).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports its counts")]

#[allow(dead_code, reason = "shared with the tests of clients")]
#[path = "../clients/client.rs"]
mod client;
mod early;
mod incarnations;
mod jumps;
mod limits;
mod offsets;
mod order;
mod power;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with the tests of clients")]
#[path = "../clients/world.rs"]
mod world;
