//! Clients of a cluster of three nodes: any node accepts any request, and one answer comes.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[allow(dead_code, reason = "the tests of one node use all of it")]
#[path = "../clients/client.rs"]
mod client;
mod every_node;
mod failover;
mod routing;
mod sessions;
mod support;
mod world;
