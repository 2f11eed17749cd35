//! The replicated state machine of what should exist: streams, topics, partitions, consumer
//! groups, users, permissions, access tokens, client sessions.
//!
//! Every shard of every node holds a copy and applies the same [`Command`]s in the same order; see
//! [`Metadata`]. What a partition holds (messages, offsets, sizes) is not here: that is the lanes'.
//!
//! Reading order: `command` (what the log says), `state` (what there is and what can be asked),
//! `apply*` (how commands change it), `access` (who may do what), `snapshot`.
//!
//! Invariants:
//! - apply depends on nothing but the state, the operation number, its timestamp and the command;
//!   every command applies to every state, to a rejection at worst;
//! - a partition key is minted once, in rising order, and never reused; a key below the counter
//!   that has no partition was deleted;
//! - equal states encode to equal bytes.

mod access;
mod apply;
mod apply_groups;
mod apply_sessions;
mod apply_topics;
mod apply_users;
mod codec;
mod command;
mod groups;
mod identity;
mod invariants;
mod lanes;
mod option_values;
mod options;
mod outcome;
mod partition_table;
mod permissions;
mod sessions;
mod snapshot;
mod state;
mod streams;
mod users;
mod validate;

pub use access::Action;
pub use codec::DecodeError;
pub use command::{
    COMMAND_VERSION, Change, ClientRequest, ClosedConnection, Command, CompletedHandover,
    CreateTopic, CreateUser, Credential, GroupName, HandoverCause, Issuer, Register, TopicName,
    UpdateTopic,
};
pub use groups::{Group, Handover, Ownership};
pub use identity::{
    ConnectionStamp, GroupKey, GroupPlace, MemberSlot, PartitionPlace, PasswordHash, SessionRef,
    TokenHash, UserKey,
};
pub use lanes::Layout;
pub use options::{
    EXPIRY_NEVER, OptionKey, SIZE_UNLIMITED, TopicDefaults, TopicOptions, TopicOptionsUpdate,
    no_options, topic_catalogue,
};
pub use outcome::{Notice, Outcome, Reply, StoredReply};
pub use partition_table::PartitionRecord;
pub use permissions::{GlobalFlags, Permissions, StreamFlags, StreamPermissions, TopicFlags};
pub use sessions::{Admission, Session, SessionTable};
pub use state::{Desired, Genesis, Metadata, PendingHandover, Resolved, Totals};
pub use streams::{Stream, Topic};
pub use users::{ROOT_CREATED, Token, User};
pub use validate::check_password;

pub use borzoi_wire::body::{Compression, UserStatus};
