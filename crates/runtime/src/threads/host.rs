//! One thread per node that reads the figures of the machine once per second.

use crate::clock::wall;
use crate::host::{HostNames, HostReader, names};
use crate::inbox::Inbox;
use borzoi_shard::event::HostStats;
use borzoi_types::Micros;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The running thread; stops when dropped.
pub struct HostThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl HostThread {
    /// Starts reading, and leaves every reading in all `inboxes`.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub fn start(data_directory: &Path, inboxes: Vec<Arc<Inbox>>) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let mut reader = HostReader::new(data_directory);
        let signal = stop.clone();
        let start = wall();
        std::thread::Builder::new().name("host".to_owned()).spawn(move || {
            let names = names();
            loop {
                let stats = stats(&mut reader, &names, start);
                for inbox in &inboxes {
                    inbox.host(stats.clone());
                }
                if wait(&signal) {
                    return;
                }
            }
        })?;
        Ok(Self { stop })
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }
}

/// Waits one interval; whether the thread is to stop.
fn wait(signal: &(Mutex<bool>, Condvar)) -> bool {
    let stopping = signal.0.lock().unwrap_or_else(PoisonError::into_inner);
    if *stopping {
        return true;
    }
    let (stopping, _) =
        signal.1.wait_timeout(stopping, INTERVAL).unwrap_or_else(PoisonError::into_inner);
    *stopping
}

fn stats(reader: &mut HostReader, names: &HostNames, start: Micros) -> HostStats {
    let reading = reader.read();
    HostStats {
        process_id: std::process::id(),
        cpu_usage: reading.cpu_percent,
        total_cpu_usage: reading.cpu_percent_total,
        memory_usage: reading.memory_bytes,
        total_memory: reading.memory_bytes_total,
        available_memory: reading.memory_bytes_available,
        run_time_micros: wall().0.saturating_sub(start.0),
        start_time_micros: start.0,
        read_bytes: reading.read_bytes,
        written_bytes: reading.written_bytes,
        hostname: names.hostname.clone(),
        os_name: names.os_name.clone(),
        os_version: names.os_version.clone(),
        kernel_version: names.kernel_version.clone(),
        threads_count: reading.threads,
        free_disk_space: reading.disk_bytes_free,
        total_disk_space: reading.disk_bytes_total,
        open_files: reading.files_open,
        open_files_limit: reading.files_max,
    }
}
