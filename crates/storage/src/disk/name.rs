//! Names of the files in a data directory, and the only place where they become paths.
//!
//! ```text
//! superblock                                            four copies, see `superblock`
//! lock                                                  held while a server runs
//! journal/00000007.journal                              slot 7, recycled under this name
//! segments/3f/000000000000013f-00000000000000001000.segment   key (hex) - base offset
//! segments/3f/000000000000013f-00000000000000001000.index
//! checkpoints/00000003-00000000000000004711.checkpoint  log - op
//! set-aside/...                                         never read by the server
//! ```
//!
//! `<name>.new` beside any of them is a replacement that a crash interrupted. Segments are spread
//! over 256 directories by the low byte of the key, so that no partition needs a directory.

use borzoi_types::{LogId, Offset, Op, PartitionKey};
use core::fmt;

/// A file of the data directory. Built from numbers only, so no outside text becomes a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileName {
    /// Identity of the node and the live generation.
    Superblock,
    /// Locked by the running server; empty.
    Lock,
    /// A journal file; its number never says anything about its content.
    Journal(u32),
    /// Committed batches of a partition from `base` on.
    Segment {
        /// Which partition.
        key: PartitionKey,
        /// Offset of the first message in it.
        base: Offset,
    },
    /// Sparse index of the segment of the same key and base.
    SegmentIndex {
        /// Which partition.
        key: PartitionKey,
        /// Base of the segment it belongs to.
        base: Offset,
    },
    /// State of a log after `op`.
    Checkpoint {
        /// Which log.
        log: LogId,
        /// The last operation it contains.
        op: Op,
    },
    /// A file kept for a human, under a name relative to the set-aside directory.
    SetAside(AsideName),
    /// The replacement of a file that was not finished; see `Disk::durable_replace`.
    Unfinished(Box<FileName>),
}

/// Name in the set-aside directory: letters, digits, `-`, `_` and `.`, not empty, no leading dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AsideName(String);

/// The directories of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Directory {
    /// The data directory itself: superblock and lock.
    Root,
    /// Journal files.
    Journal,
    /// Segments and their indexes, with the 256 directories below.
    Segments,
    /// Checkpoints.
    Checkpoints,
    /// Files kept for a human.
    SetAside,
}

impl Directory {
    /// Path relative to the data directory; empty for the root.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Root => "",
            Self::Journal => "journal",
            Self::Segments => "segments",
            Self::Checkpoints => "checkpoints",
            Self::SetAside => "set-aside",
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Root, Self::Journal, Self::Segments, Self::Checkpoints, Self::SetAside];
}

