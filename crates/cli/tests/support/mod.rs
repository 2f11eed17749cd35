//! The binary `borzoi serve` for tests: on free ports, without the environment of whoever tests.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A server on `data` that has not been started.
pub fn borzoi(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_borzoi"));
    command
        .args(["serve", "--set", "journal.files_max=2", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars() {
        if name.starts_with("IGGY_") || name.starts_with("BORZOI_") {
            command.env_remove(name);
        }
    }
    command.env("BORZOI_TCP_ADDRESS", "127.0.0.1:0");
    command
}

/// A running server.
pub struct Server {
    pub child: Child,
    pub address: String,
    data: PathBuf,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(command: &mut Command) -> Self {
        let mut arguments = command.get_args().skip_while(|argument| *argument != "--data");
        let data = PathBuf::from(arguments.nth(1).expect("the data directory"));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("borzoi ready: tcp=") else {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("not ready: {line} {errors}");
        };
        Self { address: address.to_owned(), child, data }
    }

    /// A value of the file that says what is in effect.
    pub fn configured(&self, section: &str, key: &str) -> String {
        let path = self.data.join("runtime/current_config.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let section = text.split_once(&format!("[{section}]")).expect("the section").1;
        let line = section.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
        line.split_once(" = ").unwrap().1.trim_matches('"').to_owned()
    }

    /// Where it serves HTTP.
    pub fn http(&self) -> String {
        self.configured("http", "address")
    }

    /// Sends `signal` and gives the exit status and what was written to standard error.
    pub fn stop(mut self, signal: &str) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let began = Instant::now();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.child.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(6), "a stop takes at most 5 s");
        (status, errors)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that must refuse to start, and gives what it said.
pub fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "started: {errors}");
    assert!(errors.contains("borzoi: "), "{errors}");
    errors
}
