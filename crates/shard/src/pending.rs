//! Stand-ins for types of `borzoi-storage` and `borzoi-metadata` until those land.

/// See `borzoi_storage::disk::DiskQueue`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DiskQueue {
    /// Journal writes, in order.
    JournalWrite,
    /// Journal flushes, in order.
    JournalFlush,
    /// Everything else, in order per file.
    Pool,
}

/// See `borzoi_storage::disk::DiskTicket`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiskTicket(pub u64);

/// See `borzoi_storage::disk::DiskRequest`.
#[derive(Clone, Debug)]
pub enum DiskRequest {}

/// See `borzoi_storage::disk::DiskError`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("disk error")]
pub struct DiskError {}

/// See `borzoi_storage::disk::DiskResult`.
pub type DiskResult = Result<(), DiskError>;

/// See `borzoi_metadata::Metadata`.
#[derive(Clone, Debug, Default)]
pub struct Metadata {}
