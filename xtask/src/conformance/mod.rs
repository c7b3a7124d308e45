// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask conformance`: the tests that cover each requirement of the RFCs, of RoCE v2, and of
//! rsockets.
//!
//! `conformance/requirements.csv` numbers the requirements, `conformance/exceptions.csv` gives
//! the reason why one has no test, or what has to be built first, and tests name what they cover in
//! a comment. Together they make `conformance/REPORT.md`.

mod report;
mod scan;
mod security;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::shell;
use scan::Scan;
use table::{Exception, Requirement};

/// Corners are numbered from 1; each has at least one test named `corner_NN_...`.
const CORNERS: u32 = 67;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write conformance/REPORT.md anew
    #[arg(long)]
    write: bool,
    /// Also fail when conformance/REPORT.md is not what would be written
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Take the lines out of conformance/exceptions.csv whose requirement is covered
    #[arg(long, conflicts_with = "check")]
    prune: bool,
    /// List every requirement that has neither test nor reason, not only the binding ones
    #[arg(long)]
    open: bool,
}

/// The state of a requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Status {
    /// Tests name it.
    Covered(Vec<String>),
    /// There is no test, for this reason.
    Reasoned(String),
    /// There is no test yet, because what it would test is still to be built.
    NotYet(String),
    /// Neither.
    Open,
}

/// The tables and the tests, compared.
struct Comparison {
    rows: Vec<(Requirement, Status)>,
    /// Tests of each corner.
    corners: BTreeMap<u32, Vec<String>>,
    /// Everything that has to be mended.
    problems: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.prune {
        println!("took out {} lines", prune()?);
    }
    let comparison = compare()?;
    if args.write {
        fs::write(report_file(), report::render(&comparison))?;
        println!("wrote {}", report_file().display());
    }
    if args.open {
        for (row, status) in &comparison.rows {
            if *status == Status::Open {
                println!("open: {} ({}) {}", row.id, row.level, row.text);
            }
        }
    }
    println!("{}", finish(comparison, args.check)?);
    Ok(())
}

/// Does the step of `cargo xtask test`: everything right, and the report up to date.
pub(crate) fn check() -> Result<String> {
    finish(compare()?, true)
}

fn finish(mut comparison: Comparison, with_report: bool) -> Result<String> {
    if with_report {
        let written = fs::read_to_string(report_file()).unwrap_or_default();
        if written != report::render(&comparison) {
            let problem = "REPORT.md is out of date: cargo xtask conformance --write";
            comparison.problems.push(problem.to_owned());
        }
    }
    let summary = report::summary(&comparison);
    if comparison.problems.is_empty() {
        return Ok(summary);
    }
    for problem in &comparison.problems {
        eprintln!("conformance: {problem}");
    }
    bail!("{} conformance problems; {summary}", comparison.problems.len());
}

/// Takes out the exceptions for single requirements that tests cover by now, and says how many.
fn prune() -> Result<usize> {
    let file = dir().join("exceptions.csv");
    let covers = scan::tree(&shell::root())?.covers;
    let before = fs::read_to_string(&file)?;
    let after = table::without(&before, |id| covers.iter().any(|cover| cover.id == id));
    fs::write(&file, &after)?;
    Ok(before.lines().count() - after.lines().count())
}

fn dir() -> PathBuf {
    shell::root().join("conformance")
}

fn report_file() -> PathBuf {
    dir().join("REPORT.md")
}

fn compare() -> Result<Comparison> {
    let requirements = table::requirements(&dir().join("requirements.csv"))?;
    let exceptions = table::exceptions(&dir().join("exceptions.csv"))?;
    let scan = scan::tree(&shell::root()).context("looking for tests")?;
    let promises = security::problems(&shell::root(), &scan.tests)?;
    let mut comparison = evaluate(requirements, &exceptions, scan);
    comparison.problems.extend(promises);
    Ok(comparison)
}

fn evaluate(requirements: Vec<Requirement>, exceptions: &[Exception], scan: Scan) -> Comparison {
    let mut problems = scan.problems;
    let mut covered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cover in scan.covers {
        if requirements.iter().any(|row| row.id == cover.id) {
            covered.entry(cover.id).or_default().push(cover.test);
        } else {
            problems.push(format!("{}: unknown requirement {}", cover.test, cover.id));
        }
    }
    for exception in exceptions {
        problems.extend(fault_of(exception, &requirements, &covered));
    }
    let mut rows = Vec::new();
    for row in requirements {
        let reasons: Vec<&Exception> =
            exceptions.iter().filter(|e| e.applies_to(&row.id)).collect();
        if reasons.len() > 1 {
            problems.push(format!("{}: more than one exception", row.id));
        }
        let status = match (covered.remove(&row.id), reasons.first()) {
            (Some(mut tests), _) => {
                tests.sort();
                tests.dedup();
                Status::Covered(tests)
            }
            (None, Some(exception)) => exception.status(),
            (None, None) => Status::Open,
        };
        if status == Status::Open && row.is_binding() {
            problems
                .push(format!("{}: {} without test or reason: {}", row.id, row.level, row.text));
        }
        rows.push((row, status));
    }
    let mut corners: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (number, test) in scan.corners {
        if number == 0 || number > CORNERS {
            problems.push(format!("{test}: there is no corner {number}"));
        }
        corners.entry(number).or_default().push(test);
    }
    for number in 1..=CORNERS {
        match corners.get_mut(&number) {
            Some(tests) => tests.sort(),
            None => problems.push(format!("corner {number:02}: no test corner_{number:02}_...")),
        }
    }
    Comparison { rows, corners, problems }
}