impl AsideName {
    /// `text` as a name, with every character that is not allowed replaced by `_`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let mut name: String =
            text.chars().map(|c| if allowed(c) { c } else { '_' }).take(200).collect();
        if name.is_empty() || name.starts_with('.') {
            name.insert(0, '_');
        }
        assert!(!name.contains('/'), "a name has no directories");
        assert!(!name.starts_with('.'), "nor does it leave its own");
        Self(name)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FileName {
    /// The directory the file lies in.
    #[must_use]
    pub fn directory(&self) -> Directory {
        match self {
            Self::Superblock | Self::Lock => Directory::Root,
            Self::Journal(_) => Directory::Journal,
            Self::Segment { .. } | Self::SegmentIndex { .. } => Directory::Segments,
            Self::Checkpoint { .. } => Directory::Checkpoints,
            Self::SetAside(_) => Directory::SetAside,
            Self::Unfinished(of) => of.directory(),
        }
    }

    /// Path relative to the data directory, with `/` between directories.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Superblock => "superblock".to_owned(),
            Self::Lock => "lock".to_owned(),
            Self::Journal(slot) => format!("journal/{slot:08}.journal"),
            Self::Segment { key, base } => segment_path(*key, *base, "segment"),
            Self::SegmentIndex { key, base } => segment_path(*key, *base, "index"),
            Self::Checkpoint { log, op } => {
                format!("checkpoints/{:08}-{:020}.checkpoint", log.get(), op.get())
            }
            Self::SetAside(name) => format!("set-aside/{}", name.as_str()),
            Self::Unfinished(of) => format!("{}.new", of.path()),
        }
    }

    /// The file that has exactly this path, if Borzoi gives such names.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        if let Some(of) = path.strip_suffix(".new")
            && !path.starts_with("set-aside/")
        {
            return Self::parse(of).map(|of| Self::Unfinished(Box::new(of)));
        }
        let name = match path.split_once('/') {
            None if path == "superblock" => Self::Superblock,
            None if path == "lock" => Self::Lock,
            Some(("journal", name)) => Self::Journal(name.strip_suffix(".journal")?.parse().ok()?),
            Some(("segments", rest)) => parse_segment(rest)?,
            Some(("checkpoints", name)) => {
                let (log, op) = name.strip_suffix(".checkpoint")?.split_once('-')?;
                Self::Checkpoint { log: LogId(log.parse().ok()?), op: Op(op.parse().ok()?) }
            }
            Some(("set-aside", name)) => Self::SetAside(AsideName::new(name)),
            _ => return None,
        };
        assert!(!name.path().contains(".."), "no name leaves the data directory");
        // Only the canonical spelling names a file: "+7.journal" is a stranger.
        (name.path() == path).then_some(name)
    }
}

fn segment_path(key: PartitionKey, base: Offset, extension: &str) -> String {
    let (key, base) = (key.get(), base.get());
    format!("segments/{:02x}/{key:016x}-{base:020}.{extension}", key & 0xff)
}

fn parse_segment(rest: &str) -> Option<FileName> {
    let (_, name) = rest.split_once('/')?;
    let (stem, extension) = name.split_once('.')?;
    let (key, base) = stem.split_once('-')?;
    let key = PartitionKey(u64::from_str_radix(key, 16).ok()?);
    let base = Offset(base.parse().ok()?);
    match extension {
        "segment" => Some(FileName::Segment { key, base }),
        "index" => Some(FileName::SegmentIndex { key, base }),
        _ => None,
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_from_its_path() {
        let key = PartitionKey(0x13f);
        let names = [
            FileName::Superblock,
            FileName::Lock,
            FileName::Journal(7),
            FileName::Journal(u32::MAX),
            FileName::Segment { key, base: Offset(1_000) },
            FileName::SegmentIndex { key, base: Offset(u64::MAX) },
            FileName::Checkpoint { log: LogId(3), op: Op(4_711) },
            FileName::SetAside(AsideName::new("journal/x y")),
            FileName::Unfinished(Box::new(FileName::Superblock)),
            FileName::Unfinished(Box::new(FileName::Checkpoint { log: LogId(0), op: Op(1) })),
        ];
        for name in names {
            assert_eq!(FileName::parse(&name.path()), Some(name.clone()), "{name}");
        }
    }

    #[test]
    fn names_that_borzoi_does_not_give_are_strangers() {
        let strangers = [
            "",
            "notes.txt",
            "journal/7.journal",
            "journal/+0000007.journal",
            "segments/00/000000000000013f-00000000000000001000.segment",
            "segments/3f/000000000000013F-00000000000000001000.segment",
            "checkpoints/3-1.checkpoint",
            "../superblock",
            "superblock.new.old",
        ];
        for path in strangers {
            assert_eq!(FileName::parse(path), None, "{path}");
        }
    }

    #[test]
    fn no_text_escapes_the_set_aside_directory() {
        for text in ["../../etc/passwd", ".", "..", "", "a/b", "\0"] {
            let path = FileName::SetAside(AsideName::new(text)).path();
            let name = path.strip_prefix("set-aside/").unwrap();
            assert!(!name.contains('/') && !name.starts_with('.') && !name.is_empty(), "{path}");
        }
    }
}
