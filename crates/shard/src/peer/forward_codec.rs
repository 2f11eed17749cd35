//! The fields of what is forwarded between nodes, written and read.
//!
//! Numbers are little-endian; a value with variants begins with one stable byte; a list begins with
//! its count, which is checked against the bytes that are left before anything is reserved.

use super::FrameFault;
use super::forward_content::Waiter;
use crate::event::Transport;
use crate::front::ClientSummary;
use crate::lane::api::{
    ConsumerKey, LaneReply, LaneRequestKind, PartitionCounters, PollStart, Refusal, SendIdentity,
    Ticket,
};
use borzoi_metadata::UserKey;
use borzoi_storage::sealing::OpenError;
use borzoi_types::{
    Body, ClientId, GroupId, Micros, Offset, Op, PartitionKey, ReplicaId, RequestNumber, SessionId,
    ShardId,
};
use bytes::{Buf, Bytes, BytesMut};

/// No replica, where one may be named.
const NO_REPLICA: u8 = u8::MAX;
/// Bytes of one entry of figures.
const FIGURES_BYTES: usize = 8 + 8 + 8 + 4 + 9;
/// Fewest bytes of a client's entry.
const CLIENT_BYTES_MIN: usize = 4 + 1 + 4 + 1;

/// Bytes being written.
pub(super) struct Output {
    head: Vec<u8>,
    bulk: Vec<Bytes>,
}

impl Output {
    pub(super) fn new(version: u8) -> Self {
        Self { head: vec![version], bulk: Vec::new() }
    }

    pub(super) fn finish(self) -> Body {
        let mut body = Body::from(self.head);
        for part in self.bulk {
            body.push(part);
        }
        body
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.head.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.head.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.head.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.head.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u128(&mut self, value: u128) -> &mut Self {
        self.head.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn optional_u64(&mut self, value: Option<u64>) -> &mut Self {
        self.u8(u8::from(value.is_some())).u64(value.unwrap_or(0))
    }

    fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("a frame holds fewer entries"))
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len());
        self.head.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn bulk(&mut self, part: Bytes) -> &mut Self {
        self.bulk.push(part);
        self
    }

    pub(super) fn waiter(&mut self, waiter: Waiter) -> &mut Self {
        self.u16(waiter.shard.0).u64(waiter.ticket.0)
    }

    pub(super) fn replica(&mut self, replica: Option<ReplicaId>) -> &mut Self {
        self.u8(replica.map_or(NO_REPLICA, |replica| replica.0))
    }

    fn consumer(&mut self, consumer: ConsumerKey) -> &mut Self {
        match consumer {
            ConsumerKey::Consumer(number) => self.u8(1).u32(number),
            ConsumerKey::Group(group) => self.u8(2).u32(group.0),
        }
    }

    fn start(&mut self, start: PollStart) -> &mut Self {
        match start {
            PollStart::Offset(offset) => self.u8(1).u64(offset.0),
            PollStart::Timestamp(time) => self.u8(2).u64(time.0),
            PollStart::First => self.u8(3),
            PollStart::Last => self.u8(4),
            PollStart::Next => self.u8(5),
        }
    }

