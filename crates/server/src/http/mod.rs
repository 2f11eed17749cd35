//! HTTP for operators: `/livez`, `/readyz`, `/metrics`. On a thread of its own, away from the
//! shards; figures are asked of them through their inboxes.
//!
//! Invariants: nothing a client sends here changes anything; connections, the bytes of a header
//! and the time for one are bounded, so that this cannot be used against the node; the listener
//! answers from before recovery until after the stop.

mod serve;

use crate::metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use borzoi_runtime::{Probe, ShardReport};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long shards may take to answer; one that is slower than this is not ready.
const ASK_SECONDS_MAX: Duration = Duration::from_secs(2);

/// What the pages show.
#[derive(Default)]
struct Node {
    /// Set when the shards run.
    probe: OnceLock<Probe>,
    /// Set when the stop has begun.
    stopping: OnceLock<()>,
}

/// The running HTTP server. Dropping it ends it.
pub struct HttpServer {
    node: Arc<Node>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl HttpServer {
    /// Serves on `listener` from now on: alive, not ready.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be started.
    pub fn start(listener: TcpListener) -> io::Result<Self> {
        let node = Arc::new(Node::default());
        let router = router(node.clone());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { node, stop: Some(stop), thread: Some(thread) })
    }

    /// The shards run: from now on they are asked.
    pub fn shards_run(&self, probe: Probe) {
        let first = self.node.probe.set(probe);
        debug_assert!(first.is_ok(), "a node starts once");
    }

    /// What is to be told when the stop begins.
    #[must_use]
    pub fn stop_watcher(&self) -> StopWatcher {
        StopWatcher(self.node.clone())
    }
}

/// Learns that the stop has begun.
pub struct StopWatcher(Arc<Node>);

impl StopWatcher {
    /// The node is about to end: it is not ready any more.
    pub fn stopping(&self) {
        // A second signal finds it said.
        let _ = self.0.stopping.set(());
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .fallback(unknown)
        .with_state(node)
}

async fn unknown() -> Response {
    let known = "not found; there are /livez, /readyz and /metrics\n";
    (StatusCode::NOT_FOUND, known).into_response()
}

/// The process answers. A node whose core has failed ends, so there is nothing else to ask.
async fn live() -> &'static str {
    "alive\n"
}

/// Every shard answers and starts requests, and every log that this node leads has committed what
/// it inherited.
async fn ready(State(node): State<Arc<Node>>) -> Response {
    let reason = match node.probe.get() {
        _ if node.stopping.get().is_some() => Some("stopping".to_owned()),
        None => Some("starting: recovery is under way".to_owned()),
        Some(probe) => not_ready(&probe.ask(ASK_SECONDS_MAX).await),
    };
    match reason {
        None => "ready\n".into_response(),
        Some(reason) => {
            let text = format!("not ready: {reason}\n");
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

/// Why a node with these reports is not ready.
fn not_ready(reports: &[Option<ShardReport>]) -> Option<String> {
    for (shard, report) in reports.iter().enumerate() {
        let Some(report) = report else {
            return Some(format!("shard {shard} has not answered"));
        };
        let Some(core) = &report.core else { continue };
        if !core.is_serving {
            return Some(format!("shard {shard} does not start requests yet"));
        }
        let logs = &core.logs;
        if logs.ready < logs.logs {
            let left = logs.logs - logs.ready;
            return Some(format!("{left} of {} logs of shard {shard} do not serve", logs.logs));
        }
    }
    None
}

async fn metrics_page(State(node): State<Arc<Node>>) -> Response {
    // Without shards there are no figures: better no page than one that reads as all zeros.
    let Some(probe) = node.probe.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the node is starting\n").into_response();
    };
    let reports = probe.ask(ASK_SECONDS_MAX).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, metrics::render(&reports)).into_response()
}
