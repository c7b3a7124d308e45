// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask programs`: real programs of Debian under `iwarp run`.

mod again;
pub(crate) mod clock;
mod compare;
mod crate_rows;
pub(crate) mod crates;
mod document;
mod extra;
mod judge;
pub(crate) mod lab;
mod learning;
mod monitors;
mod mpi;
pub(crate) mod process;
pub(crate) mod pyverbs;
mod qemu;
mod scenario;
mod scenario_record;
mod sources;
mod storage;
mod stores;
mod symbols;
pub(crate) mod table;
mod ucx;
mod wheels;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use again::Problem;
use document::{Key, Verdict, Verdicts};
use lab::{Lab, Lane};
use scenario::Choice;
use table::{Row, Topology};

use crate::dist::Build;
use crate::unsteady;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only what has this in its group or its command
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Run those too that `cargo xtask test` leaves out because they take long to install or to run
    #[arg(long)]
    all: bool,
    /// Run only one quick row of every kind
    #[arg(long)]
    fast: bool,
    /// Compare with docs/programs.md instead of writing it
    #[arg(long)]
    check: bool,
    /// Rows at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Take the last build as it is
    #[arg(long)]
    no_build: bool,
    /// Run what users install, optimised and without the assertions of tests: for the speeds
    #[arg(long, conflicts_with = "personality")]
    release: bool,
    /// List what would run, and exit
    #[arg(long)]
    list: bool,
    /// Run every row with this device instead of its own, or with each, and show which rows end
    /// otherwise; nothing is recorded
    #[arg(long, value_name = "WHICH", conflicts_with = "check")]
    personality: Option<compare::Which>,
    /// With --personality: how often each is run
    #[arg(long, default_value_t = 1, requires = "personality")]
    repeat: u32,
}

/// One row in one topology, and what came of it.
#[derive(Clone)]
struct Run<'a> {
    row: &'a Row,
    topology: Topology,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut rows = table::rows();
    if let Some(which) = args.personality {
        rows = compare::rows(&rows, which);
    }
    let runs: Vec<Run> = rows
        .iter()
        .filter(|row| !args.fast || row.fast)
        .filter(|row| args.only.is_empty() || args.only.iter().any(|text| names(row, text)))
        .flat_map(|row| row.topologies.iter().map(move |&topology| Run { row, topology }))
        .collect();
    let scenarios = scenario::chosen(match (args.all, args.fast, &*args.only) {
        (_, true, _) => Choice::Only(&[]),
        (true, false, []) => Choice::All,
        (false, false, []) => Choice::Always,
        (_, false, texts) => Choice::Only(texts),
    });
    if args.list {
        for Run { row, topology } in &runs {
            let (topology, device) = (document::name(*topology), row.personality.name());
            println!("{:<16} {topology:<9} {device:<6} {}", row.group, row.client);
        }
        scenarios.iter().for_each(|run| println!("{}", run.line()));
        return Ok(());
    }
    let build = if args.release { Build::Release } else { Build::Ci };
    if !args.no_build {
        build.make()?;
    }
    if args.personality.is_some() {
        return compare::run(&runs, args.repeat, args.jobs);
    }
    let (verdicts, mut problems) = run_all(runs, args.jobs, build)?;
    let (records, more) = scenario::run_all(scenarios, args.jobs, build)?;
    problems.extend(more);
    let recorded = document::recorded();
    let mut kept = document::recorded_scenarios();
    if args.check {
        problems.extend(unrecorded(&verdicts, &recorded));
        problems.extend(scenario_record::compare(&records, &kept));
    } else {
        let known = |(key, topology): &(Key, &str)| {
            rows.iter().any(|row| {
                Key::of(row) == *key
                    && row.topologies.iter().any(|p| document::name(*p) == *topology)
            })
        };
        let mut all = recorded;
        all.retain(|which, _| known(which));
        all.extend(verdicts);
        kept.extend(records);
        document::write(&rows, &all, &kept, &symbols::all()?)?;
    }
    println!("{}", unsteady::report());
    if !problems.is_empty() {
        bail!("{}", problems.join("\n       "));
    }
    Ok(())
}

/// For the step `programs`: the programs that Debian has ready, held to the record.
pub(crate) fn check() -> Result<String> {
    check_rows(|row| !crates::ALL.contains(&row.group), Choice::Only(&[]), compare_symbols)
}

/// For the step `programs-more`: those that are built here first, or are installed with much else.
pub(crate) fn check_more() -> Result<String> {
    // The packages whose symbols are known are those of the other step.
    check_rows(|row| crates::ALL.contains(&row.group), Choice::Always, || Ok(Vec::new()))
}

