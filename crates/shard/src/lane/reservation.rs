//! Offsets reserved ahead by a lane of level `replicated` (architecture, section 7; required
//! behaviours A1 to A11).
//!
//! Such a lane confirms before its journal is flushed, so after a power loss the log may no longer
//! show the last offsets that clients were told. A durable record therefore claims offsets in
//! blocks before any of them can escape; a lane that may have lost its tail goes on above the
//! claim. Two quantities stand side by side and are never merged: the *frontier*, below which
//! everything exists, and the *reservation*, at and above which nothing was given to anyone.
//!
//! ```text
//! journal record   header  0 u16 version (1)   2 u8 mode (1 advance, 2 install)   3 u8 zero
//!                          4 u32 entries
//!                  body    per entry  u64 key   u64 frontier   u64 reserved
//! ```
//!
//! Invariants: `reserved >= frontier` wherever one is written; an advance never lowers either
//! value; only an install (clean stop, state transfer) may, and only down to what is held.
//!
//! Crash argument: a claim's record goes into the journal before the prepare that needs it, and the
//! prepare counts as held only when the claim is durable. So whatever anyone has seen lies below a
//! durable reservation. A checkpoint holds the reservations of its moment, durable before the
//! records it contains are released; a new generation carries them all.

use borzoi_storage::journal::RecordSeq;
use borzoi_types::{Body, Offset, PartitionKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

const VERSION: u16 = 1;
const ENTRY_BYTES: usize = 24;

/// What is claimed for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reservation {
    /// Everything below exists, or existed: a log that shows less has lost something.
    pub frontier: Offset,
    /// Nothing at or above was given to anyone.
    pub reserved: Offset,
}

/// How a record changes what stood before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationMode {
    /// Raises, never lowers.
    Advance,
    /// Sets, also down: after a successful flush at a clean stop, or by state transfer.
    Install,
}

/// Why a reservation record or section could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReservationError {
    /// Another layout; a silent zero would hand offsets out twice.
    #[error("reservation record of version {0}, this build knows {VERSION}")]
    Version(u16),
    /// Wrong length, unknown mode, or a reservation below its frontier.
    #[error("malformed reservation record")]
    Malformed,
}

/// The reservations of one lane on this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reservations {
    entries: BTreeMap<PartitionKey, Reservation>,
    written: RecordSeq,
}

impl Reservations {
    /// What is claimed for `key`; zero when nothing was.
    #[must_use]
    pub fn get(&self, key: PartitionKey) -> Reservation {
        self.entries.get(&key).copied().unwrap_or_default()
    }

    /// Claims for `key` that offsets below `next` may escape, with a lease of `lease` offsets on
    /// top. The new claim, to be made durable first; none when the old one covers it.
    pub fn claim(
        &mut self,
        key: PartitionKey,
        frontier: Offset,
        next: Offset,
        lease: u64,
    ) -> Option<Reservation> {
        assert!(frontier <= next, "what exists was minted");
        assert!(lease > 0, "a lease of nothing claims nothing");
        let entry = self.entries.entry(key).or_default();
        if next <= entry.reserved {
            return None;
        }
        let reserved = Offset(next.0.checked_add(lease).expect("offsets do not wrap"));
        let claimed = Reservation { frontier: frontier.max(entry.frontier), reserved };
        assert!(claimed.reserved >= claimed.frontier);
        *entry = claimed;
        Some(claimed)
    }

    /// Whether offsets below `next` are covered by what was claimed.
    #[must_use]
    pub fn covers(&self, key: PartitionKey, next: Offset) -> bool {
        next <= self.get(key).reserved
    }

    /// Lowers every reservation to what exists; the record to write. Only after a flush that
    /// succeeded, when nothing is minted any more.
    pub fn collapse(
        &mut self,
        frontier_of: impl Fn(PartitionKey) -> Option<Offset>,
    ) -> Vec<(PartitionKey, Reservation)> {
        let mut collapsed = Vec::new();
        for (key, entry) in &mut self.entries {
            let Some(frontier) = frontier_of(*key) else { continue };
            assert!(entry.reserved >= frontier, "what exists was reserved");
            *entry = Reservation { frontier, reserved: frontier };
            collapsed.push((*key, *entry));
        }
        collapsed
    }

