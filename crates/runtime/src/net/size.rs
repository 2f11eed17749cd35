//! Stand-in for the frame size of `borzoi-wire`.
use thiserror::Error;
pub const HEADER_BYTES: usize = 256;
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("frame size {0}")]
pub struct FrameSizeFault(u32);
pub struct FrameSize(u32);
impl FrameSize {
    pub fn peek(header: &[u8; 256], limit: usize) -> Result<Self, FrameSizeFault> {
        let size = u32::from_le_bytes(*header[48..].first_chunk().expect("inside"));
        if (size as usize) < 256 || size as usize > limit {
            return Err(FrameSizeFault(size));
        }
        Ok(Self(size))
    }
    pub fn frame_bytes(self) -> usize {
        self.0 as usize
    }
}