    pub(super) fn lane_request(&mut self, kind: LaneRequestKind) -> &mut Self {
        match kind {
            LaneRequestKind::Send { batch, count, identity } => {
                self.u8(1).u32(count).u8(u8::from(identity.is_some()));
                if let Some(SendIdentity { session, request, hash }) = identity {
                    self.u64(session.0).u64(request.0).u64(hash);
                }
                self.bulk(batch.freeze())
            }
            LaneRequestKind::Poll { start, count, consumer, auto_commit, generation } => {
                self.u8(2).start(start).u32(count).consumer(consumer);
                self.u8(u8::from(auto_commit)).u64(generation)
            }
            LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted } => {
                self.u8(3).consumer(consumer).u64(offset.0).u8(u8::from(wait));
                self.u64(generation).u8(u8::from(persisted))
            }
            LaneRequestKind::DeleteOffset { consumer, generation } => {
                self.u8(4).consumer(consumer).u64(generation)
            }
            LaneRequestKind::GetOffset { consumer } => self.u8(5).consumer(consumer),
            LaneRequestKind::AwaitDeleted => self.u8(6),
            LaneRequestKind::AwaitDrained { group } => self.u8(7).u32(group.0),
            LaneRequestKind::AwaitCreated => self.u8(8),
            LaneRequestKind::AwaitConfirmed { through } => self.u8(9).u64(through.0),
        }
    }

    pub(super) fn lane_reply(&mut self, reply: LaneReply) -> &mut Self {
        match reply {
            LaneReply::Sent { base_offset, op } => self.u8(1).u64(base_offset.0).u64(op.0),
            LaneReply::Polled { current_offset, count, batches } => {
                self.u8(2).u64(current_offset.0).u32(count);
                for part in batches {
                    self.bulk(part);
                }
                self
            }
            LaneReply::Stored => self.u8(3),
            LaneReply::Offset { current_offset, stored_offset } => {
                let stored = stored_offset.map(|offset| offset.0);
                self.u8(4).u64(current_offset.0).optional_u64(stored)
            }
            LaneReply::Created => self.u8(5),
            LaneReply::Drained => self.u8(6),
            LaneReply::Refused(refusal) => self.u8(7).refusal(&refusal),
            LaneReply::KeyDeleted { by } => self.u8(8).u64(by.0),
            LaneReply::Confirmed => self.u8(9),
        }
    }

    fn refusal(&mut self, refusal: &Refusal) -> &mut Self {
        match refusal {
            Refusal::Busy => self.u8(1),
            Refusal::NotMaterialised => self.u8(2),
            Refusal::NotServing => self.u8(3),
            Refusal::Stopping => self.u8(4),
            Refusal::NoSpace => self.u8(5),
            Refusal::InvalidOffset => self.u8(6),
            Refusal::OffsetNotFound => self.u8(7),
            Refusal::RequestTooOld => self.u8(8),
            Refusal::InvalidBatch => self.u8(9),
            Refusal::Damaged { file, position } => self.u8(10).text(file).u64(*position),
            Refusal::ReadFailed => self.u8(11),
            Refusal::Unknown => self.u8(12),
            Refusal::NotOwner => self.u8(13),
            Refusal::Sealed(OpenError::MissingKey { key }) => self.u8(14).u32(*key),
            Refusal::Sealed(OpenError::Mismatch { key }) => self.u8(15).u32(*key),
        }
    }

    pub(super) fn keys(&mut self, keys: &[PartitionKey]) -> &mut Self {
        self.count(keys.len());
        for key in keys {
            self.u64(key.0);
        }
        self
    }

    pub(super) fn figures(
        &mut self,
        figures: Option<&[(PartitionKey, PartitionCounters)]>,
    ) -> &mut Self {
        let Some(figures) = figures else { return self.u8(0) };
        self.u8(1).count(figures.len());
        for (key, counters) in figures {
            let PartitionCounters { messages, bytes, segments, current_offset } = *counters;
            self.u64(key.0).u64(messages).u64(bytes).u32(segments);
            self.optional_u64(current_offset.map(|offset| offset.0));
        }
        self
    }

    pub(super) fn clients(&mut self, clients: &[ClientSummary]) -> &mut Self {
        self.count(clients.len());
        for client in clients {
            self.u32(client.number).u8(client.transport as u8).text(&client.address);
            self.u8(u8::from(client.signed_in.is_some()));
            if let Some((id, user)) = client.signed_in {
                self.u128(id.0).u64(user.0);
            }
        }
        self
    }
}

/// Bytes being read.
pub(super) struct Input {
    left: Bytes,
}

type Read<T> = Result<T, FrameFault>;

