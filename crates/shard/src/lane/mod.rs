//! Lanes: one replicated log of data each, the state machine of every partition assigned to it.

pub mod api;
pub mod operation;
pub mod window;
