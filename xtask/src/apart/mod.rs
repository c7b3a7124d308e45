// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands in a network of their own: no other process takes their ports, and they take no
//! other's. If the system allows no network namespaces, a command is not started while another
//! process holds what it needs.

mod holders;

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::{Once, OnceLock};

use anyhow::{Result, bail};
use rustix::process::geteuid;

use crate::shell;

/// UDP port of RoCE v2, which the tests cannot choose.
const PORT: u16 = 4791;

/// Makes a network from the inside, then becomes the command.
const NETWORK: &str = "xtask/src/apart/network.sh";

/// Runs of tests by Cargo: builds them here, where there may be a way to a registry, and returns
/// the command that runs them apart.
///
/// # Errors
///
/// When they cannot be built; those of [`wrap`].
pub(crate) fn built(command: &Command) -> Result<Command> {
    shell::run(&mut build_of(command))?;
    let mut wrapped = wrap(command)?;
    if why_not().is_none() {
        wrapped.env("CARGO_NET_OFFLINE", "true");
    }
    Ok(wrapped)
}

/// The command in a network of its own. Process, signals and exit status are the command's.
///
/// # Errors
///
/// When another process holds the ports, and a network namespace is not allowed.
pub(crate) fn wrap(command: &Command) -> Result<Command> {
    match why_not() {
        None => Ok(wrapped(command)),
        Some(why) => beside(command, why, &holders::in_the_way(PORT)),
    }
}

/// The reason why commands get no network of their own, if they do not.
fn why_not() -> Option<&'static str> {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let attempt = || reason(wrapped(&shell::program("true")).stdin(Stdio::null()).output());
    WHY_NOT.get_or_init(attempt).as_deref()
}

fn reason(attempt: std::io::Result<Output>) -> Option<String> {
    let why = match attempt {
        Ok(output) if output.status.success() => return None,
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!(
                "{} ({})",
                shell::last_lines(errors.trim(), 2).replace('\n', "; "),
                output.status
            )
        }
        Err(error) => error.to_string(),
    };
    Some(format!("no network namespace by `unshare`: {why}"))
}

fn wrapped(command: &Command) -> Command {
    let mut unshare = shell::program("unshare");
    unshare.arg("--net");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    unshare.arg("sh").arg(shell::root().join(NETWORK));
    shell::in_front(unshare, command)
}

/// The command in the network of the whole machine.
fn beside(command: &Command, why: &str, in_the_way: &[String]) -> Result<Command> {
    static SAID: Once = Once::new();
    if !in_the_way.is_empty() {
        bail!(
            "{}; end that, or let tests have a network of their own, as root or in a user \
             namespace ({why})",
            in_the_way.join("; ")
        );
    }
    SAID.call_once(|| println!("in the network of the whole machine: {why}"));
    let mut same = Command::new(command.get_program());
    same.args(command.get_args());
    shell::in_place_of(&mut same, command);
    Ok(same)
}

/// A run of tests up to the tests.
fn build_of(command: &Command) -> Command {
    let mut build = Command::new(command.get_program());
    build.args(command.get_args().take_while(|argument| *argument != "--")).arg("--no-run");
    shell::in_place_of(&mut build, command);
    build
}

/// Program and arguments of a command without what [`wrap`] has put in front.
pub(crate) fn inner<'a>(words: &'a [&'a OsStr]) -> &'a [&'a OsStr] {
    let is_network = |word: &&OsStr| word.to_string_lossy().ends_with(NETWORK);
    words.iter().position(is_network).map_or(words, |place| &words[place + 1..])
}

#[cfg(test)]
mod tests;
