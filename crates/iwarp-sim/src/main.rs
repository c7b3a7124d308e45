// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs seeds and reports the first one that breaks a rule.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use iwarp_sim::{Options, Summary, engine, local, roce, run_seed};

/// Runs the protocol core, the whole library, or RoCE v2, in a simulated network, with an oracle.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Number of seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Steps of each run: 1000, 120 with --engine, 400 with --roce.
    #[arg(long)]
    steps: Option<u64>,
    /// The whole library: verbs, connection manager, rendezvous, hand-over, workers.
    #[arg(long)]
    engine: bool,
    /// Connections within a host: each program by TCP's stand-in, and by a way past it.
    #[arg(long, conflicts_with = "engine")]
    local: bool,
    /// RoCE v2: queue pairs on a network that loses, repeats and mixes up packets.
    #[arg(long, conflicts_with = "engine")]
    roce: bool,
    /// With --roce, only queue pairs of this type: uc or ud.
    #[arg(long, requires = "roce", value_parser = kind)]
    kind: Option<roce::Kind>,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Print every step.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.first..arguments.first + arguments.seeds,
    };
    // A panic is a finding like any other, and is reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.engine {
        run_engine(&arguments, seeds)
    } else if arguments.local {
        run_local(&arguments, seeds)
    } else if arguments.roce {
        run_roce(&arguments, seeds)
    } else {
        run_core(&arguments, seeds)
    }
}

fn kind(name: &str) -> Result<roce::Kind, String> {
    roce::Kind::named(name).ok_or_else(|| "not a type of queue pair that can be run".to_owned())
}

fn run_roce(arguments: &Arguments, seeds: Range<u64>) -> ExitCode {
    let (verbose, kind) = (arguments.verbose, arguments.kind);
    let mut options = roce::Options { verbose, kind, ..roce::Options::default() };
    options.steps = arguments.steps.unwrap_or(options.steps);
    let begun = Instant::now();
    let mut total = roce::Summary::default();
    for seed in seeds.clone() {
        match roce::run_seed(seed, &options) {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                eprintln!("{failure}");
                let of_kind = kind.map(|kind| format!(" --kind {kind:?}").to_lowercase());
                eprintln!(
                    "replay: cargo run --release -p iwarp-sim -- --roce{} --seed {seed} --steps {}",
                    of_kind.unwrap_or_default(),
                    options.steps
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{} seeds of RoCE v2, {} steps, {} packets, {} of them lost, {} told of \
         congestion, {} messages arrived, {} completions, digest {:016x}: all rules kept in {:.1} s",
        seeds.end - seeds.start,
        total.steps,
        total.packets,
        total.lost,
        total.notices,
        total.arrived,
        total.completions,
        total.digest,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn run_engine(arguments: &Arguments, seeds: Range<u64>) -> ExitCode {
    let mut options = engine::Options { verbose: arguments.verbose, ..engine::Options::default() };
    options.steps = arguments.steps.unwrap_or(options.steps);
    let begun = Instant::now();
    let mut total = engine::Summary::default();
    for seed in seeds.clone() {
        match engine::run_seed(seed, &options) {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                eprintln!("{failure}");
                let steps = options.steps;
                eprintln!(
                    "replay: cargo run --release -p iwarp-sim -- --engine --seed {seed} --steps \
                     {steps}"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{} seeds of the whole library, {} steps, {} connections, {} ends in shared memory with {} \
         direct requests, {} turns, {} pauses, {} completions, digest {:016x}: all rules kept in {:.1} s",
        seeds.end - seeds.start,
        total.steps,
        total.connections,
        total.moved,
        total.direct,
        total.turns,
        total.pauses,
        total.completions,
        total.digest,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn run_local(arguments: &Arguments, seeds: Range<u64>) -> ExitCode {
    let options = local::Options::new(arguments.verbose);
    let begun = Instant::now();
    let mut total = local::Summary::default();
    for seed in seeds.clone() {
        match local::run_seed(seed, &options) {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                eprintln!("{failure}");
                eprintln!("replay: cargo run --release -p iwarp-sim -- --local --seed {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{} seeds of connections within a host, {} ends in shared memory, {} direct requests, {} \
         completions: no difference to TCP in {:.1} s",
        seeds.end - seeds.start,
        total.moved,
        total.direct,
        total.completions,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn run_core(arguments: &Arguments, seeds: Range<u64>) -> ExitCode {
    let mut options = Options { verbose: arguments.verbose, ..Options::default() };
    options.steps = arguments.steps.unwrap_or(options.steps);
    let begun = Instant::now();
    let mut total = Summary::default();
    for seed in seeds.clone() {
        match run_seed(seed, &options) {
            Ok(summary) => total.add(&summary),
            Err(failure) => {
                eprintln!("{failure}");
                let steps = options.steps;
                eprintln!(
                    "replay: cargo run --release -p iwarp-sim -- --seed {seed} --steps {steps}"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{} seeds, {} steps, {} connections, {} MiB, {} completions, digest {:016x}: all rules \
         kept in {:.1} s",
        seeds.end - seeds.start,
        total.steps,
        total.connections,
        total.octets >> 20,
        total.completions,
        total.digest,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}
