// SPDX-License-Identifier: MIT OR Apache-2.0

//! `SECURITY.md` promises what tests show: each attack of RFC 5042 stands there, each test that it
//! names exists, and each variable that it names is documented.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Sections of RFC 5042 that describe an attack, or say that there is nothing more to it.
const ATTACKS: [&str; 24] = [
    "6.1.1", "6.2.1", "6.2.2", "6.2.3", "6.3.1", "6.3.2", "6.3.3", "6.3.4", "6.3.5", "6.3.6",
    "6.4.1", "6.4.2", "6.4.3", "6.4.3.1", "6.4.3.2", "6.4.3.3", "6.4.4", "6.4.5", "6.4.6", "6.5",
    "7.1", "7.2", "7.3", "8",
];

/// The faults of the promises of the project at `root`, given the tests that it has.
pub(super) fn problems(root: &Path, tests: &BTreeSet<String>) -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(root.join(name)).context(name.to_owned());
    Ok(judge(&read("SECURITY.md")?, &read("docs/configuration.md")?, tests))
}

fn judge(promises: &str, configuration: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows: BTreeSet<&str> = promises.lines().filter_map(section).collect();
    let missing = ATTACKS.iter().filter(|attack| !rows.contains(**attack));
    let mut problems: Vec<String> =
        missing.map(|attack| format!("SECURITY.md has no row for RFC 5042 §{attack}")).collect();
    for quoted in promises.split('`').skip(1).step_by(2) {
        let is_test = quoted.starts_with("crates/") || quoted.starts_with("fuzz/");
        if is_test && !tests.contains(quoted) {
            problems.push(format!("SECURITY.md names a test that does not run: {quoted}"));
        }
        let variable = quoted.split('=').next().unwrap_or_default();
        if variable.starts_with("IWARP_") && !configuration.contains(&format!("| `{variable}` |")) {
            problems.push(format!("SECURITY.md: {variable} is not in docs/configuration.md"));
        }
    }
    problems
}

/// The section that a row of a table is about: `| §6.1.1 Title | ...`.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("| §")?.split([' ', '|']).next()
}

#[cfg(test)]
mod tests {
    use super::{ATTACKS, BTreeSet, judge};

    fn rows() -> String {
        ATTACKS.map(|attack| format!("| §{attack} Some attack | a defence |\n")).concat()
    }

    #[test]
    fn existing_names_are_no_problem() {
        let tests = BTreeSet::from(["crates/a/tests/b.rs::c".to_owned()]);
        let text = rows() + "A test: `crates/a/tests/b.rs::c`; `IWARP_CRC=off`, `IWARP_CRC`.";
        assert_eq!(judge(&text, "| `IWARP_CRC` | on |", &tests), [""; 0]);
    }

    #[test]
    fn missing_names_are_reported() {
        let text = rows().replace("§6.4.3.2 ", "6.4.3.2 ") + "`crates/a.rs::gone`, `IWARP_X`";
        let problems = judge(&text, "", &BTreeSet::new());
        assert_eq!(
            problems,
            [
                "SECURITY.md has no row for RFC 5042 §6.4.3.2",
                "SECURITY.md names a test that does not run: crates/a.rs::gone",
                "SECURITY.md: IWARP_X is not in docs/configuration.md",
            ]
        );
    }
}
