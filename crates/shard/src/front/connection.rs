//! One client connection: its state, and the answers it is owed in the order of its requests.
//!
//! Every frame takes a slot. A slot is answered exactly once; an answer leaves when all slots
//! before it have been answered. A request starts when nothing of its connection is under way,
//! except that sends follow sends without waiting: their order is kept by the lanes.
//!
//! Invariants: slots are numbered without gaps; `bytes` is the sum over the slots; a connection
//! that is closing starts nothing more.

pub(crate) mod balanced;

use self::balanced::Balanced;
use super::tally::CommandIndex;
use crate::event::{ConnectionId, Transport};
use borzoi_metadata::UserKey;
use borzoi_types::{ClientId, Mono, Op, SessionId};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Number of a request within its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SlotId(pub(crate) u64);

/// A request of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Which connection.
    pub(crate) connection: ConnectionId,
    /// Which of its requests.
    pub(crate) slot: SlotId,
}

/// Who a connection acts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    /// The identity that the client chose.
    pub(crate) client: ClientId,
    /// Its session: the metadata operation that registered it.
    pub(crate) session: SessionId,
    /// The user that logged in.
    pub(crate) user: UserKey,
    /// Whether with an access token: then the session ends with the token.
    pub(crate) with_token: bool,
}

#[derive(Debug)]
enum SlotState {
    /// Waits for its turn.
    Queued(BytesMut),
    /// Started.
    Running {
        /// A send that is on its way to its lane: further sends may follow.
        sent: bool,
    },
    /// Answered; waits for the slots before it.
    Answered(Vec<Bytes>),
}

#[derive(Debug)]
struct Slot {
    state: SlotState,
    bytes: usize,
    command: CommandIndex,
    /// When its frame came.
    since: Mono,
}

/// An answer that may leave.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Its parts.
    pub(crate) parts: Vec<Bytes>,
    /// What was asked.
    pub(crate) command: CommandIndex,
    /// When.
    pub(crate) since: Mono,
}

/// What to start next.
#[derive(Debug)]
pub(crate) struct Start {
    /// Its slot.
    pub(crate) slot: SlotId,
    /// The whole frame.
    pub(crate) frame: BytesMut,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Remote address with port, as client records show it.
    pub(crate) peer: String,
    /// How it connected.
    pub(crate) transport: Transport,
    /// Who it acts for; none before login and after logout.
    pub(crate) binding: Option<Binding>,
    /// Whose consumer work it does besides its own: another session of the same user.
    pub(crate) attached: Option<ClientId>,
    /// Newest metadata operation it was told of: its later requests see at least this.
    pub(crate) told: Op,
    /// When the last frame came.
    pub(crate) heard: Mono,
    /// When it has to have logged in; none while bound.
    pub(crate) login_deadline: Option<Mono>,
    /// Whether a close was asked for.
    pub(crate) closing: bool,
    /// Bytes of answers at which nothing more is started until the client has taken them.
    output_hold_bytes: usize,
    /// Bytes of answers since the client was last known to have taken what was sent.
    untaken: usize,
    /// Its last balanced send.
    pub(crate) balanced: Option<Balanced>,
    slots: VecDeque<Slot>,
    first: u64,
    bytes: usize,
}

impl Connection {
    /// A connection that has just been opened.
    pub(crate) fn new(peer: &str, transport: Transport, now: Mono, login_deadline: Mono) -> Self {
        Self {
            peer: peer.to_owned(),
            transport,
            binding: None,
            attached: None,
            told: Op::ZERO,
            heard: now,
            login_deadline: Some(login_deadline),
            closing: false,
            output_hold_bytes: usize::MAX,
            untaken: 0,
            balanced: None,
            slots: VecDeque::new(),
            first: 0,
            bytes: 0,
        }
    }

    /// The same, holding requests back when so many bytes of answers have not been taken.
    pub(crate) fn holding_at(self, output_hold_bytes: usize) -> Self {
        Self { output_hold_bytes, ..self }
    }

    /// The client has taken what was sent; whether requests were held back.
    pub(crate) fn taken(&mut self) -> bool {
        let held = self.is_held();
        self.untaken = 0;
        held
    }

    const fn is_held(&self) -> bool {
        self.untaken >= self.output_hold_bytes
    }

    /// Takes a slot for `frame`.
    pub(crate) fn queue(&mut self, frame: BytesMut) -> SlotId {
        let bytes = frame.len();
        self.bytes += bytes;
        let command = CommandIndex::of_frame(&frame);
        let (state, since) = (SlotState::Queued(frame), self.heard);
        self.slots.push_back(Slot { state, bytes, command, since });
        SlotId(self.first + self.slots.len() as u64 - 1)
    }

