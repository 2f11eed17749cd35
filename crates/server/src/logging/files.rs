//! Log files that are put aside by size and age and deleted by age and by the size of all.
//!
//! The file being written is `borzoi.log`; one that was put aside is called after the time of that,
//! `borzoi.log.20261130T104700.123456Z`, so that names sort by age.
//!
//! Invariants: only files with such names are ever deleted; unless a single line is longer, the
//! file being written is never longer than its limit, and all files together are never longer than
//! theirs. Time is given by the caller.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAME: &str = "borzoi.log";
/// Length of the time in a name: `20261130T104700.123456Z`.
const STAMP_BYTES: usize = 23;
/// Files are looked at by age at most this often.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// When files are put aside and deleted.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Bytes of one file.
    pub file_bytes_max: Option<u64>,
    /// Age of the file being written.
    pub file_age_max: Duration,
    /// Bytes of all files.
    pub total_bytes_max: Option<u64>,
    /// Age of files that were put aside.
    pub retention: Duration,
}

/// The files of one directory.
pub struct LogFiles {
    directory: PathBuf,
    rotation: Rotation,
    file: Option<File>,
    bytes: u64,
    begun: SystemTime,
    pruned: SystemTime,
}

impl LogFiles {
    /// Goes on with the file of an earlier run, or begins one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(directory: &Path, rotation: Rotation, now: SystemTime) -> io::Result<Self> {
        let directory = directory.to_owned();
        let mut files = Self { directory, rotation, file: None, bytes: 0, begun: now, pruned: now };
        let found = std::fs::metadata(files.path());
        if let Ok(created) = found.and_then(|found| found.created().or(found.modified())) {
            files.begun = created.min(now);
        }
        files.reopen()?;
        files.prune(now)?;
        Ok(files)
    }

    /// The file being written.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Writes one line, after putting the file aside if it is full or old. An empty line only
    /// looks after the files.
    ///
    /// # Errors
    /// Those of the file system; the line may be lost, the next one is tried again.
    pub fn write(&mut self, now: SystemTime, line: &[u8]) -> io::Result<()> {
        let full = |limit| self.bytes + line.len() as u64 > limit;
        let old = age(now, self.begun) >= self.rotation.file_age_max;
        if self.bytes > 0 && (self.rotation.file_bytes_max.is_some_and(full) || old) {
            self.put_aside(now)?;
        } else if age(now, self.pruned) >= AGE_CHECK_INTERVAL {
            self.prune(now)?;
        }
        if line.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(line)?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let file = OpenOptions::new().create(true).append(true).open(self.path())?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn put_aside(&mut self, now: SystemTime) -> io::Result<()> {
        self.file = None;
        let mut time = now;
        let mut aside = self.aside_at(time);
        while aside.exists() {
            // Two in one microsecond, or a clock that was set back.
            time += Duration::from_micros(1);
            aside = self.aside_at(time);
        }
        match std::fs::rename(self.path(), aside) {
            // Somebody has deleted it; a new one is begun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        self.begun = now;
        self.reopen()?;
        self.prune(now)
    }

    fn aside_at(&self, time: SystemTime) -> PathBuf {
        self.directory.join(format!("{NAME}.{}", stamp(time)))
    }

    /// Deletes what is too old, then the oldest while all together could become too much.
    fn prune(&mut self, now: SystemTime) -> io::Result<()> {
        self.pruned = now;
        let mut aside = self.aside()?;
        let oldest_kept = stamp(now.checked_sub(self.rotation.retention).unwrap_or(UNIX_EPOCH));
        let mut total: u64 = aside.iter().map(|(_, bytes)| bytes).sum();
        // Room for the file being written, up to its limit.
        let writing = self.rotation.file_bytes_max.unwrap_or(0).max(self.bytes);
        aside.reverse();
        while let Some((name, bytes)) = aside.pop() {
            let old = name.rsplit_once("log.").is_some_and(|(_, time)| *time < *oldest_kept);
            let much = self.rotation.total_bytes_max.is_some_and(|max| total + writing > max);
            if !old && !much {
                return Ok(());
            }
            std::fs::remove_file(self.directory.join(name))?;
            total -= bytes;
        }
        Ok(())
    }

    /// Names and sizes of the files that were put aside, the oldest first.
    fn aside(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let stamp = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('.'));
            let ours = |time: &str| time.len() == STAMP_BYTES && time.ends_with('Z');
            if stamp.is_some_and(ours) {
                let bytes = entry.metadata()?.len();
                found.push((name, bytes));
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Zero when the clock was set back.
fn age(now: SystemTime, since: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}

/// A time as `20261130T104700.123456Z`, in UTC.
fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{micros:06}Z")
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_400_YEARS: u64 = 146_097;
    // Counted from 0000-03-01, so that a leap day ends its year.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_400_YEARS, days % DAYS_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// So many seconds after the first call: the file system dates files by the real clock.
    fn at(seconds: u64) -> SystemTime {
        static START: std::sync::OnceLock<SystemTime> = std::sync::OnceLock::new();
        *START.get_or_init(SystemTime::now) + Duration::from_secs(seconds)
    }

    fn rotation(file: u64, total: u64) -> Rotation {
        Rotation {
            file_bytes_max: Some(file),
            file_age_max: DAY,
            total_bytes_max: Some(total),
            retention: 7 * DAY,
        }
    }

    fn sizes(directory: &Path) -> Vec<u64> {
        let mut found: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.metadata().unwrap().len()))
            .collect();
        found.sort();
        found.into_iter().map(|(_, bytes)| bytes).collect()
    }

    #[test]
    fn a_full_file_is_put_aside_and_all_together_never_exceed_their_limit() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = LogFiles::open(directory.path(), rotation(100, 350), at(0)).unwrap();
        for second in 0..40 {
            files.write(at(second), &[b'x'; 50]).unwrap();
            let sizes = sizes(directory.path());
            assert!(sizes.iter().all(|bytes| *bytes <= 100), "{sizes:?}");
            assert!(sizes.iter().sum::<u64>() <= 350, "{sizes:?}");
        }
        assert_eq!(sizes(directory.path()), [100, 100, 100], "the newest stay");
    }

    #[test]
    fn an_old_file_is_put_aside_and_one_past_its_retention_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let limits = rotation(1_000, 100_000);
        let mut files = LogFiles::open(directory.path(), limits, at(0)).unwrap();
        files.begun = at(0);
        files.write(at(1), b"first\n").unwrap();
        files.write(at(DAY.as_secs() - 1), b"second\n").unwrap();
        assert_eq!(sizes(directory.path()), [13]);
        files.write(at(DAY.as_secs()), b"third\n").unwrap();
        assert_eq!(sizes(directory.path()), [6, 13]);
        files.write(at(8 * DAY.as_secs() - 1), b"").unwrap();
        assert_eq!(sizes(directory.path()).len(), 3, "put aside by age, without a line");
        files.write(at(8 * DAY.as_secs() + 20), b"").unwrap();
        assert_eq!(sizes(directory.path()), [0, 6]);
    }

    #[test]
    fn a_restart_goes_on_with_the_file_and_leaves_other_files_alone() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("borzoi.log.old-notes");
        std::fs::write(&other, "mine").unwrap();
        for _ in 0..2 {
            let mut files = LogFiles::open(directory.path(), rotation(100, 100), at(0)).unwrap();
            files.write(at(1), b"line\n").unwrap();
        }
        assert_eq!(std::fs::read(directory.path().join(NAME)).unwrap(), b"line\nline\n");
        let mut files = LogFiles::open(directory.path(), rotation(10, 10), at(9 * 86_400)).unwrap();
        files.write(at(9 * 86_400), b"a longer line\n").unwrap();
        assert!(other.exists());
        assert_eq!(sizes(directory.path()), [14, 4]);
    }

    #[test]
    fn a_directory_that_is_lost_is_made_again_and_a_failure_is_not_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("logs");
        let mut files = LogFiles::open(&logs, rotation(10, 100), at(0)).unwrap();
        files.write(at(0), b"12345678\n").unwrap();
        std::fs::remove_dir_all(&logs).unwrap();
        files.write(at(1), b"12345678\n").unwrap();
        assert_eq!(sizes(&logs), [9]);
        std::fs::remove_dir_all(&logs).unwrap();
        std::fs::write(&logs, "in the way").unwrap();
        assert!(files.write(at(2), b"12345678\n").is_err());
        std::fs::remove_file(&logs).unwrap();
        files.write(at(3), b"12345678\n").unwrap();
        assert_eq!(sizes(&logs), [9]);
    }

    #[test]
    fn names_sort_by_time_and_days_are_those_of_the_calendar() {
        let day = |days: u64| stamp(UNIX_EPOCH + Duration::from_secs(days * 86_400));
        assert_eq!(day(0), "19700101T000000.000000Z");
        assert_eq!(day(59), "19700301T000000.000000Z");
        assert_eq!(day(11_016), "20000229T000000.000000Z");
        assert_eq!(day(11_017), "20000301T000000.000000Z");
        assert_eq!(day(20_787), "20261130T000000.000000Z");
        assert_eq!(day(20_787).len(), STAMP_BYTES);
    }
}
