//! Connections over real sockets.

use super::connection::{Connection, EndReason, Receiving};
use super::table::Connections;
use super::{Admission, Pass};
use crate::clock::Clock;
use crate::inbox::{Inbox, NewConnection};
use borzoi_shard::event::CloseReason;
use borzoi_shard::{ConnectionId, Event};
use borzoi_types::limits::{
    FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_BYTES_MAX, FRAME_SECONDS_MAX,
    LARGE_FRAME_CONTENDED_SECONDS_MAX, LOGIN_SECONDS_MAX, OUTPUT_BYTES_PER_CONNECTION_MAX,
    OUTPUT_HOLD_BYTES, OUTPUT_STALL_SECONDS_MAX, REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
};
use borzoi_types::{Duration, Mono};
use bytes::{Bytes, BytesMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration as Wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Stage {
    connections: Connections,
    listener: TcpListener,
    admission: Admission,
    opened: u64,
}

impl Stage {
    async fn set() -> Self {
        Self {
            connections: Connections::new(
                Arc::new(Inbox::default()),
                Clock::start(),
                Arc::default(),
            ),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            admission: Admission::new(1),
            opened: 0,
        }
    }

    async fn connect(&mut self) -> (TcpStream, ConnectionId) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).await.unwrap();
        let (socket, peer) = self.listener.accept().await.unwrap();
        self.opened += 1;
        let pass = self.admission.admit(peer.ip()).unwrap();
        let socket = socket.into_std().unwrap();
        self.connections.open(NewConnection { number: self.opened, socket, peer, pass });
        assert!(matches!(self.event().await, Event::ConnectionOpened { .. }));
        (client, ConnectionId(self.opened))
    }

    async fn event(&mut self) -> Event {
        let ports = self.connections.ports().clone();
        let next = async {
            loop {
                let event = ports.events.borrow_mut().pop_front();
                match event {
                    Some(event) => return event,
                    None => tokio::time::sleep(Wait::from_millis(1)).await,
                }
            }
        };
        tokio::time::timeout(Wait::from_secs(10), next).await.expect("an event comes")
    }

    async fn frame(&mut self) -> BytesMut {
        match self.event().await {
            Event::Frame { frame, .. } => frame,
            other => panic!("a frame was expected, not {other:?}"),
        }
    }

    async fn closed(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, Event::ConnectionClosed { .. }), "{event:?}");
    }

    async fn nothing(&mut self) {
        tokio::time::sleep(Wait::from_millis(30)).await;
        assert!(self.connections.ports().events.borrow().is_empty());
    }

    fn answer(&mut self, id: ConnectionId) {
        self.connections.reply(id, vec![Bytes::from_static(b"answer")]);
        self.connections.flush();
    }

    fn charged(&self) -> usize {
        self.connections.ports().ingest.used()
    }
}

fn frame_of(size: usize, fill: u8) -> Vec<u8> {
    let mut frame = vec![fill; size.max(256)];
    frame[48..52].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
    frame
}

fn on_stage<F: Future>(scenario: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, scenario)
}

#[test]
fn frames_arrive_whole_however_the_stream_is_cut() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        stage.connections.set_frame_limit(id, FRAME_BYTES_MAX);
        let sizes = [256, 257, 1_000, 70_000, 256, 300_000, 100_000, 20_000, 256];
        let frames: Vec<Vec<u8>> =
            sizes.iter().zip(1..).map(|(size, fill)| frame_of(*size, fill)).collect();
        let stream = frames.concat();
        let writer = tokio::task::spawn_local(async move {
            for piece in stream.chunks(7_777) {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            client
        });
        for frame in &frames {
            assert_eq!(stage.frame().await, frame);
            stage.answer(id);
        }
        assert_eq!(stage.charged(), 0);
        drop(writer.await.unwrap());
        stage.closed().await;
        assert_eq!(stage.admission.total(), 0);
    });
}

#[test]
fn sizes_that_no_frame_has_close_the_connection_and_leave_others_alone() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut neighbour, neighbour_id) = stage.connect().await;
        for size in [0, 255, FRAME_BYTES_BEFORE_LOGIN_MAX + 1, u32::MAX as usize] {
            let (mut client, _) = stage.connect().await;
            let mut frame = frame_of(256, 0);
            frame[48..52].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
            client.write_all(&frame).await.unwrap();
            stage.closed().await;
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        }
        neighbour.write_all(&frame_of(300, 1)).await.unwrap();
        assert_eq!(stage.frame().await.len(), 300);
        stage.answer(neighbour_id);
        assert_eq!(stage.charged(), 0);
    });
}

#[test]
fn half_a_frame_then_silence_is_charged_and_given_back_when_the_peer_leaves() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        stage.connections.set_frame_limit(id, FRAME_BYTES_MAX);
        client.write_all(&frame_of(1_000_000, 1)[..5_000]).await.unwrap();
        stage.nothing().await;
        assert_eq!(stage.charged(), 1_000_000);
        drop(client);
        stage.closed().await;
        assert_eq!(stage.charged(), 0);
    });
}

#[test]
fn requests_without_answers_stop_the_reader_at_one_before_login_and_at_the_limit_after() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        let many = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX + 5;
        client.write_all(&frame_of(256, 0).repeat(many)).await.unwrap();
        stage.frame().await;
        stage.nothing().await;
        stage.connections.set_frame_limit(id, FRAME_BYTES_MAX);
        for _ in 1..REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX {
            stage.frame().await;
        }
        stage.nothing().await;
        for _ in 0..5 {
            stage.answer(id);
            stage.frame().await;
        }
    });
}

