//! Settings from a file, the environment and flags.
//!
//! Invariants: what is not known refuses the start, and so does what is not allowed, naming key,
//! value, where it came from and what is allowed. The default file is the only place where
//! defaults are written down.

mod dotenv;
mod keys;
mod replaced;
mod secrets;
mod values;

pub use dotenv::extend as read_variables_file;
pub use secrets::EncryptionKeys;

use borzoi_types::Durability;
use keys::{KEYS, find};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default file, which is also the documentation of every key.
pub const DEFAULT_FILE: &str = include_str!("../default.toml");

/// Variables of Borzoi that are no keys: read elsewhere in the server, by the client commands of
/// the same binary, or by tests.
const OTHER_VARIABLES: [&str; 8] = [
    "BORZOI_CONFIG_PATH",
    "BORZOI_ENV_PATH",
    "BORZOI_ROOT_USERNAME",
    "BORZOI_ROOT_PASSWORD",
    "BORZOI_ADDRESS",
    "BORZOI_USERNAME",
    "BORZOI_PASSWORD",
    "BORZOI_BIN",
];
/// Beginning of further variables of tests.
const TEST_PREFIX: &str = "BORZOI_TEST_";
/// Variables of the reference system that are read elsewhere.
const OTHER_ALIASES: [&str; 3] = ["IGGY_ROOT_USERNAME", "IGGY_ROOT_PASSWORD", "IGGY_ENV_PATH"];
/// Value of `http.address` that leaves the choice to the server.
const HTTP_ADDRESS_AUTO: &str = "auto";
/// Where HTTP is served unless configured: the reference system's port.
const HTTP_ADDRESS_DEFAULT: &str = "127.0.0.1:3000";
/// Keys whose values are secret: not shown in error messages.
const SECRET_KEYS: [&str; 1] = ["encryption.keys"];

/// How many shards a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shards {
    /// As the machine suggests.
    Auto,
    /// So many.
    Count(u16),
}

/// Form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people.
    Human,
    /// One object per line.
    Json,
}

/// All settings of a node. The meaning of each stands in the default file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `data.directory`
    pub data_directory: PathBuf,
    /// `data.direct_io`
    pub direct_io: bool,
    /// `tcp.address`
    pub tcp_address: String,
    /// `tcp.advertised_address`
    pub tcp_advertised_address: String,
    /// `http.enabled`
    pub http_enabled: bool,
    /// `http.address`; see [`Settings::http_bind_address`]
    pub http_address: String,
    /// `node.shards`
    pub shards: Shards,
    /// `cluster.name`
    pub cluster_name: String,
    /// `lanes.persisted`
    pub lanes_persisted: u16,
    /// `lanes.replicated`
    pub lanes_replicated: u16,
    /// `topics.durability`
    pub durability: Durability,
    /// `partition.offset_reservation_lease`
    pub offset_reservation_lease: u64,
    /// `journal.file_size`, bytes
    pub journal_file_bytes: u64,
    /// `journal.files_max`
    pub journal_files_max: u32,
    /// `checkpoint.interval`
    pub checkpoint_interval: Duration,
    /// `retention.enabled`
    pub retention_enabled: bool,
    /// `retention.interval`
    pub retention_interval: Duration,
    /// `cache.size_per_shard`, bytes
    pub cache_bytes_per_shard: u64,
    /// `log.level`
    pub log_level: String,
    /// `encryption.enabled`
    pub encryption_enabled: bool,
    /// `encryption.keys`, and those of `encryption.keys_file`
    pub encryption_keys: EncryptionKeys,
    /// `encryption.keys_file`; empty for none
    pub encryption_keys_file: PathBuf,
    /// `encryption.active_key`; see [`Settings::encrypting_key`]
    pub encryption_active_key: u32,
    /// `log.format`
    pub log_format: LogFormat,
    /// `log.files`
    pub log_files: bool,
    /// `log.directory`
    pub log_directory: PathBuf,
    /// `log.file_size_max`, bytes; 0 for no limit
    pub log_file_bytes_max: u64,
    /// `log.file_age_max`
    pub log_file_age_max: Duration,
    /// `log.total_size_max`, bytes; 0 for no limit
    pub log_total_bytes_max: u64,
    /// `log.retention`
    pub log_retention: Duration,
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file {path} is not valid TOML: {reason}")]
    Syntax {
        /// The file.
        path: String,
        /// Where and why.
        reason: String,
    },
    /// A key that does not exist.
    #[error("unknown configuration key {key} in {origin}; did you mean {nearest}?")]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        origin: String,
        /// The key that looks most like it.
        nearest: String,
    },
    /// A value that is not allowed.
    #[error("configuration key {key} = \"{value}\" in {origin}: allowed is {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Where it stands.
        origin: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A variable of the reference system that became a topic option there.
    #[error("variable {variable} is not supported: use {instead}")]
    Replaced {
        /// The variable.
        variable: String,
        /// What to use instead.
        instead: &'static str,
    },
    /// A line of a file of variables that is none.
    #[error("file of variables {path}, line {line}: expected NAME=value")]
    EnvironmentLine {
        /// The file.
        path: String,
        /// Its line, from 1.
        line: usize,
    },
}

