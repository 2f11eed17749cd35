//! Every fault of a frame at every state of a connection: an answer, or the end of the
//! connection; never silence, and nobody else is disturbed.

use crate::hostile::{HEADER, header, still_serves};
use crate::support::{Place, shared};
use borzoi_conformance::{ROOT_PASSWORD, ROOT_USERNAME};
use iggy::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NON_REPLICATED: u8 = 2;
const REGISTER: u8 = 1;
const PING: u32 = 1;
const GET_STREAMS: u32 = 201;

/// Where a connection stands when the fault comes.
#[derive(Clone, Copy, Debug)]
enum State {
    Fresh,
    Pinged,
    LoginRefused,
    LoggedIn,
    Working,
    LoggedOut,
}

const STATES: [State; 6] = [
    State::Fresh,
    State::Pinged,
    State::LoginRefused,
    State::LoggedIn,
    State::Working,
    State::LoggedOut,
];

/// A peer that speaks in bytes.
struct Peer {
    socket: TcpStream,
    /// Its identity: byte 128 of every header it sends.
    identity: u8,
}

impl Peer {
    async fn connect(address: &str, identity: u8) -> Self {
        Self { socket: TcpStream::connect(address).await.expect("connected"), identity }
    }

    fn header(&self, size: usize, operation: u8, code: u32) -> Vec<u8> {
        let mut bytes = header(u32::try_from(size).expect("small"), operation, code);
        bytes[128] = self.identity;
        bytes[129] = 0xb0;
        bytes
    }

    /// The next frame, or none when the server has closed.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; HEADER];
        let read = self.socket.read_exact(&mut frame);
        match tokio::time::timeout(Duration::from_secs(20), read).await {
            Err(_) => panic!("silence"),
            Ok(Err(_)) => return None,
            Ok(Ok(_)) => {}
        }
        let size = u32::from_le_bytes(frame[48..52].try_into().expect("four bytes")) as usize;
        assert!(size >= HEADER, "answers have sizes of frames: {size}");
        frame.resize(size, 0);
        self.socket.read_exact(&mut frame[HEADER..]).await.ok()?;
        Some(frame)
    }

    async fn exchange(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        self.socket.write_all(frame).await.ok()?;
        self.frame().await
    }

    async fn login(&mut self, password: &str) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&(11_u32 << 10).to_le_bytes());
        for text in ["test-sdk", "1", ROOT_USERNAME, password] {
            body.push(u8::try_from(text.len()).expect("short"));
            body.extend_from_slice(text.as_bytes());
        }
        body.extend_from_slice(&0_u32.to_le_bytes());
        let mut frame = self.header(HEADER + body.len(), REGISTER, 0);
        frame[168] = 0;
        frame.extend_from_slice(&body);
        self.exchange(&frame).await
    }

    async fn ping(&mut self) -> Option<Vec<u8>> {
        let frame = self.header(HEADER, NON_REPLICATED, PING);
        self.exchange(&frame).await
    }

    /// Brings the connection to `state`.
    async fn bring_to(&mut self, state: State) {
        match state {
            State::Fresh => {}
            State::Pinged => drop(self.ping().await.expect("answered")),
            State::LoginRefused => drop(self.login("not-the-password").await.expect("answered")),
            State::LoggedIn | State::Working | State::LoggedOut => {
                let answer = self.login(ROOT_PASSWORD).await.expect("answered");
                assert_eq!((answer[60], answer[HEADER..].is_empty()), (8, false), "logged in");
            }
        }
        if matches!(state, State::Working) {
            // A request is on its way when the fault comes; its answer comes first.
            let frame = self.header(HEADER, NON_REPLICATED, GET_STREAMS);
            self.socket.write_all(&frame).await.expect("written");
        }
        if matches!(state, State::LoggedOut) {
            let frame = self.header(HEADER, NON_REPLICATED, 39);
            self.exchange(&frame).await.expect("answered");
        }
    }
}

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    SizeZero,
    SizeBelowHeader,
    SizeAboveEveryLimit,
    SizeLiesByOne,
    HalfAHeader,
    HalfABody,
    NoRequest,
    NobodysIdentity,
    UnknownOperation,
    InternalOperation,
    UnknownCode,
    WrongChecksum,
    BodyOfNoise,
    BodyWhereNoneBelongs,
}

const FAULTS: [Fault; 14] = [
    Fault::SizeZero,
    Fault::SizeBelowHeader,
    Fault::SizeAboveEveryLimit,
    Fault::SizeLiesByOne,
    Fault::HalfAHeader,
    Fault::HalfABody,
    Fault::NoRequest,
    Fault::NobodysIdentity,
    Fault::UnknownOperation,
    Fault::InternalOperation,
    Fault::UnknownCode,
    Fault::WrongChecksum,
    Fault::BodyOfNoise,
    Fault::BodyWhereNoneBelongs,
];

