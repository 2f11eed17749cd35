//! Between a node that has no state yet and the other nodes of its roster.
//!
//! ```text
//! body   0 u8 kind   1 seven zero bytes   8 u64 nonce   16 fields of the kind
//! ```

use super::frame::FrameFault;
use borzoi_types::limits::{LANES_MAX, PEER_FRAME_BYTES_MAX};
use borzoi_types::{Body, ClusterId, LogId, View};
use bytes::{Buf, BufMut, Bytes, BytesMut};

const FIXED_BYTES: usize = 16;
const ANSWER_BYTES: usize = 32;
const VIEW_BYTES: usize = 8;

/// What a formatted node says about itself: of the logs of one of its shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormattedAnswer {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Lanes of level `persisted`.
    pub lanes_persisted: u16,
    /// Lanes of level `replicated`.
    pub lanes_replicated: u16,
    /// The highest generation that it has seen of the node that asks.
    pub seen: u64,
    /// The highest view of each log of the answering shard.
    pub views: Vec<(LogId, View)>,
}

/// What is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinStep {
    /// Is anybody formatted?
    Ask,
    /// I am not.
    Unformatted,
    /// I carry this cluster's mark and have never started.
    Founded {
        /// The cluster.
        cluster: ClusterId,
    },
    /// I am, and I run.
    Formatted(FormattedAnswer),
    /// From the lowest node, when all are new: be formatted with this.
    Found {
        /// The new cluster.
        cluster: ClusterId,
        /// The first checkpoint of metadata, as a file.
        genesis: Bytes,
    },
    /// Your frames are of an earlier life than others that arrived before.
    Behind {
        /// The highest generation seen of you.
        seen: u64,
    },
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinMessage {
    /// Chosen by who asks; answers echo it, so that an old answer is not taken for a new one.
    pub nonce: u64,
    /// What is said.
    pub step: JoinStep,
}

impl JoinMessage {
    /// The body of its frame.
    #[must_use]
    pub fn encode(&self) -> Body {
        let kind = match &self.step {
            JoinStep::Ask => 1u8,
            JoinStep::Unformatted => 2,
            JoinStep::Founded { .. } => 3,
            JoinStep::Formatted(_) => 4,
            JoinStep::Found { .. } => 5,
            JoinStep::Behind { .. } => 6,
        };
        let mut bytes = BytesMut::new();
        bytes.put_u8(kind);
        bytes.put_bytes(0, 7);
        bytes.put_u64_le(self.nonce);
        match &self.step {
            JoinStep::Ask | JoinStep::Unformatted => {}
            JoinStep::Founded { cluster } => bytes.put_u128_le(cluster.get()),
            JoinStep::Formatted(answer) => {
                bytes.put_u128_le(answer.cluster.get());
                bytes.put_u16_le(answer.lanes_persisted);
                bytes.put_u16_le(answer.lanes_replicated);
                bytes.put_u32_le(u32::try_from(answer.views.len()).expect("logs are bounded"));
                bytes.put_u64_le(answer.seen);
                for (log, view) in &answer.views {
                    bytes.put_u32_le(log.get());
                    bytes.put_u32_le(view.get());
                }
            }
            JoinStep::Found { cluster, .. } => bytes.put_u128_le(cluster.get()),
            JoinStep::Behind { seen } => bytes.put_u64_le(*seen),
        }
        let mut body = Body::from(bytes.freeze());
        if let JoinStep::Found { genesis, .. } = &self.step {
            body.push(genesis.clone());
        }
        body
    }

    /// Reads the body of a frame.
    ///
    /// # Errors
    /// [`FrameFault::Malformed`].
    pub fn decode(mut body: Bytes) -> Result<Self, FrameFault> {
        if body.len() < FIXED_BYTES || body.len() > PEER_FRAME_BYTES_MAX {
            return Err(FrameFault::Malformed);
        }
        let kind = body.get_u8();
        body.advance(7);
        let nonce = body.get_u64_le();
        let step = match (kind, body.len()) {
            (1, 0) => JoinStep::Ask,
            (2, 0) => JoinStep::Unformatted,
            (3, 16) => JoinStep::Founded { cluster: ClusterId(body.get_u128_le()) },
            (4, ANSWER_BYTES..) => JoinStep::Formatted(read_answer(&mut body)?),
            (5, 16..) => {
                let cluster = ClusterId(body.get_u128_le());
                return Ok(Self { nonce, step: JoinStep::Found { cluster, genesis: body } });
            }
            (6, 8) => JoinStep::Behind { seen: body.get_u64_le() },
            _ => return Err(FrameFault::Malformed),
        };
        assert!(body.is_empty(), "each kind has its length");
        Ok(Self { nonce, step })
    }
}

fn read_answer(body: &mut Bytes) -> Result<FormattedAnswer, FrameFault> {
    let cluster = ClusterId(body.get_u128_le());
    let (lanes_persisted, lanes_replicated) = (body.get_u16_le(), body.get_u16_le());
    let count = body.get_u32_le() as usize;
    let seen = body.get_u64_le();
    if count > LANES_MAX as usize + 1 || body.len() != count * VIEW_BYTES {
        return Err(FrameFault::Malformed);
    }
    let views = (0..count).map(|_| (LogId(body.get_u32_le()), View(body.get_u32_le()))).collect();
    Ok(FormattedAnswer { cluster, lanes_persisted, lanes_replicated, seen, views })
}
