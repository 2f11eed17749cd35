//! The log: text for people or one JSON object per line, on standard error and in files.
//!
//! Standard error is there from the beginning; files follow when the data directory is locked,
//! because they usually lie in it. A thread of its own writes the files, so a slow disk delays no
//! shard; what it cannot keep up with is counted and said, on standard error and in the file.

mod files;
mod writer;

use crate::config::{LogFormat, Settings};
use files::{LogFiles, Rotation};
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};
pub use writer::FileWriter;
use writer::Lines;

/// Where lines go that are meant for the files, once there are any.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Starts logging to standard error for the whole process. A second call changes nothing.
pub fn start(settings: &Settings) {
    let filter =
        EnvFilter::builder().parse(&settings.log_level).unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = io::stderr().is_terminal();
    let human = settings.log_format == LogFormat::Human;
    let layer = |to_files: bool| {
        let layer = fmt::layer::<Registry>().with_ansi(is_terminal && !to_files && human);
        match (to_files, human) {
            (false, true) => layer.with_target(false).with_writer(io::stderr).boxed(),
            (false, false) => layer.json().flatten_event(true).with_writer(io::stderr).boxed(),
            (true, true) => layer.with_target(false).with_writer(ToFiles).boxed(),
            (true, false) => layer.json().flatten_event(true).with_writer(ToFiles).boxed(),
        }
    };
    let mut layers = vec![layer(false)];
    if settings.log_files {
        layers.push(layer(true));
    }
    // It fails when a subscriber exists, as in a process that embeds the server: that one stays.
    let _ = Registry::default().with(layers).with(filter).try_init();
}

/// Begins to write files, if they are wanted. What is returned must live as long as the server:
/// dropping it writes what is still on its way.
///
/// # Errors
/// When the directory or the file cannot be made.
pub fn start_files(settings: &Settings) -> io::Result<Option<FileWriter>> {
    let Some(directory) = settings.log_files_in() else { return Ok(None) };
    let limit = |bytes: u64| (bytes != 0).then_some(bytes);
    let rotation = Rotation {
        file_bytes_max: limit(settings.log_file_bytes_max),
        file_age_max: settings.log_file_age_max,
        total_bytes_max: limit(settings.log_total_bytes_max),
        retention: settings.log_retention,
    };
    let files = LogFiles::open(&directory, rotation, std::time::SystemTime::now())?;
    let (writer, lines) = FileWriter::start(files)?;
    // In a process that starts several servers the first one's files get the lines.
    let _ = LINES.set(lines);
    Ok(Some(writer))
}

/// Hands each line to the thread that writes files; before there is one, nowhere.
struct ToFiles;

impl<'a> MakeWriter<'a> for ToFiles {
    type Writer = Line;

    fn make_writer(&'a self) -> Self::Writer {
        Line(Vec::new())
    }
}

/// One line being put together.
struct Line(Vec<u8>);

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(lines) = LINES.get() {
            lines.hand_over(std::mem::take(&mut self.0));
        }
    }
}
