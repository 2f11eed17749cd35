//! Statistics and the catalogue of options (wire protocol, section 9.2).
//!
//! Statistics of a cluster: messages, sizes, clients and everything metadata holds are those of the
//! whole cluster; processor, memory and disk are those of the node that was asked.

use super::clients::Question;
use super::reads::or_return;
use super::records::{self, Sums};
use super::request::{Caller, Known, Step};
use super::{Cx, Front};
use borzoi_metadata::{Action, topic_catalogue};
use borzoi_types::Micros;
use borzoi_wire::body::{OptionsScope, Stats};
use borzoi_wire::{ProtocolVersion, Reply, Text};

/// Sums over all partitions.
pub(crate) type StatsSums = Sums;

impl Front {
    /// Counters come first, then the connections of the other shards.
    pub(super) fn get_stats(&mut self, caller: &Caller, known: Known<'_>, cx: &mut Cx<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetStats));
        let topics = || self.metadata.streams().flat_map(|stream| stream.topics.values());
        let mut sums = Sums::default();
        match known.counts {
            Some(counts) => {
                for topic in topics() {
                    let of_topic = records::topic_sums(topic, counts);
                    sums.bytes += of_topic.bytes;
                    sums.messages += of_topic.messages;
                    sums.segments += of_topic.segments;
                }
            }
            None => {
                let keys = records::keys_of(&self.metadata, topics());
                if !keys.is_empty() {
                    return Step::Counters(keys);
                }
            }
        }
        self.ask_clients(caller, Question::Count(sums), cx)
    }

    pub(super) fn stats(&self, sums: StatsSums, clients: usize) -> Reply {
        let host = &self.host_stats;
        let totals = self.metadata.totals();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Reply::Stats(Box::new(Stats {
            process_id: host.process_id,
            process_cpu_percent: host.cpu_usage,
            total_cpu_percent: host.total_cpu_usage,
            process_memory_bytes: host.memory_usage,
            total_memory_bytes: host.total_memory,
            available_memory_bytes: host.available_memory,
            run_time_us: host.run_time_micros,
            start_time: Micros(host.start_time_micros),
            read_bytes: host.read_bytes,
            written_bytes: host.written_bytes,
            messages_size_bytes: sums.bytes,
            streams_count: count(totals.streams),
            topics_count: count(totals.topics),
            partitions_count: count(totals.partitions),
            segments_count: u32::try_from(sums.segments).unwrap_or(u32::MAX),
            messages_count: sums.messages,
            clients_count: count(clients),
            consumer_groups_count: count(totals.groups),
            hostname: Text(host.hostname.clone()),
            os_name: Text(host.os_name.clone()),
            os_version: Text(host.os_version.clone()),
            kernel_version: Text(host.kernel_version.clone()),
            server_version: Text(self.options.server_version.clone()),
            server_semver: ProtocolVersion(0),
            caches: Vec::new(),
            threads_count: host.threads_count,
            free_disk_bytes: host.free_disk_space,
            total_disk_bytes: host.total_disk_space,
        }))
    }

    pub(super) fn describe_options(
        &self,
        caller: &Caller,
        known: Known<'_>,
        scope: OptionsScope,
    ) -> Step {
        or_return!(self.authorise(caller, known, Action::DescribeOptions));
        let list = match scope {
            OptionsScope::Topic => topic_catalogue(&self.options.topic_defaults),
            OptionsScope::Stream | OptionsScope::User => Vec::new(),
        };
        self.read_reply(caller, Reply::OptionDescriptions(list))
    }
}
