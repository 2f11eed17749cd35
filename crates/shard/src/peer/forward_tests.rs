//! Tests of the bytes of what is forwarded: round trips, cuts, arbitrary bytes.

use super::*;
use crate::event::Transport;
use crate::lane::api::{ConsumerKey, PollStart, Refusal, SendIdentity};
use borzoi_metadata::UserKey;
use borzoi_types::{Body, ClientId, GroupId, Micros, Offset, RequestNumber, SessionId};
use bytes::BytesMut;
use proptest::prelude::*;

fn waiter() -> impl Strategy<Value = Waiter> {
    (any::<u16>(), any::<u64>())
        .prop_map(|(shard, ticket)| Waiter { shard: ShardId(shard), ticket: Ticket(ticket) })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

fn consumer() -> impl Strategy<Value = ConsumerKey> {
    prop_oneof![
        any::<u32>().prop_map(ConsumerKey::Consumer),
        any::<u32>().prop_map(|group| ConsumerKey::Group(GroupId(group))),
    ]
}

fn start() -> impl Strategy<Value = PollStart> {
    prop_oneof![
        any::<u64>().prop_map(|offset| PollStart::Offset(Offset(offset))),
        any::<u64>().prop_map(|time| PollStart::Timestamp(Micros(time))),
        Just(PollStart::First),
        Just(PollStart::Last),
        Just(PollStart::Next),
    ]
}

fn identity() -> impl Strategy<Value = SendIdentity> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(session, request, hash)| SendIdentity {
        session: SessionId(session),
        request: RequestNumber(request),
        hash,
    })
}

fn request() -> impl Strategy<Value = LaneRequestKind> {
    prop_oneof![
        (bytes(), any::<u32>(), prop::option::of(identity())).prop_map(
            |(batch, count, identity)| {
                let batch = BytesMut::from(&batch[..]);
                LaneRequestKind::Send { batch, count, identity }
            }
        ),
        (start(), any::<u32>(), consumer(), any::<bool>(), any::<u64>()).prop_map(
            |(start, count, consumer, auto_commit, generation)| {
                LaneRequestKind::Poll { start, count, consumer, auto_commit, generation }
            }
        ),
        (consumer(), any::<u64>(), any::<bool>(), any::<u64>(), any::<bool>()).prop_map(
            |(consumer, offset, wait, generation, persisted)| {
                let offset = Offset(offset);
                LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted }
            }
        ),
        (consumer(), any::<u64>()).prop_map(|(consumer, generation)| {
            LaneRequestKind::DeleteOffset { consumer, generation }
        }),
        consumer().prop_map(|consumer| LaneRequestKind::GetOffset { consumer }),
        Just(LaneRequestKind::AwaitDeleted),
        any::<u32>().prop_map(|group| LaneRequestKind::AwaitDrained { group: GroupId(group) }),
        Just(LaneRequestKind::AwaitCreated),
        any::<u64>().prop_map(|op| LaneRequestKind::AwaitConfirmed { through: Op(op) }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Busy),
        Just(Refusal::NotMaterialised),
        Just(Refusal::NotServing),
        Just(Refusal::Stopping),
        Just(Refusal::NoSpace),
        Just(Refusal::InvalidOffset),
        Just(Refusal::OffsetNotFound),
        Just(Refusal::RequestTooOld),
        Just(Refusal::InvalidBatch),
        Just(Refusal::ReadFailed),
        Just(Refusal::Unknown),
        Just(Refusal::NotOwner),
        ("[a-z/ß]{0,12}", any::<u64>())
            .prop_map(|(file, position)| Refusal::Damaged { file, position }),
    ]
}

fn reply() -> impl Strategy<Value = LaneReply> {
    prop_oneof![
        (any::<u64>(), any::<u64>())
            .prop_map(|(base, op)| LaneReply::Sent { base_offset: Offset(base), op: Op(op) }),
        (any::<u64>(), any::<u32>(), bytes()).prop_map(|(current, count, bytes)| {
            let batches = if bytes.is_empty() { vec![] } else { vec![Bytes::from(bytes)] };
            LaneReply::Polled { current_offset: Offset(current), count, batches }
        }),
        Just(LaneReply::Stored),
        (any::<u64>(), any::<Option<u64>>()).prop_map(|(current, stored)| LaneReply::Offset {
            current_offset: Offset(current),
            stored_offset: stored.map(Offset),
        }),
        Just(LaneReply::Created),
        Just(LaneReply::Drained),
        Just(LaneReply::Confirmed),
        refusal().prop_map(LaneReply::Refused),
        any::<u64>().prop_map(|by| LaneReply::KeyDeleted { by: Op(by) }),
    ]
}

fn figures() -> impl Strategy<Value = Vec<(PartitionKey, PartitionCounters)>> {
    let one = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<Option<u64>>());
    prop::collection::vec(
        one.prop_map(|(key, messages, bytes, segments, current)| {
            let current_offset = current.map(Offset);
            (PartitionKey(key), PartitionCounters { messages, bytes, segments, current_offset })
        }),
        0..5,
    )
}