    /// Requests that are not answered or wait behind one that is not.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of their frames.
    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next request that may start, marked as running. `is_send` tells sends by their frame.
    pub(crate) fn start_next(&mut self, is_send: fn(&[u8]) -> bool) -> Option<Start> {
        if self.closing || self.is_held() {
            return None;
        }
        let mut only_sends_before = true;
        let mut nothing_before = true;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            match &slot.state {
                SlotState::Answered(_) => {}
                SlotState::Running { sent } => {
                    nothing_before = false;
                    only_sends_before &= *sent;
                }
                SlotState::Queued(frame) => {
                    let may_start = nothing_before || (only_sends_before && is_send(frame));
                    if !may_start {
                        return None;
                    }
                    let running = SlotState::Running { sent: false };
                    let SlotState::Queued(frame) = core::mem::replace(&mut slot.state, running)
                    else {
                        return None;
                    };
                    return Some(Start { slot: SlotId(self.first + index as u64), frame });
                }
            }
        }
        None
    }

    /// The request is a send on its way to its lane.
    pub(crate) fn sent(&mut self, slot: SlotId) {
        if let Some(slot) = self.slot_mut(slot) {
            assert!(matches!(slot.state, SlotState::Running { .. }), "only a started one is sent");
            slot.state = SlotState::Running { sent: true };
        }
    }

    /// Keeps the answer to `slot`. False if the slot is unknown or already answered.
    pub(crate) fn answer(&mut self, slot: SlotId, parts: Vec<Bytes>) -> bool {
        assert!(!parts.is_empty(), "an answer has at least a header");
        let Some(slot) = self.slot_mut(slot) else { return false };
        if matches!(slot.state, SlotState::Answered(_)) {
            return false;
        }
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        slot.state = SlotState::Answered(parts);
        self.untaken += bytes;
        true
    }

    /// The parts of the next answer that may leave.
    #[cfg(test)]
    pub(crate) fn take_answer(&mut self) -> Option<Vec<Bytes>> {
        self.take_leaving().map(|leaving| leaving.parts)
    }

    /// The next answer that may leave.
    pub(crate) fn take_leaving(&mut self) -> Option<Leaving> {
        if !matches!(self.slots.front()?.state, SlotState::Answered(_)) {
            return None;
        }
        let slot = self.slots.pop_front()?;
        self.first += 1;
        assert!(self.bytes >= slot.bytes, "bytes are the sum over the slots");
        self.bytes -= slot.bytes;
        let (command, since) = (slot.command, slot.since);
        match slot.state {
            SlotState::Answered(parts) => Some(Leaving { parts, command, since }),
            SlotState::Queued(_) | SlotState::Running { .. } => None,
        }
    }

    fn slot_mut(&mut self, slot: SlotId) -> Option<&mut Slot> {
        let index = slot.0.checked_sub(self.first)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new("127.0.0.1:1", Transport::Tcp, Mono(0), Mono(5))
    }

    fn frame(byte: u8) -> BytesMut {
        BytesMut::from(&[byte][..])
    }

    fn is_send(frame: &[u8]) -> bool {
        frame == [1]
    }

    fn answer(byte: u8) -> Vec<Bytes> {
        vec![Bytes::copy_from_slice(&[byte])]
    }

    #[test]
    fn answers_leave_in_the_order_of_the_requests() {
        let mut connection = connection();
        let first = connection.queue(frame(1));
        let second = connection.queue(frame(1));
        assert_eq!(connection.start_next(is_send).map(|start| start.slot), Some(first));
        connection.sent(first);
        assert_eq!(connection.start_next(is_send).map(|start| start.slot), Some(second));
        assert!(connection.answer(second, answer(2)));
        assert_eq!(connection.take_answer(), None);
        assert!(connection.answer(first, answer(1)));
        assert_eq!(connection.take_answer(), Some(answer(1)));
        assert_eq!(connection.take_answer(), Some(answer(2)));
        assert_eq!((connection.in_flight(), connection.bytes()), (0, 0));
    }

    #[test]
    fn a_request_waits_for_the_one_before_unless_both_are_sends_under_way() {
        let mut connection = connection();
        let send = connection.queue(frame(1));
        connection.queue(frame(1));
        connection.queue(frame(2));
        assert!(connection.start_next(is_send).is_some());
        assert!(connection.start_next(is_send).is_none(), "the first is still being resolved");
        connection.sent(send);
        assert!(connection.start_next(is_send).is_some());
        assert!(connection.start_next(is_send).is_none());
        assert!(connection.answer(SlotId(0), answer(1)));
        assert!(connection.answer(SlotId(1), answer(1)));
        assert!(connection.start_next(is_send).is_some(), "the read starts when all is answered");
    }

    #[test]
    fn a_slot_is_answered_once() {
        let mut connection = connection();
        let slot = connection.queue(frame(2));
        assert!(connection.answer(slot, answer(1)));
        assert!(!connection.answer(slot, answer(2)));
        assert_eq!(connection.take_answer(), Some(answer(1)));
        assert!(!connection.answer(slot, answer(2)));
    }

    #[test]
    fn a_connection_with_too_many_untaken_answers_starts_nothing() {
        let mut connection = connection().holding_at(2);
        for _ in 0..3 {
            connection.queue(frame(1));
        }
        for slot in 0..2 {
            assert!(connection.start_next(is_send).is_some());
            assert!(!connection.is_held());
            connection.sent(SlotId(slot));
            assert!(connection.answer(SlotId(slot), answer(1)));
        }
        assert!(connection.start_next(is_send).is_none());
        assert!(connection.taken() && !connection.taken());
        assert!(connection.start_next(is_send).is_some());
    }

    #[test]
    fn a_closing_connection_starts_nothing() {
        let mut connection = connection();
        connection.queue(frame(2));
        connection.closing = true;
        assert!(connection.start_next(is_send).is_none());
    }
}
