//! What the `tidy` test needs to look at the source tree: walking it and reading files.
//!
//! The rules themselves are tests, one per file under `tests/`, so that a broken rule is named
//! in the output of `cargo test`.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file: its path relative to the workspace root, and its text.
#[derive(Debug)]
pub struct SourceFile {
    /// Relative path with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// Whether its parent module declares it for tests only.
    pub for_tests: bool,
}

impl SourceFile {
    /// Whether the file holds tests only: by its folder or by its name.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.for_tests
            || self.path.contains("/tests/")
            || self.path.ends_with("_tests.rs")
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/benches/")
    }

    /// The crate a path under `crates/` belongs to.
    #[must_use]
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// The text before the first inline test module: what ships. A test module in a file of its
    /// own may be declared anywhere; it ends nothing.
    #[must_use]
    pub fn production_text(&self) -> &str {
        let inline = self.text.match_indices("#[cfg(test)]\nmod ").find(|(at, head)| {
            let name = self.text[at + head.len()..].lines().next();
            name.is_some_and(|name| name.trim_end().ends_with('{'))
        });
        inline.map_or(&self.text, |(at, _)| &self.text[..at])
    }
}

/// The root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below the root whose name ends in one of `extensions`, in path order. Build output,
/// the version control folder and data directories are passed over.
#[must_use]
pub fn files(extensions: &[&str]) -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, extensions, &mut found);
    found.sort_by(|a: &SourceFile, b: &SourceFile| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "the walk found nothing below {}", root.display());
    let for_tests: Vec<String> = found.iter().flat_map(modules_for_tests).collect();
    for file in &mut found {
        file.for_tests = for_tests.contains(&file.path);
    }
    found
}

/// Paths of the modules that `file` declares under `#[cfg(test)]`.
fn modules_for_tests(file: &SourceFile) -> Vec<String> {
    let Some((folder, name)) = file.path.rsplit_once('/') else { return Vec::new() };
    let folder = match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        other => format!("{folder}/{}", other.trim_end_matches(".rs")),
    };
    let declared = file.text.split("#[cfg(test)]\nmod ").skip(1);
    declared
        .filter_map(|rest| rest.split_once(';'))
        .filter(|(name, _)| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .map(|(name, _)| format!("{folder}/{name}.rs"))
        .collect()
}

fn walk(root: &Path, folder: &Path, extensions: &[&str], found: &mut Vec<SourceFile>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            let skipped = ["target", ".git", "corpus", "artifacts", "node_modules"];
            if !skipped.contains(&name.as_str()) {
                walk(root, &path, extensions, found);
            }
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let relative = path.strip_prefix(root).unwrap_or(&path);
            let path = relative.to_string_lossy().replace('\\', "/");
            found.push(SourceFile { path, text, for_tests: false });
        }
    }
}
