// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests that failed once without a cause in the change: each is run once more by itself, loudly,
//! and if it passes then, it goes into a record instead of failing the step. The third failure in
//! the record is the last that is forgiven, until the test is mended and its line deleted.

pub(crate) mod again;
pub(crate) mod failures;
mod record;

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};

use crate::shell;
use crate::steps::Outcome;
use record::{FILE, Record};

/// So many may fail in a run of tests and be tried again; more have a cause.
pub(crate) const MOST: usize = 3;

/// So often a test may fail in the record.
const FORGIVEN: u32 = 3;

/// A test that this run found unsteady.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    step: &'static str,
    test: String,
}

/// The findings of this run. A change of the file holds their lock, too.
static FOUND: Mutex<Vec<Finding>> = Mutex::new(Vec::new());

thread_local! {
    /// The step that this thread runs.
    static STEP: Cell<&'static str> = const { Cell::new("") };
}

/// Runs a step; what it found unsteady is in its note.
pub(crate) fn within(step: &'static str, run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    let before = STEP.replace(step);
    let outcome = run();
    STEP.set(before);
    let found = found();
    let tests: Vec<&str> = found.iter().filter(|f| f.step == step).map(|f| &*f.test).collect();
    match outcome? {
        Outcome::Passed(note) if !tests.is_empty() => Ok(Outcome::Passed(noted(&note, &tests))),
        outcome => Ok(outcome),
    }
}

fn noted(note: &str, tests: &[&str]) -> String {
    let separator = if note.is_empty() { "" } else { "; " };
    format!("{note}{separator}{} unsteady: {}", tests.len(), tests.join(", "))
}

/// The step that this thread runs, for [`forgive`].
pub(crate) fn step() -> &'static str {
    STEP.get()
}

/// Tries tests again that failed in a step, and records them if all pass; at the most [`MOST`] of
/// them, and none that the record has too often.
///
/// # Errors
///
/// The reason why their failure stands.
pub(crate) fn forgive<T: fmt::Display>(
    step: &'static str,
    tests: &[T],
    again: impl FnMut(&T) -> Result<()>,
) -> Result<()> {
    let path = shell::root().join(FILE);
    try_again(&Record::read(&path)?, step, tests, again)?;
    let names: Vec<String> = tests.iter().map(T::to_string).collect();
    let today = if may_write() { Some(today()?) } else { None };
    note(&mut found(), &path, step, &names, today.as_deref())
}

fn try_again<T: fmt::Display>(
    record: &Record,
    step: &str,
    tests: &[T],
    mut again: impl FnMut(&T) -> Result<()>,
) -> Result<()> {
    if tests.len() > MOST {
        bail!("{} tests failed, more than the {MOST} that are tried again", tests.len());
    }
    for test in tests {
        let count = record.count(&test.to_string());
        if count >= FORGIVEN {
            bail!(
                "{test} failed, and {FILE} has it {count} times: it has to be mended (and its line \
                 deleted then)"
            );
        }
    }
    for test in tests {
        println!("again   {step}: {test} failed, and is run once more by itself");
        again(test)?;
        println!("UNSTEADY {step}: {test} failed, and passes by itself");
    }
    Ok(())
}

/// Adds what was unsteady to this run's findings, and to the file if there is a date for it.
fn note(
    found: &mut Vec<Finding>,
    path: &Path,
    step: &'static str,
    tests: &[String],
    today: Option<&str>,
) -> Result<()> {
    found.extend(tests.iter().map(|test| Finding { step, test: test.clone() }));
    let Some(today) = today else { return Ok(()) };
    // It may have changed while the tests ran again.
    let mut record = Record::read(path)?;
    tests.iter().for_each(|test| record.add(step, test, today));
    record.write(path)
}

/// A run writes the record unless it is one of continuous integration, which sets CI: that does not
/// commit the file.
pub(crate) fn may_write() -> bool {
    std::env::var_os("CI").is_none_or(|value| value.is_empty())
}

/// The date in UTC, as year-month-day.
fn today() -> Result<String> {
    Ok(shell::output(shell::program("date").args(["--utc", "+%F"]))?.trim().to_owned())
}

fn found() -> MutexGuard<'static, Vec<Finding>> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tests that were unsteady in this run, and all of the record, for the end of the run.
pub(crate) fn report() -> String {
    let record = Record::read(&shell::root().join(FILE));
    told(&found(), may_write(), &record)
}

