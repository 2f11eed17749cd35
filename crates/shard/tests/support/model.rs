//! What a client knows: what it sent, what was confirmed, what it has seen. And the checks of what
//! a node may show after a crash.

use super::{Node, Place, poll_request, store_request};
use borzoi_shard::lane::api::{
    ConsumerKey, LaneReply, LaneRequestKind, PollStart, SendIdentity, Ticket,
};
use borzoi_types::{Durability, Micros, Offset, RequestNumber, SessionId};
use borzoi_wire::batch::{BatchHeader, Batches, MessageId, NewMessage, encode_batch};
use bytes::BytesMut;
use std::collections::BTreeMap;

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process died; the machine lives.
    Kill,
    /// The machine lost power.
    PowerCut,
    /// A clean stop.
    Clean,
}

/// One send.
#[derive(Clone, Debug)]
pub struct Send {
    pub place: Place,
    pub level: Durability,
    /// Ids of its messages, in order.
    pub ids: Vec<u128>,
    pub payload_bytes: usize,
    pub identity: SendIdentity,
    /// Offset of its first message, once confirmed.
    pub confirmed: Option<Offset>,
    /// It was confirmed in a life that ended in a way its level does not survive.
    pub may_be_lost: bool,
}

/// One offset store.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub place: Place,
    pub level: Durability,
    pub consumer: ConsumerKey,
    pub offset: Offset,
    pub confirmed: bool,
    pub may_be_lost: bool,
}

/// Everything the clients know.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub sends: BTreeMap<Ticket, Send>,
    pub stores: BTreeMap<Ticket, Store>,
    /// What was confirmed or served at each offset.
    pub seen: BTreeMap<(Place, Offset), u128>,
    /// Messages below may be gone: their segments were to be deleted.
    pub may_be_gone: BTreeMap<Place, Offset>,
    next_id: u128,
    next_request: u64,
}

/// A batch of messages with these ids.
pub fn batch(ids: &[u128], payload_bytes: usize) -> BytesMut {
    let payloads: Vec<Vec<u8>> =
        ids.iter().map(|id| vec![u8::try_from(id % 251).unwrap(); payload_bytes]).collect();
    let messages: Vec<NewMessage<'_>> = ids
        .iter()
        .zip(&payloads)
        .map(|(id, payload)| NewMessage {
            id: MessageId(*id),
            origin_timestamp: Micros(1_600_000_000_000_000),
            payload,
            user_headers: &[],
        })
        .collect();
    let mut out = Vec::new();
    encode_batch(&messages, &mut out).unwrap();
    BytesMut::from(&out[..])
}

impl Model {
    /// Sends `count` new messages; the answer is taken in by [`Self::note_replies`].
    pub fn send(
        &mut self,
        node: &mut Node,
        place: Place,
        level: Durability,
        count: usize,
        payload_bytes: usize,
    ) -> Ticket {
        let ids: Vec<u128> = (0..count as u128).map(|i| self.next_id + 1 + i).collect();
        self.next_id += count as u128;
        self.next_request += 1;
        let batch = batch(&ids, payload_bytes);
        let hash = BatchHeader::decode(&batch).unwrap().batch_checksum;
        let request = RequestNumber(self.next_request);
        let identity = SendIdentity { session: SessionId(77), request, hash };
        let send = Send {
            place,
            level,
            ids,
            payload_bytes,
            identity,
            confirmed: None,
            may_be_lost: false,
        };
        let ticket = Self::submit(node, &send);
        self.sends.insert(ticket, send);
        ticket
    }

    /// Sends a known batch again, as a client does that missed the answer.
    pub fn resend(&self, node: &mut Node, send: &Send) -> Ticket {
        Self::submit(node, send)
    }

    fn submit(node: &mut Node, send: &Send) -> Ticket {
        let batch = batch(&send.ids, send.payload_bytes);
        let count = u32::try_from(send.ids.len()).unwrap();
        let identity = Some(send.identity);
        node.request(send.place, LaneRequestKind::Send { batch, count, identity })
    }

    /// Stores an offset.
    pub fn store(
        &mut self,
        node: &mut Node,
        place: Place,
        level: Durability,
        consumer: u32,
        offset: Offset,
    ) -> Ticket {
        let consumer = ConsumerKey::Consumer(consumer);
        let ticket = node.request(place, store_request(consumer, offset));
        let confirmed = false;
        let store = Store { place, level, consumer, offset, confirmed, may_be_lost: false };
        self.stores.insert(ticket, store);
        ticket
    }

    /// Takes in the answers that have arrived. Returns how many sends were refused.
    pub fn note_replies(&mut self, node: &mut Node) -> usize {
        let mut refused = 0;
        for (ticket, send) in &mut self.sends {
            match node.replies.remove(ticket) {
                None => {}
                Some(LaneReply::Sent { base_offset, .. }) => {
                    send.confirmed = Some(base_offset);
                    for (index, id) in (0u64..).zip(&send.ids) {
                        let at = (send.place, Offset(base_offset.0 + index));
                        let before = self.seen.insert(at, *id);
                        assert!(
                            before.is_none_or(|before| before == *id),
                            "{at:?} was given to {before:?} and to {id}"
                        );
                    }
                }
                Some(LaneReply::Refused(_)) => refused += 1,
                Some(other) => panic!("a send was answered {other:?}"),
            }
        }
        for (ticket, store) in &mut self.stores {
            match node.replies.remove(ticket) {
                Some(LaneReply::Stored) => store.confirmed = true,
                None | Some(LaneReply::Refused(_)) => {}
                Some(other) => panic!("an offset store was answered {other:?}"),
            }
        }
        refused
    }

