// SPDX-License-Identifier: MIT OR Apache-2.0

//! The chores of the project: `cargo xtask <command>`.

mod ahead;
mod allocators;
mod apart;
mod conformance;
mod deadline;
mod dist;
mod evidence;
mod fuzz;
mod index;
mod instructions;
mod interop;
mod layers;
mod learn;
mod messages;
mod mutants;
mod nobody;
mod packages;
mod packaging;
mod portable;
mod programs;
mod prose;
mod purity;
mod recipe;
mod sanitizer;
mod shell;
mod soak;
mod steps;
mod summary;
mod test;
mod turn;
mod unsteady;

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
    /// Install what is missing, then run the gate and the steps whose turn it is
    Test(test::Args),
    /// Compare the requirements of the RFCs with the tests that name them
    Conformance(conformance::Args),
    /// Run fuzz targets (without cargo-fuzz, on the stable toolchain)
    Fuzz(fuzz::Args),
    /// Mutate the protocol crate and see whether its tests notice (needs cargo-mutants)
    Mutants(mutants::Args),
    /// Count the instructions of the inner loops and compare with the table
    Instructions(instructions::Args),
    /// Make a tarball, a Debian package and an RPM package for users, and try them
    Dist(dist::Args),
    /// Run real RDMA programs on the drop-in libraries and write docs/programs.md
    Programs(programs::Args),
    /// Mixed traffic, verified, while everything bad happens that can, by seed
    Soak(soak::Args),
    /// Run programs here against the same programs on Linux siw, in a guest
    Interop(interop::Args),
    /// Run rdma-core's Python tests on the drop-in libraries and write docs/pyverbs.md
    Pyverbs(programs::pyverbs::Args),
    /// Run the programs of docs/learn, compare what they print, and check the book's links
    Learn(learn::Args),
    /// Follow docs/ci.md, and run 1,000 jobs of each kind beside each other
    Recipe(recipe::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Programs(args) => programs::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Interop(args) => interop::run(&args),
        Command::Pyverbs(args) => programs::pyverbs::run(&args),
        Command::Learn(args) => learn::run(&args),
        Command::Recipe(args) => recipe::run(&args),
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
