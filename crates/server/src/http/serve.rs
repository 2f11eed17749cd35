//! Accepts HTTP connections under limits.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt as _;

/// Connections at a time: monitoring needs a few. Further ones wait in the listener's queue.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's line and headers.
pub const HTTP_HEADER_BYTES_MAX: usize = 16 * 1024;
/// Headers of one request.
const HTTP_HEADERS_MAX: usize = 100;
/// Time for line and headers of a request to arrive, and for which a connection may idle.
const HTTP_HEADER_SECONDS_MAX: Duration = Duration::from_secs(5);
/// Time for which a connection may live at all: a client that does not read is cut then.
const HTTP_CONNECTION_SECONDS_MAX: Duration = Duration::from_secs(60);
/// Pause after the system refused to accept.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Serves until dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, _)) => {
                tokio::spawn(connection(socket, router.clone(), slot));
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection was not accepted");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, router: Router, _slot: OwnedSemaphorePermit) {
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let router = router.clone();
        async move {
            if hyper::body::Body::size_hint(request.body()).upper() != Some(0) {
                // Nothing here takes a body; reading one would only cost memory and time.
                let answer = (StatusCode::PAYLOAD_TOO_LARGE, "no request here has a body\n");
                return Ok(answer.into_response());
            }
            router.oneshot(request.map(Body::new)).await
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEADER_SECONDS_MAX)
        .max_buf_size(HTTP_HEADER_BYTES_MAX)
        .max_headers(HTTP_HEADERS_MAX)
        .serve_connection(TokioIo::new(socket), service);
    match tokio::time::timeout(HTTP_CONNECTION_SECONDS_MAX, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended"),
        Err(_) => tracing::debug!("an HTTP connection lived too long"),
    }
}