fn clients() -> impl Strategy<Value = Vec<ClientSummary>> {
    let transports = [Transport::Tcp, Transport::Quic, Transport::Http, Transport::WebSocket];
    let one = (
        any::<u32>(),
        prop::sample::select(transports.to_vec()),
        "[0-9.:ü]{0,20}",
        prop::option::of((any::<u128>(), any::<u64>())),
    );
    prop::collection::vec(
        one.prop_map(|(number, transport, address, signed_in)| {
            let signed_in = signed_in.map(|(client, user)| (ClientId(client), UserKey(user)));
            ClientSummary { number, transport, address, signed_in }
        }),
        0..5,
    )
}

fn message() -> impl Strategy<Value = Forwarded> {
    prop_oneof![
        (waiter(), any::<u32>(), any::<u64>(), request()).prop_map(|(waiter, lane, key, kind)| {
            let (lane, key) = (LogId(lane), PartitionKey(key));
            Forwarded::Lane { waiter, lane, key, kind }
        }),
        (waiter(), prop::option::of(0..7_u8), reply()).prop_map(|(waiter, leader, reply)| {
            Forwarded::LaneReply { waiter, leader: leader.map(ReplicaId), reply }
        }),
        (waiter(), any::<u32>(), prop::collection::vec(any::<u64>(), 0..5)).prop_map(
            |(waiter, lane, keys)| {
                let keys = keys.into_iter().map(PartitionKey).collect();
                Forwarded::AskFigures { waiter, lane: LogId(lane), keys }
            }
        ),
        (waiter(), prop::option::of(figures()))
            .prop_map(|(waiter, figures)| Forwarded::Figures { waiter, figures }),
        (waiter(), bytes())
            .prop_map(|(waiter, body)| Forwarded::Command { waiter, body: Bytes::from(body) }),
        (waiter(), any::<bool>())
            .prop_map(|(waiter, certain)| Forwarded::CommandRefused { waiter, certain }),
        waiter().prop_map(|waiter| Forwarded::AskCommit { waiter }),
        (waiter(), any::<Option<u64>>())
            .prop_map(|(waiter, op)| Forwarded::CommitIs { waiter, op: op.map(Op) }),
        waiter().prop_map(|waiter| Forwarded::AskClients { waiter }),
        (waiter(), clients()).prop_map(|(waiter, clients)| Forwarded::Clients { waiter, clients }),
    ]
}

/// The message as it arrives: in one piece.
fn arrived(message: &ForwardMessage) -> ForwardMessage {
    let bytes = Bytes::from(message.body.to_bytes().to_vec());
    ForwardMessage { to: message.to, body: Body::from(bytes) }
}

proptest! {
    #[test]
    fn what_was_written_is_read(message in message()) {
        let sent = message.clone().into_message();
        prop_assert_eq!(Forwarded::from_message(arrived(&sent)), Ok(message));
    }

    #[test]
    fn a_message_cut_anywhere_is_malformed_or_has_a_shorter_bulk(message in message()) {
        let sent = message.clone().into_message();
        let whole = sent.body.to_bytes();
        for len in 0..whole.len() {
            let cut = ForwardMessage { to: sent.to, body: Body::from(whole.slice(..len)) };
            let read = Forwarded::from_message(cut);
            prop_assert_ne!(read, Ok(message.clone()), "cut at {}", len);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 0..12_u8,
        tail in prop::collection::vec(any::<u8>(), 0..200),
        to in 0..3_u8,
    ) {
        let to = match to {
            0 => Destination::Link,
            1 => Destination::Log(LogId(1)),
            _ => Destination::Shard(ShardId(1)),
        };
        let mut bytes = vec![VERSION, kind];
        bytes.extend_from_slice(&tail);
        let _ = Forwarded::from_message(ForwardMessage { to, body: Body::from(bytes) });
    }
}

#[test]
fn a_count_that_the_bytes_do_not_justify_is_refused_before_anything_is_reserved() {
    let waiter = Waiter { shard: ShardId(0), ticket: Ticket(1) };
    let empty = Forwarded::Clients { waiter, clients: Vec::new() }.into_message();
    let mut bytes = empty.body.to_bytes().to_vec();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    let forged = ForwardMessage { to: empty.to, body: Body::from(bytes) };
    assert_eq!(Forwarded::from_message(forged), Err(FrameFault::Malformed));
}

#[test]
fn a_message_for_another_shard_than_its_frame_says_is_malformed() {
    let waiter = Waiter { shard: ShardId(1), ticket: Ticket(1) };
    let mut message = Forwarded::CommitIs { waiter, op: None }.into_message();
    assert_eq!(message.to, Destination::Shard(ShardId(1)));
    message.to = Destination::Shard(ShardId(0));
    assert_eq!(Forwarded::from_message(message), Err(FrameFault::Malformed));
}

#[test]
fn a_batch_leaves_without_a_copy() {
    let batch = BytesMut::from(&b"a whole batch"[..]);
    let at = batch.as_ptr();
    let waiter = Waiter { shard: ShardId(0), ticket: Ticket(1) };
    let kind = LaneRequestKind::Send { batch, count: 1, identity: None };
    let message =
        Forwarded::Lane { waiter, lane: LogId(1), key: PartitionKey(1), kind }.into_message();
    assert_eq!(message.body.parts()[1].as_ptr(), at);
}
