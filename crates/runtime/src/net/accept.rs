//! The thread that accepts connections and deals them to the shards.

use super::pass::Admission;
use crate::inbox::{Inbox, NewConnection};
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Pause after the system refused to accept, which it does when it runs out of descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Idle time after which the kernel asks whether the peer still lives, and between questions.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Refusals are logged at most once in this time, with their number.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Deals connections until told to stop.
pub struct Acceptor {
    /// Where they are counted.
    pub admission: Admission,
    /// One per shard.
    pub inboxes: Vec<Arc<Inbox>>,
    /// Ends the thread.
    pub stop: Arc<Notify>,
}

impl Acceptor {
    /// Accepts on all `listeners` until stopped. Runs on its own thread.
    ///
    /// # Errors
    /// When the listeners cannot be used at all.
    pub fn run(self, listeners: Vec<TcpListener>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acceptor = Arc::new(self);
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for listener in listeners {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tasks.spawn(acceptor.clone().accept(listener));
            }
            acceptor.stop.notified().await;
            Ok(())
        })
    }

    async fn accept(self: Arc<Self>, listener: tokio::net::TcpListener) {
        let mut refusals = Refusals { count: 0, logged: None };
        let mut number = 0_u64;
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => {
                    number += 1;
                    if let Err(error) = self.deal(number, socket, peer) {
                        refusals.note(&error.to_string());
                    }
                }
                Err(error) => {
                    refusals.note(&error.to_string());
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    fn deal(
        &self,
        number: u64,
        socket: tokio::net::TcpStream,
        peer: SocketAddr,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let pass = self.admission.admit(peer.ip())?;
        let socket = socket.into_std()?;
        prepare(&socket)?;
        let inbox = &self.inboxes[pass.shard()];
        inbox.connection(NewConnection { number, socket, peer, pass });
        Ok(())
    }
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    Ok(())
}

/// Keeps a flood of refusals from becoming a flood of log lines.
struct Refusals {
    count: u64,
    logged: Option<Instant>,
}

impl Refusals {
    fn note(&mut self, reason: &str) {
        self.count += 1;
        if self.logged.is_none_or(|at| at.elapsed() > LOG_INTERVAL) {
            tracing::warn!(count = self.count, reason, "connections refused");
            self.logged = Some(Instant::now());
            self.count = 0;
        }
    }
}
