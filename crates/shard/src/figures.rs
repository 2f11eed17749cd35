//! What a shard tells about itself when it is asked, for metrics and for the question whether the
//! node is ready.
//!
//! Everything here is a copy of counters that the parts keep anyway; only the lag of consumers is
//! worked out when it is asked for, over what this shard hosts and at most
//! [`LAG_SERIES_PER_SHARD_MAX`] of it. Nothing is changed and nothing is decided here.

use crate::checkpointer::CheckpointCounters;
use crate::event::{HostStats, LogEntry};
use crate::front::{FrontCounters, RequestTally};
use crate::lane::api::ConsumerKey;
use crate::lane::{Lane, LaneCounters};
use crate::log_host::LogHost;
use crate::parking::ParkingCounters;
use crate::partition::Partition;
use crate::shard::Shard;
use borzoi_consensus::{Counters as ReplicaCounters, Role};
use borzoi_metadata::{Stream, Topic, Totals};
use borzoi_storage::cache::CacheCounters;
use borzoi_storage::journal::{JournalUsage, Pressure};
use borzoi_types::limits::LAG_SERIES_PER_SHARD_MAX;
use borzoi_types::{GroupId, PartitionId, ShardId, StreamId, TopicId};

/// Things that went wrong with stored data and were handled, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TroubleCounters {
    /// Disk requests that failed without stopping the node.
    pub disk: u64,
    /// Reads that found bytes which are not what was written.
    pub damage: u64,
    /// Offset jumps planned.
    pub offset_jumps: u64,
    /// Partitions that jumped.
    pub partitions_jumped: u64,
}

impl TroubleCounters {
    /// Counts a log record that tells of trouble.
    pub(crate) fn note(&mut self, entry: &LogEntry) {
        match entry {
            LogEntry::DiskTrouble { .. } => self.disk += 1,
            LogEntry::Damage { .. } => self.damage += 1,
            LogEntry::OffsetJump { partitions, .. } => {
                self.offset_jumps += 1;
                self.partitions_jumped += partitions;
            }
            LogEntry::LogServing { .. }
            | LogEntry::JournalUsed { .. }
            | LogEntry::Checkpoint { .. }
            | LogEntry::Client { .. }
            | LogEntry::Text(_) => {}
        }
    }
}

/// What waits in the lanes of a shard, and how many of them serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogFigures {
    /// Logs hosted here, the metadata log included.
    pub logs: u64,
    /// Of these: led here and serving.
    pub serving: u64,
    /// Of these: serving, or following a primary.
    pub ready: u64,
    /// Requests that wait to be prepared.
    pub requests_queued: u64,
    /// Their bytes.
    pub bytes_queued: u64,
    /// Operations that are prepared and not committed.
    pub operations_in_flight: u64,
}

impl LogFigures {
    fn add(&mut self, serves: bool, host: &LogHost) {
        let follows = matches!(host.replica().role(), Role::Backup { .. });
        self.logs += 1;
        self.serving += u64::from(serves);
        self.ready += u64::from(serves || follows);
    }
}

/// What the partitions hosted by a shard hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartitionFigures {
    /// Partitions.
    pub partitions: u64,
    /// Their segments.
    pub segments: u64,
    /// Their messages.
    pub messages: u64,
    /// The bytes of these as wire batches.
    pub bytes: u64,
}

/// Who lags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LagOf {
    /// A plain consumer, by its number or the hash of its name.
    Consumer(u32),
    /// A consumer group.
    Group(GroupId),
}

/// How far one consumer is behind in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lag {
    /// Stream.
    pub stream: StreamId,
    /// Name of the stream.
    pub stream_name: String,
    /// Topic.
    pub topic: TopicId,
    /// Name of the topic.
    pub topic_name: String,
    /// Partition.
    pub partition: PartitionId,
    /// Who.
    pub of: LagOf,
    /// Name of the group, or the number of the consumer.
    pub name: String,
    /// Offsets after the stored one that exist or existed, holes included.
    pub offsets: u64,
}

