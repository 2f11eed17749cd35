//! The durable record of a replica's view: one journal record, always flushed.
//!
//! Crash argument. The record is complete in itself: the newest one decides view, log_view and
//! the log at that moment. A replica writes it (a) before it advertises a new view and (b) before
//! it advertises that it has adopted the log of a view; (b) carries the adopted suffix, so a crash
//! right after it restarts with the log of that view, and a crash right before it with the
//! complete older log. Nothing in between exists. Records of prepares above the adopted head that
//! an older view wrote do not chain to the new log and are void.
//!
//! Bytes, little-endian: magic u32, version u8, flags u8, zero u16, log u32, cluster u128,
//! view u32, log_view u32, commit u64, suffix (head op u64, head checksum u128, count u32, then per
//! header 128 bytes and one byte of evidence), checksum u128 over everything before it.

use crate::codec::{DecodeError, Reader, Writer};
use crate::header::Anchor;
use crate::suffix::LogSuffix;
use borzoi_types::{ClusterId, LogId, Op, View, checksum};
use bytes::Bytes;

const WHAT: &str = "view record";
const MAGIC: u32 = u32::from_le_bytes(*b"BZvs");
const VERSION: u8 = 1;
const FLAG_MUST_LEARN: u8 = 1;
const CHECKSUM_BYTES: usize = 16;

/// View, log_view and the adopted log of one replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewState {
    /// Cluster incarnation.
    pub cluster: ClusterId,
    /// Which log.
    pub log: LogId,
    /// The highest view this replica has entered.
    pub view: View,
    /// The view whose log this replica has adopted; at most `view`.
    pub log_view: View,
    /// Known to be committed in this log; may lie above the head while the replica is behind.
    pub commit: Op,
    /// Head and everything above `commit`.
    pub suffix: LogSuffix,
    /// The replica may have lost acknowledged operations and must learn before it counts.
    pub must_learn: bool,
}

impl ViewState {
    /// The state of a replica that has never taken part in anything.
    #[must_use]
    pub fn initial(cluster: ClusterId, log: LogId) -> Self {
        Self {
            cluster,
            log,
            view: View::ZERO,
            log_view: View::ZERO,
            commit: Op::ZERO,
            suffix: LogSuffix::committed(Anchor::root(cluster, log)),
            must_learn: false,
        }
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.log_view <= self.view, "a log is adopted in a view that was entered");
        assert!(self.suffix.below().op <= self.commit, "the whole uncommitted suffix is kept");
        let mut writer = Writer::with_capacity(64 + self.suffix.encoded_bytes());
        writer.u32(MAGIC);
        writer.u8(VERSION);
        writer.u8(if self.must_learn { FLAG_MUST_LEARN } else { 0 });
        writer.u16(0);
        writer.u32(self.log.get());
        writer.u128(self.cluster.get());
        writer.u32(self.view.get());
        writer.u32(self.log_view.get());
        writer.u64(self.commit.get());
        self.suffix.write(&mut writer);
        let sum = checksum::xxh3_128(writer.as_slice());
        writer.u128(sum);
        writer.finish()
    }

    /// Reads and verifies a record.
    ///
    /// # Errors
    /// Any [`DecodeError`]; arbitrary bytes never panic.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(covered_len) = bytes.len().checked_sub(CHECKSUM_BYTES) else {
            return Err(DecodeError::Truncated { what: WHAT });
        };
        let (covered, stored) = bytes.split_at(covered_len);
        let mut reader = Reader::new(WHAT, covered);
        let magic = reader.u32()?;
        if magic != MAGIC {
            return Err(DecodeError::Format { what: WHAT, found: magic });
        }
        if Reader::new(WHAT, stored).u128()? != checksum::xxh3_128(covered) {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::Format { what: WHAT, found: u32::from(version) });
        }
        let flags = reader.u8()?;
        if flags & !FLAG_MUST_LEARN != 0 || reader.u16()? != 0 {
            return Err(reader.invalid("flags"));
        }
        let state = Self {
            log: LogId(reader.u32()?),
            cluster: ClusterId(reader.u128()?),
            view: View(reader.u32()?),
            log_view: View(reader.u32()?),
            commit: reader.op()?,
            suffix: LogSuffix::read(&mut reader)?,
            must_learn: flags & FLAG_MUST_LEARN != 0,
        };
        reader.finish()?;
        if state.log_view > state.view {
            return Err(DecodeError::Invalid { what: WHAT, field: "log_view" });
        }
        Ok(state)
    }
}