impl Input {
    pub(super) const fn new(bytes: Bytes) -> Self {
        Self { left: bytes }
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let taken = *self.left.first_chunk::<N>().ok_or(FrameFault::Malformed)?;
        self.left.advance(N);
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Read<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameFault::Malformed),
        }
    }

    pub(super) fn optional_u64(&mut self) -> Read<Option<u64>> {
        let present = self.bool()?;
        let value = self.u64()?;
        Ok(present.then_some(value))
    }

    /// A count of entries of at least `each` bytes.
    fn count(&mut self, each: usize) -> Read<usize> {
        let count = self.u32()? as usize;
        let fits = count.checked_mul(each).is_some_and(|bytes| bytes <= self.left.len());
        if fits { Ok(count) } else { Err(FrameFault::Malformed) }
    }

    fn text(&mut self) -> Read<String> {
        let len = self.count(1)?;
        let bytes = self.left.split_to(len);
        core::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| FrameFault::Malformed)
    }

    /// Everything that is left.
    pub(super) fn bulk(&mut self) -> Bytes {
        core::mem::take(&mut self.left)
    }

    pub(super) fn end(&self) -> Read<()> {
        if self.left.is_empty() { Ok(()) } else { Err(FrameFault::Malformed) }
    }

    pub(super) fn waiter(&mut self) -> Read<Waiter> {
        Ok(Waiter { shard: ShardId(self.u16()?), ticket: Ticket(self.u64()?) })
    }

    pub(super) fn replica(&mut self) -> Read<Option<ReplicaId>> {
        let replica = self.u8()?;
        Ok((replica != NO_REPLICA).then_some(ReplicaId(replica)))
    }

    fn consumer(&mut self) -> Read<ConsumerKey> {
        let (kind, number) = (self.u8()?, self.u32()?);
        match kind {
            1 => Ok(ConsumerKey::Consumer(number)),
            2 => Ok(ConsumerKey::Group(GroupId(number))),
            _ => Err(FrameFault::Malformed),
        }
    }

    fn start(&mut self) -> Read<PollStart> {
        Ok(match self.u8()? {
            1 => PollStart::Offset(Offset(self.u64()?)),
            2 => PollStart::Timestamp(Micros(self.u64()?)),
            3 => PollStart::First,
            4 => PollStart::Last,
            5 => PollStart::Next,
            _ => return Err(FrameFault::Malformed),
        })
    }

    pub(super) fn lane_request(&mut self) -> Read<LaneRequestKind> {
        Ok(match self.u8()? {
            1 => {
                let count = self.u32()?;
                let identity = if self.bool()? {
                    let (session, request) = (SessionId(self.u64()?), RequestNumber(self.u64()?));
                    Some(SendIdentity { session, request, hash: self.u64()? })
                } else {
                    None
                };
                LaneRequestKind::Send { batch: owned(self.bulk()), count, identity }
            }
            2 => {
                let (start, count) = (self.start()?, self.u32()?);
                let (consumer, auto_commit) = (self.consumer()?, self.bool()?);
                let generation = self.u64()?;
                LaneRequestKind::Poll { start, count, consumer, auto_commit, generation }
            }
            3 => {
                let (consumer, offset) = (self.consumer()?, Offset(self.u64()?));
                let (wait, generation, persisted) = (self.bool()?, self.u64()?, self.bool()?);
                LaneRequestKind::StoreOffset { consumer, offset, wait, generation, persisted }
            }
            4 => {
                let consumer = self.consumer()?;
                LaneRequestKind::DeleteOffset { consumer, generation: self.u64()? }
            }
            5 => LaneRequestKind::GetOffset { consumer: self.consumer()? },
            6 => LaneRequestKind::AwaitDeleted,
            7 => LaneRequestKind::AwaitDrained { group: GroupId(self.u32()?) },
            8 => LaneRequestKind::AwaitCreated,
            9 => LaneRequestKind::AwaitConfirmed { through: Op(self.u64()?) },
            _ => return Err(FrameFault::Malformed),
        })
    }

    pub(super) fn lane_reply(&mut self) -> Read<LaneReply> {
        Ok(match self.u8()? {
            1 => LaneReply::Sent { base_offset: Offset(self.u64()?), op: Op(self.u64()?) },
            2 => {
                let (current_offset, count) = (Offset(self.u64()?), self.u32()?);
                let bulk = self.bulk();
                let batches = if bulk.is_empty() { Vec::new() } else { vec![bulk] };
                LaneReply::Polled { current_offset, count, batches }
            }
            3 => LaneReply::Stored,
            4 => {
                let current_offset = Offset(self.u64()?);
                let stored_offset = self.optional_u64()?.map(Offset);
                LaneReply::Offset { current_offset, stored_offset }
            }
            5 => LaneReply::Created,
            6 => LaneReply::Drained,
            7 => LaneReply::Refused(self.refusal()?),
            8 => LaneReply::KeyDeleted { by: Op(self.u64()?) },
            9 => LaneReply::Confirmed,
            _ => return Err(FrameFault::Malformed),
        })
    }

    fn refusal(&mut self) -> Read<Refusal> {
        Ok(match self.u8()? {
            1 => Refusal::Busy,
            2 => Refusal::NotMaterialised,
            3 => Refusal::NotServing,
            4 => Refusal::Stopping,
            5 => Refusal::NoSpace,
            6 => Refusal::InvalidOffset,
            7 => Refusal::OffsetNotFound,
            8 => Refusal::RequestTooOld,
            9 => Refusal::InvalidBatch,
            10 => Refusal::Damaged { file: self.text()?, position: self.u64()? },
            11 => Refusal::ReadFailed,
            12 => Refusal::Unknown,
            13 => Refusal::NotOwner,
            14 => Refusal::Sealed(OpenError::MissingKey { key: self.u32()? }),
            15 => Refusal::Sealed(OpenError::Mismatch { key: self.u32()? }),
            _ => return Err(FrameFault::Malformed),
        })
    }

    pub(super) fn keys(&mut self) -> Read<Vec<PartitionKey>> {
        let count = self.count(8)?;
        (0..count).map(|_| self.u64().map(PartitionKey)).collect()
    }

    pub(super) fn figures(&mut self) -> Read<Option<Vec<(PartitionKey, PartitionCounters)>>> {
        if !self.bool()? {
            return Ok(None);
        }
        let count = self.count(FIGURES_BYTES)?;
        let mut figures = Vec::with_capacity(count);
        for _ in 0..count {
            let key = PartitionKey(self.u64()?);
            let (messages, bytes, segments) = (self.u64()?, self.u64()?, self.u32()?);
            let current_offset = self.optional_u64()?.map(Offset);
            figures.push((key, PartitionCounters { messages, bytes, segments, current_offset }));
        }
        Ok(Some(figures))
    }

    pub(super) fn clients(&mut self) -> Read<Vec<ClientSummary>> {
        let count = self.count(CLIENT_BYTES_MIN)?;
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let (number, transport) = (self.u32()?, self.transport()?);
            let address = self.text()?;
            let signed_in = if self.bool()? {
                Some((ClientId(self.u128()?), UserKey(self.u64()?)))
            } else {
                None
            };
            clients.push(ClientSummary { number, transport, address, signed_in });
        }
        Ok(clients)
    }

    fn transport(&mut self) -> Read<Transport> {
        match self.u8()? {
            1 => Ok(Transport::Tcp),
            2 => Ok(Transport::Quic),
            3 => Ok(Transport::Http),
            4 => Ok(Transport::WebSocket),
            _ => Err(FrameFault::Malformed),
        }
    }
}

/// The bytes as their only owner's: without a copy when nobody else holds the frame.
fn owned(bytes: Bytes) -> BytesMut {
    bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}
