//! What one node's front asks of another's: requests that were received here and are led there.
//!
//! The body is opaque to the links: [`ForwardMessage::encode`] and [`ForwardMessage::decode`] are
//! the whole border.

use super::frame::{Destination, FrameFault};
use borzoi_types::Body;
use bytes::Bytes;

/// One message between the fronts of two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardMessage {
    /// Which shard of the receiver it is for.
    pub to: Destination,
    /// What it says.
    pub body: Body,
}

impl ForwardMessage {
    /// Where the receiving node delivers it.
    #[must_use]
    pub const fn destination(&self) -> Destination {
        self.to
    }

    /// The body of its frame, large parts by reference.
    #[must_use]
    pub fn encode(&self) -> Body {
        self.body.clone()
    }

    /// Reads the body of a frame. The frame's checksum has been verified.
    ///
    /// # Errors
    /// [`FrameFault::Malformed`]; the frame is then dropped and counted.
    pub fn decode(to: Destination, body: Bytes) -> Result<Self, FrameFault> {
        Ok(Self { to, body: Body::from(body) })
    }
}
