//! The file with the values in effect, addresses as really bound.

use crate::config::Settings;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Writes `<data>/runtime/current_config.toml`, in one piece. Existing harnesses of the reference
/// system look for it there. It holds no secrets.
///
/// # Errors
/// Those of the file system.
pub fn write(
    data_directory: &Path,
    settings: &Settings,
    bound: SocketAddr,
    http_bound: Option<SocketAddr>,
) -> io::Result<PathBuf> {
    let mut settings = settings.clone();
    settings.tcp_address = bound.to_string();
    if let Some(bound) = http_bound {
        settings.http_address = bound.to_string();
    }
    let directory = data_directory.join("runtime");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("current_config.toml");
    let beside = directory.join("current_config.toml.new");
    std::fs::write(&beside, settings.to_toml())?;
    std::fs::rename(&beside, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn the_file_names_the_addresses_that_were_bound() {
        let directory = tempfile::tempdir().unwrap();
        let (settings, _) = Settings::load(&Sources::default()).unwrap();
        let bound = "127.0.0.1:4711".parse().unwrap();
        let http = "127.0.0.1:4712".parse().unwrap();
        let path = write(directory.path(), &settings, bound, Some(http)).unwrap();
        let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        assert_eq!(table["tcp"]["address"].as_str(), Some("127.0.0.1:4711"));
        assert_eq!(table["http"]["address"].as_str(), Some("127.0.0.1:4712"));
        assert_eq!(table["lanes"]["persisted"].as_integer(), Some(8));
    }
}
