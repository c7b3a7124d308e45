// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask test`: runs the steps and reports the result of each.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::ahead::{self, Ahead};
use crate::packages;
use crate::steps::{self, Due, Outcome, Step};
use crate::summary::{self, Line};
use crate::turn::{self, Inputs, Turn};
use crate::unsteady;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run all steps: before a release, or before a piece of work is called done
    #[arg(long)]
    all: bool,
    /// Run the gate only, and none of the steps whose turn it is
    #[arg(long, conflicts_with = "all")]
    gate: bool,
    /// Run only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', conflicts_with_all = ["all", "gate"])]
    only: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    skip: Vec<String>,
    /// Go on behind a step that failed
    #[arg(long)]
    keep_going: bool,
    /// List the steps with the reasons why they would run, and exit
    #[arg(long)]
    list: bool,
    /// Do not install anything
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    settings: steps::Settings,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut turn = Turn::new(&in_turn())?;
    let choice = choose(args, &turn)?;
    if args.list {
        for (step, why) in &choice.steps {
            println!("{:<12} {} ({why})", step.name, step.about);
        }
        for (step, why) in &choice.left_out {
            println!("{:<12} {} (not now: {why})", step.name, step.about);
        }
        return Ok(());
    }
    let names: Vec<&str> = choice.steps.iter().map(|(step, _)| step.name).collect();
    if !args.no_install {
        // A step without a subject asks for nothing.
        let with_subject = |step: &&Step| (step.absent)().is_none();
        let steps = choice.steps.iter().map(|(step, _)| *step).filter(with_subject);
        packages::ensure(&steps.map(|step| step.name).collect::<Vec<_>>())?;
    }
    let mut lines = Vec::new();
    let start = Instant::now();
    let mut ahead = None;
    for (step, why) in &choice.steps {
        // Output that ends too early tells by this which steps were slow.
        let since = start.elapsed().as_secs();
        println!("\n──── {}: {} ({why}; after {since} s)", step.name, step.about);
        if let Some(ahead) = &ahead {
            Ahead::make_way(ahead, step.name);
        }
        if step.name == ahead::FROM {
            ahead = Some(Ahead::start(&names)?);
        }
        let line = run_step(step, &args.settings);
        println!("──── {}: {} in {:.1} s", step.name, line.outcome.word(), line.took.as_secs_f64());
        if !matches!(line.outcome, Outcome::Passed(_)) {
            println!("     {}", line.outcome.note());
        }
        if let (Outcome::Passed(_), Due::InTurn(inputs)) = (&line.outcome, step.due)
            && let Some(why) = turn.passed(step.name, inputs, args.only.is_empty())?
        {
            println!("     not entered in {}: {why}", turn::FILE);
        }
        let failed = matches!(line.outcome, Outcome::Failed(_));
        lines.push(line);
        if failed && !args.keep_going {
            break;
        }
    }
    drop(ahead);
    let not_reached: Vec<&Step> =
        choice.steps[lines.len()..].iter().map(|(step, _)| *step).collect();
    println!("{}", summary::of(&lines, &not_reached, &choice.left_out));
    println!("{}", unsteady::report());
    let failure = |line: &Line| match &line.outcome {
        Outcome::Failed(error) => Some(format!("{}: {error}", line.step.name)),
        _ => None,
    };
    let failures: Vec<String> = lines.iter().filter_map(failure).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n       "));
    }
    Ok(())
}

/// Steps with the reasons why they run, and why not.
struct Choice {
    steps: Vec<(&'static Step, String)>,
    left_out: Vec<(&'static Step, String)>,
}

/// The steps outside of the gate.
fn in_turn() -> Vec<(&'static str, Inputs)> {
    let in_turn = |step: &Step| match step.due {
        Due::Always => None,
        Due::InTurn(inputs) => Some((step.name, inputs)),
    };
    steps::ALL.iter().filter_map(in_turn).collect()
}

fn choose(args: &Args, turn: &Turn) -> Result<Choice> {
    let named = args.only.iter().chain(&args.skip);
    for name in named {
        if !steps::ALL.iter().any(|step| step.name == name) {
            let all: Vec<&str> = steps::ALL.iter().map(|step| step.name).collect();
            bail!("no step {name}; there are: {}", all.join(" "));
        }
    }
    let named = |list: &[String], step: &Step| list.iter().any(|name| name == step.name);
    // The reason why a step runs, or why it does not.
    let judge = |step: &Step| -> Result<String, String> {
        let no = |why: &str| Err(why.to_owned());
        let yes = |why: &str| Ok(why.to_owned());
        if named(&args.skip, step) {
            return no("--skip");
        }
        if !args.only.is_empty() {
            return if named(&args.only, step) { yes("--only") } else { no("--only") };
        }
        match (step.due, turn.reason(step.name)) {
            (Due::Always, _) => yes("gate"),
            (Due::InTurn(_), _) if args.gate => no("--gate"),
            (Due::InTurn(_), Some(why)) => yes(why),
            (Due::InTurn(_), None) if args.all => yes("--all"),
            (Due::InTurn(_), None) => no("unchanged since it passed"),
        }
    };
    let mut choice = Choice { steps: Vec::new(), left_out: Vec::new() };
    for step in steps::ALL {
        match judge(step) {
            Ok(why) => choice.steps.push((step, why)),
            Err(why) => choice.left_out.push((step, why)),
        }
    }
    Ok(choice)
}

fn run_step(step: &'static Step, settings: &steps::Settings) -> Line {
    let start = Instant::now();
    let outcome = match (step.absent)() {
        Some(what) => Outcome::Absent(what),
        None => match unsteady::within(step.name, || (step.run)(settings)) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        },
    };
    Line { step, outcome, took: start.elapsed() }
}
