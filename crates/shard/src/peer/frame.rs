//! The header of every frame between nodes, and the checks that a frame passes before anyone looks
//! at what it says.
//!
//! ```text
//!   0  checksum      u128  XXH3 over everything behind it, the body included
//!  16  magic         u32   "BZpf"
//!  20  version       u16   1
//!  22  kind          u8
//!  23  sender        u8    node of the roster
//!  24  cluster       u128  incarnation of the cluster; 0 from a node that has none yet
//!  40  generation    u64   of the sender's journal: rises with every start of the node
//!  48  destination   u8    0 the link itself, 1 a log, 2 a shard
//!  49  zero          u8
//!  50  sender shard  u16
//!  52  sender shards u16
//!  54  zero          u16
//!  56  number        u32   of the log or shard
//!  60  length        u32   bytes of the body
//!  64  body
//! ```
//!
//! Order of the checks: whole, ours (magic, version), intact, from this cluster, from the node at
//! the other end of the link, for something that exists here. The version stands before the
//! checksum so that another version is called by its name even if its checksum is computed in
//! another way.

use borzoi_types::checksum::xxh3_128_body;
use borzoi_types::limits::PEER_FRAME_BYTES_MAX;
use borzoi_types::{Body, ClusterId, LogId, ReplicaId, ShardId};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of the header.
pub const PEER_HEADER_BYTES: usize = 64;
/// Version of the frames that this build speaks.
pub const PEER_VERSION: u16 = 1;

const MAGIC: u32 = u32::from_le_bytes(*b"BZpf");
const CHECKSUM_BYTES: usize = 16;
const DESTINATION_LINK: u8 = 0;
const DESTINATION_LOG: u8 = 1;
const DESTINATION_SHARD: u8 = 2;

/// Whom a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    /// The shard at the end of the link.
    Link,
    /// The shard that hosts this log.
    Log(LogId),
    /// This shard of the receiving node.
    Shard(ShardId),
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// A message of one log's replicas.
    Log = 1,
    /// The link's sign of life, with what its logs have to say.
    Heartbeat = 2,
    /// Between the fronts.
    Forward = 3,
    /// State transfer.
    Transfer = 4,
    /// Between a node that has no state yet and the others.
    Join = 5,
}

impl FrameKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Log),
            2 => Some(Self::Heartbeat),
            3 => Some(Self::Forward),
            4 => Some(Self::Transfer),
            5 => Some(Self::Join),
            _ => None,
        }
    }
}

/// Why a frame was dropped. Each has its own counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum FrameFault {
    /// Shorter than its header, or not as long as the header says.
    #[error("a truncated or overlong frame")]
    Truncated,
    /// Not a frame between nodes at all.
    #[error("bytes that are no peer frame")]
    Magic,
    /// Another version of the format.
    #[error("a frame of another version")]
    Version,
    /// The checksum does not fit.
    #[error("a damaged frame")]
    Corrupted,
    /// Of another cluster, or of an earlier incarnation of this one.
    #[error("a frame of another cluster")]
    Cluster,
    /// The sender is not the node at the other end of the link, not of the roster, or this node.
    #[error("a frame of an impostor")]
    Impostor,
    /// For a log or shard that does not exist here.
    #[error("a frame for an unknown log or shard")]
    Unknown,
    /// Sent before the sender's last start.
    #[error("a frame of an earlier life of its sender")]
    Replayed,
    /// Intact, but its content makes no sense to this build.
    #[error("a frame whose content cannot be read")]
    Malformed,
}

impl FrameFault {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::Truncated,
        Self::Magic,
        Self::Version,
        Self::Corrupted,
        Self::Cluster,
        Self::Impostor,
        Self::Unknown,
        Self::Replayed,
        Self::Malformed,
    ];
}

/// A decoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHeader {
    /// Incarnation of the cluster; zero from a node that has none yet.
    pub cluster: ClusterId,
    /// Who sent it.
    pub sender: ReplicaId,
    /// The sender's journal generation.
    pub generation: u64,
    /// The sender's shard.
    pub sender_shard: ShardId,
    /// The sender's number of shards.
    pub sender_shards: u16,
    /// What it carries.
    pub kind: FrameKind,
    /// Whom it is for.
    pub destination: Destination,
}

/// Who receives: what a frame is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipient {
    /// Its cluster; zero while it has none.
    pub cluster: ClusterId,
    /// The node.
    pub replica: ReplicaId,
    /// Nodes of the roster.
    pub replica_count: u8,
    /// Shards of the node.
    pub shards: u16,
    /// Lanes of the cluster.
    pub lanes: u32,
}

impl PeerHeader {
    /// The whole frame, the body by reference.
    #[must_use]
    pub fn frame(&self, body: &Body) -> Vec<Bytes> {
        assert!(PEER_HEADER_BYTES + body.len() <= PEER_FRAME_BYTES_MAX, "senders cut before");
        let mut covered = Body::from(self.encode_behind_checksum(body.len()));
        for part in body.parts() {
            covered.push(part.clone());
        }
        let mut header = BytesMut::with_capacity(PEER_HEADER_BYTES);
        header.put_u128_le(xxh3_128_body(&covered));
        header.extend_from_slice(&covered.parts()[0]);
        assert_eq!(header.len(), PEER_HEADER_BYTES, "as documented");
        let mut parts = Vec::with_capacity(1 + body.parts().len());
        parts.push(header.freeze());
        parts.extend(body.parts().iter().cloned());
        parts
    }

