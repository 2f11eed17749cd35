//! Every limit of the product, with the reason for its value.
//!
//! A limit that is reached gives a typed, retriable answer or back-pressure, and is counted; it
//! never drops in silence. Each one has a test at the limit and one past it where it is enforced.

/// Largest client frame, header included. The reference system's limit, which its clients know.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Largest client frame before login: a login body fits many times over, and an unauthenticated
/// peer cannot make the server reserve more than this.
pub const FRAME_BYTES_BEFORE_LOGIN_MAX: usize = 4 * 1024;

/// Bytes of an operation's header area in a client frame, fixed by the protocol.
pub const CLIENT_HEADER_BYTES: usize = 256;

/// Largest body of one prepare: one maximum client frame must always fit in a prepare.
pub const PREPARE_BODY_BYTES_MAX: usize = FRAME_BYTES_MAX + 64 * 1024;

/// Prepares of one log that may be in flight (prepared, not committed). Bounds memory and the
/// suffix that a view change carries.
pub const PIPELINE_OPS_MAX: usize = 64;

/// Bytes of one log's prepares in flight: two maximum frames, so that one never waits for another.
pub const PIPELINE_BYTES_MAX: usize = 2 * PREPARE_BODY_BYTES_MAX;

/// Operations of one log above its older checkpoint, on any replica. Their headers stay in memory
/// (about 150 bytes each); reaching it refuses proposals until a checkpoint releases some.
pub const LOG_OPS_RETAINED_MAX: usize = 1 << 20;

/// A lane gathers small requests into one prepare up to this size: large enough to amortise a
/// record, small enough that one prepare never delays the next by more than a millisecond.
pub const PREPARE_GATHER_BYTES_MAX: usize = 1024 * 1024;

/// Bodies of this size and more are passed by reference from the socket buffer; smaller ones are
/// packed by copy, because a slice costs more than copying a few cache lines.
pub const BODY_BY_REFERENCE_BYTES_MIN: usize = 16 * 1024;

/// Requests that may wait on one lane to be prepared: several per connection of a busy node, and
/// still answered in far less than a client's time-out.
pub const LANE_QUEUE_REQUESTS_MAX: usize = 16 * 1024;

/// Bytes of the requests that wait on one lane: as much again as the pipeline holds.
pub const LANE_QUEUE_BYTES_MAX: usize = PIPELINE_BYTES_MAX;

/// Replicas of one log. Quorums are proved exhaustively up to here.
pub const REPLICAS_MAX: usize = 7;

/// One frame between nodes: the largest prepare with its header and the frame's own.
pub const PEER_FRAME_BYTES_MAX: usize = PREPARE_BODY_BYTES_MAX + 4 * 1024;

/// Bytes of one chunk of a state transfer: what a link carries between two control frames.
pub const TRANSFER_CHUNK_BYTES: usize = 128 * 1024;

/// Chunks of a state transfer that are asked for or being written: 2 MiB, enough for a link and a
/// disk to be busy at the same time.
pub const TRANSFER_CHUNKS_IN_FLIGHT_MAX: usize = 16;

/// Chunks that one shard reads for peers at a time: two transfers at full speed. More questions
/// are not answered and come again.
pub const TRANSFER_READS_MAX: usize = 32;

/// Requests of one shard that wait for other nodes: as many as one lane takes.
pub const FORWARDED_REQUESTS_MAX: usize = LANE_QUEUE_REQUESTS_MAX;

/// Time after which a request that another node has not answered is answered "unknown", in seconds:
/// longer than a failover takes, well below the 30 s that clients wait.
pub const FORWARDED_SECONDS_MAX: u64 = 5;

/// Time for which another node is asked again when a partition is created, deleted or drained, in
/// seconds: longer than whoever wants to know it waits.
pub const FORWARDED_QUESTION_SECONDS_MAX: u64 = 40;

/// Time for which a metadata command waits for a primary that it can be sent to, in seconds.
pub const RELAY_PARK_SECONDS_MAX: u64 = 2;

/// Time in which the metadata primary has to tell its commit point, in seconds.
pub const COMMIT_QUESTION_SECONDS_MAX: u64 = 2;

/// Lanes of one cluster: beyond this a lane stops being cheap to keep idle.
pub const LANES_MAX: u32 = 1_024;

/// Shards of one node.
pub const SHARDS_MAX: u16 = 256;

/// Client sessions that metadata remembers. A full table refuses logins and forgets nobody.
pub const SESSIONS_MAX: usize = 8_192;

