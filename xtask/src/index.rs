// SPDX-License-Identifier: MIT OR Apache-2.0

//! The indexes of tests: the head of a binary of tests names each of its files, and says in one
//! line what it proves.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A head with an index, and the folders whose files it names: Rust files without `.rs`.
const INDEXES: [(&str, &[&str]); 2] = [
    ("crates/iwarp/tests/it/main.rs", &["crates/iwarp/tests/it"]),
    (
        "crates/iwarp-capi/tests/it/main.rs",
        &["crates/iwarp-capi/tests/it", "crates/iwarp-capi/tests/c"],
    ),
];

/// Checks that each file has its line, and each line its file.
pub(crate) fn check() -> Result<String> {
    let (mut problems, mut count) = (Vec::new(), 0);
    for (head, folders) in INDEXES {
        let source = fs::read_to_string(shell::root().join(head)).context(head)?;
        let (lines, files) = (names(&source), files(folders)?);
        count += files.len();
        let missing = files.difference(&lines).map(|name| format!("{head} has no line for {name}"));
        let stale =
            lines.difference(&files).map(|name| format!("{head} names {name}, which is gone"));
        problems.extend(missing.chain(stale));
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(format!("{count} files of tests are in an index"))
}

/// The files of the folders, but for the head.
fn files(folders: &[&'static str]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for folder in folders {
        for entry in fs::read_dir(shell::root().join(folder)).context(*folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            found.insert(name.strip_suffix(".rs").unwrap_or(&name).to_owned());
        }
    }
    found.remove("main");
    Ok(found)
}

/// The names in lines like `//!   name  text`.
fn names(source: &str) -> BTreeSet<String> {
    let entries = source.lines().filter_map(|line| line.strip_prefix("//!   "));
    entries.filter_map(|line| line.split_once("  ")).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_line_has_a_name_and_a_text() {
        let source =
            "//! Tests.\n//!\n//! Data\n//!   bulk    much\n//!   cm.c  events\n//!   odd\n";
        assert_eq!(names(source).into_iter().collect::<Vec<_>>(), ["bulk", "cm.c"]);
    }
}
