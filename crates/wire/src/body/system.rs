//! Statistics, clients, snapshot, option catalogue (sections 9.2 and 9.3).

use crate::codec::{
    DecodeError, Reader, Wire, number_newtypes, wire_enum, wire_record, write_list,
};
use crate::name::{Name, Text};
use crate::tlv::Value;
use crate::version::ProtocolVersion;
use borzoi_types::{GroupId, Micros, PartitionId, StreamId, TopicId, UserId};

wire_record! {
    /// Use of the message cache of one partition. 32 bytes.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub struct CacheStats {
        /// The stream.
        pub stream: StreamId,
        /// The topic.
        pub topic: TopicId,
        /// The partition.
        pub partition: PartitionId,
        /// Reads served from memory.
        pub hits: u64,
        /// Reads that were not.
        pub misses: u64,
        /// Hits of all reads, 0 to 1.
        pub hit_ratio: f32,
    }
}

wire_record! {
    /// Statistics of a node.
    #[derive(Clone, PartialEq, Debug)]
    pub struct Stats {
        /// Process number.
        pub process_id: u32,
        /// Percent of a core that the process uses.
        pub process_cpu_percent: f32,
        /// Percent of the machine's cores in use.
        pub total_cpu_percent: f32,
        /// Bytes of memory of the process.
        pub process_memory_bytes: u64,
        /// Bytes of memory of the machine.
        pub total_memory_bytes: u64,
        /// Bytes of memory that are free for use.
        pub available_memory_bytes: u64,
        /// Microseconds since the start.
        pub run_time_us: u64,
        /// Time of the start.
        pub start_time: Micros,
        /// Bytes read.
        pub read_bytes: u64,
        /// Bytes written.
        pub written_bytes: u64,
        /// Bytes of all messages.
        pub messages_size_bytes: u64,
        /// Streams.
        pub streams_count: u32,
        /// Topics.
        pub topics_count: u32,
        /// Partitions.
        pub partitions_count: u32,
        /// Segments.
        pub segments_count: u32,
        /// Messages.
        pub messages_count: u64,
        /// Connections.
        pub clients_count: u32,
        /// Consumer groups.
        pub consumer_groups_count: u32,
        /// Name of the machine.
        pub hostname: Text,
        /// Name of the operating system.
        pub os_name: Text,
        /// Version of the operating system.
        pub os_version: Text,
        /// Version of the kernel.
        pub kernel_version: Text,
        /// Version of the server as text.
        pub server_version: Text,
        /// Version of the server, packed; 0 when there is none.
        pub server_semver: ProtocolVersion,
        /// Use of caches.
        pub caches: Vec<CacheStats>,
        /// Threads.
        pub threads_count: u32,
        /// Bytes free on the disk.
        pub free_disk_bytes: u64,
        /// Bytes of the disk.
        pub total_disk_bytes: u64,
    }
}

wire_enum! {
    /// How a client is connected.
    pub enum Transport("transport") {
        /// TCP, with or without TLS.
        Tcp = 1,
        /// QUIC.
        Quic = 2,
        /// HTTP.
        Http = 3,
        /// WebSocket.
        WebSocket = 4,
    }
}

/// Number of a live connection, unrelated to a client's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientNumber(pub u32);
number_newtypes!(ClientNumber(u32));

/// The user signed in on a connection, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignedInUser(pub Option<UserId>);

impl SignedInUser {
    const NOBODY: u32 = u32::MAX;
}

impl Wire<'_> for SignedInUser {
    const BYTES_MIN: usize = 4;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = reader.u32("user id")?;
        Ok(Self((id != Self::NOBODY).then_some(UserId(id))))
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.0.map_or(Self::NOBODY, UserId::get).write(out);
    }
}

wire_record! {
    /// Asks for one connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct GetClient {
        /// Its number.
        pub client: ClientNumber,
    }
}

wire_record! {
    /// A connection without its group memberships.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClientRecord {
        /// Number of the connection.
        pub client: ClientNumber,
        /// Who is signed in.
        pub user: SignedInUser,
        /// How it is connected.
        pub transport: Transport,
        /// Address of the peer.
        pub address: Text,
        /// Memberships. In [`ClientDetails`] those that follow are counted instead.
        pub groups_count: u32,
    }
}

