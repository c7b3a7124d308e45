// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults by rule below a program, and the table of what became of the rules.

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use iwarp::FaultRules;
use iwarp_os::process::end_with_starter;

use crate::torture::given_rules;

/// Exit status where a rule has never fired (`--strict`).
const NEVER_FIRED: u8 = 123;

/// The value of `IWARP_FAULTS` for what the user has given.
pub(super) fn text(given: &str, seed: Option<u64>) -> Result<String> {
    let mut text = given_rules(given)?;
    if let Some(seed) = seed {
        text.push_str(&format!("\nseed={seed}"));
    }
    Ok(text)
}

/// A run whose faults are written down.
pub(super) struct Recorded {
    rules: FaultRules,
    record: PathBuf,
    text: String,
}

impl Recorded {
    /// `None` where there are no rules, or where another process reads the record.
    pub(super) fn begin(text: &str) -> Result<Option<Self>> {
        let rules: FaultRules = text.parse().context("--faults: expected")?;
        if !rules.has_some() || rules.is_recorded() {
            return Ok(None);
        }
        let record = env::temp_dir().join(format!("iwarp-faults-{}", std::process::id()));
        let text = format!("{text}\nrecord={}", record.display());
        Ok(Some(Self { rules, record, text }))
    }

    /// Runs the program to its end, and prints the table.
    pub(super) fn run(&self, command: &mut Command, strict: bool) -> io::Result<ExitCode> {
        // A signal that ends this command is meant for the program.
        end_with_starter(command);
        let status = command.status()?;
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        let _ = fs::remove_file(&self.record);
        let counts = counts(self.rules.texts().count(), &text);
        eprintln!("faults of seed {}: {:>9} {:>7}  rule", self.rules.seed(), "matched", "fired");
        for (rule, (matched, fired)) in self.rules.texts().zip(&counts) {
            let place = 16 + self.rules.seed().to_string().len();
            eprintln!("{:place$} {:>9} {fired:>7}  {rule}", "", matched.max(fired));
        }
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        let code = u8::try_from(code.unwrap_or(super::FAILED.into())).unwrap_or(super::FAILED);
        if strict && code == 0 && counts.iter().any(|(_, fired)| *fired == 0) {
            eprintln!(
                "iwarp run: --strict: a rule has never fired; change its words, or what the \
                 program does"
            );
            return Ok(ExitCode::from(NEVER_FIRED));
        }
        Ok(ExitCode::from(code))
    }

    /// The rules, and where they are written down.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Matched and fired of each rule, of all processes.
fn counts(rules: usize, record: &str) -> Vec<(u64, u64)> {
    let mut counts = vec![(0, 0); rules];
    for line in record.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let rule = |text: &str| text.parse::<usize>().ok().and_then(|at| at.checked_sub(1));
        match words[..] {
            ["matched", at, count] => {
                if let Some(entry) = rule(at).and_then(|at| counts.get_mut(at)) {
                    entry.0 += count.parse().unwrap_or(0);
                }
            }
            ["fired", name] => {
                let at = name.split(':').nth(1).and_then(rule);
                if let Some(entry) = at.and_then(|at| counts.get_mut(at)) {
                    entry.1 += 1;
                }
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn counts_are_those_of_all_processes() {
        let record =
            "fired a:1:1:sent:3\nfired b:1:1:sent:3\nmatched 1 7\nmatched 2 4\nmatched 1 2\n";
        assert_eq!(counts(2, record), [(9, 2), (4, 0)]);
    }
}
