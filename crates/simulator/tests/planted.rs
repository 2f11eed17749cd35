//! Every planted fault is found within 200 seeds, by a seed that passes without it.
//! `cargo test -p borzoi-simulator --features planted-bugs --test planted -- --nocapture`;
//! `PLANTED=name` looks for one of them.
#![cfg(feature = "planted-bugs")]

use borzoi_simulator::faults::Profile;
use borzoi_simulator::run::run;
use borzoi_simulator::trace::Keep;
use borzoi_types::planted::{Bug, plant};

/// Seeds that are tried for each fault.
const SEEDS: u64 = 200;

/// The first seed that fails with the fault and passes without it, and what it says.
fn find(bug: Bug) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| {
        let profile = Profile::draw(seed, None);
        plant(Some(bug));
        let with = run(&profile, Keep::Nothing).failure;
        plant(None);
        let message = with?.message;
        let clean = run(&profile, Keep::Nothing).failure.is_none();
        clean.then_some((seed, message))
    })
}

#[test]
fn every_planted_fault_is_found() {
    let wanted = std::env::var("PLANTED").ok();
    let mut missed = Vec::new();
    for &bug in Bug::ALL {
        if wanted.as_ref().is_some_and(|wanted| wanted != bug.name()) {
            continue;
        }
        match find(bug) {
            Some((seed, message)) => println!("{:<26} seed {seed}: {message:.160}", bug.name()),
            None => {
                println!("{:<26} not found", bug.name());
                missed.push(bug.name());
            }
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