/// The fault of an exception, if any: it must be about something, and needed.
fn fault_of(
    exception: &Exception,
    requirements: &[Requirement],
    covered: &BTreeMap<String, Vec<String>>,
) -> Option<String> {
    let pattern = &exception.pattern;
    let mut about = requirements.iter().filter(|row| exception.applies_to(&row.id)).peekable();
    if about.peek().is_none() {
        return Some(format!("exception for unknown {pattern}"));
    }
    if exception.reason.is_empty() {
        return Some(format!("exception for {pattern} gives no reason"));
    }
    let row = about.find(|row| covered.contains_key(&row.id))?;
    Some(format!(
        "exception for {pattern} is stale: {} is covered by {}",
        row.id, covered[&row.id][0]
    ))
}

#[cfg(test)]
mod tests {
    use super::scan::{Cover, Scan};
    use super::table::{Exception, Requirement};
    use super::{CORNERS, Comparison, Status, evaluate};

    fn rows(ids: &[(&str, &str)]) -> Vec<Requirement> {
        let row = |(id, level): &(&str, &str)| Requirement {
            id: (*id).to_owned(),
            document: "5044".to_owned(),
            level: (*level).to_owned(),
            text: "text".to_owned(),
        };
        ids.iter().map(row).collect()
    }

    fn exception(pattern: &str) -> Exception {
        Exception { pattern: pattern.to_owned(), reason: "because".to_owned() }
    }

    fn compare(ids: &[(&str, &str)], exceptions: &[Exception], covers: &[&str]) -> Comparison {
        let cover = |id: &&str| Cover { id: (*id).to_owned(), test: "t".to_owned() };
        let scan = Scan {
            covers: covers.iter().map(cover).collect(),
            corners: (1..=CORNERS).map(|n| (n, format!("corner_{n:02}_x"))).collect(),
            ..Scan::default()
        };
        evaluate(rows(ids), exceptions, scan)
    }

    #[test]
    fn only_binding_rows_have_to_be_covered_or_reasoned() {
        let ids = [("A-1", "MUST"), ("A-2", "MUST NOT"), ("A-3", "SHOULD"), ("B-1", "MUST")];
        let done = compare(&ids, &[exception("A-2")], &["A-1", "B-1"]);
        assert!(done.problems.is_empty(), "{:?}", done.problems);
        assert_eq!(done.rows[2].1, Status::Open);
        let open = compare(&ids, &[exception("A-2")], &["A-1"]);
        assert_eq!(open.problems, ["B-1: MUST without test or reason: text"]);
    }

    #[test]
    fn requirements_still_to_be_built_stand_by_themselves() {
        let reason = "Not yet: there is no socket.".to_owned();
        let exceptions = [Exception { pattern: "A-1".to_owned(), reason }, exception("A-2")];
        let done = compare(&[("A-1", "MUST"), ("A-2", "MUST")], &exceptions, &[]);
        assert!(done.problems.is_empty(), "{:?}", done.problems);
        assert_eq!(done.rows[0].1, Status::NotYet("there is no socket.".to_owned()));
        assert_eq!(done.rows[1].1, Status::Reasoned("because".to_owned()));
    }

    #[test]
    fn exceptions_must_name_something_and_be_needed() {
        let ids = [("A-1", "MUST"), ("A-2", "MUST")];
        let stale = compare(&ids, &[exception("A-*")], &["A-2"]);
        assert_eq!(stale.problems, ["exception for A-* is stale: A-2 is covered by t"]);
        let unknown = compare(&ids, &[exception("C-1")], &["A-1", "A-2"]);
        assert_eq!(unknown.problems, ["exception for unknown C-1"]);
        let twice = compare(&ids, &[exception("A-*"), exception("A-1")], &[]);
        assert_eq!(twice.problems, ["A-1: more than one exception"]);
    }

    #[test]
    fn unknown_ids_and_missing_corners_are_problems() {
        let unknown = compare(&[("A-1", "MUST")], &[], &["A-1", "A-9"]);
        assert_eq!(unknown.problems, ["t: unknown requirement A-9"]);
        let scan = Scan {
            corners: (0..CORNERS).map(|n| (n, "c".to_owned())).collect(),
            ..Scan::default()
        };
        let corners = evaluate(Vec::new(), &[], scan);
        assert_eq!(
            corners.problems,
            ["c: there is no corner 0", "corner 67: no test corner_67_..."]
        );
    }
}