/// Everything one shard tells.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardFigures {
    /// Which shard.
    pub shard: ShardId,
    /// Whether it starts requests.
    pub is_serving: bool,
    /// Requests by command and result.
    pub requests: RequestTally,
    /// Counters of the client side.
    pub front: FrontCounters,
    /// Open connections.
    pub connections: u64,
    /// Identities that are signed in here.
    pub sessions_bound: u64,
    /// Requests that wait for something.
    pub requests_waiting: u64,
    /// Its logs.
    pub logs: LogFigures,
    /// Counters of its lanes, added up.
    pub lanes: LaneCounters,
    /// Counters of its replicas, added up.
    pub replicas: ReplicaCounters,
    /// What it hosts.
    pub partitions: PartitionFigures,
    /// Requests parked.
    pub parked: u64,
    /// Bytes charged for these.
    pub parked_bytes: u64,
    /// What parking did.
    pub parking: ParkingCounters,
    /// The journal.
    pub journal: JournalUsage,
    /// 0 when the journal has room, 1 when checkpoints are wanted, 2 when it is full.
    pub journal_pressure: u64,
    /// The segment cache.
    pub cache: CacheCounters,
    /// Its bytes: chunks, indexes.
    pub cache_bytes: (u64, u64),
    /// Checkpoints.
    pub checkpoints: CheckpointCounters,
    /// Disk requests under way, those of the journal not counted.
    pub disk_requests: u64,
    /// Whether writes are refused because the disk is full.
    pub is_disk_full: bool,
    /// What went wrong.
    pub troubles: TroubleCounters,
    /// What metadata holds; the same on every shard.
    pub totals: Totals,
    /// Users; the same on every shard.
    pub users: u64,
    /// Sessions that metadata remembers; the same on every shard.
    pub sessions: u64,
    /// The newest figures of machine and process; the same on every shard.
    pub host: HostStats,
    /// Lags, by stream, topic, partition and consumer.
    pub lags: Vec<Lag>,
    /// Lags beyond the limit, which are not told.
    pub lags_omitted: u64,
}

impl Shard {
    /// Copies everything. Takes time in proportion to the logs hosted here and the partitions
    /// whose offsets are stored.
    #[must_use]
    pub fn figures(&self) -> ShardFigures {
        let (front, back) = (self.front(), self.back());
        let shared = back.shared();
        let mut figures = ShardFigures {
            shard: back.options().shard,
            is_serving: front.is_serving(),
            requests: front.tally().clone(),
            front: *front.counters(),
            connections: front.connections() as u64,
            sessions_bound: front.sessions_bound() as u64,
            requests_waiting: front.waiting() as u64,
            logs: LogFigures::default(),
            lanes: LaneCounters::default(),
            replicas: ReplicaCounters::default(),
            partitions: PartitionFigures::default(),
            parked: shared.parking.len() as u64,
            parked_bytes: shared.parking.bytes() as u64,
            parking: shared.parking.counters(),
            journal: shared.journal.usage(),
            journal_pressure: match shared.journal.pressure() {
                Pressure::Normal => 0,
                Pressure::CheckpointWanted(_) => 1,
                Pressure::Full(_) => 2,
            },
            cache: shared.cache.counters(),
            cache_bytes: (shared.cache.bytes().0 as u64, shared.cache.bytes().1 as u64),
            checkpoints: back.checkpointer().counters(),
            disk_requests: shared.tickets.len() as u64,
            is_disk_full: shared.no_space.is_some(),
            troubles: shared.troubles,
            totals: front.metadata().totals(),
            users: front.metadata().users().count() as u64,
            sessions: front.metadata().sessions().len() as u64,
            host: front.host_stats().clone(),
            lags: Vec::new(),
            lags_omitted: 0,
        };
        if let Some(metadata) = back.metadata_log() {
            figures.logs.add(metadata.is_serving(), metadata.host());
            figures.replicas = metadata.host().replica().counters();
        }
        for lane in back.lanes() {
            figures.add_lane(lane);
        }
        self.add_lags(&mut figures);
        figures
    }

