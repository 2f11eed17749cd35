//! A connection as its shell feeds it: bytes in pieces of any size, whole frames to the shard.
//!
//! A script (any bytes at all) says what a hostile peer sends, where its stream is cut, and when
//! time passes. [`run`] plays it against a whole node and checks: nothing panics; every complete
//! request is answered exactly once or the connection is closed with a reason; answers are whole
//! frames; somebody else on the same node is undisturbed. Used by a property test and by a fuzz
//! target.

use crate::client::{Client, login_body};
use crate::world::World;
use borzoi_shard::ConnectionId;
use borzoi_types::limits::REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX;
use borzoi_types::{ClientId, Duration, RequestNumber, SessionId};
use borzoi_wire::frame::{EvictionView, FrameSize, HEADER_BYTES, RequestHeader};
use borzoi_wire::{CommandCode, Operation, ProtocolVersion};

/// Largest frame that a script may make the peer announce: more would only cost memory.
const FRAME_BYTES_MAX_HERE: usize = 16 * 1024;

/// The bytes of a script, read from the front.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}

/// The receiving side of one connection.
struct Stream {
    connection: ConnectionId,
    pending: Vec<u8>,
    /// Whole frames handed to the shard.
    delivered: usize,
    /// The shell has closed it: a size that no frame may have.
    refused: bool,
}

impl Stream {
    fn in_flight(&self, world: &World) -> usize {
        self.delivered.saturating_sub(world.seen[&self.connection].frames.len())
    }

    /// Bytes have arrived: hands over the frames that are whole, in one batch if they may be.
    fn receive(&mut self, world: &mut World, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let mut waits = 0;
        loop {
            let seen = &world.seen[&self.connection];
            if seen.closed.is_some() || self.refused {
                self.pending.clear();
                return;
            }
            // Before login one request at a time, because its answer changes the limits.
            let before_login = seen.limit <= borzoi_types::limits::FRAME_BYTES_BEFORE_LOGIN_MAX;
            let slots = if before_login { 1 } else { REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX };
            if self.in_flight(world) >= slots {
                world.run();
                let closed = world.seen[&self.connection].closed.is_some();
                if self.in_flight(world) >= slots && !closed {
                    // A refused login is answered late, on purpose.
                    world.advance(Duration::from_secs(4));
                    waits += 1;
                    assert!(waits < 20, "nothing answers any more");
                }
                continue;
            }
            let Some(header) = self.pending.first_chunk::<HEADER_BYTES>() else { return };
            let limit = seen.limit.min(FRAME_BYTES_MAX_HERE);
            let Ok(size) = FrameSize::peek(header, limit) else {
                self.refused = true;
                world.hang_up(self.connection);
                return;
            };
            if self.pending.len() < size.frame_bytes() {
                return;
            }
            let frame: Vec<u8> = self.pending.drain(..size.frame_bytes()).collect();
            self.delivered += 1;
            world.deliver(self.connection, &frame);
        }
    }
}

/// One piece of what the peer sends.
fn piece(script: &mut Script<'_>, own: ClientId) -> Vec<u8> {
    let kind = script.byte();
    if kind.is_multiple_of(8) {
        let count = usize::from(script.byte());
        return script.bytes(count).to_vec();
    }
    let operations: Vec<u8> = Operation::ALL.iter().map(|operation| *operation as u8).collect();
    let codes: Vec<u32> = CommandCode::ALL.iter().map(|code| code.code()).collect();
    let operation = match kind % 8 {
        1 => Operation::Register as u8,
        2 => script.byte(),
        3 | 4 => Operation::NonReplicated as u8,
        _ => script.pick(&operations),
    };
    let body = match kind % 8 {
        1 => {
            let password = if kind & 0x40 == 0 { "iggy" } else { "wrong" };
            login_body("iggy", password, ProtocolVersion::V0_11_0)
        }
        _ => {
            let count = usize::from(script.byte());
            script.bytes(count).to_vec()
        }
    };
    let client = if kind & 0x80 == 0 { own } else { ClientId(u128::from(script.byte())) };
    let header = RequestHeader {
        client,
        operation,
        session: SessionId(u64::from(script.byte() % 8)),
        request: RequestNumber(u64::from(script.byte() % 16)),
        code: if operation == Operation::NonReplicated as u8 { script.pick(&codes) } else { 0 },
        ..RequestHeader::default()
    };
    let mut frame = Client::frame(header, &body);
    if kind & 0x30 == 0x30 {
        // One byte of the frame is another.
        let at = usize::from(script.byte()) | usize::from(script.byte()) << 8;
        let at = at % frame.len();
        frame[at] = script.byte();
    }
    frame
}

/// Plays a script; panics when something is not as it must be.
pub fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let setup = script.byte();
    let mut world = World::new(1 + u16::from(setup & 1));
    let mut other = Client::root(&mut world, 0, 1_000);
    other.prepare(&mut world, 2);
    let mut client = Client::connect(&mut world, 1, 5);
    if setup & 2 == 2 {
        client.login(&mut world, "iggy", "iggy");
    }
    let connection = client.connection;
    let mut stream = Stream { connection, pending: Vec::new(), delivered: 0, refused: false };
    let mut pieces = 0;
    while !script.0.is_empty() && pieces < 64 {
        pieces += 1;
        let sent = piece(&mut script, client.id);
        let cut = script.byte();
        if cut & 3 == 0 && !sent.is_empty() {
            // Cut anywhere, also inside the header.
            let at = usize::from(script.byte()) * sent.len() / 256;
            stream.receive(&mut world, &sent[..at]);
            if cut & 4 == 4 {
                world.run();
            }
            stream.receive(&mut world, &sent[at..]);
        } else {
            stream.receive(&mut world, &sent);
        }
        match cut >> 4 {
            0 => world.advance(Duration::from_millis(100)),
            1..=7 => world.run(),
            _ => {}
        }
    }
    settle(&mut world, &stream, setup & 4 == 4);
    check(&mut world, &stream);
    assert!(other.ping(&mut world).payload().is_empty(), "somebody else is served");
    assert_eq!(other.send(&mut world, 0, &[b"m"]), other.send(&mut world, 0, &[b"m"]) - 1);
    world.hang_up(connection);
    world.advance(Duration::from_secs(1));
    world.seen.get_mut(&connection).expect("it was opened").frames.clear();
    world.assert_at_rest();
}

/// Long enough for every delayed refusal; or the peer hangs up in the middle.
fn settle(world: &mut World, stream: &Stream, hang_up: bool) {
    if hang_up {
        world.hang_up(stream.connection);
    }
    world.run();
    world.advance(Duration::from_secs(30));
}

fn check(world: &mut World, stream: &Stream) {
    let seen = &world.seen[&stream.connection];
    let ended = seen.closed.is_some() || stream.refused;
    let hung_up = seen.closed.is_none() && seen.frames.len() < stream.delivered;
    if !ended && !hung_up {
        assert_eq!(seen.frames.len(), stream.delivered, "one answer for each request");
    }
    // One more than requests: the notice that ends a session.
    assert!(seen.frames.len() <= stream.delivered + 1, "no answer without a request");
    for answer in &seen.frames {
        assert!(answer.len() >= HEADER_BYTES, "answers are whole frames");
        let size = u32::from_le_bytes(answer[48..52].try_into().expect("four bytes"));
        assert_eq!(answer.len(), size as usize);
        if answer[60] == 13 {
            let view = EvictionView::new(answer.first_chunk().expect("256 bytes"));
            assert!(view.reason().is_some(), "an eviction says why");
        } else {
            assert_eq!(answer[60], 8, "everything else is a reply");
        }
    }
}
