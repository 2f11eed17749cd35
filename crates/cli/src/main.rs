//! The binary `borzoi`.
fn main() {}
