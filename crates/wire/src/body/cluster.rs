//! The cluster record and what stable clients of several nodes use (sections 9.4 and 4.9).

use crate::codec::{wire_enum, wire_record};
use crate::name::Text;
use borzoi_types::{ClientId, Op, SessionId};

wire_enum! {
    /// Part that a node plays.
    pub enum NodeRole("node role") {
        /// Takes writes of metadata.
        Leader = 0,
        /// Follows the leader.
        Follower = 1,
    }
}

wire_enum! {
    /// State of a node.
    pub enum NodeStatus("node status") {
        /// Serves.
        Healthy = 0,
        /// Starts.
        Starting = 1,
        /// Stops.
        Stopping = 2,
        /// Does not answer.
        Unreachable = 3,
        /// Is being worked on.
        Maintenance = 4,
    }
}

wire_record! {
    /// A node as clients see it. Port 0 means that the transport is not offered.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClusterNode {
        /// Name.
        pub name: Text,
        /// Address that this client can reach.
        pub address: Text,
        /// TCP port.
        pub tcp: u16,
        /// QUIC port.
        pub quic: u16,
        /// HTTP port.
        pub http: u16,
        /// WebSocket port.
        pub websocket: u16,
        /// Part it plays.
        pub role: NodeRole,
        /// State.
        pub status: NodeStatus,
    }
}

wire_record! {
    /// The cluster: a client asks for it after every login. One node means no redirect.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClusterMetadata {
        /// Name of the cluster.
        pub name: Text,
        /// The nodes.
        pub nodes: Vec<ClusterNode>,
    }
}

wire_record! {
    /// For whom a second connection acts. 32 bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AttachRecord {
        /// Identity of the main connection.
        pub client: ClientId,
        /// Its session.
        pub session: SessionId,
        /// Metadata position that the node must have applied before it serves.
        pub metadata_watermark: Op,
    }
}

wire_record! {
    /// Where the consumer work of a partition should go.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Routing {
        /// For whom to act there.
        pub attach: AttachRecord,
        /// The node that leads the partition.
        pub node: ClusterNode,
    }
}
