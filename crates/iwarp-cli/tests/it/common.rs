// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running the command.

pub(crate) mod busy;
pub(crate) mod server;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

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

/// Tries until there is something; panics once that took longer than `patience`. It leaves the CPU
/// to the process that is waited for.
pub(crate) fn within<T>(
    patience: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        let late = Instant::now() >= deadline;
        if let Some(found) = attempt() {
            return found;
        }
        assert!(!late, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until so many messages have come to the first queue pair of the process, and returns how
/// many.
pub(crate) fn messages(pid: &str, least: u64) -> u64 {
    within(Duration::from_secs(20), "traffic", || {
        let counts = stdout(&run(&["statistic", "-j", "-p", pid]));
        // There is none before it has a device.
        let counts: serde_json::Value = serde_json::from_str(&counts).ok()?;
        let count = counts.as_array()?.first()?["rx_messages"].as_u64()?;
        (count >= least).then_some(count)
    })
}

/// The output that it printed.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The complaints that it printed.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
