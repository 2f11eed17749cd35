//! A handful of seeds in every test run. `SEEDS=500 FIRST=7 NODES=1 cargo test -p borzoi-simulator
//! --test seeds` runs more; so does `borzoi simulate`.

use borzoi_simulator::faults::Profile;
use borzoi_simulator::run::run_and_explain;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn seeds_of_clients_and_faults_break_no_promise() {
    let (first, count) = (number("FIRST").unwrap_or(1), number("SEEDS").unwrap_or(4));
    let nodes = number("NODES").and_then(|nodes| usize::try_from(nodes).ok());
    let mut failed = Vec::new();
    for seed in first..first + count {
        let outcome = run_and_explain(&Profile::draw(seed, nodes));
        let Some(failure) = outcome.failure else { continue };
        println!("seed {seed} of {} nodes: {}", outcome.profile.nodes, failure.message);
        if number("TRACE").is_some() {
            println!("{}\n{}", failure.trace.join("\n"), failure.state);
        }
        failed.push(seed);
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}
