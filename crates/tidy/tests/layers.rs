//! The functional core stays a core: which crate may use which, and what the core may not call.

use borzoi_tidy::{files, root};
use std::collections::BTreeMap;
use std::fs;

/// Crate, and what it may depend on inside the workspace (architecture, section 2).
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("wire", &["types"]),
    ("consensus", &["types"]),
    ("storage", &["types", "wire"]),
    ("metadata", &["types", "wire"]),
    ("shard", &["types", "wire", "consensus", "storage", "metadata"]),
    ("runtime", &["types", "wire", "consensus", "storage", "metadata", "shard"]),
    ("simulator", &["types", "wire", "consensus", "storage", "metadata", "shard"]),
    ("client", &["types", "wire"]),
    ("server", &["types", "wire", "consensus", "storage", "metadata", "shard", "runtime"]),
    ("cli", &["types", "wire", "client", "storage", "server", "simulator"]),
    ("tidy", &[]),
    ("conformance", &["types", "wire", "client"]),
];

/// Crates that decide: no clock, randomness, files, sockets, threads, async, hash-map iteration.
const CORE: &[&str] = &["types", "wire", "consensus", "storage", "metadata", "shard"];

const BANNED: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::time::",
    "Instant::now",
    "SystemTime",
    "std::env",
    "std::process",
    "HashMap",
    "HashSet",
    "RandomState",
    "async fn",
    ".await",
    "tokio",
    "thread_rng",
    "rand::",
    "Mutex",
    "RwLock",
    "RefCell",
    "println!",
    "eprintln!",
];

fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]";
        } else if inside && line.starts_with("borzoi-") {
            let name = line["borzoi-".len()..].split(['.', ' ', '=']).next().unwrap_or("");
            names.push(name.to_owned());
        }
    }
    names
}

#[test]
fn dependency_arrows_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("crates")).expect("the workspace has crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        let permitted = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crates/{name} has no row in the table of arrows"));
        for dependency in dependencies(&manifest) {
            assert!(
                permitted.contains(&dependency.as_str()),
                "crates/{name} must not depend on {dependency}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} crates were looked at");
}

/// Whether `code` holds `word` and the name does not go on (`.awaiting` is not `.await`).
fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let next = code[at + word.len()..].chars().next();
        let opens = word.ends_with(|last: char| last.is_alphanumeric());
        !opens || !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
    })
}

#[test]
fn a_banned_word_is_found_as_a_word() {
    assert!(contains_word("x.await?", ".await"));
    assert!(!contains_word("x.awaiting()", ".await"));
    assert!(contains_word("std::time::Instant", "std::time::"));
}

#[test]
fn the_core_calls_nothing_that_decides_for_it() {
    let mut broken = Vec::new();
    for file in files(&[".rs"]) {
        let Some(name) = file.crate_name() else { continue };
        if !CORE.contains(&name) || file.is_test() {
            continue;
        }
        for (number, line) in file.production_text().lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            if let Some(word) = BANNED.iter().find(|word| contains_word(code, word)) {
                broken.push(format!("{}:{}: {word}", file.path, number + 1));
            }
        }
    }
    assert!(broken.is_empty(), "banned in the core:\n  {}", broken.join("\n  "));
}

#[test]
fn unsafe_code_lives_in_the_runtime_with_its_argument() {
    let mut broken = Vec::new();
    let keyword = concat!("un", "safe ");
    for file in files(&[".rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            if !code.contains(keyword) || file.path.starts_with("crates/tidy/") {
                continue;
            }
            let argued =
                lines[number.saturating_sub(6)..number].iter().any(|line| line.contains("SAFETY:"));
            if file.crate_name() != Some("runtime") || !argued {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert!(broken.is_empty(), "no place for this:\n  {}", broken.join("\n  "));
}

#[test]
fn production_code_never_unwraps() {
    let mut broken = Vec::new();
    for file in files(&[".rs"]) {
        if file.is_test() || file.path.starts_with("fuzz/") || file.path.contains("/tidy/") {
            continue;
        }
        for (number, line) in file.production_text().lines().enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            if code.contains(".unwrap()") {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert!(broken.is_empty(), "handle the error here:\n  {}", broken.join("\n  "));
}
