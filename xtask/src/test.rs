// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask test`: runs the steps and says what came of each.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::ahead::{self, Ahead};
use crate::packages;
use crate::steps::{self, Outcome, Step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// List the steps and exit
    #[arg(long)]
    list: bool,
    /// Do not install anything
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    settings: steps::Settings,
}

/// One line of the table at the end.
struct Line {
    step: &'static str,
    outcome: Outcome,
    took: Duration,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = choose(args)?;
    if args.list {
        for step in &chosen {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(());
    }
    if !args.no_install {
        // A step without a subject asks for nothing.
        let names: Vec<&str> =
            chosen.iter().filter(|s| (s.absent)().is_none()).map(|s| s.name).collect();
        packages::ensure(&names)?;
    }
    let mut lines = Vec::new();
    let start = Instant::now();
    let mut ahead = None;
    for step in &chosen {
        if step.name == ahead::FROM {
            let names: Vec<&str> = chosen.iter().map(|step| step.name).collect();
            ahead = Some(Ahead::start(&names)?);
        }
        let line = run_step(step, &args.settings, start);
        let failed = matches!(line.outcome, Outcome::Failed(_));
        lines.push(line);
        if failed {
            break;
        }
    }
    drop(ahead);
    summarise(&chosen, &lines)
}

fn choose(args: &Args) -> Result<Vec<&'static Step>> {
    let named = args.only.iter().chain(&args.skip);
    for name in named {
        if !steps::ALL.iter().any(|step| step.name == name) {
            let all: Vec<&str> = steps::ALL.iter().map(|step| step.name).collect();
            bail!("no step {name}; there are: {}", all.join(" "));
        }
    }
    let wanted = |step: &&Step| {
        let named = |list: &[String]| list.iter().any(|name| name == step.name);
        (args.only.is_empty() || named(&args.only)) && !named(&args.skip)
    };
    Ok(steps::ALL.iter().filter(wanted).collect())
}

fn run_step(step: &Step, settings: &steps::Settings, first: Instant) -> Line {
    let start = Instant::now();
    // Output that ends too early tells by this which steps were slow.
    let since = (start - first).as_secs();
    println!("\n──── {}: {} (after {since} s)", step.name, step.about);
    let outcome = match (step.absent)() {
        Some(what) => Outcome::Absent(what),
        None => match (step.run)(settings) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        },
    };
    let took = start.elapsed();
    println!("──── {}: {} in {:.1} s", step.name, outcome.word(), took.as_secs_f64());
    if !matches!(outcome, Outcome::Passed(_)) {
        println!("     {}", outcome.note());
    }
    Line { step: step.name, outcome, took }
}

fn summarise(chosen: &[&Step], lines: &[Line]) -> Result<()> {
    println!("\n════ summary");
    for line in lines {
        let (word, note) = (line.outcome.word(), line.outcome.note());
        println!("{:<12} {word:<8} {:>7.1} s  {note}", line.step, line.took.as_secs_f64());
    }
    for step in &chosen[lines.len()..] {
        println!("{:<12} {:<8} {:>9}  an earlier step failed", step.name, "not run", "");
    }
    let names = |word: &str| -> Vec<&str> {
        lines.iter().filter(|line| line.outcome.word() == word).map(|line| line.step).collect()
    };
    let all = steps::ALL.len();
    println!("\n{} of {all} steps passed", names("passed").len());
    let left_out = all - chosen.len();
    if left_out > 0 {
        println!("left out by --only or --skip: {left_out}");
    }
    for (word, meaning) in
        [("absent", "what they test is not there yet"), ("not run", "a tool is missing")]
    {
        let names = names(word);
        if !names.is_empty() {
            println!("{word} ({meaning}; not counted as passed): {}", names.join(" "));
        }
    }
    match lines.last() {
        Some(Line { step, outcome: Outcome::Failed(error), .. }) => bail!("{step}: {error}"),
        _ => Ok(()),
    }
}
