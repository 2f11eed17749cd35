//! Protocol versions and how a connection's generation is told from its first bytes (wire
//! protocol, sections 1.1, 1.3 and 4.3).

use core::fmt;

/// A packed protocol version: major, minor and patch of ten bits each. Integer order is version
/// order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// 0.11.0, the stable version of profile A.
    pub const V0_11_0: Self = Self::new(0, 11, 0);
    /// 0.12.2, profile B.
    pub const V0_12_2: Self = Self::new(0, 12, 2);

    /// Packs a version. Panics unless each component is below 1024.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        assert!(major < 1 << 10 && minor < 1 << 10 && patch < 1 << 10);
        Self(major << 20 | minor << 10 | patch)
    }

    /// Major, minor, patch.
    #[must_use]
    pub const fn components(self) -> (u32, u32, u32) {
        (self.0 >> 20, self.0 >> 10 & 0x3ff, self.0 & 0x3ff)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.components();
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Debug for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtocolVersion({self})")
    }
}

crate::codec::number_newtypes!(ProtocolVersion(u32));

/// The versions a server says it accepts, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionWindow {
    /// Oldest.
    pub min: ProtocolVersion,
    /// Newest.
    pub max: ProtocolVersion,
}

/// What the first bytes of a connection say about its framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstBytes {
    /// Fewer than four bytes have arrived.
    Incomplete,
    /// The legacy protocol: this is the length of its first request.
    Legacy {
        /// Length field: code and body of the request.
        length: u32,
    },
    /// 256-byte headers. Which profile is decided at login, see
    /// [`Profile::for_version`](crate::Profile::for_version).
    Headered,
}

/// Tells the framing of a connection (or of a WebSocket message, or of a QUIC stream) from its
/// first bytes: a legacy length is never zero, and all clients with headers leave the start of
/// theirs zero.
#[must_use]
pub fn detect_first_bytes(bytes: &[u8]) -> FirstBytes {
    match bytes.first_chunk::<4>() {
        None => FirstBytes::Incomplete,
        Some([0, 0, 0, 0]) => FirstBytes::Headered,
        Some(length) => FirstBytes::Legacy { length: u32::from_le_bytes(*length) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_pack_as_published() {
        assert_eq!(ProtocolVersion::V0_11_0.0, 0x2c00);
        assert_eq!(ProtocolVersion::V0_12_2.0, 0x3002);
        assert_eq!(ProtocolVersion(11265).to_string(), "0.11.1");
        assert!(ProtocolVersion::V0_11_0 < ProtocolVersion::V0_12_2);
    }

    #[test]
    fn four_bytes_tell_the_framing() {
        assert_eq!(detect_first_bytes(&[0, 0, 0]), FirstBytes::Incomplete);
        assert_eq!(detect_first_bytes(&[]), FirstBytes::Incomplete);
        assert_eq!(detect_first_bytes(&[0; 256]), FirstBytes::Headered);
        let ping = [4, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(detect_first_bytes(&ping), FirstBytes::Legacy { length: 4 });
    }
}
