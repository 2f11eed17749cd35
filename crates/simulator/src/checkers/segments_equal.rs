//! Checker 10: a segment has the same bytes on every replica, as far as both have flushed it.

use crate::world::node::Node;
use borzoi_storage::disk::{Directory, Disk as _, FileName};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct SegmentsEqual {
    /// Segments compared.
    pub looked: u64,
}

impl SegmentsEqual {
    /// Compares the segments of all nodes with those of the first that has them.
    pub fn compare(&mut self, nodes: &mut [Node]) {
        let mut first: BTreeMap<FileName, (usize, bytes::Bytes)> = BTreeMap::new();
        for (index, node) in nodes.iter_mut().enumerate() {
            let Ok(listing) = node.disk.list(Directory::Segments) else { continue };
            let segments =
                listing.files.into_iter().filter(|file| matches!(file, FileName::Segment { .. }));
            for file in segments {
                let Some(content) = node.disk.peek(&file, 0, u64::MAX) else { continue };
                if let Some((other, known)) = first.get(&file) {
                    Self::equal(&file, (*other, known), (index, &content));
                    self.looked += 1;
                } else {
                    first.insert(file, (index, content));
                }
            }
        }
    }

    fn equal(file: &FileName, a: (usize, &[u8]), b: (usize, &[u8])) {
        let common = a.1.len().min(b.1.len());
        assert!(
            a.1[..common] == b.1[..common],
            "checker 10: {file} differs between nodes {} and {}",
            a.0,
            b.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "checker 10")]
    fn a_segment_that_differs_is_noticed() {
        SegmentsEqual::equal(&FileName::Superblock, (0, b"abc"), (1, b"ab"));
        SegmentsEqual::equal(&FileName::Superblock, (0, b"abc"), (1, b"abd"));
    }
}
