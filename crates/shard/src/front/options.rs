//! What the front is told at boot.

use super::admission::AdmissionLimits;
use borzoi_metadata::TopicDefaults;
use borzoi_types::limits::{
    CONNECTIONS_BEFORE_LOGIN_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX,
};
use borzoi_types::{ReplicaId, ShardId};

/// How clients reach this node. Port 0 means that the transport is not offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdvertisedNode {
    /// Name of the node.
    pub name: String,
    /// Host or address.
    pub address: String,
    /// TCP port.
    pub tcp: u16,
    /// QUIC port.
    pub quic: u16,
    /// HTTP port.
    pub http: u16,
    /// WebSocket port.
    pub websocket: u16,
}

/// Configuration of the front of one shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontOptions {
    /// This shard.
    pub shard: ShardId,
    /// Shards of this node.
    pub shards: u16,
    /// This node.
    pub replica: ReplicaId,
    /// Nodes of the cluster.
    pub replica_count: u8,
    /// Generation of this life of the node, from the superblock: rises at every start.
    pub generation: u64,
    /// Name of the cluster, as clients see it.
    pub cluster_name: String,
    /// This node, as clients see it.
    pub node: AdvertisedNode,
    /// All nodes of the cluster by their ids, as clients see them; empty on a node that runs alone.
    pub roster: Vec<AdvertisedNode>,
    /// Version of the server as text, at least one byte.
    pub server_version: String,
    /// Caps on connections.
    pub admission: AdmissionLimits,
    /// What topics get that name no options.
    pub topic_defaults: TopicDefaults,
    /// Access tokens that a user may have.
    pub tokens_per_user_max: u32,
    /// Bytes of answers after which a connection starts nothing more until
    /// [`crate::Event::OutputTaken`] says that its client has taken them. A driver that sets this
    /// must send that event.
    pub output_hold_bytes: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
            before_login_max: CONNECTIONS_BEFORE_LOGIN_MAX,
        }
    }
}

impl Default for FrontOptions {
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            shards: 1,
            replica: ReplicaId(0),
            replica_count: 1,
            generation: 1,
            cluster_name: "single-node".to_owned(),
            node: AdvertisedNode {
                name: "borzoi-node".to_owned(),
                address: "127.0.0.1".to_owned(),
                tcp: 8090,
                quic: 0,
                http: 0,
                websocket: 0,
            },
            roster: Vec::new(),
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            admission: AdmissionLimits::default(),
            topic_defaults: TopicDefaults::default(),
            tokens_per_user_max: 100,
            output_hold_bytes: usize::MAX,
        }
    }
}