#[test]
fn a_reader_that_does_not_read_is_closed_at_the_byte_cap() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (client, id) = stage.connect().await;
        let reply = Bytes::from(vec![1; OUTPUT_BYTES_PER_CONNECTION_MAX / 4]);
        for _ in 0..6 {
            stage.connections.reply(id, vec![reply.clone()]);
            stage.connections.flush();
            tokio::task::yield_now().await;
        }
        stage.closed().await;
        let weak = stage.connections.ports().connection(id).map(|found| Rc::downgrade(&found));
        let mut client = client;
        let mut sink = Vec::new();
        let end = tokio::time::timeout(Wait::from_secs(10), client.read_to_end(&mut sink)).await;
        assert!(end.is_ok(), "the socket is closed although output waited");
        tokio::time::sleep(Wait::from_millis(20)).await;
        assert!(weak.is_none_or(|connection| connection.upgrade().is_none()), "nothing leaks");
    });
}

#[test]
fn the_core_is_told_once_when_a_client_has_taken_much() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        let half = Bytes::from(vec![1; OUTPUT_HOLD_BYTES / 2]);
        let mut sink = vec![0; OUTPUT_HOLD_BYTES / 2];
        stage.connections.reply(id, vec![half.clone()]);
        stage.connections.flush();
        client.read_exact(&mut sink).await.unwrap();
        stage.nothing().await;
        stage.connections.reply(id, vec![half]);
        stage.connections.flush();
        client.read_exact(&mut sink).await.unwrap();
        let event = stage.event().await;
        assert!(
            matches!(event, Event::OutputTaken { connection } if connection == id),
            "{event:?}"
        );
        stage.nothing().await;
        let counters = &stage.connections.ports().counters;
        let sent = counters.bytes_sent.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(sent, OUTPUT_HOLD_BYTES as u64);
    });
}

#[test]
fn a_close_by_the_core_lets_the_queued_notice_through_despite_unread_input() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        client.write_all(&frame_of(256, 0).repeat(3)).await.unwrap();
        stage.frame().await;
        stage.answer(id);
        stage.connections.close(id, CloseReason::Evicted);
        let reader = tokio::task::spawn_local(async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.map(|_| all)
        });
        stage.closed().await;
        assert_eq!(reader.await.unwrap().unwrap(), b"answer");
    });
}

#[test]
fn many_slices_reach_a_slow_reader_in_order() {
    on_stage(async {
        let mut stage = Stage::set().await;
        let (mut client, id) = stage.connect().await;
        let parts: Vec<Bytes> = (0..500_u32).map(|i| Bytes::from(vec![i as u8; 10_000])).collect();
        stage.connections.reply(id, parts.clone());
        stage.connections.flush();
        let mut received = vec![0; 5_000_000];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received, parts.concat());
    });
}

async fn lone_connection() -> (Rc<Connection>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, peer) = listener.accept().await.unwrap();
    let pass: Pass = Admission::new(1).admit(peer.ip()).unwrap();
    (Connection::new(ConnectionId(1), peer, socket, pass, Mono(0)), client)
}

fn seconds(seconds: u64) -> Mono {
    Mono::default().plus(Duration::from_secs(seconds))
}

#[test]
fn each_time_limit_names_itself_and_none_runs_while_the_server_holds_the_reader_up() {
    on_stage(async {
        let (connection, _client) = lone_connection().await;
        assert!(connection.overdue(seconds(LOGIN_SECONDS_MAX), false).is_none());
        let end = connection.overdue(seconds(LOGIN_SECONDS_MAX + 1), false);
        assert!(matches!(end, Some(EndReason::NotLoggedIn)));
        connection.set_frame_limit(FRAME_BYTES_MAX);
        let end = connection.overdue(seconds(100_000), false);
        assert!(end.is_none(), "idle for ever once logged in");
        connection.receiving(Receiving::Frame(Mono(0), 256));
        assert!(connection.overdue(seconds(FRAME_SECONDS_MAX), false).is_none());
        let end = connection.overdue(seconds(FRAME_SECONDS_MAX + 1), false);
        assert!(matches!(end, Some(EndReason::FrameTooSlow { bytes: 256 })));
        connection.receiving(Receiving::Frame(Mono(0), FRAME_BYTES_MAX));
        assert!(connection.overdue(seconds(FRAME_SECONDS_MAX + 1), false).is_none());
        assert!(connection.overdue(seconds(100_000), false).is_some());
        let contended = seconds(LARGE_FRAME_CONTENDED_SECONDS_MAX + 1);
        assert!(connection.overdue(contended, true).is_none(), "small frames take no such room");
        connection.receiving(Receiving::Large(Mono(0), 256 * 1024));
        assert!(connection.overdue(contended, false).is_none());
        assert!(connection.overdue(seconds(LARGE_FRAME_CONTENDED_SECONDS_MAX), true).is_none());
        assert!(connection.overdue(contended, true).is_some());
        connection.receiving(Receiving::HeldUp);
        assert!(connection.overdue(seconds(100_000), false).is_none());
        connection.output.borrow_mut().waiting_since = Some(Mono(0));
        let end = connection.overdue(seconds(OUTPUT_STALL_SECONDS_MAX + 1), false);
        assert!(matches!(end, Some(EndReason::OutputStalled { .. })));
    });
}
