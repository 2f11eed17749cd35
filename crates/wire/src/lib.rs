//! The client protocol: frames, operations, bodies, batches and error codes, decoded from bytes
//! and encoded into bytes. Pure: no input or output, no clock, no randomness.
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`version`] | protocol versions, telling the framing from the first bytes |
//! | [`frame`] | 256-byte headers of requests, replies and evictions |
//! | [`operation`], [`command`] | what can be asked for |
//! | [`batch`] | messages as they travel and rest: verify, stamp, slice, build |
//! | [`body`] | bodies of requests and replies |
//! | [`request`], [`reply`] | all of them as one enumeration each |
//! | [`profile`] | the codec of a connection, chosen at login |
//! | [`error_code`] | every error number |
//!
//! # Invariants
//!
//! - Arbitrary bytes never panic and never reserve more memory than their length justifies
//!   (see [`codec`]).
//! - Messages are never copied and nothing is allocated per message on the server's side.
//! - What decodes encodes again; a type that could not be encoded cannot be built.
//!
//! The layouts are those of profile A (protocol 0.11). Profiles are chosen per connection
//! ([`Profile`]); the types that carry requests and replies are shared by them.

pub mod batch;
pub mod body;
pub mod codec;
pub mod command;
pub mod error_code;
pub mod frame;
pub mod identifier;
pub mod name;
pub mod operation;
pub mod options;
pub mod profile;
pub mod reply;
pub mod request;
pub mod tlv;
pub mod version;

pub use codec::{DecodeError, Reader, Wire};
pub use command::CommandCode;
pub use error_code::ErrorCode;
pub use identifier::{
    ConsumerKind, ConsumerRef, Identifier, IdentifierRef, MessagesKey, OptionalPartition,
    Partitioning, PollingStrategy,
};
pub use name::{Name, NameRef, Secret, Text};
pub use operation::{Operation, OperationClass};
pub use options::{OptionEntry, Options};
pub use profile::Profile;
pub use reply::Reply;
pub use request::{Request, RequestError};
pub use tlv::{Entries, Entry, Value, write_entry};
pub use version::{FirstBytes, ProtocolVersion, VersionWindow, detect_first_bytes};
