// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask learn`: the programs of docs/learn print what the book says, and its links lead
//! somewhere.

mod book;
mod pages;
mod pictures;
mod programs;

use std::path::PathBuf;

use anyhow::Result;

use crate::shell;

pub(crate) use pages::install;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write what the programs print into docs/learn/programs/output instead of comparing
    #[arg(long)]
    write: bool,
    /// Take the last builds of this project as they are
    #[arg(long)]
    no_build: bool,
    /// Run only these programs
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.no_build {
        programs::build()?;
    }
    println!("{}", programs::run(args.write, &args.only)?);
    // Behind the programs: `--write` may make what pages include.
    println!("{}", book::check()?);
    Ok(())
}

/// For `cargo xtask test`.
pub(crate) fn check() -> Result<String> {
    let book = book::check()?;
    programs::build()?;
    Ok(format!("{}; {book}", programs::run(false, &[])?))
}

/// The book's folder.
fn folder() -> PathBuf {
    shell::root().join("docs/learn")
}
