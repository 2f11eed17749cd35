//! A whole node, threads and sockets included, around a core that does little.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use borzoi_runtime::disk::{FileDisk, FileDiskOptions};
use borzoi_runtime::turn::Core;
use borzoi_runtime::{Clock, Node, NodeError, NodeParts, Stopper};
use borzoi_shard::event::{PasswordJob, PasswordOutcome, PasswordTicket, Secret};
use borzoi_shard::{Effect, Event, FatalError, ShardMessage};
use borzoi_storage::disk::{
    DiskError, DiskErrorKind, DiskOperation, DiskQueue, DiskRequest, DiskTicket, FileName,
};
use borzoi_types::limits::{FRAME_BYTES_MAX, SHARD_QUEUE_MESSAGES_MAX};
use borzoi_types::{Duration, Mono, Now, ShardId};
use bytes::Bytes;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Answers every frame with itself; the first byte of the body may ask for more.
struct Echo {
    shard: ShardId,
    deadline: Option<Mono>,
    seen: Sender<Seen>,
    refuses_to_stop: bool,
}

#[derive(Debug, PartialEq)]
enum Seen {
    Tick(ShardId),
    Host,
    Disk(DiskTicket, bool),
    Password(PasswordOutcome),
    Message(ShardId),
}

const ECHO: u8 = 0;
const FAIL: u8 = 1;
const PANIC: u8 = 2;
const WRITE: u8 = 3;
const HASH: u8 = 4;
const FLOOD_THE_OTHER: u8 = 5;
const WAKE_ME: u8 = 6;

impl Core for Echo {
    fn handle(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::ConnectionOpened { connection, .. } => {
                effects.push(Effect::SetFrameLimit { connection, bytes: FRAME_BYTES_MAX });
            }
            Event::Frame { connection, frame } => {
                let wish = frame.get(256).copied().unwrap_or(ECHO);
                let parts = vec![frame.freeze()];
                let reply = Effect::Reply { connection, parts };
                match wish {
                    FAIL => {
                        effects.push(Effect::Fatal(FatalError::Journal(DiskError::new(
                            DiskOperation::Sync,
                            &FileName::Journal(0),
                            DiskErrorKind::Io,
                            "made up",
                        ))));
                        effects.push(reply);
                    }
                    PANIC => panic!("as asked"),
                    other => {
                        self.grant(now, other, effects);
                        effects.push(reply);
                    }
                }
            }
            Event::Stop if !self.refuses_to_stop => effects.push(Effect::Stopped),
            Event::Tick => {
                self.deadline = None;
                self.saw(Seen::Tick(self.shard));
            }
            Event::Host(stats) if stats.process_id == std::process::id() => self.saw(Seen::Host),
            Event::Disk { ticket, result } => self.saw(Seen::Disk(ticket, result.is_ok())),
            Event::Password { outcome, .. } => self.saw(Seen::Password(outcome)),
            Event::FromShard { from, .. } => self.saw(Seen::Message(from)),
            _ => {}
        }
    }

    fn end_of_batch(&mut self, _now: Now, _effects: &mut Vec<Effect>) {}

    fn deadline(&self) -> Option<Mono> {
        self.deadline
    }
}

impl Echo {
    fn saw(&self, what: Seen) {
        let _ = self.seen.send(what);
    }

    fn grant(&mut self, now: Now, wish: u8, effects: &mut Vec<Effect>) {
        match wish {
            WRITE => effects.push(Effect::Disk {
                queue: DiskQueue::Pool,
                ticket: DiskTicket(7),
                request: DiskRequest::DurableReplace {
                    file: FileName::Superblock,
                    parts: vec![Bytes::from_static(b"echo")],
                },
            }),
            HASH => effects.push(Effect::Password {
                ticket: PasswordTicket(9),
                address: "127.0.0.1".to_owned(),
                job: PasswordJob::Hash { password: Secret("secret".to_owned()), salt: [1; 16] },
            }),
            FLOOD_THE_OTHER => {
                for _ in 0..3 * SHARD_QUEUE_MESSAGES_MAX {
                    let message = ShardMessage::Stopping;
                    effects.push(Effect::ToShard { to: ShardId(1 - self.shard.0), message });
                }
            }
            WAKE_ME => self.deadline = Some(now.mono.plus(Duration::from_millis(20))),
            _ => {}
        }
    }
}

struct Running {
    address: SocketAddr,
    seen: Receiver<Seen>,
    stopper: Stopper,
    thread: JoinHandle<Result<(), NodeError>>,
    data: tempfile::TempDir,
}

