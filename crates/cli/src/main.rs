//! The binary `borzoi`: serve, administer, send, poll, measure.
//!
//! `serve` starts the node and returns only when it stops. All other commands are clients: they
//! connect to a server, do one thing, and say in one line what was wrong if it was.

mod bench;
mod messages;
mod serve;
mod simulate;

use borzoi_client::{Client, ClientOptions};
use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// A replicated message log, wire-compatible with Apache Iggy clients.
#[derive(Debug, Parser)]
#[command(name = "borzoi", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server.
    Serve(Box<serve::Serve>),
    /// Ask whether a server is there.
    Ping(Connect),
    /// Send the lines of standard input, one message each.
    Send(messages::Send),
    /// Print messages, one per line.
    Poll(messages::Poll),
    /// Run simulated clusters, each decided by one seed.
    Simulate(simulate::Simulate),
    /// Measure a server.
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Which server, as whom.
#[derive(Args, Clone)]
pub(crate) struct Connect {
    /// Address of the server.
    #[arg(long, env = "BORZOI_ADDRESS", default_value = "127.0.0.1:8090")]
    address: String,
    /// User name.
    #[arg(long, env = "BORZOI_USERNAME", default_value = "iggy")]
    username: String,
    /// Password.
    #[arg(long, env = "BORZOI_PASSWORD", hide_env_values = true, default_value = "iggy")]
    password: String,
    /// Seconds that a request may take.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
}

impl Connect {
    fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::new(
            self.address.as_str(),
            self.username.as_str(),
            self.password.as_str(),
        );
        options.request_timeout = Duration::from_secs(self.timeout);
        options
    }
}

// The password is a secret: it never reaches a log.
impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The one place where the binary writes results: standard output, a line at a time.
pub(crate) fn print(line: &str) {
    use std::io::Write as _;
    // A closed pipe (`borzoi poll | head`) is a normal end, not an error worth a message.
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(0);
    }
}

fn client_command(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Ping(connect) => {
                Client::connect(connect.options()).await?.ping().await?;
                print("pong");
                Ok(())
            }
            Command::Send(send) => messages::send(send).await,
            Command::Poll(poll) => messages::poll(poll).await,
            Command::Bench(bench) => bench::run(bench).await,
            Command::Serve(_) | Command::Simulate(_) => {
                Err(anyhow::anyhow!("not a client command"))
            }
        }
    })
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(options) => serve::run(*options),
        Command::Simulate(options) => simulate::run_command(&options),
        command => match client_command(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                use std::io::Write as _;
                let _ = writeln!(std::io::stderr().lock(), "borzoi: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}
