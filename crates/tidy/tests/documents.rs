//! Documents: every link leads somewhere, every page has one title, the required pages exist.

use borzoi_tidy::{files, root};

const REQUIRED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "LICENSE",
    "deny.toml",
    ".ci/run",
    "docs/internals/README.md",
    "docs/internals/data-files.md",
    "docs/status.md",
    "docs/dependencies.md",
    "docs/glossary.md",
];

#[test]
fn the_pages_a_newcomer_needs_exist() {
    for page in REQUIRED {
        assert!(root().join(page).is_file(), "{page} is missing");
    }
}

#[test]
fn every_page_has_one_title() {
    for page in files(&[".md"]) {
        let mut fenced = false;
        let mut titles = 0;
        for line in page.text.lines() {
            if line.starts_with("```") {
                fenced = !fenced;
            }
            if !fenced && line.starts_with("# ") {
                titles += 1;
            }
        }
        assert_eq!(titles, 1, "{} has {titles} titles", page.path);
    }
}

/// Targets of `[text](target)` outside code fences.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for piece in line.split("](").skip(1) {
            if let Some(end) = piece.find(')') {
                found.push(piece[..end].to_owned());
            }
        }
    }
    found
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut broken = Vec::new();
    for page in files(&[".md"]) {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for link in links(&page.text) {
            if link.starts_with("http") || link.starts_with('#') || link.starts_with("mailto:") {
                continue;
            }
            let target = link.split('#').next().unwrap_or(&link);
            if !root().join(folder).join(target).exists() {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "these lead nowhere:\n  {}", broken.join("\n  "));
}

#[test]
fn the_link_finder_finds_links_and_skips_code() {
    let text = "see [a](b.md) and [c](d.md#e)\n```\n[x](y.md)\n```\n";
    assert_eq!(links(text), ["b.md", "d.md#e"]);
}

#[test]
fn every_decision_record_is_numbered_and_complete() {
    let mut seen = 0;
    for page in files(&[".md"]) {
        let Some(name) = page.path.strip_prefix("docs/decisions/") else { continue };
        let number = name.get(..4).unwrap_or("");
        assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{name} has no number");
        for part in ["Context", "Options", "Evidence", "Decision", "Consequences"] {
            assert!(page.text.contains(&format!("## {part}")), "{name} lacks {part}");
        }
        seen += 1;
    }
    assert!(seen > 0, "no decision record was found");
}
