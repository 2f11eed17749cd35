//! Damage in scenarios: bytes of journals, checkpoints, segments and the superblock that change
//! behind the node's back.

use super::Story;
use borzoi_storage::disk::{Directory, Disk as _, FileName};
use borzoi_storage::journal::layout::{
    FILE_HEADER_BYTES, FileHeader, HeaderRead, RecordHeader, looks_like_trailer,
};
use borzoi_storage::sim_disk::{BLOCK_BYTES, SimDisk};

/// A record found in a journal.
struct Found {
    file: FileName,
    offset: u64,
    bytes: u64,
    sequence: u64,
    generation: u64,
}

/// Every intact record of every journal file, oldest first.
fn records(disk: &mut SimDisk) -> Vec<Found> {
    let mut found = Vec::new();
    let files = disk.list(Directory::Journal).expect("a simulated disk lists").files;
    for file in files {
        let Some(bytes) = disk.peek(&file, 0, u64::MAX) else { continue };
        let HeaderRead::Header(header) = FileHeader::decode(&bytes) else { continue };
        let mut at = usize::try_from(FILE_HEADER_BYTES).expect("two blocks");
        while at < bytes.len() {
            if let Some((record, _)) = RecordHeader::decode(&bytes[at..], header.salt) {
                found.push(Found {
                    file: file.clone(),
                    offset: at as u64,
                    bytes: record.record_bytes(),
                    sequence: record.sequence.0,
                    generation: header.generation,
                });
                at += usize::try_from(record.record_bytes()).expect("in memory");
            } else {
                at = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
            }
        }
    }
    found.sort_by_key(|found| (found.generation, found.sequence));
    let newest = found.last().map_or(0, |found| found.generation);
    found.retain(|found| found.generation == newest);
    found
}

/// Every trailer of every journal file.
fn trailers(disk: &mut SimDisk) -> Vec<(FileName, u64)> {
    let mut found = Vec::new();
    for file in disk.list(Directory::Journal).expect("a simulated disk lists").files {
        let Some(bytes) = disk.peek(&file, 0, u64::MAX) else { continue };
        let blocks = bytes.chunks(BLOCK_BYTES).enumerate().skip(2);
        for (block, _) in blocks.filter(|(_, content)| looks_like_trailer(content)) {
            found.push((file.clone(), (block * BLOCK_BYTES) as u64));
        }
    }
    found
}

impl Story {
    /// Steps that damage something. The node must be down.
    pub(super) fn damages(&mut self, words: &[&str]) -> bool {
        let Some((node, file, offset)) = self.flip(words) else { return self.ruin(words) };
        let disk = &mut self.world.nodes[node].disk;
        assert!(disk.flip_bit(&file, offset, 3), "{file} has no byte {offset}");
        true
    }

    /// Where a bit flips, if a step says so.
    fn flip(&mut self, words: &[&str]) -> Option<(usize, FileName, u64)> {
        let (target, node) = match words {
            ["a", "bit", "flips", "in", target @ .., "of", "node", node] => (target, node),
            _ => return None,
        };
        let (node, disk) = self.disk_of(node);
        let (file, offset) = match target {
            ["the", part, "of", "the", which, "record"] => {
                let all = records(disk);
                let found = pick(&all, which);
                let within = match *part {
                    "header" => 16,
                    "middle" => found.bytes / 2,
                    "end" => found.bytes - 9,
                    other => panic!("a record has no {other}"),
                };
                (found.file.clone(), found.offset + within)
            }
            ["the", which, "trailer"] => {
                let all = trailers(disk);
                let (file, offset) = pick(&all, which);
                (file.clone(), offset + 20)
            }
            ["the", which, "checkpoint"] => (pick(&checkpoints(disk), which).clone(), 100),
            ["the", which, "segment"] => {
                let mut all = disk.list(Directory::Segments).expect("it lists").files;
                all.retain(|file| matches!(file, FileName::Segment { .. }));
                (pick(&all, which).clone(), 5_000)
            }
            ["copy", copy, "of", "the", "superblock"] => {
                let copy: u64 = copy.parse().expect("a number of a copy");
                (FileName::Superblock, copy * BLOCK_BYTES as u64 + 40)
            }
            other => panic!("where is {other:?}?"),
        };
        Some((node, file, offset))
    }

    /// Steps that damage more than a bit.
    fn ruin(&mut self, words: &[&str]) -> bool {
        match words {
            ["every", "checkpoint", "of", "node", node, "is", "damaged"] => {
                let (_, disk) = self.disk_of(node);
                for file in checkpoints(disk) {
                    disk.flip_bit(&file, 100, 1);
                }
            }
            ["each", "log's", "newer", "checkpoint", "of", "node", node, "is", "damaged"] => {
                let (_, disk) = self.disk_of(node);
                let log = |file: &FileName| match file {
                    FileName::Checkpoint { log, .. } => Some(*log),
                    _ => None,
                };
                let files = checkpoints(disk);
                let newer = files.windows(2).filter(|pair| log(&pair[0]) == log(&pair[1]));
                let newer: Vec<FileName> = newer.map(|pair| pair[1].clone()).collect();
                assert!(!newer.is_empty(), "no log has two checkpoints");
                newer.iter().for_each(|file| assert!(disk.flip_bit(file, 100, 1)));
            }
            ["every", "index", "of", "node", node, "is", "damaged"] => {
                let (_, disk) = self.disk_of(node);
                let files = disk.list(Directory::Segments).expect("it lists").files;
                for file in files.iter().filter(|f| matches!(f, FileName::SegmentIndex { .. })) {
                    disk.flip_bit(file, 30, 1);
                }
            }
            ["the", "superblock", "of", "node", node, "is", "gone"] => {
                let (_, disk) = self.disk_of(node);
                disk.remove(&FileName::Superblock).expect("it can be removed");
            }
            ["the", "disk", "of", "node", node, "is", "empty"] => {
                let (node, _) = self.disk_of(node);
                self.world.empty_disk(node);
            }
            _ => return false,
        }
        true
    }

    fn disk_of(&mut self, node: &str) -> (usize, &mut SimDisk) {
        let node: usize = node.parse().expect("a number of a node");
        assert!(!self.world.nodes[node].is_up(), "the node is down meanwhile");
        (node, &mut self.world.nodes[node].disk)
    }
}

fn checkpoints(disk: &mut SimDisk) -> Vec<FileName> {
    disk.list(Directory::Checkpoints).expect("a simulated disk lists").files
}

fn pick<'a, T>(all: &'a [T], which: &str) -> &'a T {
    let found = match which {
        "oldest" => all.first(),
        "newest" => all.last(),
        "middle" => all.get(all.len() / 2),
        other => panic!("oldest, newest or middle, not {other}"),
    };
    found.expect("there is one")
}
