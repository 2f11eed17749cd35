//! After a declared loss: offsets go on above everything that any replica may have given away.
//!
//! When too few replicas of a lane can be trusted, a view begins with a *loss epoch*, an operation
//! whose body carries what every replica that answered had reserved (architecture, sections 5 and
//! 7; required behaviours A5 and C5). Applying it moves every partition up to the highest of these
//! reservations, on every replica alike, because body and state are the same everywhere.
//!
//! ```text
//! body        u8 replicas, then per replica  u8 id   u32 length   attachment
//! attachment  u8 version (1), then per partition  u64 key   u64 reserved   (at most 4,095)
//!             key 2^64-1: every partition that is not listed
//! ```

use super::Lane;
use super::reservation::Reservations;
use crate::back::shared::Shared;
use crate::event::{LogEntry, LogLevel};
use borzoi_consensus::PrepareKind;
use borzoi_types::{Body, Durability, Offset, PartitionKey};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;

const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 16;
const ENTRIES_MAX: usize = 4_095;
/// Stands for every partition that is not listed.
const REST: PartitionKey = PartitionKey::MAX;

/// What a loss epoch is to know of these reservations.
#[must_use]
pub fn attachment(reservations: &Reservations) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    let mut rest = Offset::ZERO;
    for (index, (key, entry)) in reservations.iter().enumerate() {
        if index + 1 < ENTRIES_MAX {
            bytes.put_u64_le(key.get());
            bytes.put_u64_le(entry.reserved.get());
        } else {
            rest = rest.max(entry.reserved);
        }
    }
    if rest > Offset::ZERO {
        bytes.put_u64_le(REST.get());
        bytes.put_u64_le(rest.get());
    }
    assert!(bytes.len() <= 1 + ENTRIES_MAX * ENTRY_BYTES, "attachments are bounded");
    bytes.freeze()
}

/// Where partitions have to go on at least.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    listed: BTreeMap<PartitionKey, Offset>,
    rest: Offset,
}

impl Floors {
    /// The highest reservations in a loss epoch. Bytes that make no sense end the reading of their
    /// attachment: they are of a build that had nothing to say here.
    #[must_use]
    pub fn read(body: &Body) -> Self {
        let mut floors = Self::default();
        let mut bytes = body.to_bytes();
        if !bytes.has_remaining() {
            return floors;
        }
        for _ in 0..bytes.get_u8() {
            if bytes.remaining() < 5 {
                break;
            }
            let _replica = bytes.get_u8();
            let length = bytes.get_u32_le() as usize;
            if bytes.remaining() < length {
                break;
            }
            floors.read_attachment(bytes.split_to(length));
        }
        floors
    }

    fn read_attachment(&mut self, mut bytes: Bytes) {
        if !bytes.has_remaining() || bytes.get_u8() != VERSION {
            return;
        }
        while bytes.remaining() >= ENTRY_BYTES {
            let (key, reserved) = (PartitionKey(bytes.get_u64_le()), Offset(bytes.get_u64_le()));
            if key == REST {
                self.rest = self.rest.max(reserved);
            } else {
                let floor = self.listed.entry(key).or_default();
                *floor = (*floor).max(reserved);
            }
        }
    }

    /// The floor of one partition.
    #[must_use]
    pub fn of(&self, key: PartitionKey) -> Offset {
        self.listed.get(&key).copied().unwrap_or(self.rest)
    }
}

impl Lane {
    /// Tells the replica what its next ballot is to carry.
    pub(crate) fn attach_reservations(&mut self) {
        let grouped = self.host.replica().replica_count() > 1;
        if grouped && self.level == Durability::Replicated {
            self.host.set_attachment(attachment(&self.reservations));
        }
    }

    /// A loss epoch has committed.
    pub(super) fn apply_loss(&mut self, kind: PrepareKind, body: &Body, shared: &mut Shared) {
        if kind != PrepareKind::LossEpoch || self.level == Durability::Persisted {
            return;
        }
        let floors = Floors::read(body);
        let mut jumped = 0;
        for (key, partition) in self.state.partitions_mut() {
            let floor = floors.of(key);
            if floor > partition.log.next_offset() {
                partition.log.jump_to(floor);
                self.reservations.raise(key, floor);
                self.flush_wanted.insert(key);
                jumped += 1;
            }
        }
        if jumped > 0 {
            let entry = LogEntry::OffsetJump { log: self.log, partitions: jumped };
            shared.log(LogLevel::Warn, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::reservation::{Reservation, ReservationMode};

    fn reserved(entries: impl Iterator<Item = (u64, u64)>) -> Reservations {
        let entries: Vec<_> = entries
            .map(|(key, reserved)| {
                let (frontier, reserved) = (Offset(0), Offset(reserved));
                (PartitionKey(key), Reservation { frontier, reserved })
            })
            .collect();
        let mut reservations = Reservations::default();
        reservations.merge(ReservationMode::Install, &entries);
        reservations
    }

    fn body(attachments: &[Bytes]) -> Body {
        let mut bytes = BytesMut::new();
        bytes.put_u8(u8::try_from(attachments.len()).unwrap());
        for (id, attachment) in (0u8..).zip(attachments) {
            bytes.put_u8(id);
            bytes.put_u32_le(u32::try_from(attachment.len()).unwrap());
            bytes.extend_from_slice(attachment);
        }
        Body::from(bytes.freeze())
    }

    #[test]
    fn the_highest_reservation_of_all_who_answered_counts() {
        let one = attachment(&reserved([(1, 10), (2, 90)].into_iter()));
        let two = attachment(&reserved([(1, 70), (3, 5)].into_iter()));
        let floors = Floors::read(&body(&[one, Bytes::new(), two]));
        let of = |key| floors.of(PartitionKey(key)).0;
        assert_eq!([of(1), of(2), of(3), of(4)], [70, 90, 5, 0]);
        assert_eq!(Floors::read(&Body::empty()), Floors::default());
    }

    #[test]
    fn more_partitions_than_fit_are_covered_by_the_highest_of_the_rest() {
        let many = attachment(&reserved((1..=5_000).map(|key| (key, key * 2))));
        assert!(many.len() <= 64 * 1024);
        let floors = Floors::read(&body(&[many]));
        assert_eq!(floors.of(PartitionKey(7)), Offset(14));
        assert_eq!(floors.of(PartitionKey(4_999)), Offset(10_000));
    }
}
