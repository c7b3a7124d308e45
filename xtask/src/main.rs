//! What the project does to itself: `cargo xtask <command>`.

mod conformance;
mod fuzz;
mod mutants;
mod packages;
mod purity;
mod sanitizer;
mod shell;
mod steps;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tests, conformance and fuzzing of the workspace")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what the tests need, then run all of them, step by step
    Test(test::Args),
    /// Compare the requirements of the RFCs with the tests that name them
    Conformance(conformance::Args),
    /// Run fuzz targets (without cargo-fuzz, on the stable toolchain)
    Fuzz(fuzz::Args),
    /// Mutate the protocol crate and see whether its tests notice (needs cargo-mutants)
    Mutants(mutants::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Mutants(args) => mutants::run(&args),
    };
    exit_code(result)
}

fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