/// Time for which a session outlives its last connection, in seconds: clients that lost their
/// connection come back within it and find what they asked for before.
pub const SESSION_AWAY_SECONDS_MIN: u64 = 60;

/// Metadata requests remembered per session for exactly-once: more than any client has in flight
/// at a time, by far.
pub const SESSION_WINDOW_REQUESTS: usize = 256;

/// Bytes of stored metadata replies per session. Most replies have one byte; users with large
/// permissions have more. Older replies go first; their requests are then answered 59.
pub const SESSION_REPLIES_BYTES_MAX: usize = 32 * 1024;

/// Consumer groups that one client may be a member of.
pub const GROUPS_PER_SESSION_MAX: usize = 1_024;

/// Consumer groups of one topic.
pub const GROUPS_PER_TOPIC_MAX: usize = 4_096;

/// Partitions of one cluster: what one copy of the metadata holds in well under 1 GiB, and what one
/// purge of everything handles within seconds.
pub const PARTITIONS_MAX: usize = 2_000_000;

/// Users of one cluster.
pub const USERS_MAX: usize = 65_536;

/// Access tokens of one user unless configured.
pub const TOKENS_PER_USER_DEFAULT: u32 = 100;

/// Largest configurable number of access tokens of one user.
pub const TOKENS_PER_USER_MAX: u32 = 10_000;

/// Streams and topics that one user's permissions name: 16 k entries are 160 KiB in the log.
pub const PERMISSION_ENTRIES_MAX: usize = 16_384;

/// Bytes of a password hash in PHC form: Argon2 with its longest parameters needs about 200.
pub const PASSWORD_HASH_BYTES_MAX: usize = 1_024;

/// User names in bytes (protocol limit).
pub const USER_NAME_BYTES_MIN: usize = 3;
/// User names in bytes (protocol limit).
pub const USER_NAME_BYTES_MAX: usize = 50;
/// Passwords in bytes (protocol limit).
pub const PASSWORD_BYTES_MIN: usize = 3;
/// Passwords in bytes (protocol limit).
pub const PASSWORD_BYTES_MAX: usize = 100;
/// Names of access tokens in bytes (protocol limit).
pub const TOKEN_NAME_BYTES_MIN: usize = 3;
/// Names of access tokens in bytes (protocol limit).
pub const TOKEN_NAME_BYTES_MAX: usize = 30;

/// Recent changes kept per lane so that its reconciler need not scan; one that is further behind
/// scans once.
pub const LANE_FEED_ENTRIES_MAX: usize = 65_536;

/// Deleted keys remembered per lane until the lane has confirmed their deletion. Dropping the
/// oldest loses only which operation deleted them, not that they are deleted. Every checkpoint of
/// metadata carries them, so few are better: 64 KiB per lane.
pub const LANE_TOMBSTONES_MAX: usize = 4_096;

/// Diagnostic archives that are being made for one shard: reading the machine's files is not to
/// become a load on it.
pub const ARCHIVES_IN_FLIGHT_MAX: usize = 1;

/// Text of one section of a diagnostic archive: what a person reads, and an archive of all of them
/// fits into one frame many times over.
pub const ARCHIVE_SECTION_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Segments of one partition that retention removes by age and size in one pass: a topic whose
/// limit was lowered does not stop the disk with thousands of removals at once.
pub const RETENTION_SEGMENTS_PER_PASS_MAX: u32 = 16;

/// Milliseconds from one look at what consumers held back to the next: soon for a person, and an
/// offset that moves a thousand times in between costs one look.
pub const RETENTION_HELD_MILLIS: u64 = 1_000;

/// Milliseconds between two reports of a shard to metadata of what its lanes have committed: many
/// deletions share one report, and the wishes of one partition are forgotten before the next ones
/// are many.
pub const LANES_CONFIRMED_MILLIS: u64 = 100;

/// Segment deletions of one partition waiting for its lane.
pub const SEGMENT_WISHES_PER_PARTITION_MAX: usize = 16;

/// Connections of one node.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Streams of one cluster (protocol limit).
pub const STREAMS_MAX: usize = 1_048_576;

/// Topics of one stream (protocol limit).
pub const TOPICS_PER_STREAM_MAX: usize = 4_096;

/// Partitions that one request may create or delete (protocol limit).
pub const PARTITIONS_PER_REQUEST_MAX: u32 = 1_000;

/// Partition numbers of one topic (protocol limit).
pub const PARTITIONS_PER_TOPIC_MAX: u32 = 1_000_000;