    /// These entries and no others, with what is on its way to the disk as before.
    #[must_use]
    pub fn replaced(&self, entries: &[(PartitionKey, Reservation)]) -> Self {
        assert!(entries.iter().all(|(_, entry)| entry.reserved >= entry.frontier));
        Self { entries: entries.iter().copied().collect(), written: self.written }
    }

    /// Offsets below `floor` count as given away, by an operation of the log that claimed them.
    pub fn raise(&mut self, key: PartitionKey, floor: Offset) {
        let entry = self.entries.entry(key).or_default();
        entry.reserved = entry.reserved.max(floor);
        assert!(entry.reserved >= entry.frontier);
    }

    /// Notes the journal record of the newest claim.
    pub fn note_written(&mut self, sequence: RecordSeq) {
        assert!(sequence > self.written, "records follow one another");
        self.written = sequence;
    }

    /// The journal record of the newest claim: a prepare covered by any claim so far may count as
    /// held only when this one is durable.
    #[must_use]
    pub const fn written(&self) -> RecordSeq {
        self.written
    }

    /// Records that messages may be missing: everything up to the reservations may have existed.
    /// The next primary jumps there, and so does the one after it if that jump is lost as well.
    pub fn owe_jumps(&mut self) {
        for entry in self.entries.values_mut() {
            assert!(entry.reserved >= entry.frontier);
            entry.frontier = entry.reserved;
        }
    }

    /// Forgets a key that is gone for ever.
    pub fn remove(&mut self, key: PartitionKey) {
        self.entries.remove(&key);
    }

    /// All of them in key order.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionKey, Reservation)> + '_ {
        self.entries.iter().map(|(key, entry)| (*key, *entry))
    }

    /// Takes over what a record or checkpoint says.
    pub fn merge(&mut self, mode: ReservationMode, entries: &[(PartitionKey, Reservation)]) {
        for (key, said) in entries {
            assert!(said.reserved >= said.frontier, "checked by the decoder");
            let entry = self.entries.entry(*key).or_default();
            *entry = match mode {
                ReservationMode::Install => *said,
                ReservationMode::Advance => Reservation {
                    frontier: entry.frontier.max(said.frontier),
                    reserved: entry.reserved.max(said.reserved),
                },
            };
        }
    }
}

/// The header and body of a journal record.
#[must_use]
pub fn encode(mode: ReservationMode, entries: &[(PartitionKey, Reservation)]) -> (Bytes, Body) {
    let mut header = BytesMut::with_capacity(8);
    header.put_u16_le(VERSION);
    header.put_u8(match mode {
        ReservationMode::Advance => 1,
        ReservationMode::Install => 2,
    });
    header.put_u8(0);
    header.put_u32_le(u32::try_from(entries.len()).expect("bounded by the partitions of a lane"));
    let mut body = BytesMut::with_capacity(entries.len() * ENTRY_BYTES);
    for (key, entry) in entries {
        assert!(entry.reserved >= entry.frontier, "never written otherwise");
        body.put_u64_le(key.0);
        body.put_u64_le(entry.frontier.0);
        body.put_u64_le(entry.reserved.0);
    }
    (header.freeze(), Body::from(body.freeze()))
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// [`ReservationError`]; a layout without the reservation is refused by name.
pub fn decode(
    header: &Bytes,
    body: &Body,
) -> Result<(ReservationMode, Vec<(PartitionKey, Reservation)>), ReservationError> {
    let mut header = header.clone();
    if header.remaining() != 8 {
        return Err(ReservationError::Malformed);
    }
    let version = header.get_u16_le();
    if version != VERSION {
        return Err(ReservationError::Version(version));
    }
    let mode = match header.get_u8() {
        1 => ReservationMode::Advance,
        2 => ReservationMode::Install,
        _ => return Err(ReservationError::Malformed),
    };
    let _zero = header.get_u8();
    let count = header.get_u32_le() as usize;
    let mut body = body.to_bytes();
    if body.remaining() != count * ENTRY_BYTES {
        return Err(ReservationError::Malformed);
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let key = PartitionKey(body.get_u64_le());
        let frontier = Offset(body.get_u64_le());
        let reserved = Offset(body.get_u64_le());
        if reserved < frontier {
            return Err(ReservationError::Malformed);
        }
        entries.push((key, Reservation { frontier, reserved }));
    }
    Ok((mode, entries))
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;
