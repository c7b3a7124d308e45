// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps that do not run every time, and when it is their turn.
//!
//! `.ci/passed.csv` holds the commit on which each of them passed last, and the number of that run.
//! A step is due when a file among its inputs differs from that commit. Of the others a third is
//! due too, those that have waited longest, because a step also depends on the machine: so none
//! goes untested for more than [`LONGEST`] runs.
//!
//! The file is written by a run on a developer's machine and committed with the work; continuous
//! integration reads it only.

mod git;
mod record;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{shell, unsteady};
use git::Git;
use record::Record;

/// The record, from the root of the workspace.
pub(crate) const FILE: &str = ".ci/passed.csv";

/// A step runs again after so many runs at the latest.
const LONGEST: u32 = 3;

/// Files that every step depends on.
const COMMON: &[&str] = &[".cargo/config.toml", "xtask/src/shell.rs"];

/// Lists of git's pathspecs: the files that a step depends on.
pub(crate) type Inputs = &'static [&'static [&'static str]];

/// The steps of this run that are due, and the record in which those that pass are entered.
pub(crate) struct Turn {
    record: Record,
    run: u32,
    /// The commit that the run began with.
    commit: Option<String>,
    reasons: BTreeMap<&'static str, String>,
}

impl Turn {
    /// Reads the record and chooses among `steps`, which are names and inputs.
    ///
    /// # Errors
    ///
    /// When the record cannot be read, or a line of it makes no sense.
    pub(crate) fn new(steps: &[(&'static str, Inputs)]) -> Result<Self> {
        let text = fs::read_to_string(path()).unwrap_or_default();
        let record: Record = text.parse().context(FILE)?;
        let run = record.last_run() + 1;
        let git = Git(shell::root());
        let changed = |name: &str, inputs: Inputs| -> Option<String> {
            let Some(passed) = record.of(name) else {
                return Some("it is not in the record".into());
            };
            git.change(&passed.commit, &all(inputs))
        };
        let steps: Vec<(&str, u32, Option<String>)> = steps
            .iter()
            .map(|(name, inputs)| {
                (*name, record.of(name).map_or(0, |passed| passed.run), changed(name, inputs))
            })
            .collect();
        let reasons = choose(&steps, run);
        Ok(Self { record, run, commit: git.head(), reasons })
    }

    /// The reason why a step is due, if it is.
    pub(crate) fn reason(&self, step: &str) -> Option<&str> {
        self.reasons.get(step).map(String::as_str)
    }

    /// Enters a step that has passed, or returns the reason why not. Runs of the whole gate are
    /// counted, and not those of single steps.
    pub(crate) fn passed(
        &mut self,
        step: &str,
        inputs: Inputs,
        whole: bool,
    ) -> Result<Option<String>> {
        if !unsteady::may_write() {
            return Ok(None);
        }
        let Some(commit) = &self.commit else { return Ok(Some("no git checkout".into())) };
        // Neither a change that is not committed nor one that was made meanwhile has passed.
        if let Some(change) = Git(shell::root()).change(commit, &all(inputs)) {
            return Ok(Some(change));
        }
        let run = if whole { self.run } else { self.run.saturating_sub(1).max(1) };
        self.record.enter(step, commit, run);
        fs::write(path(), self.record.to_string()).context(FILE)?;
        Ok(None)
    }
}

fn all(inputs: Inputs) -> Vec<&'static str> {
    [&inputs.concat(), COMMON].concat()
}

fn path() -> PathBuf {
    shell::root().join(FILE)
}

/// The steps that are due in this run, and why. Each comes with the run in which it passed last,
/// and with the change since then, if there is one.
fn choose<'a>(steps: &[(&'a str, u32, Option<String>)], run: u32) -> BTreeMap<&'a str, String> {
    let mut due = BTreeMap::new();
    let mut rest = Vec::new();
    for (name, last, change) in steps {
        match change {
            Some(change) => drop(due.insert(*name, change.clone())),
            None => rest.push((*last, *name)),
        }
    }
    // Steps that passed in one run keep their order.
    rest.sort_by_key(|(last, _)| *last);
    let third = rest.len().div_ceil(LONGEST as usize);
    for (place, (last, name)) in rest.into_iter().enumerate() {
        if place < third || run - last.min(run) >= LONGEST {
            due.insert(name, format!("its turn: it passed in run {last}, this is run {run}"));
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(due: &BTreeMap<&str, String>) -> Vec<String> {
        due.keys().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_step_whose_inputs_changed_is_due() {
        let steps = [("a", 4, Some("src/a.rs".to_owned())), ("b", 4, None), ("c", 4, None)];
        let due = choose(&steps, 5);
        assert_eq!(due["a"], "src/a.rs");
        assert_eq!(names(&due), ["a", "b"]);
    }

    #[test]
    fn no_step_waits_for_more_than_three_runs() {
        let all = ["a", "b", "c", "d", "e", "f", "g"];
        let mut last: BTreeMap<&str, u32> = all.iter().map(|name| (*name, 1)).collect();
        for run in 2..40 {
            let steps: Vec<_> = all
                .iter()
                // One that changes each time takes no turn from the others.
                .map(|name| (*name, last[name], (*name == "g").then(|| "changed".to_owned())))
                .collect();
            let due = choose(&steps, run);
            assert!(due.len() <= 4, "run {run}: {due:?}");
            last.extend(due.keys().map(|name| (*name, run)));
            assert!(last.values().all(|last| run - last < LONGEST), "run {run}: {last:?}");
        }
    }

    #[test]
    fn a_third_is_due_without_any_change() {
        let steps = [("a", 2, None), ("b", 1, None), ("c", 3, None)];
        assert_eq!(names(&choose(&steps, 4)), ["b"]);
    }
}
