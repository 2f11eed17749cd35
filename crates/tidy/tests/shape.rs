//! Length of files, functions and lines; nothing unfinished left behind.

use borzoi_tidy::{SourceFile, files};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;

fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn no_source_file_is_longer_than_six_hundred_lines() {
    let broken: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| file.text.lines().count() > FILE_LINES_MAX)
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    report("split these files", &broken);
}

#[test]
fn no_line_is_wider_than_a_hundred_columns() {
    let mut broken = Vec::new();
    for file in files(&[".rs"]) {
        for (number, line) in file.text.lines().enumerate() {
            if line.chars().count() > LINE_COLUMNS_MAX {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    report("break these lines", &broken);
}

/// Functions by indentation, which rustfmt guarantees: from the line with `fn` to the closing
/// brace in the same column.
fn long_functions(file: &SourceFile) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut broken = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let is_function = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn "]
            .iter()
            .any(|head| trimmed.starts_with(head))
            || trimmed.starts_with("pub const fn ")
            || trimmed.starts_with("async fn ")
            || trimmed.starts_with("pub async fn ");
        if !is_function || trimmed.ends_with('}') {
            continue;
        }
        let indent = line.len() - trimmed.len();
        let closing = format!("{}}}", " ".repeat(indent));
        let body = lines[start..].iter().position(|line| **line == closing);
        let ends_before = lines[start..].iter().position(|line| line.trim_end().ends_with(';'));
        let Some(length) = body else { continue };
        // A declaration without a body ends at its semicolon, before any brace opens.
        let opens = lines[start..].iter().position(|line| line.trim_end().ends_with('{'));
        if opens.is_none() || ends_before.is_some_and(|end| Some(end) < opens) {
            continue;
        }
        if length + 1 > FUNCTION_LINES_MAX {
            broken.push(format!("{}:{}: {} lines", file.path, start + 1, length + 1));
        }
    }
    broken
}

#[test]
fn no_function_is_longer_than_seventy_lines() {
    let broken: Vec<String> = files(&[".rs"]).iter().flat_map(long_functions).collect();
    report("split these functions", &broken);
}

#[test]
fn the_length_check_sees_a_long_function() {
    let mut text = String::from("pub fn long() {\n");
    text.push_str(&"    work();\n".repeat(FUNCTION_LINES_MAX));
    text.push_str("}\n");
    let file = SourceFile { path: "x.rs".to_owned(), text, for_tests: false };
    assert_eq!(long_functions(&file).len(), 1);
    let text = "fn a() {\n    b();\n}\n".to_owned();
    let short = SourceFile { path: "x.rs".to_owned(), text, for_tests: false };
    assert!(long_functions(&short).is_empty());
}

#[test]
fn nothing_unfinished_is_left_in_the_source() {
    let words = ["TODO", "FIXME", "XXX", "HACK"].map(|word| word.to_owned());
    let macros = ["todo", "unimplemented"].map(|name| format!("{name}!("));
    let mut broken = Vec::new();
    for file in files(&[".rs"]) {
        if file.path.starts_with("crates/tidy/") {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            if words.iter().chain(&macros).any(|word| line.contains(word.as_str())) {
                broken.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    report("finish these, or write them down as an issue", &broken);
}

#[test]
fn every_module_says_what_it_is_for() {
    let broken: Vec<String> = files(&[".rs"])
        .iter()
        .filter(|file| file.path.starts_with("crates/") || file.path.starts_with("fuzz/"))
        .filter(|file| !file.text.starts_with("//!") && !file.text.starts_with("#!["))
        .map(|file| file.path.clone())
        .collect();
    report("open these files with //!", &broken);
}

#[test]
fn no_source_file_is_forgotten_by_its_crate() {
    let all = files(&[".rs"]);
    let mut broken = Vec::new();
    for file in &all {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        if !folder.contains("/src") || ["lib.rs", "main.rs", "mod.rs"].contains(&name) {
            continue;
        }
        let stem = name.trim_end_matches(".rs");
        let crate_root = folder.split("/src").next().unwrap_or(folder);
        let declared = all.iter().filter(|other| other.path.starts_with(crate_root)).any(|other| {
            other.text.contains(&format!("mod {stem};"))
                || other.text.contains(&format!("\"{name}\""))
        });
        if !declared && !folder.ends_with("/bin") {
            broken.push(file.path.clone());
        }
    }
    report("no module declares these files", &broken);
}
