//! `borzoi serve`.

use clap::Args;
use std::process::ExitCode;

/// Flags of `borzoi serve`.
#[derive(Debug, Args)]
pub struct Serve {}

/// Runs the server until it stops.
pub fn run(_options: Serve) -> ExitCode {
    ExitCode::FAILURE
}
