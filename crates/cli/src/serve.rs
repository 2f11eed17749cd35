//! `borzoi serve`: flags become settings; everything else is the server's.

use borzoi_server::ServeOptions;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `borzoi serve`. Every key of the configuration can be given with `--set`.
#[derive(Args)]
pub struct Serve {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory (data.directory).
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Address for clients (tcp.address); port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Number of shards, or auto (node.shards).
    #[arg(long, value_name = "N")]
    shards: Option<String>,
    /// Level or filter of the log (log.level).
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// human or json (log.format).
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any other key of the configuration.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// Name of the root user, used at the first start (BORZOI_ROOT_USERNAME).
    #[arg(long, value_name = "NAME")]
    root_username: Option<String>,
    /// Its password, used at the first start (BORZOI_ROOT_PASSWORD); other users of this machine
    /// may see it in the list of processes.
    #[arg(long, value_name = "PASSWORD")]
    root_password: Option<String>,
    /// Use iggy/iggy for the root user where the environment names none. For development.
    #[arg(long)]
    with_default_root_credentials: bool,
    /// Delete everything in the data directory first.
    #[arg(short, long)]
    fresh: bool,
    /// Number of this node in its cluster.
    #[arg(long, value_name = "N", default_value_t = 0)]
    replica_id: u8,
}

// The password is a secret: it never reaches a log.
impl std::fmt::Debug for Serve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve").field("config", &self.config).finish_non_exhaustive()
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Runs the server.
pub fn run(options: Serve) -> ExitCode {
    let named = [
        ("data.directory", options.data, "--data"),
        ("tcp.address", options.address, "--address"),
        ("node.shards", options.shards, "--shards"),
        ("log.level", options.log_level, "--log-level"),
        ("log.format", options.log_format, "--log-format"),
    ];
    let set = options.set.into_iter().map(|(key, value)| (key, value, "--set".to_owned()));
    let named = named
        .into_iter()
        .filter_map(|(key, value, flag)| Some((key.to_owned(), value?, flag.to_owned())));
    borzoi_server::run(ServeOptions {
        config: options.config,
        root_username: options.root_username,
        root_password: options.root_password,
        flags: set.chain(named).collect(),
        default_root_credentials: options.with_default_root_credentials,
        fresh: options.fresh,
        replica: options.replica_id,
    })
}
