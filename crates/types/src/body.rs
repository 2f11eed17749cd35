//! The payload of a log operation as a gather list of shared byte slices.

use bytes::Bytes;

/// Bytes of an operation, kept in the pieces they arrived in, so that a large batch travels from
/// the socket to the journal, the peers and the readers without being copied.
///
/// Equality and checksums look at the concatenation, not at where the pieces are cut.
#[derive(Clone, Default, Debug)]
pub struct Body {
    parts: Vec<Bytes>,
    len: usize,
}

impl Body {
    /// An empty body.
    #[must_use]
    pub const fn empty() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }

    /// Appends `part`; empty parts are dropped.
    pub fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.len += part.len();
        self.parts.push(part);
    }

    /// The pieces in order; none is empty.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Total length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes as one slice: without a copy when there is at most one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.parts.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut all = Vec::with_capacity(self.len);
                for part in many {
                    all.extend_from_slice(part);
                }
                Bytes::from(all)
            }
        }
    }
}

impl From<Bytes> for Body {
    fn from(part: Bytes) -> Self {
        let mut body = Self::empty();
        body.push(part);
        body
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .parts
                .iter()
                .flat_map(|p| p.iter())
                .eq(other.parts.iter().flat_map(|p| p.iter()))
    }
}

impl Eq for Body {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_ignores_where_the_pieces_are_cut() {
        let mut cut = Body::empty();
        cut.push(Bytes::from_static(b"ab"));
        cut.push(Bytes::new());
        cut.push(Bytes::from_static(b"c"));
        let whole = Body::from(Bytes::from_static(b"abc"));
        assert_eq!(cut, whole);
        assert_eq!(cut.parts().len(), 2);
        assert_eq!(cut.to_bytes(), whole.to_bytes());
        assert_ne!(whole, Body::from(Bytes::from_static(b"abd")));
    }
}
