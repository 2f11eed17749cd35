//! Configuration and bootstrap of a Borzoi node.

pub mod config;
