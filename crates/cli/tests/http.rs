//! Health and metrics of the real server, and what a bad client can do to them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Server, borzoi, refusal};

/// Status and body of the answer to `request`.
fn exchange(address: &str, request: &[u8]) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may answer and close before it has everything.
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

fn get(address: &str, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes())
}

fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(sample));
    let line = line.unwrap_or_else(|| panic!("{sample} is not in\n{page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_running_server_is_alive_and_ready_and_counts_what_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(borzoi(directory.path()).args([
        "--shards",
        "2",
        "--with-default-root-credentials",
    ]));
    let http = server.http();
    assert_eq!(get(&http, "/livez"), (200, "alive\n".to_owned()));
    let until = Instant::now() + Duration::from_secs(20);
    while get(&http, "/readyz") != (200, "ready\n".to_owned()) {
        assert!(Instant::now() < until, "{:?}", get(&http, "/readyz"));
    }
    let client = |arguments: &[&str], input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_borzoi"))
            .args(arguments)
            .args(["--address", &server.address])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
    };
    client(&["send", "shop", "orders", "--create"], b"one\ntwo\nthree\n");
    client(&["poll", "shop", "orders"], b"");
    let (status, page) = get(&http, "/metrics");
    assert_eq!(status, 200);
    assert!((value(&page, "borzoi_shards ") - 2.0).abs() < 0.1);
    assert!((value(&page, "borzoi_shards_answering ") - 2.0).abs() < 0.1);
    assert!((value(&page, "streams ") - 1.0).abs() < 0.1);
    assert!((value(&page, "messages ") - 3.0).abs() < 0.1);
    let sum = |name: &str| -> f64 {
        page.lines()
            .filter(|line| line.starts_with(name))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum()
    };
    assert!(sum("borzoi_messages_total{") > 2.9);
    assert!(sum("borzoi_journal_flushes_total{") > 0.9);
    assert!(sum("borzoi_journal_flush_duration_seconds_count{") > 0.9);
    assert!(sum("borzoi_received_bytes_total{") > 1_000.0);
    assert!(sum("borzoi_sent_bytes_total{") > 1_000.0);
    let requests: Vec<&str> =
        page.lines().filter(|line| line.starts_with("borzoi_requests_total{")).collect();
    for wanted in ["\"login\"", "\"create_stream\"", "\"send_messages\"", "\"poll_messages\""] {
        let found = requests.iter().any(|line| line.contains(wanted) && line.contains("success"));
        assert!(found, "{wanted} is not in {requests:#?}");
    }
    assert!(value(&page, "process_resident_memory_bytes ") > 1e6);
    server.stop("-TERM");
}

#[test]
fn an_unknown_path_a_body_and_nonsense_are_answered_and_nothing_breaks() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut borzoi(directory.path()));
    let http = server.http();
    let (status, body) = get(&http, "/metric");
    assert_eq!(status, 404);
    assert!(body.contains("/metrics"), "{body}");
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    let with_body = format!("{}Content-Length: 100000000\r\n\r\nx", post("/metrics"));
    assert_eq!(exchange(&http, with_body.as_bytes()).0, 413);
    let without = format!("{}\r\n", post("/metrics"));
    assert_eq!(exchange(&http, without.as_bytes()).0, 405);
    assert_eq!(exchange(&http, b"\x00\xff\x16\x03\x01 nonsense\r\n\r\n").0, 400);
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(1_000_000));
    assert_eq!(exchange(&http, huge.as_bytes()).0, 431);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1_000));
    assert_eq!(exchange(&http, many.as_bytes()).0, 431);
    assert_eq!(get(&http, "/readyz").0, 200);
    assert!(server.stop("-TERM").0.success());
}

#[test]
fn slow_and_many_clients_are_cut_and_others_are_served_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut borzoi(directory.path()));
    let http = server.http();
    // As many as are served at a time, and more: none ends its request.
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = TcpStream::connect(&http).unwrap();
            socket.write_all(b"GET /livez HTTP/1.1\r\nHost:").unwrap();
            socket
        })
        .collect();
    let began = Instant::now();
    assert_eq!(get(&http, "/livez").0, 200, "the slow ones are cut after 5 s each");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // Clients of the data port do not notice.
    assert!(TcpStream::connect(&server.address).is_ok());
    drop(slow);
    assert!(server.stop("-TERM").0.success());
}

#[test]
fn http_can_be_turned_off_and_an_address_in_use_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(borzoi(directory.path()).args(["--set", "http.enabled=false"]));
    assert_eq!(server.configured("http", "address"), "auto");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let second = tempfile::tempdir().unwrap();
    let setting = format!("http.address={address}");
    let errors = refusal(borzoi(second.path()).args(["--set", &setting]));
    assert!(errors.contains(&address) && errors.contains("http.address"), "{errors}");
    server.stop("-TERM");
}