    fn encode_behind_checksum(&self, body_len: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(PEER_HEADER_BYTES - CHECKSUM_BYTES);
        bytes.put_u32_le(MAGIC);
        bytes.put_u16_le(PEER_VERSION);
        bytes.put_u8(self.kind as u8);
        bytes.put_u8(self.sender.get());
        bytes.put_u128_le(self.cluster.get());
        bytes.put_u64_le(self.generation);
        let (destination, number) = match self.destination {
            Destination::Link => (DESTINATION_LINK, 0),
            Destination::Log(log) => (DESTINATION_LOG, log.get()),
            Destination::Shard(shard) => (DESTINATION_SHARD, u32::from(shard.get())),
        };
        bytes.put_u8(destination);
        bytes.put_u8(0);
        bytes.put_u16_le(self.sender_shard.get());
        bytes.put_u16_le(self.sender_shards);
        bytes.put_u16_le(0);
        bytes.put_u32_le(number);
        bytes.put_u32_le(u32::try_from(body_len).expect("frames are bounded"));
        bytes.freeze()
    }

    /// Checks a frame that arrived over the link of `from` and returns its header and body.
    ///
    /// # Errors
    /// [`FrameFault`]; the frame is then dropped and counted.
    pub fn check(
        frame: &Bytes,
        from: ReplicaId,
        own: &Recipient,
    ) -> Result<(Self, Bytes), FrameFault> {
        if frame.len() < PEER_HEADER_BYTES || frame.len() > PEER_FRAME_BYTES_MAX {
            return Err(FrameFault::Truncated);
        }
        let mut fields = &frame[..PEER_HEADER_BYTES];
        let stored = fields.get_u128_le();
        if fields.get_u32_le() != MAGIC {
            return Err(FrameFault::Magic);
        }
        if fields.get_u16_le() != PEER_VERSION {
            return Err(FrameFault::Version);
        }
        if borzoi_types::checksum::xxh3_128(&frame[CHECKSUM_BYTES..]) != stored {
            return Err(FrameFault::Corrupted);
        }
        let (header, body_len) = Self::read(fields)?;
        if frame.len() - PEER_HEADER_BYTES != body_len {
            return Err(FrameFault::Truncated);
        }
        header.check_origin(from, own)?;
        header.check_destination(own)?;
        Ok((header, frame.slice(PEER_HEADER_BYTES..)))
    }

    fn read(mut fields: &[u8]) -> Result<(Self, usize), FrameFault> {
        let kind = FrameKind::from_byte(fields.get_u8()).ok_or(FrameFault::Malformed)?;
        let sender = ReplicaId(fields.get_u8());
        let cluster = ClusterId(fields.get_u128_le());
        let generation = fields.get_u64_le();
        let destination = fields.get_u8();
        let zero = fields.get_u8();
        let sender_shard = ShardId(fields.get_u16_le());
        let sender_shards = fields.get_u16_le();
        let zeros = fields.get_u16_le();
        let number = fields.get_u32_le();
        let body_len = fields.get_u32_le() as usize;
        assert!(fields.is_empty(), "the header is as documented");
        let destination = match destination {
            DESTINATION_LINK if number == 0 => Destination::Link,
            DESTINATION_LOG => Destination::Log(LogId(number)),
            DESTINATION_SHARD => {
                let shard = u16::try_from(number).map_err(|_| FrameFault::Unknown)?;
                Destination::Shard(ShardId(shard))
            }
            _ => return Err(FrameFault::Malformed),
        };
        if zero != 0 || zeros != 0 || sender_shard.get() >= sender_shards {
            return Err(FrameFault::Malformed);
        }
        let header =
            Self { cluster, sender, generation, sender_shard, sender_shards, kind, destination };
        Ok((header, body_len))
    }

    fn check_origin(&self, from: ReplicaId, own: &Recipient) -> Result<(), FrameFault> {
        // A node without a cluster may ask to join, and be answered; nothing else.
        let joins = self.kind == FrameKind::Join;
        let strangers = self.cluster == ClusterId(0) || own.cluster == ClusterId(0);
        if self.cluster != own.cluster && !(joins && strangers) {
            return Err(FrameFault::Cluster);
        }
        if self.cluster == ClusterId(0) && !joins {
            return Err(FrameFault::Cluster);
        }
        let member = self.sender.get() < own.replica_count && self.sender != own.replica;
        if self.sender != from || !member {
            return Err(FrameFault::Impostor);
        }
        Ok(())
    }

    fn check_destination(&self, own: &Recipient) -> Result<(), FrameFault> {
        let known = match self.destination {
            Destination::Link => true,
            Destination::Log(log) => log.get() <= own.lanes,
            Destination::Shard(shard) => shard.get() < own.shards,
        };
        if known { Ok(()) } else { Err(FrameFault::Unknown) }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