fn start(shards: u16, refuses_to_stop: bool) -> Running {
    let data = tempfile::tempdir().unwrap();
    let (disk, _) = FileDisk::open(data.path(), &FileDiskOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, receiver) = channel();
    let shards = (0..shards)
        .map(|index| Echo {
            shard: ShardId(index),
            deadline: None,
            seen: seen.clone(),
            refuses_to_stop,
        })
        .collect();
    let (listeners, clock) = (vec![listener], Clock::start());
    let archives = std::sync::Arc::new(|_: &_| None);
    let parts = NodeParts { shards, disk, listeners, clock, archives };
    let node = Node::start(parts).unwrap();
    let stopper = node.stopper();
    let thread = std::thread::spawn(move || node.run(|| {}));
    Running { address, seen: receiver, stopper, thread, data }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        socket
    }

    fn wait_for(&self, wanted: &Seen) {
        let until = Instant::now() + std::time::Duration::from_secs(20);
        while let Ok(seen) = self.seen.recv_timeout(until.duration_since(Instant::now())) {
            if seen == *wanted {
                return;
            }
        }
        panic!("{wanted:?} was not seen");
    }

    fn stop(self) -> Result<(), NodeError> {
        self.stopper.stop();
        self.thread.join().unwrap()
    }
}

fn ask(socket: &mut TcpStream, wish: u8, size: usize) -> bool {
    let mut frame = vec![wish; size];
    frame[48..52].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
    socket.write_all(&frame).unwrap();
    let mut answer = vec![0; size];
    socket.read_exact(&mut answer).is_ok() && answer == frame
}

#[test]
fn frames_of_many_connections_come_back_and_the_node_stops_cleanly() {
    let node = start(2, false);
    let threads: Vec<_> = (0..8)
        .map(|index| {
            let mut socket = node.connect();
            std::thread::spawn(move || {
                for round in 0..200 {
                    assert!(ask(&mut socket, ECHO, 257 + index * 1_000 + round * 97));
                }
                assert!(ask(&mut socket, ECHO, 3_000_000));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let began = Instant::now();
    node.stop().unwrap();
    assert!(began.elapsed().as_secs() < 5);
}

#[test]
fn after_a_fatal_effect_nothing_is_answered_and_the_node_reports_why() {
    let node = start(1, false);
    let mut socket = node.connect();
    assert!(!ask(&mut socket, FAIL, 300), "the reply behind the fatal effect must not leave");
    let error = node.thread.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("journal"), "{error}");
    assert!(error.to_string().contains("made up"), "{error}");
}

#[test]
fn a_panic_in_one_shard_ends_the_node_with_an_error() {
    let node = start(2, false);
    let mut socket = node.connect();
    assert!(!ask(&mut socket, PANIC, 300));
    let error = node.thread.join().unwrap().unwrap_err();
    assert!(matches!(error, NodeError::Panicked { .. }), "{error}");
}

#[test]
fn a_core_that_does_not_stop_is_left_behind_after_the_time_allowed() {
    let node = start(1, true);
    let began = Instant::now();
    let error = node.stop().unwrap_err();
    assert!(matches!(error, NodeError::StopTimeout), "{error}");
    assert!(began.elapsed().as_secs_f32() < 6.0);
}

#[test]
fn disk_passwords_deadlines_and_figures_come_back_as_events() {
    let node = start(1, false);
    let mut socket = node.connect();
    assert!(ask(&mut socket, WRITE, 300));
    node.wait_for(&Seen::Disk(DiskTicket(7), true));
    assert_eq!(std::fs::read(node.data.path().join("superblock")).unwrap(), b"echo");
    assert!(ask(&mut socket, WAKE_ME, 300));
    node.wait_for(&Seen::Tick(ShardId(0)));
    node.wait_for(&Seen::Host);
    assert!(ask(&mut socket, HASH, 300));
    loop {
        let seen = node.seen.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        if let Seen::Password(outcome) = seen {
            assert!(matches!(outcome, PasswordOutcome::Hashed(phc) if phc.contains("argon2id")));
            break;
        }
    }
    node.stop().unwrap();
}

#[test]
fn more_messages_than_fit_between_two_shards_all_arrive() {
    let node = start(2, false);
    let mut socket = node.connect();
    assert!(ask(&mut socket, FLOOD_THE_OTHER, 300));
    assert!(ask(&mut socket, ECHO, 300), "the sender serves again when there is room");
    let mut received = 0;
    while received < 3 * SHARD_QUEUE_MESSAGES_MAX {
        let seen = node.seen.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        received += usize::from(matches!(seen, Seen::Message(_)));
    }
    node.stop().unwrap();
}
