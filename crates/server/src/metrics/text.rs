//! The text format of Prometheus, version 0.0.4.
//!
//! Invariants: all samples of one metric stand together under its two comment lines; label values
//! are escaped, so that no name of a stream or group can break the format.

use borzoi_types::{HISTOGRAM_BOUNDS_MICROS, Histogram};
use std::fmt::{Display, Write as _};

/// Kinds of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises while the process lives.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Times in seconds, by upper bounds.
    Histogram,
}

impl Kind {
    /// Its name in the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a dyn Display);

/// A page being written.
#[derive(Default)]
pub struct Page {
    text: String,
    open: &'static str,
}

impl Page {
    /// Begins a metric.
    pub fn metric(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.open = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {}", kind.name()));
    }

    /// One sample of the metric that was begun.
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.put("", labels, None, &value);
    }

    /// All samples of a histogram.
    pub fn histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        let mut sum = 0;
        for (bucket, count) in histogram.buckets.iter().enumerate() {
            sum += count;
            match HISTOGRAM_BOUNDS_MICROS.get(bucket) {
                Some(bound) => self.put("_bucket", labels, Some(&seconds(*bound)), &sum),
                None => self.put("_bucket", labels, Some(&"+Inf"), &sum),
            }
        }
        self.put("_sum", labels, None, &seconds(histogram.sum_micros));
        self.put("_count", labels, None, &sum);
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn put(
        &mut self,
        suffix: &str,
        labels: &[Label<'_>],
        bound: Option<&dyn Display>,
        value: &dyn Display,
    ) {
        self.text.push_str(self.open);
        self.text.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let mut opened = false;
        for (name, value) in labels.iter().copied().chain(bound) {
            self.text.push_str(if opened { "," } else { "{" });
            opened = true;
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&value.to_string(), &mut self.text);
            self.text.push('"');
        }
        if opened {
            self.text.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
    }
}

fn escape(value: &str, into: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            '\n' => into.push_str("\\n"),
            other => into.push(other),
        }
    }
}

/// Seconds as a decimal number.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_carry_escaped_labels_and_histograms_add_up() {
        let mut page = Page::default();
        page.metric("a", Kind::Counter, "What it counts.");
        page.sample(&[("name", &"x\"\\\ny"), ("n", &1)], 5);
        page.sample(&[], 6);
        page.metric("b", Kind::Histogram, "Times.");
        let mut histogram = Histogram::default();
        for millis in [1, 2, 40_000] {
            histogram.record(borzoi_types::Duration::from_millis(millis));
        }
        page.histogram(&[("k", &"v")], &histogram);
        let text = page.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# HELP a What it counts.");
        assert_eq!(lines[1], "# TYPE a counter");
        assert_eq!(lines[2], "a{name=\"x\\\"\\\\\\ny\",n=\"1\"} 5");
        assert_eq!(lines[3], "a 6");
        assert!(lines.contains(&"b_bucket{k=\"v\",le=\"0.00005\"} 0"));
        assert!(lines.contains(&"b_bucket{k=\"v\",le=\"0.001\"} 1"));
        assert!(lines.contains(&"b_bucket{k=\"v\",le=\"30\"} 2"));
        assert!(lines.contains(&"b_bucket{k=\"v\",le=\"+Inf\"} 3"));
        assert!(lines.contains(&"b_sum{k=\"v\"} 40.003"));
        assert!(lines.contains(&"b_count{k=\"v\"} 3"));
    }
}