    fn add_lags(&self, figures: &mut ShardFigures) {
        let metadata = self.front().metadata();
        for stream in metadata.streams() {
            for topic in stream.topics.values() {
                for (number, key) in (0..).zip(&topic.partitions) {
                    let Some(record) = metadata.partition(*key) else { continue };
                    let lane = self.back().lane(record.lane);
                    let found = lane.and_then(|lane| lane.state().partition(*key));
                    if let Some(found) = found {
                        figures.add_partition_lags(stream, topic, PartitionId(number), found);
                    }
                }
            }
        }
    }
}

impl ShardFigures {
    fn add_lane(&mut self, lane: &Lane) {
        let waiting = lane.waiting();
        self.logs.add(lane.is_serving(), lane.host());
        self.logs.requests_queued += waiting.requests_queued;
        self.logs.bytes_queued += waiting.bytes_queued;
        self.logs.operations_in_flight += waiting.operations_in_flight;
        add_lane_counters(&mut self.lanes, lane.counters());
        add_replica_counters(&mut self.replicas, lane.host().replica().counters());
        for (_, partition) in lane.state().partitions() {
            let counters = partition.log.counters();
            self.partitions.partitions += 1;
            self.partitions.segments += u64::from(counters.segments);
            self.partitions.messages += counters.messages;
            self.partitions.bytes += counters.bytes;
        }
    }

    fn add_partition_lags(
        &mut self,
        stream: &Stream,
        topic: &Topic,
        number: PartitionId,
        partition: &Partition,
    ) {
        let plain = partition.offsets().filter_map(|(consumer, stored)| match consumer {
            ConsumerKey::Consumer(number) => Some((LagOf::Consumer(number), Some(stored))),
            ConsumerKey::Group(_) => None,
        });
        // A group that has stored nothing yet lags by all there is.
        let groups = topic
            .groups
            .keys()
            .map(|group| (LagOf::Group(*group), partition.offset(ConsumerKey::Group(*group))));
        let (first, next) = (partition.log.first_offset().0, partition.log.next_offset().0);
        for (of, stored) in plain.chain(groups) {
            if self.lags.len() >= LAG_SERIES_PER_SHARD_MAX {
                self.lags_omitted += 1;
                continue;
            }
            let name = match of {
                LagOf::Consumer(number) => number.to_string(),
                LagOf::Group(group) => topic.groups[&group].name.to_string(),
            };
            let continues = stored.map_or(first, |stored| stored.0.saturating_add(1).max(first));
            self.lags.push(Lag {
                stream: stream.id,
                stream_name: stream.name.to_string(),
                topic: topic.id,
                topic_name: topic.name.to_string(),
                partition: number,
                of,
                name,
                offsets: next.saturating_sub(continues),
            });
        }
    }
}

fn add_lane_counters(sum: &mut LaneCounters, more: LaneCounters) {
    sum.prepared += more.prepared;
    sum.committed += more.committed;
    sum.batches += more.batches;
    sum.messages += more.messages;
    sum.duplicates += more.duplicates;
    sum.refused_busy += more.refused_busy;
    sum.stale += more.stale;
    sum.reservations += more.reservations;
}

fn add_replica_counters(sum: &mut ReplicaCounters, more: ReplicaCounters) {
    sum.view_changes += more.view_changes;
    sum.views_started += more.views_started;
    sum.loss_epochs += more.loss_epochs;
    sum.step_downs += more.step_downs;
    sum.rejected += more.rejected;
    sum.stale += more.stale;
    sum.buffered += more.buffered;
    sum.buffer_overflows += more.buffer_overflows;
    sum.prepares_requested += more.prepares_requested;
    sum.prepares_repaired += more.prepares_repaired;
    sum.headers_repaired += more.headers_repaired;
    sum.prepares_served += more.prepares_served;
    sum.state_transfers += more.state_transfers;
    sum.discarded += more.discarded;
    sum.fetches_failed += more.fetches_failed;
}
