//! A file of variables: `NAME=value` lines that stand in for an environment.
//!
//! Empty lines and lines that begin with `#` are passed over; `export` in front of a name is
//! allowed. A value may stand in single quotes (taken as it is) or in double quotes (`\n`, `\"`
//! and `\\` mean what they say); without quotes it ends at ` #` or at the end of the line.
//!
//! Invariant: a variable that the real environment sets is not changed by a file.

use super::ConfigError;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Variables that name the file, ours first.
const PATH_VARIABLES: [&str; 2] = ["BORZOI_ENV_PATH", "IGGY_ENV_PATH"];
/// The file that is read if none is named and it exists.
const DEFAULT_PATH: &str = ".env";

/// Adds the variables of the file that the environment names, else of `.env` in `directory` if
/// there is one.
///
/// # Errors
/// When a named file cannot be read, or a line is not understood.
pub fn extend(
    environment: &mut BTreeMap<String, String>,
    directory: &Path,
) -> Result<(), ConfigError> {
    let named = PATH_VARIABLES
        .iter()
        .find_map(|variable| environment.get(*variable).filter(|path| !path.is_empty()));
    let path = named.map_or_else(|| directory.join(DEFAULT_PATH), PathBuf::from);
    let shown = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => return Ok(()),
        Err(source) => return Err(ConfigError::Unreadable { path: shown, source }),
    };
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let Some((name, value)) = variable(content) else {
            return Err(ConfigError::EnvironmentLine { path: shown, line });
        };
        environment.entry(name).or_insert(value);
    }
    Ok(())
}

/// Name and value of one line.
fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let value = match value.chars().next() {
        Some('\'') => value.strip_prefix('\'')?.strip_suffix('\'')?.to_owned(),
        Some('"') => unescape(value.strip_prefix('"')?.strip_suffix('"')?)?,
        _ => value.split(" #").next().unwrap_or(value).trim_end().to_owned(),
    };
    is_name.then(|| (name.to_owned(), value))
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                other @ ('"' | '\\' | '$') => other,
                _ => return None,
            }),
            '"' => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, before: &[(&str, &str)]) -> Result<BTreeMap<String, String>, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".env"), text).unwrap();
        let mut environment: BTreeMap<String, String> =
            before.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        extend(&mut environment, directory.path())?;
        Ok(environment)
    }

    #[test]
    fn lines_become_variables_and_the_real_environment_wins() {
        let text = "# comment\n\nA=1\nexport B = two words # not this\nC='a # \"b\"'\n\
                    D=\"x\\n\\\"y\\\"\"\nE=\nF=from file\n";
        let found = read(text, &[("F", "real")]).unwrap();
        let get = |name: &str| found[name].as_str();
        assert_eq!((get("A"), get("B"), get("C")), ("1", "two words", "a # \"b\""));
        assert_eq!((get("D"), get("E"), get("F")), ("x\n\"y\"", "", "real"));
    }

    #[test]
    fn a_line_that_is_no_variable_is_refused_with_its_number() {
        for bad in ["A=1\nnonsense\n", "A=1\n=x\n", "A=1\nB C=x\n", "A=1\nB=\"x\n", "A=1\nB='x\n"] {
            let error = read(bad, &[]).unwrap_err().to_string();
            assert!(error.contains(".env, line 2"), "{error}");
        }
    }

    #[test]
    fn a_named_file_must_exist_and_the_usual_one_need_not() {
        let directory = tempfile::tempdir().unwrap();
        extend(&mut BTreeMap::new(), directory.path()).unwrap();
        let missing = directory.path().join("missing.env").display().to_string();
        for variable in PATH_VARIABLES {
            let mut environment = BTreeMap::from([(variable.to_owned(), missing.clone())]);
            let error = extend(&mut environment, directory.path()).unwrap_err().to_string();
            assert!(error.contains("missing.env"), "{error}");
        }
    }
}
