//! What goes wrong in a run: ranges and rates drawn per seed, when each fault strikes, and what the
//! atlas allows to be damaged.

pub mod nemesis;
pub mod profile;

pub use nemesis::{FaultKind, Nemesis};
pub use profile::{Profile, Range};
