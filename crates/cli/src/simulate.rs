//! `borzoi simulate`: whole clusters from seeds, in this process, without touching disk or network.

use crate::print;
use borzoi_simulator::batch::{Plan, checker_names, failed_before, run_batch};
use borzoi_simulator::faults::Profile;
use borzoi_simulator::minimise::{Change, minimise};
use borzoi_simulator::run::{Failure, Outcome, run, run_and_explain};
use borzoi_simulator::scenario;
use borzoi_simulator::trace::Keep;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs simulated clusters, each decided by one seed.
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    /// The seed, or the first of several.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds in a row.
    #[arg(long)]
    seeds: Option<u64>,
    /// Stop after so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Nodes of every cluster; drawn from the seed when absent.
    #[arg(long)]
    nodes: Option<usize>,
    /// Threads, each with seeds of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Print everything that happens.
    #[arg(long)]
    trace: bool,
    /// Look for a smaller run that fails in the same way.
    #[arg(long)]
    minimise: bool,
    /// A change of the run, as `--minimise` prints them; may be given several times.
    #[arg(long = "change")]
    changes: Vec<Change>,
    /// Run the scenario in this file instead.
    #[arg(long)]
    scenario: Option<PathBuf>,
    /// Name the checkers and end.
    #[arg(long)]
    list_checkers: bool,
    /// Switch a deliberate fault on, to see it found; a wrong name lists them all.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    planted: Option<String>,
}

/// Switches the fault on that was asked for. False if there is none of that name.
#[cfg(feature = "planted-bugs")]
fn plant(options: &Simulate) -> bool {
    use borzoi_types::planted::{Bug, plant};
    let Some(wanted) = &options.planted else { return true };
    let found = Bug::ALL.iter().copied().find(|bug| bug.name() == wanted);
    if found.is_none() {
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        print(&format!("there is no fault {wanted}; there are: {}", names.join(", ")));
    }
    plant(found);
    found.is_some()
}

pub(crate) fn run_command(options: &Simulate) -> ExitCode {
    #[cfg(feature = "planted-bugs")]
    if !plant(options) {
        return ExitCode::FAILURE;
    }
    if options.list_checkers {
        for (number, name) in checker_names() {
            print(&format!("{number:>2}  {name}"));
        }
        return ExitCode::SUCCESS;
    }
    if let Some(file) = &options.scenario {
        return scenario_file(file, options.trace);
    }
    match (options.seed, options.seeds, options.minutes) {
        (Some(seed), None, None) => one(seed, options),
        _ => many(options),
    }
}

fn scenario_file(file: &std::path::Path, trace: bool) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            print(&format!("{}: {error}", file.display()));
            return ExitCode::FAILURE;
        }
    };
    match scenario::run(&text, if trace { Keep::All } else { Keep::Last(120) }) {
        Ok(()) => {
            print("the scenario holds");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            explain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn one(seed: u64, options: &Simulate) -> ExitCode {
    let mut profile = Profile::draw(seed, options.nodes);
    options.changes.iter().for_each(|change| change.apply(&mut profile));
    let began = Instant::now();
    let outcome = if options.trace { run(&profile, Keep::All) } else { run_and_explain(&profile) };
    if options.trace && outcome.failure.is_none() {
        outcome.trace.iter().for_each(|line| print(line));
    }
    print(&format!(
        "seed {seed}: {} nodes, {} events, {:.3} simulated s in {:.3} s, {} sends confirmed, \
         trace {:016x}",
        outcome.profile.nodes,
        outcome.events,
        outcome.simulated.0 as f64 / 1e9,
        began.elapsed().as_secs_f64(),
        outcome.confirmed_sends,
        outcome.hash,
    ));
    let Some(failure) = &outcome.failure else { return ExitCode::SUCCESS };
    explain(failure);
    print(&reproduce(&outcome, &options.changes));
    if options.minimise {
        let (smaller, mut found) = minimise(&outcome, &mut |line| print(line));
        if let Some(failure) = &smaller.failure {
            explain(failure);
        }
        let mut changes = options.changes.clone();
        changes.append(&mut found);
        print(&reproduce(&smaller, &changes));
    }
    ExitCode::FAILURE
}

fn many(options: &Simulate) -> ExitCode {
    let limit = options.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let began = Instant::now();
    let plan = Plan {
        first: options.seed.unwrap_or_else(rand::random),
        seeds: options.seeds.unwrap_or(if limit.is_some() { u64::MAX / 2 } else { 100 }),
        before: failed_before(),
        nodes: options.nodes,
        threads: options.threads.max(1),
    };
    print(&format!("seeds from {} on, and {} that once failed", plan.first, plan.before.len()));
    let over = || limit.is_some_and(|limit| began.elapsed() > limit);
    let batch = run_batch(&plan, &over, &|outcome| {
        if let Some(failure) = &outcome.failure {
            explain(failure);
            print(&reproduce(outcome, &[]));
        }
    });
    print(&batch.report(began.elapsed().as_secs_f64()));
    let missing = batch.missing();
    missing.iter().for_each(|line| print(&format!("INCOMPLETE: {line}")));
    for outcome in &batch.failed {
        let message = outcome.failure.as_ref().map_or("", |failure| failure.message.as_str());
        print(&format!("FAILED: seed {}: {message}", outcome.seed));
    }
    if batch.failed.is_empty() && missing.is_empty() {
        print(&format!("{} seeds passed", batch.runs));
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn explain(failure: &Failure) {
    failure.trace.iter().for_each(|line| print(line));
    print(&failure.state);
    print(&format!("FAILED: {}", failure.message));
}

/// The line that shows the failure again.
fn reproduce(outcome: &Outcome, changes: &[Change]) -> String {
    let mut line = format!("borzoi simulate --seed {}", outcome.seed);
    let has_nodes = changes.iter().any(|change| matches!(change, Change::Nodes(_)));
    if !has_nodes {
        line.push_str(&format!(" --nodes {}", outcome.profile.nodes));
    }
    for change in changes {
        line.push_str(&format!(" --change \"{change}\""));
    }
    line
}
