//! C4: what happens inside is exported from the first start.

use crate::support::{Place, code, name, root};
use borzoi_conformance::{Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Starts a server that answers HTTP, and the address on which it does.
fn start(data: &std::path::Path) -> (Server, String) {
    let options = ServerOptions::default()
        .with("BORZOI_HTTP_ENABLED", "true")
        .with("BORZOI_HTTP_ADDRESS", "127.0.0.1:0");
    let server = Server::start(data, &options);
    let text = std::fs::read_to_string(data.join("runtime/current_config.toml")).expect("written");
    let table: toml::Table = text.parse().expect("TOML");
    let address = table["http"]["address"].as_str().expect("an address").to_owned();
    let until = Instant::now() + Duration::from_secs(20);
    while !get(&address, "/readyz").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < until, "the node does not get ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    (server, address)
}

fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("HTTP is served");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        .expect("written");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The sum of a metric over its labels; none when it has no sample.
fn sum(page: &str, metric: &str) -> Option<f64> {
    let of_metric = page
        .lines()
        .filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let values: Vec<f64> = of_metric
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number"))
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

const FIGURES: [&str; 20] = [
    // drop, park, stale
    "frame_drops_total",
    "borzoi_parked_requests",
    "borzoi_parked_bytes",
    "borzoi_parked_total",
    "borzoi_parked_expired_total",
    "partition_frames_rejected_stale_total",
    "partition_requests_denied_transient_total",
    // repair
    "borzoi_repair_requested_total",
    "borzoi_repair_prepares_total",
    "borzoi_prepares_buffered_total",
    "borzoi_prepare_buffer_overflows_total",
    // view change
    "borzoi_view_changes_total",
    "borzoi_step_downs_total",
    "borzoi_loss_epochs_total",
    // flush
    "borzoi_journal_flushes_total",
    "borzoi_journal_flush_duration_seconds_count",
    "borzoi_journal_used_bytes",
    // offsets and lag
    "borzoi_reservations_total",
    "borzoi_offset_jumps_total",
    "borzoi_consumer_lag_series_omitted",
];

#[tokio::test]
async fn c4_drop_park_stale_repair_view_flush_and_lag_figures_are_there_from_the_first_start() {
    let (_folder, data) = data_directory();
    let (_server, http) = start(&data);
    let page = get(&http, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for figure in FIGURES {
        assert!(sum(&page, figure).is_some(), "{figure} is missing");
    }
    assert!(
        page.contains(r#"variant="partition""#) && page.contains(r#"reason="park_overflow""#),
        "drops say of what and why"
    );
    assert_eq!(sum(&page, "frame_drops_total"), Some(0.0));
    assert!(get(&http, "/livez").starts_with("HTTP/1.1 200"));
    assert!(get(&http, "/readyz").starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn c4_the_figures_move_with_what_happens() {
    let (_folder, data) = data_directory();
    let (server, http) = start(&data);
    let place = Place::at(server.address(), 1, Durability::Replicated).await;
    let before = get(&http, "/metrics");
    place.fill(0, 10).await;
    let consumer = Consumer::new(crate::support::number(7));
    let (client, stream, topic) = (&place.client, &place.stream, &place.topic);
    client.store_consumer_offset(&consumer, stream, topic, Some(0), 3).await.expect("stored");
    let after = get(&http, "/metrics");
    let moved = |metric: &str| {
        sum(&after, metric).expect("a sample") - sum(&before, metric).expect("a sample")
    };
    assert_eq!(moved("borzoi_messages_total"), 10.0);
    assert_eq!(moved("borzoi_reservations_total"), 1.0);
    assert!(moved("borzoi_journal_flushes_total") >= 1.0);
    assert_eq!(sum(&after, "borzoi_consumer_lag"), Some(6.0), "offsets 4 to 9 are left");
    // A killed node jumps over what it reserved, and says so.
    server.kill();
    let (server, http) = start(&data);
    let client = root(server.address()).await;
    assert_eq!(code(client.delete_stream(&name("none")).await), 1009);
    let page = get(&http, "/metrics");
    assert_eq!(sum(&page, "borzoi_offset_jump_partitions_total"), Some(1.0));
}
