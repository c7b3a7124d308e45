// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp torture`: runs a command under seeds of faults, and shrinks what it finds.

mod apart;
mod attempt;
mod profile;
mod shrink;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use iwarp_kit::lines;

use apart::Network;
use attempt::{Attempt, Outcome, Plan};
pub(crate) use profile::given_rules;
use profile::{Profile, Rules};

/// Run a test command under many seeds of faults, and shrink the failures.
///
/// The command is run as by `iwarp run`, with all that it starts: first without faults, then once
/// for each seed, in network namespaces of its own where the system allows them, otherwise one at a
/// time. For each way in which it fails, the smallest set of faults is sought with which it still
/// does, and the command printed that repeats it.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "iwarp torture [OPTIONS] -- COMMAND [ARGUMENTS]...",
    after_long_help = EXAMPLES,
)]
pub(crate) struct Args {
    /// Number of seeds
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Seconds after which a run counts as hanging
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// The faults
    #[arg(long, value_name = "PROFILE", default_value = "mild")]
    profile: Profile,
    /// Rules of your own in place of a profile, as iwarp run --faults takes them
    #[arg(long, value_name = "RULES|@FILE", conflicts_with = "profile")]
    faults: Option<String>,
    /// Runs at a time; by default one for each CPU, or 1 without network namespaces
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Exit statuses with which the command says that it has noticed a fault, and which are no
    /// failures: by default 1 with the profiles connections, resources, errors and all, none with
    /// the others
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    expect: Option<Vec<i32>>,
    /// End the search at the first failure
    #[arg(long)]
    first: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  iwarp torture -- ./test.sh                        completions and packets that come late
  iwarp torture --profile all --seeds 1000 -- ./test.sh
  iwarp torture --faults status=RETRY_EXC_ERR,one-in=20 -- ./test.sh

Profiles:
  mild              completions that come a few milliseconds late
  network           also a network that delays, cuts and loses, but keeps connections
  placement         bytes that become visible in pieces, those of a segment's end last
  placement-strict  also with the last byte first: finds programs that poll it
  events            events that come late or twice, calls that take their time
  connections       connections that cannot be made, or are reset; a slow network
  resources         refused calls: no memory for registrations, queue pairs, work requests
  errors            completions with errors
  all               all of these but the strict one

Exit status: 0 if no run failed, 1 if some did, 2 if nothing could be tried.";

/// The exit statuses.
const FAILED: u8 = 1;
const NOT_TRIED: u8 = 2;

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    match torture(args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("iwarp torture: {}", lines::reason(&error));
            ExitCode::from(NOT_TRIED)
        }
    }
}

/// The number of ways in which it has failed.
fn torture(args: &Args) -> Result<usize> {
    let rules = match &args.faults {
        Some(given) => Rules::given(given)?,
        None => args.profile.rules(),
    };
    let notices = args.faults.is_none() && args.profile.refuses();
    let network = Network::find();
    let plan = Plan {
        command: &args.command,
        timeout: Duration::from_secs(args.timeout),
        expected: args.expect.clone().unwrap_or(if notices { vec![1] } else { Vec::new() }),
        apart: network.is_apart(),
    };
    let without = plan.attempt(None)?;
    if without.outcome != Outcome::Passed {
        bail!(
            "the command {} without any faults: mend that first, or give it another --timeout\n{}",
            without.outcome,
            without.output
        );
    }
    println!("without faults: passed in {:.1} s; {network}", without.took.as_secs_f64());
    let failures = search(args, &plan, &rules)?;
    let (mut all, mut told): (Vec<Outcome>, Vec<Outcome>) = (Vec::new(), Vec::new());
    for (seed, failure) in &failures {
        if !all.contains(&failure.outcome) {
            all.push(failure.outcome);
        }
        // If one cannot be repeated, another of its kind may.
        if !told.contains(&failure.outcome) && shrink::tell(&plan, &rules, *seed, failure)? {
            told.push(failure.outcome);
        }
    }
    Ok(all.len())
}

/// The seeds with which the command fails, the smallest first.
fn search(args: &Args, plan: &Plan<'_>, rules: &Rules) -> Result<Vec<(u64, Attempt)>> {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let jobs = args.jobs.unwrap_or(cpus);
    let jobs = if plan.apart { jobs } else { 1 };
    let (next, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let found = Mutex::new(Ok((0_u64, Vec::new())));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= args.seeds || done.load(Ordering::Relaxed) {
                return;
            }
            let seed = args.seed.saturating_add(number);
            let attempt = plan.attempt(Some(&rules.with_seed(seed)));
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (attempt, &mut *found) {
                (Ok(attempt), Ok((tried, failures))) => {
                    *tried += 1;
                    if attempt.outcome != Outcome::Passed {
                        println!(
                            "seed {seed}: {}, {} faults",
                            attempt.outcome,
                            attempt.fired.len()
                        );
                        failures.push((seed, attempt));
                        done.fetch_or(args.first, Ordering::Relaxed);
                    }
                }
                (Err(error), all) => {
                    *all = Err(error);
                    done.store(true, Ordering::Relaxed);
                }
                (Ok(_), Err(_)) => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (tried, mut failures) = found?;
    failures.sort_by_key(|(seed, _)| *seed);
    println!("{tried} seeds tried, {} failed", failures.len());
    Ok(failures)
}
