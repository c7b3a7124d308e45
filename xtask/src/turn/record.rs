// SPDX-License-Identifier: MIT OR Apache-2.0

//! The record of steps that passed: a line for each, with the commit and the number of the run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

const HEAD: &str = "step,commit,run";

/// By step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    lines: BTreeMap<String, Passed>,
}

/// A step's last success.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passed {
    /// The whole name of the commit.
    pub(super) commit: String,
    /// Runs of the gate are numbered from 1.
    pub(super) run: u32,
}

impl Record {
    pub(super) fn of(&self, step: &str) -> Option<&Passed> {
        self.lines.get(step)
    }

    /// The number of the last run in which a step passed, or 0.
    pub(super) fn last_run(&self) -> u32 {
        self.lines.values().map(|passed| passed.run).max().unwrap_or(0)
    }

    pub(super) fn enter(&mut self, step: &str, commit: &str, run: u32) {
        self.lines.insert(step.to_owned(), Passed { commit: commit.to_owned(), run });
    }
}

impl FromStr for Record {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut record = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| *line != HEAD) {
            let mut parse = || -> Result<()> {
                let [step, commit, run] = line.split(',').collect::<Vec<_>>()[..] else {
                    bail!("expected {HEAD}");
                };
                let is_commit = commit.len() >= 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
                if step.is_empty() || !is_commit {
                    bail!("expected the whole name of a commit behind a step");
                }
                record.enter(step, commit, run.parse().context("expected the number of a run")?);
                Ok(())
            };
            parse().with_context(|| format!("line {}, {line:?}", number + 1))?;
        }
        Ok(record)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (step, Passed { commit, run }) in &self.lines {
            writeln!(f, "{step},{commit},{run}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record::default();
        record.enter("musl", COMMIT, 7);
        record.enter("doc", COMMIT, 6);
        assert_eq!(record.to_string().parse::<Record>().unwrap(), record);
        assert_eq!(record.last_run(), 7);
        assert_eq!(Record::default(), "".parse().unwrap());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for line in ["doc", "doc,,1", "doc,abc,1", ",0123456789abcdef0123456789abcdef01234567,1"] {
            let error = format!("{HEAD}\n{line}\n").parse::<Record>().unwrap_err();
            assert!(format!("{error:#}").starts_with("line 2"), "{error:#}");
        }
        assert!(format!("{HEAD}\ndoc,{COMMIT},x\n").parse::<Record>().is_err());
    }
}
