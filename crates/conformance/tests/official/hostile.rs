//! Bad input on real sockets: nothing is lost and others are undisturbed.

use crate::support::{Place, root, shared};
use iggy::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const HEADER: usize = 256;

/// A request header of profile A: size, operation and code at their places.
pub fn header(size: u32, operation: u8, code: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[48..52].copy_from_slice(&size.to_le_bytes());
    bytes[60] = 5;
    bytes[128] = 1;
    bytes[168] = 1;
    bytes[176] = operation;
    bytes[196..200].copy_from_slice(&code.to_le_bytes());
    bytes
}

/// Whether the server closes the connection within `seconds`.
pub async fn closes(socket: &mut TcpStream, seconds: u64) -> bool {
    let mut buffer = [0; 4096];
    let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
    loop {
        match tokio::time::timeout_at(until, socket.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return true,
            Ok(Ok(_)) => {}
            Err(_) => return false,
        }
    }
}

pub async fn still_serves(address: &str) {
    let client = root(address).await;
    client.get_streams().await.expect("others are undisturbed");
}

#[tokio::test]
async fn a_size_below_a_header_closes_the_connection() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    socket.write_all(&header(255, 2, 1)).await.expect("written");
    assert!(closes(&mut socket, 5).await);
    still_serves(server.address()).await;
}

#[tokio::test]
async fn a_frame_over_four_kibibytes_before_login_closes_the_connection() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    let mut at_limit = header(4096, 2, 1);
    at_limit.resize(4096, 0);
    socket.write_all(&at_limit).await.expect("written");
    let mut reply = vec![0; HEADER];
    socket.read_exact(&mut reply).await.expect("a frame at the limit is answered");
    assert_eq!(reply[60], 8);
    socket.write_all(&header(4097, 2, 1)).await.expect("written");
    assert!(closes(&mut socket, 5).await);
    still_serves(server.address()).await;
}

#[tokio::test]
async fn a_size_over_the_frame_limit_closes_the_connection() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    socket.write_all(&header(u32::MAX, 160, 0)).await.expect("written");
    assert!(closes(&mut socket, 5).await);
    still_serves(server.address()).await;
}

#[tokio::test]
async fn random_bytes_never_disturb_anybody() {
    let place = Place::new(1).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..50 {
        let mut socket = TcpStream::connect(place.address()).await.expect("connected");
        let mut noise = Vec::new();
        for _ in 0..200 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend_from_slice(&state.to_le_bytes());
        }
        let _ = socket.write_all(&noise).await;
        let _ = socket.shutdown().await;
        assert!(closes(&mut socket, 5).await, "noise is not left hanging");
    }
    place.send(0, &["undisturbed"]).await;
}

#[tokio::test]
async fn half_a_frame_and_then_silence_is_cut_off() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    socket.write_all(&header(300, 1, 0)[..100]).await.expect("written");
    assert!(closes(&mut socket, 20).await, "a stalled peer must not keep its place for ever");
    still_serves(server.address()).await;
}

#[tokio::test]
async fn a_peer_that_never_logs_in_is_cut_off() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    assert!(closes(&mut socket, 20).await, "login is due within five seconds");
}

#[tokio::test]
async fn a_replicated_operation_before_login_is_evicted_as_no_session() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    let mut request = header(256, 128, 0);
    request[184] = 1;
    socket.write_all(&request).await.expect("written");
    let mut reply = vec![0; HEADER];
    socket.read_exact(&mut reply).await.expect("an eviction frame");
    assert_eq!((reply[60], reply[255]), (13, 1));
}

#[tokio::test]
async fn an_internal_operation_from_a_client_is_evicted() {
    let server = shared();
    for operation in 64..=68 {
        let mut socket = TcpStream::connect(server.address()).await.expect("connected");
        let mut request = header(256, operation, 0);
        request[184] = 1;
        socket.write_all(&request).await.expect("written");
        let mut reply = vec![0; HEADER];
        socket.read_exact(&mut reply).await.expect("an eviction frame");
        assert_eq!(reply[60], 13, "operation {operation}");
        assert!([1, 4].contains(&reply[255]), "operation {operation}: reason {}", reply[255]);
    }
    still_serves(server.address()).await;
}

#[tokio::test]
async fn an_unknown_protocol_version_is_refused_with_the_window() {
    let server = shared();
    let mut socket = TcpStream::connect(server.address()).await.expect("connected");
    let mut body = Vec::new();
    body.extend_from_slice(&(13_u32 << 10).to_le_bytes());
    for name in ["test-sdk", "1"] {
        body.push(u8::try_from(name.len()).expect("short"));
        body.extend_from_slice(name.as_bytes());
    }
    for name in ["iggy", "iggy"] {
        body.push(u8::try_from(name.len()).expect("short"));
        body.extend_from_slice(name.as_bytes());
    }
    body.extend_from_slice(&0_u32.to_le_bytes());
    let mut request = header(256 + u32::try_from(body.len()).expect("short"), 1, 0);
    request[168] = 0;
    request.extend_from_slice(&body);
    socket.write_all(&request).await.expect("written");
    let mut reply = vec![0; HEADER];
    socket.read_exact(&mut reply).await.expect("an eviction frame");
    assert_eq!((reply[60], reply[255]), (13, 14));
    let oldest = u32::from_le_bytes(reply[148..152].try_into().expect("four bytes"));
    assert_eq!(oldest, 11 << 10, "0.11.0 is accepted");
}

#[tokio::test]
async fn a_reader_that_does_not_read_does_not_hold_up_the_others() {
    let place = Place::new(1).await;
    let payload = "y".repeat(1_000_000);
    for _ in 0..8 {
        place.send(0, &[&payload]).await;
    }
    // Many pollers that never read their replies.
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(root(place.address()).await);
    }
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        let offsets = place.offsets(0, PollingStrategy::first(), 8).await;
        assert_eq!(offsets.len(), 8);
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
}
