//! Starts the real `borzoi` binary for tests: on a free port, in a data directory of its own,
//! and stops or kills it.
//!
//! The binary is the one that `cargo test` built beside the tests; `BORZOI_BIN` names another.
//! The address is read from `<data>/runtime/current_config.toml`, as existing harnesses of the
//! reference system do.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Root user of the servers started here.
pub const ROOT_USERNAME: &str = "iggy";
/// Password of the root user of the servers started here.
pub const ROOT_PASSWORD: &str = "iggy-secret";

/// How long a server may take to open its listeners.
const START_SECONDS_MAX: u64 = 30;

/// The path of the binary under test.
///
/// # Panics
/// When the binary is neither beside the tests nor can be built.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("BORZOI_BIN") {
        return PathBuf::from(path);
    }
    let tests = std::env::current_exe().expect("a test has a path");
    let folder = tests.ancestors().nth(2).expect("tests lie in target/<profile>/deps");
    let path = folder.join("borzoi");
    if !path.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--package", "borzoi-cli", "--bin", "borzoi"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cannot build the binary borzoi");
    }
    assert!(path.is_file(), "{} does not exist; set BORZOI_BIN", path.display());
    path
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    data: PathBuf,
    address: String,
}

/// How to start a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Environment variables beside the usual ones.
    pub environment: Vec<(String, String)>,
}

impl ServerOptions {
    /// The same with one more environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn command(data: &Path, options: &ServerOptions) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("serve")
        .env("IGGY_SYSTEM_PATH", data)
        .env("IGGY_TCP_ADDRESS", "127.0.0.1:0")
        .env("IGGY_HTTP_ENABLED", "false")
        .env("IGGY_ROOT_USERNAME", ROOT_USERNAME)
        .env("IGGY_ROOT_PASSWORD", ROOT_PASSWORD)
        .envs(options.environment.iter().cloned())
        .stdin(Stdio::null());
    command
}

impl Server {
    /// Starts a server on `data` and waits until it listens.
    ///
    /// # Panics
    /// When it does not listen within the time allowed, with its output.
    #[must_use]
    pub fn start(data: &Path, options: &ServerOptions) -> Self {
        Self::try_start(data, options).unwrap_or_else(|text| panic!("no server: {text}"))
    }

    /// Starts a server on `data`, or gives what it wrote before it ended.
    ///
    /// # Errors
    /// The output of a server that ended before it listened.
    pub fn try_start(data: &Path, options: &ServerOptions) -> Result<Self, String> {
        let config = data.join("runtime/current_config.toml");
        // A file of an earlier start would name a dead port.
        let _ = fs::remove_file(&config);
        let log = data.with_extension("log");
        let output = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let child = command(data, options)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut server = Self { child, data: data.to_owned(), address: String::new() };
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            if let Some(address) = bound_address(&config)
                && std::net::TcpStream::connect(&address).is_ok()
            {
                server.address = address;
                return Ok(server);
            }
            let ended = server.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The TCP address that clients connect to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The process number.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// What the server wrote to its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.data.with_extension("log")).unwrap_or_default()
    }

    /// Ends the process at once, as `kill -9` does.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to stop, as `kill -TERM` does.
    ///
    /// # Errors
    /// When the process cannot be signalled or does not end within ten seconds.
    pub fn stop(mut self) -> io::Result<std::process::ExitStatus> {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        if !status.success() {
            return Err(io::Error::other("the process could not be signalled"));
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("the server did not stop"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bound_address(config: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(config).ok()?.read_to_string(&mut text).ok()?;
    let table: toml::Table = text.parse().ok()?;
    let address = table.get("tcp")?.get("address")?.as_str()?;
    (!address.ends_with(":0")).then(|| address.to_owned())
}

/// A data directory that goes away with its value.
///
/// # Panics
/// When no temporary directory can be made.
#[must_use]
pub fn data_directory() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let data = folder.path().join("data");
    (folder, data)
}
