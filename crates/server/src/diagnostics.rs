//! Diagnostic archives: a ZIP file with one text per section (behaviour, section 18.4).
//!
//! Made on a thread of its own, from files and `/proc` alone, so that nothing waits for it and
//! nothing of it waits for the server. A section that cannot be made is left out. Nothing here
//! holds a secret: the configuration is the file of effective values, which has none.

use borzoi_runtime::ArchiveMaker;
use borzoi_shard::event::ArchiveJob;
use borzoi_types::limits::ARCHIVE_SECTION_BYTES_MAX;
use borzoi_wire::body::{SnapshotCompression, SnapshotContent};
use bytes::Bytes;
use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Makes the archives of the node whose data lies in `data`.
#[must_use]
pub fn maker(data: PathBuf) -> ArchiveMaker {
    Arc::new(move |job| make(&data, job))
}

fn make(data: &Path, job: &ArchiveJob) -> Option<Bytes> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let method = match job.compression {
        SnapshotCompression::Stored => CompressionMethod::Stored,
        _ => CompressionMethod::Deflated,
    };
    let options = SimpleFileOptions::default().compression_method(method);
    for section in &job.content {
        match text_of(data, *section) {
            Ok(text) => {
                archive.start_file(file_name(*section), options).ok()?;
                archive.write_all(text.as_bytes()).ok()?;
            }
            Err(error) => tracing::warn!(?section, %error, "left out of a diagnostic archive"),
        }
    }
    Some(Bytes::from(archive.finish().ok()?.into_inner()))
}

/// As existing users know them.
const fn file_name(section: SnapshotContent) -> &'static str {
    match section {
        SnapshotContent::Filesystem => "filesystem_overview.txt",
        SnapshotContent::Processes => "process_list.txt",
        SnapshotContent::ResourceUsage => "resource_usage.txt",
        SnapshotContent::Test => "test.txt",
        SnapshotContent::ServerLogs => "server_logs.txt",
        SnapshotContent::ServerConfiguration => "server_config.txt",
        SnapshotContent::All => "all.txt",
    }
}

fn text_of(data: &Path, section: SnapshotContent) -> std::io::Result<String> {
    match section {
        SnapshotContent::Filesystem => files_below(data),
        SnapshotContent::Processes => processes(),
        SnapshotContent::ResourceUsage => resources(),
        SnapshotContent::Test | SnapshotContent::All => Ok("test\n".to_owned()),
        SnapshotContent::ServerLogs => logs(&data.join("logs")),
        SnapshotContent::ServerConfiguration => {
            fs::read_to_string(data.join("runtime").join("current_config.toml"))
        }
    }
}

/// Sizes and names of all files of the data directory, as far as they fit.
fn files_below(data: &Path) -> std::io::Result<String> {
    let mut text = format!("{}\n", data.display());
    let mut left = vec![data.to_owned()];
    while let Some(directory) = left.pop() {
        let mut entries: Vec<_> = fs::read_dir(&directory)?.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // A file may go away while this looks.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                left.push(entry.path());
            }
            if text.len() >= ARCHIVE_SECTION_BYTES_MAX {
                text.push_str("... cut short\n");
                return Ok(text);
            }
            let path = entry.path();
            let shown = path.strip_prefix(data).unwrap_or(&path);
            let _ = writeln!(text, "{:>14} {}", meta.len(), shown.display());
        }
    }
    Ok(text)
}

/// Number, state, resident memory and name of every process. No command lines: they may hold
/// secrets of others.
fn processes() -> std::io::Result<String> {
    let mut text = String::from("pid state resident name\n");
    let mut numbers: Vec<u32> = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    for number in numbers {
        // It may have ended.
        let Ok(status) = fs::read_to_string(format!("/proc/{number}/status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("-", str::trim)
        };
        let (state, resident) = (field("State:"), field("VmRSS:"));
        let _ = writeln!(text, "{number} {state} {resident} {}", field("Name:"));
    }
    Ok(text)
}

/// What the system says about memory, load, pressure and this process.
fn resources() -> std::io::Result<String> {
    let mut text = String::new();
    let files = [
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/pressure/io",
        "/proc/pressure/memory",
        "/proc/self/status",
        "/proc/self/io",
    ];
    for file in files {
        if let Ok(content) = fs::read_to_string(file) {
            let _ = writeln!(text, "{file}\n{content}");
        }
    }
    if text.is_empty() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(text) }
}

/// The ends of the log files, newest first, as far as they fit.
fn logs(directory: &Path) -> std::io::Result<String> {
    let mut files: Vec<_> = fs::read_dir(directory)?
        .flatten()
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((meta.modified().ok()?, meta.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut text = String::new();
    let mut room = ARCHIVE_SECTION_BYTES_MAX as u64;
    for (_, bytes, path) in files.iter().rev() {
        let take = room.min(*bytes);
        let mut file = fs::File::open(path)?;
        file.seek(SeekFrom::Start(bytes - take))?;
        let mut content = Vec::new();
        file.take(take).read_to_end(&mut content)?;
        let _ = writeln!(text, "{}\n{}", path.display(), String::from_utf8_lossy(&content));
        room -= take;
        if room == 0 {
            break;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zip::ZipArchive;

    fn archive_of(
        data: &Path,
        compression: SnapshotCompression,
        content: &[SnapshotContent],
    ) -> ZipArchive<Cursor<Bytes>> {
        let job = ArchiveJob { compression, content: content.to_vec() };
        let bytes = maker(data.to_owned())(&job).unwrap();
        ZipArchive::new(Cursor::new(bytes)).unwrap()
    }

    fn read(archive: &mut ZipArchive<Cursor<Bytes>>, name: &str) -> String {
        let mut text = String::new();
        archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn every_section_that_can_be_made_is_a_text_of_the_archive_and_the_others_are_left_out() {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir_all(data.path().join("runtime")).unwrap();
        fs::write(data.path().join("runtime/current_config.toml"), "[tcp]\n").unwrap();
        let content = [
            SnapshotContent::Filesystem,
            SnapshotContent::Processes,
            SnapshotContent::ResourceUsage,
            SnapshotContent::Test,
            SnapshotContent::ServerLogs,
            SnapshotContent::ServerConfiguration,
        ];
        for compression in [SnapshotCompression::Stored, SnapshotCompression::Deflated] {
            let mut archive = archive_of(data.path(), compression, &content);
            assert_eq!(archive.len(), 5, "there are no log files");
            assert_eq!(read(&mut archive, "test.txt"), "test\n");
            assert_eq!(read(&mut archive, "server_config.txt"), "[tcp]\n");
            let files = read(&mut archive, "filesystem_overview.txt");
            assert!(files.contains("runtime/current_config.toml"), "{files}");
            let own = std::process::id().to_string();
            assert!(read(&mut archive, "process_list.txt").lines().any(|l| l.starts_with(&own)));
            assert!(read(&mut archive, "resource_usage.txt").contains("VmRSS"));
        }
    }

    #[test]
    fn of_long_logs_the_newest_end_is_shown() {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir_all(data.path().join("logs")).unwrap();
        let mut long = vec![b'a'; ARCHIVE_SECTION_BYTES_MAX];
        long.extend_from_slice(b"the end");
        fs::write(data.path().join("logs/borzoi.log"), &long).unwrap();
        let wanted = [SnapshotContent::ServerLogs];
        let mut archive = archive_of(data.path(), SnapshotCompression::Deflated, &wanted);
        let text = read(&mut archive, "server_logs.txt");
        assert!(text.trim_end().ends_with("the end"));
        assert!(text.len() < ARCHIVE_SECTION_BYTES_MAX + 1_000);
    }
}
