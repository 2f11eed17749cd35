//! The thread that writes log files.
//!
//! Invariants: handing a line over never waits; lines that find the queue full are counted, and
//! the count is written before the next line that fits; a file that cannot be written is reported
//! on standard error, at most once a minute, and is tried again with the next line.

use super::files::LogFiles;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Lines on their way to the files: a second of a very talkative server.
const LINES_QUEUED_MAX: usize = 8_192;
/// Time between two looks at the age of the files while nothing is written.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Least time between two reports of a file that cannot be written.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

enum Order {
    Line(Vec<u8>),
    Stop,
}

/// The way to the thread.
#[derive(Clone)]
pub struct Lines {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    /// Queues a line, or counts it as lost.
    pub fn hand_over(&self, line: Vec<u8>) {
        match self.orders.try_send(Order::Line(line)) {
            // After the thread's end the process ends too; standard error has the line.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The running thread. Dropping this writes what is queued and ends it.
pub struct FileWriter {
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl FileWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(files: LogFiles) -> io::Result<(Self, Lines)> {
        let (orders, received) = sync_channel(LINES_QUEUED_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let lines = Lines { orders: orders.clone(), lost: lost.clone() };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || work(files, &received, &lost))?;
        Ok((Self { orders, thread: Some(thread) }, lines))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // Behind all lines that were handed over before.
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut files: LogFiles, orders: &Receiver<Order>, lost: &AtomicU64) {
    let mut reported: Option<Instant> = None;
    loop {
        let line = match orders.recv_timeout(LOOK_INTERVAL) {
            Ok(Order::Line(line)) => line,
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => Vec::new(),
        };
        let missing = lost.swap(0, Ordering::Relaxed);
        let now = SystemTime::now();
        let mut written = Ok(());
        if missing > 0 {
            let note = format!("{missing} lines are missing here: the log was too slow\n");
            written = files.write(now, note.as_bytes());
        }
        if let Err(error) = written.and_then(|()| files.write(now, &line))
            && reported.is_none_or(|at| at.elapsed() > REPORT_INTERVAL)
        {
            reported = Some(Instant::now());
            let path = files.path();
            let _ = writeln!(
                io::stderr(),
                "borzoi: the log file {} is incomplete: {error}",
                path.display()
            );
        }
    }
}
