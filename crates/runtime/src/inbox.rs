//! Where other threads leave what one shard's loop must handle.
//!
//! Producers append under a short lock and ring the bell; the loop takes everything at once. One
//! bell rung many times wakes once, so wake-ups are batched by themselves.
//!
//! Invariants:
//! - messages between shards are bounded per class by [`SHARD_QUEUE_MESSAGES_MAX`]; a sender that
//!   meets a full class keeps its message, is noted as blocked and rung when there is room again;
//! - everything else is bounded by what the shard itself asked for (disk, passwords) or by a limit
//!   of its producer (connections);
//! - nothing is ever dropped here.

use crate::figures::ShardReport;
use crate::net::Pass;
use borzoi_shard::ShardMessage;
use borzoi_shard::event::{ArchiveTicket, HostStats, PasswordOutcome, PasswordTicket};
use borzoi_storage::disk::{DiskResult, DiskTicket};
use borzoi_types::ShardId;
use borzoi_types::limits::SHARD_QUEUE_MESSAGES_MAX;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// Classes of messages between shards, in the order in which the loop handles them: a burst of
/// client requests delays neither metadata nor answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Metadata and everything else between the servers themselves.
    Control = 0,
    /// Answers to requests.
    Reply = 1,
    /// Requests of clients.
    Request = 2,
}

impl Class {
    /// All of them, most urgent first.
    pub const ALL: [Self; 3] = [Self::Control, Self::Reply, Self::Request];

    /// The class of a message.
    #[must_use]
    pub fn of(message: &ShardMessage) -> Self {
        match message {
            ShardMessage::Lane(_) | ShardMessage::Counters(_) => Self::Request,
            ShardMessage::LaneReply { .. } | ShardMessage::CountersReply(_) => Self::Reply,
            ShardMessage::Front(_)
            | ShardMessage::Peer { .. }
            | ShardMessage::Leader { .. }
            | ShardMessage::Stopping => Self::Control,
        }
    }
}

/// Questions for figures that wait at one shard: more than there are people who look at them.
const FIGURE_ASKS_MAX: usize = 16;

/// A client connection on its way to its shard.
#[derive(Debug)]
pub struct NewConnection {
    /// Its number on this node.
    pub number: u64,
    /// The socket, in non-blocking mode.
    pub socket: TcpStream,
    /// Who connected.
    pub peer: SocketAddr,
    /// Counts it until it ends.
    pub pass: Pass,
}

/// Everything that arrived since the last look.
#[derive(Default)]
pub struct Arrivals {
    /// Finished disk requests.
    pub disk: Vec<(DiskTicket, DiskResult)>,
    /// Messages of other shards, by class.
    pub messages: [VecDeque<(ShardId, ShardMessage)>; 3],
    /// Finished password jobs.
    pub passwords: Vec<(PasswordTicket, PasswordOutcome)>,
    /// Finished diagnostic archives.
    pub archives: Vec<(ArchiveTicket, Option<Bytes>)>,
    /// Connections dealt to this shard.
    pub connections: Vec<NewConnection>,
    /// The newest figures of the machine.
    pub host: Option<Box<HostStats>>,
    /// Who wants to know the shard's figures.
    pub asks: Vec<oneshot::Sender<ShardReport>>,
    /// The node is to stop.
    pub stop: bool,
    /// A thread that works for this shard died.
    pub broken: Option<String>,
    /// Shards that met a full class here.
    blocked: Vec<ShardId>,
}

/// One shard's inbox.
#[derive(Default)]
pub struct Inbox {
    arrivals: Mutex<Arrivals>,
    bell: Notify,
}

impl Inbox {
    /// Takes everything, and names the shards that must be told that there is room again.
    pub fn take(&self, into: &mut Arrivals) -> Vec<ShardId> {
        let mut arrivals = self.lock();
        std::mem::swap(&mut arrivals.disk, &mut into.disk);
        for (here, there) in arrivals.messages.iter_mut().zip(&mut into.messages) {
            // What the last turn left over keeps its place in front, and its claim on the room.
            there.append(here);
        }
        std::mem::swap(&mut arrivals.passwords, &mut into.passwords);
        std::mem::swap(&mut arrivals.archives, &mut into.archives);
        std::mem::swap(&mut arrivals.connections, &mut into.connections);
        into.host = arrivals.host.take();
        std::mem::swap(&mut arrivals.asks, &mut into.asks);
        into.stop = std::mem::take(&mut arrivals.stop);
        into.broken = arrivals.broken.take();
        std::mem::take(&mut arrivals.blocked)
    }

