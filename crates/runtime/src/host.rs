//! What `/proc` tells about this process and its machine, read once per second.
//!
//! A file that cannot be read leaves its fields at zero: statistics are never a reason to stop.

use std::path::{Path, PathBuf};
use std::time::Instant;

/// One reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostReading {
    /// Share of one core that this process used since the last reading, in percent.
    pub cpu_percent: f32,
    /// Share of all cores that the machine used since the last reading, in percent.
    pub cpu_percent_total: f32,
    /// Resident bytes of this process.
    pub memory_bytes: u64,
    /// Bytes of memory in the machine.
    pub memory_bytes_total: u64,
    /// Bytes of memory that could be used.
    pub memory_bytes_available: u64,
    /// Bytes this process caused to be read from storage.
    pub read_bytes: u64,
    /// Bytes this process caused to be written to storage.
    pub written_bytes: u64,
    /// Threads of this process.
    pub threads: u32,
    /// Open file descriptors of this process.
    pub files_open: u64,
    /// Descriptors it may have open at once.
    pub files_max: u64,
    /// Free bytes of the file system under the data directory.
    pub disk_bytes_free: u64,
    /// All bytes of that file system.
    pub disk_bytes_total: u64,
}

/// Names of the machine and its system, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// Host name.
    pub hostname: String,
    /// Name of the operating system (distribution).
    pub os_name: String,
    /// Version of the operating system.
    pub os_version: String,
    /// Version of the kernel.
    pub kernel_version: String,
}

/// Reads, and remembers the counters of the last reading.
pub struct HostReader {
    data_directory: PathBuf,
    ticks_per_second: u64,
    page_bytes: u64,
    last: Option<(Instant, u64, (u64, u64))>,
}

impl HostReader {
    /// A reader that looks at the file system under `data_directory`.
    #[must_use]
    pub fn new(data_directory: &Path) -> Self {
        Self {
            data_directory: data_directory.to_owned(),
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            page_bytes: rustix::param::page_size() as u64,
            last: None,
        }
    }

    /// Reads everything now.
    pub fn read(&mut self) -> HostReading {
        let mut reading = HostReading::default();
        self.read_process(&mut reading);
        read_memory(&mut reading);
        read_disk_traffic(&mut reading);
        read_descriptors(&mut reading);
        if let Ok(stat) = rustix::fs::statvfs(&self.data_directory) {
            reading.disk_bytes_free = stat.f_bavail.saturating_mul(stat.f_frsize);
            reading.disk_bytes_total = stat.f_blocks.saturating_mul(stat.f_frsize);
        }
        reading
    }

    fn read_process(&mut self, reading: &mut HostReading) {
        let stat = read("/proc/self/stat");
        // The second field is the name in parentheses and may contain spaces.
        let fields: Vec<&str> =
            stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |index: usize| -> u64 {
            fields.get(index).and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let ticks = field(11) + field(12);
        reading.threads = u32::try_from(field(17)).unwrap_or(u32::MAX);
        reading.memory_bytes = field(21).saturating_mul(self.page_bytes);
        let machine = machine_ticks();
        let now = Instant::now();
        if let Some((then, ticks_then, machine_then)) = self.last {
            let seconds = now.duration_since(then).as_secs_f32();
            let used = ticks.saturating_sub(ticks_then) as f32 / self.ticks_per_second as f32;
            if seconds > 0.0 {
                reading.cpu_percent = used / seconds * 100.0;
            }
            let all = machine.1.saturating_sub(machine_then.1) as f32;
            if all > 0.0 {
                let busy = machine.0.saturating_sub(machine_then.0) as f32;
                reading.cpu_percent_total = busy / all * 100.0;
            }
        }
        self.last = Some((now, ticks, machine));
    }
}

/// Names of the machine; empty where the system does not tell.
#[must_use]
pub fn names() -> HostNames {
    let uname = rustix::system::uname();
    let release = read("/etc/os-release");
    let value = |key: &str| -> String {
        release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(|text| text.trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    HostNames {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        os_name: value("NAME"),
        os_version: value("VERSION_ID"),
        kernel_version: uname.release().to_string_lossy().into_owned(),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Busy and total ticks of the machine since boot.
fn machine_ticks() -> (u64, u64) {
    let stat = read("/proc/stat");
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|text| text.parse().ok())
        .collect();
    let total: u64 = ticks.iter().sum();
    let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
    (total.saturating_sub(idle), total)
}

/// The number after `key` in the text of a `/proc` file with one `key: number` per line.
fn number_after(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn read_memory(reading: &mut HostReading) {
    let text = read("/proc/meminfo");
    reading.memory_bytes_total = number_after(&text, "MemTotal:") * 1024;
    reading.memory_bytes_available = number_after(&text, "MemAvailable:") * 1024;
}

fn read_disk_traffic(reading: &mut HostReading) {
    let text = read("/proc/self/io");
    reading.read_bytes = number_after(&text, "read_bytes:");
    reading.written_bytes = number_after(&text, "write_bytes:");
}

fn read_descriptors(reading: &mut HostReading) {
    // The size of this directory is the number of descriptors since Linux 6.2; before, it is zero
    // and they are counted.
    let size = std::fs::metadata("/proc/self/fd").map_or(0, |found| found.len());
    let count = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    reading.files_open = if size > 0 { size } else { count() };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    reading.files_max = limit.current.unwrap_or(u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_knows_this_process_and_its_disk() {
        let mut reader = HostReader::new(Path::new("/tmp"));
        reader.read();
        let until = Instant::now() + std::time::Duration::from_millis(60);
        let mut spins = 0_u64;
        while Instant::now() < until {
            spins += 1;
        }
        let reading = reader.read();
        assert!(spins > 0);
        assert!(reading.memory_bytes > 100_000, "{reading:?}");
        assert!(reading.memory_bytes_total > reading.memory_bytes);
        assert!(reading.threads >= 1);
        assert!(reading.files_open >= 3 && reading.files_open <= reading.files_max);
        assert!(reading.disk_bytes_total >= reading.disk_bytes_free);
        assert!(reading.disk_bytes_total > 0);
        assert!(!names().kernel_version.is_empty());
    }
}
