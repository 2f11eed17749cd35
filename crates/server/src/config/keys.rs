//! Every key of the configuration: how its value is read, what is allowed, where it goes.
//!
//! One table serves the file, the environment, the flags, the error messages and the file with
//! the effective values, so that a key exists everywhere or nowhere.

use super::secrets::EncryptionKeys;
use super::values::{duration, size, truth, whole};
use super::{HTTP_ADDRESS_AUTO, LogFormat, Settings, Shards};
use borzoi_types::Durability;
use borzoi_types::limits::{
    JOURNAL_FILE_BYTES, LANES_MAX, OFFSET_RESERVATION_LEASE_MAX, SHARDS_MAX,
};
use std::path::PathBuf;

/// One key.
pub struct Key {
    /// Section and name, with a dot between.
    pub path: &'static str,
    /// Variable of the reference system that means the same.
    pub alias: Option<&'static str>,
    /// What is allowed, for error messages.
    pub allowed: &'static str,
    /// Reads a value into the settings; none if it is not allowed.
    pub set: fn(&mut Settings, &str) -> Option<()>,
    /// The value as it would stand in a file.
    pub show: fn(&Settings) -> toml::Value,
}

impl Key {
    /// The environment variable of this key.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("BORZOI_{}", self.path.replace('.', "_").to_uppercase())
    }
}

/// The key called `path`.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

