// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running the command.

pub(crate) mod server;

use std::process::{Command, Output};

/// The command with `arguments`, in an environment that says nothing about iWARP.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iwarp"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("IWARP_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command runs")
}

/// What it printed.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it complained about.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
