//! The log: text for people on standard error, or one JSON object per line.

use crate::config::{LogFormat, Settings};
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(settings: &Settings) {
    let filter =
        EnvFilter::builder().parse(&settings.log_level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // It fails when a subscriber exists, as in a process that embeds the server: that one stays.
    let _ = match settings.log_format {
        LogFormat::Human => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
