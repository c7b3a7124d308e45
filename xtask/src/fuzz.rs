// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask fuzz`: the targets of `fuzz/`, built with libFuzzer and AddressSanitizer.
//!
//! The folder is what cargo-fuzz expects, but all it does that matters here is a list of compiler
//! flags, and with `RUSTC_BOOTSTRAP=1` the stable compiler takes them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::sanitizer::{self, Sanitizer};
use crate::shell;

/// Coverage as libFuzzer wants it.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "--cfg=fuzzing",
    "--check-cfg=cfg(fuzzing)",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets (all of fuzz/fuzz_targets when none is named)
    targets: Vec<String>,
    /// Seconds that each of them runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Replay this input instead
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Only build
    #[arg(long, conflicts_with = "replay")]
    build_only: bool,
}

/// The names of all targets.
pub(crate) fn targets() -> Vec<String> {
    let dir = shell::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let known = targets();
    if let Some(wrong) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target {wrong}; there are: {}", known.join(" "));
    }
    let chosen = if args.targets.is_empty() { &known } else { &args.targets };
    if let Some(input) = &args.replay {
        let [target] = &chosen[..] else { bail!("name the one target that {input:?} is for") };
        // The command runs in the root of the workspace, the caller may be elsewhere.
        let input = fs::canonicalize(input).with_context(|| format!("{}", input.display()))?;
        build(chosen)?;
        return shell::run(shell::program(binary(target)?).arg(input));
    }
    build(chosen)?;
    if args.build_only {
        return Ok(());
    }
    for target in chosen {
        run_target(target, args.seconds)?;
    }
    Ok(())
}

/// Builds and runs all of them; what the step of `cargo xtask test` does.
pub(crate) fn run_all(seconds: u64) -> Result<String> {
    let targets = targets();
    build(&targets)?;
    for target in &targets {
        run_target(target, seconds)?;
    }
    Ok(format!("{seconds} s each: {}", targets.join(" ")))
}

fn build(targets: &[String]) -> Result<()> {
    let mut command = shell::cargo(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    for target in targets {
        command.args(["--bin", target]);
    }
    sanitizer::build_environment(&mut command, Sanitizer::Address, COVERAGE)?;
    command.env("CARGO_TARGET_DIR", build_dir());
    // g++ builds libFuzzer itself; without this the release profile of Cargo.toml would do LTO,
    // under which coverage does not work.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    shell::run(&mut command)
}

fn build_dir() -> PathBuf {
    shell::target_dir().join("fuzz")
}

fn binary(target: &str) -> Result<PathBuf> {
    Ok(build_dir().join(sanitizer::host()?).join("release").join(target))
}

fn run_target(target: &str, seconds: u64) -> Result<()> {
    let fuzz = shell::root().join("fuzz");
    // New inputs go into the first folder; the second holds those that are kept in the project.
    let corpus = fuzz.join("corpus").join(target);
    let seeds = fuzz.join("seeds").join(target);
    let artifacts = fuzz.join("artifacts").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    println!("\nfuzz target {target}, {seconds} s");
    let mut command = shell::program(binary(target)?);
    command.arg(corpus);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1"])
        .args(["-verbosity=1", "-reload=0"]);
    // Fuzzed code has nothing unsafe but accesses to shared memory, which is not allocated: looking
    // long for uses of what was freed, and keeping long stacks of who allocated it, finds nothing
    // there and takes most of the time.
    let few = "quarantine_size_mb=4:malloc_context_size=2:detect_stack_use_after_return=0";
    command.env("ASAN_OPTIONS", few);
    let outcome = shell::run(&mut command);
    outcome.with_context(|| {
        format!("{target} found something; replay: cargo xtask fuzz {target} --replay FILE")
    })
}
