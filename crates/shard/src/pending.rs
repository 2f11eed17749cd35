//! Stand-ins for types of `borzoi-metadata` until those land.

/// See `borzoi_metadata::Metadata`.
#[derive(Clone, Debug, Default)]
pub struct Metadata {}