/// Client requests parked for one partition that has not materialised (required behaviour B3).
pub const PARKED_REQUESTS_PER_PARTITION_MAX: usize = 128;

/// Bytes parked for one partition (required behaviour B3).
pub const PARKED_BYTES_PER_PARTITION_MAX: usize = 4 * 1024 * 1024;

/// Bytes parked on one shard (required behaviour B3).
pub const PARKED_BYTES_PER_SHARD_MAX: usize = 16 * 1024 * 1024;

/// Message bytes that one poll reply carries at most; below the 16 MiB that a WebSocket client
/// takes in one message, with room for headers. One batch is always returned, however large.
pub const POLL_REPLY_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Message payload (protocol limit).
pub const PAYLOAD_BYTES_MAX: usize = 64_000_000;

/// User headers of one message (protocol limit).
pub const USER_HEADERS_BYTES_MAX: usize = 100_000;

/// Option block (protocol limit).
pub const OPTIONS_BYTES_MAX: usize = 100_000;

/// Entries of one option block (protocol limit).
pub const OPTIONS_ENTRIES_MAX: usize = 1_024;

/// Offsets that a replicated lane reserves ahead per partition (required behaviour A3).
pub const OFFSET_RESERVATION_LEASE_DEFAULT: u64 = 65_536;

/// Largest lease: 16 M offsets, so that one crash skips at most that many.
pub const OFFSET_RESERVATION_LEASE_MAX: u64 = 16_777_216;

/// Least bytes of batches in a segment chunk that is not the last of its segment. Smaller tails
/// live in the lane's checkpoint, so ten thousand slow partitions cost no file each.
pub const SEGMENT_CHUNK_BYTES_MIN: usize = 64 * 1024;

/// By how much, at most, a partition's chunks are larger than the minimum; which part of it
/// follows from its key. Without it ten thousand partitions of equal load that were created
/// together would all close a chunk, and create a file, in the same second.
pub const SEGMENT_CHUNK_BYTES_SPREAD: usize = 64 * 1024;

/// One write to a segment file at most: large enough to reach the device's sequential rate, small
/// enough that a read queued behind it on the same file waits a few milliseconds.
pub const SEGMENT_WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Writes in flight of one partition: two keep the device busy, four absorb an uneven pool.
pub const SEGMENT_WRITES_IN_FLIGHT_MAX: usize = 4;

/// Bytes of closed chunks of one shard that may wait to be in a segment file before requests that
/// bring more wait in their lanes: less than the journal holds, so that memory and not only the
/// journal is bounded, and enough to outlast a second in which the device does something else.
pub const SEGMENT_UNWRITTEN_BYTES_MAX: usize = 384 * 1024 * 1024;

/// Bytes of recently flushed or read chunks that one shard keeps, so that consumers a few seconds
/// behind read from memory.
pub const SEGMENT_CACHE_BYTES_DEFAULT: usize = 256 * 1024 * 1024;

/// Bytes of segment indexes that one shard keeps: 2,000 chunks (128 MiB of small batches) cost
/// 64 KiB, so this covers 64 GiB of segments being read at once.
pub const SEGMENT_INDEX_CACHE_BYTES_DEFAULT: usize = 32 * 1024 * 1024;

/// One read while an index is rebuilt: a few chunk headers of small batches at once.
pub const SEGMENT_SCAN_BYTES: u64 = 256 * 1024;

/// Bytes of one log's operations that a start carries into the new generation only because the
/// older of two checkpoints needs them. A log that has more of them between two checkpoints takes
/// the next one within seconds; until then its newest checkpoint is the only one, and the start
/// does not write the whole journal again.
pub const CHECKPOINT_OVERLAP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One checkpoint file: a bound for what boot reads into memory. Ten thousand partitions with a
/// full open chunk each need at most 1.25 GiB.
pub const CHECKPOINT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Checkpoints that one shard has under way: as many as the pool has threads to wait for the device
/// with, and one that is being captured.
pub const CHECKPOINTS_IN_FLIGHT_MAX: usize = 4;

/// Alignment of journal groups and segment chunks on disk: a sector is never rewritten after it
/// was synced, and direct I/O needs it.
pub const DISK_ALIGNMENT: usize = 4_096;

/// One journal file. Small enough to zero-fill in the background, large enough for the largest
/// record with room to spare.
pub const JOURNAL_FILE_BYTES: u64 = 128 * 1024 * 1024;

