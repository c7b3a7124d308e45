// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask instructions`: how many instructions the inner loops take, by callgrind, beside a
//! table that is checked in. More than 5 % above it fails.
//!
//! Times vary too much from run to run to guard 5 %; counts do not vary at all. Their meaning
//! depends on the compiler and the C library, so the table names the tools that it was made with,
//! and elsewhere the counts are shown but not judged.
//!
//! gungraun (formerly iai-callgrind) was considered. It wants a runner installed beside the crate,
//! of the very same version, and compares with the run before, which lies in the target folder and
//! not in the repository. Only one number is needed of callgrind, so this asks for it directly.

mod baseline;
mod callgrind;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::shell;
use crate::steps::Outcome;

use baseline::{Baseline, Line};

const FILE: &str = "crates/iwarp/tests/benches/instructions.txt";
const ACCEPT: &str = "cargo xtask instructions --write";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Take what is counted for the table to compare with
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    packages::ensure(&["instructions"])?;
    if args.write {
        let counted = count()?;
        // The first table has none before it.
        let old = load().unwrap_or_default();
        show(&old.beside(&counted));
        fs::write(path(), counted.to_string()).with_context(|| FILE.to_owned())?;
        println!("\nwritten: {FILE}");
        return Ok(());
    }
    match check()? {
        Outcome::Failed(note) => bail!("{note}"),
        outcome => println!("\n{}: {}", outcome.word(), outcome.note()),
    }
    Ok(())
}

/// The path of the table.
pub(crate) fn path() -> PathBuf {
    shell::root().join(FILE)
}

/// Counts, and judges where it may.
pub(crate) fn check() -> Result<Outcome> {
    let old = load()?;
    let new = count()?;
    let lines = old.beside(&new);
    show(&lines);
    let problems: Vec<String> = lines.iter().filter_map(Line::problem).collect();
    let better: Vec<String> = lines.iter().filter_map(Line::improvement).collect();
    if old.made_with != new.made_with {
        return Ok(Outcome::NotRun(format!(
            "counted but NOT JUDGED: the table was made with {}, this is {}; {ACCEPT}",
            old.made_with, new.made_with
        )));
    }
    if !problems.is_empty() {
        return Ok(Outcome::Failed(format!(
            "{}\nIf that is meant: {ACCEPT}, and commit {FILE} with the change",
            problems.join("\n")
        )));
    }
    for line in &better {
        println!("{line}; to keep it so: {ACCEPT}");
    }
    Ok(Outcome::Passed(format!("{} cases, {} improved", lines.len(), better.len())))
}

fn load() -> Result<Baseline> {
    fs::read_to_string(path()).with_context(|| FILE.to_owned())?.parse().context(FILE)
}

fn count() -> Result<Baseline> {
    let bench = callgrind::Bench::build()?;
    let mut counts = Vec::new();
    for case in bench.cases()? {
        let count = bench.count(&case)?;
        counts.push((case, count));
    }
    Ok(Baseline { made_with: callgrind::made_with()?, counts })
}

fn show(lines: &[Line]) {
    println!("\n{:<30} {:>10} {:>10} {:>9}", "instructions", "table", "now", "change");
    lines.iter().for_each(|line| println!("{line}"));
}