/// Where values come from, besides the default file.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// File named by a flag; else `BORZOI_CONFIG_PATH` is looked at.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Key, value and flag, in order.
    pub flags: Vec<(String, String, String)>,
}

impl Settings {
    /// Reads all sources. The second part are warnings for the log, which is not set up yet.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<String>), ConfigError> {
        let mut settings = Self::blank();
        settings.read_toml(DEFAULT_FILE, "the built-in defaults")?;
        let path = sources.environment.get("BORZOI_CONFIG_PATH").filter(|path| !path.is_empty());
        let from_environment = path.map(PathBuf::from);
        if let Some(path) = sources.file.clone().or(from_environment) {
            settings.read_file(&path)?;
        }
        let warnings = settings.read_environment(&sources.environment)?;
        for (key, value, flag) in &sources.flags {
            settings.set(key, value, &format!("flag {flag}"))?;
        }
        settings.read_keys_file()?;
        settings.check_together()?;
        Ok((settings, warnings))
    }

    /// Where HTTP is to be served; none if it is not.
    #[must_use]
    pub fn http_bind_address(&self) -> Option<&str> {
        let tcp_is_free = self.tcp_address.ends_with(":0");
        match self.http_address.as_str() {
            _ if !self.http_enabled => None,
            HTTP_ADDRESS_AUTO if tcp_is_free => Some("127.0.0.1:0"),
            HTTP_ADDRESS_AUTO => Some(HTTP_ADDRESS_DEFAULT),
            address => Some(address),
        }
    }

    /// Where log files are kept; none if there are none.
    #[must_use]
    pub fn log_files_in(&self) -> Option<PathBuf> {
        self.log_files.then(|| self.data_directory.join(&self.log_directory))
    }

    /// Number of the key that new messages are encrypted with; none if they are not.
    #[must_use]
    pub fn encrypting_key(&self) -> Option<u32> {
        let highest = self.encryption_keys.0.last_key_value().map(|(number, _)| *number);
        let active = (self.encryption_active_key != 0).then_some(self.encryption_active_key);
        self.encryption_enabled.then_some(active.or(highest)).flatten()
    }

    fn read_keys_file(&mut self) -> Result<(), ConfigError> {
        if self.encryption_keys_file.as_os_str().is_empty() {
            return Ok(());
        }
        let path = self.encryption_keys_file.display().to_string();
        let text = std::fs::read_to_string(&self.encryption_keys_file)
            .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        let keys = self.encryption_keys.with_file(&text);
        self.encryption_keys = keys.ok_or_else(|| ConfigError::Value {
            key: "encryption.keys_file",
            value: path,
            origin: "the file it names".to_owned(),
            allowed: "lines such as 1:<base64 of 32 bytes>, each number once, also beside \
                      encryption.keys",
        })?;
        Ok(())
    }

    /// What no single key can tell.
    fn check_together(&self) -> Result<(), ConfigError> {
        let refuse = |path: &str| {
            let key = find(path).expect("a key of the table");
            let value = match (key.show)(self) {
                toml::Value::String(text) => text,
                other => other.to_string(),
            };
            let origin = "all settings together".to_owned();
            Err(ConfigError::Value { key: key.path, value, origin, allowed: key.allowed })
        };
        let (file, total) = (self.log_file_bytes_max, self.log_total_bytes_max);
        if total != 0 && (file == 0 || total < file) {
            return refuse("log.total_size_max");
        }
        if self.encryption_enabled
            && !self.encrypting_key().is_some_and(|key| self.encryption_keys.0.contains_key(&key))
        {
            return refuse("encryption.active_key");
        }
        Ok(())
    }

    /// The effective values as a file. It holds no secrets: keys that are secret show nothing.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut root = toml::Table::new();
        for key in KEYS {
            let (section, name) = key.path.split_once('.').expect("keys have a section");
            let table = root.entry(section).or_insert_with(|| toml::Table::new().into());
            let table = table.as_table_mut().expect("sections are tables");
            table.insert(name.to_owned(), (key.show)(self));
        }
        toml::to_string(&root).expect("plain tables of plain values can be written")
    }

    /// Shards to start on a machine with `cores` cores.
    #[must_use]
    pub fn shard_count(&self, cores: usize) -> u16 {
        match self.shards {
            Shards::Count(count) => count,
            Shards::Auto => {
                let cores = u16::try_from(cores).unwrap_or(borzoi_types::limits::SHARDS_MAX);
                // Disk threads and clients of the same machine want a share of a small one.
                (cores / 2).clamp(1, borzoi_types::limits::SHARDS_MAX)
            }
        }
    }

    /// Values that the default file replaces before anybody sees them.
    fn blank() -> Self {
        Self {
            data_directory: PathBuf::new(),
            direct_io: false,
            tcp_address: String::new(),
            tcp_advertised_address: String::new(),
            http_enabled: false,
            http_address: String::new(),
            shards: Shards::Auto,
            cluster_name: String::new(),
            lanes_persisted: 0,
            lanes_replicated: 0,
            durability: Durability::Persisted,
            offset_reservation_lease: 0,
            journal_file_bytes: 0,
            journal_files_max: 0,
            checkpoint_interval: Duration::ZERO,
            retention_enabled: true,
            retention_interval: Duration::ZERO,
            cache_bytes_per_shard: 0,
            log_level: String::new(),
            log_format: LogFormat::Human,
            encryption_enabled: false,
            encryption_keys: EncryptionKeys::default(),
            encryption_keys_file: PathBuf::new(),
            encryption_active_key: 0,
            log_files: false,
            log_directory: PathBuf::new(),
            log_file_bytes_max: 0,
            log_file_age_max: Duration::ZERO,
            log_total_bytes_max: 0,
            log_retention: Duration::ZERO,
        }
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: shown.clone(), source })?;
        self.read_toml(&text, &shown)
    }

    fn read_toml(&mut self, text: &str, origin: &str) -> Result<(), ConfigError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            ConfigError::Syntax { path: origin.to_owned(), reason: error.to_string() }
        })?;
        self.read_table(&table, "", origin)
    }

    fn read_table(
        &mut self,
        table: &toml::Table,
        prefix: &str,
        origin: &str,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                toml::Value::Table(inner) if find(&path).is_none() => {
                    let known = KEYS.iter().any(|key| key.path.starts_with(&format!("{path}.")));
                    if !known {
                        return Err(unknown(&path, origin));
                    }
                    self.read_table(inner, &path, origin)?;
                }
                toml::Value::String(text) => self.set(&path, text, origin)?,
                other => self.set(&path, &other.to_string(), origin)?,
            }
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        environment: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ConfigError> {
        let mut warnings = Vec::new();
        // Aliases first, so that a variable of our own wins over one of the reference system.
        for (variable, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
            if !variable.starts_with("IGGY_") || OTHER_ALIASES.contains(&variable.as_str()) {
                continue;
            }
            match KEYS.iter().find(|key| key.alias == Some(variable)) {
                Some(key) => self.set(key.path, value, &format!("variable {variable}"))?,
                None => match replaced::instead_of(variable) {
                    Some(instead) => {
                        let variable = variable.clone();
                        return Err(ConfigError::Replaced { variable, instead });
                    }
                    None => warnings.push(format!("variable {variable} has no effect on Borzoi")),
                },
            }
        }
        for (variable, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
            let other = !variable.starts_with("BORZOI_")
                || OTHER_VARIABLES.contains(&variable.as_str())
                || variable.starts_with(TEST_PREFIX);
            if other {
                continue;
            }
            let origin = format!("variable {variable}");
            match KEYS.iter().find(|key| key.variable() == *variable) {
                Some(key) => self.set(key.path, value, &origin)?,
                None => return Err(unknown(variable, "the environment")),
            }
        }
        if let Some(filter) = environment.get("RUST_LOG").filter(|filter| !filter.is_empty()) {
            self.set("log.level", filter, "variable RUST_LOG")?;
        }
        Ok(warnings)
    }

    fn set(&mut self, path: &str, value: &str, origin: &str) -> Result<(), ConfigError> {
        let Some(key) = find(path) else {
            return Err(unknown(path, origin));
        };
        (key.set)(self, value.trim()).ok_or_else(|| ConfigError::Value {
            key: key.path,
            value: shown(path, value).to_owned(),
            origin: origin.to_owned(),
            allowed: key.allowed,
        })
    }
}

/// A value as error messages may show it.
fn shown<'a>(path: &str, value: &'a str) -> &'a str {
    if SECRET_KEYS.contains(&path) { "(hidden)" } else { value }
}

fn unknown(name: &str, origin: &str) -> ConfigError {
    let is_variable = name.starts_with("BORZOI_");
    let is_section = !is_variable && !name.contains('.');
    let shown = |key: &keys::Key| if is_variable { key.variable() } else { key.path.to_owned() };
    let compared = |key: &&keys::Key| {
        let known = shown(key);
        let part = if is_section { known.split('.').next().unwrap_or(&known) } else { &known };
        distance(part, name)
    };
    ConfigError::UnknownKey {
        key: name.to_owned(),
        origin: origin.to_owned(),
        nearest: KEYS.iter().min_by_key(compared).map(shown).unwrap_or_default(),
    }
}

/// Edits between two names.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests;