fn assign<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn number(value: u64) -> toml::Value {
    toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn text(value: impl ToString) -> toml::Value {
    toml::Value::String(value.to_string())
}

/// All keys, in the order of the default file.
pub const KEYS: &[Key] = &[
    Key {
        path: "data.directory",
        alias: Some("IGGY_SYSTEM_PATH"),
        allowed: "a path",
        set: |to, value| {
            let path = (!value.is_empty()).then(|| PathBuf::from(value));
            assign(&mut to.data_directory, path)
        },
        show: |from| text(from.data_directory.display()),
    },
    Key {
        path: "data.direct_io",
        alias: None,
        allowed: "true or false",
        set: |to, value| assign(&mut to.direct_io, truth(value)),
        show: |from| toml::Value::Boolean(from.direct_io),
    },
    Key {
        path: "tcp.address",
        alias: Some("IGGY_TCP_ADDRESS"),
        allowed: "a host or address and a port, as in 127.0.0.1:8090",
        set: |to, value| assign(&mut to.tcp_address, is_address(value).then(|| value.to_owned())),
        show: |from| text(&from.tcp_address),
    },
    Key {
        path: "tcp.advertised_address",
        alias: None,
        allowed: "empty, or a host or address and a port",
        set: |to, value| {
            let valid = value.is_empty() || is_address(value);
            assign(&mut to.tcp_advertised_address, valid.then(|| value.to_owned()))
        },
        show: |from| text(&from.tcp_advertised_address),
    },
    Key {
        path: "http.enabled",
        alias: Some("IGGY_HTTP_ENABLED"),
        allowed: "true or false",
        set: |to, value| assign(&mut to.http_enabled, truth(value)),
        show: |from| toml::Value::Boolean(from.http_enabled),
    },
    Key {
        path: "http.address",
        alias: Some("IGGY_HTTP_ADDRESS"),
        allowed: "auto, or a host or address and a port, as in 127.0.0.1:3000",
        set: |to, value| {
            let valid = value == HTTP_ADDRESS_AUTO || is_address(value);
            assign(&mut to.http_address, valid.then(|| value.to_owned()))
        },
        show: |from| text(&from.http_address),
    },
    Key {
        path: "node.shards",
        alias: Some("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION"),
        allowed: "auto, or a number from 1 to 256",
        set: |to, value| {
            let shards = match value {
                // The reference system's ways to say which cores: here only their number matters.
                "auto" | "all" => Some(Shards::Auto),
                _ if value.starts_with("numa:") => Some(Shards::Auto),
                _ if value.contains("..") => range(value).map(Shards::Count),
                _ => whole(value).filter(|n| (1..=SHARDS_MAX).contains(n)).map(Shards::Count),
            };
            assign(&mut to.shards, shards)
        },
        show: |from| match from.shards {
            Shards::Auto => text("auto"),
            Shards::Count(count) => number(u64::from(count)),
        },
    },
    Key {
        path: "cluster.name",
        alias: Some("IGGY_CLUSTER_NAME"),
        allowed: "1 to 255 bytes",
        set: |to, value| {
            let valid = (1..=255).contains(&value.len());
            assign(&mut to.cluster_name, valid.then(|| value.to_owned()))
        },
        show: |from| text(&from.cluster_name),
    },
    Key {
        path: "lanes.persisted",
        alias: None,
        allowed: "a number from 1 to 512",
        set: |to, value| assign(&mut to.lanes_persisted, lanes(value)),
        show: |from| number(u64::from(from.lanes_persisted)),
    },
    Key {
        path: "lanes.replicated",
        alias: None,
        allowed: "a number from 1 to 512",
        set: |to, value| assign(&mut to.lanes_replicated, lanes(value)),
        show: |from| number(u64::from(from.lanes_replicated)),
    },
    Key {
        path: "topics.durability",
        alias: None,
        allowed: "persisted or replicated",
        set: |to, value| {
            let level = match value {
                "persisted" => Some(Durability::Persisted),
                "replicated" => Some(Durability::Replicated),
                _ => None,
            };
            assign(&mut to.durability, level)
        },
        show: |from| match from.durability {
            Durability::Persisted => text("persisted"),
            Durability::Replicated => text("replicated"),
        },
    },
    Key {
        path: "partition.offset_reservation_lease",
        alias: Some("IGGY_PARTITION_OFFSET_RESERVATION_LEASE"),
        allowed: "a number from 1 to 16777216",
        set: |to, value| {
            let lease = whole(value).filter(|n| (1..=OFFSET_RESERVATION_LEASE_MAX).contains(n));
            assign(&mut to.offset_reservation_lease, lease)
        },
        show: |from| number(from.offset_reservation_lease),
    },
    Key {
        path: "journal.file_size",
        alias: None,
        allowed: "a size from 128 MiB to 4 GiB, a multiple of 4096 bytes",
        set: |to, value| {
            let valid = |bytes: &u64| {
                (JOURNAL_FILE_BYTES..=4 << 30).contains(bytes) && bytes.is_multiple_of(4_096)
            };
            assign(&mut to.journal_file_bytes, size(value).filter(valid))
        },
        show: |from| number(from.journal_file_bytes),
    },
    Key {
        path: "journal.files_max",
        alias: None,
        allowed: "a number from 2 to 1024",
        set: |to, value| {
            assign(&mut to.journal_files_max, whole(value).filter(|n| (2..=1_024).contains(n)))
        },
        show: |from| number(u64::from(from.journal_files_max)),
    },
    Key {
        path: "checkpoint.interval",
        alias: None,
        allowed: "a duration from 100 ms to 1 h",
        set: |to, value| {
            let millis = |span: &std::time::Duration| (100..=3_600_000).contains(&span.as_millis());
            assign(&mut to.checkpoint_interval, duration(value).filter(millis))
        },
        show: |from| text(format!("{} ms", from.checkpoint_interval.as_millis())),
    },
    Key {
        path: "retention.enabled",
        alias: Some("IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED"),
        allowed: "true or false",
        set: |to, value| assign(&mut to.retention_enabled, truth(value)),
        show: |from| toml::Value::Boolean(from.retention_enabled),
    },
    Key {
        path: "retention.interval",
        alias: Some("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL"),
        allowed: "a duration from 1 s to 24 h",
        set: |to, value| {
            let millis =
                |span: &std::time::Duration| (1_000..=86_400_000).contains(&span.as_millis());
            assign(&mut to.retention_interval, duration(value).filter(millis))
        },
        show: |from| text(format!("{} ms", from.retention_interval.as_millis())),
    },
    Key {
        path: "cache.size_per_shard",
        alias: None,
        allowed: "a size of at least 16 MiB",
        set: |to, value| {
            let bytes = size(value).filter(|bytes| *bytes >= 16 << 20);
            assign(&mut to.cache_bytes_per_shard, bytes)
        },
        show: |from| number(from.cache_bytes_per_shard),
    },
    Key {
        path: "encryption.enabled",
        alias: Some("IGGY_SYSTEM_ENCRYPTION_ENABLED"),
        allowed: "true or false",
        set: |to, value| assign(&mut to.encryption_enabled, truth(value)),
        show: |from| toml::Value::Boolean(from.encryption_enabled),
    },
    Key {
        path: "encryption.keys",
        alias: Some("IGGY_SYSTEM_ENCRYPTION_KEY"),
        allowed: "keys such as 1:<base64 of 32 bytes>, separated by commas, each number once",
        set: |to, value| assign(&mut to.encryption_keys, EncryptionKeys::parse(value)),
        // Secrets are never shown.
        show: |_| text(""),
    },
    Key {
        path: "encryption.keys_file",
        alias: None,
        allowed: "empty, or a path",
        set: |to, value| assign(&mut to.encryption_keys_file, Some(PathBuf::from(value))),
        show: |from| text(from.encryption_keys_file.display()),
    },
    Key {
        path: "encryption.active_key",
        alias: None,
        allowed: "0, or the number of a key that is given",
        set: |to, value| assign(&mut to.encryption_active_key, whole(value)),
        show: |from| number(u64::from(from.encryption_active_key)),
    },
    Key {
        path: "log.level",
        alias: Some("IGGY_SYSTEM_LOGGING_LEVEL"),
        allowed: "error, warn, info, debug, trace, or a filter such as info,borzoi_runtime=debug",
        set: |to, value| {
            let valid =
                !value.is_empty() && tracing_subscriber::EnvFilter::builder().parse(value).is_ok();
            assign(&mut to.log_level, valid.then(|| value.to_owned()))
        },
        show: |from| text(&from.log_level),
    },
    Key {
        path: "log.format",
        alias: None,
        allowed: "human or json",
        set: |to, value| {
            let format = match value {
                "human" => Some(LogFormat::Human),
                "json" => Some(LogFormat::Json),
                _ => None,
            };
            assign(&mut to.log_format, format)
        },
        show: |from| match from.log_format {
            LogFormat::Human => text("human"),
            LogFormat::Json => text("json"),
        },
    },
    Key {
        path: "log.files",
        alias: Some("IGGY_SYSTEM_LOGGING_FILE_ENABLED"),
        allowed: "true or false",
        set: |to, value| assign(&mut to.log_files, truth(value)),
        show: |from| toml::Value::Boolean(from.log_files),
    },
    Key {
        path: "log.directory",
        alias: Some("IGGY_SYSTEM_LOGGING_PATH"),
        allowed: "a path",
        set: |to, value| {
            let path = (!value.is_empty()).then(|| PathBuf::from(value));
            assign(&mut to.log_directory, path)
        },
        show: |from| text(from.log_directory.display()),
    },
    Key {
        path: "log.file_size_max",
        alias: Some("IGGY_SYSTEM_LOGGING_MAX_FILE_SIZE"),
        allowed: "0, or a size of at least 64 KiB",
        set: |to, value| assign(&mut to.log_file_bytes_max, log_size(value)),
        show: |from| number(from.log_file_bytes_max),
    },
    Key {
        path: "log.file_age_max",
        alias: None,
        allowed: "a duration of at least 1 s",
        set: |to, value| assign(&mut to.log_file_age_max, log_age(value)),
        show: |from| text(format!("{} s", from.log_file_age_max.as_secs())),
    },
    Key {
        path: "log.total_size_max",
        alias: Some("IGGY_SYSTEM_LOGGING_MAX_TOTAL_SIZE"),
        allowed: "0, or a size of at least 64 KiB that is not below log.file_size_max",
        set: |to, value| assign(&mut to.log_total_bytes_max, log_size(value)),
        show: |from| number(from.log_total_bytes_max),
    },
    Key {
        path: "log.retention",
        alias: Some("IGGY_SYSTEM_LOGGING_RETENTION"),
        allowed: "a duration of at least 1 s",
        set: |to, value| assign(&mut to.log_retention, log_age(value)),
        show: |from| text(format!("{} s", from.log_retention.as_secs())),
    },
];

/// Below this a log is put aside all the time.
const LOG_BYTES_MIN: u64 = 64 * 1024;

/// A limit on log files; 0 is none.
fn log_size(value: &str) -> Option<u64> {
    size(value).filter(|bytes| *bytes == 0 || *bytes >= LOG_BYTES_MIN)
}

fn log_age(value: &str) -> Option<std::time::Duration> {
    duration(value).filter(|span| span.as_secs() >= 1)
}

/// Length of a range of cores such as `0..4`.
fn range(value: &str) -> Option<u16> {
    let (first, end) = value.split_once("..")?;
    let count = whole::<u16>(end)?.checked_sub(whole(first)?)?;
    (1..=SHARDS_MAX).contains(&count).then_some(count)
}

fn is_address(value: &str) -> bool {
    let parts = value.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn lanes(value: &str) -> Option<u16> {
    let half = u16::try_from(LANES_MAX / 2).ok()?;
    whole(value).filter(|count| (1..=half).contains(count))
}