fn told(found: &[Finding], written: bool, record: &Result<Record>) -> String {
    let mut text = "\nunsteady in this run:".to_owned();
    match (found, written) {
        ([], _) => text.push_str(" none"),
        (_, true) => _ = write!(text, " (added to {FILE}, which is to be committed)"),
        (_, false) => _ = write!(text, " (CI is set, so {FILE} stays as it is)"),
    }
    for Finding { step, test } in found {
        let _ = write!(text, "\n    {step}: {test}");
    }
    let rows = match record {
        Ok(record) => &record.rows[..],
        Err(error) => {
            let _ = write!(text, "\nthe record cannot be read: {error:#}");
            &[]
        }
    };
    if !rows.is_empty() {
        let _ = write!(text, "\nto be mended, from {FILE}:");
    }
    for row in rows {
        let last = if row.last.is_empty() { "date unknown" } else { &row.last };
        let _ = write!(text, "\n    {} x {}: {} ({last})", row.failed, row.step, row.test);
        if !row.known.is_empty() {
            let _ = write!(text, "\n        {}", row.known);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn with(test: &str, times: u32) -> Record {
        let mut record = Record::default();
        (0..times).for_each(|_| record.add("asan", test, "2026-11-26"));
        record
    }

    /// The tests that are tried again, and the result.
    fn tried(record: &Record, tests: &[&str], bad: &str) -> (Vec<String>, Result<(), String>) {
        let mut tried = Vec::new();
        let result = try_again(record, "test", tests, |test| {
            tried.push((*test).to_owned());
            if *test == bad { bail!("fails again") } else { Ok(()) }
        });
        (tried, result.map_err(|error| error.to_string()))
    }

    #[test]
    fn few_tests_have_one_more_chance() {
        let none = Record::default();
        let names = ["a", "b", "c"];
        assert_eq!(tried(&none, &names, ""), (names.map(str::to_owned).into(), Ok(())));
        let (again, result) = tried(&none, &names, "b");
        assert_eq!((again.len(), result), (2, Err("fails again".to_owned())));
        let (again, result) = tried(&none, &["a", "b", "c", "d"], "");
        assert!(again.is_empty() && result.expect_err("too many").starts_with("4 tests failed"));
    }

    #[test]
    fn a_record_of_three_failures_forgives_no_fourth() {
        assert!(tried(&with("a", 2), &["a"], "").1.is_ok());
        let (again, result) = tried(&with("a", 3), &["b", "a"], "");
        assert!(again.is_empty());
        let error = result.expect_err("too often");
        assert!(error.contains("a failed, and .ci/unsteady.csv has it 3 times"), "{error}");
    }

    #[test]
    fn only_what_has_a_date_is_written() {
        let path = std::env::temp_dir().join(format!("iwarp-unsteady-{}", std::process::id()));
        let (mut found, names) = (Vec::new(), ["x a".to_owned(), "x b".to_owned()]);
        note(&mut found, &path, "test", &names, None).expect("nothing to write");
        assert!(!path.exists() && found.len() == 2);
        note(&mut found, &path, "test", &names[..1], Some("2026-11-26")).expect("a file");
        note(&mut found, &path, "test", &names, Some("2026-11-27")).expect("a file");
        let record = Record::read(&path);
        let _ = fs::remove_file(&path);
        let record = record.expect("a record");
        assert_eq!((record.count("x a"), record.count("x b")), (2, 1));
    }

    #[test]
    fn the_end_of_a_run_shows_findings_and_record() {
        let record = Ok(with("x a", 2));
        let quiet = told(&[], true, &record);
        assert!(quiet.contains("unsteady in this run: none"), "{quiet}");
        assert!(quiet.contains("2 x asan: x a (2026-11-26)"), "{quiet}");
        let found = [Finding { step: "test", test: "x b".to_owned() }];
        let written = told(&found, true, &record);
        assert!(written.contains("added to .ci/unsteady.csv"), "{written}");
        assert!(written.contains("\n    test: x b\n"), "{written}");
        assert!(told(&found, false, &record).contains("CI is set"));
        let broken = Err(anyhow::anyhow!("line 7"));
        assert!(told(&[], true, &broken).contains("cannot be read: line 7"));
    }

    #[test]
    fn a_step_that_passed_says_what_was_unsteady() {
        let passed = || Ok(Outcome::Passed("3 tests".to_owned()));
        let name = "a step of the tests of this module";
        let quiet = within(name, passed).expect("passed");
        assert_eq!(quiet.note(), "3 tests");
        let loud = within(name, || {
            let (step, test) = (step(), "x a".to_owned());
            found().push(Finding { step, test });
            passed()
        });
        assert_eq!(loud.expect("passed").note(), "3 tests; 1 unsteady: x a");
        assert_eq!(step(), "");
        let failed = within(name, || Ok(Outcome::Failed("why".to_owned()))).expect("an outcome");
        assert_eq!(failed.note(), "why");
    }
}