wire_record! {
    /// Membership of a connection in a consumer group.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ClientGroup {
        /// The stream.
        pub stream: StreamId,
        /// The topic.
        pub topic: TopicId,
        /// The group.
        pub group: GroupId,
    }
}

/// A connection with its group memberships.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientDetails {
    /// The connection.
    pub client: ClientRecord,
    /// Its memberships.
    pub groups: Vec<ClientGroup>,
}

impl Wire<'_> for ClientDetails {
    const BYTES_MIN: usize = ClientRecord::BYTES_MIN;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let client = ClientRecord::read(reader)?;
        let groups = reader.list("groups of a client", client.groups_count)?;
        Ok(Self { client, groups })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let client = &self.client;
        let count = u32::try_from(self.groups.len()).expect("memberships of a client are few");
        client.client.write(out);
        client.user.write(out);
        client.transport.write(out);
        client.address.write(out);
        count.write(out);
        write_list(&self.groups, out);
    }
}

wire_enum! {
    /// Compression of a diagnostic archive.
    pub enum SnapshotCompression("snapshot compression") {
        /// None.
        Stored = 1,
        /// Deflate.
        Deflated = 2,
        /// Bzip2.
        Bzip2 = 3,
        /// Zstandard.
        Zstd = 4,
        /// LZMA.
        Lzma = 5,
        /// XZ.
        Xz = 6,
    }
}

wire_enum! {
    /// Content of a diagnostic archive.
    pub enum SnapshotContent("snapshot content") {
        /// Overview of the file system.
        Filesystem = 1,
        /// Processes.
        Processes = 2,
        /// Use of resources.
        ResourceUsage = 3,
        /// Nothing of interest.
        Test = 4,
        /// Logs of the server.
        ServerLogs = 5,
        /// Configuration of the server.
        ServerConfiguration = 6,
        /// All of these.
        All = 100,
    }
}

/// Asks for a diagnostic archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetSnapshot {
    /// Compression.
    pub compression: SnapshotCompression,
    /// What to put in; at most 255 entries are sent.
    pub content: Vec<SnapshotContent>,
}

impl Wire<'_> for GetSnapshot {
    const BYTES_MIN: usize = 2;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let compression = SnapshotCompression::read(reader)?;
        let count = reader.u8("snapshot content count")?;
        let content = reader.list("snapshot content", u32::from(count))?;
        Ok(Self { compression, content })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.compression.write(out);
        let content = &self.content[..self.content.len().min(usize::from(u8::MAX))];
        out.push(u8::try_from(content.len()).expect("cut to 255 above"));
        write_list(content, out);
    }
}

wire_enum! {
    /// Which kind of resource options belong to.
    pub enum OptionsScope("options scope") {
        /// Topics.
        Topic = 1,
        /// Streams.
        Stream = 2,
        /// Users.
        User = 3,
    }
}

wire_record! {
    /// Asks for the options that a kind of resource has.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DescribeOptions {
        /// The kind of resource.
        pub scope: OptionsScope,
    }
}

/// One option in the catalogue: name, kind u8, default (u32 length, data), description.
#[derive(Clone, PartialEq, Debug)]
pub struct OptionDescription {
    /// Key.
    pub name: Name,
    /// Value when it is not set; its kind is the canonical one.
    pub default: Value<'static>,
    /// What it does.
    pub description: Text,
}

impl Wire<'_> for OptionDescription {
    const BYTES_MIN: usize = Name::BYTES_MIN + 6 + Text::BYTES_MIN;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = Name::read(reader)?;
        let default = Value::read_part(reader)?.into_owned();
        Ok(Self { name, default, description: Text::read(reader)? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.name.write(out);
        self.default.write_part(out);
        self.description.write(out);
    }
}

/// A diagnostic archive: the body is its bytes and nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Archive(pub Vec<u8>);

impl Wire<'_> for Archive {
    const BYTES_MIN: usize = 0;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(reader.rest().to_vec()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
