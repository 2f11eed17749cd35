//! The metrics with one value per shard or per node: name, kind, meaning, where it is found.

use super::cores_used;
use super::text::Kind::{self, Counter, Gauge};
use borzoi_runtime::{ShardReport, ShellFigures};
use borzoi_shard::ShardFigures;
use borzoi_types::Histogram;

/// A metric with one value per shard.
pub struct PerShard {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    pub value: fn(&ShardReport) -> Option<u64>,
}

/// A histogram per shard.
pub struct PerShardTimes {
    pub name: &'static str,
    pub help: &'static str,
    pub value: fn(&ShellFigures) -> &Histogram,
}

/// A metric of the whole node, which any shard knows.
pub struct NodeMetric {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub value: fn(&ShardFigures) -> String,
}

macro_rules! core {
    (
        $name:literal, $kind:ident, $help:literal,
        $(($label:literal, $value:literal),)* |$f:ident| $e:expr
    ) => {
        PerShard {
            name: $name,
            kind: $kind,
            help: $help,
            labels: &[$(($label, $value)),*],
            value: |report| report.core.as_deref().map(|$f: &ShardFigures| $e),
        }
    };
}

macro_rules! shell {
    ($name:literal, $kind:ident, $help:literal, $field:ident) => {
        PerShard {
            name: $name,
            kind: $kind,
            help: $help,
            labels: &[],
            value: |report| Some(report.shell.$field),
        }
    };
}

macro_rules! of_node {
    ($name:literal, $kind:ident, $help:literal, |$f:ident| $e:expr) => {
        NodeMetric { name: $name, kind: $kind, help: $help, value: |$f| ($e).to_string() }
    };
}

/// See [`NodeMetric`].
#[rustfmt::skip]
pub const NODE: &[NodeMetric] = &[
    of_node!("streams", Gauge, "Streams.", |f| f.totals.streams),
    of_node!("topics", Gauge, "Topics.", |f| f.totals.topics),
    of_node!("partitions", Gauge, "Partitions.", |f| f.totals.partitions),
    of_node!("users", Gauge, "Users.", |f| f.users),
    of_node!("borzoi_consumer_groups", Gauge, "Consumer groups.", |f| f.totals.groups),
    of_node!("borzoi_sessions", Gauge, "Client sessions that are remembered, connected or not.",
        |f| f.sessions),
    of_node!("process_cpu_cores_used", Gauge, "Cores kept busy over the last second.",
        |f| cores_used(&f.host)),
    of_node!("process_resident_memory_bytes", Gauge, "Resident memory.", |f| f.host.memory_usage),
    of_node!("process_start_time_seconds", Gauge, "Start of the process, seconds since 1970.",
        |f| f.host.start_time_micros / 1_000_000),
    of_node!("process_threads", Gauge, "Threads.", |f| f.host.threads_count),
    of_node!("process_open_fds", Gauge, "Open file descriptors.", |f| f.host.open_files),
    of_node!("process_max_fds", Gauge, "File descriptors that may be open.",
        |f| f.host.open_files_limit),
    of_node!("process_storage_read_bytes_total", Counter, "Bytes read from storage.",
        |f| f.host.read_bytes),
    of_node!("process_storage_written_bytes_total", Counter, "Bytes written to storage.",
        |f| f.host.written_bytes),
    of_node!("borzoi_data_disk_free_bytes", Gauge, "Free bytes under the data directory.",
        |f| f.host.free_disk_space),
    of_node!("borzoi_data_disk_bytes", Gauge, "Size of that file system.",
        |f| f.host.total_disk_space),
];

