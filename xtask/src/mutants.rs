// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask mutants`: does breaking the protocol crate make a test fail?

use anyhow::{Result, bail};

use crate::shell;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only mutate files that match the pattern, such as `**/mpa/*.rs`
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Mutants built and tested at the same time
    #[arg(long, default_value_t = 2)]
    jobs: u32,
    /// Further arguments for cargo-mutants
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !shell::exists("cargo-mutants") {
        bail!("cargo-mutants is not installed: cargo install --locked cargo-mutants");
    }
    let mut command = shell::cargo(["mutants", "--package", "iwarp-proto"]);
    // A mutant that loops for ever is caught: the limit is for the tests of one mutant.
    command.args(["--timeout", "60", "--minimum-test-timeout", "20"]);
    command.arg("--jobs").arg(args.jobs.to_string());
    command.arg("--output").arg(shell::target_dir());
    for glob in &args.file {
        command.arg("--file").arg(glob);
    }
    command.args(&args.rest);
    shell::run(&mut command)
}