/// `besides`: what else is wrong, once the packages are there.
fn check_rows(
    wanted: impl Fn(&Row) -> bool,
    scenarios: Choice,
    besides: impl FnOnce() -> Result<Vec<String>>,
) -> Result<String> {
    let rows = table::rows();
    let runs: Vec<Run> = rows
        .iter()
        .filter(|row| wanted(row))
        .flat_map(|row| row.topologies.iter().map(move |&topology| Run { row, topology }))
        .collect();
    Build::Ci.make()?;
    let (verdicts, problems) = run_all(runs, 2, Build::Ci)?;
    let (records, more) = scenario::run_all(scenario::chosen(scenarios), 2, Build::Ci)?;
    let unrecorded = unrecorded(&verdicts, &document::recorded());
    let unrecorded_too = scenario_record::compare(&records, &document::recorded_scenarios());
    let problems = [problems, more, unrecorded, unrecorded_too, besides()?].concat();
    if !problems.is_empty() {
        bail!("{}", problems.join("\n       "));
    }
    ensure!(!verdicts.is_empty() || !records.is_empty(), "no program was run");
    let good = verdicts.values().filter(|verdict| verdict.is_good()).count();
    let good = good + records.len();
    let count = verdicts.len() + records.len();
    Ok(format!("{good} of {count} runs of programs are as they should be"))
}

fn names(row: &Row, text: &str) -> bool {
    row.group == text || row.client.contains(text) || row.server.contains(text)
}

/// Runs all of them, some at a time, and a few that fail once more; also returns what is wrong.
fn run_all(runs: Vec<Run>, jobs: usize, build: Build) -> Result<(Verdicts, Vec<String>)> {
    if runs.is_empty() {
        return Ok(<_>::default());
    }
    let lab = lab_for(&runs, jobs, build)?;
    let results = run_each(&lab, runs);
    Ok(again::once_more(results, again::record, |run| attempt(&lab.lanes[0], run)))
}

/// A lab with what the programs of these runs need.
fn lab_for(runs: &[Run], jobs: usize, build: Build) -> Result<Lab> {
    let lab = Lab::new(build, jobs.clamp(1, 16))?;
    extra::compile(runs.iter().map(|run| run.row), &lab.bin())?;
    Ok(lab)
}

/// Runs each once.
fn run_each<'a>(lab: &Lab, runs: Vec<Run<'a>>) -> (Verdicts, Vec<Problem<Run<'a>>>) {
    let (start, count) = (Instant::now(), runs.len());
    let results = lab.each(runs, attempt);
    println!("{count} runs in {:.0} s", start.elapsed().as_secs_f64());
    results
}

/// The result of a run: its key, the verdict, and what is wrong.
type Attempt<'a> = ((Key, &'static str), Verdict, Option<Problem<Run<'a>>>);

fn attempt<'a>(lane: &Lane, run: Run<'a>) -> Attempt<'a> {
    let Run { row, topology } = run;
    let start = Instant::now();
    let what = format!("{} ({}), {}", row.client, row.personality.name(), document::name(topology));
    let result = judge::run(lane, row, topology);
    let verdict = Verdict::of(row, result.is_ok());
    let seconds = show(start.elapsed());
    let key = (Key::of(row), document::name(topology));
    let problem = match &result {
        Ok(()) => {
            println!("ok      {seconds} {what}");
            None
        }
        Err(error) => {
            println!("FAILS   {seconds} {what}: {error}");
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            let line = format!("{}, {}", key.0, key.1);
            Some(Problem { line, text: format!("{what}: {first}"), job: Some(run) })
        }
    };
    (key, verdict, problem)
}

fn show(took: Duration) -> String {
    format!("{:5.1} s", took.as_secs_f64())
}

/// The lines that the record lacks, where it must be complete.
fn unrecorded(verdicts: &Verdicts, recorded: &Verdicts) -> Vec<String> {
    let lacking = verdicts.keys().filter(|which| !recorded.contains_key(which));
    lacking
        .map(|(key, topology)| format!("{key}, {topology}: is not in docs/programs.md"))
        .collect()
}

/// Functions that are recorded as working and are not served any more.
fn compare_symbols() -> Result<Vec<String>> {
    let recorded = document::recorded_symbols();
    let lost = symbols::all()?.into_iter().filter(|s| !s.served && recorded.contains(&s.name));
    Ok(lost.map(|s| format!("{}: docs/programs.md says that it works", s.name)).collect())
}