/// Journal files with live records, per shard: one gigabyte, which a restart reads back in a second
/// from a fast device. With five, checkpoints under full load came too late and records had to be
/// carried forward: a quarter more bytes written than the two times of the design.
pub const JOURNAL_FILES_MAX: u32 = 8;

/// Bytes gathered for the journal at which a group is written although a flush is in flight: a
/// write this long keeps the device busier than the flush does.
pub const JOURNAL_GATHER_BYTES_MAX: u64 = 1024 * 1024;

/// Records of one flush group end here, unless a single record is longer: one write should not
/// keep the next one waiting for more than a few milliseconds.
pub const JOURNAL_GROUP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Records of one flush group: bounds the trailer to ten blocks.
pub const JOURNAL_GROUP_RECORDS_MAX: usize = 1_000;

/// Groups handed to the journal's writer and not yet written: one being written and one that
/// keeps the writer from waiting; more would only stop small records from sharing groups.
pub const JOURNAL_WRITES_IN_FLIGHT_MAX: usize = 2;

/// Unsynced bytes of `replicated` records at which a flush is made although none waits for it.
pub const JOURNAL_FLUSH_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Milliseconds without appends after which a journal flushes what nobody waits for and marks it as
/// synced: longer than a request of a busy client takes, short enough to be nothing to a person.
pub const JOURNAL_REST_MILLIS: u64 = 5;

/// Records read back at once while a journal file is carried forward.
pub const JOURNAL_CARRY_READS_MAX: usize = 16;

/// Time between asking the core to stop and stopping without its consent, in seconds.
pub const STOP_SECONDS_MAX: u64 = 5;

/// Requests of one connection that are not answered yet. Published clients keep one, the next
/// generation of the protocol allows 256; twice that is a flood.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 512;

/// Seconds after which a connection that has not logged in is closed: a login takes one exchange.
pub const LOGIN_DEADLINE_SECONDS: u64 = 5;

/// Addresses whose failed logins are remembered.
pub const FAILED_LOGIN_ADDRESSES_MAX: usize = 4_096;

/// Users whose verified password one shard remembers, as a keyed hash of 200 bytes.
pub const REMEMBERED_PASSWORDS_MAX: usize = 16_384;

/// Metadata commands that wait for room in the pipeline: one per client of a large fleet that
/// reconnects at once.
pub const METADATA_COMMANDS_QUEUED_MAX: usize = 16_384;

/// Lost connections, expired sessions or overdue hand-overs that one command names: below 64 KiB.
pub const HOUSEKEEPING_ENTRIES_MAX: usize = 1_024;

/// Seconds without a frame after which a member of a consumer group is evicted: 1.2 times the
/// heartbeat of 30 s, as published clients expect.
pub const HEARTBEAT_SECONDS_MAX: u64 = 36;

/// Seconds that the old owner of a partition has to commit what it has polled.
pub const HANDOVER_SECONDS_MAX: u64 = 30;

/// Topics for which a shard remembers where the next balanced send goes.
pub const BALANCED_TOPICS_MAX: usize = 65_536;

const _: () = assert!(PREPARE_BODY_BYTES_MAX > FRAME_BYTES_MAX);
const _: () = assert!((JOURNAL_FILE_BYTES as usize) > PREPARE_BODY_BYTES_MAX + 1024 * 1024);
const _: () = assert!(PARKED_BYTES_PER_PARTITION_MAX * 4 == PARKED_BYTES_PER_SHARD_MAX);
const _: () = assert!(FRAME_BYTES_BEFORE_LOGIN_MAX > CLIENT_HEADER_BYTES);

// ---- runtime: sockets, threads, files ----

/// Bytes of client frames that one shard may have accepted and not yet answered. Reached: the
/// shard reads no further frame until answers leave, which pushes back on the sockets. Four
/// maximum frames, so that one giant never stops everybody.
pub const INGEST_BYTES_PER_SHARD_MAX: usize = 4 * FRAME_BYTES_MAX;

/// The same for frames smaller than [`SOCKET_READ_BYTES`], which have a budget of their own:
/// clients that announce large frames and do not send them hold up no login, ping or small send.
pub const INGEST_SMALL_BYTES_PER_SHARD_MAX: usize = FRAME_BYTES_MAX;

/// Frames of one connection that may wait for an answer; more stay in the socket. Published
/// clients have one in flight, pipelining ones a few.
pub const REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX: usize = 64;

/// Bytes waiting to be written to one connection whose peer does not read. Room for four maximum
/// poll replies; a peer that is further behind is closed.
pub const OUTPUT_BYTES_PER_CONNECTION_MAX: usize = 64 * 1024 * 1024;

