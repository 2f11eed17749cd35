//! The page `/metrics`: the figures of all shards as text for Prometheus.
//!
//! Invariants: the set of names does not depend on what has happened so far (every metric is there
//! from the first start); the number of series is bounded: by shards, by the commands of the
//! protocol, and for lag by [`LAG_SERIES_PER_SHARD_MAX`]. `docs/metrics.md` describes each name,
//! and a test compares the two.

mod table;
mod text;

use borzoi_runtime::ShardReport;
use borzoi_shard::ShardFigures;
use borzoi_shard::event::HostStats;
use borzoi_shard::figures::LagOf;
use table::{NODE, PER_SHARD, PER_SHARD_TIMES};
use text::{Kind, Page};

#[cfg(doc)]
use borzoi_types::limits::LAG_SERIES_PER_SHARD_MAX;

/// A report of a shard that has answered.
type Answered<'a> = (usize, &'a ShardReport);

/// Renders the page. Shards that have not answered are missing from it, and say so.
#[must_use]
pub fn render(reports: &[Option<ShardReport>]) -> String {
    let mut page = Page::default();
    let answered: Vec<Answered<'_>> =
        (0..).zip(reports).filter_map(|(shard, report)| Some((shard, report.as_ref()?))).collect();
    page.metric("borzoi_build_info", Kind::Gauge, "1; the version stands in the label.");
    page.sample(&[("version", &env!("CARGO_PKG_VERSION"))], 1);
    page.metric("borzoi_shards", Kind::Gauge, "Shards of the node.");
    page.sample(&[], reports.len());
    page.metric(
        "borzoi_shards_answering",
        Kind::Gauge,
        "Shards whose figures are on this page; fewer than borzoi_shards if one is overloaded.",
    );
    page.sample(&[], answered.len());
    node(&mut page, &answered);
    requests(&mut page, &answered);
    for metric in PER_SHARD {
        page.metric(metric.name, metric.kind, metric.help);
        for (shard, report) in &answered {
            if let Some(value) = (metric.value)(report) {
                let mut labels: Vec<text::Label<'_>> = vec![("shard", shard)];
                labels.extend(metric.labels.iter().map(|(name, value)| (*name, value as _)));
                page.sample(&labels, value);
            }
        }
    }
    for metric in PER_SHARD_TIMES {
        page.metric(metric.name, Kind::Histogram, metric.help);
        for (shard, report) in &answered {
            page.histogram(&[("shard", shard)], (metric.value)(&report.shell));
        }
    }
    lags(&mut page, &answered);
    page.finish()
}

