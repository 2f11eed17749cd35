//! From settings to a running node, and back.
//!
//! Order: everything that can be refused without touching data comes first (settings, credentials,
//! directory, addresses), then recovery, then threads. Clients that connect during recovery wait
//! in the listener's queue.

use crate::config::{ConfigError, Settings, Sources};
use crate::credentials::{CredentialsError, DEFAULT_USERNAME, RootCredentials, root_credentials};
use crate::http::HttpServer;
use crate::{diagnostics, effective, encryption, logging};
use borzoi_runtime::disk::{DirectoryError, FileDisk, FileDiskOptions};
use borzoi_runtime::{Clock, Node, NodeError, NodeParts};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Instant;

/// What the command line says.
#[derive(Clone, Default)]
pub struct ServeOptions {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Key, value and flag, in order; they win over file and environment.
    pub flags: Vec<(String, String, String)>,
    /// Name of the root user; wins over the environment.
    pub root_username: Option<String>,
    /// Its password; wins over the environment.
    pub root_password: Option<String>,
    /// Whether the root user may be the pair that everybody knows.
    pub default_root_credentials: bool,
    /// Whether what the data directory holds is deleted first.
    pub fresh: bool,
    /// Which node of the roster this is.
    pub replica: u8,
}

/// Why the server did not start, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// See [`ConfigError`].
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// See [`CredentialsError`].
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A node number without a roster.
    #[error("--replica-id {0}: a node without a cluster has number 0")]
    Replica(u8),
    /// See [`DirectoryError`].
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address} ({key}): {source}")]
    Bind {
        /// The address.
        address: String,
        /// The key that names it.
        key: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Recovery refused.
    #[error("{0}")]
    Boot(#[from] crate::boot::BootError),
    /// The log files cannot be begun.
    #[error("cannot write log files in {directory} (log.directory): {source}")]
    LogFiles {
        /// Where.
        directory: String,
        /// What the system said.
        source: io::Error,
    },
    /// See [`encryption::EncryptionError`].
    #[error(transparent)]
    Encryption(#[from] encryption::EncryptionError),
    /// The thread for HTTP cannot be started.
    #[error("cannot serve HTTP: {0}")]
    Http(io::Error),
    /// The working directory cannot be found out; a file of variables would be looked for there.
    #[error("cannot find the working directory: {0}")]
    WorkingDirectory(io::Error),
    /// The file with the effective values cannot be written.
    #[error("cannot write the effective configuration: {0}")]
    Effective(io::Error),
    /// See [`NodeError`].
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Runs a node until it is told to stop.
///
/// # Errors
/// [`ServeError`]; the process must exit with a failure then.
pub fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let started = Instant::now();
    let mut environment = environment();
    let here = std::env::current_dir().map_err(ServeError::WorkingDirectory)?;
    crate::config::read_variables_file(&mut environment, &here)?;
    let root = [
        ("BORZOI_ROOT_USERNAME", &options.root_username),
        ("BORZOI_ROOT_PASSWORD", &options.root_password),
    ];
    for (variable, value) in root {
        if let Some(value) = value {
            environment.insert(variable.to_owned(), value.clone());
        }
    }
    if options.root_password.is_some() {
        // The flag alone is enough: the name has a default.
        let name = environment.entry("BORZOI_ROOT_USERNAME".to_owned()).or_default();
        if name.is_empty() {
            *name = DEFAULT_USERNAME.to_owned();
        }
    }
    let (file, flags) = (options.config.clone(), options.flags.clone());
    let sources = Sources { file, environment, flags };
    let (settings, warnings) = Settings::load(&sources)?;
    let root = root_credentials(&sources.environment, options.default_root_credentials)?;
    if options.replica != 0 {
        return Err(ServeError::Replica(options.replica));
    }
    logging::start(&settings);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let disk = open_disk(&settings, options.fresh)?;
    let _log_files = start_log_files(&settings)?;
    let (listener, bound) = bind(&settings.tcp_address, "tcp.address")?;
    let http = start_http(&settings)?;
    let clock = Clock::start();
    let keys = encryption::keyring(&settings)?;
    let booted = crate::boot::boot(&settings, &mut disk.clone(), &clock, bound, &root, keys)?;
    if booted.formatted {
        show_generated(&root);
    }
    let data = settings.data_directory.clone();
    let archives = diagnostics::maker(data.clone());
    let (shards, listeners) = (booted.shards, vec![listener]);
    let count = shards.len();
    let parts = NodeParts { shards, disk, listeners, clock, archives };
    let http_bound = http.as_ref().map(|(_, bound)| *bound);
    effective::write(&data, &settings, bound, http_bound).map_err(ServeError::Effective)?;
    let node = Node::start(parts)?;
    if let Some((http, bound)) = &http {
        http.shards_run(node.probe());
        tracing::info!(http = %bound, "metrics and health");
    }
    let millis = started.elapsed().as_millis();
    tracing::info!(tcp = %bound, data = %data.display(), shards = count, millis, "ready");
    // For scripts: one line on standard output, whatever the log looks like.
    let _ = writeln!(io::stdout(), "borzoi ready: tcp={bound}");
    let _ = io::stdout().flush();
    let stops = http.as_ref().map(|(http, _)| http.stop_watcher());
    let outcome = node.run(move || {
        if let Some(stops) = &stops {
            stops.stopping();
        }
    });
    say_how_it_ended(&outcome);
    Ok(outcome?)
}

fn say_how_it_ended(outcome: &Result<(), NodeError>) {
    match outcome {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::error!(%error, "the node has failed"),
    }
}

fn environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn open_disk(settings: &Settings, fresh: bool) -> Result<FileDisk, ServeError> {
    let options = FileDiskOptions { direct: settings.direct_io, ..FileDiskOptions::default() };
    let (disk, strays) = FileDisk::open(&settings.data_directory, &options)?;
    if fresh {
        tracing::warn!(data = %disk.root().display(), "deleting everything in the data directory");
        disk.wipe().and_then(|()| encryption::forget(disk.root())).map_err(|source| {
            let path = disk.root().display().to_string();
            ServeError::Directory(DirectoryError::Io { path, source })
        })?;
    }
    for name in strays {
        tracing::warn!(name, "the data directory holds something that is not Borzoi's; left alone");
    }
    if settings.direct_io && !disk.is_direct() {
        tracing::warn!("the file system refuses direct I/O; going through the page cache");
    }
    borzoi_runtime::raise_file_limit();
    Ok(disk)
}

fn start_log_files(settings: &Settings) -> Result<Option<logging::FileWriter>, ServeError> {
    let directory = settings.log_files_in().unwrap_or_default().display().to_string();
    logging::start_files(settings).map_err(|source| ServeError::LogFiles { directory, source })
}

fn start_http(settings: &Settings) -> Result<Option<(HttpServer, SocketAddr)>, ServeError> {
    let Some(address) = settings.http_bind_address() else { return Ok(None) };
    let (listener, bound) = bind(address, "http.address")?;
    Ok(Some((HttpServer::start(listener).map_err(ServeError::Http)?, bound)))
}

fn bind(address: &str, key: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Bind { address: address.to_owned(), key, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The one time that a generated password is seen. Not through the log, which may be kept.
fn show_generated(root: &RootCredentials) {
    if root.is_generated {
        let _ = writeln!(
            io::stderr(),
            "borzoi: generated credentials of the root user, shown only now: {} / {}",
            root.username,
            root.password.0
        );
    }
}
