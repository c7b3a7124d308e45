// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run` where there are no drop-in libraries.

use std::ffi::OsString;
use std::process::ExitCode;

/// Run an unmodified RDMA program, without an RDMA device (not in this build).
///
/// The drop-in libraries are for programs of a 64-bit Linux with glibc.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Says why nothing can be run.
pub(crate) fn run(args: &Args) -> ExitCode {
    let name = args.program[0].to_string_lossy();
    eprintln!(
        "iwarp run: {name}: this build has no drop-in libraries; they need a 64-bit Linux with glibc"
    );
    ExitCode::from(125)
}