    /// Leaves a finished disk request.
    pub fn disk(&self, ticket: DiskTicket, result: DiskResult) {
        self.lock().disk.push((ticket, result));
        self.ring();
    }

    /// Leaves a finished password job.
    pub fn password(&self, ticket: PasswordTicket, outcome: PasswordOutcome) {
        self.lock().passwords.push((ticket, outcome));
        self.ring();
    }

    /// Leaves a finished diagnostic archive.
    pub fn archive(&self, ticket: ArchiveTicket, archive: Option<Bytes>) {
        self.lock().archives.push((ticket, archive));
        self.ring();
    }

    /// Hands a connection over.
    pub fn connection(&self, connection: NewConnection) {
        self.lock().connections.push(connection);
        self.ring();
    }

    /// Leaves fresh figures of the machine; older ones that nobody looked at are replaced.
    pub fn host(&self, stats: HostStats) {
        self.lock().host = Some(Box::new(stats));
        self.ring();
    }

    /// Asks for the shard's figures. At most [`FIGURE_ASKS_MAX`] wait; beyond, the oldest gives up.
    pub fn ask(&self, answer: oneshot::Sender<ShardReport>) {
        let mut arrivals = self.lock();
        if arrivals.asks.len() >= FIGURE_ASKS_MAX {
            arrivals.asks.remove(0);
        }
        arrivals.asks.push(answer);
        drop(arrivals);
        self.ring();
    }

    /// Asks the shard to stop.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.ring();
    }

    /// Tells the shard that a thread it depends on is gone.
    pub fn broken(&self, what: String) {
        self.lock().broken.get_or_insert(what);
        self.ring();
    }

    /// Moves messages of one class from the front of `from` until none is left or the class is
    /// full; then `sender` is rung when there is room.
    pub fn messages(&self, sender: ShardId, class: Class, from: &mut VecDeque<ShardMessage>) {
        let mut arrivals = self.lock();
        let queue = &mut arrivals.messages[class as usize];
        let room = SHARD_QUEUE_MESSAGES_MAX.saturating_sub(queue.len());
        let moved = room.min(from.len());
        queue.extend(from.drain(..moved).map(|message| (sender, message)));
        if !from.is_empty() && !arrivals.blocked.contains(&sender) {
            arrivals.blocked.push(sender);
        }
        drop(arrivals);
        if moved > 0 {
            self.ring();
        }
    }

    /// Wakes the loop.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Waits for the bell.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports a panic of the thread that holds it to the shard the thread works for.
pub struct PanicAlarm {
    inbox: Arc<Inbox>,
    thread: String,
}

impl PanicAlarm {
    /// An alarm for the thread called `thread`.
    #[must_use]
    pub fn new(inbox: Arc<Inbox>, thread: String) -> Self {
        Self { inbox, thread }
    }
}

impl Drop for PanicAlarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inbox.broken(format!("thread {} panicked", self.thread));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_class_keeps_the_message_with_its_sender_and_names_it_when_there_is_room() {
        let inbox = Inbox::default();
        let mut outgoing: VecDeque<ShardMessage> =
            (0..SHARD_QUEUE_MESSAGES_MAX + 3).map(|_| ShardMessage::Stopping).collect();
        inbox.messages(ShardId(1), Class::Control, &mut outgoing);
        assert_eq!(outgoing.len(), 3);
        inbox.messages(ShardId(1), Class::Control, &mut outgoing);
        assert_eq!(outgoing.len(), 3);
        let mut arrivals = Arrivals::default();
        assert_eq!(inbox.take(&mut arrivals), [ShardId(1)]);
        assert_eq!(arrivals.messages[0].len(), SHARD_QUEUE_MESSAGES_MAX);
        inbox.messages(ShardId(1), Class::Control, &mut outgoing);
        assert!(outgoing.is_empty());
        assert!(inbox.take(&mut arrivals).is_empty());
        assert_eq!(arrivals.messages[0].len(), SHARD_QUEUE_MESSAGES_MAX + 3);
    }

    #[test]
    fn a_panic_of_a_worker_reaches_its_shard() {
        let inbox = Arc::new(Inbox::default());
        let alarm = PanicAlarm::new(inbox.clone(), "worker-7".to_owned());
        let died = std::thread::spawn(move || {
            let _alarm = alarm;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        let mut arrivals = Arrivals::default();
        inbox.take(&mut arrivals);
        assert!(arrivals.broken.is_some_and(|what| what.contains("worker-7")));
    }
}