impl Fault {
    /// The bytes, and whether the peer stops sending after them.
    fn bytes(self, peer: &Peer) -> (Vec<u8>, bool) {
        let noise: Vec<u8> = (0..40_u8).map(|byte| byte.wrapping_mul(151)).collect();
        let mut frame = peer.header(HEADER, NON_REPLICATED, PING);
        let size = |frame: &mut Vec<u8>, size: u32| {
            frame[48..52].copy_from_slice(&size.to_le_bytes());
        };
        match self {
            Self::SizeZero => size(&mut frame, 0),
            Self::SizeBelowHeader => size(&mut frame, 255),
            Self::SizeAboveEveryLimit => size(&mut frame, u32::MAX),
            Self::SizeLiesByOne => {
                size(&mut frame, 257);
                return (frame, true);
            }
            Self::HalfAHeader => return (frame[..100].to_vec(), true),
            Self::HalfABody => {
                size(&mut frame, 512);
                frame.extend_from_slice(&noise);
                return (frame, true);
            }
            Self::NoRequest => frame[60] = 8,
            Self::NobodysIdentity => frame[128..144].fill(0),
            Self::UnknownOperation => frame[176] = 0xee,
            Self::InternalOperation => {
                frame[176] = 66;
                frame[184] = 1;
            }
            Self::UnknownCode => frame[196..200].copy_from_slice(&60_000_u32.to_le_bytes()),
            Self::WrongChecksum | Self::BodyOfNoise => {
                frame = peer.header(HEADER + noise.len(), 128, 0);
                frame[184] = 1;
                if self == Self::WrongChecksum {
                    // The checksum of the body, which is nought for "not computed".
                    frame[144..148].fill(0x5a);
                }
                frame.extend_from_slice(&noise);
            }
            Self::BodyWhereNoneBelongs => {
                frame = peer.header(HEADER + noise.len(), NON_REPLICATED, GET_STREAMS);
                frame.extend_from_slice(&noise);
            }
        }
        (frame, false)
    }
}

#[tokio::test]
async fn every_fault_of_a_frame_at_every_state_of_a_connection_is_answered_or_ends_it() {
    let place = Place::new(1).await;
    let (mut answered, mut ended) = (0, 0);
    for (index, state) in (0_u8..).zip(STATES) {
        for fault in FAULTS {
            // One refused login waits longer than the one before it: once is enough.
            let late = matches!(state, State::LoginRefused);
            if late && !matches!(fault, Fault::SizeZero | Fault::HalfABody | Fault::BodyOfNoise) {
                continue;
            }
            let mut peer = Peer::connect(place.address(), index + 1).await;
            peer.bring_to(state).await;
            let (bytes, stops) = fault.bytes(&peer);
            peer.socket.write_all(&bytes).await.expect("written");
            if stops {
                peer.socket.shutdown().await.expect("half closed");
            }
            if matches!(state, State::Working) {
                let answer = peer.frame().await;
                assert!(answer.is_some() || !matches!(fault, Fault::UnknownCode), "{fault:?}");
                if answer.is_none() {
                    ended += 1;
                    continue;
                }
            }
            match peer.frame().await {
                None => ended += 1,
                Some(answer) => {
                    answered += 1;
                    assert!([8, 13].contains(&answer[60]), "{state:?} {fault:?}");
                    assert!(!stops, "{fault:?}: half a frame has no answer");
                }
            }
        }
        place.send(0, &["undisturbed"]).await;
    }
    println!("{answered} faults were answered, {ended} ended their connection");
    assert!(answered > 20 && ended > 20, "{answered} {ended}");
    still_serves(place.address()).await;
}

#[tokio::test]
async fn a_frame_that_comes_byte_by_byte_is_a_frame() {
    let server = shared();
    let mut peer = Peer::connect(server.address(), 9).await;
    let frame = peer.header(HEADER, NON_REPLICATED, PING);
    for byte in frame.chunks(1) {
        peer.socket.write_all(byte).await.expect("written");
    }
    let answer = peer.frame().await.expect("answered");
    assert_eq!(answer[60], 8);
}

#[tokio::test]
async fn many_requests_in_one_write_are_answered_one_by_one_in_their_order() {
    let server = shared();
    let mut peer = Peer::connect(server.address(), 10).await;
    peer.login(ROOT_PASSWORD).await.expect("answered");
    let mut all = Vec::new();
    for request in 0..50_u8 {
        let code = if request % 2 == 0 { PING } else { GET_STREAMS };
        let mut frame = peer.header(HEADER, NON_REPLICATED, code);
        frame[168] = request + 1;
        all.extend_from_slice(&frame);
    }
    peer.socket.write_all(&all).await.expect("written");
    for request in 0..50_u8 {
        let answer = peer.frame().await.expect("answered");
        let is_list = answer.len() > HEADER;
        assert!(request % 2 == 1 || !is_list, "request {request}");
    }
}

#[tokio::test]
async fn a_peer_that_hangs_up_in_the_middle_of_a_send_leaves_nothing_behind() {
    let place = Place::new(1).await;
    for cut in [HEADER, HEADER + 10, HEADER + 200] {
        let mut peer = Peer::connect(place.address(), 11).await;
        peer.login(ROOT_PASSWORD).await.expect("answered");
        let mut frame = peer.header(1_000_000, 160, 0);
        frame[184] = 1;
        frame.resize(HEADER + 200, 7);
        peer.socket.write_all(&frame[..cut]).await.expect("written");
        drop(peer);
    }
    assert!(place.offsets(0, PollingStrategy::first(), 10).await.is_empty());
    assert_eq!(place.send(0, &["first"]).await.confirmations[0].base_offset, 0);
}
