//! What a run measured: throughput, latencies, a table, and the same as JSON.
//!
//! Latency is counted from the moment a request was *due*, not from the moment it was sent: with a
//! rate limit, a stall of the server counts against every request that should have been sent
//! meanwhile (no coordinated omission). Without a limit a request is due when the one before it
//! was answered, so the figures then describe a closed loop and the table says so.

use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::time::Duration;

/// Largest latency that is told apart, in microseconds: ten minutes.
const LATENCY_US_MAX: u64 = 600_000_000;

/// What one kind of actor (producers or consumers) did.
#[derive(Debug)]
pub struct Tally {
    /// Messages confirmed or read.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// Latency of the requests in microseconds.
    pub latency_us: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
            .expect("three digits over this range are valid bounds");
        Self { messages: 0, bytes: 0, requests: 0, latency_us }
    }

    /// Counts one answered request.
    pub fn record(&mut self, messages: u64, bytes: u64, latency: Duration) {
        self.messages += messages;
        self.bytes += bytes;
        self.requests += 1;
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.latency_us.saturating_record(micros.clamp(1, LATENCY_US_MAX));
    }

    /// Adds what another actor did.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.latency_us.add(&other.latency_us).expect("both have the same bounds");
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// The figures of one kind of actor over a run.
#[derive(Debug)]
pub struct Row<'a> {
    /// `producers` or `consumers`.
    pub name: &'a str,
    /// How many ran side by side.
    pub actors: u32,
    /// What they did.
    pub tally: &'a Tally,
    /// How long the run took.
    pub elapsed: Duration,
}

impl Row<'_> {
    fn per_second(&self, value: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { value as f64 / seconds } else { 0.0 }
    }

    fn percentiles(&self) -> [u64; 5] {
        [50.0, 95.0, 99.0, 99.9, 100.0]
            .map(|percent| self.tally.latency_us.value_at_percentile(percent))
    }
}

/// The rows as a table for people.
#[must_use]
pub fn table(rows: &[Row<'_>], paced: bool) -> String {
    let mut text = String::new();
    let loop_kind = if paced { "paced, latency from the due time" } else { "closed loop" };
    let _ = writeln!(
        text,
        "{:<10} {:>6} {:>12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "",
        "actors",
        "messages",
        "messages/s",
        "MB/s",
        "p50 us",
        "p95 us",
        "p99 us",
        "p99.9 us",
        "max us"
    );
    for row in rows {
        let [p50, p95, p99, p999, max] = row.percentiles();
        let _ = writeln!(
            text,
            "{:<10} {:>6} {:>12} {:>12.0} {:>10.1} {:>9} {:>9} {:>9} {:>9} {:>9}",
            row.name,
            row.actors,
            row.tally.messages,
            row.per_second(row.tally.messages),
            row.per_second(row.tally.bytes) / 1e6,
            p50,
            p95,
            p99,
            p999,
            max
        );
    }
    let _ = write!(text, "({loop_kind}; latency per request)");
    text
}

/// The rows as one line of JSON for scripts.
#[must_use]
pub fn json(rows: &[Row<'_>], paced: bool) -> String {
    let mut text = format!("{{\"paced\":{paced}");
    for row in rows {
        let [p50, p95, p99, p999, max] = row.percentiles();
        let _ = write!(
            text,
            ",\"{}\":{{\"actors\":{},\"messages\":{},\"bytes\":{},\"requests\":{},\
             \"seconds\":{:.6},\"messages_per_second\":{:.1},\"bytes_per_second\":{:.1},\
             \"latency_us\":{{\"p50\":{p50},\"p95\":{p95},\"p99\":{p99},\"p99_9\":{p999},\
             \"max\":{max}}}}}",
            row.name,
            row.actors,
            row.tally.messages,
            row.tally.bytes,
            row.tally.requests,
            row.elapsed.as_secs_f64(),
            row.per_second(row.tally.messages),
            row.per_second(row.tally.bytes)
        );
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_over_actors() {
        let mut all = Tally::new();
        for index in 1..=4_u64 {
            let mut one = Tally::new();
            one.record(10, 1_000, Duration::from_micros(index * 100));
            all.add(&one);
        }
        let row =
            Row { name: "producers", actors: 4, tally: &all, elapsed: Duration::from_secs(2) };
        assert_eq!((all.messages, all.bytes, all.requests), (40, 4_000, 4));
        assert!((row.per_second(all.messages) - 20.0).abs() < 1e-9);
        assert_eq!(row.percentiles()[4] / 100, 4);
        assert!(table(&[row], true).contains("paced"));
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_at_its_end() {
        let mut tally = Tally::new();
        tally.record(1, 1, Duration::from_secs(100_000));
        assert!(tally.latency_us.max() >= LATENCY_US_MAX - LATENCY_US_MAX / 1_000);
    }
}
