//! The state machines assert their invariants: how many assertions there are for each function.
//!
//! A number is no proof of anything; it keeps the habit from fading. What a human should look for
//! is whether a precondition, a result or a relation of fields is stated where it is relied on.

use borzoi_tidy::{SourceFile, files};

/// Crate, and how many assertions a hundred functions have at least. The numbers that were reached;
/// they may be raised.
const FLOORS: &[(&str, usize)] = &[("storage", 190), ("consensus", 160)];

/// Shorter functions, accessors most of them, have nothing to assert.
const BODY_LINES_MIN: usize = 4;

/// Files of a core crate that exist for tests.
const FOR_TESTS: &[&str] = &["/sim_disk", "/bench.rs"];

fn assertions(code: &str) -> usize {
    let macros = ["assert!(", "assert_eq!(", "assert_ne!("];
    let starts_word =
        |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    let count = |name: &&str| code.match_indices(*name).filter(|(at, _)| starts_word(*at)).count();
    macros.iter().map(count).sum()
}

/// Functions with a body of [`BODY_LINES_MIN`] lines and more, by the indentation that rustfmt
/// guarantees.
fn functions(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let mut count = 0;
    for (start, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.windows(2).any(|two| two[0] == "fn" && two[1].contains(['(', '<'])) {
            continue;
        }
        let rest = &lines[start..];
        let opens = rest.iter().position(|line| line.ends_with(['{', ';', '}']));
        let Some(opens) = opens.filter(|at| rest[*at].ends_with('{')) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let closes = rest.iter().position(|line| **line == closing).unwrap_or(opens);
        count += usize::from(closes > opens + BODY_LINES_MIN);
    }
    count
}

fn counts(file: &SourceFile) -> (usize, usize) {
    let lines = file.production_text().lines();
    let code: Vec<&str> =
        lines.map(|line| line.split("//").next().unwrap_or("").trim_end()).collect();
    let code = code.join("\n");
    (assertions(&code), functions(&code))
}

#[test]
fn the_state_machines_keep_asserting_their_invariants() {
    for (name, floor) in FLOORS {
        let (mut asserted, mut total) = (0, 0);
        for file in files(&[".rs"]) {
            let source = file.path.starts_with(&format!("crates/{name}/src/"));
            let for_tests = FOR_TESTS.iter().any(|part| file.path.contains(part));
            if source && !for_tests && !file.is_test() {
                let (more, functions) = counts(&file);
                asserted += more;
                total += functions;
            }
        }
        assert!(total > 100, "crates/{name} has {total} functions");
        let reached = asserted * 100 / total;
        assert!(
            reached >= *floor,
            "crates/{name} has {asserted} assertions in {total} functions, {reached} for each \
             hundred; {floor} had been reached"
        );
    }
}

#[test]
fn assertions_and_functions_are_counted_as_words() {
    let long = "fn a<T>(\n    x: u8,\n) {\n    1;\n    assert!(x);\n    debug_assert!(y);\n    \
                assert_eq!(1, 1);\n}\n";
    let short = "fn b() {\n    c();\n}\ntrait D {\n    fn e(&self);\n}\n";
    let code = format!("{long}{short}");
    assert_eq!((assertions(&code), functions(&code)), (2, 1));
}