/// Bytes of answers after which a connection starts no further request until its client has taken
/// most of them: one maximum poll reply does not stop the next, and a client that asks for much at
/// once stays far below [`OUTPUT_BYTES_PER_CONNECTION_MAX`].
pub const OUTPUT_HOLD_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that may wait when a client counts as having taken what was sent: what a socket takes in
/// some milliseconds, so that the next answer is there before it runs dry.
pub const OUTPUT_TAKEN_BYTES: usize = 4 * 1024 * 1024;

/// Seconds during which a connection with waiting output may accept no byte before it is closed.
pub const OUTPUT_STALL_SECONDS_MAX: u64 = 30;

/// Seconds a frame may take from its first byte on top of its size divided by
/// [`RECEIVE_BYTES_PER_SECOND_MIN`].
pub const FRAME_SECONDS_MAX: u64 = 10;

/// Slowest rate at which a frame may arrive: slower peers only hold memory.
pub const RECEIVE_BYTES_PER_SECOND_MIN: u64 = 32 * 1024;

/// Seconds that a piece of a large frame may take while other large frames wait for its room.
/// Whoever announces and does not send is cut this soon, and nobody is cut while there is room.
pub const LARGE_FRAME_CONTENDED_SECONDS_MAX: u64 = 3;

/// Seconds without a whole frame after which a connection that has not logged in is closed: twice
/// the interval at which published clients ping.
pub const LOGIN_SECONDS_MAX: u64 = 10;

/// Connections of one client address.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 12_000;

/// Connections of one node that have not logged in: enough for a herd of clients that reconnects
/// after a restart, few enough that their buffers do not matter.
pub const CONNECTIONS_BEFORE_LOGIN_MAX: usize = 12_000;

/// Bytes read from a socket at once while its frames are small.
pub const SOCKET_READ_BYTES: usize = 64 * 1024;

/// Events that one turn of a shard's loop handles before effects leave: bounds latency.
pub const EVENTS_PER_TURN_MAX: usize = 1_024;

/// Messages waiting between two shards, per class. Beyond, the sender keeps them and stops
/// reading client frames.
pub const SHARD_QUEUE_MESSAGES_MAX: usize = 4_096;

/// Password jobs that wait on one node: at 30 ms each and two threads the last waits 8 s.
pub const PASSWORD_JOBS_MAX: usize = 512;

/// Password jobs that wait for one address.
pub const PASSWORD_JOBS_PER_ADDRESS_MAX: usize = 256;

/// Threads that hash passwords: 38 MiB of memory at work, and never all cores.
pub const PASSWORD_THREADS: usize = 2;

/// Threads per shard for segments, checkpoints and cold reads.
pub const DISK_POOL_THREADS: usize = 3;

/// Journal writes that one shard has at work at a time: while one waits for the device the next is
/// copied into place.
pub const JOURNAL_WRITERS: usize = 2;

/// Open file handles that one node caches; further files are opened on demand.
pub const FILE_HANDLES_MAX: usize = 512;

/// Free space below which segments and journal files grow no further. What is left is for
/// checkpoints: without one nothing can be deleted, so a disk that is full to the last byte would
/// stay full. A thousand checkpoints of lanes with many small partitions fit.
pub const DISK_RESERVE_BYTES: u64 = 64 * 1024 * 1024;

/// Aligned scratch memory that an I/O thread keeps between requests.
pub const IO_SCRATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Series of consumer lag that one shard exports: each costs some 200 bytes of text per look. What
/// is beyond is counted, and the statistics of the protocol still tell each of them.
pub const LAG_SERIES_PER_SHARD_MAX: usize = 2_000;

const _: () = assert!(OUTPUT_TAKEN_BYTES < OUTPUT_HOLD_BYTES);
// What was pushed while the word that the client has taken it was on its way counts twice.
const _: () = assert!(
    OUTPUT_TAKEN_BYTES + 2 * OUTPUT_HOLD_BYTES + POLL_REPLY_BYTES_MAX
        < OUTPUT_BYTES_PER_CONNECTION_MAX
);
const _: () = assert!(INGEST_BYTES_PER_SHARD_MAX >= FRAME_BYTES_MAX);
const _: () = assert!(OUTPUT_BYTES_PER_CONNECTION_MAX > POLL_REPLY_BYTES_MAX);
const _: () = assert!(PASSWORD_JOBS_PER_ADDRESS_MAX < PASSWORD_JOBS_MAX);
