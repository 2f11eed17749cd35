//! Whole clusters in one thread from one 64-bit seed: nodes, shards, disks, links, clocks and
//! clients, driving the very `borzoi_shard::Shard` that the server's runtime drives.
//!
//! ```text
//!  clients ──frames──▶ ┌───────────── world ─────────────┐ ◀── faults, drawn per seed
//!  (clients/,          │ node: shards · disk queues ·    │
//!   workload/)         │       SimDisk · clocks          │ ──▶ trace (hash, ring)
//!     │                │ links between (node, shard)     │ ──▶ checkers, one file each
//!     ▼                └─────────────────────────────────┘
//!  history ──────────────────────────────────────────────────▶ client checkers
//! ```
//!
//! Invariants: no wall clock, no operating system randomness, no hash-map iteration, no threads
//! inside a run; everything that is random comes from [`random::Dice`], forked per purpose by name,
//! so that one part drawing more does not change what another part draws.

pub mod batch;
pub mod checkers;
pub mod clients;
pub mod coverage;
pub mod facts;
pub mod faults;
pub mod history;
pub mod minimise;
pub mod random;
pub mod run;
pub mod scenario;
pub mod trace;
pub mod workload;
pub mod world;