/// Figures that every shard knows: those of the first that has answered.
fn node(page: &mut Page, answered: &[Answered<'_>]) {
    let core = answered.iter().find_map(|(_, report)| report.core.as_deref());
    for metric in NODE {
        page.metric(metric.name, metric.kind, metric.help);
        if let Some(core) = core {
            page.sample(&[], (metric.value)(core));
        }
    }
    // Counters are sampled at different moments by different shards: the one place with sums.
    let sum = |value: fn(&ShardFigures) -> u64| -> u64 {
        answered.iter().filter_map(|(_, report)| report.core.as_deref()).map(value).sum()
    };
    page.metric("segments", Kind::Gauge, "Segments of all partitions led or followed here.");
    page.sample(&[], sum(|core| core.partitions.segments));
    page.metric("messages", Kind::Gauge, "Messages of all partitions led or followed here.");
    page.sample(&[], sum(|core| core.partitions.messages));
    page.metric("clients", Kind::Gauge, "Open client connections.");
    page.sample(&[], sum(|core| core.connections));
}

fn requests(page: &mut Page, answered: &[Answered<'_>]) {
    page.metric(
        "borzoi_requests_total",
        Kind::Counter,
        "Answers that left, by command and result: success, transient (57 or 58), refused \
         (another error), evicted.",
    );
    for (shard, core) in cores(answered) {
        for (command, result, count) in core.requests.results() {
            if count > 0 {
                let command = command.map_or("unknown".to_owned(), |it| snake_case(&it));
                let labels: [text::Label<'_>; 3] =
                    [("shard", &shard), ("command", &command), ("result", &snake_case(&result))];
                page.sample(&labels, count);
            }
        }
    }
    page.metric(
        "borzoi_request_duration_seconds",
        Kind::Histogram,
        "Time from a request's frame to its answer, in turns of the shard, by kind of request.",
    );
    for (shard, core) in cores(answered) {
        for (class, times) in core.requests.times() {
            page.histogram(&[("shard", &shard), ("kind", &snake_case(&class))], times);
        }
    }
}

fn lags(page: &mut Page, answered: &[Answered<'_>]) {
    page.metric(
        "borzoi_consumer_lag",
        Kind::Gauge,
        "Offsets between what a consumer has stored and the newest, by partition.",
    );
    for (_, core) in cores(answered) {
        for lag in &core.lags {
            let kind = match lag.of {
                LagOf::Consumer(_) => "consumer",
                LagOf::Group(_) => "group",
            };
            let labels: [text::Label<'_>; 5] = [
                ("stream", &lag.stream_name),
                ("topic", &lag.topic_name),
                ("partition", &lag.partition),
                ("kind", &kind),
                ("name", &lag.name),
            ];
            page.sample(&labels, lag.offsets);
        }
    }
    page.metric(
        "borzoi_consumer_lag_series_omitted",
        Kind::Gauge,
        "Series of borzoi_consumer_lag beyond the limit of 2000 per shard.",
    );
    for (shard, core) in cores(answered) {
        page.sample(&[("shard", &shard)], core.lags_omitted);
    }
}

fn cores<'a>(answered: &'a [Answered<'a>]) -> impl Iterator<Item = (usize, &'a ShardFigures)> {
    answered.iter().filter_map(|(shard, report)| Some((*shard, report.core.as_deref()?)))
}

/// The name of a unit variant as labels are written: `GetStats` becomes `get_stats`.
fn snake_case(variant: &impl std::fmt::Debug) -> String {
    let mut snake = String::new();
    for character in format!("{variant:?}").chars() {
        if character.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

/// Processor seconds, from a share that was measured over the last second.
fn cores_used(host: &HostStats) -> String {
    format!("{:.3}", f64::from(host.cpu_usage) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DOCUMENTED: &str = include_str!("../../../../docs/metrics.md");

    fn names_printed(page: &str) -> BTreeSet<String> {
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.replace(' ', " | ")).collect()
    }

    #[test]
    fn every_metric_is_there_from_the_first_start_and_documented_with_its_type() {
        let printed = names_printed(&render(&[]));
        let rows = DOCUMENTED.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: BTreeSet<String> = rows
            .filter_map(|row| {
                let (name, rest) =
                    row.split_once("` | ").filter(|(name, _)| !name.contains('/'))?;
                let kind = rest.split(" | ").next()?;
                Some(format!("{name} | {kind}"))
            })
            .collect();
        let missing: Vec<_> = printed.difference(&documented).collect();
        let stale: Vec<_> = documented.difference(&printed).collect();
        assert!(missing.is_empty(), "docs/metrics.md lacks {missing:#?}");
        assert!(stale.is_empty(), "docs/metrics.md has {stale:#?}");
        assert!(printed.len() > 60);
    }

    #[test]
    fn a_metric_has_one_name_and_every_line_is_a_comment_or_a_sample() {
        let page = render(&[None]);
        let types: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let names: BTreeSet<_> = types.iter().collect();
        assert_eq!(names.len(), types.len());
        for line in page.lines() {
            let sample = || line.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || sample(), "{line}");
        }
        assert!(page.contains("borzoi_shards 1\n") && page.contains("shards_answering 0\n"));
    }

    #[test]
    fn labels_are_written_in_snake_case() {
        assert_eq!(snake_case(&borzoi_wire::CommandCode::GetStats), "get_stats");
    }
}