    /// A life has ended like this: what its level does not survive may be gone.
    pub fn life_ended(&mut self, end: End) {
        if end != End::PowerCut {
            return;
        }
        for send in self.sends.values_mut() {
            send.may_be_lost |= send.level == Durability::Replicated;
        }
        for store in self.stores.values_mut() {
            store.may_be_lost |= store.level == Durability::Replicated;
        }
    }

    /// Messages of a partition below an offset are about to be deleted.
    pub fn may_go_below(&mut self, place: Place, below: Offset) {
        self.may_be_gone.insert(place, below);
    }

    /// Everything a partition holds, by offset; panics on anything but messages.
    pub fn read_all(node: &mut Node, place: Place) -> BTreeMap<Offset, u128> {
        let mut found = BTreeMap::new();
        let mut next = Offset::ZERO;
        loop {
            let ticket = node.request(
                place,
                poll_request(PollStart::Offset(next), 1_000, ConsumerKey::Consumer(0), false),
            );
            node.settle();
            let (batches, count) = match node.answer(ticket) {
                LaneReply::Polled { batches, count, .. } => (batches, count),
                other => panic!("a poll was answered {other:?}"),
            };
            if count == 0 {
                return found;
            }
            let bytes: Vec<u8> = batches.iter().flat_map(|part| part.iter().copied()).collect();
            let mut messages = 0;
            for batch in Batches::new(&bytes) {
                let batch = batch.expect("a whole batch");
                for frame in batch.frames() {
                    let frame = frame.expect("a whole frame");
                    assert_eq!(frame.checksum(), frame.computed_checksum());
                    let offset = frame.offset(batch.header());
                    assert!(offset >= next, "offsets rise");
                    found.insert(offset, frame.id().0);
                    next = Offset(offset.0 + 1);
                    messages += 1;
                }
            }
            assert_eq!(messages, count, "the count is what was delivered");
        }
    }

    /// Checks what a partition shows against what is known, then takes it in as seen.
    pub fn check_partition(&mut self, node: &mut Node, place: Place, context: &str) {
        let found = Self::read_all(node, place);
        let sent: BTreeMap<u128, &Send> = self
            .sends
            .values()
            .filter(|send| send.place == place)
            .flat_map(|send| send.ids.iter().map(move |id| (*id, send)))
            .collect();
        let mut by_id: BTreeMap<u128, Offset> = BTreeMap::new();
        for (offset, id) in &found {
            assert!(sent.contains_key(id), "{context}: invented {id} at {offset:?}");
            let twice = by_id.insert(*id, *offset);
            assert!(twice.is_none(), "{context}: {id} at {twice:?} and {offset:?}");
            let known = self.seen.get(&(place, *offset));
            assert!(
                known.is_none_or(|known| known == id),
                "{context}: {offset:?} held {known:?}, now {id}"
            );
        }
        for send in self.sends.values().filter(|send| send.place == place && !send.may_be_lost) {
            let Some(base) = send.confirmed else { continue };
            for (index, id) in (0u64..).zip(&send.ids) {
                let at = Offset(base.0 + index);
                let may_be_gone = self.may_be_gone.get(&place).is_some_and(|below| at < *below);
                if may_be_gone && !found.contains_key(&at) {
                    continue;
                }
                assert_eq!(
                    found.get(&at),
                    Some(id),
                    "{context}: confirmed at {at:?} of {place:?} and not there; found {found:?}"
                );
            }
        }
        for (offset, id) in found {
            self.seen.insert((place, offset), id);
        }
    }

    /// Checks a consumer's stored offset against what was confirmed.
    pub fn check_stored(&self, node: &mut Node, place: Place, consumer: u32, context: &str) {
        let consumer = ConsumerKey::Consumer(consumer);
        let ticket = node.request(place, LaneRequestKind::GetOffset { consumer });
        node.settle();
        let stored = match node.answer(ticket) {
            LaneReply::Offset { stored_offset, .. } => stored_offset,
            other => panic!("{context}: get offset was answered {other:?}"),
        };
        let mut allowed: Vec<Option<Offset>> = vec![None];
        for store in self.stores.values() {
            if store.place != place || store.consumer != consumer {
                continue;
            }
            if store.confirmed && !store.may_be_lost {
                allowed.clear();
            }
            allowed.push(Some(store.offset));
        }
        assert!(allowed.contains(&stored), "{context}: stored {stored:?}, allowed {allowed:?}");
    }

    /// The highest offset of a partition that anyone was told of.
    pub fn highest_seen(&self, place: Place) -> Option<Offset> {
        let range = (place, Offset::ZERO)..=(place, Offset::MAX);
        self.seen.range(range).next_back().map(|((_, offset), _)| *offset)
    }
}
