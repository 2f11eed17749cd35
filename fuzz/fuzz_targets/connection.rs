//! The life of a connection under any stream of bytes, cut anywhere, on a whole node.
//!
//! The harness is the one of the property test in `crates/shard/tests/clients`: nothing panics,
//! every complete request is answered once or the connection ends, others are undisturbed.
#![no_main]
#![allow(dead_code, reason = "the harness is shared with tests that use more of it")]

#[path = "../../crates/shard/tests/clients/client.rs"]
mod client;
#[path = "../../crates/shard/tests/clients/stream.rs"]
mod stream;
#[path = "../../crates/shard/tests/clients/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| stream::run(script));