/// See [`PerShard`].
#[rustfmt::skip]
pub const PER_SHARD: &[PerShard] = &[
    core!("borzoi_shard_serving", Gauge, "Whether the shard starts requests.",
        |f| u64::from(f.is_serving)),
    core!("borzoi_connections", Gauge, "Open connections.", |f| f.connections),
    core!("borzoi_sessions_bound", Gauge, "Sessions that are signed in on a connection.",
        |f| f.sessions_bound),
    shell!("borzoi_connections_opened_total", Counter, "Connections accepted.", connections_opened),
    shell!("borzoi_connections_closed_total", Counter, "Connections that ended.",
        connections_closed),
    shell!("borzoi_connections_cut_total", Counter,
        "Of these: ended for breaking a rule or a time limit.", connections_cut),
    core!("borzoi_connections_refused_total", Counter, "Connections turned away by a cap.",
        |f| f.front.connections_refused),
    core!("borzoi_connections_limited_total", Counter, "Connections closed at a limit.",
        |f| f.front.closed_by_limit),
    shell!("borzoi_received_frames_total", Counter, "Whole frames received.", frames_received),
    shell!("borzoi_received_bytes_total", Counter, "Bytes of whole frames received.",
        bytes_received),
    shell!("borzoi_sent_bytes_total", Counter, "Bytes that client sockets have taken.", bytes_sent),
    shell!("borzoi_ingest_bytes", Gauge, "Bytes of frames accepted and not answered yet.",
        ingest_bytes),
    core!("borzoi_logins_failed_total", Counter, "Logins refused for their credentials.",
        |f| f.front.logins_failed),
    core!("borzoi_logins_remembered_total", Counter,
        "Logins whose password was recognised without hashing it.", |f| f.front.logins_remembered),
    core!("borzoi_commit_questions_total", Counter,
        "Questions for the commit point of the metadata log.", |f| f.front.commit_questions),
    core!("borzoi_requests_waiting", Gauge, "Requests that wait for something.",
        |f| f.requests_waiting),
    core!("borzoi_lane_queue_requests", Gauge, "Requests that wait to be prepared by their lane.",
        |f| f.logs.requests_queued),
    core!("borzoi_lane_queue_bytes", Gauge, "Their bytes.", |f| f.logs.bytes_queued),
    core!("borzoi_lane_operations_in_flight", Gauge, "Operations prepared and not committed.",
        |f| f.logs.operations_in_flight),
    core!("borzoi_logs", Gauge, "Logs hosted, the metadata log included.", |f| f.logs.logs),
    core!("borzoi_logs_serving", Gauge, "Of these: led here and serving.", |f| f.logs.serving),
    core!("borzoi_operations_prepared_total", Counter, "Operations prepared by lanes led here.",
        |f| f.lanes.prepared),
    core!("borzoi_operations_committed_total", Counter, "Operations of lanes committed here.",
        |f| f.lanes.committed),
    core!("borzoi_batches_total", Counter, "Batches committed.", |f| f.lanes.batches),
    core!("borzoi_messages_total", Counter, "Messages committed.", |f| f.lanes.messages),
    core!("borzoi_send_duplicates_total", Counter,
        "Sends answered with the stored answer of an earlier one.", |f| f.lanes.duplicates),
    core!("borzoi_lane_refused_busy_total", Counter, "Requests refused because a lane was full.",
        |f| f.lanes.refused_busy),
    core!("borzoi_reservations_total", Counter, "Reservations of offsets written.",
        |f| f.lanes.reservations),
    core!("borzoi_partitions_hosted", Gauge, "Partitions hosted.", |f| f.partitions.partitions),
    core!("borzoi_stored_bytes", Gauge, "Bytes of their messages, as batches.",
        |f| f.partitions.bytes),
    core!("partition_frames_rejected_stale_total", Counter,
        "Requests for a partition that was deleted.", |f| f.lanes.stale),
    core!("partition_requests_denied_transient_total", Counter,
        "\"Not now\" answers (57, 58) handed to a connection.", |f| f.front.denied_transient),
    core!("frame_drops_total", Counter,
        "Requests not parked because a limit was reached; they were answered.",
        ("variant", "partition"), ("reason", "park_overflow"), |f| f.parking.overflows),
    core!("borzoi_parked_requests", Gauge, "Requests that wait for their partition to exist.",
        |f| f.parked),
    core!("borzoi_parked_bytes", Gauge, "Bytes charged for them.", |f| f.parked_bytes),
    core!("borzoi_parked_total", Counter, "Requests ever parked.", |f| f.parking.parked),
    core!("borzoi_parked_expired_total", Counter, "Parked requests answered for their age.",
        |f| f.parking.expired),
    core!("borzoi_journal_used_bytes", Gauge, "Bytes taken in live journal files.",
        |f| f.journal.bytes_used),
    core!("borzoi_journal_capacity_bytes", Gauge, "Bytes that the journal may take.",
        |f| f.journal.bytes_capacity),
    core!("borzoi_journal_files_live", Gauge, "Journal files with live records.",
        |f| u64::from(f.journal.files_live)),
    core!("borzoi_journal_files_spare", Gauge, "Journal files at hand.",
        |f| u64::from(f.journal.files_spare)),
    core!("borzoi_journal_pressure", Gauge, "0: room; 1: checkpoints are wanted; 2: full.",
        |f| f.journal_pressure),
    core!("borzoi_journal_records_total", Counter, "Records written.", |f| f.journal.records),
    core!("borzoi_journal_groups_total", Counter, "Flush groups written.", |f| f.journal.groups),
    core!("borzoi_journal_written_bytes_total", Counter, "Bytes written to the journal.",
        |f| f.journal.bytes_written),
    core!("borzoi_journal_flushes_total", Counter, "Flushes completed.", |f| f.journal.flushes),
    core!("borzoi_journal_flushes_with_records_total", Counter,
        "Of these: that covered a record.", |f| f.journal.flushes_with_records),
    core!("borzoi_journal_records_carried_total", Counter,
        "Records carried forward out of files to be reused.", |f| f.journal.records_carried),
    core!("borzoi_journal_carries_failed_total", Counter,
        "Files not carried forward because a record could not be read.",
        |f| f.journal.carries_failed),
    core!("borzoi_journal_spares_refused_total", Counter,
        "Journal files that the disk refused to make.", |f| f.journal.spares_refused),
    core!("borzoi_checkpoints_total", Counter, "Checkpoints that became durable.",
        |f| f.checkpoints.durable),
    core!("borzoi_checkpoints_abandoned_total", Counter, "Checkpoints given up for lack of space.",
        |f| f.checkpoints.abandoned),
    core!("borzoi_cache_hits_total", Counter, "Reads that found their chunk in memory.",
        |f| f.cache.chunk_hits),
    core!("borzoi_cache_misses_total", Counter, "Reads that did not.", |f| f.cache.chunk_misses),
    core!("borzoi_cache_evictions_total", Counter, "Chunks and indexes thrown out.",
        |f| f.cache.evictions),
    core!("borzoi_cache_bytes", Gauge, "Bytes of chunks in memory.", |f| f.cache_bytes.0),
    core!("borzoi_cache_index_bytes", Gauge, "Bytes of indexes in memory.", |f| f.cache_bytes.1),
    core!("borzoi_disk_requests", Gauge, "Disk requests under way, the journal's not counted.",
        |f| f.disk_requests),
    core!("borzoi_disk_full", Gauge, "Whether writes are refused because the disk is full.",
        |f| u64::from(f.is_disk_full)),
    core!("borzoi_disk_errors_total", Counter, "Disk requests that failed and were handled.",
        |f| f.troubles.disk),
    core!("borzoi_damaged_reads_total", Counter,
        "Reads that found other bytes than were written.", |f| f.troubles.damage),
    core!("borzoi_offset_jumps_total", Counter, "Lanes that skipped reserved offsets.",
        |f| f.troubles.offset_jumps),
    core!("borzoi_offset_jump_partitions_total", Counter, "Partitions that did.",
        |f| f.troubles.partitions_jumped),
    core!("borzoi_view_changes_total", Counter, "Views entered by logs.",
        |f| f.replicas.view_changes),
    core!("borzoi_views_started_total", Counter, "Views begun as primary.",
        |f| f.replicas.views_started),
    core!("borzoi_step_downs_total", Counter, "Times a lead was given up.",
        |f| f.replicas.step_downs),
    core!("borzoi_loss_epochs_total", Counter, "Views begun with a declared loss.",
        |f| f.replicas.loss_epochs),
    core!("borzoi_replica_messages_rejected_total", Counter,
        "Messages of peers that contradict what is known.", |f| f.replicas.rejected),
    core!("borzoi_replica_messages_stale_total", Counter, "Messages of older views.",
        |f| f.replicas.stale),
    core!("borzoi_prepares_buffered_total", Counter, "Prepares that came ahead of a gap.",
        |f| f.replicas.buffered),
    core!("borzoi_prepare_buffer_overflows_total", Counter,
        "Of these: not kept; repair fetches them.", |f| f.replicas.buffer_overflows),
    core!("borzoi_repair_requested_total", Counter, "Prepares asked of peers.",
        |f| f.replicas.prepares_requested),
    core!("borzoi_repair_prepares_total", Counter, "Prepares repaired.",
        |f| f.replicas.prepares_repaired),
    core!("borzoi_repair_headers_total", Counter, "Headers repaired.",
        |f| f.replicas.headers_repaired),
    core!("borzoi_repair_served_total", Counter, "Prepares given to peers.",
        |f| f.replicas.prepares_served),
    core!("borzoi_state_transfers_total", Counter, "State transfers asked for.",
        |f| f.replicas.state_transfers),
    core!("borzoi_operations_discarded_total", Counter,
        "Uncommitted operations discarded by a view change.", |f| f.replicas.discarded),
    core!("borzoi_prepare_reads_failed_total", Counter,
        "Prepares that could not be read back from the journal.", |f| f.replicas.fetches_failed),
];

/// See [`PerShardTimes`].
pub const PER_SHARD_TIMES: &[PerShardTimes] = &[
    PerShardTimes {
        name: "borzoi_journal_write_duration_seconds",
        help: "Time of one journal write.",
        value: |shell| &shell.journal_writes,
    },
    PerShardTimes {
        name: "borzoi_journal_flush_duration_seconds",
        help: "Time of one journal flush.",
        value: |shell| &shell.journal_flushes,
    },
    PerShardTimes {
        name: "borzoi_disk_request_duration_seconds",
        help: "Time of one request of the disk pool: segments, checkpoints, cold reads.",
        value: |shell| &shell.pool_requests,
    },
];
