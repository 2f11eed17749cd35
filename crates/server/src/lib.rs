//! Configuration and bootstrap of a Borzoi node.
//!
//! [`run`] is the whole life of a server process: settings, log, data directory, recovery,
//! listeners, shards, the line that says it is ready, and a clean stop. Whatever refuses the
//! start is told in one line on standard error, and the exit code is a failure.

mod boot;
mod bootstrap;
pub mod config;
pub mod credentials;
mod diagnostics;
mod effective;
mod encryption;
mod http;
mod logging;
mod metrics;
mod random;

pub use bootstrap::{ServeError, ServeOptions};

use std::io::Write as _;
use std::process::ExitCode;

/// Runs a node until it is told to stop.
#[must_use]
pub fn run(options: ServeOptions) -> ExitCode {
    match bootstrap::serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may be filtered or not set up; this line must be seen.
            let _ = writeln!(std::io::stderr(), "borzoi: {error}");
            ExitCode::FAILURE
        }
    }
}
