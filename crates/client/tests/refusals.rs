//! What a client says when a server refuses for longer than its time-out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use borzoi_client::{Client, ClientOptions};
use borzoi_wire::ErrorCode;
use borzoi_wire::frame::{FrameSize, HEADER_BYTES, ReplyHeader, RequestView};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers every request with `status`.
async fn refuse(listener: TcpListener, status: u32) {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut header = [0; HEADER_BYTES];
    while socket.read_exact(&mut header).await.is_ok() {
        let bytes = FrameSize::peek(&header, usize::MAX).unwrap().frame_bytes();
        let mut body = vec![0; bytes - HEADER_BYTES];
        socket.read_exact(&mut body).await.unwrap();
        let to = RequestView::new(&header).reply_to();
        let reply = ReplyHeader { status, ..ReplyHeader::answering(&to) };
        socket.write_all(&reply.encode(0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_time_out_tells_the_last_refusal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(refuse(listener, ErrorCode::TransientNotAccepted.number()));
    let mut options = ClientOptions::new(address, "iggy", "iggy");
    options.request_timeout = Duration::from_millis(200);
    let error = Client::connect(options).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::TransientNotAccepted));
    let text = error.to_string();
    assert!(text.contains("the last attempt failed") && text.contains("58"), "{text}");
}

#[tokio::test]
async fn a_time_out_without_any_answer_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut options = ClientOptions::new(address, "iggy", "iggy");
    options.request_timeout = Duration::from_millis(200);
    let error = Client::connect(options).await.unwrap_err();
    assert_eq!(error.code(), None);
    assert!(error.to_string().ends_with(" s"), "{error}");
    drop(listener);
}
